//! How many sandboxes there may be, counted on this gateway and, for a hard limit of a deployment, in its ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::manager::Inner;
use crate::error::{Code, Error, Result};
use crate::ids::SandboxId;
use crate::ownership::Admission;

/// How often a waiter looks again even if nobody woke it: what an eviction needs may change without a release here.
const WAIT_TICK: Duration = Duration::from_secs(1);

/// What happens when the provider's sandboxes are many. Active ones are never evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityPolicy {
    /// From so many on, each new sandbox first evicts the oldest parked one; if there is none it is made all the same.
    Soft {
        /// Active and parked ones.
        replicas: u32,
    },
    /// Never more; who comes late waits for so long.
    Wait {
        /// Active, parked, being made and not certainly gone.
        limit: u32,
        /// Then the acquire fails.
        timeout: Duration,
    },
    /// Never more; who comes late is refused at once.
    Reject {
        /// As in [`Wait`](Self::Wait).
        limit: u32,
    },
    /// As [`Reject`](Self::Reject), with some room on top.
    Burst {
        /// As in [`Wait`](Self::Wait).
        limit: u32,
        /// So many more.
        extra: u32,
    },
}

impl Default for CapacityPolicy {
    fn default() -> Self {
        Self::Soft { replicas: 3 }
    }
}

impl CapacityPolicy {
    pub(super) fn check(self) -> Result<()> {
        let (limit, key) = match self {
            Self::Soft { replicas } => (replicas, "replicas"),
            Self::Wait { limit, .. } | Self::Reject { limit } | Self::Burst { limit, .. } => (limit, "limit"),
        };
        if limit == 0 {
            return Err(
                Error::config(format!("`{key}` is zero, so that no sandbox could ever be made")).hint("use 1 or more")
            );
        }
        Ok(())
    }

    /// The most there may ever be; none: no such number.
    pub fn hard_limit(self) -> Option<u32> {
        match self {
            Self::Soft { .. } => None,
            Self::Wait { limit, .. } | Self::Reject { limit } => Some(limit),
            Self::Burst { limit, extra } => Some(limit.saturating_add(extra)),
        }
    }
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// Every place is taken and nothing could be evicted.
    Full,
    /// Nothing became free in time.
    TimedOut,
    /// The deployment's sandboxes have not been counted yet.
    Initializing,
    /// The deployment's count can't be read.
    Backend,
    /// The gateway shuts down.
    ShuttingDown,
}

/// A full house, as a caller may want to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// The limit that was reached.
    pub limit: u32,
    /// When trying again makes sense.
    pub retry_after: Duration,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, limit, retry_after } = refusal;
        let (code, message) = match reason {
            RefusalReason::Full => (Code::Capacity, format!("all {limit} sandboxes of this provider are in use")),
            RefusalReason::TimedOut => {
                (Code::Capacity, format!("timed out waiting for one of this provider's {limit} sandboxes"))
            }
            RefusalReason::Initializing => (
                Code::CapacityInitializing,
                format!("the deployment's sandboxes are not counted yet, and {limit} is their limit"),
            ),
            RefusalReason::Backend => (
                Code::CapacityBackend,
                format!("the deployment's sandboxes can't be counted, and {limit} is their limit"),
            ),
            RefusalReason::ShuttingDown => (Code::ShuttingDown, "the gateway is shutting down".to_owned()),
        };
        let hint = match reason {
            RefusalReason::Full | RefusalReason::TimedOut => "release a sandbox, or raise the provider's limit",
            RefusalReason::Initializing => "try again in a moment; the first inventory is under way",
            RefusalReason::Backend => "check Redis, and that all gateways have the same limit",
            RefusalReason::ShuttingDown => "try again on another gateway, or in half a minute",
        };
        Self::new(code, message).hint(hint).retry_after_ms(u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct Count {
    used: Mutex<u32>,
    changed: Notify,
}

/// One taken place; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    count: Arc<Count>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.count.used.lock() -= 1;
        self.count.changed.notify_waiters();
    }
}

#[derive(Debug)]
pub(super) struct Capacity {
    policy: CapacityPolicy,
    tokens: AtomicU64,
    count: Arc<Count>,
}

impl Capacity {
    pub(super) fn new(policy: CapacityPolicy) -> Self {
        Self {
            policy,
            tokens: AtomicU64::new(0),
            count: Arc::new(Count { used: Mutex::new(0), changed: Notify::new() }),
        }
    }

    pub(super) fn used(&self) -> u32 {
        *self.count.used.lock()
    }

    /// Wakes those who wait: something became evictable, or the gateway shuts down.
    pub(super) fn ring(&self) {
        self.count.changed.notify_waiters();
    }

    /// A name for one reservation, unlike any other of the deployment.
    fn token(&self, owner: &str) -> String {
        format!("{owner}:{}", self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    fn permit(&self, below: u32) -> Option<Permit> {
        let mut used = self.count.used.lock();
        if *used >= below {
            return None;
        }
        *used += 1;
        Some(Permit { count: Arc::clone(&self.count) })
    }

    /// A place for a sandbox that exists already. With a hard limit there may be none.
    pub(super) fn admit(&self) -> Result<Permit, Refusal> {
        let limit = self.policy.hard_limit();
        self.permit(limit.unwrap_or(u32::MAX)).ok_or_else(|| self.refusal(RefusalReason::Full))
    }

    fn refusal(&self, reason: RefusalReason) -> Refusal {
        let retry_after = match reason {
            RefusalReason::Full | RefusalReason::TimedOut | RefusalReason::Initializing | RefusalReason::Backend => {
                WAIT_TICK * 5
            }
            RefusalReason::ShuttingDown => Duration::from_secs(30),
        };
        Refusal { reason, limit: self.policy.hard_limit().unwrap_or(u32::MAX), retry_after }
    }
}

/// A place for a sandbox that does not exist yet.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) permit: Permit,
    /// Its reservation in the deployment's count.
    pub(super) token: Option<String>,
}

impl Inner {
    /// A place for a new sandbox. Evicts parked ones, and waits if the policy says so.
    pub(super) async fn reserve(self: &Arc<Self>) -> Result<Place, Refusal> {
        // One token for all attempts: asking again after a lost answer must not take a second place.
        let token = self.ledger.is_some().then(|| self.capacity.token(self.store.me().as_str()));
        let permit = self.reserve_with(token.as_deref()).await?;
        Ok(Place { permit, token })
    }

    /// A place on this gateway for a sandbox that exists already, and that the deployment counts anyway.
    pub(super) async fn reserve_here(self: &Arc<Self>) -> Result<Permit, Refusal> {
        self.reserve_with(None).await
    }

    async fn reserve_with(self: &Arc<Self>, token: Option<&str>) -> Result<Permit, Refusal> {
        let capacity = &self.capacity;
        if let CapacityPolicy::Soft { replicas } = capacity.policy {
            if capacity.used() >= replicas && !self.evict_oldest().await {
                tracing::warn!(
                    provider = %self.provider, replicas, used = capacity.used(),
                    "more sandboxes than `replicas`: all are in use and none can be evicted"
                );
            }
            return capacity.admit();
        }
        let deadline = match capacity.policy {
            CapacityPolicy::Wait { timeout, .. } => Some(self.runtime.now() + timeout),
            _ => None,
        };
        let mut counted = !self.visiting.load(Ordering::Acquire);
        loop {
            // Listens before it looks, so that no release between the two is missed.
            let mut changed = std::pin::pin!(capacity.count.changed.notified());
            changed.as_mut().enable();
            if self.is_closing() {
                return Err(capacity.refusal(RefusalReason::ShuttingDown));
            }
            let mut refusal = match self.place(token).await {
                Ok(permit) => return Ok(permit),
                Err(refusal) => refusal,
            };
            // Where nobody reconciles, nobody else counts what came and went.
            let stale =
                matches!(refusal.reason, RefusalReason::Initializing | RefusalReason::Full) && self.ledger.is_some();
            if stale && !counted && self.count_now().await {
                match self.place(token).await {
                    Ok(permit) => return Ok(permit),
                    Err(again) => refusal = again,
                }
            }
            counted |= stale;
            if refusal.reason == RefusalReason::Full && self.evict_oldest().await {
                // Someone else may have been faster; then the next round evicts again or waits.
                match self.place(token).await {
                    Ok(permit) => return Ok(permit),
                    Err(again) => refusal = again,
                }
            }
            let Some(deadline) = deadline else { return Err(refusal) };
            let left = deadline.saturating_sub(self.runtime.now());
            if left.is_zero() {
                let full = refusal.reason == RefusalReason::Full;
                return Err(if full { capacity.refusal(RefusalReason::TimedOut) } else { refusal });
            }
            match select(self.runtime.sleep(left.min(WAIT_TICK)), changed).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }

    /// One attempt: a place here, and one in the deployment's count.
    async fn place(&self, token: Option<&str>) -> Result<Permit, Refusal> {
        let permit = self.capacity.admit()?;
        let (Some(ledger), Some(token)) = (&self.ledger, token) else { return Ok(permit) };
        let reason = match ledger.reserve(token).await {
            Ok(Admission::Granted) => return Ok(permit),
            Ok(Admission::Full) => RefusalReason::Full,
            Ok(Admission::NotReady) => RefusalReason::Initializing,
            Err(error) => {
                tracing::warn!(provider = %self.provider, %error, "no place for a new sandbox");
                RefusalReason::Backend
            }
        };
        Err(self.capacity.refusal(reason))
    }

    /// Gives back the place of a sandbox that was certainly not made. If that fails, a reconciliation finds out.
    pub(super) async fn unreserve(&self, token: Option<&str>) {
        if let (Some(ledger), Some(token)) = (&self.ledger, token)
            && let Err(error) = ledger.unreserve(token).await
        {
            tracing::warn!(provider = %self.provider, %error, "its place in the shared count is freed later");
        }
    }

    /// Notes in the deployment's count that a sandbox is certainly gone. If that fails, a reconciliation finds out.
    pub(super) async fn uncount(&self, id: &SandboxId) {
        if let Some(ledger) = &self.ledger
            && let Err(error) = ledger.release(id).await
        {
            tracing::warn!(provider = %self.provider, sandbox = %id, %error, "its place in the shared count is freed later");
        }
    }
}
