//! The effective configuration, as operators may see it.

use serde_json::Value;

use super::load::Loaded;
use super::problem::{KeyPath, Step};
use crate::env_policy::looks_secret;
use crate::error::{Error, Result};
use crate::rewrite::REDACTED;

impl Loaded {
    /// The whole configuration as TOML, defaults included. What came from a variable is shown as the reference that
    /// stood in the file (`$NAME`).
    ///
    /// Of a provider's settings only numbers and booleans are shown, and those only under names that don't look like
    /// secrets: any text may be one, a URL with a password in it for one, and only the component knows which are.
    pub fn effective(&self) -> Result<String> {
        let from = match &self.file {
            Some(file) => format!("# From {}\n", file.display()),
            None => "# The built-in configuration: there is no sandgate.toml\n".to_owned(),
        };
        let text = toml::to_string_pretty(&self.effective_json()?).map_err(|error| unprintable(&error))?;
        Ok(from + &text)
    }

    /// The same as a JSON value.
    pub fn effective_json(&self) -> Result<Value> {
        let mut tree = serde_json::to_value(&self.config).map_err(|error| unprintable(&error))?;
        if let Some(providers) = tree.get_mut("providers").and_then(Value::as_object_mut) {
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
        Ok(tree)
    }
}

fn unprintable(error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("can't print the configuration: {error}"))
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(table) => {
            for (name, value) in table.iter_mut() {
                if looks_secret(name) {
                    *value = Value::String(REDACTED.to_owned());
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) => REDACTED.clone_into(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
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
