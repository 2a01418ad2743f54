//! How long a call may take without a sign of progress.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::limits::CpuMeter;

/// A wall-clock limit that begins anew whenever bytes or events move: a long upload is no reason to end a call, a silent
/// backend is.
#[derive(Debug)]
pub(super) struct Deadline {
    last: Mutex<Instant>,
    limit: Duration,
    meter: Arc<CpuMeter>,
}

impl Deadline {
    pub(super) fn new(limit: Duration, meter: Arc<CpuMeter>) -> Arc<Self> {
        Arc::new(Self { last: Mutex::new(Instant::now()), limit, meter })
    }

    /// Something moved: both the clock and the CPU budget begin anew.
    pub(super) fn touch(&self) {
        *self.last.lock() = Instant::now();
        self.meter.reset();
    }

    /// Bytes moved outside of the guest: the clock begins anew, the CPU budget does not.
    pub(super) fn moved(&self) {
        *self.last.lock() = Instant::now();
    }

    /// The limit.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Resolves when nothing has moved for the whole limit.
    pub(super) async fn expired(&self) {
        loop {
            let at = *self.last.lock() + self.limit;
            if Instant::now() >= at {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_moves_the_deadline() {
        let deadline = Deadline::new(Duration::from_secs(10), CpuMeter::new(Duration::from_secs(1)));
        let begun = Instant::now();
        let waiting = tokio::spawn({
            let deadline = Arc::clone(&deadline);
            async move { deadline.expired().await }
        });
        tokio::time::advance(Duration::from_secs(8)).await;
        deadline.touch();
        waiting.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(18));
    }
}
