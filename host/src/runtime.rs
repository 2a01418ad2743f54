//! Time and tasks as the trusted parts use them, so that a simulation can bring its own.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use futures::future::{Either, select};

use crate::error::{Code, Error, Result};

/// A monotonic clock and a place where tasks run. Whatever must be the same in a simulation goes through it.
pub trait Runtime: Send + Sync + 'static {
    /// Time since some fixed moment. Never runs backwards.
    fn now(&self) -> Duration;

    /// Resolves once `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a task to its end, whoever waits for it or not.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Milliseconds since 1970, to compare with what backends say of their sandboxes.
    fn wall_ms(&self) -> u64;
}

/// The runtime that a gateway runs on: tokio's clock and tasks.
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: tokio::runtime::Handle,
    start: tokio::time::Instant,
}

impl TokioRuntime {
    /// The runtime of the calling task.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn current() -> Arc<Self> {
        Arc::new(Self { handle: tokio::runtime::Handle::current(), start: tokio::time::Instant::now() })
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.handle.spawn(task);
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Waits for `operation` at most so long; the operation is dropped, and so ended, when the time is up. `what` names it
/// in the error.
pub async fn within<T>(
    runtime: &dyn Runtime,
    limit: Duration,
    what: &str,
    operation: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let operation = std::pin::pin!(operation);
    match select(operation, runtime.sleep(limit)).await {
        Either::Left((result, _)) => result,
        Either::Right(_) => {
            Err(Error::new(Code::Timeout, format!("{what} did not answer within {}", humantime(limit))))
        }
    }
}

/// `2 s`, `1.5 s` or `250 ms`.
fn humantime(duration: Duration) -> String {
    if duration.as_millis() < 1000 {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{} s", duration.as_secs_f64())
    }
}
