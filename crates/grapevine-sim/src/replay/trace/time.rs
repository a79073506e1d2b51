//! Time stamps as logs write them.

use serde_json::Value;

use super::micros;
use crate::replay::engine::Micros;

/// Numbers from these on are ms, us and ns: as the unit before they would be after the year 5000.
const MS_FROM: f64 = 1e11;
const US_FROM: f64 = 1e14;
const NS_FROM: f64 = 1e17;

/// A number of s, ms, us or ns, as itself or as text, or a date as of RFC 3339.
pub(super) fn stamp(stamp: &Value) -> Result<Micros, String> {
    let text = stamp.as_str().map(str::trim);
    let number = stamp.as_f64().or_else(|| text?.parse().ok()).filter(|n| *n >= 0.0 && n.is_finite());
    let wrong = || format!("time stamp {stamp} is neither a number of s, ms, us or ns nor a date");
    match number {
        Some(n) if n >= NS_FROM => Ok((n / 1e3) as Micros),
        Some(n) if n >= US_FROM => Ok(n as Micros),
        Some(n) if n >= MS_FROM => Ok((n * 1e3) as Micros),
        Some(n) => Ok(micros(n)),
        None => text.and_then(date).ok_or_else(wrong),
    }
}

/// `2026-01-02T03:04:05.678Z`; a space for the T, an offset for the Z, or no zone at all, will do.
fn date(text: &str) -> Option<Micros> {
    let (day, time) = text.split_once(['T', 't', ' '])?;
    let (year, rest) = day.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let (year, month, day): (i64, i64, i64) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, offset_minutes) = zone(time)?;
    let mut parts = time.splitn(3, ':');
    let (hour, minute): (f64, f64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let second: f64 = parts.next().unwrap_or("0").parse().ok()?;
    if !(0.0..24.0).contains(&hour) || !(0.0..60.0).contains(&minute) || !(0.0..61.0).contains(&second) {
        return None;
    }
    let minutes = days(year, month, day) * 1_440 + hour as i64 * 60 + minute as i64 - offset_minutes;
    Some(Micros::try_from(minutes).ok()? * 60_000_000 + micros(second))
}

/// The time, and what its zone is ahead of UTC, minutes.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at(at);
    let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
    let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    let minutes = number / 100 * 60 + number % 100;
    Some((time, if offset.starts_with('-') { -minutes } else { minutes }))
}

/// Days from 1970-01-01 in the Gregorian calendar; years begin in March, so that leap days end them.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Micros, String> {
        stamp(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn numbers_come_in_four_units() {
        assert_eq!(read("1760428436.5"), Ok(1_760_428_436_500_000));
        assert_eq!(read("1760428436500"), Ok(1_760_428_436_500_000));
        assert_eq!(read("1760428436500000"), Ok(1_760_428_436_500_000));
        assert_eq!(read("1760428436500000000"), Ok(1_760_428_436_500_000));
        assert_eq!(read("\"1.5\""), Ok(1_500_000));
        for wrong in ["\"yesterday\"", "-1", "true", "\"NaN\"", "\"inf\"", "{}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates_come_with_a_zone_or_without() {
        let same = 1_760_428_436_500_000;
        let texts = [
            "2025-10-14T07:53:56.5Z",
            "2025-10-14 07:53:56.500",
            "2025-10-14T09:53:56.5+02:00",
            "2025-10-14t00:23:56.5-0730",
        ];
        for text in texts {
            assert_eq!(read(&format!("{text:?}")), Ok(same), "{text}");
        }
        assert_eq!(read("\"1970-01-01T00:00Z\""), Ok(0));
        assert_eq!(read("\"2024-02-29T00:00:00Z\""), Ok(1_709_164_800_000_000));
        for wrong in [
            "2025-13-01T00:00:00Z",
            "2025-10-14T25:00:00Z",
            "2025-10-14",
            "2025-10-14T07",
            "T",
            "1969-12-31T23:59:59Z",
        ] {
            assert!(read(&format!("{wrong:?}")).is_err(), "{wrong}");
        }
    }
}
