//! Serving connections: HTTP/1.0, 1.1 and HTTP/2 on one port, with or without TLS, and ending them in good
//! order.

mod activity;
mod patient;
pub mod room;
mod stall;
mod streams;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use activity::Activity;
use patient::Patient;
use room::Room;
use streams::{Answer, Streams};

/// Pause after a failed accept. Out of descriptors, the next attempt would fail as fast as it is
/// made.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take nothing of its answer, or need for a request's head, unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client whose machine is gone says nothing while its engine computes: it is noticed after two minutes
/// (30 s and nine probes that nobody answers).
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));

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

    /// Ends connections whose client takes nothing of its answer, or does not finish a head, for so long.
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
    /// its request, closes those that settle, and returns when the last one has. Dropping it ends all of them.
    pub async fn run(mut self, router: Router, close: impl Future<Output = ()>) {
        let connector = Arc::new(Connector::new(router, self.tls, self.patience));
        let (closing, seen) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut close = pin!(close);
        loop {
            tokio::select! {
                accepted = self.room.next(&self.listener) => match accepted {
                    Ok((stream, place)) => {
                        let served = Arc::clone(&connector).serve(stream, seen.clone());
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
        closing.send_replace(true);
        while connections.join_next().await.is_some() {}
    }
}

/// What every connection is served with.
struct Connector {
    builder: auto::Builder<Streams>,
    service: TowerToHyperService<Router>,
    tls: Option<TlsAcceptor>,
    patience: Duration,
}

impl Connector {
    fn new(router: Router, tls: Option<TlsAcceptor>, patience: Duration) -> Self {
        let mut builder = auto::Builder::new(Streams { patience });
        // Heads and idle connections have the limits of `activity`.
        builder.http1().header_read_timeout(None::<Duration>);
        builder.http2().timer(TokioTimer::new());
        Self { builder, service: TowerToHyperService::new(router), tls, patience }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, closing: watch::Receiver<bool>) {
        // Events are small and must not wait for each other.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
        let activity = Arc::new(Activity::new(self.patience));
        let stream = Patient::new(stream, self.patience, Arc::clone(&activity));
        let Some(tls) = &self.tls else { return self.speak(stream, activity, closing).await };
        match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                activity.begin();
                self.speak(stream, activity, closing).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no TLS with this client"),
            Err(_) => tracing::debug!("TLS handshake not done in time"),
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        activity: Arc<Activity>,
        closing: watch::Receiver<bool>,
    ) {
        let (router, shared) = (self.service.clone(), Arc::clone(&activity));
        let service = service_fn(move |request: Request<Incoming>| {
            let in_progress = shared.request(request.version());
            let answer = router.call(request);
            async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer::new(body, in_progress))) }
        });
        let mut connection = pin!(self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut expired = pin!(activity.expired());
        let mut settled = pin!(settled(closing, &activity));
        let mut leaving = false;
        loop {
            tokio::select! {
                // A connection that ends in an error is the client's business.
                _ = connection.as_mut() => return,
                () = expired.as_mut() => return tracing::debug!("connection without a request closed"),
                () = settled.as_mut(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Completes when the server closes and the connection can be closed without losing a request.
async fn settled(mut closing: watch::Receiver<bool>, activity: &Activity) {
    // A server that was dropped ends its connections itself.
    if closing.wait_for(|closing| *closing).await.is_err() {
        std::future::pending::<()>().await;
    }
    activity.settled().await;
}

async fn pause(error: &io::Error) {
    // A peer that gave up while it waited is no reason to pause.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "cannot accept connections");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
