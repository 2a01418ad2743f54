//! Which store a gateway uses, from its configuration and the environment.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::lease::LeaseTimes;
use crate::error::{Error, Result};

/// Where leases lie in Redis, as the Python system has it.
pub const DEFAULT_KEY_PREFIX: &str = "deerflow:sandbox:owner";
/// The server of a Redis store for which no URL is given anywhere.
pub const DEFAULT_REDIS_URL: &str = "redis://localhost:6379/0";

const OWNERSHIP_URL: &str = "DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL";
const BRIDGE_URL: &str = "DEER_FLOW_STREAM_BRIDGE_REDIS_URL";
const REDIS_URL: &str = "REDIS_URL";

/// The kinds of lease store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// For a deployment of one gateway.
    Memory,
    /// For gateways that share a backend.
    Redis,
}

impl FromStr for StoreKind {
    type Err = Error;
    fn from_str(value: &str) -> Result<Self> {
        match value {
            "memory" => Ok(Self::Memory),
            "redis" => Ok(Self::Redis),
            other => Err(Error::config(format!("unknown sandbox ownership type {other:?}"))
                .hint("use \"memory\" for one gateway, \"redis\" for several")),
        }
    }
}

/// The `[ownership]` section, checked by [`resolve`].
#[derive(Clone, PartialEq)]
pub struct OwnershipConfig {
    /// Which store.
    pub kind: StoreKind,
    /// Where Redis is; none: from the environment.
    pub redis_url: Option<String>,
    /// A certificate authority for `rediss://`, instead of the machine's own.
    pub redis_ca_file: Option<PathBuf>,
    /// What keys begin with; none: [`DEFAULT_KEY_PREFIX`].
    pub key_prefix: Option<String>,
    /// How often leases are renewed; over zero.
    pub renewal_interval: Duration,
    /// How many intervals a lease lasts; at least 2.
    pub ttl_multiplier: f64,
}

impl Default for OwnershipConfig {
    fn default() -> Self {
        Self {
            kind: StoreKind::Memory,
            redis_url: None,
            redis_ca_file: None,
            key_prefix: None,
            renewal_interval: LeaseTimes::default().renewal_interval(),
            ttl_multiplier: 4.0,
        }
    }
}

impl fmt::Debug for OwnershipConfig {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnershipConfig")
            .field("kind", &self.kind)
            .field("redis_url", &self.redis_url.as_ref().map(|_| "…"))
            .field("redis_ca_file", &self.redis_ca_file)
            .field("key_prefix", &self.key_prefix)
            .field("renewal_interval", &self.renewal_interval)
            .field("ttl_multiplier", &self.ttl_multiplier)
            .finish()
    }
}

/// What a gateway uses.
#[derive(Clone, PartialEq)]
pub struct Resolved {
    /// The URL of a Redis store; none: the memory store.
    pub redis_url: Option<String>,
    /// A certificate authority for `rediss://`.
    pub redis_ca_file: Option<PathBuf>,
    /// What keys begin with.
    pub key_prefix: String,
    /// How long leases last.
    pub times: LeaseTimes,
}

impl fmt::Debug for Resolved {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved")
            .field("redis", &self.redis_url.is_some())
            .field("redis_ca_file", &self.redis_ca_file)
            .field("key_prefix", &self.key_prefix)
            .field("times", &self.times)
            .finish()
    }
}

/// Chooses the store. A section wins; without one, a stream bridge on Redis (`bridge`: its URL, if it has one of its
/// own) or one of the variables `DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL` and `DEER_FLOW_STREAM_BRIDGE_REDIS_URL` means
/// that there are several gateways, and so Redis; otherwise it is memory. The URL is the section's (or the bridge's),
/// else the first set of those two variables and `REDIS_URL`, else [`DEFAULT_REDIS_URL`]. An empty variable counts as
/// unset.
pub fn resolve(
    section: Option<&OwnershipConfig>,
    bridge: Option<Option<&str>>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved> {
    let var = |name: &str| env(name).filter(|value| !value.trim().is_empty());
    let implied = bridge.is_some() || var(OWNERSHIP_URL).is_some() || var(BRIDGE_URL).is_some();
    let (kind, configured) = match section {
        Some(section) => (section.kind, section.redis_url.clone()),
        None if implied => (StoreKind::Redis, bridge.flatten().map(str::to_owned)),
        None => (StoreKind::Memory, None),
    };
    let url = || {
        configured
            .or_else(|| var(OWNERSHIP_URL))
            .or_else(|| var(BRIDGE_URL))
            .or_else(|| var(REDIS_URL))
            .unwrap_or_else(|| DEFAULT_REDIS_URL.to_owned())
    };
    let defaults = OwnershipConfig::default();
    let section = section.unwrap_or(&defaults);
    let prefix = section.key_prefix.as_deref().unwrap_or(DEFAULT_KEY_PREFIX).trim_end_matches(':');
    if prefix.is_empty() || prefix.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '{' | '}')) {
        return Err(Error::config(format!("`ownership.key_prefix` {prefix:?} is not usable"))
            .hint("use words joined by colons, such as \"deerflow:sandbox:owner\""));
    }
    Ok(Resolved {
        redis_url: (kind == StoreKind::Redis).then(url),
        redis_ca_file: section.redis_ca_file.clone(),
        key_prefix: prefix.to_owned(),
        times: LeaseTimes::new(section.renewal_interval, section.ttl_multiplier)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(section: Option<&OwnershipConfig>, bridge: Option<Option<&str>>, env: &[(&str, &str)]) -> Option<String> {
        let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        resolve(section, bridge, &env).unwrap().redis_url
    }

    #[test]
    fn without_a_hint_it_is_memory() {
        assert_eq!(url(None, None, &[]), None);
        assert_eq!(url(None, None, &[(REDIS_URL, "redis://x")]), None, "REDIS_URL alone implies nothing");
        assert_eq!(url(None, None, &[(BRIDGE_URL, "")]), None, "an empty variable is unset");
    }

    #[test]
    fn a_bridge_or_a_variable_implies_redis() {
        assert_eq!(url(None, None, &[(BRIDGE_URL, "redis://b")]).unwrap(), "redis://b");
        assert_eq!(url(None, None, &[(OWNERSHIP_URL, "redis://o"), (BRIDGE_URL, "redis://b")]).unwrap(), "redis://o");
        assert_eq!(url(None, Some(Some("redis://y")), &[(OWNERSHIP_URL, "redis://o")]).unwrap(), "redis://y");
        assert_eq!(url(None, Some(None), &[(BRIDGE_URL, "redis://b")]).unwrap(), "redis://b");
        assert_eq!(url(None, Some(None), &[]).unwrap(), DEFAULT_REDIS_URL);
    }

    #[test]
    fn a_section_wins() {
        let memory = OwnershipConfig::default();
        assert_eq!(url(Some(&memory), Some(Some("redis://y")), &[(OWNERSHIP_URL, "redis://o")]), None);
        let redis = OwnershipConfig { kind: StoreKind::Redis, ..OwnershipConfig::default() };
        assert_eq!(url(Some(&redis), None, &[]).unwrap(), DEFAULT_REDIS_URL);
        assert_eq!(url(Some(&redis), None, &[(REDIS_URL, "redis://r")]).unwrap(), "redis://r");
        let given = OwnershipConfig { redis_url: Some("redis://c".to_owned()), ..redis };
        assert_eq!(url(Some(&given), None, &[(OWNERSHIP_URL, "redis://o")]).unwrap(), "redis://c");
    }

    #[test]
    fn nonsense_is_refused() {
        let error = "etcd".parse::<StoreKind>().unwrap_err().to_string();
        assert!(error.contains("unknown sandbox ownership type"), "{error}");
        for config in [
            OwnershipConfig { ttl_multiplier: 1.5, ..OwnershipConfig::default() },
            OwnershipConfig { renewal_interval: Duration::ZERO, ..OwnershipConfig::default() },
            OwnershipConfig { key_prefix: Some("::".to_owned()), ..OwnershipConfig::default() },
        ] {
            assert!(resolve(Some(&config), None, &|_| None).is_err(), "{config:?}");
        }
        let config = OwnershipConfig { redis_url: Some("redis://:s3cret@h".to_owned()), ..OwnershipConfig::default() };
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
