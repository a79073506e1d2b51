//! The routers of the fleet.

use grapevine_node::admin::fleet_view::{Fleet, FleetRouter};
use ratatui::layout::Constraint::{Length, Min};
use ratatui::style::Style;
use ratatui::widgets::{Cell, Table};

use super::grid::{Column, left, number, right, table, text};
use super::history::Rates;
use super::style::Look;
use crate::figures::{bytes, duration, or_unknown, percent, share, short};

struct Context<'a> {
    look: Look,
    rates: &'a Rates,
    fleet: &'a Fleet,
}

fn columns<'a>() -> [Column<FleetRouter, Context<'a>>; 9] {
    [
        left("router", Min(10), 0, |r, _| text(r.name.clone(), Style::new())),
        left("state", Length(10), 0, |r, c| text(state(r), c.look.state(state(r)))),
        right("req/s", Length(7), 0, requests),
        right("in flight", Length(9), 60, |r, _| reached(r, |r| r.inflight.to_string())),
        right("hits", Length(8), 50, |r, _| reached(r, |r| or_unknown(share(r.hits, r.lookups), percent))),
        right("lag", Length(8), 0, |r, c| number(or_unknown(lag_ms(c.fleet, &r.name), duration))),
        right("gossip/s", Length(9), 70, gossip),
        right("level", Length(8), 80, |r, _| reached(r, |r| or_unknown(level(r), percent))),
        right("nodes", Length(7), 92, |r, _| reached(r, |r| short(r.tree.nodes as f64))),
    ]
}

/// The heads of all columns.
#[cfg(test)]
pub(super) fn heads() -> Vec<&'static str> {
    columns().iter().map(Column::title).collect()
}

/// The table for `width` cells.
pub(crate) fn routers(fleet: &Fleet, rates: &Rates, look: Look, width: u16) -> Table<'static> {
    table(&columns(), &fleet.routers, &Context { look, rates, fleet }, look, width)
}

/// " routers: 3, lag up to 120 ms ".
pub(crate) fn title(fleet: &Fleet) -> String {
    let live = fleet.routers.iter().filter(|router| router.live || router.itself).count();
    let lag = fleet.links.iter().filter(|link| link.live).map(|link| link.lag_ms).max();
    let lag = lag.map_or_else(String::new, |lag| format!(", lag up to {}", duration(lag)));
    match fleet.routers.len() {
        all if all == live => format!(" routers: {all}{lag} "),
        all => format!(" routers: {live} of {all} live{lag} "),
    }
}

pub(super) fn state(router: &FleetRouter) -> &str {
    match router {
        FleetRouter { live: false, itself: false, .. } => "gone",
        FleetRouter { reached: false, .. } => "no answer",
        FleetRouter { phase, .. } => phase,
    }
}

/// The worst delay with which another router hears this one.
pub(super) fn lag_ms(fleet: &Fleet, router: &str) -> Option<u64> {
    let heard = fleet.links.iter().filter(|link| link.to == router && link.live);
    heard.map(|link| link.lag_ms).max()
}

/// Share of pairs of a peer and an origin that are level, as it sees them.
pub(super) fn level(router: &FleetRouter) -> Option<f64> {
    (router.gossip.pairs > 0).then_some(router.gossip.agreement)
}

fn requests(router: &FleetRouter, context: &Context<'_>) -> Cell<'static> {
    number(or_unknown(context.rates.requests(&router.name), |rate| format!("{rate:.0}")))
}

fn gossip(router: &FleetRouter, context: &Context<'_>) -> Cell<'static> {
    number(or_unknown(context.rates.bytes(&router.name), bytes))
}

/// A figure of a router that answered.
fn reached(router: &FleetRouter, text: fn(&FleetRouter) -> String) -> Cell<'static> {
    number(or_unknown(router.reached.then_some(router), text))
}
