//! Numbers as people read them.

/// What stands for an unknown number: it is not zero.
pub(crate) const UNKNOWN: &str = "-";

/// "90.1 %".
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// "1.2k".
pub(crate) fn short(value: f64) -> String {
    scaled(value, ["", "k", "M", "G", "T"])
}

/// "1.2 kB".
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, [" B", " kB", " MB", " GB", " TB"])
}

/// "12 ms", "3.4 s", "5 min".
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..60_000 => format!("{} s", ms / 1_000),
        60_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// The text of a number, or that it is unknown.
pub(crate) fn or_unknown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// `part` of `whole`; unknown where there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn scaled(value: f64, units: [&str; 5]) -> String {
    let mut rest = value;
    let mut unit = "";
    for next in units {
        unit = next;
        if rest.abs() < 999.5 || next == units[4] {
            break;
        }
        rest /= 1_000.0;
    }
    let digits = usize::from(unit != units[0] && rest.abs() < 99.95);
    // What rounds to zero has no sign.
    let rest = if rest.abs() < 0.5 && digits == 0 { 0.0 } else { rest };
    format!("{rest:.digits$}{unit}")
}

/// A bar of `width` cells, to an eighth of a cell.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let filled = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let rest = EIGHTHS.get(filled % 8).copied().unwrap_or_default();
    let bar = format!("{}{rest}", "█".repeat(filled / 8));
    format!("{bar:<width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [short(0.0), short(999.0), short(1_234.0), short(999_700.0)],
            ["0", "999", "1.2k", "1.0M"]
        );
        assert_eq!([bytes(0.0), bytes(1_500.0), bytes(150_000.0)], ["0 B", "1.5 kB", "150 kB"]);
        assert_eq!([duration(12), duration(3_400), duration(59_000)], ["12 ms", "3.4 s", "59 s"]);
        assert_eq!([duration(60_000), duration(7_260_000)], ["1 min", "2 h 1 min"]);
        assert_eq!([short(-0.3), short(-1_500.0)], ["0", "-1.5k"]);
        assert_eq!(or_unknown(share(1, 0), percent), "-");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.5 + 1.0 / 32.0, 4), "██▏ ");
        assert_eq!([bar(7.0, 3), bar(-1.0, 3)], ["███", "   "]);
    }
}
