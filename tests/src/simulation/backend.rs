//! The backend that all gateways share: one live sandbox per id, slow, and at times without an answer.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use sandgate::error::{Code, Error, Result};
use sandgate::lifecycle::{Attachment, Backend, Instance, InstanceRecord, Item, Liveness, Page, Wanted};

use super::world::{Machine, Shared, Stop, TTL};

pub(crate) struct SimBackend {
    pub(crate) world: Shared,
    pub(crate) life: usize,
}

fn record(serial: u64) -> InstanceRecord {
    InstanceRecord::new(serial.to_be_bytes().to_vec())
}

pub(crate) fn serial(instance: &Instance) -> u64 {
    instance.record.as_bytes().try_into().map_or(0, u64::from_be_bytes)
}

impl SimBackend {
    fn fails(&self) -> bool {
        self.world.with(|world, _| world.faults && world.random.permille(15))
    }

    async fn wait(&self, from: u64, to: u64) {
        let time = self.world.with(|world, _| world.random.millis(from, to));
        self.world.sleep(time).await;
    }

    fn no_answer() -> Error {
        Error::unavailable("the simulated backend does not answer")
    }
}

/// A stop under way. If its caller crashes, it has taken effect by then or never will.
struct Stopping {
    world: Shared,
    number: u64,
    machine: u64,
}

impl Stopping {
    fn land(&self) {
        self.world.with(|world, now| {
            let Some(stop) = world.stops.remove(&self.number) else { return };
            if world.machines.get(&self.machine).is_some_and(|machine| machine.alive) {
                world.stop_lands(&stop, now);
                world.count("stops");
                world.note(now, || format!("{} of {} is stopped", self.machine, stop.id));
                if let Some(machine) = world.machines.get_mut(&self.machine) {
                    machine.alive = false;
                    machine.stopped = Some(stop);
                }
            }
        });
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if self.world.with(|world, _| world.random.permille(500)) {
            self.land();
        }
        self.world.with(|world, _| world.stops.remove(&self.number));
    }
}

impl Backend for SimBackend {
    fn create<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<InstanceRecord>> {
        async move {
            self.wait(2000, 4000).await;
            if self.fails() {
                return Err(Self::no_answer());
            }
            let made = self.world.with(|world, now| {
                if world.machines.values().any(|machine| machine.alive && machine.id == wanted.id) {
                    return Err(Error::already_exists(format!("there is a {} already", wanted.id)));
                }
                let serial = world.next();
                world.machines.insert(serial, Machine { id: wanted.id.clone(), alive: true, stopped: None });
                world.count("creates");
                world.note(now, || format!("{serial} of {} is made for gateway life {}", wanted.id, self.life));
                Ok(record(serial))
            })?;
            self.wait(1, 500).await;
            Ok(made)
        }
        .boxed()
    }

    fn find<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<Option<InstanceRecord>>> {
        async move {
            self.wait(1, 200).await;
            if self.fails() {
                return Err(Self::no_answer());
            }
            let found = self.world.with(|world, _| {
                let live = world.machines.iter().find(|(_, machine)| machine.alive && machine.id == wanted.id);
                live.map(|(serial, _)| record(*serial))
            });
            self.wait(1, 200).await;
            Ok(found)
        }
        .boxed()
    }

    fn inventory(&self, cursor: Option<String>) -> BoxFuture<'_, Result<Page>> {
        async move {
            self.wait(1, 300).await;
            if self.fails() {
                return Err(Self::no_answer());
            }
            let after: u64 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let page = self.world.with(|world, _| {
                let mut live = world.machines.range(after + 1..).filter(|(_, machine)| machine.alive);
                let items: Vec<(u64, Item)> = live
                    .by_ref()
                    .take(3)
                    .map(|(serial, machine)| {
                        let instance = Instance {
                            id: machine.id.clone(),
                            scope: None,
                            record: record(*serial),
                            attachment: Attachment::default(),
                        };
                        (*serial, Item { instance, created_ms: None })
                    })
                    .collect();
                let next = live.next().and(items.last()).map(|(serial, _)| serial.to_string());
                Page { items: items.into_iter().map(|(_, item)| item).collect(), next }
            });
            self.wait(1, 300).await;
            Ok(page)
        }
        .boxed()
    }

    fn probe<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<Liveness>> {
        async move {
            self.wait(1, 100).await;
            if self.fails() {
                self.world.with(|world, now| world.unanswered.insert((self.life, serial(instance)), now));
                return Err(Self::no_answer());
            }
            let alive =
                self.world.with(|world, _| world.machines.get(&serial(instance)).is_some_and(|machine| machine.alive));
            self.wait(1, 100).await;
            Ok(if alive { Liveness::Alive } else { Liveness::Dead })
        }
        .boxed()
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<()>> {
        async move {
            let (stopping, time, fails) = self.world.with(|world, now| {
                let machine = serial(instance);
                let alive = world.machines.get(&machine).is_some_and(|machine| machine.alive);
                world.stop_begins(self.life, &instance.id, machine, now);
                let number = world.next();
                let since = world.claims.get(&(self.life, instance.id.clone())).copied().unwrap_or(now);
                let stop = Stop { gateway: self.life, id: instance.id.clone(), since };
                if alive {
                    world.stops.insert(number, stop);
                }
                world.note(now, || format!("gateway life {} stops {machine} of {}", self.life, instance.id));
                let long = world.faults && world.random.permille(200);
                let time = if long { TTL * 2 + world.random.millis(0, 20_000) } else { world.random.millis(50, 3000) };
                let fails = world.faults && world.random.permille(80);
                (Stopping { world: self.world.clone(), number, machine }, time, fails)
            });
            if fails {
                self.wait(50, 2000).await;
                let code = if self.world.with(|world, _| world.random.permille(500)) {
                    Code::Unavailable
                } else {
                    Code::Timeout
                };
                return Err(Error::new(code, "the simulated backend does not stop it"));
            }
            self.world.sleep(time).await;
            stopping.land();
            self.wait(1, 100).await;
            Ok(())
        }
        .boxed()
    }

    fn extend<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<()>> {
        async move {
            self.wait(1, 100).await;
            Ok(())
        }
        .boxed()
    }
}
