//! Work that waits for the disk, off the async threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Tells long work that nobody waits for it any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Whether to stop.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks to stop.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets a [`Cancel`] when it is dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `work` on a thread that may block. When the returned future is dropped, the work is told to stop.
pub(super) async fn run<T, W>(work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce(&Cancel) -> Result<T> + Send + 'static,
{
    let cancel = Cancel::default();
    let _guard = CancelOnDrop(cancel.clone());
    match tokio::task::spawn_blocking(move || work(&cancel)).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(Error::internal("a file operation of the gateway crashed")),
        Err(_) => Err(Error::unavailable("the gateway is shutting down")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropped_calls_stop_their_work() {
        let (started, wait) = tokio::sync::oneshot::channel();
        let (stopped, stop) = tokio::sync::oneshot::channel();
        let call = tokio::spawn(run(move |cancel| {
            let _ = started.send(());
            while !cancel.is_set() {
                std::thread::yield_now();
            }
            let _ = stopped.send(());
            Ok(())
        }));
        wait.await.unwrap();
        call.abort();
        stop.await.unwrap();
    }
}
