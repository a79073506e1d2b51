//! What a router needs besides engines and peers: names, a collector, files, descriptors, time.

use std::time::Duration;

use super::{HOUR, LONG};
use crate::collector::Collector;
use crate::dns::Mood;
use crate::fault::Fault;
use crate::fleet::Fleet;
use crate::seats::DESCRIPTORS;

fn traces_arrive(fleet: &Fleet) -> bool {
    fleet.collector.has_taken()
}

fn mend_collector(fleet: &mut Fleet) {
    fleet.collector = Collector::Gone;
    fleet.collector = Collector::well();
}

pub(super) fn services() -> Vec<Fault> {
    vec![
        Fault {
            name: "DNS silent for 8 s",
            inject: |fleet| fleet.dns.be(Mood::Silent),
            hold: LONG,
            heal: |fleet| fleet.dns.be(Mood::Well),
            ..Fault::NONE
        },
        Fault {
            name: "DNS knows no name for 3 s",
            inject: |fleet| fleet.dns.be(Mood::NoSuchName),
            heal: |fleet| fleet.dns.be(Mood::Well),
            ..Fault::NONE
        },
        Fault {
            name: "collector gone",
            inject: |fleet| fleet.collector = Collector::Gone,
            heal: mend_collector,
            after: traces_arrive,
            ..Fault::NONE
        },
        Fault {
            name: "collector takes connections and never answers",
            inject: |fleet| {
                fleet.collector = Collector::Gone;
                fleet.collector = Collector::silent();
            },
            heal: mend_collector,
            after: traces_arrive,
            ..Fault::NONE
        },
        Fault {
            name: "disk of the decision logs full",
            inject: |fleet| fleet.files.fill_disk(),
            heal: |fleet| fleet.files.free_disk(),
            after: |fleet| ["r1", "r2", "r3"].into_iter().all(|name| fleet.files.was_just_written(name)),
            ..Fault::NONE
        },
        Fault {
            name: "list of replicas and keys of clients replaced by garbage",
            inject: |fleet| fleet.files.spoil(),
            hold: Duration::from_secs(5),
            heal: |fleet| fleet.files.mend(),
            ..Fault::NONE
        },
    ]
}

pub(super) fn machines() -> Vec<Fault> {
    vec![
        Fault {
            name: "all descriptors for clients of a router taken by idle ones",
            // Half of them are for clients; the kernel's queue holds those who do not fit.
            inject: |fleet| fleet.idle_at(0, DESCRIPTORS / 2),
            heal: |fleet| fleet.debris.idlers.clear(),
            ..Fault::NONE
        },
        Fault {
            name: "router may open no descriptor any more",
            inject: |fleet| fleet.routers[1].limit_descriptors(8),
            heal: |fleet| fleet.routers[1].limit_descriptors(DESCRIPTORS),
            ..Fault::NONE
        },
        Fault {
            name: "router's clock an hour ahead, and back",
            inject: |fleet| fleet.routers[0].clock.move_by(HOUR),
            heal: |fleet| fleet.routers[0].clock.move_by(0),
            ..Fault::NONE
        },
        Fault {
            name: "router's clock an hour behind, and back",
            inject: |fleet| fleet.routers[1].clock.move_by(-HOUR),
            heal: |fleet| fleet.routers[1].clock.move_by(0),
            ..Fault::NONE
        },
        Fault {
            name: "router starved: one core, shared with 24 busy processes",
            inject: |fleet| {
                fleet.routers[2].pin("0");
                fleet.burn(24);
            },
            heal: |fleet| {
                fleet.debris.burners.clear();
                let cores = std::thread::available_parallelism().unwrap().get();
                fleet.routers[2].pin(&format!("0-{}", cores - 1));
            },
            ..Fault::NONE
        },
    ]
}
