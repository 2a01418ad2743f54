//! The work that the threads of one walk share.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Jobs that make more jobs. The youngest is taken first, so that a walk goes into the depth and few are pending.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that work on a job, and may add more.
    busy: usize,
}

impl<J> Queue<J> {
    pub(super) fn new(first: J) -> Self {
        Self { state: Mutex::new(State { jobs: VecDeque::from([first]), busy: 0 }), changed: Condvar::new() }
    }

    /// How many jobs wait.
    pub(super) fn len(&self) -> usize {
        self.state.lock().jobs.len()
    }

    /// Adds jobs; the last of them is taken first.
    pub(super) fn extend(&self, jobs: impl IntoIterator<Item = J>) {
        let mut state = self.state.lock();
        let before = state.jobs.len();
        state.jobs.extend(jobs);
        match state.jobs.len() - before {
            0 => {}
            1 => drop(self.changed.notify_one()),
            _ => drop(self.changed.notify_all()),
        }
    }

    /// Works on jobs until none is left and none can come.
    pub(super) fn work(&self, mut run: impl FnMut(J)) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_back() {
                state.busy += 1;
                drop(state);
                // Counts down even if the job panics: the others must not wait for it for ever.
                let done = Done(self);
                run(job);
                drop(done);
                state = self.state.lock();
            } else if state.busy == 0 {
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

struct Done<'a, J>(&'a Queue<J>);

impl<J> Drop for Done<'_, J> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        if state.busy == 0 && state.jobs.is_empty() {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn all_jobs_are_done_and_all_threads_end() {
        // A job n makes two jobs n - 1: a full binary tree.
        let (queue, done) = (Queue::new(9_u32), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    queue.work(|job| {
                        done.fetch_add(1, Ordering::Relaxed);
                        queue.extend(job.checked_sub(1).into_iter().flat_map(|child| [child, child]));
                    });
                });
            }
        });
        assert_eq!(done.into_inner(), (1 << 10) - 1);
    }
}
