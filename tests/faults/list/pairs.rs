//! Two at a time.

use super::{HOUR, LONG, cut_both_ways, join_both_ways};
use crate::dns::Mood;
use crate::fault::{Fault, On};

pub(super) fn pairs() -> Vec<Fault> {
    vec![
        Fault {
            name: "engine and router killed, back after 3 s",
            inject: |fleet| {
                fleet.engines[1].kill();
                fleet.routers[1].kill();
            },
            heal: |fleet| {
                fleet.engines[1].start();
                fleet.routers[1].start();
            },
            dies: &[On::Engine(1), On::Router(1)],
            ..Fault::NONE
        },
        Fault {
            name: "router killed and started while DNS is silent",
            inject: |fleet| {
                fleet.dns.be(Mood::Silent);
                fleet.routers[0].kill();
                fleet.routers[0].start();
            },
            hold: LONG,
            heal: |fleet| fleet.dns.be(Mood::Well),
            dies: &[On::Router(0)],
            ..Fault::NONE
        },
        Fault {
            name: "engine killed and started while a router is cut off from the others",
            inject: |fleet| {
                [0, 1].into_iter().for_each(|other| cut_both_ways(fleet, 2, other));
                fleet.engines[3].kill();
                fleet.engines[3].start();
            },
            hold: LONG,
            heal: |fleet| [0, 1].into_iter().for_each(|other| join_both_ways(fleet, 2, other)),
            dies: &[On::Engine(3)],
            ..Fault::NONE
        },
        Fault {
            name: "engine killed while the list of replicas is garbage",
            inject: |fleet| {
                fleet.files.spoil();
                fleet.engines[0].kill();
            },
            heal: |fleet| {
                fleet.engines[0].start();
                fleet.files.mend();
            },
            dies: &[On::Engine(0)],
            ..Fault::NONE
        },
        Fault {
            name: "router and engine stopped (SIGSTOP) for 3 s",
            inject: |fleet| {
                fleet.routers[0].process.signal("STOP");
                fleet.engines[0].process.signal("STOP");
            },
            heal: |fleet| {
                fleet.engines[0].process.signal("CONT");
                fleet.routers[0].process.signal("CONT");
            },
            ..Fault::NONE
        },
        Fault {
            name: "router killed and started with its clock an hour behind",
            inject: |fleet| {
                fleet.routers[1].clock.move_by(-HOUR);
                fleet.routers[1].kill();
                fleet.routers[1].start();
            },
            heal: |fleet| fleet.routers[1].clock.move_by(0),
            dies: &[On::Router(1)],
            ..Fault::NONE
        },
    ]
}
