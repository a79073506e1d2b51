//! Requests that come in two seconds, some of them with a clock that they read too early.

use std::sync::Arc;

use loom::thread;
use models::pace::Pace;

#[test]
fn no_more_pass_in_a_second_than_may() {
    loom::model(|| {
        let pace = Arc::new(Pace::new(1));
        let comes = |now| {
            let pace = Arc::clone(&pace);
            thread::spawn(move || usize::from(pace.passes(now)))
        };
        let (late, first) = (comes(999), comes(1_000));
        let passed = first.join().unwrap() + usize::from(pace.passes(1_000));
        assert_eq!(passed, 1, "in the second");
        assert!(late.join().unwrap() <= 1);
    });
}
