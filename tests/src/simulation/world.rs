//! What is true in the simulated world, whoever knows it, and what must never happen there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandgate::ids::SandboxId;
use sandgate::lifecycle::{Lifecycle, PhaseName};
use sandgate::ownership::{LeaseState, LeaseTable, OwnerId};

use super::executor::{Executor, lock};
use super::random::Random;

/// One renewal in ten seconds and a lease of forty: a lease outlasts two renewals that fail in a row.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);
pub(crate) const TTL: Duration = Duration::from_secs(40);
pub(crate) const IDLE: Duration = Duration::from_secs(25);
pub(crate) const CHECK: Duration = Duration::from_secs(9);

/// A sandbox at the backend.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) id: SandboxId,
    pub(crate) alive: bool,
    /// The stop that ended it; none if it lives or died by itself.
    pub(crate) stopped: Option<Stop>,
}

/// A stop that a backend is carrying out.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) gateway: usize,
    pub(crate) id: SandboxId,
    /// When it was claimed.
    pub(crate) since: Duration,
}

/// One life of a gateway, from its start to its crash.
pub(crate) struct Life {
    pub(crate) name: OwnerId,
    pub(crate) alive: bool,
    pub(crate) lifecycle: Option<Lifecycle>,
    /// Until when the store can't be reached.
    pub(crate) cut_off_until: Duration,
    /// When it was last unable to do its duties: paused, cut off, or let down by the store twice in a row.
    pub(crate) troubled_until: Duration,
    last_store_fault: Option<Duration>,
    /// Store operations under way, by sandbox.
    pub(crate) pending: BTreeMap<SandboxId, u32>,
    /// When a store operation on a sandbox last failed: what it left behind may stay for a time to live.
    pub(crate) failed: BTreeMap<SandboxId, Duration>,
    /// Client operations that run, by the backend's number of the sandbox.
    pub(crate) running: BTreeMap<u64, u32>,
}

/// Who was last granted a sandbox (`take`, or a claim to keep), and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) life: usize,
    pub(crate) at: Duration,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) table: LeaseTable,
    pub(crate) machines: BTreeMap<u64, Machine>,
    pub(crate) stops: BTreeMap<u64, Stop>,
    pub(crate) lives: Vec<Life>,
    pub(crate) grants: BTreeMap<SandboxId, Vec<Grant>>,
    /// When a life last claimed a sandbox in order to stop it.
    pub(crate) claims: BTreeMap<(usize, SandboxId), Duration>,
    pub(crate) wipes: Vec<Duration>,
    /// The owners of the leases that the last wipe took, until somebody is granted them again.
    pub(crate) wiped: BTreeMap<SandboxId, usize>,
    /// When clients asked to stop a sandbox themselves, by life.
    pub(crate) asked_to_stop: BTreeMap<(usize, SandboxId), Duration>,
    /// When a life last asked in vain whether a sandbox lives: unknown is not dead, so it is handed out.
    pub(crate) unanswered: BTreeMap<(usize, u64), Duration>,
    /// The most live sandboxes, where that is a promise.
    pub(crate) limit: Option<usize>,
    pub(crate) faults: bool,
    pub(crate) chaos: bool,
    pub(crate) violation: Option<String>,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    next: u64,
}

/// The world, shared by everything in it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) executor: Executor,
    world: Arc<Mutex<World>>,
}

impl Shared {
    pub(crate) fn new(seed: u64, table: LeaseTable, traced: bool) -> Self {
        let world = World {
            random: Random::new(seed),
            table,
            machines: BTreeMap::new(),
            stops: BTreeMap::new(),
            lives: Vec::new(),
            grants: BTreeMap::new(),
            claims: BTreeMap::new(),
            wipes: Vec::new(),
            wiped: BTreeMap::new(),
            asked_to_stop: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            limit: None,
            faults: true,
            chaos: true,
            violation: None,
            trace: traced.then(Vec::new),
            counts: BTreeMap::new(),
            next: 0,
        };
        Self { executor: Executor::new(), world: Arc::new(Mutex::new(world)) }
    }

    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut World, Duration) -> T) -> T {
        let now = self.executor.now();
        action(&mut lock(&self.world), now)
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        self.with(|world, now| world.note(now, text));
    }

    pub(crate) fn sleep(&self, duration: Duration) -> super::executor::Sleep {
        self.executor.sleep(duration)
    }
}

impl World {
    pub(crate) fn note(&mut self, now: Duration, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>8.3} {}", now.as_secs_f64(), text()));
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The first violation is the one that counts.
    pub(crate) fn violated(&mut self, now: Duration, what: String) {
        self.note(now, || format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    pub(crate) fn life_of(&self, owner: &OwnerId) -> Option<usize> {
        self.lives.iter().position(|life| life.name == *owner)
    }

    pub(crate) fn wiped_since(&self, since: Duration) -> bool {
        self.wipes.iter().any(|wipe| *wipe >= since)
    }

    /// Two faults within a time to live may cost a lease; one may not.
    pub(crate) fn store_fault(&mut self, life: usize, now: Duration) {
        let life = &mut self.lives[life];
        if life.last_store_fault.is_some_and(|last| now.saturating_sub(last) < TTL) {
            life.troubled_until = life.troubled_until.max(now);
        }
        life.last_store_fault = Some(now);
    }

    /// Whether a gateway was unable to do its duties at some time since then, or is dead.
    pub(crate) fn troubled_since(&self, life: usize, since: Duration) -> bool {
        let life = &self.lives[life];
        !life.alive || (life.troubled_until >= since && !life.troubled_until.is_zero())
    }

    pub(crate) fn granted(&mut self, life: usize, id: &SandboxId, now: Duration) {
        self.grants.entry(id.clone()).or_default().push(Grant { life, at: now });
        self.wiped.remove(id);
        // No take while a stop is under way whose gateway does its duties.
        let struck = self.stops.values().find(|stop| stop.id == *id).cloned();
        if let Some(stop) = struck
            && !self.troubled_since(stop.gateway, stop.since)
            && !self.wiped_since(stop.since)
        {
            let (owner, stopper) = (self.lives[life].name.clone(), self.lives[stop.gateway].name.clone());
            self.violated(now, format!("{owner} was granted {id} while {stopper} stops it"));
        }
    }

    /// Whether anybody but `life` was granted the sandbox since then.
    pub(crate) fn granted_to_another_since(&self, life: usize, id: &SandboxId, since: Duration) -> bool {
        self.grants.get(id).is_some_and(|grants| grants.iter().any(|grant| grant.life != life && grant.at >= since))
    }

    /// Whether somebody else was granted the sandbox after we were, in an acquire that began at `asked`.
    pub(crate) fn lost_to_another(&self, life: usize, id: &SandboxId, asked: Duration) -> bool {
        let Some(grants) = self.grants.get(id) else { return false };
        let ours = grants.iter().position(|grant| grant.life == life && grant.at >= asked);
        grants.iter().skip(ours.map_or(0, |ours| ours + 1)).any(|grant| grant.life != life)
    }

    pub(crate) fn granted_since(&self, life: usize, id: &SandboxId, since: Duration) -> bool {
        self.grants.get(id).is_some_and(|grants| grants.iter().any(|grant| grant.life == life && grant.at >= since))
    }

    /// A stop is asked for.
    pub(crate) fn stop_begins(&mut self, life: usize, id: &SandboxId, serial: u64, now: Duration) {
        let alive = self.machines.get(&serial).is_some_and(|machine| machine.alive);
        let name = self.lives[life].name.clone();
        let lease = self.table.owner(id, now);
        let marked = lease.as_ref().is_some_and(|lease| lease.owner == name && lease.state == LeaseState::Destroying);
        // What the store forgot between the claim and the stop is beyond anybody's power.
        let claimed = self.claims.get(&(life, id.clone())).copied();
        if !marked && alive && !claimed.is_some_and(|claimed| self.wiped_since(claimed)) {
            self.violated(now, format!("{name} stops {id} without a claim: the lease is {lease:?}"));
        }
        if alive && self.lives[life].running.get(&serial).is_some_and(|running| *running > 0) {
            self.violated(now, format!("{name} stops {id} while an operation of its own runs in it"));
        }
    }

    /// A stop takes effect on a live sandbox.
    pub(crate) fn stop_lands(&mut self, stop: &Stop, now: Duration) {
        if self.granted_to_another_since(stop.gateway, &stop.id, stop.since)
            && !self.troubled_since(stop.gateway, stop.since)
            && !self.wiped_since(stop.since)
        {
            let (name, id) = (self.lives[stop.gateway].name.clone(), &stop.id);
            self.violated(now, format!("{name}'s stop of {id} struck it under its new owner"));
        }
    }

    /// A gateway hands out a sandbox that it was granted since `asked`.
    pub(crate) fn handed_out(&mut self, life: usize, serial: u64, asked: Duration, now: Duration) {
        let Some(stop) = self.machines.get(&serial).and_then(|machine| machine.stopped.clone()) else { return };
        let excused = self.unanswered.get(&(life, serial)).is_some_and(|at| *at >= asked)
            || self.troubled_since(life, asked)
            || self.troubled_since(stop.gateway, stop.since)
            || self.wiped_since(stop.since.min(asked));
        if !excused {
            let (name, stopper) = (self.lives[life].name.clone(), self.lives[stop.gateway].name.clone());
            self.violated(now, format!("{name} handed out {} ({serial}), which {stopper} had stopped", stop.id));
        }
    }

    /// What must hold between any two steps.
    pub(crate) fn check(&mut self, now: Duration, paused: impl Fn(usize) -> bool) {
        if let Some(limit) = self.limit {
            let live = self.machines.values().filter(|machine| machine.alive).count();
            if live > limit {
                self.violated(now, format!("{live} live sandboxes, and {limit} is the limit"));
            }
        }
        let markers: Vec<(SandboxId, OwnerId)> = self
            .table
            .leases(now)
            .filter(|(_, lease)| lease.state == LeaseState::Destroying)
            .map(|(id, lease)| (id.clone(), lease.owner))
            .collect();
        for (id, owner) in markers {
            let Some(index) = self.life_of(&owner) else { continue };
            let life = &self.lives[index];
            let failed = life.failed.get(&id).is_some_and(|at| now.saturating_sub(*at) < TTL * 2);
            let pending = life.pending.get(&id).is_some_and(|pending| *pending > 0);
            if !life.alive || failed || pending || paused(index) || self.troubled_since(index, now.saturating_sub(TTL))
            {
                continue;
            }
            let Some(lifecycle) = &life.lifecycle else { continue };
            // The stop of a doomed one may still land.
            let busy = lifecycle.list().iter().any(|status| {
                let moving = matches!(status.phase, PhaseName::TearingDown | PhaseName::Creating);
                status.id == id && (moving || status.doomed)
            });
            if !busy {
                self.violated(
                    now,
                    format!("{owner} has no teardown of {id} under way, but its marker is in the store"),
                );
            }
        }
    }
}

impl Life {
    pub(crate) fn new(name: OwnerId) -> Self {
        Self {
            name,
            alive: true,
            lifecycle: None,
            cut_off_until: Duration::ZERO,
            troubled_until: Duration::ZERO,
            last_store_fault: None,
            pending: BTreeMap::new(),
            failed: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }
}
