//! The work that the threads of one walk share.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// How many jobs are taken even if there is no room: one alone would have its directory read again for each.
const LEAST: usize = 16;

/// What a job takes, as far as [`Queue::fill`] counts it.
pub(super) trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

/// Jobs that make more jobs. The youngest is taken first, so that a walk goes into the depth and few are pending.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
    /// How many bytes of jobs may wait.
    limit: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// What they weigh together.
    bytes: usize,
    /// Threads that work on a job, and may add more.
    busy: usize,
    /// The most that ever waited.
    #[cfg(test)]
    peak: usize,
}

impl<J: Weigh> State<J> {
    fn push(&mut self, job: J) {
        self.bytes += job.weight();
        self.jobs.push_back(job);
        #[cfg(test)]
        {
            self.peak = self.peak.max(self.bytes);
        }
    }

    fn pop(&mut self) -> Option<J> {
        let job = self.jobs.pop_back()?;
        self.bytes -= job.weight();
        Some(job)
    }
}

impl<J: Weigh> Queue<J> {
    pub(super) fn new(first: J, limit: usize) -> Self {
        let mut state = State {
            jobs: VecDeque::new(),
            bytes: 0,
            busy: 0,
            #[cfg(test)]
            peak: 0,
        };
        state.push(first);
        Self { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    /// Adds jobs, whatever they weigh; the last of them is taken first.
    pub(super) fn extend(&self, jobs: impl IntoIterator<Item = J>) {
        let mut state = self.state.lock();
        jobs.into_iter().for_each(|job| state.push(job));
        self.wake(&state);
    }

    /// Adds jobs, the first of them to be taken first, as far as half of the room that is left reaches: the other half
    /// is for what they lead to. If some had to be left out, or there are `more`, also adds what `rest` makes of the
    /// number that was taken, to be taken after them.
    ///
    /// A few are taken even if there is no room, so that a walk always goes on, depth first. What waits is then at most
    /// the limit and, for each thread and each directory on its way down, those few.
    pub(super) fn fill(&self, mut jobs: Vec<J>, more: bool, rest: impl FnOnce(&[J]) -> Option<J>) {
        let mut state = self.state.lock();
        let mut room = self.limit.saturating_sub(state.bytes) / 2;
        let fits = jobs.iter().take_while(|job| {
            let left = room.checked_sub(job.weight());
            room = left.unwrap_or(0);
            left.is_some()
        });
        let count = fits.count().max(LEAST);
        let cut = count < jobs.len();
        jobs.truncate(count);
        if (cut || more)
            && let Some(rest) = rest(&jobs)
        {
            state.push(rest);
        }
        jobs.into_iter().rev().for_each(|job| state.push(job));
        self.wake(&state);
    }

    fn wake(&self, state: &State<J>) {
        match state.jobs.len() {
            0 => {}
            1 => drop(self.changed.notify_one()),
            _ => drop(self.changed.notify_all()),
        }
    }

    /// The most bytes that ever waited.
    #[cfg(test)]
    pub(super) fn peak(&self) -> usize {
        self.state.lock().peak
    }

    /// Works on jobs until none is left and none can come.
    pub(super) fn work(&self, mut run: impl FnMut(J)) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.pop() {
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

    impl Weigh for u32 {
        fn weight(&self) -> usize {
            10
        }
    }

    /// What is taken from a queue on this thread, in order.
    fn taken(queue: &Queue<u32>) -> Vec<u32> {
        let mut taken = Vec::new();
        queue.work(|job| taken.push(job));
        taken
    }

    #[test]
    fn half_of_the_room_is_filled_and_the_rest_comes_after_it() {
        // 1,000 bytes, of which the first job takes 10: there is room for 49 of them.
        let queue = Queue::new(1000, 1000);
        queue.fill((0..100).collect(), false, |taken| Some(2000 + taken.len() as u32));
        let expected: Vec<u32> = (0..49).chain([2049, 1000]).collect();
        assert_eq!(taken(&queue), expected);
        assert_eq!(queue.peak(), 510);
    }

    #[test]
    fn a_few_are_taken_without_room_and_all_if_they_fit() {
        let queue = Queue::new(1000, 0);
        queue.fill((0..100).collect(), false, |taken| taken.last().map(|last| 2000 + last));
        let expected: Vec<u32> = (0..16).chain([2015, 1000]).collect();
        assert_eq!(taken(&queue), expected);
        let queue = Queue::new(1000, 10_000);
        queue.fill((0..100).collect(), false, |_| Some(2000));
        assert_eq!(taken(&queue).len(), 101);
        queue.fill(vec![1], true, |_| Some(2000));
        assert_eq!(taken(&queue), [1, 2000]);
    }

    #[test]
    fn all_jobs_are_done_and_all_threads_end() {
        // A job n makes two jobs n - 1: a full binary tree.
        let (queue, done) = (Queue::new(9_u32, 0), AtomicU32::new(0));
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
