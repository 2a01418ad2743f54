//! The effective configuration, as operators may see it.

use toml::Value;

use super::load::Loaded;
use super::problem::{KeyPath, Step};
use super::secret::REDACTED;
use crate::error::{Error, Result};

/// Parts of names whose values are secrets (see the environment policy, which has the same view of variables).
const SECRET_NAMES: &[&str] = &["key", "secret", "token", "pass", "credential", "dsn", "auth"];

impl Loaded {
    /// The whole configuration as TOML, defaults included. What came from a variable is shown as the reference that
    /// stood in the file (`$NAME`); settings whose names look like secrets are shown as [`REDACTED`].
    pub fn effective(&self) -> Result<String> {
        let unprintable =
            |error: &dyn std::fmt::Display| Error::internal(format!("can't print the configuration: {error}"));
        let mut tree = Value::try_from(&self.config).map_err(|error| unprintable(&error))?;
        if let Some(providers) = tree.get_mut("providers").and_then(Value::as_table_mut) {
            for (_, provider) in providers.iter_mut() {
                if let Some(settings) = provider.get_mut("settings") {
                    redact(settings);
                }
            }
        }
        for (path, reference) in &self.references {
            if let Some(value) = find(&mut tree, path) {
                *value = Value::String(reference.clone());
            }
        }
        let from = match &self.file {
            Some(file) => format!("# From {}\n", file.display()),
            None => "# The built-in configuration: there is no sandgate.toml\n".to_owned(),
        };
        let text = toml::to_string_pretty(&tree).map_err(|error| unprintable(&error))?;
        Ok(from + &text)
    }
}

fn redact(value: &mut Value) {
    match value {
        Value::Table(table) => {
            for (name, value) in table.iter_mut() {
                let name = name.to_lowercase();
                if SECRET_NAMES.iter().any(|part| name.contains(part)) {
                    *value = Value::String(REDACTED.to_owned());
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn find<'a>(mut value: &'a mut Value, path: &KeyPath) -> Option<&'a mut Value> {
    for step in path.steps() {
        value = match step {
            Step::Key(key) => value.get_mut(key.as_str())?,
            Step::Index(index) => value.get_mut(*index)?,
        };
    }
    Some(value)
}
