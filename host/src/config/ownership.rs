//! The keys of the lease store.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, Secret};
use crate::error::Result;
use crate::ownership::{self, Resolved, StoreKind};

/// The most that `ttl_multiplier` may be: what a dead gateway leaves behind is nobody's for that many intervals.
pub(super) const MAX_TTL_MULTIPLIER: f64 = 100.0;

/// The kinds of ownership store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnershipType {
    /// In this gateway's memory: for a single gateway only.
    Memory,
    /// In Redis: for gateways that share a backend.
    Redis,
}

/// Where gateways note which of them looks after a sandbox.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnershipConfig {
    /// "memory": in this gateway's memory, so for a single gateway only. "redis": in Redis, for gateways that share a
    /// backend.
    ///
    /// Example: `type = "redis"`
    #[serde(rename = "type")]
    pub kind: OwnershipType,

    /// Where Redis is, with "redis" only: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS,
    /// `unix:///path`, `redis+sentinel://[user:password@]host,host/master[/db]` or
    /// `redis+cluster://[user:password@]host,host` (`rediss+…` for TLS). It is never shown.
    /// Default: the first of the variables `DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL`,
    /// `DEER_FLOW_STREAM_BRIDGE_REDIS_URL` and `REDIS_URL` that is set, else `redis://localhost:6379/0`.
    ///
    /// Example: `redis_url = "$MY_REDIS_URL"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_url: Option<Secret>,

    /// The certificate authorities that are trusted for a `rediss://` URL, with "redis" only: an absolute path to a PEM
    /// file.
    /// Default: none, so those that this host trusts.
    ///
    /// Example: `redis_ca_file = "/etc/sandgate/redis-ca.pem"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_ca_file: Option<PathBuf>,

    /// What keys in Redis begin with, with "redis" only: words joined by colons, the same for all gateways that share a
    /// backend.
    /// Default: "deerflow:sandbox:owner", where the Python system has its keys.
    ///
    /// Example: `key_prefix = "deerflow:sandbox:owner"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,

    /// How often this gateway renews its leases, in seconds: 1 to 3600.
    /// Default: 30.
    ///
    /// Example: `renewal_interval_seconds = 10`
    // An hour times two is already how long a dead gateway's sandboxes are nobody's.
    #[serde(default = "default_renewal_interval_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub renewal_interval_seconds: u64,

    /// How many such intervals a lease lasts that nobody renews: 2, so that one missed renewal never costs a lease, to
    /// 100. So long do the sandboxes of a gateway that died belong to nobody.
    /// Default: 4.
    ///
    /// Example: `ttl_multiplier = 3`
    #[serde(default = "default_ttl_multiplier")]
    #[schemars(range(min = 2.0, max = MAX_TTL_MULTIPLIER))]
    pub ttl_multiplier: f64,
}

fn default_renewal_interval_seconds() -> u64 {
    // As in the system that Sandgate takes over from.
    30
}

fn default_ttl_multiplier() -> f64 {
    4.0
}

impl OwnershipConfig {
    /// A store with the defaults of everything else.
    pub fn new(kind: OwnershipType) -> Self {
        Self {
            kind,
            redis_url: None,
            redis_ca_file: None,
            key_prefix: None,
            renewal_interval_seconds: default_renewal_interval_seconds(),
            ttl_multiplier: default_ttl_multiplier(),
        }
    }

    /// How often leases are renewed.
    pub fn renewal_interval(&self) -> Duration {
        Duration::from_secs(self.renewal_interval_seconds)
    }

    /// The section as the lease store takes it, the URL with its login included.
    pub(super) fn section(&self) -> ownership::OwnershipConfig {
        ownership::OwnershipConfig {
            kind: match self.kind {
                OwnershipType::Memory => StoreKind::Memory,
                OwnershipType::Redis => StoreKind::Redis,
            },
            redis_url: self.redis_url.as_ref().map(|url| url.expose().to_owned()),
            redis_ca_file: self.redis_ca_file.clone(),
            key_prefix: self.key_prefix.clone(),
            renewal_interval: self.renewal_interval(),
            ttl_multiplier: self.ttl_multiplier,
        }
    }
}

impl Config {
    /// Which lease store this configuration means in an environment, by the rules of [`ownership::resolve`]. Without
    /// `[ownership]` the environment decides.
    ///
    /// Errors: [`Code::Config`](crate::Code::Config) for what can't work.
    pub fn lease_store(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Resolved> {
        ownership::resolve(self.ownership.as_ref().map(OwnershipConfig::section).as_ref(), None, env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::{DEFAULT_REDIS_URL, LeaseTimes};

    #[test]
    fn defaults_are_those_of_the_store() {
        let section = OwnershipConfig::new(OwnershipType::Memory).section();
        assert_eq!(section, ownership::OwnershipConfig::default());
        let config = Config { ownership: Some(OwnershipConfig::new(OwnershipType::Redis)), ..Config::default() };
        let resolved = config.lease_store(&|_| None).unwrap();
        assert_eq!(resolved.redis_url.as_deref(), Some(DEFAULT_REDIS_URL));
        assert_eq!(resolved.times, LeaseTimes::default());
    }

    #[test]
    fn without_the_section_the_environment_decides() {
        let env = |name: &str| (name == "DEER_FLOW_STREAM_BRIDGE_REDIS_URL").then(|| "redis://bridge".to_owned());
        let mut config = Config::default();
        assert_eq!(config.lease_store(&|_| None).unwrap().redis_url, None);
        assert_eq!(config.lease_store(&env).unwrap().redis_url.as_deref(), Some("redis://bridge"));
        config.ownership = Some(OwnershipConfig::new(OwnershipType::Memory));
        assert_eq!(config.lease_store(&env).unwrap().redis_url, None);
    }
}
