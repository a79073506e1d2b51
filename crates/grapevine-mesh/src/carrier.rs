//! How what a router says lies in chitchat's keys.
//!
//! A router writes only its own state: a ring of [`SLOTS`] keys `d/00` to `d/3f`, each overwritten
//! in turn by one [`Segment`](crate::codec::Segment) or a [`Pointer`](crate::codec::Pointer) to one;
//! `load`, its latest vitals; `seen`, how far it has come with the others; `meta`, which any version
//! can read. Nothing is ever deleted, so chitchat keeps no tombstones and never has to send
//! a whole state again. All keys are ASCII: chitchat's listeners slice keys at byte 1.

use std::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

use crate::codec::MAX_VALUE_BYTES;

/// Slots of the ring: 16 s at the default tick of 250 ms.
pub const SLOTS: u64 = 64;

/// Prefix of the ring's keys.
pub const RING_PREFIX: &str = "d/";

/// Key of the vitals.
pub const VITALS_KEY: &str = "load";

/// Key of the version vector.
pub const SEEN_KEY: &str = "seen";

/// Key of [`Meta`].
pub const META_KEY: &str = "meta";

/// Longest address of an admin port that is told or believed, in bytes.
pub const MAX_ADMIN_URL: usize = 256;

/// New bytes that one router publishes in a tick, at most. As base64 this is a 16 KiB value;
/// chitchat stops at the first value that does not fit the rest of a 64 KiB datagram.
const MAX_TICK_BYTES: usize = 12 * 1024;

/// New bytes that one router should receive in a tick from all others. chitchat can carry about
/// 300 kB, five full datagrams; past that the lag grows without bound, so stay at a third.
const FLEET_TICK_BYTES: usize = 100_000;

/// Bytes of one segment that is pointed to, at most. Below what a decoder takes.
const MAX_POINTED_BYTES: usize = 64 * 1024;

/// Bytes that one router should have to ask for in a tick, from all others: at 250 ms 2 MB/s, or
/// 40,000 entries a second for its tree, some 5 % of a core.
const FLEET_POINTED_BYTES: usize = 512 * 1024;

/// Room that even a huge fleet leaves each router: vitals of a few replicas and a few entries.
const MIN_TICK_BYTES: usize = 512;

/// Bytes that a router in a fleet with `others` besides it may publish in a tick.
pub fn tick_budget(others: usize) -> usize {
    (FLEET_TICK_BYTES / others.max(1)).clamp(MIN_TICK_BYTES, MAX_TICK_BYTES)
}

/// Bytes that such a router may leave in a tick for others to ask for.
pub fn pointed_budget(others: usize) -> usize {
    (FLEET_POINTED_BYTES / others.max(1)).clamp(tick_budget(others), MAX_POINTED_BYTES)
}

/// The ring's key for the segment numbered `seq`.
pub fn slot_key(seq: u64) -> String {
    format!("{RING_PREFIX}{:02x}", seq % SLOTS)
}

/// A value as chitchat can hold it.
pub fn to_text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes of a value; `None` when it is not base64 or too long to look at.
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    let longest = MAX_VALUE_BYTES.div_ceil(3) * 4;
    if text.len() > longest { None } else { BASE64.decode(text).ok() }
}

/// What a router of any version says of itself, as plain text: `<wire version> <scheme> [<admin URL>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Wire version of its values.
    pub wire: u8,
    /// Hash scheme of its prefixes.
    pub scheme: u16,
    /// Where its admin port answers.
    pub admin_url: Option<String>,
}

impl Meta {
    /// The text to publish.
    pub fn to_text(&self) -> String {
        let admin_url = self.admin_url.as_deref().unwrap_or("");
        format!("{} {} {admin_url}", self.wire, self.scheme)
    }

    /// Reads what another router published. Words after the third are left to later versions.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let wire = words.next()?.parse().ok()?;
        let scheme = words.next()?.parse().ok()?;
        let admin_url = words.next().filter(|url| is_url(url)).map(str::to_owned);
        Some(Self { wire, scheme, admin_url })
    }
}

/// `url` as peers can use it: one that names every address of this host gets the address of `gossip`
/// instead. `None` for loopback when gossip is not: peers would ask themselves.
pub fn reachable_url(url: &str, gossip: IpAddr) -> Option<String> {
    let Some((scheme, addr)) = url.split_once("://") else { return Some(url.to_owned()) };
    let Ok(mut addr) = addr.trim_end_matches('/').parse::<SocketAddr>() else { return Some(url.to_owned()) };
    if addr.ip().is_unspecified() {
        addr.set_ip(gossip);
    }
    (!addr.ip().is_loopback() || gossip.is_loopback()).then(|| format!("{scheme}://{addr}"))
}

/// Whether `url` can be told: short and printable, so that it can go into a log.
pub fn is_url(url: &str) -> bool {
    (1..=MAX_ADMIN_URL).contains(&url.len()) && url.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ring_has_64_ascii_keys() {
        let mut keys: Vec<String> = (1..=1000).map(slot_key).collect();
        assert_eq!(keys[0], "d/01");
        assert_eq!(keys[62..65], ["d/3f", "d/00", "d/01"]);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len() as u64, SLOTS);
    }

    #[test]
    fn the_budget_shrinks_with_the_fleet() {
        assert_eq!([0, 1, 8].map(tick_budget), [12_288; 3]);
        assert_eq!(tick_budget(31), 3225);
        assert_eq!(tick_budget(100_000), 512);
        assert_eq!([0, 8, 31, 100_000].map(pointed_budget), [65_536, 65_536, 16_912, 512]);
    }

    #[test]
    fn meta_survives_the_trip_and_later_versions() {
        for admin_url in [None, Some("http://10.0.0.7:9090".to_owned())] {
            let meta = Meta { wire: 1, scheme: 1, admin_url };
            assert_eq!(Meta::parse(&meta.to_text()), Some(meta));
        }
        let later = Meta::parse("9 300 http://a:1 zstd").unwrap();
        assert_eq!((later.wire, later.scheme, later.admin_url.as_deref()), (9, 300, Some("http://a:1")));
        for bad in ["", "1", "x 1 ", "256 1 ", "1 -1 "] {
            assert_eq!(Meta::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Meta::parse("1 1 http://\u{7}bell").unwrap().admin_url, None);
    }

    #[test]
    fn an_admin_url_is_told_as_peers_can_use_it() {
        let tell = |url, gossip: &str| reachable_url(url, gossip.parse().unwrap());
        assert_eq!(tell("http://0.0.0.0:90", "10.0.0.7").as_deref(), Some("http://10.0.0.7:90"));
        assert_eq!(tell("http://[::]:90", "fd00::7").as_deref(), Some("http://[fd00::7]:90"));
        assert_eq!(tell("http://10.1.1.1:90/", "10.0.0.7").as_deref(), Some("http://10.1.1.1:90"));
        assert_eq!(tell("http://127.0.0.1:90", "127.0.0.1").as_deref(), Some("http://127.0.0.1:90"));
        assert_eq!(tell("http://127.0.0.1:90", "10.0.0.7"), None);
        assert_eq!(tell("http://0.0.0.0:90", "127.0.0.1").as_deref(), Some("http://127.0.0.1:90"));
        assert_eq!(tell("mem:7", "10.0.0.7").as_deref(), Some("mem:7"));
        assert_eq!(tell("https://admin.example:9", "10.0.0.7").as_deref(), Some("https://admin.example:9"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".*") {
            let _ = Meta::parse(&text);
            let _ = from_text(&text);
        }
    }

    #[test]
    fn values_survive_the_trip_and_long_ones_are_refused() {
        let bytes: Vec<u8> = (0..MAX_VALUE_BYTES).map(|i| i as u8).collect();
        assert_eq!(from_text(&to_text(&bytes)), Some(bytes));
        assert_eq!(from_text(&"A".repeat(21_852)), None);
    }
}
