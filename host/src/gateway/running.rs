//! A command that runs: its events as they come, or all of its output at the end.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::capability::process::HeadTail;
use crate::error::{Code, Error, Result};
use crate::lifecycle::Pin;
use crate::rewrite::Redactor;
use crate::values::{Event, EventStream, ExitStatus};

/// A good limit for [`Running::output`], in bytes: as in the systems that Sandgate takes over from; more does not fit into
/// any agent's context.
pub const DEFAULT_COLLECT_LIMIT: u64 = 10 << 20;

/// A command that was started. Dropping it ends the command.
#[derive(Debug)]
pub struct Running {
    events: EventStream,
    stdout: Redactor,
    stderr: Redactor,
    /// What comes next before anything new is read.
    ready: VecDeque<Event>,
    ended: bool,
    /// While it runs, its sandbox is in use.
    _pin: Pin,
}

impl Running {
    pub(super) fn new(events: EventStream, redactor: Redactor, pin: Pin) -> Self {
        Self { events, stdout: redactor.fork(), stderr: redactor, ready: VecDeque::new(), ended: false, _pin: pin }
    }

    /// The next event; none after the end. The last one is always [`Event::Exited`] or [`Event::Failed`], and there is
    /// exactly one of these: a provider that says nothing of the end gives [`Code::ExitUnknown`].
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.events.recv().await {
                Some(Event::Stdout(bytes)) => {
                    let bytes = self.stdout.push(bytes);
                    self.put(Event::Stdout(bytes));
                }
                Some(Event::Stderr(bytes)) => {
                    let bytes = self.stderr.push(bytes);
                    self.put(Event::Stderr(bytes));
                }
                Some(Event::Dropped(count)) => {
                    self.flush();
                    self.ready.push_back(Event::Dropped(count));
                }
                Some(last) => self.end(last),
                None => self.end(Event::Failed(
                    Error::new(Code::ExitUnknown, "the command's stream ended without an exit status")
                        .hint("whether it succeeded is unknown; look at its effects before you run it again"),
                )),
            }
        }
    }

    fn put(&mut self, event: Event) {
        if !matches!(&event, Event::Stdout(bytes) | Event::Stderr(bytes) if bytes.is_empty()) {
            self.ready.push_back(event);
        }
    }

    /// What the redactors still hold back can't become a secret any more.
    fn flush(&mut self) {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.put(Event::Stdout(stdout));
        self.put(Event::Stderr(stderr));
    }

    fn end(&mut self, last: Event) {
        self.flush();
        self.ready.push_back(match last {
            Event::Failed(error) => Event::Failed(error.map_text(|text| self.stderr.redact(text))),
            last => last,
        });
        self.ended = true;
        self.events.close();
    }

    /// Waits for the end and collects the output: of both streams together at most `limit` bytes, half from the head and
    /// half from the tail.
    ///
    /// A command that was ended by its deadline gives the output so far, with the error in [`Output::end`].
    pub async fn output(mut self, limit: u64) -> Output {
        let mut kept = HeadTail::new(limit);
        let mut output = Collected::default();
        let end = loop {
            match self.next().await {
                Some(Event::Exited(status)) => break Ok(status),
                Some(Event::Failed(error)) => break Err(error),
                Some(event) => kept.push(event).into_iter().for_each(|event| output.add(event)),
                None => break Err(Error::internal("a command's events ended twice")),
            }
        };
        kept.finish().for_each(|event| output.add(event));
        let Collected { stdout, stderr, dropped } = output;
        Output { stdout: stdout.freeze(), stderr: stderr.freeze(), dropped, end }
    }
}

#[derive(Default)]
struct Collected {
    stdout: BytesMut,
    stderr: BytesMut,
    dropped: u64,
}

impl Collected {
    fn add(&mut self, event: Event) {
        match event {
            Event::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
            Event::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
            Event::Dropped(count) => {
                self.dropped += count;
                let note = format!("\n... [{count} bytes of output left out here] ...\n");
                let to = if self.stdout.is_empty() { &mut self.stderr } else { &mut self.stdout };
                to.extend_from_slice(note.as_bytes());
            }
            Event::Exited(_) | Event::Failed(_) => {}
        }
    }
}

/// What a command wrote, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its standard output; where bytes were left out, a line in the text says how many.
    pub stdout: Bytes,
    /// Its standard error, likewise.
    pub stderr: Bytes,
    /// How many bytes were left out.
    pub dropped: u64,
    /// Its exit status, or why there is none.
    pub end: Result<ExitStatus>,
}

impl Output {
    /// Whether it ended with code 0.
    pub fn success(&self) -> bool {
        matches!(self.end, Ok(ExitStatus { code: 0, .. }))
    }
}
