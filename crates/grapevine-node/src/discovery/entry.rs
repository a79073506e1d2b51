//! A replica as operators write it, in a file or to the admin API.

use serde::Deserialize;

use crate::config::{ReplicaSpec, Secret, spec};
use crate::engine::Kind;

/// Weights that make sense: a replica of 100 carries what 100 of weight 1 do.
pub(crate) const WEIGHTS: std::ops::RangeInclusive<f32> = 0.01..=100.0;

/// Most models that may be listed of a replica: thousands of adapters.
const MAX_MODELS: usize = 10_000;

/// Longest name of a model, bytes.
const MAX_MODEL_BYTES: usize = 512;

/// Longest key, bytes.
const MAX_KEY_BYTES: usize = 4_096;

/// A URL alone, or a URL with what is to be known of the replica.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Entry {
    Url(String),
    Replica(Fields),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fields {
    url: String,
    name: Option<String>,
    weight: Option<f32>,
    models: Option<Vec<String>>,
    kind: Option<String>,
    key: Option<String>,
}

impl Entry {
    /// The replica that is meant, or what is wrong with it.
    pub(crate) fn spec(self) -> Result<ReplicaSpec, String> {
        match self {
            Self::Url(url) => spec(None, &url),
            Self::Replica(fields) => fields.spec(),
        }
    }
}

impl Fields {
    /// The replica that is meant, or what is wrong with it. Never repeats the key.
    pub(crate) fn spec(self) -> Result<ReplicaSpec, String> {
        let mut replica = spec(self.name.as_deref(), &self.url)?;
        if let Some(weight) = self.weight {
            replica.weight = weight_of(weight)?;
        }
        replica.models = self.models.map(models_of).transpose()?;
        replica.kind = self.kind.as_deref().map(kind_of).transpose()?;
        replica.key = self.key.map(key_of).transpose()?;
        Ok(replica)
    }
}

/// Checks a weight.
pub(crate) fn weight_of(weight: f32) -> Result<f32, String> {
    let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
    let good = WEIGHTS.contains(&weight);
    if good { Ok(weight) } else { Err(format!("weight {weight} is not between {least} and {most}")) }
}

/// Reads a kind.
pub(crate) fn kind_of(name: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::named(name).ok_or_else(|| format!("kind `{name}` is none of {}", names()))
}

fn models_of(models: Vec<String>) -> Result<Vec<String>, String> {
    if models.is_empty() {
        return Err("models is empty: leave it out, and the replica is asked".to_owned());
    }
    if models.len() > MAX_MODELS {
        return Err(format!("{} models are too many: at most {MAX_MODELS}", models.len()));
    }
    match models.iter().find(|model| model.is_empty() || model.len() > MAX_MODEL_BYTES) {
        Some(_) => Err(format!("a model's name has from 1 to {MAX_MODEL_BYTES} bytes")),
        None => Ok(models),
    }
}

fn key_of(key: String) -> Result<Secret, String> {
    let visible = |key: &str| key.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !visible(&key) {
        return Err(format!("key is not 1 to {MAX_KEY_BYTES} visible ASCII characters"));
    }
    Ok(Secret::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ReplicaSpec, String> {
        serde_json::from_str::<Entry>(json).map_err(|error| error.to_string())?.spec()
    }

    #[test]
    fn a_url_alone_or_with_everything() {
        assert_eq!(parse(r#""http://a:8000/""#), Ok(ReplicaSpec::new("a:8000", "http://a:8000")));
        let whole = parse(
            r#"{"url":"http://a:8000","name":"gpu-1","weight":2,"models":["m","m-lora"],"kind":"vllm","key":"k"}"#,
        );
        let expected = ReplicaSpec {
            weight: 2.0,
            models: Some(vec!["m".into(), "m-lora".into()]),
            kind: Some(Kind::Vllm),
            key: Some(Secret::new("k".into())),
            ..ReplicaSpec::new("gpu-1", "http://a:8000")
        };
        assert_eq!(whole, Ok(expected));
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_keys_are_not_repeated() {
        for (fields, problem) in [
            (r#""weight":0"#, "weight 0 is not between 0.01 and 100"),
            (r#""weight":-1"#, "weight -1 is not"),
            (r#""kind":"ollama2""#, "kind `ollama2` is none of vllm"),
            (r#""models":[]"#, "models is empty"),
            (r#""models":[""]"#, "a model's name has"),
            (r#""key":"geh eim""#, "key is not 1 to"),
            (r#""name":"a b""#, "`a b` is not a replica name"),
        ] {
            let error = parse(&format!(r#"{{"url":"http://a:1",{fields}}}"#)).unwrap_err();
            assert!(error.contains(problem) && !error.contains("geh eim"), "{error}");
        }
        assert!(parse(r#"{"url":"a:1"}"#).unwrap_err().contains("has no scheme"));
    }
}
