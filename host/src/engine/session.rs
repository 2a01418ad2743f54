//! Instances: one for each call, kept for the same sandbox's next one, run until the call answers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use wasmtime::component::Accessor;
use wasmtime::{PoolConcurrencyLimitError, Store};

use super::bindings::{Exports, types as wit};
use super::deadline::Deadline;
use super::failure::Blame;
use super::limits::{CpuMeter, Limiter, Metered, interrupt};
use super::provider::Provider;
use super::runtime::Place;
use super::state::{CallState, Target};
use crate::error::{Error, Result};
use crate::ids::SandboxId;
use crate::mounts::MountTable;

/// An instance that waits for its sandbox's next call.
pub(super) struct Idle {
    store: Store<CallState>,
    exports: Exports,
    /// Whose it was. A sandbox of the same name that is made later has a table of its own, and gets nothing of this one,
    /// even if a call of the old one ended after its end.
    mounts: Arc<MountTable>,
    place: OwnedSemaphorePermit,
}

/// An instance at work. The order of the fields is the order of their end: the place is free when the store is gone.
pub(super) struct Session {
    pub(super) store: Store<CallState>,
    exports: Exports,
    place: Place,
}

pub(super) type Answer<T> = Result<T, wit::Error>;
pub(super) type Called<'a, T> = BoxFuture<'a, wasmtime::Result<Answer<T>>>;

impl Provider {
    /// An instance for a call: the one that the sandbox left, or a fresh one.
    async fn session(&self, operation: &'static str, target: Option<&Target>) -> Result<Session> {
        let place = self.runtime.enter().await?;
        if let Some(Idle { mut store, exports, .. }) = target.and_then(|target| self.left_by(target)) {
            store.data_mut().begin(target);
            store.set_epoch_deadline(1);
            return Ok(Session { store, exports, place });
        }
        let options = self.runtime.options();
        let meter = CpuMeter::new(options.cpu_limit);
        let deadline = Deadline::new(options.call_timeout, Arc::clone(&meter));
        let limiter = Limiter::new(options.memory_limit, options.table_elements);
        let mut state = CallState::new(limiter, Arc::clone(&meter), Arc::clone(&deadline), Arc::clone(&self.granted));
        state.begin(target);
        let mut store = Store::new(self.runtime.engine(), state);
        store.limiter(|state| &mut state.limiter);
        interrupt(&mut store, Arc::clone(&meter));
        // A start function may call what it was granted, and wait there.
        let instantiated = tokio::select! {
            biased;
            instantiated = Metered::new(meter, self.pre.instantiate_async(&mut store)) => instantiated,
            () = deadline.expired() => return Err(self.blame(operation).timeout(deadline.limit())),
        };
        let exports = instantiated.map_err(|error| {
            if error.is::<PoolConcurrencyLimitError>() {
                self.runtime.busy("the instance pool is exhausted".to_owned())
            } else {
                self.blame(operation).failure(&error, store.data())
            }
        })?;
        Ok(Session { store, exports, place })
    }

    /// Keeps an instance for the same sandbox's next call.
    pub(super) fn keep(&self, session: Session) {
        let Session { mut store, exports, place } = session;
        let Some(target) = store.data_mut().target.take() else { return };
        if !store.data().open_streams.is_empty() {
            return;
        }
        // What it takes the place of ends here, outside of the lock and of any call.
        let mut replaced = Vec::new();
        {
            let mut idle = self.idle.lock();
            let spare = self.runtime.idle_place().or_else(|| {
                let (_, Idle { store, place, .. }) = idle.pop_lru()?;
                replaced.push(store);
                Some(place)
            });
            if let Some(spare) = spare {
                let kept = Idle { store, exports, mounts: target.mounts, place: spare };
                replaced.extend(idle.push(target.sandbox, kept).map(|(_, idle)| idle.store));
            }
        }
        drop((replaced, place));
    }

    /// The instance that a sandbox's last call left.
    fn left_by(&self, target: &Target) -> Option<Idle> {
        let left = self.idle.lock().pop(&target.sandbox);
        left.filter(|left| Arc::ptr_eq(&left.mounts, &target.mounts))
    }

    /// Drops the instance that is kept for this very stay of a sandbox, if one is.
    pub(crate) fn let_go(&self, target: &Target) {
        let left = {
            let mut idle = self.idle.lock();
            let its = idle.peek(&target.sandbox).is_some_and(|left| Arc::ptr_eq(&left.mounts, &target.mounts));
            if its { idle.pop(&target.sandbox) } else { None }
        };
        drop(left);
    }

    /// Forgets what is kept for a sandbox.
    pub fn forget(&self, sandbox: &SandboxId) {
        let left = self.idle.lock().pop(sandbox);
        drop(left);
        if let Some(processes) = &self.granted.process {
            processes.end_sandbox(sandbox);
        }
    }

    /// How long a call may be silent. A backend may pull an image to make a sandbox, and wait for processes to stop one.
    fn time_for(&self, operation: &str) -> Duration {
        let any = self.runtime.options().call_timeout;
        match operation {
            "create" | "destroy" => any.max(self.granted.slow_call_timeout),
            _ => any,
        }
    }

    /// Runs one call until it answers, under all its limits.
    pub(super) async fn run<T, F>(
        &self,
        blame: &Blame,
        target: Option<&Target>,
        call: F,
    ) -> Result<(Result<T>, Session)>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a Accessor<CallState>, &'a Exports) -> Called<'a, T> + Send,
    {
        let mut session = self.session(blame.operation, target).await?;
        let (meter, deadline) = (Arc::clone(&session.store.data().meter), Arc::clone(&session.store.data().deadline));
        let exports = &session.exports;
        let limit = self.time_for(blame.operation);
        let due = async {
            let until = Instant::now() + limit;
            loop {
                deadline.expired().await;
                if Instant::now() >= until {
                    return;
                }
                deadline.moved();
            }
        };
        let running =
            Metered::new(meter, session.store.run_concurrent(async move |accessor| call(accessor, exports).await));
        let answered = tokio::select! {
            biased;
            answered = running => answered,
            () = due => return Err(blame.timeout(limit)),
        };
        match answered.and_then(|answer| answer) {
            Ok(answer) => Ok((answer.map_err(Error::from), session)),
            Err(error) => Err(blame.failure(&error, session.store.data())),
        }
    }

    /// A call without streams.
    pub(super) async fn simple<T, F>(&self, operation: &'static str, target: Option<&Target>, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a Accessor<CallState>, &'a Exports) -> Called<'a, T> + Send,
    {
        let (answer, session) = self.run(&self.blame(operation), target, call).await?;
        self.keep(session);
        answer
    }
}
