//! The keys that say how long a provider's sandboxes are kept, and how many there may be.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when a provider's sandboxes are as many as `replicas`. Those in use are never stopped for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CapacityPolicy {
    /// The one that has been unused for longest makes room; if all are in use, one more is made all the same.
    Soft,
    /// If all are in use, whoever comes waits for so long as `acquire_timeout_seconds`.
    Wait,
    /// If all are in use, whoever comes is refused.
    Reject,
    /// As "reject", with `burst_limit` more.
    Burst,
}

/// What becomes of a provider's sandboxes when its harness resets the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reset {
    /// Nothing.
    Nothing,
    /// All that are lent are parked; whoever used one acquires it again.
    Park,
    /// All that this gateway looks after are stopped, and it lends none of this provider any more.
    Destroy,
}

/// How long a provider's sandboxes are kept, and how many there may be. What is absent has a default, which for some
/// keys depends on the provider: `sandgate provider inspect` says whether its sandboxes are ephemeral.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LifecycleConfig {
    /// How long a sandbox that nobody uses is kept, in seconds, for its scope to take again: 0 (until the gateway shuts
    /// down) to 604800, a week.
    /// Default: 600; for ephemeral sandboxes 0.
    ///
    /// Example: `idle_timeout_seconds = 1800`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 604_800))]
    pub idle_timeout_seconds: Option<u64>,

    /// How often unused sandboxes, and those that a gateway left behind, are looked for, in seconds: 1 to 3600. Up to
    /// so much longer than `idle_timeout_seconds` does a sandbox stay.
    /// Default: 60.
    ///
    /// Example: `check_interval_seconds = 30`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub check_interval_seconds: Option<u64>,

    /// How many sandboxes there may be, used and unused: 1 to 100000. With ownership in Redis and any policy but "soft"
    /// it counts for all gateways together, else for each of them.
    /// Default: 3; for ephemeral sandboxes 256.
    ///
    /// Example: `replicas = 10`
    // More than one gateway can serve; a slip of the keyboard is noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub replicas: Option<u32>,

    /// What happens when there are so many: the one that has been unused for longest is stopped. If all are in use,
    /// with "soft" one more is made all the same, with "wait" whoever comes waits for one, with "reject" whoever comes
    /// is refused, and "burst" is as "reject" with `burst_limit` more.
    /// Default: "soft"; for ephemeral sandboxes "reject".
    ///
    /// Example: `capacity_policy = "wait"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_policy: Option<CapacityPolicy>,

    /// How many more sandboxes than `replicas` there may be: 1 to 100000. Belongs to the policy "burst", which needs it.
    /// Default: none.
    ///
    /// Example: `burst_limit = 2`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub burst_limit: Option<u32>,

    /// How long whoever comes late waits for a sandbox, in seconds: 1 to 3600. Belongs to the policy "wait".
    /// Default: 60.
    ///
    /// Example: `acquire_timeout_seconds = 30`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub acquire_timeout_seconds: Option<u64>,

    /// How long stopping a sandbox may take, in seconds: 1 to 3600. Then it counts as not stopped, and is tried again.
    /// Default: 120.
    ///
    /// Example: `stop_timeout_seconds = 30`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub stop_timeout_seconds: Option<u64>,

    /// How long making a sandbox may take, in seconds, an image's download included: 1 to 3600.
    /// Default: 600.
    ///
    /// Example: `create_timeout_seconds = 120`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub create_timeout_seconds: Option<u64>,

    /// How long running commands get to end when the gateway shuts down, in seconds: 0 to 3600.
    /// Default: 10.
    ///
    /// Example: `shutdown_grace_seconds = 30`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3600))]
    pub shutdown_grace_seconds: Option<u64>,

    /// What becomes of the sandboxes when a harness resets the gateway: "nothing", "park" (all are parked; whoever used
    /// one acquires it again) or "destroy" (all are stopped, and the gateway lends none of this provider any more).
    /// Unused ephemeral sandboxes end at a reset in any case.
    /// Default: "nothing".
    ///
    /// Example: `reset = "park"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
}

impl LifecycleConfig {
    /// Whether every key is absent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How long whoever comes late waits, with the policy "wait".
    pub fn acquire_timeout(&self) -> Duration {
        // An agent's turn can stand a minute; most commands are done in less.
        Duration::from_secs(self.acquire_timeout_seconds.unwrap_or(60))
    }

    /// How long running commands get to end at a shutdown.
    pub fn shutdown_grace(&self) -> Duration {
        // What service managers and container engines commonly wait before they kill.
        Duration::from_secs(self.shutdown_grace_seconds.unwrap_or(10))
    }
}
