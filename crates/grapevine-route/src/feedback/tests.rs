use super::*;

/// An answer to a prompt of 8,000 tokens of which 6,000 were used `unused_ms` ago, `newer` tokens deep,
/// and of which the engine found `cached`.
fn answer(newer: u64, unused_ms: Millis, cached: u32) -> Answer {
    let last_use = LastUse { matched_tokens: 6_000, tail_tokens: 6_000, newer_tokens: newer, unused_ms };
    Answer {
        prompt_tokens: 8_000,
        predicted_tokens: 6_200,
        last_use: Some(last_use),
        reported_prompt_tokens: Some(8_000),
        reported_cached_tokens: Some(cached),
        textual: true,
        ..Answer::default()
    }
}

const HIT: u32 = 6_000;

/// The same, picked at `at` and answered at once.
fn at(at: Millis, answer: Answer) -> Answer {
    Answer { picked_at: at, answered_at: at, ..answer }
}

/// When the tests begin: nothing was used before time began.
const START: Millis = 1_000_000;

/// A replica whose finds reach `deepest` tokens deep.
fn proven(deepest: u64) -> Feedback {
    let mut feedback = Feedback::default();
    for n in 1..=20 {
        assert_eq!(feedback.answered(&at(START, answer(deepest * n / 20, 20_000, HIT)), START), None);
    }
    feedback
}

/// When `answers`, a second apart, convict.
fn verdicts(feedback: &mut Feedback, from: Millis, answers: &[Answer]) -> Vec<usize> {
    let time = |i: usize| START + from + 1_000 * i as Millis;
    (0..answers.len()).filter(|&i| feedback.answered(&at(time(i), answers[i]), time(i)).is_some()).collect()
}

#[test]
fn three_failures_where_success_was_certain_are_a_lost_cache() {
    let mut feedback = proven(100_000);
    let miss = answer(50_000, 20_000, 0);
    assert_eq!(verdicts(&mut feedback, 0, &[miss; 3]), [2]);
    assert_eq!(verdicts(&mut feedback, 3_000, &[miss; 20]), [0; 0], "nothing was found since");
}

#[test]
fn the_less_sure_success_was_the_longer_a_row_must_be() {
    let mut leaky = proven(100_000);
    let miss = answer(50_000, 20_000, 0);
    let (old, hit) = (answer(45_000, 20_000, 0), answer(45_000, 20_000, HIT));
    for n in 0..3 {
        assert_eq!(verdicts(&mut leaky, 60_000 * n, &[old, hit]), [0; 0]);
    }
    assert_eq!(verdicts(&mut leaky, 400_000, &[miss; 20]), [8], "three losses of fourteen");
}

#[test]
fn a_success_between_them_says_that_it_is_there() {
    let mut feedback = proven(100_000);
    let (miss, hit) = (answer(50_000, 20_000, 0), answer(50_000, 20_000, HIT));
    assert_eq!(verdicts(&mut feedback, 0, &[miss, miss, hit, miss, miss, hit]), [0; 0]);
}

#[test]
fn a_success_with_what_came_back_since_says_nothing() {
    let mut feedback = proven(100_000);
    let (miss, again) = (answer(50_000, 20_000, 0), answer(1_000, 2_000, HIT));
    assert_eq!(verdicts(&mut feedback, 0, &[miss, again, miss, again, again, miss]), [5]);
}

#[test]
fn a_small_cache_that_evicts_has_not_lost_everything() {
    let mut feedback = proven(100_000);
    let evicted = answer(50_000, 3_000, 0);
    assert_eq!(verdicts(&mut feedback, 0, &[evicted; 3]), [2], "one loss explains three of one time");
    let mut feedback = proven(100_000);
    let time = |i: Millis| START + 4_000 * i;
    for i in 0..7 {
        // Each was used, and so was there, after the one before was gone.
        assert_eq!(feedback.answered(&at(time(i), evicted), time(i)), None, "{i}");
    }
}

#[test]
fn what_outlived_the_loss_refutes_it_however_short_its_life() {
    let mut feedback = proven(100_000);
    let (miss, hit) = (answer(50_000, 2_500, 0), answer(50_000, 4_500, HIT));
    let time = |i: usize| START + 500 * i as Millis;
    for (i, look) in [miss, miss, hit, miss, miss, hit].into_iter().enumerate() {
        assert_eq!(feedback.answered(&at(time(i), look), time(i)), None, "{i}");
    }
}

#[test]
fn prompts_that_wait_in_a_slow_engines_queue_accuse_nobody() {
    let mut feedback = proven(100_000);
    let slow = |i: Millis, look: Answer| {
        let picked_at = START + 1_000 * i;
        Answer { picked_at, answered_at: picked_at + 9_000, ..look }
    };
    for i in 0..31 {
        // Its prefix was used eight seconds before, and an answer takes nine.
        let waited = slow(i, answer(50_000, 8_000, 0));
        assert_eq!(feedback.answered(&waited, waited.answered_at), None, "{i}");
    }
}

#[test]
fn failures_far_apart_are_no_row() {
    let mut feedback = proven(100_000);
    for n in 0..10 {
        let now = START + n * 20_000;
        assert_eq!(feedback.answered(&at(now, answer(50_000, 20_000, 0)), now), None, "{n}");
    }
}

#[test]
fn a_head_that_others_brought_back_does_not_hide_the_loss_of_the_tail() {
    let mut feedback = proven(100_000);
    let mut half = answer(50_000, 20_000, 3_000);
    half.last_use = half.last_use.map(|l| LastUse { tail_tokens: 3_000, ..l });
    assert_eq!(verdicts(&mut feedback, 0, &[half; 3]), [2]);
}

#[test]
fn an_engine_that_caches_nothing_or_does_not_say_is_never_accused() {
    let mut feedback = Feedback::default();
    assert_eq!(verdicts(&mut feedback, 0, &[answer(5_000, 20_000, 0); 200]), [0; 0]);
    assert!(feedback.error_tokens().is_some_and(|error| error > 6_000.0));
    assert_eq!(feedback.capacity().tokens(500_000), None);
    let mut feedback = proven(100_000);
    let silent = Answer { reported_cached_tokens: None, ..answer(5_000, 20_000, 0) };
    assert_eq!(verdicts(&mut feedback, 0, &[silent; 200]), [0; 0]);
    assert_eq!(Feedback::default().error_tokens(), None);
}

#[test]
fn a_cache_smaller_than_believed_is_learnt_not_accused() {
    let mut feedback = proven(100_000);
    let deep: Vec<Answer> = (0..100).map(|n| answer(130_000 + n * 1_000, 60_000, 0)).collect();
    assert_eq!(verdicts(&mut feedback, 0, &deep), [0; 0]);
    let learnt = feedback.capacity().tokens(500_000).unwrap();
    assert!((90_000..140_000).contains(&learnt), "{learnt}");
}

#[test]
fn prompts_that_nobody_prefilled_yet_accuse_nobody() {
    let mut feedback = proven(100_000);
    assert_eq!(verdicts(&mut feedback, 0, &[answer(0, 10, 0); 31]), [0; 0], "a burst of equal prompts");
    let never = Answer { last_use: None, ..answer(0, 0, 0) };
    assert_eq!(verdicts(&mut feedback, 0, &[never; 31]), [0; 0]);
}

#[test]
fn images_accuse_nobody_and_teach_nothing() {
    let mut feedback = proven(100_000);
    let error = feedback.error_tokens();
    let image = Answer { textual: false, ..answer(5_000, 20_000, 0) };
    assert_eq!(verdicts(&mut feedback, 0, &[image; 31]), [0; 0]);
    assert_eq!(feedback.error_tokens(), error);
}

#[test]
fn verdicts_make_the_next_one_harder_until_they_are_forgiven() {
    let mut feedback = proven(100_000);
    let (miss, hit) = (answer(50_000, 20_000, 0), answer(50_000, 20_000, HIT));
    let shadow = |misses: usize| [&[hit; 40][..], &vec![miss; misses]].concat();
    assert_eq!(verdicts(&mut feedback, 0, &[miss; 3]), [2]);
    assert_eq!(verdicts(&mut feedback, 10_000, &shadow(5)), [0; 0]);
    assert_eq!(verdicts(&mut feedback, 100_000, &shadow(12)), [50]);
    let shallow = Answer { ..answer(10_000, 20_000, 0) };
    assert_eq!(verdicts(&mut feedback, 2_000_000, &[hit, shallow, shallow, shallow, shallow]), [4]);
}

#[test]
fn the_error_is_signed_and_in_the_routers_own_tokens() {
    let mut feedback = Feedback::default();
    // The engine counts half as many tokens as the router estimates: 3,000 are 6,000.
    let other = Answer { reported_prompt_tokens: Some(4_000), ..answer(0, 20_000, 3_000) };
    assert_eq!(feedback.answered(&other, 0), None);
    assert_eq!(feedback.error_tokens(), Some(200.0));
    for _ in 0..200 {
        assert_eq!(feedback.answered(&answer(0, 20_000, 7_200), 0), None);
    }
    let error = feedback.error_tokens().unwrap();
    assert!((-1_000.0..-900.0).contains(&error), "{error}");
}
