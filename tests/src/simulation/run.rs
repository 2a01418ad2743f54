//! One run: a seed, perhaps a guard taken out, and what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use sandgate::lifecycle::{CapacityPolicy, Guard, Guards};
use sandgate::ownership::{LeaseTable, TableGuards};

use super::chaos::reign;
use super::gateway::Fleet;
use super::random::Random;
use super::world::{Shared, TTL, World};

/// For how long things go wrong.
const CHAOS: Duration = Duration::from_secs(150);
/// Within which time after that everything must be stopped and every lease be gone: the longest stop, the grace and
/// lapse of what crashed owners left, idle timeouts and check intervals.
const SETTLE: Duration = Duration::from_secs(TTL.as_secs() * 12);

/// A rule that is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// One of the lifecycle's.
    Guard(Guard),
    /// The store lets a sandbox be taken while it is torn down.
    TakeWhileDestroying,
    /// The store lets a claim to keep overwrite one's own teardown marker.
    ClaimOverOwnMarker,
}

impl Sabotage {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let guards = Guard::ALL.into_iter().map(Self::Guard);
        guards.chain([Self::TakeWhileDestroying, Self::ClaimOverOwnMarker]).collect()
    }

    /// The one of this name, as [`Display`](fmt::Display) writes it.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|sabotage| sabotage.to_string() == name)
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guard(guard) => write!(f, "{guard:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What happened in a run in which nothing forbidden did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks polled.
    pub steps: u64,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// What must never happen, and how to see it again.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The run.
    pub seed: u64,
    /// What happened.
    pub what: String,
    /// Everything before it, if the run was traced.
    pub trace: Vec<String>,
}

/// The command that repeats a run, with its trace.
pub fn replay_command(seed: u64, sabotage: Option<Sabotage>) -> String {
    let without = sabotage.map(|sabotage| format!(" SANDGATE_SIM_WITHOUT={sabotage}")).unwrap_or_default();
    format!(
        "SANDGATE_SIM_SEED={seed}{without} cargo test -p sandgate-tests --test all simulation::replay -- --nocapture"
    )
}

fn is_empty(world: &mut World, now: Duration) -> bool {
    world.machines.values().all(|machine| !machine.alive)
        && world.stops.is_empty()
        && world.table.leases(now).next().is_none()
}

/// Runs one seed.
pub fn run(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Result<Report, Violation> {
    let mut schedule = Random::new(seed ^ 0xdead_beef);
    let alone = seed % 8 == 7;
    let table = LeaseTable::with_guards(TableGuards {
        take_refused_while_destroying: sabotage != Some(Sabotage::TakeWhileDestroying),
        claim_keeps_own_marker: sabotage != Some(Sabotage::ClaimOverOwnMarker),
    });
    let guards = match sabotage {
        Some(Sabotage::Guard(guard)) => Guards::without(guard),
        _ => Guards::default(),
    };
    let limit = 2;
    let capacity = match (alone, schedule.below(3)) {
        (true, 0) => CapacityPolicy::Wait { limit, timeout: Duration::from_secs(20) },
        (true, 1) => CapacityPolicy::Reject { limit },
        (true, _) => CapacityPolicy::Burst { limit: limit - 1, extra: 1 },
        (false, _) => CapacityPolicy::Soft { replicas: limit },
    };
    let gateways = if alone { 1 } else { 2 + schedule.below(2) };
    let fleet = Fleet { gateways, scopes: 1 + schedule.below(3) + usize::from(alone), guards, capacity };
    let world = Shared::new(seed, table, traced);
    if alone {
        world.with(|world, _| world.limit = Some(limit as usize));
    }
    world.executor.spawn(None, reign(world.clone(), fleet, !alone).boxed());
    let mut steps = 0;
    let mut steps_until = |until: Duration, settled: bool| {
        while world.executor.step(&mut schedule, until) {
            steps += 1;
            let executor = &world.executor;
            let done = world.with(|world, now| {
                world.check(now, |life| executor.is_paused(life));
                world.violation.is_some() || (settled && steps % 64 == 0 && is_empty(world, now))
            });
            if done {
                return;
            }
        }
    };
    steps_until(CHAOS, false);
    world.with(|world, now| {
        (world.chaos, world.faults) = (false, false);
        for life in &mut world.lives {
            life.cut_off_until = Duration::ZERO;
        }
        world.note(now, || "calm".to_owned());
    });
    if world.with(|world, _| world.violation.is_none()) {
        steps_until(CHAOS + SETTLE, true);
    }
    let outcome = world.with(|world, now| {
        if world.violation.is_none() && !is_empty(world, now) {
            let live: Vec<_> = world.machines.iter().filter(|(_, machine)| machine.alive).collect();
            let what = format!("left over at the end: {live:?}, {:?}", world.table.leases(now).collect::<Vec<_>>());
            world.violated(now, what);
        }
        match world.violation.take() {
            Some(what) => Err(Violation { seed, what, trace: world.trace.take().unwrap_or_default() }),
            None => Ok(Report { steps, counts: std::mem::take(&mut world.counts) }),
        }
    });
    world.with(|world, _| world.lives.iter_mut().for_each(|life| life.lifecycle = None));
    world.executor.clear();
    outcome
}
