use super::*;
use proptest::prelude::*;

fn text(json: &str) -> Vec<u8> {
    let mut tape = Tape::default();
    tape.scan(json.as_bytes()).unwrap().text().into_owned()
}

/// The slow truth: does our tape describe the same value as serde_json's?
fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
    use serde_json::Value as V;
    match theirs {
        V::Object(map) => {
            ours.kind() == Kind::Object
                && map.iter().all(|(k, v)| ours.get(k).is_some_and(|ours| same(ours, v)))
        }
        V::Array(list) => {
            let items: Vec<_> = ours.items().collect();
            items.len() == list.len() && items.iter().zip(list).all(|(o, t)| same(*o, t))
        }
        V::String(s) => ours.is_string() && *ours.text() == *s.as_bytes(),
        other => ours.kind() == Kind::Scalar && ours.raw() == other.to_string().as_bytes(),
    }
}

fn arb_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..6)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Resolves escapes one byte after the other, with `keep` all but those that have no shorter form.
fn naive(raw: &[u8], keep: bool) -> Vec<u8> {
    let (mut rest, mut out) = (raw, Vec::new());
    let short = |bytes: Vec<u8>| match bytes[..] {
        [byte] if keep => escape(&[byte]),
        _ => bytes,
    };
    while let Some((&first, behind)) = rest.split_first() {
        let simple = |c: u8| b"nrtbf\"\\/".iter().position(|&known| known == c);
        let hex = |at: usize| {
            let digits = rest.get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
        };
        let (bytes, used) = match (first, behind.first().and_then(|&c| simple(c)), hex(0), hex(6)) {
            (b'\\', Some(known), ..) => (short(vec![b"\n\r\t\x08\x0c\"\\/"[known]]), 2),
            (b'\\', None, Some(high @ 0xd800..0xdc00), Some(low @ 0xdc00..0xe000)) => {
                let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                (char::from_u32(code).unwrap().to_string().into_bytes(), 12)
            }
            (b'\\', None, Some(code), _) => (short(generalised(code)), 6),
            _ => (vec![first], 1),
        };
        out.extend(bytes);
        rest = &rest[used..];
    }
    out
}

/// From its begin on, and as a string of a body is read.
fn shortest(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    escapes::shortest(raw, 0, |piece| out.extend_from_slice(piece));
    let body = [b"\"", raw, b"\""].concat();
    let mut tape = Tape::default();
    if let Ok(string) = tape.scan(&body) {
        let mut read = Vec::new();
        string.text_escaped(raw.len(), |piece| read.extend_from_slice(piece));
        assert_eq!(read, out);
    }
    out
}

fn generalised(code: u32) -> Vec<u8> {
    let lone =
        || vec![0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8];
    char::from_u32(code).map_or_else(lone, |c| c.to_string().into_bytes())
}

proptest! {
    #[test]
    fn escapes_of_any_text_are_resolved_as_one_by_one(
        raw in "([a-z ]{0,200}|\\\\[nrtbf\"/\\\\xu]|\\\\u[0-9a-fA-F]{4}|\\\\u00[0-7][0-9a-f]|\\\\ud8[0-9a-f]{2}\\\\ud[c-f][0-9a-f]{2}){0,12}[\\\\]?",
    ) {
        let raw = raw.as_bytes();
        prop_assert_eq!(escapes::unescape(raw), naive(raw, false));
        prop_assert_eq!(shortest(raw), naive(raw, true));
    }

    #[test]
    fn strings_end_where_they_do_byte_by_byte(
        raw in "([a-z ]{0,80}|\\\\[n\"/\\\\xu]|\\\\u00[0-7][0-9a-f]|[\\\\]{1,5}){0,12}\"?",
        behind in "[a-z\"/\\\\]{0,80}",
    ) {
        let body = format!("\"{raw}\"{behind}").into_bytes();
        let (mut at, mut longer, mut end) = (1, None, None);
        while let Some(&byte) = body.get(at) {
            match byte {
                b'"' => {
                    end = Some(at);
                    break;
                }
                b'\\' => {
                    let letter = body.get(at + 1);
                    longer = longer.or(matches!(letter, Some(b'u' | b'/')).then_some(at));
                    at += 2;
                }
                _ => at += 1,
            }
        }
        let found = strings::end(&body, 1);
        prop_assert_eq!(found.map(|found| found.at), end);
        if let Some(found) = found {
            prop_assert!(found.longer <= longer.unwrap_or(found.at));
            prop_assert!(found.longer == found.at || body[found.longer] == b'\\');
        }
    }

    #[test]
    fn a_text_has_one_shortest_form_however_it_is_written(text: String, numbers in prop::collection::vec(any::<bool>(), 1..9)) {
        let mut written = String::new();
        for (c, number) in text.chars().zip(numbers.iter().cycle()) {
            match c {
                _ if *number || c < ' ' => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| written += &format!("\\u{unit:04X}"));
                }
                '/' | '"' | '\\' => written.extend(['\\', c]),
                _ => written.push(c),
            }
        }
        let usual = serde_json::to_string(&text).unwrap();
        let usual = &usual.as_bytes()[1..usual.len() - 1];
        prop_assert_eq!(shortest(written.as_bytes()), escape(text.as_bytes()));
        prop_assert_eq!(shortest(usual), escape(text.as_bytes()));
        prop_assert_eq!(escapes::unescape(&escape(text.as_bytes())), text.as_bytes());
    }

    #[test]
    fn agrees_with_serde_json(value in arb_json(), pretty: bool) {
        let body = if pretty {
            serde_json::to_vec_pretty(&value).unwrap()
        } else {
            serde_json::to_vec(&value).unwrap()
        };
        let mut tape = Tape::default();
        prop_assert!(same(tape.scan(&body).unwrap(), &value));
    }

    #[test]
    fn accepts_whatever_serde_json_accepts_and_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut tape = Tape::default();
        let ours = tape.scan(&body).is_ok();
        let theirs = serde_json::from_slice::<serde_json::Value>(&body).is_ok();
        prop_assert!(ours || !theirs);
    }

    #[test]
    fn a79_any_mix_of_json_punctuation_never_panics(body in "[\\[\\]{}\",:\\\\u0-9a-fntd8 ]{0,80}") {
        let mut tape = Tape::default();
        if let Ok(value) = tape.scan(body.as_bytes()) {
            value.text();
            value.items().count();
            value.members().count();
        }
    }
}

#[test]
fn escapes_resolve_to_the_same_bytes_as_plain_text() {
    assert_eq!(text(r#""a\u00e9\ud83e\udd80\n\/""#), "aé🦀\n/".as_bytes());
    assert_eq!(text(r#""\ud800x""#), [0xed, 0xa0, 0x80, b'x'], "a lone surrogate");
    assert_eq!(text(r#""\q\u12""#), br"\q\u12", "unknown escapes stay");
}

#[test]
fn only_what_has_a_shorter_form_is_rewritten() {
    let usual = br#"a\nb\t\"\\c: \\u0041 \\/ d"#;
    let mut pieces = Vec::new();
    escapes::shortest(usual, 0, |piece| pieces.push((piece.as_ptr(), piece.len())));
    assert_eq!(pieces, [(usual.as_ptr(), usual.len())], "one piece, where it lies");
    assert_eq!(shortest(br#"\u000a\u0022\u005C\u0041\/\u001f\q\u12"#), b"\\n\\\"\\\\A/\x1f\\q\\u12");
}

#[test]
fn limits_hold() {
    let mut tape = Tape::default();
    assert!(tape.scan("[".repeat(MAX_NESTING + 1).as_bytes()).is_err());
    let deep = format!("{}{}", "[".repeat(MAX_NESTING), "]".repeat(MAX_NESTING));
    assert!(tape.scan(deep.as_bytes()).is_ok());
    let many = format!("[{}0]", "0,".repeat(MAX_TOKENS));
    assert!(tape.scan(many.as_bytes()).is_err());
    for bad in ["", "{", "[1,]", "{\"a\"}", "{\"a\":}", "{,}", "nul", "\"abc", "1 2", "[1 2]"] {
        assert_eq!(tape.scan(bad.as_bytes()).err(), Some(Malformed), "{bad}");
    }
}

#[test]
fn the_last_of_equal_keys_counts() {
    let mut tape = Tape::default();
    let root = tape.scan(br#"{"a":1,"b":{"a":3},"a":2}"#).unwrap();
    assert_eq!(root.get("a").unwrap().raw(), b"2");
    assert!(root.get("c").is_none());
}
