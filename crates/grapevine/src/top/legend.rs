//! What each column says: told by `grapevine top --help` and over the tables.

/// One column, under each head that it has; words in capitals are those of `--once`.
struct Entry {
    heads: &'static [&'static str],
    says: &'static str,
}

const fn entry(heads: &'static [&'static str], says: &'static str) -> Entry {
    Entry { heads, says }
}

type Group = (&'static str, &'static [Entry]);

const GROUPS: [Group; 3] = [
    (
        "routers",
        &[
            entry(&["ROUTER", "router"], "its GRAPEVINE_ROUTER_ID"),
            entry(&["STATE", "state"], "joining, serving, draining, no answer, gone"),
            entry(&["REQUESTS"], "requests that ended since it started"),
            entry(&["req/s"], "requests that ended a second, over the last 12 s"),
            entry(&["INFLIGHT", "in flight"], "requests in it now"),
            entry(&["HITS", "hits"], "of its requests that were looked up and placed: share"),
            entry(&[], "that went where a part of them is believed cached"),
            entry(&["LAG", "lag"], "worst delay with which another router hears it"),
            entry(&["gossip/s"], "bytes of gossip that it sends a second"),
            entry(&["LEVEL", "level"], "of pairs of a peer and a router that it hears of:"),
            entry(&[], "share in which the peer has all that is known here"),
            entry(&["NODES", "nodes"], "nodes of its prefix tree"),
        ],
    ),
    (
        "replicas",
        &[
            entry(&["REPLICA", "replica"], "the engine's name, or its host and port"),
            entry(&["HEALTH", "health"], "up, suspect, unreachable, not_ready, draining"),
            entry(&["INFLIGHT", "in flight"], "the fleet's requests there now"),
            entry(&["QUEUED", "queued tok"], "prompt tokens to compute whose answer has not begun"),
            entry(&["KV", "KV in use"], "share of its KV cache that requests use, as it says"),
            entry(&["SHARE", "share"], "of the fleet's requests in the last minute"),
            entry(&[], "(half a bar: an equal share)"),
            entry(&["HITRATE", "hit rate"], "prompt tokens that answers reported as cached: share"),
            entry(&["ERROR", "error tok"], "cached tokens of a request: predicted less reported"),
            entry(&["CACHE", "cache"], "tokens that its cache holds, as the engine says"),
            entry(&["BELIEVED", "believed"], "tokens believed to be held: up to 1.5 times CACHE,"),
            entry(&[], "until answers show that there is less"),
        ],
    ),
    (
        "decisions",
        &[
            entry(&["ago"], "since the decision"),
            entry(&["reason"], "why that replica; Enter tells more"),
            entry(&["replica"], "where the request went"),
            entry(&["held there"], "prompt tokens believed cached there"),
            entry(&["of tokens"], "prompt tokens, estimated from bytes"),
            entry(&["taught by"], "own, or the router whose news it rests on"),
            entry(&["found"], "prompt tokens cached, as the answer reported"),
            entry(&["ended"], "how the request ended"),
        ],
    ),
];

/// Said once of all of them.
const NOTES: &str = "\
Rates above the tables are of the last minute. Hit rates: share of prompt
tokens cached as engines reported, as predicted, as a random choice would
have had. Other totals are since the start. `-` is unknown, not zero. Shares
are in percent, in tables of --once from 0 to 1; times have their unit.
";

/// Cells of the heads.
const HEADS: usize = 20;

/// The legend as lines.
pub(super) fn text() -> String {
    let mut out = String::new();
    for (name, entries) in GROUPS {
        out += &format!("{name}\n");
        for Entry { heads, says } in entries {
            out += &format!("  {:<HEADS$}{says}\n", heads.join(", "));
        }
    }
    out + NOTES
}

/// The same below the help of a command.
pub(super) fn help() -> String {
    format!("Columns; those of --once in capitals:\n{}", text())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::top::{decisions, once, replicas, routers};

    /// The heads that a table of `group` may have.
    fn heads(group: &str) -> Vec<&'static str> {
        match group {
            "routers" => once::ROUTERS.into_iter().chain(routers::heads()).collect(),
            "replicas" => once::REPLICAS.into_iter().chain(replicas::heads()).collect(),
            _ => decisions::heads(),
        }
    }

    #[test]
    fn every_column_is_explained_and_nothing_else() {
        for (name, entries) in GROUPS {
            let told: BTreeSet<_> = entries.iter().flat_map(|entry| entry.heads).copied().collect();
            assert_eq!(told, heads(name).into_iter().collect(), "{name}");
        }
    }

    #[test]
    fn it_fits_a_terminal_with_a_frame_around_it() {
        let longest = text().lines().map(str::len).max();
        assert!(longest <= Some(76), "{longest:?}");
    }
}
