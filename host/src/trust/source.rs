//! Where a component comes from.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum ComponentSource {
    /// `builtin:NAME`: one that comes with Sandgate.
    Builtin(String),
    /// A file.
    File(PathBuf),
}

impl ComponentSource {
    const BUILTIN: &'static str = "builtin:";
}

impl TryFrom<String> for ComponentSource {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        if let Some(name) = text.strip_prefix(Self::BUILTIN) {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
                return Err(Error::config(format!("{text:?} names no built-in component"))
                    .hint("write builtin: and a name of a-z, 0-9 and -, such as \"builtin:local\""));
            }
            return Ok(Self::Builtin(name.to_owned()));
        }
        if text.is_empty() || text.contains("://") {
            return Err(Error::config(format!("{text:?} is not a component"))
                .hint("write \"builtin:NAME\" or the path of a .wasm file"));
        }
        Ok(Self::File(text.into()))
    }
}

impl From<ComponentSource> for String {
    fn from(source: ComponentSource) -> Self {
        source.to_string()
    }
}

impl fmt::Display for ComponentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "{}{name}", Self::BUILTIN),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl JsonSchema for ComponentSource {
    fn schema_name() -> Cow<'static, str> {
        "ComponentSource".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}
