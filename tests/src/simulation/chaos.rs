//! What goes wrong, and when.

use std::time::Duration;

use futures::FutureExt;
use sandgate::ids::{Scope, ThreadId, UserId};

use super::client::Client;
use super::gateway::{Fleet, crash, pause, start};
use super::world::{Shared, TTL};

/// Agents per gateway.
const CLIENTS: usize = 2;

pub(crate) fn scopes(count: usize) -> Vec<Scope> {
    let names = ["a", "b", "c", "d"];
    names
        .iter()
        .take(count)
        .filter_map(|name| Some(Scope::new(UserId::default(), ThreadId::new(*name).ok()?)))
        .collect()
}

/// Starts a gateway with its agents; the number is that of its life.
pub(crate) fn start_with_clients(world: &Shared, fleet: &Fleet, gateway: usize) -> Option<usize> {
    let (life, lifecycle) = match start(world, fleet, gateway) {
        Ok(started) => started,
        Err(error) => {
            world.with(|world, now| world.violated(now, format!("a gateway does not start: {error}")));
            return None;
        }
    };
    for _ in 0..CLIENTS {
        let client = Client { world: world.clone(), life, lifecycle: lifecycle.clone(), scopes: scopes(fleet.scopes) };
        world.executor.spawn(Some(life), client.work().boxed());
    }
    Some(life)
}

/// Lets things go wrong until the day is over.
pub(crate) async fn reign(world: Shared, fleet: Fleet, crashes: bool) {
    // Some days are quieter, so that trouble does not always excuse what goes wrong.
    let haste = world.with(|world, _| 1 + world.random.below(4) as u64);
    let mut lives: Vec<Option<usize>> = Vec::new();
    for gateway in 0..fleet.gateways {
        lives.push(start_with_clients(&world, &fleet, gateway));
    }
    loop {
        let time = world.with(|world, _| world.random.millis(500, 12_000 * haste));
        world.sleep(time).await;
        if !world.with(|world, _| world.chaos) {
            return;
        }
        let gateway = world.with(|world, _| world.random.below(fleet.gateways));
        let Some(life) = lives[gateway] else { continue };
        match world.with(|world, _| world.random.below(20)) {
            0..4 if crashes => {
                crash(&world, life);
                let away = world.with(|world, _| world.random.millis(200, 20_000));
                world.sleep(away).await;
                lives[gateway] = start_with_clients(&world, &fleet, gateway);
            }
            4..8 if !world.executor.is_paused(life) => {
                let time = duration(&world);
                let world_then = world.clone();
                world.executor.spawn(None, async move { pause(&world_then, life, time).await }.boxed());
            }
            8..11 => {
                let time = duration(&world);
                world.with(|world, now| {
                    world.count("cut off");
                    world.note(now, || format!("gateway life {life} is cut off from the store for {time:?}"));
                    world.lives[life].cut_off_until = now + time;
                    world.lives[life].troubled_until = world.lives[life].troubled_until.max(now + time);
                });
            }
            11..14 if fleet.gateways > 1 => wipe(&world),
            14..17 => {
                world.with(|world, now| {
                    let live: Vec<u64> =
                        world.machines.iter().filter(|(_, machine)| machine.alive).map(|(serial, _)| *serial).collect();
                    if live.is_empty() {
                        return;
                    }
                    let serial = live[world.random.below(live.len())];
                    world.count("died");
                    world.note(now, || format!("{serial} dies by itself"));
                    if let Some(machine) = world.machines.get_mut(&serial) {
                        machine.alive = false;
                    }
                });
            }
            _ => {}
        }
    }
}

fn duration(world: &Shared) -> Duration {
    world.with(|world, _| {
        if world.random.permille(400) { world.random.millis(45_000, 70_000) } else { world.random.millis(500, 20_000) }
    })
}

/// The store forgets everything. Not more often than once in three times to live: nobody can tell a dead owner from
/// one whose lease is wiped again and again.
fn wipe(world: &Shared) {
    world.with(|world, now| {
        if world.wiped_since(now.saturating_sub(TTL * 3)) && !world.wipes.is_empty() {
            return;
        }
        let owners: Vec<_> = world.table.leases(now).map(|(id, lease)| (id.clone(), lease.owner)).collect();
        world.wiped = owners.into_iter().filter_map(|(id, owner)| Some((id, world.life_of(&owner)?))).collect();
        world.wipes.push(now);
        world.table.clear();
        world.count("wipes");
        world.note(now, || "the store forgets everything".to_owned());
    });
}
