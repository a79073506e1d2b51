//! Percent-encoding (RFC 3986, 2.1), as paths and `OTEL_EXPORTER_OTLP_HEADERS` have it.

/// `text` with its escapes resolved, once. What is no escape stays as it is.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.first_chunk().filter(|_| first == b'%').and_then(byte);
        out.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out
}

fn byte(&[high, low]: &[u8; 2]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_resolved_once_and_nothing_else_is_one() {
        for (text, decoded) in [
            ("a%2Fb%2fc", &b"a/b/c"[..]),
            ("%2525", b"%25"),
            ("%ff", b"\xff"),
            ("100%", b"100%"),
            ("%4", b"%4"),
            ("%+f%g0% 1", b"%+f%g0% 1"),
            ("", b""),
        ] {
            assert_eq!(decode(text.as_bytes()), decoded, "{text}");
        }
    }
}
