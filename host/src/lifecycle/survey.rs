//! What there is of a provider's sandboxes, here and at the backend, and stopping one of them by its id.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt};

use super::backend::{Instance, Item};
use super::manager::{Inner, Lifecycle};
use super::slot::{Origin, Phase, Slot, Tenancy};
use super::status::SandboxStatus;
use super::teardown::{Force, Stopped};
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::ownership::Lease;
use crate::runtime::within;

/// Leases asked for at once.
const CONCURRENCY: usize = 64;

/// How much longer than a reconciliation a look at the whole list may be, in pages: somebody waits for the answer, and a
/// reconciliation that never sees the end of the list could not count either.
const WHOLE_LIST: usize = 100;

/// What is known of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighted {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is, if that is known.
    pub scope: Option<Scope>,
    /// How many of this id the backend lists; more than one is a fault that reconciliation mends.
    pub listed: usize,
    /// When it was made, in milliseconds since 1970, if the backend says.
    pub created_ms: Option<u64>,
    /// Which gateway looks after it; none: nobody, as far as this gateway sees.
    pub lease: Option<Lease>,
    /// Why its lease can't be read; then nobody knows who looks after it.
    pub unreadable: Option<String>,
    /// What this gateway does with it; none: it does not have it.
    pub here: Option<SandboxStatus>,
}

/// What is known of a provider's sandboxes, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The sandboxes.
    pub sandboxes: Vec<Sighted>,
    /// Whether the backend was asked, and its list was whole. If not, there may be more.
    pub complete: bool,
}

impl Lifecycle {
    /// Looks at all sandboxes: this gateway's own, those that the backend lists, and their leases. Changes nothing.
    ///
    /// Errors: what the backend says when it is asked for its list; `lease-store-down`.
    pub async fn survey(&self) -> Result<Survey> {
        let inner = &self.inner;
        let mut found: BTreeMap<SandboxId, Sighted> = BTreeMap::new();
        let sighted = |id: &SandboxId| Sighted {
            id: id.clone(),
            scope: None,
            listed: 0,
            created_ms: None,
            lease: None,
            unreadable: None,
            here: None,
        };
        let (items, complete) =
            if inner.features.listable { inner.list_all().await? } else { (Vec::new(), inner.features.ephemeral) };
        for Item { instance, created_ms } in items {
            let entry = found.entry(instance.id.clone()).or_insert_with(|| sighted(&instance.id));
            entry.listed += 1;
            entry.scope = entry.scope.take().or(instance.scope);
            entry.created_ms = entry.created_ms.into_iter().chain(created_ms).min();
        }
        for status in self.list() {
            let entry = found.entry(status.id.clone()).or_insert_with(|| sighted(&status.id));
            entry.scope = entry.scope.take().or_else(|| status.scope.clone());
            entry.here = Some(status);
        }
        let mut sandboxes: Vec<Sighted> = found.into_values().collect();
        if !inner.features.ephemeral {
            let leases: Vec<Result<Option<Lease>>> =
                stream::iter(sandboxes.iter().map(|sighted| inner.store.owner(&sighted.id)))
                    .buffered(CONCURRENCY)
                    .collect()
                    .await;
            // One that can't be read hides no other; a store that is away has none to show.
            if leases.iter().all(Result::is_err)
                && let Some(Err(error)) = leases.first()
            {
                return Err(error.clone());
            }
            for (sighted, lease) in sandboxes.iter_mut().zip(leases) {
                match lease {
                    Ok(lease) => sighted.lease = lease,
                    Err(error) => sighted.unreadable = Some(error.message().to_owned()),
                }
            }
        }
        Ok(Survey { sandboxes, complete })
    }

    /// What is known of one sandbox: as in a survey, or, where the backend can't list, as it finds it for `scope`.
    ///
    /// Errors: as [`survey`](Self::survey).
    pub async fn look_up(&self, id: &SandboxId, scope: Option<&Scope>) -> Result<Option<Sighted>> {
        let survey = self.survey().await?;
        if let Some(sighted) = survey.sandboxes.into_iter().find(|sighted| sighted.id == *id) {
            return Ok(Some(sighted));
        }
        let found = self.inner.seek(id, scope).await?;
        let Some(instance) = found.into_iter().next() else { return Ok(None) };
        Ok(Some(Sighted {
            id: instance.id,
            scope: instance.scope,
            listed: 1,
            created_ms: None,
            lease: self.inner.store.owner(id).await?,
            unreadable: None,
            here: None,
        }))
    }

    /// Stops every sandbox of an id that this gateway has or the backend lists (or, where it can't list, finds for
    /// `scope`), in use or not. One that a peer owns is left alone, unless it is to be taken over (`take_over`): whoever
    /// uses it there loses it.
    ///
    /// Errors: as [`destroy`](Self::destroy); `unavailable` if the backend's list was not whole and lacks the id.
    pub async fn destroy_anywhere(&self, id: &SandboxId, scope: Option<&Scope>, take_over: bool) -> Result<Stopped> {
        if self.list().iter().any(|status| status.id == *id) {
            let stopped = self.destroy(id, true).await?;
            if stopped != Stopped::NotHere {
                return Ok(stopped);
            }
        }
        let instances = self.inner.seek(id, scope).await?;
        let mut outcome = Stopped::NotHere;
        for instance in instances {
            outcome = self.inner.stop_stranger(instance, take_over).await?;
            if outcome == Stopped::Refused {
                break;
            }
        }
        Ok(outcome)
    }
}

impl Inner {
    /// All that the backend lists, within a bound of pages; false if there is more.
    pub(super) async fn list_all(&self) -> Result<(Vec<Item>, bool)> {
        let budget = &self.settings.reconcile;
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..budget.max_pages.saturating_mul(WHOLE_LIST) {
            let page = self.backend.inventory(cursor);
            let page = within(&*self.runtime, budget.max_time, "the backend's list", page).await?;
            items.extend(page.items);
            if page.next.is_none() {
                return Ok((items, true));
            }
            cursor = page.next;
        }
        Ok((items, false))
    }

    /// The backend's sandboxes of an id.
    async fn seek(&self, id: &SandboxId, scope: Option<&Scope>) -> Result<Vec<Instance>> {
        let mut more = false;
        if self.features.listable {
            let (items, complete) = self.list_all().await?;
            let found: Vec<_> =
                items.into_iter().map(|item| item.instance).filter(|instance| instance.id == *id).collect();
            if let Some(scope) = scope {
                found.iter().try_for_each(|instance| Self::check_identity(instance, scope))?;
            }
            if !found.is_empty() || complete {
                return Ok(found);
            }
            more = true;
        }
        let Some(scope) = scope.filter(|_| self.features.findable) else {
            if more {
                return Err(Error::unavailable(format!(
                    "provider {} lists more sandboxes than are read at once, and {id} is not among the first",
                    self.provider
                ))
                .hint("name its user and thread instead of its id"));
            }
            return Ok(Vec::new());
        };
        let wanted = self.prepare(id, scope).await?;
        let find = self.backend.find(&wanted);
        let record = within(&*self.runtime, self.settings.deadlines.find, "the lookup", find).await?;
        Ok(record.into_iter().map(|record| wanted.clone().found(record)).collect())
    }

    /// Stops what is not in our books, under a claim like any other.
    async fn stop_stranger(self: &Arc<Self>, instance: Instance, take_over: bool) -> Result<Stopped> {
        let slot = self.slot(&instance.id);
        let turn = slot.enter(&self.guards).await;
        let stopped = self.stop_stranger_in(&slot, instance, take_over).await;
        drop(turn);
        self.tidy(slot);
        stopped
    }

    async fn stop_stranger_in(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        instance: Instance,
        take_over: bool,
    ) -> Result<Stopped> {
        if !matches!(slot.state.lock().phase, Phase::Vacant) {
            return self.teardown(slot, Force::Always).await;
        }
        if take_over && !self.take(&slot.id).await? {
            return Err(self.being_destroyed(&slot.id));
        }
        let tenancy = Arc::new(Tenancy { instance, origin: Origin::Found, doomed: false });
        slot.state.lock().move_to(Phase::Warm(tenancy, self.runtime.now()));
        let stopped = self.teardown(slot, Force::Always).await;
        if matches!(stopped, Ok(Stopped::Refused)) || (stopped.is_err() && !take_over) {
            // Not ours, or nobody knows: it was never in our books. A stop that may still land keeps its marker.
            self.forget(slot, "it is not ours to stop");
            if let Err(error) = &stopped
                && error.code() != Code::Timeout
                && let Err(error) = self.store.release(&slot.id).await
            {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its lease stays until it lapses");
            }
        }
        stopped
    }
}
