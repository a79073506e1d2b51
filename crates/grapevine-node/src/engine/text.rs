//! Prometheus text, as engines write it and as they should not: what cannot be read is skipped.

use memchr::memchr;

/// Longest line that is read, bytes: a sample with thirty labels has 2 KiB.
const MAX_LINE: usize = 8 * 1_024;

/// Most samples that are read. vLLM has about 700, most of them buckets of histograms.
const MAX_SAMPLES: usize = 100_000;

/// One line's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// A label's value as written. Escapes stay: no value that is asked for has any.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((key, after)) = rest.split_once('=') {
            let quoted = after.trim_start().strip_prefix('"')?;
            let end = end_of_string(quoted)?;
            if key.trim_matches([',', ' ', '\t']) == name {
                return quoted.get(..end);
            }
            rest = quoted.get(end + 1..)?;
        }
        None
    }
}

/// All samples of `text`.
pub(super) fn samples(text: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    let lines = text.split(|&c| c == b'\n').filter(|line| line.len() <= MAX_LINE);
    lines.filter_map(|line| sample(std::str::from_utf8(line).ok()?.trim())).take(MAX_SAMPLES)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let close = end_of_labels(inside)?;
            (inside.get(..close)?, inside.get(close + 1..)?)
        }
        None => ("", rest),
    };
    // What may follow the value is a time, which is of no use here.
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

fn is_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b':');
    name.bytes().all(plain) && name.bytes().next().is_some_and(|c| !c.is_ascii_digit())
}

/// The brace that ends the labels: the first one outside quotes.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let stop = rest.find(['"', '}'])?;
        if rest.as_bytes().get(stop) == Some(&b'}') {
            return Some(at + stop);
        }
        at += stop + 1;
        at += end_of_string(text.get(at..)?)? + 1;
    }
}

/// The quote that ends a string: the first one without a backslash that counts.
fn end_of_string(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr(b'"', bytes.get(at..)?)?;
        let before = bytes.get(..at)?;
        if before.iter().rev().take_while(|&&c| c == b'\\').count() % 2 == 0 {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Sample<'_> {
        samples(line.as_bytes()).next().unwrap()
    }

    #[test]
    fn samples_are_read_in_every_form() {
        for (line, name, value) in [
            ("up 1", "up", 1.0),
            ("vllm:running{engine=\"0\"} 2.0", "vllm:running", 2.0),
            ("  a_b{} 3 1700000000000 \r", "a_b", 3.0),
            ("a\t4e2", "a", 400.0),
            ("a{x=\"{}\",y=\"\\\"}\"} 5", "a", 5.0),
            ("a -6", "a", -6.0),
            ("a +Inf", "a", f64::INFINITY),
        ] {
            let sample = one(line);
            assert_eq!((sample.name, sample.value), (name, value), "{line}");
        }
        assert!(one("a NaN").value.is_nan());
    }

    #[test]
    fn labels_are_found_by_name() {
        let sample = one(r#"m{a="1", bc="x\"y,c=",c = "3",} 1"#);
        assert_eq!(sample.label("a"), Some("1"));
        assert_eq!(sample.label("bc"), Some(r#"x\"y,c="#));
        assert_eq!(sample.label("c"), Some("3"));
        assert_eq!(sample.label("d"), None);
        assert_eq!(one("m 1").label("a"), None);
    }

    #[test]
    fn what_is_no_metric_is_skipped() {
        let long = format!("a{{x=\"{}\"}} 1", "y".repeat(MAX_LINE));
        for junk in [
            "",
            "# HELP a b",
            "<html><body>404</body></html>",
            r#"{"detail":"Not Found"}"#,
            r#"[{"cpuMemUsage":0, "iter": 1}]"#,
            "a",
            "a b",
            "a{x=\"1\" 2",
            "a{x=\"1} 2",
            "1a 2",
            "\u{fffd} 1",
            long.as_str(),
        ] {
            assert_eq!(samples(junk.as_bytes()).count(), 0, "{junk}");
        }
        assert_eq!(samples(b"\xff\xfe 1\nup 1\n").count(), 1);
    }

    #[test]
    fn there_are_limits() {
        let many = "a 1\n".repeat(MAX_SAMPLES + 10);
        assert_eq!(samples(many.as_bytes()).count(), MAX_SAMPLES);
    }
}
