//! Types of plain values: durations, sizes, numbers, choices, names. Each reads a value, checks its
//! limits, and writes it so that it reads back.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;

/// A type of value in the table of settings.
pub(super) trait Kind: Send + Sync + 'static {
    /// What is read into the configuration.
    type Value: 'static;

    /// Its name in help and documentation.
    fn name(&self) -> &'static str;

    /// What may be written; empty when the name says it.
    fn limits(&self) -> String {
        String::new()
    }

    /// Reads `text`, which is trimmed. The error says what to do.
    fn parse(&self, text: &str) -> Result<Self::Value, String>;

    /// Writes `value` as [`Kind::parse`] reads it.
    fn show(&self, value: &Self::Value) -> String;
}

/// An amount with its unit, from `min` to `max`.
pub(super) struct Amount {
    name: &'static str,
    units: &'static [(&'static str, u64)],
    example: &'static str,
    zero: &'static str,
    min: u64,
    max: u64,
}

/// Units of time in microseconds, ascending.
const TIME: &[(&str, u64)] =
    &[("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000)];

/// Units of memory in bytes, ascending.
const MEMORY: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Amount {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(format!("`{text}` is not a {}: write for example `{}`", self.name, self.example));
        }
        let unit = unit.trim_start();
        let known = || self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit: write it with one of {}", known()));
        }
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("`{unit}` is not a unit of a {}: use one of {}", self.name, known()));
        };
        let amount = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor)).unwrap_or(u64::MAX);
        if amount < self.min || amount > self.max {
            return Err(format!("`{text}` is out of range: {}", self.limits()));
        }
        Ok(amount)
    }

    fn show(&self, amount: u64) -> String {
        let whole =
            self.units.iter().rev().find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
        match whole {
            Some((unit, factor)) => format!("{}{unit}", amount / factor),
            None => self.zero.to_owned(),
        }
    }

    fn limits(&self) -> String {
        format!("{} to {}", self.show(self.min), self.show(self.max))
    }
}

/// A [`Duration`].
pub(super) struct Time(Amount);

/// A duration from `min` to `max`.
pub(super) fn time(min: Duration, max: Duration) -> Time {
    let us = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    Time(Amount { name: "duration", units: TIME, example: "30s", zero: "0s", min: us(min), max: us(max) })
}

impl Kind for Time {
    type Value = Duration;

    fn name(&self) -> &'static str {
        self.0.name
    }

    fn limits(&self) -> String {
        self.0.limits()
    }

    fn parse(&self, text: &str) -> Result<Duration, String> {
        self.0.parse(text).map(Duration::from_micros)
    }

    fn show(&self, value: &Duration) -> String {
        self.0.show(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A duration kept as whole milliseconds, as the pure crates do. Its limits are at least 1 ms.
pub(super) struct InMillis(pub(super) Time);

impl Kind for InMillis {
    type Value = u64;

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn limits(&self) -> String {
        self.0.limits()
    }

    fn parse(&self, text: &str) -> Result<u64, String> {
        let micros = self.0.0.parse(text)?;
        if !micros.is_multiple_of(1_000) {
            return Err(format!("`{text}` is not a whole number of milliseconds"));
        }
        Ok(micros / 1_000)
    }

    fn show(&self, value: &u64) -> String {
        self.0.show(&Duration::from_millis(*value))
    }
}

/// A size in bytes.
pub(super) struct Size(Amount);

/// A size from `min` to `max` bytes.
pub(super) fn size(min: u64, max: u64) -> Size {
    Size(Amount { name: "size", units: MEMORY, example: "64MiB", zero: "0B", min, max })
}

impl Kind for Size {
    type Value = usize;

    fn name(&self) -> &'static str {
        self.0.name
    }

    fn limits(&self) -> String {
        self.0.limits()
    }

    fn parse(&self, text: &str) -> Result<usize, String> {
        let bytes = self.0.parse(text)?;
        usize::try_from(bytes).map_err(|_| format!("`{text}` is more than this machine can address"))
    }

    fn show(&self, value: &usize) -> String {
        self.0.show(*value as u64)
    }
}

/// A number without a unit of its own, from `min` to `max`: a count, a weight, a ratio.
pub(super) struct Number<T> {
    pub(super) min: T,
    pub(super) max: T,
    /// What it counts; empty for a plain factor.
    pub(super) of: &'static str,
}

impl<T> Kind for Number<T>
where
    T: FromStr + Display + PartialOrd + Copy + Send + Sync + 'static,
{
    type Value = T;

    fn name(&self) -> &'static str {
        "number"
    }

    fn limits(&self) -> String {
        let space = if self.of.is_empty() { "" } else { " " };
        format!("{} to {}{space}{}", self.min, self.max, self.of)
    }

    fn parse(&self, text: &str) -> Result<T, String> {
        // Also refuses NaN, which compares with nothing.
        text.parse()
            .ok()
            .filter(|value| (self.min..=self.max).contains(value))
            .ok_or_else(|| format!("`{text}` is not a number from {}", self.limits()))
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }
}

/// One of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T> Choice<T> {
    fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|(word, _)| *word).collect()
    }
}

impl<T: Copy + PartialEq + Send + Sync + 'static> Kind for Choice<T> {
    type Value = T;

    fn name(&self) -> &'static str {
        "choice"
    }

    fn limits(&self) -> String {
        self.words().join(", ")
    }

    fn parse(&self, text: &str) -> Result<T, String> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| format!("`{text}` is none of the choices: {}", self.limits()))
    }

    fn show(&self, value: &T) -> String {
        self.0.iter().find(|(_, v)| v == value).map_or("", |(word, _)| word).to_owned()
    }
}

/// `true` or `false`.
pub(super) const SWITCH: Choice<bool> = Choice(&[("true", true), ("false", false)]);

/// A name that is safe in a header, a label and a log line.
pub(super) struct Name;

/// Longest name, bytes: a DNS name's limit is 253, labels should be shorter.
pub(super) const MAX_NAME: usize = 128;

/// Whether `text` can be a [`Name`].
pub(super) fn is_name(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-:[]".contains(c);
    !text.is_empty() && text.len() <= MAX_NAME && text.chars().all(safe)
}

/// Whether `text` can be the name of a Prometheus metric.
pub(super) fn is_metric_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.starts_with(|c: char| !c.is_ascii_digit()) && text.len() <= MAX_NAME && text.chars().all(good)
}

impl Kind for Name {
    type Value = String;

    fn name(&self) -> &'static str {
        "name"
    }

    fn limits(&self) -> String {
        format!("1 to {MAX_NAME} of A-Z a-z 0-9 . _ - : [ ]")
    }

    fn parse(&self, text: &str) -> Result<String, String> {
        if is_name(text) { Ok(text.to_owned()) } else { Err(format!("`{text}` is not {}", self.limits())) }
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

/// A file, or nothing when empty.
pub(super) struct OptionalPath;

impl Kind for OptionalPath {
    type Value = Option<PathBuf>;

    fn name(&self) -> &'static str {
        "path"
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    }

    fn show(&self, value: &Self::Value) -> String {
        value.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    }
}

/// The name of a header field, or nothing when empty.
pub(super) struct OptionalField;

impl Kind for OptionalField {
    type Value = Option<HeaderName>;

    fn name(&self) -> &'static str {
        "header name"
    }

    fn parse(&self, text: &str) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| format!("`{text}` is not the name of a header: write for example `x-priority`"))
    }

    fn show(&self, value: &Self::Value) -> String {
        value.as_ref().map_or_else(|| "none".to_owned(), |name| name.as_str().to_owned())
    }
}

/// Directives of `tracing_subscriber`'s filter.
pub(super) struct Filter;

impl Kind for Filter {
    type Value = String;

    fn name(&self) -> &'static str {
        "filter"
    }

    fn limits(&self) -> String {
        "level, or target=level,...".to_owned()
    }

    fn parse(&self, text: &str) -> Result<String, String> {
        match tracing_subscriber::EnvFilter::builder().parse(text) {
            Ok(_) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(format!("`{text}` is not a filter: write for example `info` or `info,grapevine=debug`")),
        }
    }

    fn show(&self, value: &String) -> String {
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn durations_need_a_unit_and_write_back() {
        let kind = time(Duration::from_micros(100), seconds(86_400));
        for (text, value, shown) in [
            ("250ms", Duration::from_millis(250), "250ms"),
            ("30s", seconds(30), "30s"),
            ("300s", seconds(300), "5min"),
            ("90 s", seconds(90), "90s"),
            ("24h", seconds(86_400), "24h"),
            ("100us", Duration::from_micros(100), "100us"),
        ] {
            assert_eq!(kind.parse(text), Ok(value));
            assert_eq!(kind.show(&value), shown);
            assert_eq!(kind.parse(shown), Ok(value));
        }
        for (text, error) in [
            ("30", "`30` has no unit: write it with one of us, ms, s, min, h"),
            ("30sec", "`sec` is not a unit of a duration: use one of us, ms, s, min, h"),
            ("1.5s", "`.5s` is not a unit of a duration: use one of us, ms, s, min, h"),
            ("", "`` is not a duration: write for example `30s`"),
            ("-1s", "`-1s` is not a duration: write for example `30s`"),
            ("99us", "`99us` is out of range: 100us to 24h"),
            ("25h", "`25h` is out of range: 100us to 24h"),
            ("99999999999999999999h", "`99999999999999999999h` is out of range: 100us to 24h"),
        ] {
            assert_eq!(kind.parse(text), Err(error.to_owned()));
        }
    }

    #[test]
    fn milliseconds_are_whole() {
        let kind = InMillis(time(Duration::from_millis(1), seconds(10)));
        assert_eq!(kind.parse("5s"), Ok(5_000));
        assert_eq!(kind.show(&5_000), "5s");
        assert_eq!(kind.parse("1500us"), Err("`1500us` is not a whole number of milliseconds".to_owned()));
    }

    #[test]
    fn sizes_are_binary() {
        let kind = size(0, 4 << 30);
        assert_eq!(kind.parse("64MiB"), Ok(64 << 20));
        assert_eq!(kind.parse("4GiB"), Ok(4 << 30));
        assert_eq!(kind.show(&(64 << 20)), "64MiB");
        assert_eq!(kind.show(&1_500), "1500B");
        assert_eq!(kind.show(&0), "0B");
        let error = "`MB` is not a unit of a size: use one of B, KiB, MiB, GiB";
        assert_eq!(kind.parse("64MB"), Err(error.to_owned()));
        assert_eq!(kind.parse("5GiB"), Err("`5GiB` is out of range: 0B to 4GiB".to_owned()));
    }

    #[test]
    fn numbers_keep_their_limits() {
        let kind = Number { min: 1.0f32, max: 100.0, of: "" };
        assert_eq!((kind.parse("1"), kind.parse("100")), (Ok(1.0), Ok(100.0)));
        for text in ["0.99", "100.1", "NaN", "inf", "", "x"] {
            assert_eq!(kind.parse(text), Err(format!("`{text}` is not a number from 1 to 100")));
        }
        let kind = Number { min: 0usize, max: 9, of: "requests" };
        assert_eq!((kind.parse("0"), kind.parse("9")), (Ok(0), Ok(9)));
        assert_eq!(kind.parse("10"), Err("`10` is not a number from 0 to 9 requests".to_owned()));
        assert_eq!(kind.parse("-1"), Err("`-1` is not a number from 0 to 9 requests".to_owned()));
    }

    #[test]
    fn words_names_and_filters_are_checked() {
        assert_eq!(SWITCH.parse("true"), Ok(true));
        assert_eq!(SWITCH.parse("yes"), Err("`yes` is none of the choices: true, false".to_owned()));
        assert_eq!(Name.parse("router-1:8080"), Ok("router-1:8080".to_owned()));
        let long = "x".repeat(MAX_NAME + 1);
        for text in ["", "a b", "a\nb", long.as_str()] {
            assert!(Name.parse(text).is_err(), "{text}");
        }
        assert_eq!(Filter.parse("info,hyper=warn"), Ok("info,hyper=warn".to_owned()));
        assert!(Filter.parse("grapevine=loud").is_err());
        assert!(Filter.parse("").is_err());
    }
}
