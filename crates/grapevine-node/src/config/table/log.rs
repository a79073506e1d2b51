//! Settings of the decision log.

use super::super::scalar::{Number, OptionalPath, size};
use super::super::setting::{Setting, row};

pub(super) fn rows() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_DECISION_LOG",
            OptionalPath,
            |c| &mut c.decision_log,
            "File to which every decision is written as a line of JSON: hashes and lengths, never text. \
             `grapevine replay` reads it.",
        ),
        row(
            "GRAPEVINE_DECISION_LOG_SIZE",
            size(1 << 10, 1 << 40),
            |c| &mut c.decision_log_bytes,
            "Size at which a new file is begun.",
        ),
        row(
            "GRAPEVINE_DECISION_LOG_FILES",
            Number { min: 1, max: 1_000, of: "files" },
            |c| &mut c.decision_log_files,
            "Files kept, the one that is written included; older ones are removed.",
        ),
    ]
}
