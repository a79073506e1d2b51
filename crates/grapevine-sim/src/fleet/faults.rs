//! What goes wrong in a run, and when: drawn from the seed before it starts.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::SECOND;
use crate::replay::engine::Micros;

/// What kinds of things go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mishaps {
    /// The fleet falls into two halves for a while.
    pub(super) partition: bool,
    /// Routers and replicas die and come back with nothing.
    pub(super) crash: bool,
    /// Single directions between two routers fail, routers leave in order, clocks go back.
    pub(super) chaos: bool,
    /// Router 0 restarts this often in a row.
    pub(super) restarts: u32,
    /// All routers restart, one after the other, each with a farewell.
    pub(super) rolling: bool,
}

/// Something that goes wrong, or right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The first so many routers, in some order, lose the others.
    Partition(Vec<usize>),
    /// What one router sends to another does not arrive.
    Cut(usize, usize),
    /// All cuts are mended.
    Heal,
    /// A router dies at once, or says farewell first.
    RouterStops { router: usize, farewell: bool },
    /// A router is back with nothing but its name. Its clock jumped by so many milliseconds.
    RouterStarts { router: usize, clock_jump_ms: i64 },
    /// A replica's process dies.
    ReplicaDies(usize),
    /// It is back with an empty cache.
    ReplicaRises(usize),
}

/// Time between two restarts in a row.
const RESTART_EVERY: Micros = 1_500_000;

/// The size of the world in which things go wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) routers: usize,
    pub(super) replicas: usize,
    pub(super) lasts: Micros,
}

/// Everything that goes wrong, in order of time. All is well again before the load ends.
pub(super) fn plan(mishaps: Mishaps, scene: Scene, seed: u64) -> Vec<(Micros, Fault)> {
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut plan = Vec::new();
    if scene.routers > 1 && (mishaps.partition || mishaps.chaos) {
        partition(&mut plan, scene, &mut dice);
    }
    if mishaps.crash || mishaps.chaos {
        crashes(&mut plan, scene, mishaps.chaos, &mut dice);
    }
    if scene.routers > 1 && mishaps.chaos {
        one_way(&mut plan, scene, &mut dice);
    }
    if mishaps.rolling {
        rolling_restart(&mut plan, scene);
    }
    for n in 0..Micros::from(mishaps.restarts) {
        let at = 2 * SECOND + n * RESTART_EVERY;
        plan.push((at, Fault::RouterStops { router: 0, farewell: false }));
        plan.push((at + RESTART_EVERY / 3, Fault::RouterStarts { router: 0, clock_jump_ms: 0 }));
    }
    plan.sort_by_key(|(at, _)| *at);
    plan
}

/// A moment between two shares of the run.
fn moment(scene: Scene, from: f64, to: f64, dice: &mut SmallRng) -> Micros {
    (scene.lasts as f64 * dice.random_range(from..to)) as Micros
}

fn partition(plan: &mut Vec<(Micros, Fault)>, scene: Scene, dice: &mut SmallRng) {
    let mut order: Vec<usize> = (0..scene.routers).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, dice.random_range(0..=at));
    }
    order.truncate(dice.random_range(1..=scene.routers / 2));
    plan.push((moment(scene, 0.15, 0.3, dice), Fault::Partition(order)));
    plan.push((moment(scene, 0.35, 0.5, dice), Fault::Heal));
}

/// One router and one replica, and in chaos more of both for every 20 s.
fn crashes(plan: &mut Vec<(Micros, Fault)>, scene: Scene, chaos: bool, dice: &mut SmallRng) {
    let count = if chaos { 1 + scene.lasts / (20 * SECOND) } else { 1 };
    let share = 0.6 / count as f64;
    for n in 0..count {
        let from = 0.1 + share * n as f64;
        let stop = moment(scene, from, from + share / 4.0, dice);
        let start = moment(scene, from + share / 2.0, from + share * 0.7, dice);
        if scene.routers > 1 {
            let router = dice.random_range(0..scene.routers);
            let farewell = chaos && dice.random_bool(0.3);
            let clock_jump_ms = if chaos { dice.random_range(-100_000..1_000) } else { 0 };
            plan.push((stop, Fault::RouterStops { router, farewell }));
            plan.push((start, Fault::RouterStarts { router, clock_jump_ms }));
        }
        if scene.replicas > 1 {
            let replica = dice.random_range(0..scene.replicas);
            plan.push((moment(scene, from, from + share / 4.0, dice), Fault::ReplicaDies(replica)));
            let rise = moment(scene, from + share / 2.0, from + share * 0.7, dice);
            plan.push((rise, Fault::ReplicaRises(replica)));
        }
    }
}

fn one_way(plan: &mut Vec<(Micros, Fault)>, scene: Scene, dice: &mut SmallRng) {
    for _ in 0..scene.routers {
        let (from, to) = (dice.random_range(0..scene.routers), dice.random_range(0..scene.routers));
        plan.push((moment(scene, 0.55, 0.6, dice), Fault::Cut(from, to)));
    }
    plan.push((moment(scene, 0.7, 0.75, dice), Fault::Heal));
}

/// From a third of the run, when caches are warm, to its end: so hits are counted meanwhile.
fn rolling_restart(plan: &mut Vec<(Micros, Fault)>, scene: Scene) {
    let first = scene.lasts * 35 / 100;
    let gap = scene.lasts * 55 / 100 / scene.routers as Micros;
    for router in 0..scene.routers {
        let at = first + gap * router as Micros;
        plan.push((at, Fault::RouterStops { router, farewell: true }));
        plan.push((at + gap / 2, Fault::RouterStarts { router, clock_jump_ms: 0 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENE: Scene = Scene { routers: 5, replicas: 4, lasts: 60 * SECOND };

    #[test]
    fn whatever_stops_starts_again_before_the_load_ends() {
        for seed in 0..200 {
            let chaos = Mishaps { chaos: true, ..Mishaps::default() };
            let plan = plan(chaos, SCENE, seed);
            assert!(plan.is_sorted_by_key(|(at, _)| *at));
            assert!(plan.iter().all(|(at, _)| *at < SCENE.lasts * 9 / 10));
            let last = |wanted: &dyn Fn(&Fault) -> bool| plan.iter().rposition(|(_, fault)| wanted(fault));
            let cut = last(&|fault| matches!(fault, Fault::Cut(..) | Fault::Partition(_)));
            assert!(cut < last(&|fault| matches!(fault, Fault::Heal)));
            for index in 0..SCENE.routers {
                let stop = last(&|f| matches!(f, Fault::RouterStops { router, .. } if *router == index));
                let start = last(&|f| matches!(f, Fault::RouterStarts { router, .. } if *router == index));
                assert!(stop.is_none() || stop < start, "seed {seed}");
            }
        }
    }

    #[test]
    fn nothing_asked_nothing_planned() {
        assert!(plan(Mishaps::default(), SCENE, 1).is_empty());
        let alone = Scene { routers: 1, replicas: 1, lasts: SECOND };
        assert!(plan(Mishaps { partition: true, crash: true, ..Mishaps::default() }, alone, 1).is_empty());
    }
}
