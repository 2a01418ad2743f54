//! What one call may use: CPU time, memory, tables.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use wasmtime::{ResourceLimiter, Store, UpdateDeadline};

/// How often running guests are interrupted to look at their limits. Short enough that a guest that computes does not
/// hold up the others on its thread, long enough that the ticks cost nothing.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Counts the time in which a call's future was polled, which is the time in which its guest (and the little host code
/// between) ran; waiting for a host call is free.
///
/// Epochs alone can't tell: they pass while a guest waits, too.
#[derive(Debug)]
pub(super) struct CpuMeter {
    base: Instant,
    used: AtomicU64,
    /// When the poll that runs now began, in nanoseconds since `base`, plus 1; 0: not running.
    running_since: AtomicU64,
    budget: Duration,
}

impl CpuMeter {
    pub(super) fn new(budget: Duration) -> Arc<Self> {
        Arc::new(Self { base: Instant::now(), used: AtomicU64::new(0), running_since: AtomicU64::new(0), budget })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
    }

    fn start(&self) {
        self.running_since.store(self.now() + 1, Ordering::Relaxed);
    }

    fn stop(&self) {
        let since = self.running_since.swap(0, Ordering::Relaxed);
        if since > 0 {
            self.used.fetch_add((self.now() + 1).saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// Begin anew: the guest delivered something, or another call begins.
    pub(super) fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
        if self.running_since.load(Ordering::Relaxed) > 0 {
            self.start();
        }
    }

    fn spent(&self) -> bool {
        let since = self.running_since.load(Ordering::Relaxed);
        let current = if since > 0 { (self.now() + 1).saturating_sub(since) } else { 0 };
        let used = self.used.load(Ordering::Relaxed).saturating_add(current);
        u128::from(used) > self.budget.as_nanos()
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
}

impl Limiter {
    pub(super) fn new(memory: usize, table_elements: usize) -> Self {
        Self { memory, table_elements, refused: Arc::default() }
    }

    /// Whether growth was refused.
    pub(super) fn refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.refused)
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

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.allow(desired, self.table_elements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_polled_time_counts() {
        let meter = CpuMeter::new(Duration::from_millis(20));
        assert!(!meter.spent());
        meter.start();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(25) {
            std::hint::spin_loop();
        }
        assert!(meter.spent(), "a poll that goes on counts");
        meter.stop();
        assert!(meter.spent());
        meter.reset();
        assert!(!meter.spent(), "progress gives a new budget");
    }

    #[test]
    fn refusals_are_remembered() {
        let mut limiter = Limiter::new(100, 10);
        let refused = limiter.refused();
        assert!(limiter.memory_growing(0, 100, None).unwrap() && !refused.load(Ordering::Relaxed));
        assert!(!limiter.memory_growing(0, 101, None).unwrap() && refused.load(Ordering::Relaxed));
    }
}
