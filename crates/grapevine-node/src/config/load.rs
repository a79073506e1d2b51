//! From named strings to a [`Config`].

use super::mistake::{Mistake, nearest};
use super::setting::Setting;
use super::strings::Strings;
use super::table::settings;
use super::{Config, Mistakes, check, otel, scalar};

/// Every name with this prefix is ours.
const PREFIX: &str = "GRAPEVINE_";

impl Config {
    /// Reads the configuration from `env`: every setting of the table, and what matters of `OTEL_*`.
    pub fn from_env(env: &dyn Strings) -> Result<Self, Mistakes> {
        let mut config = Self::default();
        let mut mistakes = Vec::new();
        for setting in settings() {
            read(setting, env, &mut config, &mut mistakes);
        }
        refuse_unknown(env, &mut mistakes);
        config.otel = otel::read(env, &mut mistakes);
        // A setting that could not be read would make its neighbours look wrong.
        let misread: Vec<String> = mistakes.iter().map(|m| m.setting.clone()).collect();
        let mut between = Vec::new();
        check::check(&config, &mut between);
        between.retain(|m| !misread.iter().any(|name| m.concerns(name)));
        mistakes.append(&mut between);
        if config.router_id.is_empty() {
            config.router_id = default_router_id(env, config.listen.port());
        }
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
    }
}

fn read(setting: &Setting, env: &dyn Strings, config: &mut Config, mistakes: &mut Vec<Mistake>) {
    match value(setting, env) {
        Ok(None) => {}
        Ok(Some((name, text))) => {
            if let Err(problem) = setting.apply(config, &text) {
                mistakes.push(Mistake::new(name, problem));
            }
        }
        Err(mistake) => mistakes.push(mistake),
    }
}

/// The variable that gives `setting`, and its text; a secret's may be in a file.
fn value(setting: &Setting, env: &dyn Strings) -> Result<Option<(String, String)>, Mistake> {
    let get = |name: &str| env.get(name).map_err(|_| Mistake::new(name, "is not valid UTF-8"));
    let direct = get(setting.name)?.map(|text| (setting.name.to_owned(), text));
    let Some(file_name) = setting.file_name() else { return Ok(direct) };
    let Some(path) = get(&file_name)? else { return Ok(direct) };
    if direct.is_some() {
        return Err(Mistake::new(setting.name, format!("is set and {file_name} too: unset one of them")));
    }
    match env.read(path.trim()) {
        Ok(text) => Ok(Some((file_name, text))),
        Err(error) => {
            let problem = format!("`{path}` cannot be read ({error}): give the path of a readable file");
            Err(Mistake::new(file_name, problem))
        }
    }
}

/// Names the binary to scripts that start routers, which these then inherit.
const NOT_OURS: &str = "GRAPEVINE_BIN";

fn refuse_unknown(env: &dyn Strings, mistakes: &mut Vec<Mistake>) {
    let known: Vec<String> =
        settings().flat_map(|s| [Some(s.name.to_owned()), s.file_name()]).flatten().collect();
    let mut unknown: Vec<String> = env.names();
    unknown.retain(|name| name.starts_with(PREFIX) && name != NOT_OURS && !known.contains(name));
    unknown.retain(|name| !is_service_link(name, env));
    unknown.sort_unstable();
    for name in unknown {
        // Without the prefix: what all names share says nothing of nearness.
        let meant = name.strip_prefix(PREFIX).unwrap_or(&name);
        let problem = match nearest(meant, known.iter().filter_map(|k| k.strip_prefix(PREFIX))) {
            Some(near) => format!("is not a setting: did you mean {PREFIX}{near}?"),
            None => "is not a setting: `grapevine serve --help` lists them".to_owned(),
        };
        mistakes.push(Mistake::new(name, problem));
    }
}

/// Kubernetes puts a variable for each Service into every pod of its namespace: a Service called
/// `grapevine` brings `GRAPEVINE_PORT=tcp://10.0.0.1:8080`, `GRAPEVINE_SERVICE_HOST` and more. They
/// are not meant for us.
fn is_service_link(name: &str, env: &dyn Strings) -> bool {
    let of_port = |rest: &str| {
        let mut parts = rest.split('_');
        let number = parts.next().is_some_and(|part| part.parse::<u16>().is_ok());
        let protocol = parts.next().is_some_and(|part| matches!(part, "TCP" | "UDP" | "SCTP"));
        number && protocol && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
    };
    let is_url = || env.get(name).ok().flatten().is_some_and(|value| value.contains("://"));
    // `GRAPEVINE_` itself may end the Service's name.
    let after = |mark: &str| name.rsplit_once(mark).map(|(_, rest)| rest);
    name.ends_with("_SERVICE_HOST")
        || after("_SERVICE_PORT").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        || name.match_indices("_PORT_").any(|(at, mark)| name.get(at + mark.len()..).is_some_and(of_port))
        || (name.ends_with("_PORT") && is_url())
}

/// Host name and port. With port 0 the process's number tells routers on one host apart.
fn default_router_id(env: &dyn Strings, port: u16) -> String {
    let mut id: String = env.host_name();
    id.retain(|c| scalar::is_name(c.encode_utf8(&mut [0; 4])));
    // Leaves room for the number.
    id.truncate(scalar::MAX_NAME - 12);
    match port {
        0 => format!("{id}-{}", std::process::id()),
        port => format!("{id}:{port}"),
    }
}
