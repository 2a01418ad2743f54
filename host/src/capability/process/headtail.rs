//! Output over a limit: its head goes on at once, its tail is kept, what lies between is counted.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::values::{CHUNK_SIZE, Event};

/// The largest tail: it waits in memory, for each command that runs, while a limit may be as large as a disk. Of a
/// larger limit the rest is head.
const MAX_TAIL: u64 = 8 << 20;

/// The most changes between the streams that a tail remembers (1 MiB of memory). A command that changes with every byte
/// keeps a shorter tail.
const MAX_RUNS: usize = 1 << 16;

/// Keeps at most `limit` bytes of output: the first half goes on as it comes, the last half, but no more than 8 MiB,
/// comes at the end, after an exact [`Event::Dropped`]. What the tail may not have, the head has. Both streams count
/// together; their order is kept.
///
/// A tail in which the streams change more than 65536 times is shorter: its beginning is dropped, and counted.
///
/// Memory: the tail and 1 MiB, whatever the limit.
#[derive(Debug)]
pub struct HeadTail {
    head_left: u64,
    tail_limit: usize,
    tail: VecDeque<u8>,
    /// Whose bytes are in `tail`, in order.
    runs: VecDeque<(Source, usize)>,
    dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Stdout,
    Stderr,
}

impl Source {
    fn event(self, bytes: Bytes) -> Event {
        match self {
            Self::Stdout => Event::Stdout(bytes),
            Self::Stderr => Event::Stderr(bytes),
        }
    }
}

impl HeadTail {
    /// A limit in bytes, of any size; an odd one gives the head one more.
    pub fn new(limit: u64) -> Self {
        let tail_limit = (limit / 2).min(MAX_TAIL);
        Self {
            head_left: limit - tail_limit,
            tail_limit: usize::try_from(tail_limit).unwrap_or(usize::MAX),
            tail: VecDeque::new(),
            runs: VecDeque::new(),
            dropped: 0,
        }
    }

    /// What of an event goes on at once. Events that are no output always do.
    pub fn push(&mut self, event: Event) -> Option<Event> {
        let (source, mut bytes) = match event {
            Event::Stdout(bytes) => (Source::Stdout, bytes),
            Event::Stderr(bytes) => (Source::Stderr, bytes),
            other => return Some(other),
        };
        let fits = usize::try_from(self.head_left).unwrap_or(usize::MAX).min(bytes.len());
        let head = bytes.split_to(fits);
        self.head_left -= fits as u64;
        self.keep(source, &bytes);
        (!head.is_empty()).then(|| source.event(head))
    }

    /// What comes before the last event: the count of what was left out, if there is any, and the tail.
    pub fn finish(mut self) -> impl Iterator<Item = Event> {
        let dropped = (self.dropped > 0).then_some(Event::Dropped(self.dropped));
        dropped.into_iter().chain(std::iter::from_fn(move || {
            let (source, left) = self.runs.front_mut()?;
            let (source, size) = (*source, (*left).min(CHUNK_SIZE));
            *left -= size;
            if *left == 0 {
                self.runs.pop_front();
            }
            Some(source.event(self.tail.drain(..size).collect::<Vec<u8>>().into()))
        }))
    }

    fn keep(&mut self, source: Source, bytes: &[u8]) {
        let useless = bytes.len().saturating_sub(self.tail_limit);
        let bytes = &bytes[useless..];
        self.dropped += useless as u64;
        self.forget((self.tail.len() + bytes.len()).saturating_sub(self.tail_limit));
        if bytes.is_empty() {
            return;
        }
        match self.runs.back_mut() {
            Some((last, size)) if *last == source => *size += bytes.len(),
            _ => {
                if self.runs.len() == MAX_RUNS
                    && let Some(&(_, oldest)) = self.runs.front()
                {
                    self.forget(oldest);
                }
                self.runs.push_back((source, bytes.len()));
            }
        }
        self.tail.extend(bytes);
    }

    fn forget(&mut self, mut count: usize) {
        self.dropped += count as u64;
        self.tail.drain(..count);
        while count > 0 {
            let Some((_, size)) = self.runs.front_mut() else { return };
            let part = count.min(*size);
            *size -= part;
            count -= part;
            if *size == 0 {
                self.runs.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs events through and gives all that comes out, neighbours of one stream joined.
    fn through(limit: u64, events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut kept = HeadTail::new(limit);
        let mut out: Vec<Event> = events.into_iter().filter_map(|event| kept.push(event)).collect();
        out.extend(kept.finish());
        let mut joined: Vec<Event> = Vec::new();
        for event in out {
            match (joined.last_mut(), event) {
                (Some(Event::Stdout(last)), Event::Stdout(more)) => *last = [last.clone(), more].concat().into(),
                (Some(Event::Stderr(last)), Event::Stderr(more)) => *last = [last.clone(), more].concat().into(),
                (_, event) => joined.push(event),
            }
        }
        joined
    }

    fn out(text: &'static str) -> Event {
        Event::Stdout(Bytes::from_static(text.as_bytes()))
    }

    fn err(text: &'static str) -> Event {
        Event::Stderr(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn output_within_the_limit_is_whole() {
        assert_eq!(through(10, [out("01234"), out("56789")]), [out("0123456789")]);
        assert_eq!(through(0, []), []);
    }

    #[test]
    fn head_and_tail_are_kept_and_the_rest_is_counted() {
        assert_eq!(through(4, [out("0123456789")]), [out("01"), Event::Dropped(6), out("89")]);
        let bytes = (0..10).map(|n| Event::Stdout(Bytes::from(vec![b'0' + n])));
        assert_eq!(through(5, bytes), [out("012"), Event::Dropped(5), out("89")]);
        assert_eq!(through(0, [out("abc")]), [Event::Dropped(3)]);
        assert_eq!(through(1, [out("abc")]), [out("a"), Event::Dropped(2)]);
    }

    #[test]
    fn streams_keep_their_order_and_names() {
        let events = [out("ab"), err("cd"), out("ef"), err("gh"), out("ij")];
        assert_eq!(through(6, events), [out("ab"), err("c"), Event::Dropped(4), err("h"), out("ij")]);
    }

    #[test]
    fn a_long_output_costs_only_its_tail() {
        let mut kept = HeadTail::new(8 << 20);
        let piece = Bytes::from(vec![b'x'; CHUNK_SIZE]);
        let sent: u64 = (0..2000).map(|_| kept.push(Event::Stdout(piece.clone()))).map(size).sum();
        assert_eq!(sent, 4 << 20);
        assert!(kept.tail.capacity() <= 16 << 20 && kept.runs.len() == 1);
        let rest: Vec<Event> = kept.finish().collect();
        assert_eq!(rest[0], Event::Dropped(2000 * CHUNK_SIZE as u64 - (8 << 20)));
        assert_eq!(rest.into_iter().map(|event| size(Some(event))).sum::<u64>(), 4 << 20);
    }

    #[test]
    fn a_large_limit_is_mostly_head() {
        let mut kept = HeadTail::new(1 << 40);
        assert_eq!((kept.head_left, kept.tail_limit), ((1 << 40) - (8 << 20), 8 << 20));
        kept.head_left = 3;
        let piece = Bytes::from(vec![b'x'; CHUNK_SIZE]);
        let sent: u64 = (0..1000).map(|_| kept.push(Event::Stdout(piece.clone()))).map(size).sum();
        assert_eq!((sent, kept.tail.len(), kept.dropped), (3, 8 << 20, 1000 * CHUNK_SIZE as u64 - (8 << 20) - 3));
        let most = HeadTail::new(u64::MAX);
        assert_eq!((most.head_left, most.tail_limit), (u64::MAX - (8 << 20), 8 << 20));
    }

    #[test]
    fn streams_that_change_with_every_byte_cost_no_more() {
        let count = 3 * MAX_RUNS as u64;
        let mut kept = HeadTail::new(1 << 22);
        kept.head_left = 0;
        for _ in 0..count / 2 {
            assert!(kept.push(out("o")).is_none() && kept.push(err("e")).is_none());
        }
        assert!(kept.runs.len() == MAX_RUNS && kept.runs.capacity() <= 2 * MAX_RUNS);
        let rest: Vec<Event> = kept.finish().collect();
        assert_eq!(rest[0], Event::Dropped(count - MAX_RUNS as u64));
        assert_eq!((rest.len(), &rest[1], &rest[MAX_RUNS]), (1 + MAX_RUNS, &out("o"), &err("e")));
    }

    fn size(event: Option<Event>) -> u64 {
        match event {
            Some(Event::Stdout(bytes) | Event::Stderr(bytes)) => bytes.len() as u64,
            _ => 0,
        }
    }
}
