//! How one provider's sandboxes are kept.

use std::time::Duration;

use super::capacity::CapacityPolicy;
use crate::error::{Error, Result};
use crate::ownership::LeaseTimes;

/// How long each step at a backend may take before it counts as unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Making a sandbox, with its image pulled and its readiness awaited.
    pub create: Duration,
    /// Looking one up.
    pub find: Duration,
    /// Asking whether one lives. Short, so that a hung sandbox can't hold up the acquire that asks.
    pub probe: Duration,
    /// Stopping one.
    pub stop: Duration,
    /// Pushing a backend's own end out.
    pub extend: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            // A cold pull of a large image takes minutes.
            create: Duration::from_secs(600),
            find: Duration::from_secs(30),
            probe: Duration::from_secs(10),
            // What a container engine needs at worst to end a stubborn container.
            stop: Duration::from_secs(120),
            extend: Duration::from_secs(15),
        }
    }
}

/// How much one reconciliation may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconcileBudget {
    /// Pages to list.
    pub max_pages: usize,
    /// Sandboxes to list.
    pub max_items: usize,
    /// Time for the listing.
    pub max_time: Duration,
    /// How long a duplicate must have been seen before it is stopped. A lease's time to live is the least.
    pub duplicate_grace: Duration,
}

impl Default for ReconcileBudget {
    fn default() -> Self {
        Self {
            max_pages: 10,
            max_items: 1000,
            max_time: Duration::from_secs(15),
            duplicate_grace: Duration::from_secs(120),
        }
    }
}

/// What [`Lifecycle::reset`](super::Lifecycle::reset) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResetPolicy {
    /// Nothing.
    #[default]
    Nothing,
    /// Park what is active; whoever used it acquires it again.
    Park,
    /// Stop everything that is ours and refuse further acquires.
    DestroyAll,
}

/// One provider's lifecycle policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How long leases last and how often they are renewed.
    pub lease: LeaseTimes,
    /// A sandbox that nobody used for longer is stopped; zero: only a shutdown stops it.
    pub idle_timeout: Duration,
    /// How often idle sandboxes and orphans are looked for.
    pub check_interval: Duration,
    /// How many sandboxes there may be.
    pub capacity: CapacityPolicy,
    /// Step deadlines.
    pub deadlines: Deadlines,
    /// What one reconciliation may do.
    pub reconcile: ReconcileBudget,
    /// What a reset does.
    pub reset: ResetPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: LeaseTimes::default(),
            idle_timeout: Duration::from_secs(600),
            check_interval: Duration::from_secs(60),
            capacity: CapacityPolicy::default(),
            deadlines: Deadlines::default(),
            reconcile: ReconcileBudget::default(),
            reset: ResetPolicy::default(),
        }
    }
}

impl Settings {
    /// Refuses what can't work.
    pub fn check(&self) -> Result<()> {
        if self.check_interval.is_zero() {
            return Err(Error::config("`check_interval` is zero").hint("use a time over zero, such as \"60s\""));
        }
        self.capacity.check()
    }

    /// How far a backend's own end is pushed out: past the moment at which we would stop it ourselves.
    pub(super) fn remote_timeout(&self) -> Duration {
        // With no idle timeout a sandbox lives as long as its gateway does; a day at a time is what backends accept.
        const DAY: Duration = Duration::from_secs(24 * 3600);
        if self.idle_timeout.is_zero() { DAY } else { (self.idle_timeout + self.check_interval * 2).min(DAY) }
    }
}
