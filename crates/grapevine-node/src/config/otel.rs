//! What the router itself decides of the `OTEL_*` variables: whether traces are exported, and where
//! to. All else that it supports goes to the OpenTelemetry SDK untouched. What neither supports is
//! refused by name: a variable that is silently ignored costs somebody an afternoon.

use std::time::Duration;

use reqwest::Url;

use super::mistake::Mistake;
use super::strings::Strings;

/// Export of traces is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesConfig {
    /// Where spans are posted as OTLP protobuf, path included.
    pub endpoint: String,
    /// Limit of one export.
    pub timeout: Duration,
}

/// Limit of one export unless said, as the OTLP specification has it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest limit of one export: a stuck export holds the queue up.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// Names the endpoint that is used in the end.
pub(super) const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// Where the generic endpoint takes traces, by the OTLP specification.
const TRACES_PATH: &str = "v1/traces";

/// What is supported, for the documentation.
pub(super) const SUPPORTED: &[(&str, &str)] = &[
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "Turns export on: base URL of an OTLP/HTTP collector, usually port 4318; `/v1/traces` is appended.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "Turns export on: full URL for traces; goes before the one above.",
    ),
    ("OTEL_SDK_DISABLED", "`true` turns export off."),
    ("OTEL_TRACES_EXPORTER", "`otlp` (default), or `none` to turn export off."),
    (
        "OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "Headers for the collector, `key=value,...`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        "Limit of one export, milliseconds (default 10000).",
    ),
    ("OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "`http/protobuf` only."),
    ("OTEL_EXPORTER_OTLP_COMPRESSION, OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "`none` only."),
    (
        "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES",
        "Resource of the spans; the service is `grapevine` by default.",
    ),
    (
        "OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG",
        "`always_on`, `always_off`, `traceidratio` or these with `parentbased_` before them \
         (default `parentbased_always_on`); the ratio is 0 to 1.",
    ),
    (
        "OTEL_BSP_SCHEDULE_DELAY, OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "Batching: delay in milliseconds (5000), spans queued (2048; more are dropped), spans per export (512).",
    ),
    (
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_EVENT_COUNT_LIMIT, OTEL_SPAN_LINK_COUNT_LIMIT",
        "Limits of a span.",
    ),
    ("OTEL_PROPAGATORS", "`tracecontext,baggage` only."),
];

/// What is refused whatever its value, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", CERTIFICATE),
    ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", CERTIFICATE),
    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", CERTIFICATE),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", CERTIFICATE),
    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", CERTIFICATE),
    ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", CERTIFICATE),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "is not supported: limit values in the collector"),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "is not supported: limit values in the collector"),
    ("OTEL_BSP_EXPORT_TIMEOUT", "is not supported: set OTEL_EXPORTER_OTLP_TIMEOUT"),
    ("OTEL_CONFIG_FILE", "is not supported: use the variables in docs/configuration.md"),
    ("OTEL_EXPERIMENTAL_CONFIG_FILE", "is not supported: use the variables in docs/configuration.md"),
];

const CERTIFICATE: &str = "is not supported: the system's certificates are trusted, none is presented; \
                           send to a collector next to the router";

/// Variables whose value must be one of a few, and what to do about another.
const RESTRICTED: &[(&str, &[&str], &str)] = &[
    ("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOLS, PROTOCOL),
    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", PROTOCOLS, PROTOCOL),
    ("OTEL_EXPORTER_OTLP_COMPRESSION", &["none"], "bodies are sent as they are: set it to `none`"),
    ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", &["none"], "bodies are sent as they are: set it to `none`"),
    (
        "OTEL_TRACES_SAMPLER",
        &[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ],
        "use always_on, always_off, traceidratio, or these with parentbased_ before them",
    ),
    (
        "OTEL_METRICS_EXPORTER",
        &["none", "prometheus"],
        "metrics are scraped from /metrics, not pushed: set it to `prometheus` or `none`",
    ),
    ("OTEL_LOGS_EXPORTER", &["none", "console"], "logs go to stderr: set it to `console` or `none`"),
];

const PROTOCOLS: &[&str] = &["http/protobuf"];
const PROTOCOL: &str = "only `http/protobuf` is spoken: set it so, and the endpoint to the collector's \
                        HTTP port (4318)";

/// Whether and where traces go. Nothing is refused when they go nowhere.
pub(super) fn read(env: &dyn Strings, mistakes: &mut Vec<Mistake>) -> Option<TracesConfig> {
    let (name, endpoint) = match get(env, ENDPOINT) {
        Some(url) => (ENDPOINT, url),
        None => {
            let base = get(env, "OTEL_EXPORTER_OTLP_ENDPOINT")?;
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/{TRACES_PATH}", base.trim_end_matches('/')))
        }
    };
    let disabled = get(env, "OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporter = get(env, "OTEL_TRACES_EXPORTER");
    if disabled || exporter.as_deref() == Some("none") {
        return None;
    }
    let before = mistakes.len();
    refuse(env, exporter.as_deref(), mistakes);
    if let Err(problem) = check_endpoint(&endpoint) {
        mistakes.push(Mistake::new(name, problem));
    }
    let timeout = timeout(env).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        TIMEOUT
    });
    (mistakes.len() == before).then_some(TracesConfig { endpoint, timeout })
}

/// A variable's value. Empty is unset, by OpenTelemetry's rules; so is what is not UTF-8.
fn get(env: &dyn Strings, name: &str) -> Option<String> {
    env.get(name).ok().flatten().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn timeout(env: &dyn Strings) -> Result<Duration, Mistake> {
    for name in ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"] {
        let Some(text) = get(env, name) else { continue };
        let ms = text.parse().ok().filter(|ms| (1..=MAX_TIMEOUT_MS).contains(ms));
        return ms.map(Duration::from_millis).ok_or_else(|| {
            Mistake::new(name, format!("`{text}` is not a number of milliseconds from 1 to {MAX_TIMEOUT_MS}"))
        });
    }
    Ok(TIMEOUT)
}

fn refuse(env: &dyn Strings, exporter: Option<&str>, mistakes: &mut Vec<Mistake>) {
    let get =
        |name: &str| env.get(name).ok().flatten().map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    if let Some(other) = exporter.filter(|e| *e != "otlp") {
        let problem = format!("`{other}` is not supported: use `otlp` or `none`");
        mistakes.push(Mistake::new("OTEL_TRACES_EXPORTER", problem));
    }
    for (name, problem) in REFUSED {
        if get(name).is_some() {
            mistakes.push(Mistake::new(*name, *problem));
        }
    }
    for (name, allowed, advice) in RESTRICTED {
        if let Some(value) = get(name).filter(|value| !allowed.contains(&value.as_str())) {
            mistakes.push(Mistake::new(*name, format!("`{value}` is not supported: {advice}")));
        }
    }
    if let Some(value) = get("OTEL_PROPAGATORS").filter(|value| !is_w3c(value)) {
        let problem = format!("`{value}` is not supported: only `tracecontext,baggage` is spoken");
        mistakes.push(Mistake::new("OTEL_PROPAGATORS", problem));
    }
    let ratio = |text: String| text.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio));
    if get("OTEL_TRACES_SAMPLER").is_some_and(|sampler| sampler.ends_with("traceidratio"))
        && !get("OTEL_TRACES_SAMPLER_ARG").is_some_and(ratio)
    {
        mistakes
            .push(Mistake::new("OTEL_TRACES_SAMPLER_ARG", "a ratio from 0 to 1 is needed by the sampler"));
    }
}

/// Both, in any order: baggage passes through in any case, so it cannot be left out.
fn is_w3c(propagators: &str) -> bool {
    let mut names: Vec<_> = propagators.split(',').map(str::trim).collect();
    names.sort_unstable();
    names.dedup();
    names == ["baggage", "tracecontext"]
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
