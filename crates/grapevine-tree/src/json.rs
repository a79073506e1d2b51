//! JSON scanning without building a tree of values.
//!
//! One pass over the body writes a flat tape: a token per value and per object key, with its byte
//! range and the index of the token that follows its subtree. Strings stay where they are in the
//! body; they are unescaped only when their text is asked for. The scanner accepts everything JSON
//! allows and a little more (raw control characters in strings, odd numbers): it decides about
//! routing, never about validity, which is the engine's to judge.

use std::borrow::Cow;

use memchr::memchr;

mod escapes;
mod strings;

pub use escapes::escape;

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
    /// Of a string: at or before its first escape that has a shorter form; its end if none has.
    longer: u32,
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
        let end = strings::end(self.body, start).ok_or(Malformed)?;
        self.at = end.at + 1;
        self.push(Kind::String, start, end.at)?;
        if let Some(token) = self.tape.tokens.last_mut() {
            token.longer = end.longer as u32;
        }
        Ok(())
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
        self.tape.tokens.push(Token {
            kind,
            start: start as u32,
            end: end as u32,
            next: next as u32,
            longer: end as u32,
        });
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

    /// A string's text, escapes resolved.
    pub fn text(&self) -> Cow<'a, [u8]> {
        resolved(self.raw())
    }

    /// The text of a string's first `bytes` bytes as written, escapes resolved.
    pub fn text_prefix(&self, bytes: usize) -> Cow<'a, [u8]> {
        let raw = self.raw();
        resolved(raw.get(..bytes).unwrap_or(raw))
    }

    /// The same with every escape in its shortest form, as [`escape`] writes it, given to `write` in pieces: nearly always
    /// one, which is the body itself.
    pub fn text_escaped(&self, bytes: usize, write: impl FnMut(&[u8])) {
        let raw = self.raw();
        let longer = self.token().map_or(0, |t| t.longer - t.start) as usize;
        escapes::shortest(raw.get(..bytes).unwrap_or(raw), longer, write);
    }

    /// Whether it is a string that reads `text`.
    pub fn is_text(&self, text: &str) -> bool {
        self.is_string() && *self.text() == *text.as_bytes()
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Scalar && self.raw() == b"null"
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

    /// The members of an object in the order of the body; nothing for other values.
    pub fn members(&self) -> impl Iterator<Item = (Cow<'a, [u8]>, Value<'a>)> + use<'a> {
        let wanted = self.kind() == Kind::Object;
        let mut at = *self;
        at.index += 1;
        let end = self.token().filter(|_| wanted).map_or(0, |t| t.next);
        std::iter::from_fn(move || {
            let key = (at.index < end).then_some(at)?;
            let mut value = at;
            value.index += 1;
            at.index = value.token()?.next;
            Some((key.text(), value))
        })
    }

    /// The last member called `name`, as JSON parsers of engines see it.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.members().filter(|(key, _)| **key == *name.as_bytes()).last().map(|(_, value)| value)
    }

    fn token(&self) -> Option<&'a Token> {
        self.tokens.get(self.index as usize)
    }
}

fn resolved(raw: &[u8]) -> Cow<'_, [u8]> {
    match memchr(b'\\', raw) {
        None => Cow::Borrowed(raw),
        Some(_) => Cow::Owned(escapes::unescape(raw)),
    }
}

#[cfg(test)]
mod tests;
