//! Serving connections: HTTP/1.0, 1.1 and HTTP/2 on one port, with or without TLS, and ending them in good
//! order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;

use crate::patient::Patient;

/// How long a connection may be without a complete request head. It also closes idle connections, so
/// it is longer than what load balancers in front keep theirs (600 s): they must close first.
const HEAD_TIMEOUT: Duration = Duration::from_secs(620);

/// Pause after a failed accept. Out of descriptors, the next attempt would fail as fast as it is
/// made.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take nothing of its answer, unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client whose machine is gone says nothing while its engine computes: it is noticed after two minutes
/// (30 s and nine probes that nobody answers).
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));

/// Between two warnings that there is no room for more connections.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Limit of a TLS handshake: two round trips and a signature.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound port.
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    tls: Option<TlsAcceptor>,
    patience: Duration,
    room: Room,
}

impl Server {
    /// Binds `addr`; port 0 takes a free one.
    pub async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr, tls: None, patience: PATIENCE, room: Room::new(Semaphore::MAX_PERMITS) })
    }

    /// Ends connections whose client takes nothing of its answer for so long.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Takes at most so many connections at a time; further ones wait in the kernel.
    pub fn with_room(self, connections: usize) -> Self {
        Self { room: Room::new(connections), ..self }
    }

    /// Speaks TLS, if there is a certificate.
    pub fn with_tls(self, tls: Option<TlsAcceptor>) -> Self {
        Self { tls, ..self }
    }

    /// What is bound.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves `router` until `close` completes; then accepts no more, lets every connection finish
    /// its request, and returns when the last one has. Dropping it ends all of them.
    pub async fn run(mut self, router: Router, close: impl Future<Output = ()>) {
        let connector = Arc::new(Connector::new(router, self.tls, self.patience));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut close = std::pin::pin!(close);
        loop {
            tokio::select! {
                accepted = self.room.next(&self.listener) => match accepted {
                    Ok((stream, place)) => {
                        let served = Arc::clone(&connector).serve(stream, graceful.watcher());
                        connections.spawn(async move {
                            served.await;
                            drop(place);
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

/// The connections that there may be at a time. Without it clients would take every descriptor, and none
/// would be left to reach an engine with.
struct Room {
    places: Arc<Semaphore>,
    warned: Option<Instant>,
}

impl Room {
    fn new(connections: usize) -> Self {
        let places = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
        Self { places, warned: None }
    }

    /// The next connection, when there is room for it.
    async fn next(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        if self.places.available_permits() == 0 && self.warned.is_none_or(|at| at.elapsed() > WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!("as many connections as file descriptors allow; further ones wait");
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| io::ErrorKind::Other)?;
        let (stream, _) = listener.accept().await?;
        Ok((stream, place))
    }
}

/// What every connection is served with.
struct Connector {
    builder: auto::Builder<TokioExecutor>,
    service: TowerToHyperService<Router>,
    tls: Option<TlsAcceptor>,
    patience: Duration,
}

impl Connector {
    fn new(router: Router, tls: Option<TlsAcceptor>, patience: Duration) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        builder.http2().timer(TokioTimer::new());
        Self { builder, service: TowerToHyperService::new(router), tls, patience }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, watcher: Watcher) {
        // Events are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
        let stream = Patient::new(stream, self.patience);
        let Some(tls) = &self.tls else { return self.speak(stream, watcher).await };
        match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(stream, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with this client"),
            Err(_) => tracing::debug!("TLS handshake not done in time"),
        }
    }

    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let connection =
            self.builder.serve_connection_with_upgrades(TokioIo::new(stream), self.service.clone());
        // A connection that ends in an error is the client's business.
        let _ = watcher.watch(connection.into_owned()).await;
    }
}

async fn pause(error: &io::Error) {
    // A peer that gave up while it waited is no reason to pause.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
