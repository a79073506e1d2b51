//! The tests: a few faults each time, all of them by command.

use std::io::{Write as _, stderr};

use super::fault::{Fault, Outcome, warm_up};
use super::fleet::Fleet;
use super::hub::isolated;
use super::list;
use super::table;

/// Names of those that are tried each time.
const FEW: [&str; 3] =
    ["engine killed, back at once and empty", "router killed, back after 3 s", "DNS knows no name for 3 s"];

/// One after the other, on one fleet.
fn run(faults: &[Fault]) -> Vec<Outcome> {
    let mut fleet = Fleet::start();
    warm_up(&fleet);
    let run = |fault: &Fault| {
        let seen = fault.run(&mut fleet);
        // Not by a macro: those are captured, and who waits for minutes wants to see.
        let _ = write!(stderr(), "{}", table::row(&seen));
        seen
    };
    faults.iter().map(run).collect()
}

fn fail_with(outcomes: &[Outcome]) {
    let problems: Vec<String> = outcomes.iter().flat_map(Outcome::problems).collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn a_few_faults_fail_no_request_beyond_those_on_what_died() {
    isolated("matrix::a_few_faults_fail_no_request_beyond_those_on_what_died", || {
        let mut faults = list::all();
        faults.retain(|fault| FEW.contains(&fault.name));
        assert_eq!(faults.len(), FEW.len());
        fail_with(&run(&faults));
    });
}

#[test]
#[ignore = "takes ten minutes"]
fn matrix() {
    isolated("matrix::matrix", || {
        let chosen = std::env::var("FAULTS").unwrap_or_default();
        let mut faults = list::all();
        faults.retain(|fault| fault.name.contains(&chosen));
        let outcomes = run(&faults);
        let table = table::of(&outcomes);
        println!("{table}");
        if std::env::var_os("UPDATE_DOCS").is_some() && chosen.is_empty() {
            table::publish(&table);
        }
        fail_with(&outcomes);
    });
}
