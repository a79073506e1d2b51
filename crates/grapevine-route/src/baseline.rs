//! What random routing would have found cached: the figure that affinity is held against.

use crate::pick::Request;

/// Tokens of the prompt that a replica drawn at random out of `replicas` would hold, expected.
///
/// Had the same requests been dealt at random, a prefix that was picked `k` times lately would be on a
/// given replica with probability `1 - (1 - 1/n)^k`. So every stretch of the prompt counts with the picks
/// of all replicas that hold at least that much. Generous to random routing: that copies every prefix to
/// many caches, which then hold fewer different ones, and a conversation's later turns would lack the
/// earlier ones where those went elsewhere.
pub fn random_tokens(request: &Request<'_>, replicas: usize) -> f32 {
    let elsewhere = 1.0 - 1.0 / replicas.max(1) as f32;
    let mut matches = request.matches.iter().peekable();
    let (mut picks, mut bytes) = (0.0, 0.0);
    while let Some(m) = matches.next() {
        // A match was picked at least once, however long ago.
        picks += m.count.max(1.0);
        let next = matches.peek().map_or(0, |next| next.bytes);
        if next < m.bytes {
            bytes += (m.bytes - next) as f32 * (1.0 - elsewhere.powf(picks));
        }
    }
    (bytes / request.bytes_per_token).min(request.prompt_tokens)
}

#[cfg(test)]
mod tests {
    use grapevine_tree::{Match, Matches, ReplicaId, Teacher};

    use super::*;

    fn held(replica: u32, tokens: u32, count: f32) -> Match {
        Match { replica: ReplicaId(replica), bytes: tokens * 4, count, teacher: Teacher::Own }
    }

    fn of(matches: &Matches, replicas: usize) -> f32 {
        let request = Request {
            prompt_tokens: 1_000.0,
            bytes_per_token: 4.0,
            matches,
            cold_hash: None,
            turn: 0,
            informed: true,
        };
        random_tokens(&request, replicas)
    }

    #[test]
    fn what_was_sent_once_is_met_by_one_draw_in_n() {
        assert_eq!(of(&vec![], 4), 0.0);
        assert_eq!(of(&vec![held(1, 800, 1.0)], 4), 200.0);
        assert_eq!(of(&vec![held(1, 800, 0.1)], 4), 200.0, "it was picked once, though long ago");
        assert_eq!(of(&vec![held(1, 800, 1.0)], 1), 800.0, "one replica is always hit");
    }

    #[test]
    fn a_head_that_everybody_uses_is_everywhere() {
        let matches = vec![held(1, 800, 2.0), held(2, 300, 50.0), held(3, 300, 50.0)];
        let expected = 500.0 * (1.0 - 0.75f32.powi(2)) + 300.0;
        assert!((of(&matches, 4) - expected).abs() < 0.1, "{} {expected}", of(&matches, 4));
    }

    #[test]
    fn it_never_exceeds_the_prompt() {
        assert_eq!(of(&vec![held(1, 5_000, 1_000.0)], 2), 1_000.0);
    }
}
