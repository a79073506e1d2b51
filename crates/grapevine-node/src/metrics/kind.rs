//! What kind of request one is, in few values: nothing that a client made up becomes a label.

use grapevine_tree::Api;
use http::Method;

/// Paths that are told apart.
const ROUTES: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/models",
    "/v1/embeddings",
    "/v1/messages/count_tokens",
    "/generate",
];

/// Methods that are told apart; the last stands for all others, as the conventions have it.
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "_OTHER"];

/// A request's kind: places in tables, so that its series are found without looking at text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    method: u8,
    /// Past the last one: none of them.
    route: u8,
    /// What is asked of a model, if anything is.
    pub inference: Option<Inference>,
}

impl Kind {
    /// How many differ in method or route.
    pub const PLACES: usize = METHODS.len() * (ROUTES.len() + 1);

    /// Of a request with this method and path, whose body is laid out as `api`.
    pub fn of(method: &Method, path: &str, api: Api) -> Self {
        let route = ROUTES.iter().position(|route| *route == path).unwrap_or(ROUTES.len());
        let inference = if method == Method::POST { Inference::of(path, api) } else { None };
        Self { method: place_of(method) as u8, route: route as u8, inference }
    }

    /// The method, or `_OTHER`.
    pub fn method(self) -> &'static str {
        METHODS.get(usize::from(self.method)).copied().unwrap_or("_OTHER")
    }

    /// The path, if it is one that is told apart.
    pub fn route(self) -> Option<&'static str> {
        ROUTES.get(usize::from(self.route)).copied()
    }

    /// Its place among [`Kind::PLACES`].
    pub fn place(self) -> usize {
        usize::from(self.route) * METHODS.len() + usize::from(self.method)
    }
}

/// The path as a name of few values.
pub fn route_of(path: &str) -> Option<&'static str> {
    ROUTES.into_iter().find(|known| *known == path)
}

/// The method's name, or `_OTHER` for one that a client made up.
pub fn method_name(method: &Method) -> &'static str {
    METHODS.get(place_of(method)).copied().unwrap_or("_OTHER")
}

fn place_of(method: &Method) -> usize {
    let known = METHODS.len() - 1;
    METHODS.iter().take(known).position(|name| *name == method.as_str()).unwrap_or(known)
}

/// What is asked of a model, by the format that is spoken, in the words of the GenAI conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inference {
    /// OpenAI chat completions and responses.
    Chat,
    /// Anthropic messages.
    Messages,
    /// OpenAI text completions.
    Completions,
    /// The engines' own `/generate`.
    Generate,
    /// OpenAI embeddings.
    Embeddings,
}

impl Inference {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Chat, Self::Messages, Self::Completions, Self::Generate, Self::Embeddings];

    fn of(path: &str, api: Api) -> Option<Self> {
        match api {
            Api::Chat | Api::Responses => Some(Self::Chat),
            Api::Messages => Some(Self::Messages),
            Api::Completions => Some(Self::Completions),
            Api::Generate => Some(Self::Generate),
            Api::Other => (path == "/v1/embeddings").then_some(Self::Embeddings),
        }
    }

    /// `gen_ai.operation.name`.
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "chat",
            Self::Completions | Self::Generate => "text_completion",
            Self::Embeddings => "embeddings",
        }
    }

    /// `gen_ai.provider.name`: the format, as the conventions have no name for the engines behind it.
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Chat | Self::Completions | Self::Embeddings => "openai",
            Self::Messages => "anthropic",
            Self::Generate => "sglang",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn kind(method: &str, path: &str) -> Kind {
        Kind::of(&Method::from_bytes(method.as_bytes()).unwrap(), path, Api::of_path(path))
    }

    #[test]
    fn every_kind_has_a_place_of_its_own() {
        let paths = ROUTES.into_iter().chain(["/made/up"]);
        let all = paths.flat_map(|path| METHODS.map(|method| kind(method, path)));
        let places: BTreeSet<_> = all.map(Kind::place).collect();
        assert_eq!(places, (0..Kind::PLACES).collect());
    }

    #[test]
    fn what_clients_make_up_is_no_name() {
        let made_up = kind("BREW", "/v1/../secret");
        assert_eq!((made_up.method(), made_up.route(), made_up.inference), ("_OTHER", None, None));
    }

    #[test]
    fn inference_is_what_is_posted_to_a_model() {
        let names =
            |method, path| kind(method, path).inference.map(|asked| (asked.operation(), asked.provider()));
        for (path, expected) in [
            ("/v1/chat/completions", Some(("chat", "openai"))),
            ("/v1/responses", Some(("chat", "openai"))),
            ("/v1/messages", Some(("chat", "anthropic"))),
            ("/v1/completions", Some(("text_completion", "openai"))),
            ("/generate", Some(("text_completion", "sglang"))),
            ("/v1/embeddings", Some(("embeddings", "openai"))),
            ("/v1/messages/count_tokens", None),
            ("/tokenize", None),
        ] {
            assert_eq!(names("POST", path), expected, "{path}");
            assert_eq!(names("GET", path), None, "{path}");
        }
        assert!(Inference::ALL.iter().enumerate().all(|(i, asked)| *asked as usize == i));
    }
}
