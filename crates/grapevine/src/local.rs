//! Processes of this binary on this machine, and ports for them.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A process of this binary; killed when dropped. Its log is a file that goes with it.
pub(crate) struct Process {
    args: Vec<String>,
    settings: Vec<(String, String)>,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Runs this binary with `args` and only these of our settings. `name` is for its log's file.
    pub(crate) fn start(
        name: &str,
        args: &[&str],
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> io::Result<Self> {
        let log = std::env::temp_dir().join(format!("grapevine-{}-{name}.log", std::process::id()));
        File::create(&log)?;
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let settings: Vec<_> = settings.into_iter().collect();
        let child = spawn(&args, &settings, &log)?;
        Ok(Self { args, settings, log, child })
    }

    /// The same again, when it has ended.
    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        self.child = spawn(&self.args, &self.settings, &self.log)?;
        Ok(())
    }

    /// Its process id, unless it has ended and that was noticed.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends `signal`; nothing happens if it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended just now.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) {
        // Fails only for a process that somebody else has waited for.
        let _ = self.child.wait().await;
    }

    /// Ends it at once.
    pub(crate) async fn kill(&mut self) {
        // It may be gone already; then there is nothing to end.
        let _ = self.child.kill().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.log);
    }
}

fn spawn(args: &[String], settings: &[(String, String)], log: &Path) -> io::Result<Child> {
    let ours = |name: &str| name.starts_with("GRAPEVINE_");
    let inherited = std::env::vars_os().filter(|(name, _)| !ours(&name.to_string_lossy()));
    Command::new(std::env::current_exe()?)
        .args(args)
        .env_clear()
        .envs(inherited)
        .envs(settings.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::options().append(true).open(log)?)
        .kill_on_drop(true)
        .spawn()
}

/// A TCP port of loopback that nobody uses now. Processes that must know each other's before they
/// start cannot choose for themselves.
pub(crate) fn free_tcp_ports<const N: usize>() -> io::Result<[u16; N]> {
    let held: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// The same of UDP.
pub(crate) fn free_udp_port() -> io::Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}
