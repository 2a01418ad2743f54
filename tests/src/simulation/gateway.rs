//! Starting, crashing and restarting gateways.

use std::sync::Arc;
use std::time::Duration;

use sandgate::error::Result;
use sandgate::ids::ProviderName;
use sandgate::lifecycle::{
    CapacityPolicy, Deadlines, Features, Guards, Lifecycle, Parts, ReconcileBudget, Settings, Upkeep,
};
use sandgate::ownership::{LeaseTimes, OwnerId};

use super::backend::SimBackend;
use super::executor::SimRuntime;
use super::store::SimStore;
use super::world::{CHECK, IDLE, Life, RENEWAL, Shared, TTL};

/// What all gateways of a run have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fleet {
    pub(crate) gateways: usize,
    pub(crate) scopes: usize,
    pub(crate) guards: Guards,
    pub(crate) capacity: CapacityPolicy,
}

fn settings(capacity: CapacityPolicy) -> Result<Settings> {
    Ok(Settings {
        lease: LeaseTimes::new(RENEWAL, TTL.as_secs_f64() / RENEWAL.as_secs_f64())?,
        idle_timeout: IDLE,
        check_interval: CHECK,
        capacity,
        deadlines: Deadlines { stop: TTL * 3, ..Deadlines::default() },
        reconcile: ReconcileBudget { duplicate_grace: TTL, ..ReconcileBudget::default() },
        ..Settings::default()
    })
}

/// Starts a gateway; the number is that of this life of it.
pub(crate) fn start(world: &Shared, fleet: &Fleet, gateway: usize) -> Result<(usize, Lifecycle)> {
    let (life, me) = world.with(|world, _| {
        let life = world.lives.len();
        let me = OwnerId::from_text(format!("g{gateway}.{life}"));
        world.lives.push(Life::new(me.clone()));
        (life, me)
    });
    let features = Features { findable: true, listable: true, ..Features::default() };
    let parts = Parts {
        provider: ProviderName::new("sim")?,
        features,
        settings: settings(fleet.capacity)?,
        backend: Arc::new(SimBackend { world: world.clone(), life }),
        store: Arc::new(SimStore { world: world.clone(), life, me, sees_peers: fleet.gateways > 1 }),
        ledger: None,
        runtime: Arc::new(SimRuntime { executor: world.executor.clone(), owner: life }),
    };
    let lifecycle = Lifecycle::with_guards(parts, fleet.guards)?;
    world.with(|world, _| world.lives[life].lifecycle = Some(lifecycle.clone()));
    lifecycle.start(Upkeep::Full);
    Ok((life, lifecycle))
}

/// Ends a gateway's life where it stands.
pub(crate) fn crash(world: &Shared, life: usize) {
    let lifecycle = world.with(|world, now| {
        world.count("crashes");
        world.note(now, || format!("gateway life {life} crashes"));
        world.lives[life].alive = false;
        world.lives[life].running.clear();
        world.lives[life].lifecycle.take()
    });
    world.executor.kill(life);
    drop(lifecycle);
}

/// Stops and continues a whole gateway, as a signal does. Its clock runs on.
pub(crate) async fn pause(world: &Shared, life: usize, time: Duration) {
    world.note(|| format!("gateway life {life} stands still for {time:?}"));
    let trouble = |world: &Shared| world.with(|world, now| world.lives[life].troubled_until = now);
    world.with(|world, now| {
        world.count("pauses");
        world.lives[life].troubled_until = now + time;
    });
    world.executor.set_paused(life, true);
    world.sleep(time).await;
    world.executor.set_paused(life, false);
    trouble(world);
}
