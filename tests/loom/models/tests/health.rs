//! Health of a replica, told by several requests and the replica actor at once.

use std::sync::Arc;

use loom::thread;
use models::health::{Health, Standing};

/// Runs each on a thread of its own, and waits for all.
fn at_once(health: &Arc<Health>, what: &[fn(&Health)]) {
    let run = |what: &fn(&Health)| {
        let (health, what) = (Arc::clone(health), *what);
        thread::spawn(move || what(&health))
    };
    let threads: Vec<_> = what.iter().map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The ejection that begins at `now` lasts `ms`.
fn ejection_lasts(health: &Health, now: u64, ms: u64) {
    assert_eq!(health.standing(now + ms - 1), Standing::Suspect);
    assert_eq!(health.standing(now + ms), Standing::Good);
}

#[test]
fn failures_of_one_burst_are_one_ejection() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        at_once(&health, &[|health| health.eject(0, 0.5), |health| health.eject(0, 0.5)]);
        ejection_lasts(&health, 0, 1_000);
        health.eject(1_000, 0.5);
        ejection_lasts(&health, 1_000, 2_000);
    });
}

#[test]
fn no_error_of_a_row_is_lost() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        health.server_error(0, 0.5);
        at_once(&health, &[|health| health.server_error(0, 0.5), |health| health.server_error(0, 0.5)]);
        assert_eq!(health.standing(0), Standing::Suspect);
    });
}

/// Whatever an ejection and a success made of each other: the next success ends it, and the next failure
/// begins small.
#[test]
fn a_success_ends_what_another_met_half_way() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        health.eject(0, 0.5);
        at_once(&health, &[|health| health.eject(1_000, 0.5), Health::completed]);
        health.completed();
        assert_eq!(health.standing(1_000), Standing::Good);
        health.eject(1_000, 0.5);
        ejection_lasts(&health, 1_000, 1_000);
    });
}

#[test]
fn a_restart_is_counted_once_whoever_sees_it() {
    loom::model(|| {
        let health = Arc::new(Health::default());
        health.connect_failed(0, true, 0.5);
        let seen = {
            let health = Arc::clone(&health);
            thread::spawn(move || usize::from(health.take_restarted()) + usize::from(health.take_restarted()))
        };
        at_once(&health, &[|health| health.served(1), |health| health.served(1)]);
        let seen = seen.join().unwrap() + usize::from(health.take_restarted());
        assert_eq!(seen, 1);
    });
}
