//! From a command's events to a result. Everything here is plain state, so that tests feed it the events of real
//! shells; [`super::ops`] feeds it those of a sandbox.

use super::failure;
use super::quote::Target;
use crate::error::Result;
use crate::values::{Error, Event, TooLarge};

/// So much of what a failing script says is kept, in bytes: enough for a message, little for a runaway one.
const MAX_TEXT: usize = 4 << 10;

/// Whether more output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    /// The result is complete; the command can be ended.
    Enough,
}

/// Takes the output of one script apart, in pieces as they come.
pub(super) trait Sink {
    type Output;

    fn feed(&mut self, bytes: &[u8]) -> Result<Flow>;

    /// The command has succeeded and this was all, or [`Flow::Enough`] was said.
    fn finish(self) -> Result<Self::Output>;
}

/// What a script says besides its output, and how it ends.
pub(super) struct Outcome {
    target: Target,
    received: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// One event, seen by [`Outcome`].
pub(super) enum Seen {
    Output(Vec<u8>),
    Nothing,
    /// The command has ended and succeeded.
    Success,
}

impl Outcome {
    pub(super) fn new(target: Target) -> Self {
        Self { target, received: 0, stdout: Vec::new(), stderr: Vec::new() }
    }

    pub(super) fn see(&mut self, event: Event) -> Result<Seen> {
        match event {
            Event::Stdout(bytes) => {
                self.received += bytes.len() as u64;
                keep(&mut self.stdout, &bytes);
                return Ok(Seen::Output(bytes));
            }
            Event::Stderr(bytes) => keep(&mut self.stderr, &bytes),
            // Half of an answer is none.
            Event::Dropped(count) => {
                return Err(Error::TooLarge(TooLarge {
                    message: format!(
                        "{}: the sandbox's output limit left out {count} bytes; ask for less at once, or raise the provider's output limit",
                        self.target.as_str()
                    ),
                    size: self.received.saturating_add(count),
                    limit: self.received,
                }));
            }
            Event::Exited(status) => {
                // A backend that does not tell the streams apart gives the reason as output.
                let text = if self.stderr.is_empty() { &self.stdout } else { &self.stderr };
                failure::check(&self.target, &status, text)?;
                return Ok(Seen::Success);
            }
            Event::Failed(error) => return Err(error),
        }
        Ok(Seen::Nothing)
    }

    /// The events ended without an end of the command.
    pub(super) fn cut(&self) -> Error {
        Error::Unavailable(format!("{}: the end of the command for it was not seen", self.target.as_str()))
    }
}

fn keep(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_TEXT.saturating_sub(text.len());
    text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

/// A running script with its sink.
pub(super) struct Run<K> {
    outcome: Outcome,
    sink: K,
}

impl<K: Sink> Run<K> {
    pub(super) fn new(target: Target, sink: K) -> Self {
        Self { outcome: Outcome::new(target), sink }
    }

    /// [`Flow::Enough`] when the result is there.
    pub(super) fn see(&mut self, event: Event) -> Result<Flow> {
        match self.outcome.see(event)? {
            Seen::Output(bytes) => self.sink.feed(&bytes),
            Seen::Nothing => Ok(Flow::More),
            Seen::Success => Ok(Flow::Enough),
        }
    }

    /// After [`Flow::Enough`].
    pub(super) fn finish(self) -> Result<K::Output> {
        self.sink.finish()
    }

    pub(super) fn cut(&self) -> Error {
        self.outcome.cut()
    }
}

/// For scripts with nothing to say.
pub(super) struct NoOutput;

impl Sink for NoOutput {
    type Output = ();

    fn feed(&mut self, _: &[u8]) -> Result<Flow> {
        Ok(Flow::More)
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}

/// One short line, taken apart by a function at the end.
pub(super) struct OneLine<T> {
    text: Vec<u8>,
    parse: fn(&str) -> Option<T>,
}

impl<T> OneLine<T> {
    pub(super) fn new(parse: fn(&str) -> Option<T>) -> Self {
        Self { text: Vec::new(), parse }
    }
}

impl<T> Sink for OneLine<T> {
    type Output = T;

    fn feed(&mut self, bytes: &[u8]) -> Result<Flow> {
        keep(&mut self.text, bytes);
        Ok(Flow::More)
    }

    fn finish(self) -> Result<T> {
        let text = String::from_utf8_lossy(&self.text);
        (self.parse)(text.trim_end()).ok_or_else(|| unreadable(&text))
    }
}

/// An answer that no script of ours gives.
pub(super) fn unreadable(text: &str) -> Error {
    Error::Other(format!("the sandbox's tools gave an answer that can't be read: {text:?}"))
}
