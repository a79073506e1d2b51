//! Metrics over OTLP: what `/metrics` says, in another form. There is one registry and one set of counters;
//! its text is read here, once an interval, on the exporter's thread. The SDK's own data types can only be
//! filled by its own instruments, which would count a second time (docs/decisions).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message;

use super::batch::{Counts, Ledger, Worker, every, runtime};
use super::courier::Courier;
use super::export::ExportError;
use crate::config::Export;
use crate::metrics::times::{CONVENTIONS, STATUS};

/// Gives the text of `/metrics`.
pub type Exposition = Arc<dyn Fn() -> String + Send + Sync>;

/// Starts pushing what `exposition` gives; `counts` says what becomes of the pushes.
pub(super) fn start(
    export: &Export,
    interval: Duration,
    resource: &Resource,
    exposition: Exposition,
    counts: Arc<Counts>,
) -> Result<Worker, ExportError> {
    let (resource, began) = (wire_resource(resource), unix_nanos());
    let courier = Courier::new(export)?;
    let ledger = Ledger { what: "metrics", counts, failing: Cell::new(false) };
    let work = move |stopped| async move {
        let push = || async {
            ledger.counts.made(1);
            let request = request(&exposition(), &resource, began, unix_nanos());
            ledger.note(1, &courier.deliver(request.encode_to_vec()).await);
        };
        every(interval, stopped, push).await;
    };
    Worker::start("otlp-metrics", runtime()?, work)
}

/// The resource as it goes over the wire.
fn wire_resource(resource: &Resource) -> WireResource {
    let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
    WireResource { attributes, ..WireResource::default() }
}

/// Nanoseconds of Unix time.
fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// One family of the text.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    /// What follows the family's name: `_total`, `_bucket`, `_sum`, `_count`, or nothing.
    suffix: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn request(text: &str, resource: &WireResource, began: u64, now: u64) -> ExportMetricsServiceRequest {
    let families = parse(text);
    let metrics =
        families.into_iter().filter_map(|(name, family)| metric_of(&name, &family, began, now)).collect();
    let scope = InstrumentationScope { name: env!("CARGO_PKG_NAME").to_owned(), ..Default::default() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let metrics =
        ResourceMetrics { resource: Some(resource.clone()), scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![metrics] }
}

fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            families.entry(base(name).to_owned()).or_default().help = help.trim_end_matches('.').to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            families.entry(base(name).to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((name, sample)) = sample(line) {
            let whole = families.contains_key(&name);
            let known = if whole { name.as_str() } else { base(&name) };
            let suffix = name.get(known.len()..).unwrap_or_default().to_owned();
            if let Some(family) = families.get_mut(known) {
                family.samples.push(Sample { suffix, ..sample });
            }
        }
    }
    families
}

/// A name without the suffix of its type.
fn base(name: &str) -> &str {
    ["_total", "_bucket", "_sum", "_count"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

/// A line like `name{label="value"} 1.5`.
fn sample(line: &str) -> Option<(String, Sample)> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}')?)?),
        None => (series, Vec::new()),
    };
    Some((name.to_owned(), Sample { suffix: String::new(), labels, value }))
}

fn parse_labels(text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = after.get(end + 1..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(labels)
}

fn metric_of(name: &str, family: &Family, began: u64, now: u64) -> Option<Metric> {
    const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;
    if family.samples.is_empty() {
        return None;
    }
    let numbers = || family.samples.iter().map(|sample| number(sample, began, now)).collect();
    let data = match family.kind.as_str() {
        "counter" => metric::Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        "histogram" => metric::Data::Histogram(Histogram {
            data_points: histograms(family, began, now),
            aggregation_temporality: CUMULATIVE,
        }),
        _ => metric::Data::Gauge(Gauge { data_points: numbers() }),
    };
    Some(Metric {
        name: over_otlp(name).to_owned(),
        description: family.help.clone(),
        unit: unit(name).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// A metric's or a label's name in OTLP.
fn over_otlp(name: &str) -> &str {
    CONVENTIONS.iter().find(|(here, _)| *here == name).map_or(name, |(_, there)| there)
}

/// The unit that a name ends in.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        Some("tokens") => "{token}",
        Some("requests") => "{request}",
        _ => "",
    }
}

fn number(sample: &Sample, began: u64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(sample.labels.iter()),
        start_time_unix_nano: began,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(sample.value)),
        ..NumberDataPoint::default()
    }
}

/// One point for each set of labels.
fn histograms(family: &Family, began: u64, now: u64) -> Vec<HistogramDataPoint> {
    let mut points: BTreeMap<Vec<(String, String)>, HistogramDataPoint> = BTreeMap::new();
    for sample in &family.samples {
        let of: Vec<_> = sample.labels.iter().filter(|(name, _)| name != "le").cloned().collect();
        let point = points.entry(of).or_default();
        match sample.suffix.as_str() {
            "_sum" => point.sum = Some(sample.value),
            "_count" => point.count = sample.value as u64,
            "_bucket" => {
                // Buckets come in order, each with all below it.
                let below: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push((sample.value as u64).saturating_sub(below));
                let le = sample.labels.iter().find(|(name, _)| name == "le");
                let bound =
                    le.and_then(|(_, bound)| bound.parse::<f64>().ok()).filter(|bound| bound.is_finite());
                point.explicit_bounds.extend(bound);
            }
            _ => {}
        }
    }
    let finish = |(labels, point): (Vec<(String, String)>, HistogramDataPoint)| HistogramDataPoint {
        attributes: attributes(labels.iter()),
        start_time_unix_nano: began,
        time_unix_nano: now,
        ..point
    };
    points.into_iter().map(finish).collect()
}

fn attributes<'a>(labels: impl Iterator<Item = &'a (String, String)>) -> Vec<KeyValue> {
    let value_of = |name: &str, value: &str| match value.parse() {
        Ok(status) if name == STATUS => any_value::Value::IntValue(status),
        _ => any_value::Value::StringValue(value.to_owned()),
    };
    let attribute = |(name, value): &(String, String)| KeyValue {
        key: over_otlp(name).to_owned(),
        value: Some(AnyValue { value: Some(value_of(name, value)) }),
        ..KeyValue::default()
    };
    labels.map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use grapevine_tree::Api;
    use http::{Method, StatusCode};
    use prometheus_client::encoding::prometheus_text;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::kind::Kind;
    use crate::metrics::outcome::Outcome;

    #[test]
    fn what_the_registry_says_is_what_is_pushed() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "http");
        metrics.ended(Outcome::Ok);
        metrics.decision_seconds.observe(3e-6);
        metrics.decision_seconds.observe(1e9);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).unwrap();
        let request = request(&text, &WireResource::default(), 1, 2);
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let named = |name: &str| {
            let found = metrics.iter().find(|metric| metric.name == name);
            found.unwrap_or_else(|| panic!("{name}: {text}")).data.clone().unwrap()
        };
        let metric::Data::Sum(requests) = named("grapevine_requests") else { panic!("a sum") };
        assert_eq!((requests.is_monotonic, requests.data_points.len()), (true, Outcome::ALL.len()));
        let one = number_data_point::Value::AsDouble(1.0);
        assert_eq!(requests.data_points.iter().filter(|point| point.value == Some(one)).count(), 1);
        let metric::Data::Histogram(decisions) = named("grapevine_decision_seconds") else {
            panic!("a histogram")
        };
        let point = &decisions.data_points[0];
        assert_eq!((point.count, point.sum, point.start_time_unix_nano), (2, Some(1e9 + 3e-6), 1));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), 2);
        assert_eq!((point.bucket_counts[2], *point.bucket_counts.last().unwrap()), (1, 1));
    }

    #[test]
    fn names_of_conventions_are_those_of_otlp() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "http");
        let chat = Kind::of(&Method::POST, "/v1/chat/completions", Api::Chat);
        metrics.times.ended(chat, Some(StatusCode::OK), Outcome::StreamFailed, Duration::from_secs(3));
        let request = request(&crate::metrics::text(&registry), &WireResource::default(), 1, 2);
        let pushed = &request.resource_metrics[0].scope_metrics[0].metrics;
        for (name, labels) in [
            (
                "gen_ai.server.request.duration",
                vec!["error.type=stream_failed", "gen_ai.operation.name=chat"],
            ),
            ("gen_ai.server.time_to_first_token", vec!["gen_ai.provider.name=openai"]),
            ("gen_ai.server.time_per_output_token", vec!["gen_ai.operation.name=chat"]),
            (
                "http.server.request.duration",
                vec!["http.request.method=POST", "http.route=/v1/chat/completions"],
            ),
            ("http.server.request.duration", vec!["http.response.status_code=200", "url.scheme=http"]),
        ] {
            let metric = pushed.iter().find(|metric| metric.name == name).unwrap();
            let Some(metric::Data::Histogram(data)) = &metric.data else { panic!("{name}") };
            let said: Vec<_> =
                data.data_points.iter().flat_map(|point| &point.attributes).map(written).collect();
            assert!(labels.iter().all(|label| said.iter().any(|it| it == label)), "{name}: {said:?}");
            assert_eq!(metric.unit, "s", "{name}");
        }
        assert!(pushed.iter().all(|metric| !metric.name.contains("_server_")), "no other names of them");
    }

    fn written(attribute: &KeyValue) -> String {
        let value = attribute.value.clone().and_then(|value| value.value).unwrap();
        match value {
            any_value::Value::StringValue(text) => format!("{}={text}", attribute.key),
            any_value::Value::IntValue(number) => format!("{}={number}", attribute.key),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn labels_are_read_whatever_they_hold() {
        let (name, sample) = sample(r#"x_total{a="b,c",d="e\"f\\g h"} 4"#).unwrap();
        assert_eq!((name.as_str(), sample.value), ("x_total", 4.0));
        let label = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        assert_eq!(sample.labels, [label("a", "b,c"), label("d", "e\"f\\g h")]);
    }
}
