//! What random routing would have found cached: the figure that affinity is held against.

use crate::pick::Request;

/// Tokens of the prompt that a replica drawn at random out of `replicas` is believed to hold, expected: the
/// mean of all, in the caches as they are now.
///
/// Where caches are full that is close to what random routing gets, since it too would keep one prefix in
/// the place of another. Where they have room, it would copy prefixes over time and find more.
pub fn random_tokens(request: &Request<'_>, replicas: usize) -> f32 {
    let held = |bytes: u32| (bytes as f32 / request.bytes_per_token).min(request.prompt_tokens);
    let all: f32 = request.matches.iter().map(|m| held(m.bytes)).sum();
    (all / replicas.max(1) as f32).min(request.prompt_tokens)
}

#[cfg(test)]
mod tests {
    use grapevine_tree::{Match, Matches, ReplicaId, Teacher};

    use super::*;

    fn of(tokens: &[u32], replicas: usize) -> f32 {
        let held = |(i, tokens): (usize, &u32)| Match {
            replica: ReplicaId(i as u32),
            bytes: tokens * 4,
            count: 1.0,
            teacher: Teacher::Own,
        };
        let matches: Matches = tokens.iter().enumerate().map(held).collect();
        let request = Request {
            prompt_tokens: 1_000.0,
            bytes_per_token: 4.0,
            matches: &matches,
            cold_hash: None,
            turn: 0,
            informed: true,
        };
        random_tokens(&request, replicas)
    }

    #[test]
    fn a_draw_finds_the_mean_and_never_more_than_the_prompt() {
        assert_eq!(of(&[], 4), 0.0);
        assert_eq!(of(&[800], 4), 200.0);
        assert_eq!(of(&[800, 300, 300], 4), 350.0);
        assert_eq!(of(&[5_000, 5_000], 2), 1_000.0);
        assert_eq!(of(&[5_000, 5_000], 1), 1_000.0, "a replica that is no candidate any more adds nothing");
    }
}
