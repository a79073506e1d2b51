//! The engine's listener and its connections.
//!
//! One task accepts, and owns every connection's task. A restart ends them all, as the end of a
//! process would, and goes on with a new [`Core`] on the same port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::config::EngineConfig;
use super::fault::Faults;
use super::idle::IdleTimer;
use super::routes::{Conn, answer};
use super::state::Core;
use super::wire::{Wire, WireControl};

/// Connections at the same time; more wait in the kernel.
const MAX_CONNECTIONS: usize = 8192;

/// Commands waiting: they are rare.
const MAILBOX: usize = 16;

/// Pause after a failed accept, which is usually a want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Tries to take the port again after a restart.
const REBIND_TRIES: u32 = 50;

/// Commands to the server (**must**: awaited, as there are few and they matter). When the handle is
/// gone, the server stops.
pub(crate) struct ServerHandle {
    inbox: mpsc::Sender<Msg>,
    current: watch::Receiver<Arc<Core>>,
}

enum Msg {
    Restart { down: Duration, done: oneshot::Sender<()> },
    Stop { done: oneshot::Sender<()> },
}

impl ServerHandle {
    /// The engine since its last restart.
    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.current.borrow())
    }

    /// Ends all connections, refuses new ones for `down`, then starts with an empty cache.
    pub(crate) async fn restart(&self, down: Duration) {
        restart(&self.inbox, down).await;
    }

    /// Ends all connections and the listener.
    pub(crate) async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.inbox.send(Msg::Stop { done }).await.is_ok() {
            let _ = stopped.await;
        }
    }
}

/// By which a connection can ask for a restart without keeping the server alive.
#[derive(Clone)]
pub(crate) struct Restarter(mpsc::WeakSender<Msg>);

impl Restarter {
    pub(crate) async fn restart(&self, down: Duration) {
        if let Some(inbox) = self.0.upgrade() {
            restart(&inbox, down).await;
        }
    }
}

async fn restart(inbox: &mpsc::Sender<Msg>, down: Duration) {
    let (done, restarted) = oneshot::channel();
    if inbox.send(Msg::Restart { down, done }).await.is_ok() {
        // An error means that the server was stopped meanwhile.
        let _ = restarted.await;
    }
}

struct Server {
    restarter: Restarter,
    addr: SocketAddr,
    current: watch::Sender<Arc<Core>>,
    connections: JoinSet<()>,
}

/// Binds the address and starts to accept.
pub(crate) async fn spawn(config: EngineConfig) -> io::Result<(ServerHandle, SocketAddr, Faults)> {
    let listener = TcpListener::bind(config.listen).await?;
    let addr = listener.local_addr()?;
    let faults = Faults::default();
    faults.set(config.faults.iter().cloned());
    let (current, seen) = watch::channel(Arc::new(Core::new(config, faults.clone())));
    let (inbox, messages) = mpsc::channel(MAILBOX);
    let restarter = Restarter(inbox.downgrade());
    let server = Server { restarter, addr, current, connections: JoinSet::new() };
    tokio::spawn(server.run(listener, messages));
    Ok((ServerHandle { inbox, current: seen }, addr, faults))
}

impl Server {
    async fn run(mut self, listener: TcpListener, mut messages: mpsc::Receiver<Msg>) {
        let mut listener = Some(listener);
        while let Some(open) = &listener {
            tokio::select! {
                msg = messages.recv() => {
                    drop(listener.take());
                    self.connections.shutdown().await;
                    match msg {
                        Some(Msg::Restart { down, done }) => {
                            listener = self.restart(down).await;
                            let _ = done.send(());
                        }
                        Some(Msg::Stop { done }) => {
                            let _ = done.send(());
                        }
                        None => {}
                    }
                }
                accepted = open.accept(), if self.connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => self.connected(stream),
                    Err(error) => {
                        warn!(%error, "accept failed");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    fn connected(&mut self, stream: TcpStream) {
        let core = Arc::clone(&self.current.borrow());
        core.count(|stats| stats.connections += 1);
        self.connections.spawn(converse(stream, core, self.restarter.clone()));
    }

    async fn restart(&mut self, down: Duration) -> Option<TcpListener> {
        sleep(down).await;
        let old = Arc::clone(&self.current.borrow());
        self.current.send_replace(Arc::new(Core::new(old.config.clone(), old.faults.clone())));
        for _ in 0..REBIND_TRIES {
            match TcpListener::bind(self.addr).await {
                Ok(listener) => return Some(listener),
                Err(error) => debug!(%error, addr = %self.addr, "port not free yet"),
            }
            sleep(ACCEPT_PAUSE).await;
        }
        warn!(addr = %self.addr, "port is taken, the engine stays down");
        None
    }
}

/// Serves one connection until it ends, idles for too long, or is to be cut.
async fn converse(stream: TcpStream, core: Arc<Core>, restarter: Restarter) {
    let _ = stream.set_nodelay(true);
    let idle = core.config.keep_alive_idle;
    let wire = Arc::new(WireControl::default());
    let conn = Arc::new(Conn { core, restarter, wire: Arc::clone(&wire) });
    let service = service_fn(move |request| answer(Arc::clone(&conn), request));
    let io = TokioIo::new(Wire::new(stream, Arc::clone(&wire)));
    let mut serving = std::pin::pin!(
        http1::Builder::new().timer(IdleTimer).header_read_timeout(idle).serve_connection(io, service)
    );
    tokio::select! {
        biased; // what is to be written before the cut goes first
        result = serving.as_mut() => if let Err(error) = result {
            debug!(%error, "connection ended");
        },
        () = wire.cut_requested() => {}
    }
}
