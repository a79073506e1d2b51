//! Collectors behind TLS: who is trusted, and what is shown.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tracing_subscriber::layer::SubscriberExt;

use super::collector::{Collector, LONG};
use super::*;
use crate::config::{Batching, Export, OtelConfig, Protocol};

const BOTH: [Protocol; 2] = [Protocol::HttpProtobuf, Protocol::Grpc];

const TAKEN: ExportCounts = ExportCounts { ended: 1, exported: 1, failed: 0, dropped: 0 };
const REFUSED: ExportCounts = ExportCounts { ended: 1, exported: 0, failed: 1, dropped: 0 };

/// An authority, and files of what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The authority's own certificate.
    ca: PathBuf,
}

impl Authority {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("grapevine-otlp-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (mut params, key) = (CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = folder.join("ca.pem");
        std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder, ca }
    }

    /// Files of a certificate for this machine and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")));
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&cert, params.signed_by(&pair, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        (cert, key)
    }

    /// A collector that this authority vouches for, and that wants its clients to be vouched for too.
    async fn collector(&self) -> Collector {
        let (cert, key) = self.sign("collector");
        let chain = CertificateDer::pem_file_iter(cert).unwrap().map(Result::unwrap).collect();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Collector::behind(TlsAcceptor::from(Arc::new(config))).await
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What is trusted and shown.
#[derive(Clone, Default)]
struct Papers {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

fn export(collector: &Collector, protocol: Protocol, http: &str, service: &str, papers: &Papers) -> Export {
    let Papers { ca, identity } = papers.clone();
    Export { ca, identity, ..collector.export(protocol, http, service) }
}

/// A span, a log record and a push of metrics, and what became of them.
async fn one_of_each(collector: &Collector, protocol: Protocol, papers: &Papers) -> [ExportCounts; 3] {
    let to = |http: &str, service: &str| export(collector, protocol, http, service, papers);
    let mut config = Config::local("router-1", Vec::new());
    config.otel = OtelConfig {
        traces: Some(to("v1/traces", "trace.v1.TraceService")),
        metrics: Some(to("v1/metrics", "metrics.v1.MetricsService")),
        metrics_interval: 60 * LONG,
        ..OtelConfig::default()
    };
    let mut telemetry = Telemetry::traces(&config).expect("an exporter");
    let (spans, pushes) = (telemetry.exports(), Arc::clone(&telemetry.pushes));
    telemetry.push_metrics(Arc::new(String::new)).expect("an exporter");
    let logs = to("v1/logs", "logs.v1.LogsService");
    let batching = Batching { queue: 10, batch: 10, delay: 60 * LONG };
    let (records, worker) =
        records::start(&logs, batching, &export::resource("router-1")).expect("an exporter");
    let counts = records.counts();
    telemetry.workers.push(worker);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(records), || {
        tracing::info!("router is up");
    });
    drop(telemetry.tracer().server(&ServerRequest {
        method: &http::Method::GET,
        uri: &http::Uri::from_static("/v1/models"),
        scheme: "http",
        version: http::Version::HTTP_11,
        route: None,
        headers: &http::HeaderMap::new(),
    }));
    tokio::task::spawn_blocking(move || telemetry.shutdown(LONG)).await.expect("ends");
    let spans = spans.read().map(|(_, counts)| counts).next().expect("on");
    [spans, counts.read(), pushes.read()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_signals_arrive_over_tls_by_either_protocol() {
    let authority = Authority::new();
    let papers = Papers { ca: Some(authority.ca.clone()), identity: Some(authority.sign("router")) };
    for protocol in BOTH {
        let collector = authority.collector().await;
        assert_eq!(one_of_each(&collector, protocol, &papers).await, [TAKEN; 3], "{protocol:?}");
        assert_eq!(collector.seen.posts.lock().unwrap().len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_nobody_trusted_vouches_for_gets_nothing_and_that_is_counted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let identity = Some(authority.sign("router"));
    for protocol in BOTH {
        for ca in [None, Some(other.ca.clone())] {
            let collector = authority.collector().await;
            let papers = Papers { ca, identity: identity.clone() };
            assert_eq!(one_of_each(&collector, protocol, &papers).await, [REFUSED; 3], "{protocol:?}");
            assert!(collector.seen.posts.lock().unwrap().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_wants_a_certificate_gets_one_or_refuses() {
    let (authority, other) = (Authority::new(), Authority::new());
    for protocol in BOTH {
        for identity in [None, Some(other.sign("router"))] {
            let collector = authority.collector().await;
            let papers = Papers { ca: Some(authority.ca.clone()), identity };
            assert_eq!(one_of_each(&collector, protocol, &papers).await, [REFUSED; 3], "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn files_that_hold_something_else_are_named_at_the_start() {
    let authority = Authority::new();
    let collector = authority.collector().await;
    let ((cert, key), (_, other_key)) = (authority.sign("router"), authority.sign("other"));
    let absent = authority.folder.join("absent.pem");
    for (ca, identity, problem) in [
        (Some(key), None, "router.key holds no readable PEM certificate: none in it"),
        (Some(absent), None, "absent.pem holds no readable PEM certificate"),
        (None, Some((cert.clone(), cert.clone())), "router.pem holds no readable PEM private key"),
        (None, Some((cert, other_key)), "other.key do not go together"),
    ] {
        for protocol in BOTH {
            let papers = Papers { ca: ca.clone(), identity: identity.clone() };
            let mut config = Config::local("router-1", Vec::new());
            let to = export(&collector, protocol, "v1/traces", "trace.v1.TraceService", &papers);
            config.otel.traces = Some(to);
            // Exporters have a runtime of their own, which must not be dropped within another.
            let start = move || Telemetry::traces(&config).err().expect("a mistake").to_string();
            let error = tokio::task::spawn_blocking(start).await.unwrap();
            assert!(error.contains(problem), "{error}");
        }
    }
}
