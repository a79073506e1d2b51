//! Reading `usage` from a copy of what passes by.

use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Bytes of a JSON answer's end that are kept: `usage` comes after the choices on every engine.
const TAIL_BYTES: usize = 4_096;

/// What an answer says of its prompt; the fields that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: Option<u64>,
    /// Of those, found in the cache.
    pub cached_tokens: Option<u64>,
    /// Generated tokens.
    pub output_tokens: Option<u64>,
}

impl Usage {
    /// Takes over what `newer` knows.
    pub fn update(&mut self, newer: Self) {
        self.prompt_tokens = newer.prompt_tokens.or(self.prompt_tokens);
        self.cached_tokens = newer.cached_tokens.or(self.cached_tokens);
        self.output_tokens = newer.output_tokens.or(self.output_tokens);
    }
}

/// The wire forms: OpenAI chat and completions, OpenAI responses, Anthropic messages.
#[derive(Deserialize)]
struct Wire {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl From<Wire> for Usage {
    fn from(wire: Wire) -> Self {
        let details = wire.prompt_tokens_details.or(wire.input_tokens_details);
        // Anthropic counts what was read from or written to the cache beside the input, not within.
        let beside = wire
            .cache_read_input_tokens
            .map(|read| read.saturating_add(wire.cache_creation_input_tokens.unwrap_or(0)));
        let input = wire.input_tokens.map(|input| input.saturating_add(beside.unwrap_or(0)));
        Self {
            prompt_tokens: wire.prompt_tokens.or(input),
            cached_tokens: details.and_then(|d| d.cached_tokens).or(wire.cache_read_input_tokens),
            output_tokens: wire.completion_tokens.or(wire.output_tokens),
        }
    }
}

/// SGLang's own API: `meta_info` beside the text.
#[derive(Deserialize)]
struct MetaInfo {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

impl From<MetaInfo> for Usage {
    fn from(meta: MetaInfo) -> Self {
        Self {
            prompt_tokens: meta.prompt_tokens,
            cached_tokens: meta.cached_tokens,
            output_tokens: meta.completion_tokens,
        }
    }
}

/// llama.cpp's `timings`, on every last chunk: what was in the cache, and what was not.
#[derive(Deserialize)]
struct Timings {
    cache_n: u64,
    prompt_n: u64,
    predicted_n: Option<u64>,
}

impl From<Timings> for Usage {
    fn from(timings: Timings) -> Self {
        Self {
            prompt_tokens: Some(timings.cache_n.saturating_add(timings.prompt_n)),
            cached_tokens: Some(timings.cache_n),
            output_tokens: timings.predicted_n,
        }
    }
}

/// Where engines report what a prompt cost. The first form that is there counts.
struct Form {
    field: &'static [u8],
    /// Built once: most of what is searched has no usage, and is short.
    finder: memmem::Finder<'static>,
    parse: fn(&[u8]) -> Option<Usage>,
}

static FORMS: LazyLock<[Form; 3]> = LazyLock::new(|| {
    let form = |field: &'static [u8], parse| Form { field, finder: memmem::Finder::new(field), parse };
    [
        form(b"\"usage\"", parse::<Wire>),
        form(b"\"meta_info\"", parse::<MetaInfo>),
        form(b"\"timings\"", parse::<Timings>),
    ]
});

/// The last report in `json`, which may begin and end anywhere. Inside a JSON string the
/// quotes would be escaped, so generated text is never taken for it.
pub fn find_last(json: &[u8]) -> Option<Usage> {
    FORMS.iter().find_map(|form| {
        let found = form.finder.find_iter(json);
        let reports = found.filter_map(|at| json.get(at + form.field.len()..).filter(|rest| is_object(rest)));
        reports.last().and_then(form.parse)
    })
}

/// Whether `: {` follows.
fn is_object(rest: &[u8]) -> bool {
    value_of(rest).is_some_and(|value| value.starts_with(b"{"))
}

pub(super) fn value_of(rest: &[u8]) -> Option<&[u8]> {
    rest.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

/// Parses `: {...}` and passes over whatever follows it.
fn parse<T: DeserializeOwned + Into<Usage>>(rest: &[u8]) -> Option<Usage> {
    let value = value_of(rest)?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<T>();
    values.next()?.ok().map(Into::into)
}

/// The end of a JSON body, kept while it passes.
#[derive(Debug, Default)]
pub struct Tail {
    kept: Vec<u8>,
}

impl Tail {
    /// A chunk passed.
    pub fn push(&mut self, chunk: &[u8]) {
        let new = chunk.get(chunk.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
        let surplus = (self.kept.len() + new.len()).saturating_sub(TAIL_BYTES);
        self.kept.drain(..surplus.min(self.kept.len()));
        self.kept.extend_from_slice(new);
    }

    /// The body has ended: what its end says.
    pub fn usage(&self) -> Usage {
        find_last(&self.kept).unwrap_or_default()
    }

    /// What was kept.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt: u64, cached: u64) -> Usage {
        Usage { prompt_tokens: Some(prompt), cached_tokens: Some(cached), output_tokens: None }
    }

    #[test]
    fn every_api_form_is_read() {
        for (json, expected) in [
            (
                r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4},"x":1}}"#,
                usage(9, 4),
            ),
            (r#"{"usage" : { "input_tokens":9,"input_tokens_details":{"cached_tokens":4}}}"#, usage(9, 4)),
            (r#"{"usage":{"cache_read_input_tokens":16,"input_tokens":1,"output":1}}"#, usage(17, 16)),
            (
                r#"{"usage":{"input_tokens":3,"cache_creation_input_tokens":5,"cache_read_input_tokens":4}}"#,
                usage(12, 4),
            ),
            (
                r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}"#,
                Usage { prompt_tokens: Some(9), ..Usage::default() },
            ),
        ] {
            assert_eq!(find_last(json.as_bytes()), Some(expected), "{json}");
        }
    }

    #[test]
    fn engines_own_forms_are_read_where_there_is_no_usage() {
        let sglang = br#"{"text":"x","meta_info":{"id":"1","prompt_tokens":9,"completion_tokens":2,"cached_tokens":4}}"#;
        assert_eq!(find_last(sglang), Some(Usage { output_tokens: Some(2), ..usage(9, 4) }));
        let llama = br#"{"content":"x","tokens_cached":12,"timings":{"cache_n":4,"prompt_n":5,"prompt_ms":1.5,"predicted_n":3}}"#;
        assert_eq!(find_last(llama), Some(Usage { output_tokens: Some(3), ..usage(9, 4) }));
        let both = br#"{"timings":{"cache_n":1,"prompt_n":1},"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        assert_eq!(find_last(both), Some(usage(9, 4)));
        assert_eq!(
            find_last(br#"{"generated_text":"x","details":{"prefill":[]}}"#),
            None,
            "TGI says nothing"
        );
    }

    #[test]
    fn generated_text_is_not_taken_for_usage() {
        let json = br#"{"usage":{"prompt_tokens":1},"text":"\"usage\":{\"prompt_tokens\":666}"}"#;
        assert_eq!(find_last(json).unwrap().prompt_tokens, Some(1));
        assert_eq!(find_last(br#"{"usage":null}"#), None);
        assert_eq!(find_last(br#"{"usage":{"prompt_tokens":"many"}}"#), None);
        assert_eq!(find_last(b"\"usage\""), None);
    }

    #[test]
    fn the_tail_is_bounded_and_survives_any_chunking() {
        let body = format!(
            r#"{{"choices":["{}"],"usage":{{"prompt_tokens":5,"prompt_tokens_details":{{"cached_tokens":2}}}}}}"#,
            "x".repeat(10_000)
        );
        for size in [1, 7, 4_096, 100_000] {
            let mut tail = Tail::default();
            for chunk in body.as_bytes().chunks(size) {
                tail.push(chunk);
                assert!(tail.kept.len() <= TAIL_BYTES);
            }
            assert_eq!(tail.usage(), usage(5, 2), "chunks of {size}");
        }
    }
}
