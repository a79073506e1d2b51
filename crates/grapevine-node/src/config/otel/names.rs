//! Names of `OTEL_*` variables: what is supported, for the documentation, and what is refused.

/// What is supported, for the documentation.
pub(in crate::config) const SUPPORTED: &[(&str, &str)] = &[
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "Turns export of traces, metrics and logs on: base URL of a collector, `http://host:4318` for \
         `http/protobuf` (`/v1/traces` and so on is appended), `http://host:4317` for `grpc`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, \
         OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        "Turns export of one signal on, and goes before the one above: the full URL for `http/protobuf`, the \
         base URL for `grpc`.",
    ),
    ("OTEL_SDK_DISABLED", "`true` turns all export off."),
    (
        "OTEL_TRACES_EXPORTER",
        "`otlp` (default where there is an endpoint; without one, to localhost), or `none`.",
    ),
    ("OTEL_METRICS_EXPORTER", "The same; `prometheus` means that `/metrics` is enough: nothing is pushed."),
    ("OTEL_LOGS_EXPORTER", "The same; `console` means that stderr is enough: nothing is pushed."),
    (
        "OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_METRICS_PROTOCOL, \
         OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
        "`http/protobuf` (default) or `grpc`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TRACES_HEADERS, OTEL_EXPORTER_OTLP_METRICS_HEADERS, \
         OTEL_EXPORTER_OTLP_LOGS_HEADERS",
        "Headers for the collector, `key=value,...`, values percent-encoded where needed.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_METRICS_TIMEOUT, \
         OTEL_EXPORTER_OTLP_LOGS_TIMEOUT",
        "Limit of one export with its retries, milliseconds (default 10000).",
    ),
    (
        "OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE, \
         OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE, OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE",
        "File with the authorities (PEM) that vouch for the collector, in place of the system's.",
    ),
    (
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_KEY",
        "Files with the certificate and key (PEM) shown to the collector; each signal may have its own, as \
         above (`OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY`).",
    ),
    (
        "OTEL_EXPORTER_OTLP_COMPRESSION, OTEL_EXPORTER_OTLP_TRACES_COMPRESSION, \
         OTEL_EXPORTER_OTLP_METRICS_COMPRESSION, OTEL_EXPORTER_OTLP_LOGS_COMPRESSION",
        "`none` only.",
    ),
    (
        "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES",
        "Resource of all signals; the service is `grapevine` by default.",
    ),
    (
        "OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG",
        "`always_on`, `always_off`, `traceidratio` or these with `parentbased_` before them \
         (default `parentbased_always_on`); the ratio is 0 to 1.",
    ),
    (
        "OTEL_BSP_SCHEDULE_DELAY, OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "Batching of spans: delay in milliseconds (5000), queued (2048; more are dropped and counted), per \
         export (512).",
    ),
    (
        "OTEL_BLRP_SCHEDULE_DELAY, OTEL_BLRP_MAX_QUEUE_SIZE, OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",
        "Batching of log records: the same, with a delay of 1000.",
    ),
    ("OTEL_METRIC_EXPORT_INTERVAL", "Time between two pushes of metrics, milliseconds (60000)."),
    (
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_EVENT_COUNT_LIMIT, OTEL_SPAN_LINK_COUNT_LIMIT",
        "Limits of a span.",
    ),
    ("OTEL_PROPAGATORS", "`tracecontext,baggage` only."),
];

const VALUES: &str = "is not supported: limit values in the collector";
const LIMIT: &str = "is not supported: set OTEL_EXPORTER_OTLP_TIMEOUT";
const FILE: &str = "is not supported: use the variables in docs/configuration.md";
const INSECURE: &str = "is not supported: the endpoint's scheme says it, `http://` or `https://`";

/// What is refused whatever its value, and what to do instead.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", VALUES),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", "is not supported: set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", VALUES),
    ("OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT", VALUES),
    ("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", VALUES),
    ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "is not supported: spans have no events"),
    ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "is not supported: spans have no links"),
    ("OTEL_BSP_EXPORT_TIMEOUT", LIMIT),
    ("OTEL_BLRP_EXPORT_TIMEOUT", LIMIT),
    ("OTEL_METRIC_EXPORT_TIMEOUT", LIMIT),
    ("OTEL_BSP_MAX_CONCURRENT_EXPORTS", "is not supported: one export runs at a time"),
    ("OTEL_EXPORTER_OTLP_INSECURE", INSECURE),
    ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", INSECURE),
    ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", INSECURE),
    ("OTEL_EXPORTER_OTLP_LOGS_INSECURE", INSECURE),
    ("OTEL_LOG_LEVEL", "is not supported: set GRAPEVINE_LOG"),
    ("OTEL_ENTITIES", "is not supported: set OTEL_RESOURCE_ATTRIBUTES"),
    ("OTEL_CONFIG_FILE", FILE),
    ("OTEL_EXPERIMENTAL_CONFIG_FILE", FILE),
];

const COMPRESSION: &str = "bodies are sent as they are: set it to `none`";

/// Variables whose value must be one of a few, and what to do about another.
pub(super) const RESTRICTED: &[(&str, &[&str], &str)] = &[
    ("OTEL_EXPORTER_OTLP_COMPRESSION", &["none"], COMPRESSION),
    ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", &["none"], COMPRESSION),
    ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", &["none"], COMPRESSION),
    ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", &["none"], COMPRESSION),
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
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        &["cumulative", "Cumulative", "CUMULATIVE"],
        "counts are since the start: set it to `cumulative`",
    ),
    (
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        &["explicit_bucket_histogram"],
        "set it to `explicit_bucket_histogram`",
    ),
    ("OTEL_METRICS_EXEMPLAR_FILTER", &["always_off"], "there are no exemplars: set it to `always_off`"),
];
