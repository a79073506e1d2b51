//! Which model a request names, where its body is not read for a prompt: embeddings, scores, audio.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use memchr::memmem;
use serde::Deserialize;

use super::{headers, keying};

/// Longest name that is looked at, bytes.
const MAX_NAME: usize = 256;

/// The model that `body` names, if it does in a way that is understood: as JSON, or in a form.
pub(super) async fn model_of(headers: &HeaderMap, body: &Bytes) -> Option<String> {
    let look: fn(&[u8]) -> Option<String> = if headers::is_form(headers) { in_form } else { in_json };
    keying::read(body, look).await
}

fn in_json(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Names<'a> {
        #[serde(borrow)]
        model: Option<Cow<'a, str>>,
    }
    if !body.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let model = serde_json::from_slice::<Names<'_>>(body).ok()?.model?;
    (model.len() <= MAX_NAME).then(|| model.into_owned())
}

/// The field `model` of a `multipart/form-data`: its headers end with an empty line, its value with a line.
fn in_form(body: &[u8]) -> Option<String> {
    const FIELD: &[u8] = b"name=\"model\"";
    let rest = body.get(memmem::find(body, FIELD)? + FIELD.len()..)?;
    let value = rest.get(memmem::find(rest.get(..MAX_NAME.min(rest.len()))?, b"\r\n\r\n")? + 4..)?;
    let end = memmem::find(value.get(..(MAX_NAME + 2).min(value.len()))?, b"\r\n")?;
    std::str::from_utf8(value.get(..end)?).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_forms_are_understood_and_nothing_else() {
        assert_eq!(in_json(br#" {"input":["x"],"model":"a\/b"}"#).as_deref(), Some("a/b"));
        for other in [&b""[..], b"[]", b"{}", br#"{"model":7}"#, br#"{"model":null}"#, b"{\"model\":\"x\""] {
            assert_eq!(in_json(other), None);
        }
        let form = b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\0\x01\r\n--b\r\n\
            Content-Disposition: form-data; name=\"model\"\r\nContent-Type: text/plain\r\n\r\nwhisper\r\n--b--\r\n";
        assert_eq!(in_form(form).as_deref(), Some("whisper"));
        for cut in 0..form.len() - 9 {
            assert_eq!(in_form(&form[..cut]), None, "{cut}");
        }
        assert_eq!(in_json(format!(r#"{{"model":"{}"}}"#, "x".repeat(300)).as_bytes()), None);
    }
}
