//! JSON scanning without building a tree of values.
//!
//! One pass over the body writes a flat tape: a token per value and per object key, with its byte
//! range and the index of the token that follows its subtree. Strings stay where they are in the
//! body; they are unescaped only when their text is asked for. The scanner accepts everything JSON
//! allows and a little more (raw control characters in strings, odd numbers): it decides about
//! routing, never about validity, which is the engine's to judge.

use memchr::memchr;

/// Deepest nesting that is followed. Real requests stay below 20 (tool schemas).
const MAX_NESTING: usize = 128;

/// Most tokens in one body: a prompt of 131,072 token ids and room for eight of them.
const MAX_TOKENS: usize = 1 << 20;

/// The body is not JSON, or nests or counts beyond the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{...}`: followed by key, value, key, value ...
    Object,
    /// `[...]`: followed by its items.
    Array,
    /// A string; the range excludes the quotes.
    String,
    /// A number, `true`, `false` or `null`.
    Scalar,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    kind: Kind,
    start: u32,
    end: u32,
    /// Index of the first token after this value.
    next: u32,
}

/// The tape. Keep it and scan into it again: it keeps its memory.
#[derive(Debug, Default)]
pub struct Tape {
    tokens: Vec<Token>,
    open: Vec<u32>,
}

impl Tape {
    /// Scans `body` and gives its root value.
    pub fn scan<'a>(&'a mut self, body: &'a [u8]) -> Result<Value<'a>, Malformed> {
        self.tokens.clear();
        self.open.clear();
        if u32::try_from(body.len()).is_err() {
            return Err(Malformed);
        }
        Scanner { body, at: 0, tape: self }.run()?;
        Ok(Value { body, tokens: &self.tokens, index: 0 })
    }

    /// Gives memory back after an unusually large body.
    pub fn shrink_to(&mut self, tokens: usize) {
        if self.tokens.capacity() > tokens {
            self.tokens = Vec::new();
        }
    }
}

struct Scanner<'a, 't> {
    body: &'a [u8],
    at: usize,
    tape: &'t mut Tape,
}

impl Scanner<'_, '_> {
    fn run(&mut self) -> Result<(), Malformed> {
        self.value()?;
        while let Some(&container) = self.tape.open.last() {
            self.step(container)?;
        }
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(Malformed),
        }
    }

    /// One item or member of the innermost open container, or its end.
    fn step(&mut self, container: u32) -> Result<(), Malformed> {
        let (kind, fresh) = {
            let token = self.token(container)?;
            (token.kind, self.tape.tokens.len() as u32 == container + 1)
        };
        let close = if kind == Kind::Object { b'}' } else { b']' };
        match self.peek().ok_or(Malformed)? {
            c if c == close => return self.close(container),
            b',' if !fresh => self.at += 1,
            _ if fresh => {}
            _ => return Err(Malformed),
        }
        if kind == Kind::Object {
            if self.peek() != Some(b'"') {
                return Err(Malformed);
            }
            self.string()?;
            if self.peek() != Some(b':') {
                return Err(Malformed);
            }
            self.at += 1;
        }
        self.value()
    }

    fn value(&mut self) -> Result<(), Malformed> {
        match self.peek().ok_or(Malformed)? {
            b'"' => self.string(),
            b'{' => self.open(Kind::Object),
            b'[' => self.open(Kind::Array),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => self.scalar(),
            _ => Err(Malformed),
        }
    }

    fn open(&mut self, kind: Kind) -> Result<(), Malformed> {
        if self.tape.open.len() == MAX_NESTING {
            return Err(Malformed);
        }
        self.tape.open.push(self.tape.tokens.len() as u32);
        let at = self.at;
        self.at += 1;
        self.push(kind, at, at)
    }

    fn close(&mut self, container: u32) -> Result<(), Malformed> {
        self.at += 1;
        let (end, next) = (self.at as u32, self.tape.tokens.len() as u32);
        let token = self.tape.tokens.get_mut(container as usize).ok_or(Malformed)?;
        token.end = end;
        token.next = next;
        self.tape.open.pop();
        Ok(())
    }

    fn string(&mut self) -> Result<(), Malformed> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += memchr(b'"', self.body.get(at..).ok_or(Malformed)?).ok_or(Malformed)?;
            // Quotes are rarer than backslashes (every line break is one): look for those only and
            // then back. An even run of backslashes escapes itself.
            let text = self.body.get(start..at).ok_or(Malformed)?;
            let backslashes = text.iter().rev().take_while(|&&c| c == b'\\').count();
            if backslashes % 2 == 0 {
                break;
            }
            at += 1;
        }
        self.at = at + 1;
        self.push(Kind::String, start, at)
    }

    fn scalar(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        let ends = |c: &u8| matches!(c, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"');
        let rest = self.body.get(start..).ok_or(Malformed)?;
        self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
        let text = rest.get(..self.at - start).unwrap_or_default();
        let word = matches!(text, b"true" | b"false" | b"null");
        if !word && !matches!(text.first(), Some(b'-' | b'0'..=b'9')) {
            return Err(Malformed);
        }
        self.push(Kind::Scalar, start, self.at)
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) -> Result<(), Malformed> {
        let next = self.tape.tokens.len() + 1;
        if next > MAX_TOKENS {
            return Err(Malformed);
        }
        self.tape.tokens.push(Token { kind, start: start as u32, end: end as u32, next: next as u32 });
        Ok(())
    }

    fn token(&self, index: u32) -> Result<&Token, Malformed> {
        self.tape.tokens.get(index as usize).ok_or(Malformed)
    }

    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.body.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                &c => return Some(c),
            }
        }
    }
}

/// One value on the tape.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    body: &'a [u8],
    tokens: &'a [Token],
    index: u32,
}

impl<'a> Value<'a> {
    /// What it is.
    pub fn kind(&self) -> Kind {
        self.token().map_or(Kind::Scalar, |t| t.kind)
    }

    /// Its bytes in the body: a string's without the quotes, still escaped.
    pub fn raw(&self) -> &'a [u8] {
        self.token().and_then(|t| self.body.get(t.start as usize..t.end as usize)).unwrap_or_default()
    }

    /// Whether it is a string.
    pub fn is_string(&self) -> bool {
        self.kind() == Kind::String
    }

    /// Appends a string's text to `out`, escapes resolved.
    pub fn text_into(&self, out: &mut Vec<u8>) {
        unescape(self.raw(), out);
    }

    /// The same of a string's first `bytes` bytes as written.
    pub fn text_prefix_into(&self, bytes: usize, out: &mut Vec<u8>) {
        let raw = self.raw();
        unescape(raw.get(..bytes).unwrap_or(raw), out);
    }

    /// Whether it is a string that reads `text` (`text` without characters that need escapes).
    pub fn is_text(&self, text: &str) -> bool {
        self.kind() == Kind::String && self.raw() == text.as_bytes()
    }

    /// The items of an array; nothing for other values.
    pub fn items(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let wanted = self.kind() == Kind::Array;
        let mut at = *self;
        at.index += 1;
        let end = self.token().filter(|_| wanted).map_or(0, |t| t.next);
        std::iter::from_fn(move || {
            let item = (at.index < end).then_some(at)?;
            at.index = item.token()?.next;
            Some(item)
        })
    }

    /// The members of an object in the order of the body; nothing for other values. Keys are as
    /// written, escapes and all.
    pub fn members(&self) -> impl Iterator<Item = (&'a [u8], Value<'a>)> + use<'a> {
        let wanted = self.kind() == Kind::Object;
        let mut at = *self;
        at.index += 1;
        let end = self.token().filter(|_| wanted).map_or(0, |t| t.next);
        std::iter::from_fn(move || {
            let key = (at.index < end).then_some(at)?;
            let mut value = at;
            value.index += 1;
            at.index = value.token()?.next;
            Some((key.raw(), value))
        })
    }

    /// The last member called `name`, as JSON parsers of engines see it.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.members().filter(|(key, _)| *key == name.as_bytes()).last().map(|(_, value)| value)
    }

    fn token(&self) -> Option<&'a Token> {
        self.tokens.get(self.index as usize)
    }
}

/// Resolves JSON escapes. A lone surrogate becomes its three bytes of generalised UTF-8, an unknown
/// escape stays as written: equal input gives equal output, and nothing fails.
fn unescape(mut raw: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr(b'\\', raw) {
        let (plain, rest) = raw.split_at(at);
        out.extend_from_slice(plain);
        let (used, simple) = match rest.get(1) {
            Some(b'n') => (2, b'\n'),
            Some(b't') => (2, b'\t'),
            Some(b'r') => (2, b'\r'),
            Some(b'b') => (2, 8),
            Some(b'f') => (2, 12),
            Some(&c @ (b'"' | b'\\' | b'/')) => (2, c),
            Some(b'u') => (unicode(rest, out), 0),
            _ => (0, 0),
        };
        match used {
            0 => out.push(b'\\'),
            2 => out.push(simple),
            _ => {}
        }
        raw = rest.get(used.max(1)..).unwrap_or_default();
    }
    out.extend_from_slice(raw);
}

/// Resolves `\uXXXX` or a surrogate pair at the start of `rest`; gives the bytes used, 0 if it is
/// none.
fn unicode(rest: &[u8], out: &mut Vec<u8>) -> usize {
    let Some(high) = unit(rest) else { return 0 };
    if (0xd800..0xdc00).contains(&high)
        && let Some(low) = rest.get(6..).and_then(unit)
        && (0xdc00..0xe000).contains(&low)
    {
        push_code_point(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), out);
        return 12;
    }
    push_code_point(high, out);
    6
}

fn unit(escape: &[u8]) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = escape else { return None };
    let digits = digits.get(..4)?;
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}

fn push_code_point(code: u32, out: &mut Vec<u8>) {
    if let Some(c) = char::from_u32(code) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        out.extend([0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(json: &str) -> Vec<u8> {
        let mut tape = Tape::default();
        let mut out = Vec::new();
        tape.scan(json.as_bytes()).unwrap().text_into(&mut out);
        out
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
            V::String(s) => {
                let mut out = Vec::new();
                ours.text_into(&mut out);
                ours.is_string() && out == s.as_bytes()
            }
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

    proptest! {
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
                let mut out = Vec::new();
                value.text_into(&mut out);
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
}
