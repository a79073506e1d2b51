use rand::SeedableRng;

use super::*;

const A: RouterId = RouterId(1);
const TICK: Duration = Duration::from_millis(250);

fn candidate(id: u32) -> Candidate {
    Candidate { id: RouterId(id), name: format!("r{id}").into(), url: "http://x".into() }
}

fn want(origin: RouterId, holes: &[(u64, u64)], since: Millis) -> Want {
    Want { origin, generation: 5, holes: holes.to_vec(), since, pointed: false }
}

struct Desk {
    puller: Puller,
    rng: SmallRng,
    peers: Vec<Candidate>,
}

impl Desk {
    fn with(peers: impl IntoIterator<Item = u32>) -> Self {
        let peers = peers.into_iter().map(candidate).collect();
        Self { puller: Puller::new(2 * TICK), rng: SmallRng::seed_from_u64(7), peers }
    }

    fn next(&mut self, wants: &[Want], now: Millis) -> Vec<Step> {
        self.puller.next(wants.to_vec(), &self.peers, |peer, _| peer == RouterId(4), now, &mut self.rng)
    }

    /// Whom it asks about the only want.
    fn asked(&mut self, want: &Want, now: Millis) -> Option<u32> {
        match self.next(std::slice::from_ref(want), now).as_slice() {
            [Step::Ask { from, .. }] => Some(from.id.0),
            [] => None,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, from: u32, outcome: Outcome, now: Millis) {
        self.puller.answered(A, RouterId(from), outcome, now);
    }
}

const LACKS: Outcome = Outcome::Answered { more: false };

#[test]
fn gossip_has_its_time_first_unless_a_pointer_says_otherwise() {
    let mut desk = Desk::with([1, 2]);
    let hole = want(A, &[(3, 3)], 1_000);
    assert_eq!(desk.asked(&hole, 1_400), None);
    assert_eq!(desk.asked(&hole, 1_600), Some(1));
    assert_eq!(desk.asked(&hole, 1_600), None, "one question at a time");

    let mut desk = Desk::with([1, 2]);
    assert_eq!(desk.asked(&Want { pointed: true, ..hole }, 1_070), Some(1));
}

#[test]
fn the_origin_is_asked_first_then_who_is_past_it_then_anyone_then_it_is_given_up() {
    let mut desk = Desk::with([1, 2, 3, 4]);
    let hole = want(A, &[(3, 3), (7, 9)], 0);
    let mut order = Vec::new();
    for _ in 0..4 {
        let from = desk.asked(&hole, 1_000).unwrap();
        order.push(from);
        desk.answer(from, LACKS, 1_000);
    }
    assert_eq!(order[..2], [1, 4]);
    order.sort_unstable();
    assert_eq!(order, [1, 2, 3, 4]);
    let later = want(A, &[(3, 3), (7, 9), (12, 12)], 0);
    assert_eq!(desk.next(std::slice::from_ref(&later), 1_000), [Step::GiveUp(hole)], "only what was asked");
    assert_eq!(desk.asked(&want(A, &[(12, 12)], 900), 2_000), Some(1), "anew");
}

#[test]
fn a_hole_that_grew_while_it_was_asked_for_is_given_up_as_far_as_it_was() {
    let mut desk = Desk::with([1]);
    let hole = want(A, &[(3, 5)], 0);
    assert_eq!(desk.asked(&hole, 1_000), Some(1));
    desk.answer(1, LACKS, 1_000);
    let grown = want(A, &[(3, 9)], 0);
    assert_eq!(desk.next(std::slice::from_ref(&grown), 1_000), [Step::GiveUp(hole)]);
    assert_eq!(desk.asked(&want(A, &[(6, 9)], 0), 2_000), Some(1), "the rest is asked for anew");
}

#[test]
fn more_is_asked_of_the_same_peer() {
    let mut desk = Desk::with([1, 2]);
    let hole = want(A, &[(3, 300)], 0);
    assert_eq!(desk.asked(&hole, 1_000), Some(1));
    desk.answer(1, Outcome::Answered { more: true }, 1_000);
    assert_eq!(desk.asked(&hole, 1_000), Some(1));
}

#[test]
fn who_does_not_answer_is_left_alone_longer_each_time() {
    let mut desk = Desk::with([1]);
    let hole = want(A, &[(3, 3)], 0);
    let mut asked = Vec::new();
    for now in (1_000..100_000).step_by(250) {
        if desk.asked(&hole, now).is_some() {
            asked.push(now);
            desk.answer(1, Outcome::Failed, now);
        }
    }
    assert_eq!(asked, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]);
    assert_eq!(desk.next(std::slice::from_ref(&hole), log::MAX_AGE_MS + 1), [Step::GiveUp(hole)], "too old");
}

#[test]
fn a_dead_origin_and_nobody_to_ask_is_no_reason_to_give_up() {
    let mut desk = Desk::with([]);
    assert_eq!(desk.next(&[want(A, &[(3, 3)], 0)], 10_000), []);
    desk.peers.push(candidate(2));
    assert_eq!(desk.asked(&want(A, &[(3, 3)], 0), 10_000), Some(2));
}

#[test]
fn at_most_two_questions_at_once_and_everyone_has_a_turn() {
    let mut desk = Desk::with(1..=9);
    let wants: Vec<Want> = (1..=5).map(|id| want(RouterId(id), &[(1, 1)], 0)).collect();
    let mut served = BTreeSet::new();
    for _ in 0..5 {
        let steps = desk.next(&wants, 1_000);
        assert!(steps.len() <= MAX_RUNNING);
        for step in steps {
            let Step::Ask { want, from } = step else { panic!("{step:?}") };
            served.insert(want.origin);
            desk.puller.answered(want.origin, from.id, Outcome::Answered { more: true }, 1_000);
        }
    }
    assert_eq!(served.len(), 5);
    desk.next(&[], 1_000);
    assert!(desk.puller.origins.is_empty(), "nothing is kept of what is mended");
}
