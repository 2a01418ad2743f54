//! Comparing our books with what the backend has: adopting what nobody owns, dropping what is gone, stopping doubles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::backend::{Instance, Item};
use super::guards::Guard;
use super::manager::{Inner, Lifecycle};
use super::slot::{Origin, Phase, Slot, Tenancy};
use crate::error::Result;
use crate::ids::SandboxId;
use crate::instance::{InstanceRecord, Liveness};
use crate::ownership::{Applied, Purpose};
use crate::runtime::within;

/// The least time for which the deployment's count keeps what an inventory lacks: a create may be under way for so long.
const LEDGER_MIN_AGE: Duration = Duration::from_secs(120);

/// What one reconciliation saw and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReconcileReport {
    /// Sandboxes that the backend listed.
    pub listed: usize,
    /// The list was whole; if not, nothing was concluded from what it lacks.
    pub complete: bool,
    /// Adopted into the pool.
    pub adopted: usize,
    /// Unowned, but not to be adopted yet: the grace runs, or there is no room.
    pub deferred: usize,
    /// Nobody can say whose they are: the lease store did not answer, or its answer can't be read.
    pub unknown: usize,
    /// Ours, not listed and certainly dead: dropped.
    pub dead: usize,
    /// Second sandboxes of an id that were stopped.
    pub duplicates: usize,
}

/// A first sighting that later ones must confirm.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    since: Duration,
    last: Duration,
}

/// What earlier reconciliations saw.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    unowned: BTreeMap<SandboxId, Sighting>,
    duplicates: BTreeMap<(SandboxId, InstanceRecord), Sighting>,
    /// Where the next listing goes on, if the last one ran out of its budget.
    resume: Option<String>,
}

/// Notes a sighting and says for how long it has been so. One that was not confirmed for longer than `gap` begins anew:
/// nobody knows what happened in between.
fn seen<K: Ord>(sightings: &mut BTreeMap<K, Sighting>, key: K, now: Duration, gap: Duration) -> Duration {
    let sighting = sightings.entry(key).or_insert(Sighting { since: now, last: now });
    if now.saturating_sub(sighting.last) > gap {
        sighting.since = now;
    }
    sighting.last = now;
    now.saturating_sub(sighting.since)
}

/// What we had before the listing began.
struct Known {
    slot: Arc<Slot>,
    version: u64,
    tenancy: Option<Arc<Tenancy>>,
}

impl Lifecycle {
    /// Reconciles once. An error means that the backend could not be asked at all; nothing was done then.
    pub async fn reconcile(&self) -> Result<ReconcileReport> {
        self.inner.reconcile().await
    }
}

impl Inner {
    pub(super) async fn reconcile(self: &Arc<Self>) -> Result<ReconcileReport> {
        let started = self.runtime.now();
        let known: BTreeMap<SandboxId, Known> = self
            .all_slots()
            .into_iter()
            .map(|slot| {
                let state = slot.state.lock();
                let (version, tenancy) = (state.version, state.phase.settled().cloned());
                drop(state);
                (slot.id.clone(), Known { slot, version, tenancy })
            })
            .collect();
        let revision = self.ledger_revision().await;
        let (items, complete) = self.list(started).await?;
        if complete || self.ledger.is_none() {
            self.recount(revision, &items, complete).await;
        } else {
            // Parts of a long list, minutes apart, are no count.
            self.count_now().await;
        }
        let mut report = ReconcileReport { listed: items.len(), complete, ..ReconcileReport::default() };
        let mut groups: BTreeMap<SandboxId, Vec<Item>> = BTreeMap::new();
        for item in items {
            groups.entry(item.instance.id.clone()).or_default().push(item);
        }
        if complete {
            for (_, known) in known.iter().filter(|(id, _)| !groups.contains_key(*id)) {
                report.dead += usize::from(self.check_vanished(known).await);
            }
        }
        self.forget_sightings(&groups, complete);
        for (id, mut items) in groups {
            if self.is_closing() {
                break;
            }
            items.sort_by(|a, b| (a.created_ms, &a.instance.record).cmp(&(b.created_ms, &b.instance.record)));
            match known.get(&id) {
                Some(Known { slot, version, tenancy: Some(tenancy) }) => {
                    self.sightings.lock().unowned.remove(&id);
                    report.duplicates += self.stop_duplicates(slot, *version, tenancy, &items).await;
                }
                known => {
                    let version = known.map(|known| known.version);
                    match self.adopt(&id, version, items).await {
                        Adoption::Done => report.adopted += 1,
                        Adoption::Deferred => report.deferred += 1,
                        Adoption::Unknown => report.unknown += 1,
                        Adoption::NotOurs => {}
                    }
                }
            }
        }
        for (_, known) in known {
            self.tidy(known.slot);
        }
        Ok(report)
    }

    /// Where the deployment's count stood before the inventory began.
    async fn ledger_revision(&self) -> Option<u64> {
        match self.ledger.as_ref()?.revision().await {
            Ok(revision) => Some(revision),
            Err(error) => {
                tracing::warn!(provider = %self.provider, %error, "the shared count is not compared this time");
                None
            }
        }
    }

    /// Counts the deployment's sandboxes for its ledger, and does nothing else. False: they could not all be listed.
    pub(super) async fn count_now(&self) -> bool {
        let revision = self.ledger_revision().await;
        match self.list_all().await {
            Ok((items, complete)) => {
                self.recount(revision, &items, complete).await;
                complete
            }
            Err(error) => {
                tracing::warn!(provider = %self.provider, %error, "the deployment's sandboxes can't be counted");
                false
            }
        }
    }

    async fn recount(&self, revision: Option<u64>, items: &[Item], complete: bool) {
        let (Some(ledger), Some(revision)) = (&self.ledger, revision) else { return };
        let mut ids: Vec<SandboxId> = items.iter().map(|item| item.instance.id.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let age = (self.settings.lease.ttl() + self.settings.reconcile.duplicate_grace).max(LEDGER_MIN_AGE);
        match ledger.reconcile(revision, &ids, complete, age).await {
            Ok(Applied::Yes) => self.capacity.ring(),
            // Sandboxes came or went meanwhile. The next inventory may be luckier, and nothing is wrong till then.
            Ok(Applied::Stale) => {}
            Err(error) => {
                tracing::warn!(provider = %self.provider, %error, "the shared count is not compared this time")
            }
        }
    }

    /// The inventory within its budgets, and whether it is whole.
    async fn list(&self, started: Duration) -> Result<(Vec<Item>, bool)> {
        let budget = &self.settings.reconcile;
        let mut cursor = self.sightings.lock().resume.take();
        let from_the_start = cursor.is_none();
        let mut items = Vec::new();
        for _ in 0..budget.max_pages {
            let left = (started + budget.max_time).saturating_sub(self.runtime.now());
            let page = within(&*self.runtime, left, "the inventory", self.backend.inventory(cursor.clone())).await;
            let page = match page {
                Ok(page) => page,
                Err(error) if items.is_empty() => return Err(error.context("the backend's sandboxes can't be listed")),
                Err(error) => {
                    tracing::warn!(provider = %self.provider, %error, "only a part of the backend's sandboxes was listed");
                    return Ok((items, false));
                }
            };
            items.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Ok((items, from_the_start));
            }
            if items.len() >= budget.max_items {
                break;
            }
        }
        // The rest comes next time, so that the end of a long list is seen too.
        self.sightings.lock().resume = cursor;
        Ok((items, false))
    }

    /// Drops sightings of what is not there any more, or was not seen for so long that it would begin anew anyway.
    fn forget_sightings(&self, groups: &BTreeMap<SandboxId, Vec<Item>>, complete: bool) {
        let (now, gap) = (self.runtime.now(), self.settings.lease.ttl());
        let mut sightings = self.sightings.lock();
        let keep =
            |id: &SandboxId, last: Duration| groups.contains_key(id) || (!complete && now.saturating_sub(last) <= gap);
        sightings.unowned.retain(|id, sighting| keep(id, sighting.last));
        sightings.duplicates.retain(|(id, _), sighting| keep(id, sighting.last));
    }

    /// Something of ours that the whole inventory lacks. It is asked about only because it is missing: a parked
    /// sandbox that is there is never probed, which could push its end out.
    async fn check_vanished(self: &Arc<Self>, known: &Known) -> bool {
        let Known { slot, version, tenancy: Some(tenancy) } = known else { return false };
        let Some(_turn) = slot.try_enter(&self.guards) else { return false };
        if slot.state.lock().version != *version {
            return false;
        }
        let probe = self.backend.probe(&tenancy.instance);
        match within(&*self.runtime, self.settings.deadlines.probe, "the probe", probe).await {
            Ok(Liveness::Dead) => {
                self.drop_dead(slot).await;
                true
            }
            Ok(Liveness::Alive) | Err(_) => false,
        }
    }

    /// Whether nobody has owned it for a whole time to live. A store without peers can't show a lease of theirs, so
    /// that there is nothing to wait for.
    async fn adoptable(&self, id: &SandboxId) -> Result<(), Adoption> {
        if !self.store.sees_peers() {
            return Ok(());
        }
        let owner = self.store.owner(id).await;
        match owner {
            Ok(None) => {
                let ttl = self.settings.lease.ttl();
                // A missed look or two could have missed an owner.
                let gap = self.settings.check_interval * 2;
                let unowned = seen(&mut self.sightings.lock().unowned, id.clone(), self.runtime.now(), gap);
                if unowned >= ttl || !self.guards.hold(Guard::AdoptionGrace) {
                    return Ok(());
                }
                Err(Adoption::Deferred)
            }
            // A live owner published it again, or may have: the grace begins anew when that one is gone.
            Ok(Some(_)) | Err(_) => {
                self.sightings.lock().unowned.remove(id);
                if let Err(error) = owner {
                    tracing::warn!(provider = %self.provider, sandbox = %id, %error, "its lease is unknown; trying again");
                    return Err(Adoption::Unknown);
                }
                Err(Adoption::NotOurs)
            }
        }
    }

    async fn adopt(self: &Arc<Self>, id: &SandboxId, version: Option<u64>, items: Vec<Item>) -> Adoption {
        if let Err(not_yet) = self.adoptable(id).await {
            return not_yet;
        }
        let slot = self.slot(id);
        let adoption = match slot.try_enter(&self.guards) {
            Some(_turn) => self.adopt_in(&slot, version, items).await,
            None => Adoption::NotOurs,
        };
        self.tidy(slot);
        adoption
    }

    /// The caller holds the slot's lock.
    async fn adopt_in(self: &Arc<Self>, slot: &Arc<Slot>, version: Option<u64>, items: Vec<Item>) -> Adoption {
        {
            let state = slot.state.lock();
            // It was acquired or stopped here since the listing began: what the list says of it is old.
            if !matches!(state.phase, Phase::Vacant) || version.unwrap_or(0) != state.version {
                return Adoption::NotOurs;
            }
        }
        let Ok(permit) = self.capacity.admit() else { return Adoption::Deferred };
        match self.store.claim(&slot.id, Purpose::Keep).await {
            Ok(true) => {}
            Ok(false) => return Adoption::NotOurs,
            Err(_) => return Adoption::Unknown,
        }
        self.sightings.lock().unowned.remove(&slot.id);
        // If none lives, our lease lapses by itself.
        let Some(instance) = self.choose(items).await else { return Adoption::Deferred };
        let mut state = slot.state.lock();
        state.permit = Some(permit);
        state.move_to(Phase::Warm(
            Arc::new(Tenancy { instance, origin: Origin::Found, doomed: false }),
            self.runtime.now(),
        ));
        drop(state);
        tracing::info!(provider = %self.provider, sandbox = %slot.id, "adopted a sandbox that nobody owned");
        self.capacity.ring();
        Adoption::Done
    }

    /// The only one, unasked; of several the first that lives.
    async fn choose(&self, items: Vec<Item>) -> Option<Instance> {
        let several = items.len() > 1;
        for item in items {
            if !several {
                return Some(item.instance);
            }
            let probe = self.backend.probe(&item.instance);
            let alive = within(&*self.runtime, self.settings.deadlines.probe, "the probe", probe).await;
            if matches!(alive, Ok(Liveness::Alive)) {
                return Some(item.instance);
            }
        }
        None
    }

    /// Stops further sandboxes of an id that we have, once their grace is over. The whole id is marked for that time,
    /// so that no peer finds and takes one of them. Only where the backend lists ours in the very words in which we know
    /// it is anything else a duplicate: a provider whose words vary must not cost a user the sandbox in use.
    async fn stop_duplicates(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        version: u64,
        tenancy: &Arc<Tenancy>,
        items: &[Item],
    ) -> usize {
        let ours = &tenancy.instance.record;
        if items.len() < 2 || !items.iter().any(|item| item.instance.record == *ours) {
            return 0;
        }
        let ttl = self.settings.lease.ttl();
        let grace = self.settings.reconcile.duplicate_grace.max(ttl);
        let now = self.runtime.now();
        let due: Vec<&Item> = {
            let sightings = &mut self.sightings.lock().duplicates;
            let others = items.iter().filter(|item| item.instance.record != *ours);
            others
                .filter(|item| {
                    let key = (slot.id.clone(), item.instance.record.clone());
                    seen(sightings, key, now, grace) >= grace
                })
                .collect()
        };
        if due.is_empty() {
            return 0;
        }
        let Some(_turn) = slot.try_enter(&self.guards) else { return 0 };
        let version_now = slot.state.lock().version;
        if version_now != version || !matches!(self.claim_for_stop(&slot.id).await, Ok(true)) {
            return 0;
        }
        let mut stopped = 0;
        for item in due {
            match self.stop_held(&slot.id, &item.instance, false).await {
                Ok(()) => {
                    stopped += 1;
                    tracing::warn!(provider = %self.provider, sandbox = %slot.id, "stopped a second sandbox of the same id");
                }
                Err(error) => {
                    tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "a second sandbox of the same id was not stopped");
                }
            }
            // Each stop gives the claim back at its end; one more only under a new one.
            if !matches!(self.claim_for_stop(&slot.id).await, Ok(true)) {
                break;
            }
        }
        if let Err(error) = self.store.release(&slot.id).await {
            tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its teardown marker stays until renewal clears it");
        }
        // Back to an ordinary lease; if a peer was faster, it is lost like any other.
        self.refresh(slot, version_now).await;
        stopped
    }
}

enum Adoption {
    Done,
    Deferred,
    Unknown,
    NotOurs,
}
