//! Serving connections: HTTP/1.0, 1.1 and h2c on one port, and ending them in good order.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a connection may be without a complete request head. It also closes idle connections, so
/// it is longer than what load balancers in front keep theirs (600 s): they must close first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(620);

/// Pause after a failed accept. Out of descriptors, the next attempt would fail as fast as it is
/// made.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Server {
    /// Binds `addr`; port 0 takes a free one.
    pub async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr })
    }

    /// What is bound.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves `router` until `close` completes; then accepts no more, lets every connection finish
    /// its request, and returns when the last one has. Dropping it ends all of them.
    pub async fn run(self, router: Router, close: impl Future<Output = ()>) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        builder.http2().timer(TokioTimer::new());
        let service = TowerToHyperService::new(router);
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut close = std::pin::pin!(close);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let connection = builder.serve_connection(io_of(stream), service.clone());
                        let connection = graceful.watch(connection.into_owned());
                        connections.spawn(async move {
                            // A connection that ends in an error is the client's business.
                            let _ = connection.await;
                        });
                    }
                    Err(error) => pause(&error).await,
                },
                Some(_) = connections.join_next() => {}
                () = &mut close => break,
            }
        }
        drop(self.listener);
        graceful.shutdown().await;
        while connections.join_next().await.is_some() {}
    }
}

fn io_of(stream: TcpStream) -> TokioIo<TcpStream> {
    // Events are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    TokioIo::new(stream)
}

async fn pause(error: &io::Error) {
    // A peer that gave up while it waited is no reason to pause.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
