//! What is said in sentences.

use grapevine_node::admin::status::{Level, ShadowStatus, Warning};

use crate::figures::{or_unknown, percent, share};

/// Warnings as lines, the worst first; what several routers say is one line that names them.
pub(super) fn warnings(warnings: &[Warning]) -> Vec<(Level, String)> {
    let mut said: Vec<(&Warning, Vec<&str>)> = Vec::new();
    for warning in warnings {
        match said.iter_mut().find(|(other, _)| other.text == warning.text) {
            Some((_, routers)) => routers.push(&warning.router),
            None => said.push((warning, vec![&warning.router])),
        }
    }
    said.sort_by_key(|(warning, _)| std::cmp::Reverse(warning.level));
    let line = |(warning, routers): (&Warning, Vec<&str>)| {
        let by = if routers.len() > 3 { format!("{} routers", routers.len()) } else { routers.join(", ") };
        (warning.level, format!("{} {by}: {}", level(warning.level), warning.text))
    };
    said.into_iter().map(line).collect()
}

/// A level's mark, as wide as the others.
const fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warn => "warn ",
        Level::Info => "info ",
    }
}

/// What affinity would have made of the same requests.
pub(super) fn shadow(shadow: &ShadowStatus) -> String {
    let of = |tokens| or_unknown(share(tokens, shadow.prompt_tokens), percent);
    format!(
        "shadow: affinity would predict {}, placed {}",
        of(shadow.affinity_tokens),
        of(shadow.done_tokens)
    )
}
