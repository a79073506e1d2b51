//! Values with units on the command line.

use std::str::FromStr;
use std::time::Duration;

/// Cache size of one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CacheSize {
    /// Tokens.
    Tokens(u64),
    /// Share of the trace's working set: all distinct full blocks.
    Share(f64),
}

impl CacheSize {
    /// The size in tokens, at least 1.
    pub(super) fn tokens(self, working_set_tokens: u64) -> u64 {
        match self {
            Self::Tokens(n) => n.max(1),
            Self::Share(share) => ((working_set_tokens as f64 * share) as u64).max(1),
        }
    }
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither tokens (200000) nor a share of the working set (5%)");
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(Self::Share(percent / 100.0)),
                _ => Err(wrong()),
            },
            None => text.parse().ok().filter(|&n| n > 0).map(Self::Tokens).ok_or_else(wrong),
        }
    }
}

/// Reads `250ms`, `5s`, `2m`, `1h`, `100us`; the unit is required.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds_per_unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} needs a unit: us, ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a duration"))?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|e| e.to_string())
}

/// Reads a share from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is not between 0 and 1")),
    }
}

/// Reads a number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_tokens_or_a_share() {
        assert_eq!("200000".parse(), Ok(CacheSize::Tokens(200_000)));
        assert_eq!("2.5%".parse(), Ok(CacheSize::Share(0.025)));
        assert_eq!(CacheSize::Share(0.05).tokens(1_000), 50);
        assert_eq!(CacheSize::Share(0.05).tokens(1), 1);
        for wrong in ["", "0", "-5", "0%", "x%", "5 %%", "1e3"] {
            assert!(wrong.parse::<CacheSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "-1s", "1d", "1e400s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
