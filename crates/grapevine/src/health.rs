//! `grapevine health`: the check that a container runs, without curl in its image.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use grapevine_node::config::{Config, ProcessEnv};

use crate::Failure;

/// A router that cannot answer in this time is not ready.
const LIMIT: Duration = Duration::from_secs(3);

/// Enough of an answer to see its status line.
const MAX_ANSWER: u64 = 4 * 1024;

/// Why there was no good answer.
#[derive(Debug)]
struct NotReady(String);

impl std::error::Error for NotReady {}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Asks `/readyz` of the admin listener that this environment configures.
pub(crate) fn run() -> Result<(), Failure> {
    let config = Config::from_env(&ProcessEnv)?;
    let addr = reachable(config.admin_listen);
    let not_ready = |why: String| Failure::Run(Box::new(NotReady(format!("not ready: {why}"))));
    if addr.port() == 0 {
        return Err(not_ready("GRAPEVINE_ADMIN_LISTEN has port 0, so its port is not known".to_owned()));
    }
    match status(addr) {
        Ok(status) if status.contains(" 200 ") => Ok(()),
        Ok(status) => Err(not_ready(format!("http://{addr}/readyz answered `{status}`"))),
        Err(error) => {
            Err(not_ready(format!("http://{addr}/readyz: {error}; GRAPEVINE_ADMIN_LISTEN says where")))
        }
    }
}

/// Where this machine reaches what is bound to `listen`.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The status line of `GET /readyz`.
fn status(addr: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    if line.starts_with("HTTP/1.") { Ok(line) } else { Err(io::Error::other("that is no HTTP answer")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_addresses_are_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
            ("10.0.0.1:9090", "10.0.0.1:9090"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
