//! Counts of one replica, kept by requests while others read them.

use std::sync::Arc;

use loom::thread;
use models::load::ReplicaLoad;

#[test]
fn guards_are_counted_while_they_live_and_never_below_none() {
    loom::model(|| {
        let load = Arc::new(ReplicaLoad::default());
        let other = {
            let load = Arc::clone(&load);
            thread::spawn(move || drop(load.begin(7)))
        };
        let own = load.begin(7);
        assert!((1..=2).contains(&load.own_inflight()));
        assert!((7..=14).contains(&load.own_queued_tokens()));
        drop(own);
        other.join().unwrap();
        assert_eq!((load.own_inflight(), load.own_queued_tokens()), (0, 0));
        assert_eq!(load.view().intake_tokens, 14.0);
    });
}

#[test]
fn decay_loses_no_intake_that_comes_meanwhile() {
    loom::model(|| {
        let load = Arc::new(ReplicaLoad::default());
        load.add_peer_intake(1_000);
        let request = {
            let load = Arc::clone(&load);
            thread::spawn(move || drop(load.begin(100)))
        };
        load.decay_intake(1_000, 1_000);
        request.join().unwrap();
        // Half of what was there before, and of what came all or half.
        let left = load.view().intake_tokens;
        assert!(left == 600.0 || left == 550.0, "{left}");
    });
}
