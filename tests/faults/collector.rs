//! A collector of traces that can fail.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::hub::HUB;

/// Port of OTLP over HTTP.
const PORT: u16 = 4318;

/// An answer without a body is one that refuses nothing.
const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

/// What is at the collector's address.
pub(crate) enum Collector {
    /// One that takes everything, on a runtime of its own: when that ends, so do its connections.
    Well { runtime: Option<Runtime>, exports: Arc<AtomicUsize> },
    /// One that takes connections and says nothing.
    Silent { _listener: TcpListener },
    /// Nothing.
    Gone,
}

impl Collector {
    pub(crate) fn well() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(addr())).unwrap();
        let exports = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&exports);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, Arc::clone(&counted)));
            }
        });
        Self::Well { runtime: Some(runtime), exports }
    }

    pub(crate) fn silent() -> Self {
        Self::Silent { _listener: TcpListener::bind(addr()).unwrap() }
    }

    /// Whether it is well and something was exported to it.
    pub(crate) fn has_taken(&self) -> bool {
        matches!(self, Self::Well { exports, .. } if exports.load(Relaxed) > 0)
    }

    /// For `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    pub(crate) fn endpoint() -> String {
        format!("http://{}/v1/traces", addr())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Self::Well { runtime, .. } = self
            && let Some(runtime) = runtime.take()
        {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

fn addr() -> SocketAddr {
    SocketAddr::new(HUB.parse().unwrap(), PORT)
}

/// Takes one export after the other. Their length is all that is read.
async fn take(stream: TcpStream, exports: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; std::mem::take(&mut length)];
            let answered =
                stream.read_exact(&mut body).await.is_ok() && stream.write_all(TAKEN).await.is_ok();
            if !answered {
                return;
            }
            exports.fetch_add(1, Relaxed);
        }
        line.clear();
    }
}
