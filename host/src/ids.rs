//! Who a sandbox belongs to, and what it is called.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The longest thread id, as in the systems that Sandgate takes over from.
pub const MAX_THREAD_ID: usize = 64;
/// The longest user id: long enough for any identity provider's, short enough for a file name.
pub const MAX_USER_ID: usize = 128;

fn check(what: &str, value: &str, limit: usize) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if value.is_empty() || value.len() > limit || !value.bytes().all(allowed) {
        return Err(Error::invalid_argument(format!("{what} {value:?} is not usable"))
            .hint(format!("use 1 to {limit} characters of A-Z, a-z, 0-9, _ and -")));
    }
    Ok(())
}

/// Makes a checked string type for an id.
macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps it.
            pub fn new(value: impl Into<String>) -> Result<Self> {
                let value = value.into();
                check($what, &value, $limit)?;
                Ok(Self(value))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(value: &str) -> Result<Self> {
                Self::new(value)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(value: String) -> Result<Self> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id_type!(
    /// A user: 1 to 128 characters of `A-Z a-z 0-9 _ -`.
    UserId,
    "user id",
    MAX_USER_ID
);
id_type!(
    /// A thread (conversation): 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    ThreadId,
    "thread id",
    MAX_THREAD_ID
);

impl UserId {
    /// The user of a gateway without authentication.
    pub const DEFAULT: &'static str = "default";

    /// Makes an id out of any text: an unusable one has its other characters replaced by `-` and gets the first 16 hex
    /// digits of its own sha256 appended, so that two different texts never become one user.
    pub fn sanitised(raw: &str) -> Self {
        if let Ok(id) = Self::new(raw) {
            return id;
        }
        let kept: String =
            raw.chars().take(64).map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
        Self(format!("{kept}-{}", short_hash(raw)))
    }
}

impl Default for UserId {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

/// The owner of a sandbox: a user and, mostly, a thread of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Scope {
    /// The user.
    pub user: UserId,
    /// The thread; none: the one sandbox of the user that belongs to no thread.
    pub thread: Option<ThreadId>,
}

impl Scope {
    /// A user's thread.
    pub fn new(user: UserId, thread: ThreadId) -> Self {
        Self { user, thread: Some(thread) }
    }

    /// The first 16 hex digits of sha256(`user:thread`).
    pub fn hashed_id(&self) -> SandboxId {
        let thread = self.thread.as_ref().map_or("", ThreadId::as_str);
        SandboxId(short_hash(&format!("{}:{thread}", self.user)))
    }

    /// `name:thread` for the default user, `name:user:thread` otherwise, `name` without a thread (`name:user:` for
    /// another user: ids of different scopes always differ).
    pub fn readable_id(&self, name: &str) -> SandboxId {
        let default = self.user.as_str() == UserId::DEFAULT;
        SandboxId(match &self.thread {
            None if default => name.to_owned(),
            None => format!("{name}:{}:", self.user),
            Some(thread) if default => format!("{name}:{thread}"),
            Some(thread) => format!("{name}:{}:{thread}", self.user),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.user, self.thread.as_ref().map_or("-", ThreadId::as_str))
    }
}

/// A sandbox's name, derived from its scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SandboxId(String);

/// The longest sandbox id: a readable one with the longest provider name, user and thread fits.
pub const MAX_SANDBOX_ID: usize = 256;

impl SandboxId {
    /// One that a backend or a caller names: 1 to 256 characters of `A-Z a-z 0-9 _ - :`.
    pub fn parse(value: impl Into<String>) -> Result<Self> {
        let value = value.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b':');
        if value.is_empty() || value.len() > MAX_SANDBOX_ID || !value.bytes().all(allowed) {
            return Err(Error::invalid_argument(format!("sandbox id {value:?} is not usable"))
                .hint("use an id as `acquire` or `sandgate sandbox list` gives it"));
        }
        Ok(Self(value))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = Error;
    fn from_str(value: &str) -> Result<Self> {
        Self::parse(value)
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A provider's name in the configuration: `[a-z][a-z0-9-]{0,31}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderName(String);

impl ProviderName {
    /// Checks and wraps it.
    pub fn new(value: impl Into<String>) -> Result<Self> {
        let value = value.into();
        let bytes = value.as_bytes();
        let allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let fits = matches!(bytes, [b'a'..=b'z', rest @ ..] if rest.len() < 32 && rest.iter().all(allowed));
        if fits {
            Ok(Self(value))
        } else {
            Err(Error::invalid_argument(format!("provider name {value:?} is not usable"))
                .hint("use up to 32 characters of a-z, 0-9 and -, beginning with a letter"))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ProviderName {
    /// The provider of the built-in configuration: `local`.
    pub fn local() -> Self {
        Self("local".to_owned())
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ProviderName {
    type Err = Error;
    fn from_str(value: &str) -> Result<Self> {
        Self::new(value)
    }
}

impl TryFrom<String> for ProviderName {
    type Error = Error;
    fn try_from(value: String) -> Result<Self> {
        Self::new(value)
    }
}

impl From<ProviderName> for String {
    fn from(value: ProviderName) -> Self {
        value.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(user: &str, thread: Option<&str>) -> Scope {
        Scope { user: user.parse().unwrap(), thread: thread.map(|thread| thread.parse().unwrap()) }
    }

    #[test]
    fn hashed_ids_are_those_of_the_python_system() {
        // printf 'default:t1' | sha256sum
        assert_eq!(scope("default", Some("t1")).hashed_id().as_str(), "eeb6544e5ffa968d");
    }

    #[test]
    fn readable_ids_differ_whenever_scopes_differ() {
        let id = |user, thread| scope(user, thread).readable_id("local").to_string();
        assert_eq!(id("default", None), "local");
        assert_eq!(id("default", Some("t")), "local:t");
        assert_eq!(id("ann", Some("t")), "local:ann:t");
        assert_ne!(id("ann", None), id("default", Some("ann")));
    }

    #[test]
    fn ids_refuse_what_could_leave_a_folder() {
        for bad in ["", ".", "..", "a/b", "a b", "a\0", "ä", &"x".repeat(65)] {
            assert!(ThreadId::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "Local", "1a", "a_b", &"x".repeat(33)] {
            assert!(ProviderName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sanitised_users_stay_apart() {
        let (one, two) = (UserId::sanitised("ann@example.org"), UserId::sanitised("ann#example.org"));
        assert_ne!(one, two);
        assert!(UserId::new(one.as_str()).is_ok() && UserId::new(two.as_str()).is_ok());
        assert_eq!(UserId::sanitised("ann").as_str(), "ann");
    }
}
