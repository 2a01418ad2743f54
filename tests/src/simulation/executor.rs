//! One thread, virtual time, and a seeded choice of who runs next.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use sandgate::runtime::Runtime;

use super::random::Random;

/// Who a task belongs to: a gateway's life, or nobody that can die.
pub(crate) type Owner = Option<usize>;

struct Task {
    owner: Owner,
    /// None while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
}

#[derive(Default)]
struct Core {
    now: Duration,
    next_id: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(Duration, u64), Waker>,
    paused: Vec<usize>,
    dead: Vec<usize>,
}

/// Tasks that were woken, in the order of their waking.
type Ready = Arc<Mutex<Vec<u64>>>;

/// The whole of simulated time and its tasks.
#[derive(Clone)]
pub(crate) struct Executor {
    core: Arc<Mutex<Core>>,
    ready: Ready,
}

struct TaskWaker {
    id: u64,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = lock(&self.ready);
        if !ready.contains(&self.id) {
            ready.push(self.id);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    pub(crate) fn new() -> Self {
        Self { core: Arc::default(), ready: Arc::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        lock(&self.core).now
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        Sleep { executor: self.clone(), deadline: self.now().saturating_add(duration), timer: None }
    }

    pub(crate) fn spawn(&self, owner: Owner, future: BoxFuture<'static, ()>) {
        let mut core = lock(&self.core);
        if owner.is_some_and(|owner| core.dead.contains(&owner)) {
            // What a dying gateway still wants to do is never done. Dropped outside of the lock: it may spawn again.
            drop(core);
            drop(future);
            return;
        }
        let id = core.next_id;
        core.next_id += 1;
        let waker = Waker::from(Arc::new(TaskWaker { id, ready: Arc::clone(&self.ready) }));
        core.tasks.insert(id, Task { owner, future: Some(future), waker });
        drop(core);
        lock(&self.ready).push(id);
    }

    /// Ends a gateway's life: its tasks are gone where they stand.
    pub(crate) fn kill(&self, owner: usize) {
        let mut core = lock(&self.core);
        core.dead.push(owner);
        let ids: Vec<u64> =
            core.tasks.iter().filter(|(_, task)| task.owner == Some(owner)).map(|(id, _)| *id).collect();
        let gone: Vec<Task> = ids.iter().filter_map(|id| core.tasks.remove(id)).collect();
        drop(core);
        drop(gone);
    }

    pub(crate) fn set_paused(&self, owner: usize, paused: bool) {
        let mut core = lock(&self.core);
        core.paused.retain(|other| *other != owner);
        if paused {
            core.paused.push(owner);
        }
    }

    pub(crate) fn is_paused(&self, owner: usize) -> bool {
        lock(&self.core).paused.contains(&owner)
    }

    /// Runs one task that is ready, or lets time pass to the next timer; false if nothing can ever happen again.
    pub(crate) fn step(&self, random: &mut Random, until: Duration) -> bool {
        let mut core = lock(&self.core);
        let mut ready = lock(&self.ready);
        ready.retain(|id| core.tasks.contains_key(id));
        let runnable: Vec<usize> = (0..ready.len())
            .filter(|index| {
                let owner = core.tasks.get(&ready[*index]).and_then(|task| task.owner);
                owner.is_none_or(|owner| !core.paused.contains(&owner))
            })
            .collect();
        if runnable.is_empty() {
            drop(ready);
            return core.advance(until);
        }
        let id = ready.remove(runnable[random.below(runnable.len())]);
        drop(ready);
        let Some(task) = core.tasks.get_mut(&id) else { return true };
        let Some(mut future) = task.future.take() else { return true };
        let waker = task.waker.clone();
        drop(core);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut core = lock(&self.core);
        match polled {
            Poll::Pending => match core.tasks.get_mut(&id) {
                Some(task) => task.future = Some(future),
                // It was killed while it ran.
                None => {
                    drop(core);
                    drop(future);
                }
            },
            Poll::Ready(()) => {
                core.tasks.remove(&id);
                drop(core);
                drop(future);
            }
        }
        true
    }

    /// Drops all that is left, so that nothing keeps itself alive.
    pub(crate) fn clear(&self) {
        let mut core = lock(&self.core);
        let tasks = std::mem::take(&mut core.tasks);
        let timers = std::mem::take(&mut core.timers);
        core.dead = (0..1024).collect();
        drop(core);
        drop(tasks);
        drop(timers);
    }
}

impl Core {
    fn advance(&mut self, until: Duration) -> bool {
        let Some((&(when, _), _)) = self.timers.first_key_value() else { return false };
        if when > until {
            return false;
        }
        self.now = self.now.max(when);
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            entry.remove().wake();
        }
        true
    }
}

/// Resolves when virtual time has come so far.
pub(crate) struct Sleep {
    executor: Executor,
    deadline: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut core = lock(&executor.core);
        if core.now >= self.deadline {
            return Poll::Ready(());
        }
        let id = *self.timer.get_or_insert_with(|| {
            core.next_id += 1;
            core.next_id
        });
        core.timers.insert((self.deadline, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            lock(&self.executor.core).timers.remove(&(self.deadline, id));
        }
    }
}

/// The runtime of one gateway's life.
pub(crate) struct SimRuntime {
    pub(crate) executor: Executor,
    pub(crate) owner: usize,
}

impl Runtime for SimRuntime {
    fn now(&self) -> Duration {
        self.executor.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.executor.sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.executor.spawn(Some(self.owner), task);
    }

    fn wall_ms(&self) -> u64 {
        u64::try_from(self.executor.now().as_millis()).unwrap_or(u64::MAX)
    }
}
