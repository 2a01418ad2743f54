//! Values that must not be shown.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// What stands in place of a secret wherever one is printed.
pub const REDACTED: &str = "[redacted]";

/// A secret text. Printing or serialising it in any way gives [`REDACTED`]; only [`expose`](Self::expose) gives the
/// value.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself: for the one place that needs it, never for a message.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_printed_nowhere() {
        let secret = Secret::new("hunter2-hunter2");
        let printed = format!("{secret} {secret:?} {secret:#?} {}", serde_json::to_string(&secret).unwrap());
        assert!(!printed.contains("hunter2"), "{printed}");
        assert_eq!(printed.matches(REDACTED).count(), 4);
        assert_eq!(secret.expose(), "hunter2-hunter2");
        let read: Secret = serde_json::from_str("\"abc\"").unwrap();
        assert_eq!(read.expose(), "abc");
    }
}
