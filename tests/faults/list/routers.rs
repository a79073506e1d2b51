//! Routers that die, and networks that lose what is sent.

use std::time::Duration;

use super::{LONG, PROBED, SHORT, cut_both_ways, join_both_ways};
use crate::fault::{Fault, On};

pub(super) fn deaths() -> Vec<Fault> {
    vec![
        Fault {
            name: "router killed, back after 3 s",
            inject: |fleet| fleet.routers[0].kill(),
            heal: |fleet| fleet.routers[0].start(),
            dies: &[On::Router(0)],
            ..Fault::NONE
        },
        Fault {
            name: "router killed, back at once and empty",
            inject: |fleet| {
                fleet.routers[1].kill();
                fleet.routers[1].start();
            },
            dies: &[On::Router(1)],
            ..Fault::NONE
        },
        Fault {
            name: "router stopped (SIGSTOP) for 3 s",
            inject: |fleet| fleet.routers[2].process.signal("STOP"),
            heal: |fleet| fleet.routers[2].process.signal("CONT"),
            ..Fault::NONE
        },
        Fault {
            name: "router ended (SIGTERM) and started",
            inject: |fleet| fleet.routers[0].retire(),
            heal: |fleet| fleet.routers[0].start(),
            ..Fault::NONE
        },
        Fault {
            name: "fleet's secret rotated: all restarted with the new and the old one, then with the new one",
            inject: |fleet| {
                let (old, new) = ("the first secret of the fault matrix", "the second secret of the matrix");
                let name = "GRAPEVINE_CLUSTER_SECRET";
                fleet.roll(&[(name, Some(new)), ("GRAPEVINE_CLUSTER_SECRET_PREVIOUS", Some(old))]);
                fleet.roll(&[("GRAPEVINE_CLUSTER_SECRET_PREVIOUS", None)]);
            },
            hold: Duration::ZERO,
            ..Fault::NONE
        },
    ]
}

pub(super) fn networks() -> Vec<Fault> {
    vec![
        Fault {
            name: "one router cut off from the others for 8 s",
            inject: |fleet| [1, 2].into_iter().for_each(|other| cut_both_ways(fleet, 0, other)),
            hold: LONG,
            heal: |fleet| [1, 2].into_iter().for_each(|other| join_both_ways(fleet, 0, other)),
            ..Fault::NONE
        },
        Fault {
            name: "one router not heard by another for 8 s (one way)",
            inject: |fleet| fleet.cut(0, 1),
            hold: LONG,
            heal: |fleet| fleet.join(0, 1),
            ..Fault::NONE
        },
        Fault {
            name: "router and engine cut off from each other for 2.5 s",
            inject: |fleet| fleet.cut_engine(0, 0),
            hold: SHORT,
            heal: |fleet| fleet.join_engine(0, 0),
            ..Fault::NONE
        },
        Fault {
            name: "router and engine cut off from each other for 8 s",
            inject: |fleet| fleet.cut_engine(0, 0),
            hold: LONG,
            heal: |fleet| fleet.join_engine(0, 0),
            dies: &[On::Link(0, 0)],
            unnoticed: PROBED,
            ..Fault::NONE
        },
        Fault {
            name: "engine's answers lost on the way to one router for 2.5 s (one way)",
            inject: |fleet| fleet.engines[2].host.lose(&fleet.routers[1].host),
            hold: SHORT,
            heal: |fleet| fleet.engines[2].host.find(&fleet.routers[1].host),
            ..Fault::NONE
        },
    ]
}
