//! What agents do with their sandboxes, and what they may count on.

use std::time::Duration;

use sandgate::error::Code;
use sandgate::ids::{SandboxId, Scope};
use sandgate::lifecycle::{Hold, Instance, Lifecycle};

use super::backend::serial;
use super::world::Shared;

/// One agent on one gateway; it lives and dies with it.
pub(crate) struct Client {
    pub(crate) world: Shared,
    pub(crate) life: usize,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) scopes: Vec<Scope>,
}

impl Client {
    pub(crate) async fn work(self) {
        loop {
            self.rest(50, 9000).await;
            let Some(scope) = self.choose() else { return };
            let asked = self.world.executor.now();
            match self.lifecycle.acquire(&scope).await {
                Ok(hold) => self.use_it(hold, asked).await,
                Err(error) => self.refused(error.code()),
            }
        }
    }

    /// None: the day is over.
    fn choose(&self) -> Option<Scope> {
        self.world.with(|world, _| {
            let index = world.random.below(self.scopes.len());
            world.chaos.then(|| self.scopes[index].clone())
        })
    }

    async fn rest(&self, from: u64, to: u64) {
        let time = self.world.with(|world, _| world.random.millis(from, to));
        self.world.sleep(time).await;
    }

    async fn use_it(&self, hold: Hold, asked: Duration) {
        let id = hold.id().clone();
        let instance = hold.instance().clone();
        self.world.with(|world, now| {
            world.count("acquired");
            let name = world.lives[self.life].name.clone();
            world.note(now, || format!("{name} hands out {id}"));
            world.handed_out(self.life, serial(&instance), asked, now);
            if !world.granted_since(self.life, &id, asked) {
                world.violated(now, format!("{name} handed out {id} without a lease"));
            }
        });
        let operations = self.world.with(|world, _| 1 + world.random.below(3));
        for _ in 0..operations {
            if !self.operate(&id, &instance, asked).await {
                break;
            }
            self.rest(1, 4000).await;
        }
        match self.world.with(|world, _| world.random.below(8)) {
            0..3 => drop(hold),
            3..6 => hold.release().await,
            6 => {
                let id = hold.detach();
                self.lifecycle.release(&id).await;
            }
            _ => self.stop(hold).await,
        }
    }

    /// Runs something in the sandbox; false if it is no longer ours to use.
    async fn operate(&self, id: &SandboxId, instance: &Instance, asked: Duration) -> bool {
        let Some(pin) = self.lifecycle.get(id) else {
            self.judge_loss(id, instance, asked);
            return false;
        };
        let time = self.world.with(|world, _| {
            *world.lives[self.life].running.entry(serial(instance)).or_default() += 1;
            if world.random.permille(60) { world.random.millis(30_000, 70_000) } else { world.random.millis(10, 8000) }
        });
        self.world.sleep(time).await;
        self.world.with(|world, _| {
            if let Some(running) = world.lives[self.life].running.get_mut(&serial(instance)) {
                *running -= 1;
            }
        });
        drop(pin);
        true
    }

    /// A sandbox that was handed out and not released is gone from the books: for one of the few good reasons?
    fn judge_loss(&self, id: &SandboxId, instance: &Instance, asked: Duration) {
        self.world.with(|world, now| {
            let dead = !world.machines.get(&serial(instance)).is_some_and(|machine| machine.alive);
            let own_wish = world.asked_to_stop.get(&(self.life, id.clone())).is_some_and(|at| *at >= asked);
            let name = world.lives[self.life].name.clone();
            world.count("lost");
            if !dead && !own_wish && !world.lost_to_another(self.life, id, asked) {
                world.violated(now, format!("{name} lost {id} in use, though nobody else was granted it"));
            }
        });
    }

    async fn stop(&self, hold: Hold) {
        let id = hold.id().clone();
        let note = |world: &Shared| {
            world.with(|world, now| world.asked_to_stop.insert((self.life, id.clone()), now));
        };
        note(&self.world);
        // Whether it worked or was refused is for the invariants to judge.
        let _ = self.lifecycle.destroy(&id, false).await;
        note(&self.world);
        drop(hold);
    }

    fn refused(&self, code: Code) {
        self.world.with(|world, now| {
            world.count("refused");
            let expected = matches!(
                code,
                Code::LeaseStoreDown
                    | Code::BeingDestroyed
                    | Code::Unavailable
                    | Code::AlreadyExists
                    | Code::Timeout
                    | Code::Capacity
            );
            if !expected {
                world.violated(now, format!("an acquire failed with {code}"));
            }
        });
    }
}
