//! `grapevine top --once`: the same as plain text, for scripts and for bug reports.

use std::fmt::Write as _;

use grapevine_node::admin::fleet_view::Fleet;

use super::history::{Shares, last_minute, requests_per_second};
use super::replicas::{health, hit_rate};
use super::routers::{lag_ms, level, state};
use super::words;
use crate::figures::{duration, or_unknown, percent, share};

/// The fleet as lines.
pub(super) fn text(fleet: &Fleet) -> String {
    let now = Shares::of(last_minute(&fleet.points));
    let rate = requests_per_second(last_minute(&fleet.points), fleet.step_ms);
    let mut out = String::new();
    let mut line = |text: String| {
        // A String takes whatever is written.
        let _ = writeln!(out, "{}", text.trim_end());
    };
    for (_, warning) in words::warnings(&fleet.warnings) {
        line(warning);
    }
    line(format!("asked             {}", fleet.asked));
    line(format!("hit rate          {}", or_unknown(now.reported, percent)));
    line(format!("  predicted       {}", or_unknown(now.predicted, percent)));
    line(format!("  at random       {}", or_unknown(now.random, percent)));
    line(format!("requests/s        {}", or_unknown(rate, |rate| format!("{rate:.1}"))));
    line(format!("in flight         {}", fleet.totals.inflight));
    line(format!("waiting           {}", fleet.totals.waiting));
    if let Some(shadow) = &fleet.totals.shadow {
        line(words::shadow(shadow));
    }
    out.push_str(&columns(&ROUTERS, fleet.routers.iter().map(|router| router_row(fleet, router)).collect()));
    out.push_str(&columns(&REPLICAS, fleet.replicas.iter().map(replica_row).collect()));
    out
}

pub(super) const ROUTERS: [&str; 8] =
    ["ROUTER", "STATE", "REQUESTS", "INFLIGHT", "HITS", "LAG", "LEVEL", "NODES"];

fn router_row(fleet: &Fleet, router: &grapevine_node::admin::fleet_view::FleetRouter) -> [String; 8] {
    let known = |text: String| or_unknown(router.reached.then_some(text), |text| text);
    [
        router.name.clone(),
        state(router).replace(' ', "_"),
        known(router.requests_total.to_string()),
        known(router.inflight.to_string()),
        known(or_unknown(share(router.hits, router.lookups), ratio)),
        or_unknown(lag_ms(fleet, &router.name), |lag| duration(lag).replace(' ', "")),
        known(or_unknown(level(router), ratio)),
        known(router.tree.nodes.to_string()),
    ]
}

pub(super) const REPLICAS: [&str; 10] =
    ["REPLICA", "HEALTH", "INFLIGHT", "QUEUED", "KV", "SHARE", "HITRATE", "ERROR", "CACHE", "BELIEVED"];

fn replica_row(replica: &grapevine_node::admin::fleet_view::FleetReplica) -> [String; 10] {
    [
        replica.name.clone(),
        health(replica).to_owned(),
        replica.inflight.to_string(),
        replica.queued_tokens.to_string(),
        or_unknown(replica.engine.kv_use, ratio),
        or_unknown(replica.share, ratio),
        or_unknown(hit_rate(replica), ratio),
        or_unknown(replica.credit_error_tokens, |error| format!("{error:.0}")),
        or_unknown(replica.engine.cache_tokens, |tokens| tokens.to_string()),
        or_unknown(replica.capacity_tokens, |tokens| tokens.to_string()),
    ]
}

/// Without a space, so that columns can be cut.
fn ratio(share: f64) -> String {
    format!("{share:.3}")
}

/// Columns as wide as their widest cell, after an empty line.
fn columns<const N: usize>(heads: &[&str; N], rows: Vec<[String; N]>) -> String {
    let heads = heads.map(str::to_owned);
    let all: Vec<[String; N]> = std::iter::once(heads).chain(rows).collect();
    let wide = |i: usize| all.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|i| wide(i).unwrap_or(0)).collect();
    let mut out = String::from("\n");
    for row in &all {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, wide)| format!("{cell:<wide$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}
