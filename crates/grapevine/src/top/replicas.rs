//! The engine replicas.

use grapevine_node::admin::fleet_view::{Fleet, FleetReplica};
use ratatui::layout::Constraint::{Length, Min};
use ratatui::style::Style;
use ratatui::widgets::{Cell, Table};

use super::grid::{Column, left, meter, number, right, table, text};
use super::style::Look;
use crate::figures::{or_unknown, percent, share, short};

/// From here a KV cache delays what it is given.
const HOT_KV: f64 = 0.9;

/// What bars are drawn against.
struct Scale {
    look: Look,
    inflight: f64,
    queued: f64,
    /// An equal share of the traffic.
    fair: f64,
}

const COLUMNS: &[Column<FleetReplica, Scale>] = &[
    left("replica", Min(18), 0, |r, _| text(r.name.clone(), Style::new())),
    left("health", Length(11), 0, |r, c| text(health(r), c.look.state(health(r)))),
    left("in flight", Length(13), 0, inflight),
    left("queued tok", Length(13), 89, queued),
    left("KV in use", Length(13), 75, kv_use),
    left("share", Length(13), 58, share_of_requests),
    right("hit rate", Length(8), 98, |r, _| number(or_unknown(hit_rate(r), percent))),
    right("error tok", Length(9), 108, error),
    right("cache", Length(7), 116, |r, _| tokens(r.engine.cache_tokens)),
    right("believed", Length(8), 125, |r, _| tokens(r.capacity_tokens)),
];

/// The heads of all columns.
#[cfg(test)]
pub(super) fn heads() -> Vec<&'static str> {
    COLUMNS.iter().map(Column::title).collect()
}

/// The table for `width` cells.
pub(crate) fn replicas(fleet: &Fleet, look: Look, width: u16) -> Table<'static> {
    let most = |value: fn(&FleetReplica) -> f64| fleet.replicas.iter().map(value).fold(1.0, f64::max);
    let scale = Scale {
        look,
        inflight: most(|r| f64::from(r.inflight)),
        queued: most(|r| r.queued_tokens as f64),
        fair: 1.0 / fleet.replicas.len().max(1) as f64,
    };
    table(COLUMNS, &fleet.replicas, &scale, look, width)
}

/// " replicas: 5 of 6 up ".
pub(crate) fn title(fleet: &Fleet) -> String {
    let up = fleet.replicas.iter().filter(|replica| replica.health == "up").count();
    format!(" replicas: {up} of {} up ", fleet.replicas.len())
}

pub(super) fn health(replica: &FleetReplica) -> &str {
    if replica.drain && replica.health == "up" { "draining" } else { &replica.health }
}

pub(super) fn hit_rate(replica: &FleetReplica) -> Option<f64> {
    share(replica.tokens.reported_cached, replica.tokens.reported_prompt)
}

fn inflight(replica: &FleetReplica, scale: &Scale) -> Cell<'static> {
    let part = f64::from(replica.inflight) / scale.inflight;
    meter(Some(part), &replica.inflight.to_string(), scale.look.bar())
}

fn queued(replica: &FleetReplica, scale: &Scale) -> Cell<'static> {
    let queued = replica.queued_tokens as f64;
    meter(Some(queued / scale.queued), &short(queued), scale.look.bar())
}

fn kv_use(replica: &FleetReplica, scale: &Scale) -> Cell<'static> {
    let used = replica.engine.kv_use;
    let hot = used.is_some_and(|used| used >= HOT_KV);
    meter(used, &or_unknown(used, percent), if hot { scale.look.warn() } else { scale.look.bar() })
}

fn share_of_requests(replica: &FleetReplica, scale: &Scale) -> Cell<'static> {
    // An equal share is half a bar.
    let part = replica.share.map(|share| share / (2.0 * scale.fair));
    meter(part, &or_unknown(replica.share, percent), scale.look.accent())
}

fn error(replica: &FleetReplica, _: &Scale) -> Cell<'static> {
    number(or_unknown(replica.credit_error_tokens, |error| format!("{error:+.0}")))
}

fn tokens(tokens: Option<u64>) -> Cell<'static> {
    number(or_unknown(tokens, |tokens| short(tokens as f64)))
}
