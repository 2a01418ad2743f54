//! The digests that components are pinned by.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The sha256 of a component file, as 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Pin(String);

impl Sha256Pin {
    /// The 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The digest of bytes.
pub fn sha256_of(bytes: &[u8]) -> Sha256Pin {
    Sha256Pin(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

impl FromStr for Sha256Pin {
    type Err = Error;

    /// 64 hex digits of either case.
    fn from_str(text: &str) -> Result<Self> {
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(Error::config(format!("{text:?} is not a sha256 digest"))
            .hint("write 64 hex digits, as `sha256sum FILE` and `sandgate provider inspect FILE` print them"))
    }
}

impl TryFrom<String> for Sha256Pin {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Sha256Pin> for String {
    fn from(pin: Sha256Pin) -> Self {
        pin.0
    }
}

impl fmt::Display for Sha256Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Sha256Pin {
    fn schema_name() -> Cow<'static, str> {
        "Sha256Pin".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9a-fA-F]{64}$",
            "x-accepts": "write 64 hex digits, as `sandgate provider inspect FILE` prints them"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_64_hex_digits() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_of(b"").as_str(), empty);
        assert_eq!(empty.to_uppercase().parse::<Sha256Pin>().unwrap(), sha256_of(b""));
        for bad in ["", "sha256:00", &empty[1..], &format!("{empty}0"), &empty.replace('e', "g")] {
            assert!(bad.parse::<Sha256Pin>().unwrap_err().to_string().contains("64 hex digits"), "{bad}");
        }
    }
}
