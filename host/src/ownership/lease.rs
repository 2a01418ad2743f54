//! What a lease is and how long it lasts.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::ids::ProviderName;

/// One gateway instance: `<host name>:<32 hex digits>`. Two instances on one machine differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct OwnerId(String);

impl OwnerId {
    /// A new one for this process.
    ///
    /// Fails if the operating system has no randomness to give.
    pub fn generate() -> Result<Self> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random)
            .map_err(|error| Error::internal(format!("no random bytes for an owner id: {error}")))?;
        // The version and variant bits of a random UUID, as the Python system writes them.
        random[6] = (random[6] & 0x0f) | 0x40;
        random[8] = (random[8] & 0x3f) | 0x80;
        let host = rustix::system::uname();
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{}:{hex}", host.nodename().to_string_lossy())))
    }

    /// One that was read from a store, or is made up by a test.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the owner does with the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseState {
    /// It is responsible for it (`own:`).
    Owned,
    /// It is tearing it down (`del:`): nobody may take it until the lease is released or lapses.
    Destroying,
}

impl LeaseState {
    /// How the value in the store begins.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Owned => "own:",
            Self::Destroying => "del:",
        }
    }
}

/// Who holds a sandbox's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The gateway.
    pub owner: OwnerId,
    /// What for.
    pub state: LeaseState,
    /// How long it lasts unless it is renewed.
    pub left: Duration,
}

/// How long leases last and how often they are renewed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseTimes {
    renewal_interval: Duration,
    ttl: Duration,
}

impl LeaseTimes {
    /// Checks them: the interval is over zero and the multiplier at least 2, so that one missed renewal never costs a
    /// lease. The time to live is their product, at least 1 ms.
    pub fn new(renewal_interval: Duration, ttl_multiplier: f64) -> Result<Self> {
        if renewal_interval.is_zero() {
            return Err(Error::config("`renewal_interval` is zero").hint("use a time over zero, such as \"30s\""));
        }
        if !(ttl_multiplier.is_finite() && ttl_multiplier >= 2.0) {
            return Err(Error::config(format!("`ttl_multiplier` is {ttl_multiplier}"))
                .hint("use 2 or more, so that one missed renewal does not cost a lease"));
        }
        let ttl = Duration::try_from_secs_f64(renewal_interval.as_secs_f64() * ttl_multiplier)
            .map_err(|_| Error::config("`renewal_interval` times `ttl_multiplier` is too long"))?;
        // The store counts whole milliseconds.
        Ok(Self { renewal_interval, ttl: Duration::from_millis(ttl_ms(ttl)) })
    }

    /// How often a lease is renewed.
    pub fn renewal_interval(&self) -> Duration {
        self.renewal_interval
    }

    /// How long a lease lasts that nobody renews.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl Default for LeaseTimes {
    /// 30 s and 4: a lease of 120 s, as the Python system has it.
    fn default() -> Self {
        Self { renewal_interval: Duration::from_secs(30), ttl: Duration::from_secs(120) }
    }
}

/// A time to live as the store takes it: whole milliseconds, at least one.
pub(super) fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Where a provider's leases live under the deployment's prefix.
///
/// `aio` has them directly below it, where a Python gateway looks for the same containers. Every other provider has its
/// own part: two providers give one scope the same sandbox id, and one provider's lease must not stand for another's
/// sandbox.
pub fn lease_prefix(base: &str, provider: &ProviderName) -> String {
    let base = base.trim_end_matches(':');
    match provider.as_str() {
        "aio" => base.to_owned(),
        other => format!("{base}:{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_outlasts_missed_renewals() {
        let times = LeaseTimes::default();
        assert!(times.ttl() > times.renewal_interval() * 2);
        assert_eq!(LeaseTimes::new(Duration::from_secs(30), 4.0).unwrap(), times);
        for (interval, multiplier) in [(0, 4.0), (30, 1.9), (30, f64::NAN), (30, f64::INFINITY), (30, -2.0)] {
            assert!(LeaseTimes::new(Duration::from_secs(interval), multiplier).is_err(), "{interval} {multiplier}");
        }
        assert_eq!(LeaseTimes::new(Duration::from_nanos(1), 2.0).unwrap().ttl(), Duration::from_millis(1));
    }

    #[test]
    fn two_instances_of_one_machine_differ() {
        let (one, two) = (OwnerId::generate().unwrap(), OwnerId::generate().unwrap());
        assert_ne!(one, two);
        let (host, hex) = one.as_str().rsplit_once(':').unwrap();
        assert!(!host.is_empty());
        assert!(hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hex}");
    }

    #[test]
    fn providers_with_the_same_ids_keep_their_leases_apart() {
        let prefix = |name: &str| lease_prefix("deerflow:sandbox:owner:", &name.parse().unwrap());
        assert_eq!(prefix("aio"), "deerflow:sandbox:owner");
        assert_eq!(prefix("tenki"), "deerflow:sandbox:owner:tenki");
    }
}
