//! The list of replicas: URLs, each with an optional name.

use std::collections::BTreeMap;

use grapevine_tree::ReplicaId;
use reqwest::Url;

use super::ReplicaSpec;
use super::address::{items, unbracketed};
use super::scalar::{Kind, MAX_NAME, is_name};

/// Most replicas. With 1,000 two 32-bit ids collide with a probability of 1 in 8,600, and a decision
/// that looks at each still takes microseconds.
pub(crate) const MAX_REPLICAS: usize = 1_000;

/// `URL` or `name=URL`, separated by commas; at least one.
pub(super) struct Replicas;

impl Kind for Replicas {
    type Value = Vec<ReplicaSpec>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        format!("[name=]URL,... (1 to {MAX_REPLICAS})")
    }

    fn parse(&self, text: &str) -> Result<Vec<ReplicaSpec>, String> {
        if text.is_empty() {
            return Err(EMPTY.to_owned());
        }
        let replicas = items(text)?.into_iter().map(replica).collect::<Result<Vec<_>, _>>()?;
        if replicas.len() > MAX_REPLICAS {
            return Err(format!("{} replicas are too many: at most {MAX_REPLICAS}", replicas.len()));
        }
        distinct(&replicas)?;
        Ok(replicas)
    }

    fn show(&self, value: &Vec<ReplicaSpec>) -> String {
        if value.is_empty() {
            return "none".to_owned();
        }
        value.iter().map(|r| format!("{}={}", r.name, r.url)).collect::<Vec<_>>().join(",")
    }
}

/// What to do about no replicas.
pub(super) const EMPTY: &str = "no replica is given: list the engines' base URLs, for example `http://10.0.0.1:8000,http://10.0.0.2:8000`, or say where they are found (GRAPEVINE_REPLICAS_FILE, _DNS or _KUBERNETES)";

fn replica(item: &str) -> Result<ReplicaSpec, String> {
    let (name, text) = match item.split_once('=') {
        Some((name, url)) if !name.contains("://") => (Some(name.trim()), url.trim()),
        _ => (None, item),
    };
    spec(name, text)
}

/// The replica at `text`, called `name` or else by its host and port.
pub(crate) fn spec(name: Option<&str>, text: &str) -> Result<ReplicaSpec, String> {
    let url = parsed(text)?;
    let name = match name {
        Some(name) if is_name(name) => name.to_owned(),
        Some(name) => {
            return Err(format!(
                "`{name}` is not a replica name: 1 to {MAX_NAME} of A-Z a-z 0-9 . _ - : [ ]"
            ));
        }
        None => host_and_port(&url),
    };
    // One spelling of an address gives one id on every router.
    Ok(ReplicaSpec::new(name, url.as_str().trim_end_matches('/')))
}

/// The base URL that `text` is, without a trailing slash: of an engine, or of a router that stands as one.
/// An error never repeats credentials.
pub fn base_url(text: &str) -> Result<String, String> {
    parsed(text).map(|url| url.as_str().trim_end_matches('/').to_owned())
}

/// The same as a [`Url`].
pub(super) fn parsed(text: &str) -> Result<Url, String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let shown = if text.contains('@') { "an address" } else { &format!("`{text}`") };
        return Err(format!("{shown} has no scheme: write `http://host:port` or `https://host:port`"));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(format!(
            "a URL at `{}` has credentials in it: leave them out, keys are sent in a header",
            authority.rsplit('@').next().unwrap_or_default()
        ));
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(format!("`{text}` has the scheme `{scheme}`: write http or https"));
    }
    if let Some(problem) = unbracketed(authority) {
        return Err(problem);
    }
    let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL: {error}"))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("`{text}` has a query or fragment: write the base URL alone"));
    }
    if url.port() == Some(0) {
        return Err(format!("`{text}` has port 0, where nothing can listen: write the port"));
    }
    Ok(url)
}

fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Refuses two replicas that could not be told apart.
fn distinct(replicas: &[ReplicaSpec]) -> Result<(), String> {
    let mut names = BTreeMap::new();
    let mut ids: BTreeMap<ReplicaId, &str> = BTreeMap::new();
    for replica in replicas {
        match ids.insert(ReplicaId::of_url(&replica.url), &replica.url) {
            Some(url) if url == replica.url => {
                return Err(format!("`{url}` is listed twice: remove one"));
            }
            Some(url) => {
                return Err(format!(
                    "`{url}` and `{}` have the same 32-bit id by chance: write one of them another way, \
                     for example by IP address",
                    replica.url
                ));
            }
            None => {}
        }
        if let Some(url) = names.insert(&replica.name, &replica.url) {
            return Err(format!(
                "`{url}` and `{}` are both called `{}`: give each a name, as `name=URL`",
                replica.url, replica.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
        let replicas = Replicas.parse(text)?;
        Ok(replicas.into_iter().map(|r| (r.name, r.url)).collect())
    }

    #[test]
    fn one_spelling_whatever_was_written() {
        for (text, name, url) in [
            ("http://a:8000", "a:8000", "http://a:8000"),
            ("http://a:8000/", "a:8000", "http://a:8000"),
            ("HTTP://A:80/", "a:80", "http://a"),
            ("https://a", "a:443", "https://a"),
            ("http://[::1]:8000", "[::1]:8000", "http://[::1]:8000"),
            ("gpu-0=http://a:8000", "gpu-0", "http://a:8000"),
            ("gpu-0 = http://a:8000/base/", "gpu-0", "http://a:8000/base"),
            ("http://a:8000/x=y", "a:8000", "http://a:8000/x=y"),
        ] {
            assert_eq!(parse(text), Ok(vec![(name.to_owned(), url.to_owned())]), "{text}");
            let shown = Replicas.show(&Replicas.parse(text).expect("replicas"));
            assert_eq!(Replicas.parse(&shown), Replicas.parse(text), "it reads back");
        }
    }

    #[test]
    fn bad_replicas_say_what_to_do() {
        for (text, error) in [
            ("", EMPTY),
            ("http://a:1,", "item 2 of the list is empty: remove the extra comma"),
            (",http://a:1", "item 1 of the list is empty: remove the extra comma"),
            ("a:8000", "`a:8000` has no scheme: write `http://host:port` or `https://host:port`"),
            ("u:pw@a:8000", "an address has no scheme: write `http://host:port` or `https://host:port`"),
            ("ftp://a", "`ftp://a` has the scheme `ftp`: write http or https"),
            (
                "http://u:pw@a:1",
                "a URL at `a:1` has credentials in it: leave them out, keys are sent in a header",
            ),
            ("http://a:1/?q=1", "`http://a:1/?q=1` has a query or fragment: write the base URL alone"),
            ("http://a:1/#f", "`http://a:1/#f` has a query or fragment: write the base URL alone"),
            ("http://a:0", "`http://a:0` has port 0, where nothing can listen: write the port"),
            (
                "http://::1:8000",
                "`::1:8000` is an IPv6 address without brackets: write `[::1]:8000` or `[::1:8000]:port`",
            ),
            ("http://", "`http://` is not a URL: empty host"),
            ("http://a:99999", "`http://a:99999` is not a URL: invalid port number"),
            ("b c=http://a:1", "`b c` is not a replica name: 1 to 128 of A-Z a-z 0-9 . _ - : [ ]"),
            ("=http://a:1", "`` is not a replica name: 1 to 128 of A-Z a-z 0-9 . _ - : [ ]"),
            ("http://a:1,http://a:1/", "`http://a:1` is listed twice: remove one"),
            ("http://a,http://A:80", "`http://a` is listed twice: remove one"),
            (
                "x=http://a:1,x=http://b:1",
                "`http://a:1` and `http://b:1` are both called `x`: give each a name, as `name=URL`",
            ),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn the_list_is_bounded() {
        let urls = |n| (0..n).map(|i| format!("http://10.0.{}.{}", i / 250, i % 250)).collect::<Vec<_>>();
        assert_eq!(Replicas.parse(&urls(MAX_REPLICAS).join(",")).map(|r| r.len()), Ok(MAX_REPLICAS));
        let error = Replicas.parse(&urls(MAX_REPLICAS + 1).join(","));
        assert_eq!(error, Err("1001 replicas are too many: at most 1000".to_owned()));
    }

    #[test]
    fn colliding_ids_are_refused() {
        // Found by search: some two of these names have one id, by the birthday paradox.
        let mut seen: BTreeMap<ReplicaId, String> = BTreeMap::new();
        let (a, b) = (0..)
            .find_map(|i| {
                let url = format!("http://engine-{i}:8000");
                let earlier = seen.insert(ReplicaId::of_url(&url), url.clone());
                earlier.map(|earlier| (earlier, url))
            })
            .expect("32 bits collide within some 100,000 names");
        let error = Replicas.parse(&format!("{a},{b}")).expect_err("one id");
        assert!(error.contains("have the same 32-bit id by chance"), "{error}");
    }
}
