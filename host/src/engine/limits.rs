//! What one call may use: CPU time, memory, tables.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

/// How often running guests are interrupted to look at their limits. Short enough that a guest that computes does not
/// hold up the others on its thread, long enough that the ticks cost nothing.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Counts the CPU time that the polls of a call's future take, which is what its guest (and the little host code between)
/// computes; waiting for a host call is free, and so is a busy machine.
///
/// Epochs alone can't tell: they pass while a guest waits, too.
#[derive(Debug)]
pub(super) struct CpuMeter {
    used: AtomicU64,
    /// The polling thread's CPU time when the poll that runs now began, in nanoseconds plus 1; 0: not running.
    running_since: AtomicU64,
    /// The budget begins anew. Only the polling thread may say what time it is for it.
    anew: AtomicBool,
    budget: Duration,
}

/// The CPU time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

impl CpuMeter {
    pub(super) fn new(budget: Duration) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            running_since: AtomicU64::new(0),
            anew: AtomicBool::new(false),
            budget,
        })
    }

    fn start(&self) {
        self.running_since.store(thread_time() + 1, Ordering::Relaxed);
    }

    /// Adds what the poll that runs now has taken so far. Called on the polling thread.
    fn count(&self) -> u64 {
        let now = thread_time() + 1;
        let since = self.running_since.swap(now, Ordering::Relaxed);
        if self.anew.swap(false, Ordering::Relaxed) {
            self.used.store(0, Ordering::Relaxed);
        } else if since > 0 {
            self.used.fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
        self.used.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.count();
        self.running_since.store(0, Ordering::Relaxed);
    }

    /// Begin anew: the guest delivered something, or another call begins. Called from anywhere.
    pub(super) fn reset(&self) {
        self.anew.store(true, Ordering::Relaxed);
    }

    fn spent(&self) -> bool {
        u128::from(self.count()) > self.budget.as_nanos()
    }
}

/// The trap with which a guest that used up its CPU time ends.
#[derive(Debug, thiserror::Error)]
#[error("the call used more than {0:?} of CPU time")]
pub(super) struct CpuSpent(pub(super) Duration);

/// Interrupts a store's guest at every tick: to let others run, and to end it when its time is spent.
pub(super) fn interrupt<T>(store: &mut Store<T>, meter: Arc<CpuMeter>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        if meter.spent() { Err(CpuSpent(meter.budget).into()) } else { Ok(UpdateDeadline::Yield(1)) }
    });
}

/// A future that is measured while it is polled.
pub(super) struct Metered<F> {
    future: Pin<Box<F>>,
    meter: Arc<CpuMeter>,
}

impl<F> Metered<F> {
    pub(super) fn new(meter: Arc<CpuMeter>, future: F) -> Self {
        Self { future: Box::pin(future), meter }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.meter.start();
        let polled = self.future.as_mut().poll(cx);
        self.meter.stop();
        polled
    }
}

/// Refuses growth beyond the limits and remembers that it did: a guest that gets no memory mostly crashes in some way of
/// its own, and the caller should hear the cause.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) memory: usize,
    pub(super) table_elements: usize,
    refused: Arc<AtomicBool>,
    /// The machine had no room for growth that was within the limits.
    pub(super) starved: bool,
}

impl Limiter {
    pub(super) fn new(memory: usize, table_elements: usize) -> Self {
        Self { memory, table_elements, refused: Arc::default(), starved: false }
    }

    /// Whether growth was refused.
    pub(super) fn refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.refused)
    }

    /// Another call begins: what an earlier one was refused says nothing about it.
    pub(super) fn forget(&mut self) {
        self.refused.store(false, Ordering::Relaxed);
        self.starved = false;
    }

    fn allow(&self, desired: usize, limit: usize) -> bool {
        let fits = desired <= limit;
        if !fits {
            self.refused.store(true, Ordering::Relaxed);
        }
        fits
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.allow(desired, self.memory))
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.starved |= out_of_memory(&error);
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.allow(desired, self.table_elements))
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.starved |= out_of_memory(&error);
        Ok(())
    }
}

/// Whether something failed since the kernel gives this process no more memory or address space.
pub(super) fn out_of_memory(error: &wasmtime::Error) -> bool {
    let system = error.downcast_ref::<std::io::Error>();
    error.downcast_ref::<Errno>() == Some(&Errno::NOMEM)
        || system.is_some_and(|error| error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()))
        || error.is::<wasmtime::error::OutOfMemory>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes until this thread has used so much CPU time.
    fn compute(time: Duration) {
        let begun = thread_time();
        while u128::from(thread_time() - begun) < time.as_nanos() {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn only_time_that_is_computed_in_polls_counts() {
        let meter = CpuMeter::new(Duration::from_millis(20));
        compute(Duration::from_millis(25));
        meter.start();
        assert!(!meter.spent(), "what came before the poll is not its own");
        compute(Duration::from_millis(25));
        assert!(meter.spent(), "a poll that goes on counts");
        meter.stop();
        meter.start();
        assert!(meter.spent(), "polls add up");
        meter.reset();
        assert!(!meter.spent(), "progress gives a new budget");
        compute(Duration::from_millis(25));
        assert!(meter.spent());
    }

    #[test]
    fn refusals_are_remembered() {
        let mut limiter = Limiter::new(100, 10);
        let refused = limiter.refused();
        assert!(limiter.memory_growing(0, 100, None).unwrap() && !refused.load(Ordering::Relaxed));
        assert!(!limiter.memory_growing(0, 101, None).unwrap() && refused.load(Ordering::Relaxed));
    }
}
