//! What the mesh needs to be told, and what it refuses to start with.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::carrier;

/// How often a router publishes. Whatever the size of the fleet, a change reaches everyone in 0.25 s (p99).
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(250);

/// How long a router that starts waits for what its peers know. A million boundaries take about a second.
pub const DEFAULT_JOIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Intervals that make sense: below, chitchat's cost explodes; above, load reports are useless.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(10);

/// Intervals for each of chitchat's, where what is new is told directly and what was missed is fetched by exchanges of
/// their own. With two, a request costs a twentieth more at 200 a second; with more, it takes too long to
/// notice who died.
const TICKS_PER_EXCHANGE: u32 = 4;

/// Longest router name and cluster id, in bytes. Both are in every digest or key.
const MAX_NAME_BYTES: usize = 128;

/// Shortest secret, in bytes: 128 bits, if they are random.
pub const MIN_SECRET_BYTES: usize = 16;

/// How this router takes part in its fleet.
#[derive(Clone)]
pub struct MeshConfig {
    /// This router's name, unique in the fleet and the same after a restart.
    pub router_name: String,
    /// Which fleet. Routers of different fleets ignore each other.
    pub cluster_id: String,
    /// UDP address to gossip on. Port 0 picks one.
    pub listen: SocketAddr,
    /// Address that peers reach this router at; by default the bound one.
    pub advertise: Option<SocketAddr>,
    /// `host:port` of routers to look for; names are resolved again and again.
    pub seeds: Vec<String>,
    /// Seals every datagram. Without it, gossip stays on the loopback interface.
    pub secret: Option<Vec<u8>>,
    /// A secret that peers may still be using. Opens, and seals only to who seals with it.
    pub previous_secret: Option<Vec<u8>>,
    /// Time between two publications.
    pub interval: Duration,
    /// Where this router's admin port answers; told to peers, who ask there for what they miss. Instead
    /// of an address that means every address of the host, the gossip address is told; a loopback
    /// address is not told when gossip goes further. Without it others do not ask this router.
    pub admin_url: Option<String>,
    /// How long to wait for a snapshot before this router counts as joined. Zero: not at all.
    pub join_timeout: Duration,
    /// Of random choices that no security depends on; `None` draws one.
    pub seed: Option<u64>,
    /// Generation to start with; `None` is the current time in Unix milliseconds. Simulations set it.
    pub generation: Option<u64>,
}

impl MeshConfig {
    /// A router called `router_name` that gossips on `listen`, alone and without a secret.
    pub fn new(router_name: impl Into<String>, listen: SocketAddr) -> Self {
        Self {
            router_name: router_name.into(),
            cluster_id: "grapevine".to_owned(),
            listen,
            advertise: None,
            seeds: Vec::new(),
            secret: None,
            previous_secret: None,
            interval: DEFAULT_INTERVAL,
            admin_url: None,
            join_timeout: DEFAULT_JOIN_TIMEOUT,
            seed: None,
            generation: None,
        }
    }

    /// How often chitchat gossips: where what is new is told `directly`, it keeps the fleet together, meets
    /// newcomers and repairs, and each of its exchanges is three messages with the digests of all.
    pub(crate) fn exchange_every(&self, directly: bool) -> Duration {
        self.interval * if directly { TICKS_PER_EXCHANGE } else { 1 }
    }

    /// How long gossip may take to bring what was missed before somebody is asked for it: some ten exchanges with
    /// its origin where news are told `directly`, two rounds of gossip where they are not.
    pub(crate) fn repair_grace(&self, directly: bool) -> Duration {
        self.interval * if directly { TICKS_PER_EXCHANGE } else { 2 }
    }

    /// What any transport needs to hold.
    pub(crate) fn check(&self) -> Result<(), MeshError> {
        for (what, name) in [("router name", &self.router_name), ("cluster id", &self.cluster_id)] {
            let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
            if !printable || !(1..=MAX_NAME_BYTES).contains(&name.len()) {
                return Err(MeshError::Name { what, max: MAX_NAME_BYTES });
            }
        }
        if !INTERVALS.contains(&self.interval) {
            return Err(MeshError::Interval(self.interval));
        }
        if self.admin_url.as_deref().is_some_and(|url| !carrier::is_url(url)) {
            return Err(MeshError::AdminUrl);
        }
        Ok(())
    }

    /// What gossip over UDP needs besides.
    pub(crate) fn check_udp(&self) -> Result<(), MeshError> {
        let weak = |secret: &Option<Vec<u8>>| secret.as_ref().is_some_and(|it| it.len() < MIN_SECRET_BYTES);
        if weak(&self.secret) || weak(&self.previous_secret) {
            return Err(MeshError::WeakSecret);
        }
        let public = |addr: &SocketAddr| !addr.ip().is_loopback();
        if self.secret.is_none() && (public(&self.listen) || self.advertise.as_ref().is_some_and(public)) {
            return Err(MeshError::Unsealed(self.listen));
        }
        Ok(())
    }

    /// Address to tell peers, once `bound` is known.
    pub(crate) fn advertised(&self, bound: SocketAddr) -> Result<SocketAddr, MeshError> {
        let mut addr = self.advertise.unwrap_or(bound);
        if addr.port() == 0 {
            addr.set_port(bound.port());
        }
        if addr.ip().is_unspecified() {
            addr.set_ip(outbound_ip(addr.ip()).ok_or(MeshError::Advertise)?);
        }
        Ok(addr)
    }
}

/// The address this host sends from. Connecting a UDP socket picks a route and sends nothing; the
/// destinations are reserved for documentation.
fn outbound_ip(like: IpAddr) -> Option<IpAddr> {
    let (from, to): (IpAddr, IpAddr) = match like {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    socket.local_addr().ok().map(|addr| addr.ip()).filter(|ip| !ip.is_unspecified())
}

impl fmt::Debug for MeshConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = |secret: &Option<Vec<u8>>| secret.as_ref().map(|_| "***");
        f.debug_struct("MeshConfig")
            .field("router_name", &self.router_name)
            .field("cluster_id", &self.cluster_id)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("seeds", &self.seeds)
            .field("secret", &masked(&self.secret))
            .field("previous_secret", &masked(&self.previous_secret))
            .field("interval", &self.interval)
            .field("admin_url", &self.admin_url)
            .field("join_timeout", &self.join_timeout)
            .field("seed", &self.seed)
            .field("generation", &self.generation)
            .finish()
    }
}

/// Why the mesh does not start. What may pass by itself, a busy port or a name that does not
/// resolve, is not among it: the router then serves alone and keeps trying.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// A name that cannot go on the wire.
    #[error("{what} must be 1 to {max} printable ASCII characters without spaces")]
    Name {
        /// Which one.
        what: &'static str,
        /// Longest, in bytes.
        max: usize,
    },
    /// An interval that makes no sense.
    #[error("gossip interval {0:?} is not between 20 ms and 10 s")]
    Interval(Duration),
    /// An admin URL that cannot be told.
    #[error("admin URL must be at most {} printable ASCII characters", carrier::MAX_ADMIN_URL)]
    AdminUrl,
    /// A secret that can be guessed.
    #[error("gossip secret is shorter than {MIN_SECRET_BYTES} bytes")]
    WeakSecret,
    /// Unauthenticated gossip beyond this machine.
    #[error("gossip on {0} needs a secret: without one only loopback addresses are allowed")]
    Unsealed(SocketAddr),
    /// Bound to every address, and none can be told to peers.
    #[error("gossip listens on every address and this host has no route out: set the address to advertise")]
    Advertise,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str) -> MeshConfig {
        MeshConfig::new("a", listen.parse().unwrap())
    }

    #[test]
    fn secrets_are_never_printed() {
        let secret = Some(b"correct horse battery staple".to_vec());
        let config = MeshConfig { secret: secret.clone(), previous_secret: secret, ..config("127.0.0.1:0") };
        let printed = format!("{config:?} {config:#?}");
        assert!(printed.contains("***") && !printed.contains("horse") && !printed.contains("99, 111"));
    }

    #[test]
    fn without_a_secret_only_loopback_is_allowed() {
        for listen in ["127.0.0.1:7946", "127.3.2.1:0", "[::1]:0"] {
            assert!(config(listen).check_udp().is_ok(), "{listen}");
        }
        for listen in ["0.0.0.0:7946", "10.0.0.1:0", "[::]:0"] {
            let error = config(listen).check_udp().unwrap_err();
            assert!(matches!(error, MeshError::Unsealed(_)), "{error}");
            let sealed = MeshConfig { secret: Some(vec![7; 16]), ..config(listen) };
            assert!(sealed.check_udp().is_ok());
        }
        let advertised = MeshConfig { advertise: "10.0.0.1:1".parse().ok(), ..config("127.0.0.1:0") };
        assert!(matches!(advertised.check_udp(), Err(MeshError::Unsealed(_))));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let weak = MeshConfig { secret: Some(vec![7; 15]), ..config("127.0.0.1:0") };
        assert!(matches!(weak.check_udp(), Err(MeshError::WeakSecret)));
        for name in ["", "a b", "r\u{f6}uter", &"x".repeat(129)] {
            let named = MeshConfig { router_name: name.to_owned(), ..config("127.0.0.1:0") };
            assert!(matches!(named.check(), Err(MeshError::Name { what: "router name", .. })), "{name:?}");
        }
        let slow = MeshConfig { interval: Duration::from_secs(11), ..config("127.0.0.1:0") };
        assert!(matches!(slow.check(), Err(MeshError::Interval(_))));
        let url = MeshConfig { admin_url: Some("http://a b".to_owned()), ..config("127.0.0.1:0") };
        assert!(matches!(url.check(), Err(MeshError::AdminUrl)));
    }

    #[test]
    fn the_advertised_address_is_one_that_peers_can_use() {
        let bound = "127.0.0.1:4000".parse().unwrap();
        assert_eq!(config("127.0.0.1:0").advertised(bound).unwrap(), bound);
        let fixed = MeshConfig { advertise: "10.1.1.1:0".parse().ok(), ..config("0.0.0.0:0") };
        assert_eq!(fixed.advertised(bound).unwrap().to_string(), "10.1.1.1:4000");
    }
}
