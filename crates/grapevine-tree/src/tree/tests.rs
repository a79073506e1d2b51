use proptest::prelude::*;
use smallvec::SmallVec;

use super::*;
use crate::boundary;
use crate::delta::Mark;

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);
const PEER: RouterId = RouterId(7);

fn tree() -> PrefixTree {
    PrefixTree::new(TreeConfig::default())
}

/// A key whose boundary `i` depends on the first `i + 1` letters: `key("aab")` and `key("aac")`
/// share two boundaries.
fn key(letters: &str) -> PrefixKey {
    let mut chain = 1u64;
    let hashes = letters.bytes().map(|letter| {
        chain = xxhash_rust::xxh3::xxh3_64_with_seed(&[letter], chain);
        chain
    });
    let hashes: Vec<u64> = hashes.collect();
    PrefixKey { bytes: boundary::depth(letters.len().max(1) - 1) as u64, hashes }
}

fn found(tree: &mut PrefixTree, letters: &str, now: Millis) -> Vec<(ReplicaId, usize)> {
    let mut out = Vec::new();
    tree.lookup(&key(letters), now, &mut out);
    let mut found: Vec<_> = out.iter().map(|m| (m.replica, boundary::count(m.bytes as usize))).collect();
    found.sort_unstable();
    found
}

fn entry(replica: ReplicaId, letters: &str, indices: &[usize], count: f32) -> DeltaEntry {
    let key = key(letters);
    let marks = indices.iter().map(|&i| Mark { index: i as u8, hash: key.hashes[i] & !0xff });
    DeltaEntry { replica, epoch: 0, count, marks: marks.collect() }
}

#[test]
fn a68_a_partial_label_match_counts_for_the_right_replica() {
    let mut t = tree();
    t.observe(&key("abcdef"), A, 10, 0);
    t.observe(&key("abcxyz"), B, 10, 0);
    assert_eq!(found(&mut t, "abcdzz", 0), [(A, 4), (B, 3)]);
    assert_eq!(found(&mut t, "zbc", 0), []);
    t.arena.check();
}

#[test]
fn the_second_question_after_one_preamble_hits() {
    let mut t = tree();
    t.observe(&key("ppppppppq"), A, 10, 0);
    assert_eq!(found(&mut t, "ppppppppr", 0), [(A, 8)], "the whole label need not match");
    assert_eq!(t.stats().nodes, 1, "a lookup changes nothing");
}

#[test]
fn a69_a_middle_never_matches() {
    let mut t = tree();
    t.observe(&key("good"), A, 1, 0);
    t.observe(&key("badgood"), B, 1, 0);
    assert_eq!(found(&mut t, "badgood", 0), [(B, 7)]);
}

#[test]
fn the_replica_seen_most_has_the_larger_count_not_the_latest() {
    let mut t = tree();
    for _ in 0..3 {
        t.observe(&key("abc"), A, 0, 0);
    }
    t.observe(&key("abc"), B, 0, 1_000);
    let mut out = Vec::new();
    t.lookup(&key("abc"), 1_000, &mut out);
    let count = |r| out.iter().find(|m| m.replica == r).unwrap().count;
    assert!(count(A) > 2.9 && (0.99..=1.0).contains(&count(B)));
    t.lookup(&key("abc"), 121_000, &mut out);
    assert!((1.4..1.6).contains(&out.iter().find(|m| m.replica == A).unwrap().count), "half in a half-life");
}

#[test]
fn belief_ages_with_the_replicas_own_new_tokens() {
    let mut t = tree();
    t.set_capacity(A, 1_000);
    t.observe(&key("abc"), A, 96, 0);
    t.observe(&key("xyz"), B, 96, 0);
    let later = t.config.grace_ms + 1_000;
    t.add_peer_tokens(A, 900);
    assert_eq!(found(&mut t, "abc", later), [(A, 3)], "900 of 1,000 tokens later");
    t.add_peer_tokens(A, 120);
    assert_eq!(found(&mut t, "abc", 1_000), [(A, 3)], "grace for what was just used");
    assert_eq!(found(&mut t, "abc", later), [], "more new tokens than the cache holds");
    assert_eq!(found(&mut t, "xyz", later), [(B, 3)], "another replica's clock stands still");
    let ttl = t.config.idle_ttl_ms;
    assert_eq!(found(&mut t, "xyz", ttl + 100), [], "the backstop");
}

#[test]
fn hits_elsewhere_push_back_what_is_not_hit_but_each_only_once() {
    let mut t = tree();
    // Room for 20 boundaries of 32 tokens.
    t.set_capacity(A, 640);
    t.observe(&key("rare"), A, 128, 0);
    for i in 0..200 {
        let now = 1_000 * i;
        t.observe(&key("hotter"), A, 0, now);
        t.observe(&key("hottest"), A, 0, now);
    }
    assert_eq!(found(&mut t, "rare", 200_000), [(A, 4)], "8 boundaries were used since");
    t.observe(&key("another"), A, 0, 200_000);
    t.observe(&key("yet another"), A, 0, 200_000);
    assert_eq!(found(&mut t, "rare", 206_000), [], "26");
    assert_eq!(found(&mut t, "hottest", 206_000), [], "deeper than 20, too");
    assert_eq!(found(&mut t, "another", 206_000), [(A, 7)]);
}

#[test]
fn what_peers_prefilled_counts_once_whether_it_is_told_as_path_or_amount() {
    let mut t = tree();
    t.set_capacity(A, 640);
    t.observe(&key("abcd"), A, 128, 0);
    for round in 0..2 {
        t.apply(PEER, &entry(A, "zyxwvu", &[0, 3, 5], 1.0), 6_000);
        t.add_peer_tokens(A, if round == 0 { 192 } else { 0 });
    }
    assert_eq!(found(&mut t, "abcd", 12_000), [(A, 4)], "6 boundaries since, not 12 or 18");
    t.add_peer_tokens(A, 32 * 14);
    assert_eq!(found(&mut t, "abcd", 12_000), [], "20 since");
}

#[test]
fn use_keeps_belief_alive_and_heads_outlive_tails() {
    let mut t = tree();
    t.set_capacity(A, 1_000);
    let mut now = 0;
    for tail in ["hhhha", "hhhhb", "hhhhc", "hhhhd"] {
        now += 10_000;
        t.observe(&key(tail), A, 600, now);
    }
    now += 10_000;
    assert_eq!(found(&mut t, "hhhha", now), [(A, 4)], "its tail is gone, the shared head is not");
    assert_eq!(found(&mut t, "hhhhd", now), [(A, 5)]);
}

#[test]
fn what_is_said_of_a_lost_cache_revives_nothing() {
    let mut t = tree();
    let of_cache =
        |epoch, letters: &str| DeltaEntry { epoch, ..entry(A, letters, &[letters.len() - 1], 3.0) };
    t.apply(PEER, &of_cache(0, "aab"), 0);
    t.forget(A, 2);
    t.apply(PEER, &of_cache(1, "aab"), 0);
    assert_eq!((found(&mut t, "aab", 0), t.stats().outdated), (vec![], 1), "made before, heard after");
    t.apply(PEER, &of_cache(2, "cd"), 0);
    assert_eq!(found(&mut t, "cd", 0), [(A, 2)]);
    t.apply(PEER, &of_cache(3, "ef"), 0);
    assert_eq!(found(&mut t, "cd", 0), [], "an entry alone tells of a loss");
    t.forget(A, 3);
    assert_eq!(found(&mut t, "ef", 0), [(A, 2)], "which is then known");
    t.observe(&key("gh"), A, 5, 0);
    assert!(t.drain(1_000, 0).iter().all(|entry| entry.epoch == 3));
}

#[test]
fn a63_a87_a_forgotten_replica_leaves_no_trace() {
    let mut t = tree();
    for letters in ["aab", "aac", "b", "cde"] {
        t.observe(&key(letters), A, 5, 0);
        t.observe(&key(letters), B, 5, 0);
    }
    let both = t.stats().credits;
    t.forget(A, 1);
    assert_eq!(found(&mut t, "aab", 0), [(B, 3)], "at once");
    t.sweep(0);
    assert_eq!(t.stats().credits, both / 2);
    t.observe(&key("b"), A, 5, 0);
    assert_eq!(found(&mut t, "b", 0), [(A, 1), (B, 1)], "it may come back");
    t.forget(A, 1);
    assert_eq!(found(&mut t, "b", 0), [(A, 1), (B, 1)], "each loss counts once");
    t.forget(A, 2);
    t.remove(B);
    t.sweep(0);
    t.arena.check();
    assert_eq!((t.stats().nodes, t.stats().boundaries, t.stats().credits), (0, 0, 0));
    for i in 0..1_000 {
        let r = ReplicaId(100 + i);
        t.observe(&key("aab"), r, 5, 0);
        t.remove(r);
        t.sweep(0);
        t.sweep(0);
    }
    assert!(t.replicas.len() < 16, "slots are used again: {}", t.replicas.len());
}

#[test]
fn a62_nodes_merge_again_when_their_children_go() {
    let mut t = tree();
    for c in 'a'..='z' {
        t.observe(&key(&format!("hhhhhhhh{c}")), A, 1, 0);
    }
    t.observe(&key("hhhhhhhhz"), A, 1, t.config.idle_ttl_ms - 1_000);
    assert_eq!(t.stats().nodes, 27);
    let now = t.config.idle_ttl_ms + 1_000;
    t.sweep(now);
    t.sweep(now);
    t.arena.check();
    assert_eq!((t.stats().nodes, t.stats().boundaries), (1, 9), "one label again");
    assert_eq!(found(&mut t, "hhhhhhhhz", now), [(A, 9)]);
}

#[test]
fn a61_a64_the_limit_holds_on_every_insert() {
    let mut t = PrefixTree::new(TreeConfig { max_boundaries: 100, ..TreeConfig::default() });
    for i in 0..500 {
        t.observe(&key(&format!("head{i:04}")), A, 1, i);
        assert!(t.stats().boundaries <= 100);
    }
    t.arena.check();
    assert_eq!(found(&mut t, "head0499", 500), [(A, 8)]);
    assert_eq!(found(&mut t, "head0000", 500), [(A, 5)], "old tails went, the shared head stayed");
}

#[test]
fn a70_a_refused_pick_is_taken_back() {
    let mut t = tree();
    t.observe(&key("abcd"), A, 1, 0);
    t.observe(&key("abxx"), B, 1, 0);
    t.retract(&key("abxx"), B, 100);
    assert_eq!(found(&mut t, "abxx", 100), [(A, 2)]);
    t.observe(&key("abcd"), A, 1, 200);
    t.retract(&key("abcd"), A, 300);
    assert_eq!(found(&mut t, "abcd", 300), [(A, 4)], "the first pick still counts");
    t.retract(&key("none"), A, 300);
}

#[test]
fn a_peers_entry_needs_no_path_and_says_who_taught_it() {
    let mut t = tree();
    t.apply(PEER, &entry(A, "abcdefgh", &[3, 6, 7], 2.0), 0);
    assert_eq!(found(&mut t, "abcdefgh", 0), [(A, 8)]);
    assert_eq!(found(&mut t, "abcdefgx", 0), [(A, 7)], "a request that diverges earlier");
    assert_eq!(found(&mut t, "abcdex", 0), [(A, 4)], "at least what was told");
    let mut out = Vec::new();
    t.lookup(&key("abcdefgh"), 0, &mut out);
    assert_eq!((out[0].teacher, out[0].count), (Teacher::Peer(PEER), 2.0));
    t.observe(&key("abcdefgh"), A, 0, 0);
    t.lookup(&key("abcdefgh"), 0, &mut out);
    assert_eq!(out[0].teacher, Teacher::Own);
    assert_eq!(found(&mut t, "abcdex", 0), [(A, 5)], "and the gaps are filled now");
    t.arena.check();
}

#[test]
fn drained_entries_make_a_peer_know_what_we_know() {
    let (mut ours, mut theirs) = (tree(), tree());
    for (letters, replica) in [("ppppppppqqqq", A), ("ppppppppr", B), ("s", A)] {
        ours.observe(&key(letters), replica, 1, 0);
    }
    for entry in ours.drain(usize::MAX, 0) {
        assert!(entry.marks.len() <= crate::delta::MAX_MARKS && entry.count > 0.0);
        theirs.apply(PEER, &entry, 0);
    }
    for letters in ["ppppppppqqqq", "ppppppppr", "s"] {
        assert_eq!(found(&mut theirs, letters, 0), found(&mut ours, letters, 0), "{letters}");
    }
    assert_eq!(ours.drain(usize::MAX, 0), [], "an idle router says nothing");
    assert_eq!(theirs.drain(usize::MAX, 0), [], "what peers said is not said again");
}

#[test]
fn many_picks_of_one_prefix_are_one_entry_and_refresh_slowly() {
    let mut t = tree();
    for _ in 0..50 {
        t.observe(&key("abc"), A, 1, 1_000);
    }
    let first = t.drain(usize::MAX, 1_000);
    assert_eq!((first.len(), first[0].count.round()), (1, 50.0));
    t.observe(&key("abc"), A, 0, 1_300);
    assert_eq!(t.drain(usize::MAX, 1_300).len(), 0, "told a moment ago");
    assert_eq!(t.stats().dirty, 1);
    let again = t.drain(usize::MAX, 4_000);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].marks.len(), 1, "its label is known by now");
}

#[test]
fn a_budget_takes_the_most_valuable_first_and_loses_nothing() {
    let mut t = tree();
    for i in 0..100 {
        t.observe(&key(&format!("{i}x")), A, 1, 0);
    }
    for _ in 0..9 {
        t.observe(&key("valuable-and-deep"), A, 1, 0);
    }
    let first = t.drain(200, 0);
    assert_eq!(first[0].marks.last().unwrap().index, 16);
    assert!(first.len() < 10);
    let mut all = first.len();
    while let n @ 1.. = t.drain(200, 0).len() {
        all += n;
    }
    assert!(all >= 101, "{all} entries in the end");
}

#[test]
fn contradictions_are_counted_and_harmless() {
    let mut t = tree();
    t.apply(PEER, &entry(A, "abcdef", &[0, 2, 5], 1.0), 0);
    // A path that claims two different hashes at one depth.
    let mut bad = entry(B, "abcdef", &[5], 1.0);
    bad.marks.insert(0, Mark { index: 2, hash: 0xdead_0000 });
    t.apply(PEER, &bad, 0);
    assert_eq!(t.stats().contradictions, 1);
    t.arena.check();
    assert_eq!(found(&mut t, "abcdef", 0), [(A, 6)]);
}

/// The slow truth: the longest shared head with any prompt that a replica was sent.
#[derive(Default)]
struct Naive(Vec<(String, ReplicaId)>);

impl Naive {
    fn found(&self, letters: &str) -> Vec<(ReplicaId, usize)> {
        let shared = |a: &str| a.bytes().zip(letters.bytes()).take_while(|(a, b)| a == b).count();
        let mut best = std::collections::BTreeMap::new();
        for (path, replica) in &self.0 {
            let depth = best.entry(*replica).or_insert(0);
            *depth = shared(path).max(*depth);
        }
        best.into_iter().filter(|&(_, depth)| depth > 0).collect()
    }
}

/// Few letters, so that heads are shared and labels split everywhere.
fn arb_path() -> impl Strategy<Value = String> {
    "[ab]{1,3}[abc]{0,9}"
}

fn arb_replica() -> impl Strategy<Value = ReplicaId> {
    (1u32..5).prop_map(ReplicaId)
}

/// What a peer may say of a path: its end and some boundaries before it.
fn arb_entry() -> impl Strategy<Value = (String, DeltaEntry)> {
    (arb_path(), arb_replica(), any::<u16>(), 1u8..9).prop_map(|(path, replica, some, count)| {
        let end = path.len() - 1;
        let indices: Vec<usize> = (0..=end).filter(|i| *i == end || some >> i & 1 == 1).collect();
        let entry = entry(replica, &path, &indices, f32::from(count));
        (path, entry)
    })
}

#[derive(Clone, Debug)]
enum Op {
    Observe(String, ReplicaId),
    Apply(String, DeltaEntry),
    Forget(ReplicaId),
    Sweep,
}

fn arb_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (arb_path(), arb_replica()).prop_map(|(p, r)| Op::Observe(p, r)),
        4 => arb_entry().prop_map(|(p, e)| Op::Apply(p, e)),
        1 => arb_replica().prop_map(Op::Forget),
        2 => Just(Op::Sweep),
    ]
}

proptest! {
    #[test]
    fn own_picks_match_the_naive_model_exactly(
        picks in prop::collection::vec((arb_path(), arb_replica()), 1..40),
        asks in prop::collection::vec(arb_path(), 1..10),
    ) {
        let (mut t, mut naive) = (tree(), Naive::default());
        for (path, replica) in picks {
            t.observe(&key(&path), replica, 1, 0);
            naive.0.push((path, replica));
            t.sweep(0);
        }
        t.arena.check();
        for ask in asks {
            prop_assert_eq!(found(&mut t, &ask, 0), naive.found(&ask));
        }
    }

    #[test]
    fn any_history_is_sane_and_never_claims_what_nobody_said(
        ops in prop::collection::vec(arb_op(), 1..60),
        asks in prop::collection::vec(arb_path(), 1..10),
        limit in 5usize..60,
    ) {
        let mut t = PrefixTree::new(TreeConfig { max_boundaries: limit, ..TreeConfig::default() });
        let (mut naive, mut epochs) = (Naive::default(), std::collections::BTreeMap::new());
        for op in ops {
            match op {
                Op::Observe(path, r) => {
                    t.observe(&key(&path), r, 1, 0);
                    naive.0.push((path, r));
                }
                Op::Apply(path, mut entry) => {
                    entry.epoch = epochs.get(&entry.replica).copied().unwrap_or(0);
                    t.apply(PEER, &entry, 0);
                    naive.0.push((path, entry.replica));
                }
                Op::Forget(r) => {
                    let epoch = epochs.entry(r).or_insert(0);
                    *epoch += 1;
                    t.forget(r, *epoch);
                    naive.0.retain(|(_, other)| *other != r);
                }
                Op::Sweep => t.sweep(0),
            }
            t.arena.check();
            prop_assert!(t.stats().boundaries <= limit);
        }
        for ask in asks {
            let truth = naive.found(&ask);
            for (replica, depth) in found(&mut t, &ask, 0) {
                let most = truth.iter().find(|(r, _)| *r == replica).map_or(0, |(_, d)| *d);
                prop_assert!(depth <= most, "{replica:?} claims {depth} of {most}");
            }
        }
    }

    #[test]
    fn what_peers_said_is_known_in_any_order_any_number_of_times(
        entries in prop::collection::vec(arb_entry(), 1..12),
        order in any::<u64>(),
        asks in prop::collection::vec(arb_path(), 1..6),
    ) {
        let mut straight = tree();
        for (_, e) in &entries {
            straight.apply(PEER, e, 0);
        }
        let mut shuffled: Vec<_> = entries.iter().chain(&entries).collect();
        shuffled.sort_by_key(|(path, e)| xxhash_rust::xxh3::xxh3_64_with_seed(format!("{path}{e:?}").as_bytes(), order));
        let mut mixed = tree();
        for (_, e) in shuffled {
            mixed.apply(PEER, e, 0);
        }
        mixed.arena.check();
        let all = |t: &mut PrefixTree, ask: &str| {
            let mut out = Vec::new();
            t.lookup(&key(ask), 0, &mut out);
            let mut found: Vec<_> = out.iter().map(|m| (m.replica, m.bytes, m.count.to_bits())).collect();
            found.sort_unstable();
            found
        };
        for ask in entries.iter().map(|(path, _)| path).chain(&asks) {
            prop_assert_eq!(all(&mut straight, ask), all(&mut mixed, ask));
        }
        for (path, e) in &entries {
            let depth = found(&mut mixed, path, 0).iter().find(|(r, _)| *r == e.replica).map(|(_, d)| *d);
            prop_assert_eq!(depth, Some(path.len()));
        }
    }

    #[test]
    fn a_peer_that_gets_every_entry_knows_every_path_to_its_end(
        picks in prop::collection::vec((arb_path(), arb_replica()), 1..40),
        every in 1usize..5,
    ) {
        let (mut ours, mut theirs) = (tree(), tree());
        for (i, (path, replica)) in picks.iter().enumerate() {
            ours.observe(&key(path), *replica, 1, 10_000 * i as u64);
            if i % every == 0 {
                for e in ours.drain(usize::MAX, 10_000 * i as u64) {
                    theirs.apply(PEER, &e, 10_000 * i as u64);
                }
            }
        }
        let end = 10_000 * picks.len() as u64;
        ours.drain(usize::MAX, end).iter().for_each(|e| theirs.apply(PEER, e, end));
        theirs.arena.check();
        for (path, _) in &picks {
            let (o, t) = (found(&mut ours, path, end), found(&mut theirs, path, end));
            for (replica, depth) in o.iter().filter(|(_, depth)| *depth == path.len()) {
                let theirs = t.iter().find(|(r, _)| r == replica).map_or(0, |(_, d)| *d);
                prop_assert!(theirs == *depth, "{path} at {replica:?}: {theirs} of {depth}");
            }
        }
    }
}

#[test]
fn a_mark_is_told_without_its_low_bits() {
    let mut t = tree();
    t.observe(&key("abc"), A, 1, 0);
    let marks: SmallVec<[Mark; 8]> = t.drain(usize::MAX, 0).remove(0).marks;
    assert!(marks.iter().all(|m| m.hash & 0xff == 0));
    assert_eq!(marks.last().unwrap().hash, key("abc").hashes[2] & !0xff);
}
