//! The lease store over a network: slow, lossy, cut off, forgetful.

use std::time::Duration;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, select};
use sandgate::error::{Code, Error, Result};
use sandgate::ids::SandboxId;
use sandgate::ownership::{Lease, LeaseState, OwnerId, Purpose, Renewal, Store};

use super::gateway::pause;
use super::world::{CHECK, Grant, Shared, TTL, World};

/// How long a gateway waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct SimStore {
    pub(crate) world: Shared,
    pub(crate) life: usize,
    pub(crate) me: OwnerId,
    /// False: this gateway is alone, as on the memory store, which never fails.
    pub(crate) sees_peers: bool,
}

impl SimStore {
    /// Sends an operation that may arrive long after it was given up.
    fn send<T: Send + 'static>(
        &self,
        ids: Vec<SandboxId>,
        operation: impl FnOnce(&mut World, Duration) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.send_within(9000, ids, operation)
    }

    /// Sends an operation. It takes effect when it arrives, whatever has become of its sender by then.
    fn send_within<T: Send + 'static>(
        &self,
        latest: u64,
        ids: Vec<SandboxId>,
        operation: impl FnOnce(&mut World, Duration) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let (world, life, remote) = (self.world.clone(), self.life, self.sees_peers);
        async move {
            let (sender, receiver) = oneshot::channel();
            let (there, back, lost) = world.with(|world, now| {
                world.count("store operations");
                for id in &ids {
                    *world.lives[life].pending.entry(id.clone()).or_default() += 1;
                }
                let cut_off = remote && world.lives[life].cut_off_until > now;
                let faults = remote && world.faults;
                let slow = faults && world.random.permille(50);
                // The slowest are given up before they arrive; what they do, they do all the same.
                let there = if slow { world.random.millis(2000, latest) } else { world.random.millis(1, 60) };
                let never = cut_off || (faults && world.random.permille(12));
                let deaf = faults && world.random.permille(8);
                // An answer may be overtaken by much of what happens after it was given.
                let late = faults && world.random.permille(20);
                let back = match (deaf, late) {
                    (true, _) => TIMEOUT * 2,
                    (false, true) => world.random.millis(100, 3000),
                    (false, false) => world.random.millis(1, 60),
                };
                (there, back, never)
            });
            let trip = {
                let (world, ids) = (world.clone(), ids.clone());
                async move {
                    world.sleep(there).await;
                    let result = world.with(|world, now| {
                        for id in &ids {
                            if let Some(pending) = world.lives[life].pending.get_mut(id) {
                                *pending -= 1;
                            }
                        }
                        (!lost).then(|| operation(world, now))
                    });
                    stand_still(&world, life);
                    if let Some(result) = result {
                        world.sleep(back).await;
                        let _ = sender.send(result);
                    } else {
                        world.sleep(TIMEOUT * 2).await;
                    }
                }
            };
            world.executor.spawn(None, trip.boxed());
            let answer = match select(receiver, world.sleep(TIMEOUT)).await {
                Either::Left((answer, _)) => answer.ok(),
                Either::Right(_) => None,
            };
            answer.ok_or_else(|| {
                world.with(|world, now| {
                    world.count("store faults");
                    world.store_fault(life, now);
                    for id in &ids {
                        world.lives[life].failed.insert(id.clone(), now);
                    }
                });
                Error::new(Code::LeaseStoreDown, "the simulated store does not answer")
            })
        }
        .boxed()
    }
}

/// Now and then the sender is stopped at the worst moment: its request has taken effect, and it does not know yet.
fn stand_still(world: &Shared, life: usize) {
    let time = world.with(|world, _| {
        let now = world.chaos && world.lives[life].alive && world.random.permille(2);
        now.then(|| world.random.millis(20_000, 70_000))
    });
    if let Some(time) = time.filter(|_| !world.executor.is_paused(life)) {
        let then = world.clone();
        world.executor.set_paused(life, true);
        world.executor.spawn(None, async move { pause(&then, life, time).await }.boxed());
    }
}

impl Store for SimStore {
    fn me(&self) -> &OwnerId {
        &self.me
    }

    fn sees_peers(&self) -> bool {
        self.sees_peers
    }

    fn take<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<bool>> {
        let (life, me, id) = (self.life, self.me.clone(), id.clone());
        self.send(vec![id.clone()], move |world, now| {
            let granted = world.table.take(&id, &me, now, TTL);
            world.note(now, || format!("{me} takes {id}: {granted}"));
            if granted {
                world.granted(life, &id, now);
            }
            granted
        })
    }

    fn claim<'a>(&'a self, id: &'a SandboxId, purpose: Purpose) -> BoxFuture<'a, Result<bool>> {
        let (life, me, id) = (self.life, self.me.clone(), id.clone());
        self.send(vec![id.clone()], move |world, now| {
            let before = world.table.owner(&id, now);
            let granted = world.table.claim(&id, &me, purpose, now, TTL);
            world.note(now, || format!("{me} claims {id} to {purpose:?}: {granted}"));
            if granted && purpose == Purpose::Keep {
                let downgraded = before.as_ref().is_some_and(|lease| lease.state == LeaseState::Destroying);
                if downgraded && world.stops.values().any(|stop| stop.id == id && stop.gateway == life) {
                    world.violated(now, format!("{me} took back its marker of {id} while it stops it"));
                }
                if before.is_none() {
                    adopted(world, life, &id, now);
                }
                world.granted(life, &id, now);
            }
            if granted && purpose == Purpose::Destroy {
                world.claims.insert((life, id.clone()), now);
            }
            if granted && purpose == Purpose::Destroy && before.is_none() {
                world.grants.entry(id).or_default().push(Grant { life, at: now });
            }
            granted
        })
    }

    fn renew<'a>(&'a self, ids: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        let (me, ids) = (self.me.clone(), ids.to_vec());
        self.send(ids.clone(), move |world, now| {
            let outcomes: Vec<_> = ids.iter().map(|id| world.table.renew(id, &me, now, TTL)).collect();
            world.note(now, || format!("{me} renews {ids:?}: {outcomes:?}"));
            outcomes
        })
    }

    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        let (me, id) = (self.me.clone(), id.clone());
        // Values carry no token, so that a release which arrives long after it was given up could undo a later marker of
        // the same gateway. Nothing but a fraction of a second is defended against here.
        self.send_within(5500, vec![id.clone()], move |world, now| {
            world.note(now, || format!("{me} releases {id}"));
            world.table.release(&id, &me, now);
        })
    }

    fn owner<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Option<Lease>>> {
        let id = id.clone();
        self.send(vec![id.clone()], move |world, now| world.table.owner(&id, now))
    }
}

/// An unowned sandbox got an owner. Within a time to live of a wipe that must not be a stranger, as long as its old
/// owner lives, knows of it and does its duties.
fn adopted(world: &mut World, life: usize, id: &SandboxId, now: Duration) {
    let Some(wipe) = world.wipes.last().copied() else { return };
    let Some(owner) = world.wiped.get(id).copied() else { return };
    // What a dead gateway had sent before is nobody's decision any more.
    let dead = !world.lives[life].alive;
    if dead || owner == life || now.saturating_sub(wipe) >= TTL || world.troubled_since(owner, wipe) {
        return;
    }
    let knows = |world: &World, life: usize| {
        let lifecycle = world.lives[life].lifecycle.as_ref();
        lifecycle.is_some_and(|lifecycle| lifecycle.list().iter().any(|status| status.id == *id && !status.doomed))
    };
    // Who was granted it just before the wipe may not have been seen by anybody.
    let settled = wipe.saturating_sub(CHECK * 3);
    let fresh = world.grants.get(id).and_then(|grants| grants.last()).is_none_or(|grant| grant.at > settled);
    if fresh {
        return;
    }
    // A dead one is no loss, and one that a client asked to stop is to be stopped.
    let live = world.machines.values().any(|machine| machine.alive && machine.id == *id);
    if !live || world.asked_to_stop.keys().any(|(asked, stopped)| *asked == life && stopped == id) {
        return;
    }
    // One that had it in its books from before, and has not noticed yet that it lost it, is no stranger.
    if knows(world, owner) && !knows(world, life) {
        let (stranger, owner) = (world.lives[life].name.clone(), world.lives[owner].name.clone());
        world.violated(
            now,
            format!("{stranger} adopted {id} from {owner}, which lives, right after the store was wiped"),
        );
    }
}
