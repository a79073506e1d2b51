//! Types of addresses: listeners, gossip seeds.

use std::net::SocketAddr;

use super::scalar::Kind;

/// Most seeds: a few are enough to meet the whole fleet.
const MAX_SEEDS: usize = 256;

/// An IP address and port to bind.
pub(super) struct Address;

impl Kind for Address {
    type Value = SocketAddr;

    fn name(&self) -> &'static str {
        "address"
    }

    fn limits(&self) -> String {
        "IP:port".to_owned()
    }

    fn parse(&self, text: &str) -> Result<SocketAddr, String> {
        text.parse().map_err(|_| address_problem(text))
    }

    fn show(&self, value: &SocketAddr) -> String {
        value.to_string()
    }
}

fn address_problem(text: &str) -> String {
    if let Some(problem) = unbracketed(text) {
        return problem;
    }
    match text.rsplit_once(':') {
        Some(("", port)) => {
            format!("`{text}` has no IP address: write `127.0.0.1:{port}` or `0.0.0.0:{port}`")
        }
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.contains("//") => {
            format!("`{host}` is not an IP address, and names are not resolved here: write `IP:{port}`")
        }
        _ if text.parse::<u16>().is_ok() => {
            format!("`{text}` has no IP address: write `127.0.0.1:{text}` or `0.0.0.0:{text}`")
        }
        _ => format!("`{text}` is not an address: write `IP:port`, for example `127.0.0.1:8080`"),
    }
}

/// The problem with an IPv6 address whose brackets are missing.
pub(super) fn unbracketed(text: &str) -> Option<String> {
    let of_ipv6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if text.matches(':').count() < 2 || !text.chars().all(of_ipv6) {
        return None;
    }
    let (host, port) = text.rsplit_once(':')?;
    Some(format!("`{text}` is an IPv6 address without brackets: write `[{host}]:{port}` or `[{text}]:port`"))
}

/// An address, or nothing when empty.
pub(super) struct OptionalAddress;

impl Kind for OptionalAddress {
    type Value = Option<SocketAddr>;

    fn name(&self) -> &'static str {
        Address.name()
    }

    fn limits(&self) -> String {
        Address.limits()
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        if text.is_empty() { Ok(None) } else { Address.parse(text).map(Some) }
    }

    fn show(&self, value: &Self::Value) -> String {
        value.map_or_else(|| "none".to_owned(), |address| address.to_string())
    }
}

/// `host:port` of peers, separated by commas; empty for none.
pub(super) struct Seeds;

impl Kind for Seeds {
    type Value = Vec<String>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        format!("host:port,... (at most {MAX_SEEDS})")
    }

    fn parse(&self, text: &str) -> Result<Vec<String>, String> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let seeds = items(text)?.into_iter().map(seed).collect::<Result<Vec<_>, _>>()?;
        if seeds.len() > MAX_SEEDS {
            return Err(format!("{} seeds are too many: at most {MAX_SEEDS}", seeds.len()));
        }
        Ok(seeds)
    }

    fn show(&self, value: &Vec<String>) -> String {
        if value.is_empty() { "none".to_owned() } else { value.join(",") }
    }
}

fn seed(text: &str) -> Result<String, String> {
    if let Some(problem) = unbracketed(text) {
        return Err(problem);
    }
    if text.contains("://") {
        return Err(format!("`{text}` is a URL: write `host:port`"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("`{text}` has no port: write `{text}:7946`"));
    };
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("`{text}` has no usable port: write a number from 1 to 65535 after `{host}:`"));
    }
    let dns = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let named = !host.is_empty() && host.len() <= 253 && host.chars().all(dns);
    if named || text.parse::<SocketAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!("`{host}` is neither a host name nor an IP address"))
}

/// The items of a comma-separated list, trimmed. None of them may be empty.
pub(super) fn items(text: &str) -> Result<Vec<&str>, String> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    match items.iter().position(|item| item.is_empty()) {
        Some(at) => Err(format!("item {} of the list is empty: remove the extra comma", at + 1)),
        None => Ok(items),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_say_what_to_write() {
        for (text, error) in [
            ("8080", "`8080` has no IP address: write `127.0.0.1:8080` or `0.0.0.0:8080`"),
            (":8080", "`:8080` has no IP address: write `127.0.0.1:8080` or `0.0.0.0:8080`"),
            (
                "localhost:80",
                "`localhost` is not an IP address, and names are not resolved here: write `IP:80`",
            ),
            (
                "::1:8080",
                "`::1:8080` is an IPv6 address without brackets: write `[::1]:8080` or `[::1:8080]:port`",
            ),
            ("127.0.0.1", "`127.0.0.1` is not an address: write `IP:port`, for example `127.0.0.1:8080`"),
            ("", "`` is not an address: write `IP:port`, for example `127.0.0.1:8080`"),
            (
                "http://127.0.0.1:80",
                "`http://127.0.0.1:80` is not an address: write `IP:port`, for example `127.0.0.1:8080`",
            ),
        ] {
            assert_eq!(Address.parse(text), Err(error.to_owned()));
        }
        for text in ["127.0.0.1:0", "[::1]:8080", "0.0.0.0:65535"] {
            let address = Address.parse(text).expect("an address");
            assert_eq!(Address.show(&address), text);
        }
        assert_eq!(OptionalAddress.parse(""), Ok(None));
    }

    #[test]
    fn seeds_are_hosts_with_ports() {
        let good = "router-0.grapevine:7946, 10.0.0.1:7946,[::1]:7946";
        let seeds = Seeds.parse(good).expect("seeds");
        assert_eq!(seeds, ["router-0.grapevine:7946", "10.0.0.1:7946", "[::1]:7946"]);
        assert_eq!(Seeds.parse(""), Ok(Vec::new()));
        for (text, error) in [
            ("a:1,", "item 2 of the list is empty: remove the extra comma"),
            ("a:1,,b:1", "item 2 of the list is empty: remove the extra comma"),
            ("a", "`a` has no port: write `a:7946`"),
            ("a:0", "`a:0` has no usable port: write a number from 1 to 65535 after `a:`"),
            ("a:x", "`a:x` has no usable port: write a number from 1 to 65535 after `a:`"),
            ("http://a:1", "`http://a:1` is a URL: write `host:port`"),
            ("a b:1", "`a b` is neither a host name nor an IP address"),
        ] {
            assert_eq!(Seeds.parse(text), Err(error.to_owned()));
        }
        assert!(Seeds.parse("::1:7946").is_err());
        let many = vec!["a:1"; MAX_SEEDS + 1].join(",");
        assert_eq!(Seeds.parse(&many), Err("257 seeds are too many: at most 256".to_owned()));
    }
}
