//! Engines that die, hang, or answer wrongly.

use serde_json::json;

use super::{LONG, PROBED, WHILE_IT_LASTS};
use crate::fault::{Fault, On};
use crate::fleet::Fleet;

pub(super) fn deaths() -> Vec<Fault> {
    vec![
        Fault {
            name: "engine killed, back after 3 s",
            inject: |fleet| fleet.engines[0].kill(),
            heal: |fleet| fleet.engines[0].start(),
            dies: &[On::Engine(0)],
            ..Fault::NONE
        },
        Fault {
            name: "engine killed, back at once and empty",
            inject: |fleet| {
                fleet.engines[2].kill();
                fleet.engines[2].start();
            },
            dies: &[On::Engine(2)],
            ..Fault::NONE
        },
        Fault {
            name: "engine stopped (SIGSTOP) for 3 s",
            inject: |fleet| fleet.engines[1].process.signal("STOP"),
            heal: |fleet| fleet.engines[1].process.signal("CONT"),
            ..Fault::NONE
        },
        Fault {
            name: "engine stopped, killed after 8 s",
            inject: |fleet| fleet.engines[1].process.signal("STOP"),
            hold: LONG,
            heal: |fleet| {
                fleet.engines[1].kill();
                fleet.engines[1].start();
            },
            dies: &[On::Engine(1)],
            unnoticed: PROBED,
            ..Fault::NONE
        },
        Fault {
            name: "engine's machine gone without a word (half-open), back after 8 s",
            inject: |fleet| (0..3).for_each(|router| fleet.cut_engine(router, 2)),
            hold: LONG,
            heal: |fleet| (0..3).for_each(|router| fleet.join_engine(router, 2)),
            dies: &[On::Engine(2)],
            unnoticed: PROBED,
            ..Fault::NONE
        },
    ]
}

fn recover(fleet: &mut Fleet) {
    fleet.engines[0].suffer(&json!([]));
}

pub(super) fn answers() -> Vec<Fault> {
    vec![
        Fault {
            name: "engine's first tokens late by 1.5 s",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "slow_first_byte", "ms": 1500})),
            heal: recover,
            ..Fault::NONE
        },
        Fault {
            name: "engine answers 500, as one that drains",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "status", "code": 500})),
            heal: recover,
            ..Fault::NONE
        },
        Fault {
            name: "engine answers 503, as one that is full",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "status", "code": 503})),
            heal: recover,
            ..Fault::NONE
        },
        Fault {
            name: "engine resets connections before it answers",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "cut_before_headers", "how": "rst"})),
            heal: recover,
            dies: &[On::Engine(0)],
            unnoticed: WHILE_IT_LASTS,
            ..Fault::NONE
        },
        Fault {
            name: "engine resets streams after three events",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "cut", "after_events": 3, "how": "rst"})),
            heal: recover,
            dies: &[On::Engine(0)],
            unnoticed: WHILE_IT_LASTS,
            ..Fault::NONE
        },
        Fault {
            name: "engine takes requests and never answers",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "hang"})),
            hold: LONG,
            heal: recover,
            dies: &[On::Engine(0)],
            unnoticed: WHILE_IT_LASTS,
            ..Fault::NONE
        },
        Fault {
            name: "engine's streams stall after three events",
            inject: |fleet| fleet.engines[0].suffer(&json!({"kind": "stall", "after_events": 3})),
            hold: LONG,
            heal: recover,
            dies: &[On::Engine(0)],
            unnoticed: WHILE_IT_LASTS,
            ..Fault::NONE
        },
    ]
}
