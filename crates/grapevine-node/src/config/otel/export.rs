//! Where one signal goes, and how.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;

use super::get;
use crate::config::mistake::Mistake;
use crate::config::strings::Strings;
use crate::percent;

/// Limit of one export unless said, as the OTLP specification has it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest limit of one export: a stuck export holds the queue up.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
    Logs,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Protobuf bodies over HTTP.
    HttpProtobuf,
    /// gRPC.
    Grpc,
}

/// Where a signal goes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The whole URL that is posted to.
    pub endpoint: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Limit of one export, retries included.
    pub timeout: Duration,
    /// Sent with every export.
    pub headers: HeaderMap,
    /// File with authorities that vouch for the collector, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Files with the certificate and the key that are shown to the collector.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Export {
    /// To `endpoint` over HTTP, without anything special.
    pub fn http(endpoint: impl Into<String>, timeout: Duration) -> Self {
        let (protocol, headers) = (Protocol::HttpProtobuf, HeaderMap::new());
        Self { endpoint: endpoint.into(), protocol, timeout, headers, ca: None, identity: None }
    }
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    const fn path(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (Self::Traces, Protocol::HttpProtobuf) => "v1/traces",
            (Self::Metrics, Protocol::HttpProtobuf) => "v1/metrics",
            (Self::Logs, Protocol::HttpProtobuf) => "v1/logs",
            (Self::Traces, Protocol::Grpc) => "opentelemetry.proto.collector.trace.v1.TraceService/Export",
            (Self::Metrics, Protocol::Grpc) => {
                "opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
            }
            (Self::Logs, Protocol::Grpc) => "opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// Exporters that mean what the router does anyway: nothing is pushed.
    const fn at_home(self) -> &'static [&'static str] {
        match self {
            Self::Traces => &["none"],
            Self::Metrics => &["none", "prometheus"],
            Self::Logs => &["none", "console"],
        }
    }
}

/// The variables of one signal, and those of all.
struct Vars<'a> {
    env: &'a dyn Strings,
    signal: Signal,
}

impl Vars<'_> {
    /// The name and value of a variable: the signal's own, else that of all signals.
    fn get(&self, name: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{name}", self.signal.name());
        let all = format!("OTEL_EXPORTER_OTLP_{name}");
        [own, all].into_iter().find_map(|name| get(self.env, &name).map(|value| (name, value)))
    }
}

/// Whether and where a signal goes.
pub(super) fn read(env: &dyn Strings, signal: Signal, mistakes: &mut Vec<Mistake>) -> Option<Export> {
    let vars = Vars { env, signal };
    let wanted = wanted(&vars, mistakes)?;
    let before = mistakes.len();
    let mut noted = |result: Result<_, Mistake>| result.map_err(|mistake| note(mistakes, mistake)).ok();
    let protocol = noted(protocol(&vars)).unwrap_or(Protocol::HttpProtobuf);
    let mut note = |mistake: Mistake| note(mistakes, mistake);
    let endpoint = match endpoint(&vars, protocol, wanted) {
        Ok(endpoint) => endpoint?,
        Err(mistake) => {
            note(mistake);
            return None;
        }
    };
    let timeout = timeout(&vars).map_err(&mut note).unwrap_or(TIMEOUT);
    let headers = headers(&vars).map_err(&mut note).unwrap_or_default();
    let identity = identity(&vars).map_err(&mut note).unwrap_or_default();
    let ca = vars.get("CERTIFICATE").map(|(_, path)| PathBuf::from(path));
    (mistakes.len() == before).then_some(Export { endpoint, protocol, timeout, headers, ca, identity })
}

/// A mistake in a variable of all signals is one mistake.
fn note(mistakes: &mut Vec<Mistake>, mistake: Mistake) {
    if !mistakes.iter().any(|known| known.setting == mistake.setting) {
        mistakes.push(mistake);
    }
}

/// `None`: it is not to be pushed. `Some(true)`: it is, whether or not an endpoint is named.
fn wanted(vars: &Vars<'_>, mistakes: &mut Vec<Mistake>) -> Option<bool> {
    let name = format!("OTEL_{}_EXPORTER", vars.signal.name());
    let Some(said) = get(vars.env, &name) else { return Some(false) };
    let exporters: Vec<&str> =
        said.split(',').map(str::trim).filter(|exporter| !exporter.is_empty()).collect();
    let at_home = vars.signal.at_home();
    if let Some(other) = exporters.iter().find(|one| **one != "otlp" && !at_home.contains(one)) {
        let others: Vec<String> = at_home.iter().map(|one| format!("`{one}`")).collect();
        let problem = format!("`{other}` is not supported: use `otlp` or {}", others.join(" or "));
        mistakes.push(Mistake::new(name, problem));
        return None;
    }
    exporters.contains(&"otlp").then_some(true)
}

fn protocol(vars: &Vars<'_>) -> Result<Protocol, Mistake> {
    match vars.get("PROTOCOL") {
        None => Ok(Protocol::HttpProtobuf),
        Some((_, value)) if value == "http/protobuf" => Ok(Protocol::HttpProtobuf),
        Some((_, value)) if value == "grpc" => Ok(Protocol::Grpc),
        Some((name, value)) => {
            Err(Mistake::new(name, format!("`{value}` is not supported: use `http/protobuf` or `grpc`")))
        }
    }
}

/// The URL that is posted to; `None` when nobody named one and it was not asked for either.
fn endpoint(vars: &Vars<'_>, protocol: Protocol, wanted: bool) -> Result<Option<String>, Mistake> {
    let path = vars.signal.path(protocol);
    let below = |base: &str| format!("{}/{path}", base.trim_end_matches('/'));
    let Some((name, said)) = vars.get("ENDPOINT") else {
        let local =
            if protocol == Protocol::Grpc { "http://localhost:4317" } else { "http://localhost:4318" };
        return Ok(wanted.then(|| below(local)));
    };
    check_endpoint(&said).map_err(|problem| Mistake::new(name.clone(), problem))?;
    // The signal's own endpoint is a whole URL, but gRPC's paths are fixed.
    let whole = name.contains(vars.signal.name()) && protocol == Protocol::HttpProtobuf;
    Ok(Some(if whole { said } else { below(&said) }))
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let example = "write for example `http://127.0.0.1:4318`";
    let url = Url::parse(endpoint).map_err(|error| format!("is not a URL ({error}): {example}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme `{}`: {example}", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has credentials in it: put them into OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    Ok(())
}

fn timeout(vars: &Vars<'_>) -> Result<Duration, Mistake> {
    let Some((name, text)) = vars.get("TIMEOUT") else { return Ok(TIMEOUT) };
    let ms = text.parse().ok().filter(|ms| (1..=MAX_TIMEOUT_MS).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| {
        Mistake::new(name, format!("`{text}` is not a number of milliseconds from 1 to {MAX_TIMEOUT_MS}"))
    })
}

/// `key=value,...`. The value is never said in a mistake: it may be a secret.
fn headers(vars: &Vars<'_>) -> Result<HeaderMap, Mistake> {
    let Some((name, text)) = vars.get("HEADERS") else { return Ok(HeaderMap::new()) };
    let mut headers = HeaderMap::new();
    for (place, pair) in text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
        let parsed = pair.split_once('=').and_then(|(key, value)| {
            let mut value = HeaderValue::from_bytes(&percent::decode(value.trim().as_bytes())).ok()?;
            value.set_sensitive(true);
            Some((key.trim().parse::<HeaderName>().ok()?, value))
        });
        let Some((key, value)) = parsed else {
            let problem = format!("its part {} is not `key=value` with a header's name and value", place + 1);
            return Err(Mistake::new(name, problem));
        };
        headers.append(key, value);
    }
    Ok(headers)
}

fn identity(vars: &Vars<'_>) -> Result<Option<(PathBuf, PathBuf)>, Mistake> {
    match (vars.get("CLIENT_CERTIFICATE"), vars.get("CLIENT_KEY")) {
        (Some((_, cert)), Some((_, key))) => Ok(Some((cert.into(), key.into()))),
        (None, None) => Ok(None),
        (Some((name, _)), None) => Err(Mistake::new(name, "is set alone: set the CLIENT_KEY too")),
        (None, Some((name, _))) => Err(Mistake::new(name, "is set alone: set the CLIENT_CERTIFICATE too")),
    }
}
