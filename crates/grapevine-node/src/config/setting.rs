//! One row of the table: a setting with its type and the field of [`Config`] that it sets.

use super::scalar::Kind;
use super::{Config, Secret};

/// Shortest secret, bytes: 128 bits of a random key are the least that is worth sealing with.
const MIN_SECRET: usize = 16;
/// Longest secret, bytes.
const MAX_SECRET: usize = 4_096;

type Apply = Box<dyn Fn(&mut Config, &str) -> Result<(), String> + Send + Sync>;
type Show = Box<dyn Fn(&Config) -> String + Send + Sync>;

/// A setting. Parser, help, `grapevine config` and documentation all read these rows.
pub struct Setting {
    /// Its environment variable.
    pub name: &'static str,
    /// Name of its type.
    pub kind: &'static str,
    /// What may be written, units included.
    pub limits: String,
    /// The default, as it would be written.
    pub default: String,
    /// What it does, and why the default is what it is.
    pub doc: &'static str,
    /// Its value never prints, and may also be read from the file that `{name}_FILE` names.
    pub secret: bool,
    apply: Apply,
    show: Show,
}

/// A heading and its settings.
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The settings.
    pub settings: Vec<Setting>,
}

/// A row for the field that `field` names, read as `kind`.
pub(super) fn row<K: Kind>(
    name: &'static str,
    kind: K,
    field: fn(&mut Config) -> &mut K::Value,
    doc: &'static str,
) -> Setting {
    let kind = std::sync::Arc::new(kind);
    let shown = std::sync::Arc::clone(&kind);
    Setting {
        name,
        kind: kind.name(),
        limits: kind.limits(),
        default: kind.show(field(&mut Config::default())),
        doc,
        secret: false,
        apply: Box::new(move |config, text| {
            *field(config) = kind.parse(text.trim())?;
            Ok(())
        }),
        show: Box::new(move |config| shown.show(field(&mut config.clone()))),
    }
}

/// A row for a secret of our own making.
pub(super) fn secret(
    name: &'static str,
    field: fn(&mut Config) -> &mut Option<Secret>,
    doc: &'static str,
) -> Setting {
    hidden(name, MIN_SECRET, field, doc)
}

/// A row for a secret that somebody else made, however weak.
pub(super) fn token(
    name: &'static str,
    field: fn(&mut Config) -> &mut Option<Secret>,
    doc: &'static str,
) -> Setting {
    hidden(name, 1, field, doc)
}

fn hidden(
    name: &'static str,
    min: usize,
    field: fn(&mut Config) -> &mut Option<Secret>,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        kind: "secret",
        limits: format!("{min} to {MAX_SECRET} bytes"),
        default: "none".to_owned(),
        doc,
        secret: true,
        apply: Box::new(move |config, text| {
            *field(config) = Some(parse_secret(text, min)?);
            Ok(())
        }),
        show: Box::new(move |config| {
            let set = field(&mut config.clone()).is_some();
            if set { "(secret)".to_owned() } else { "none".to_owned() }
        }),
    }
}

/// Only the line end that editors and `echo` add to a file is taken away.
fn parse_secret(text: &str, min: usize) -> Result<Secret, String> {
    let text = text.trim_end_matches(['\r', '\n']);
    match text.len() {
        0 => Err("is empty: unset it, or give a random key such as `openssl rand -hex 32` prints".to_owned()),
        n if n < min => {
            Err(format!("is too short: at least {min} bytes, such as `openssl rand -hex 32` prints"))
        }
        n if n > MAX_SECRET => Err(format!("is too long: at most {MAX_SECRET} bytes")),
        _ => Ok(Secret::new(text.to_owned())),
    }
}

impl Setting {
    /// Overrides the default's text where it is made when the router starts.
    pub(super) fn default_text(mut self, text: &str) -> Self {
        self.default = text.to_owned();
        self
    }

    /// The variable that names a file with the value, for secrets.
    pub fn file_name(&self) -> Option<String> {
        self.secret.then(|| format!("{}_FILE", self.name))
    }

    /// Reads `text` into `config`.
    pub(super) fn apply(&self, config: &mut Config, text: &str) -> Result<(), String> {
        (self.apply)(config, text)
    }

    /// The value in `config` as it would be written; secrets masked.
    pub fn show(&self, config: &Config) -> String {
        (self.show)(config)
    }
}
