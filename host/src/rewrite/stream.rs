//! The part that redaction and translation share: joining what was held back with what comes, and applying edits.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// What to do with a buffer.
pub(super) struct Plan<'a> {
    /// Which bytes to replace by what: in order, apart, and all before `hold`.
    pub(super) edits: Vec<(Range<usize>, &'a [u8])>,
    /// From here on the bytes wait for what comes next.
    pub(super) hold: usize,
}

/// Decides what happens to a buffer; with `last` nothing comes after it, and nothing may be held.
pub(super) trait Planner {
    /// May remember something about the bytes that it holds back: they begin the next buffer.
    fn plan(&mut self, buffer: &[u8], last: bool) -> Plan<'_>;
}

/// The bytes held back between two pieces: never more than the longest string that is looked for, and what decides about it.
#[derive(Debug, Default)]
pub(super) struct Held(Bytes);

impl Held {
    pub(super) fn step(&mut self, planner: &mut impl Planner, piece: Bytes, last: bool) -> Bytes {
        let mut buffer = if self.0.is_empty() {
            piece
        } else {
            let mut joined = BytesMut::with_capacity(self.0.len() + piece.len());
            joined.extend_from_slice(&self.0);
            joined.extend_from_slice(&piece);
            joined.freeze()
        };
        let plan = planner.plan(&buffer, last);
        let (hold, edited) = (plan.hold, apply(&buffer, &plan));
        self.0 = buffer.split_off(hold);
        // A few bytes must not keep a whole piece in memory.
        if !self.0.is_empty() {
            self.0 = Bytes::copy_from_slice(&self.0);
        }
        edited.unwrap_or(buffer)
    }
}

/// None: nothing to change.
fn apply(buffer: &[u8], plan: &Plan<'_>) -> Option<Bytes> {
    if plan.edits.is_empty() {
        return None;
    }
    let mut out = BytesMut::with_capacity(buffer.len());
    let mut done = 0;
    for (range, replacement) in &plan.edits {
        out.extend_from_slice(&buffer[done..range.start]);
        out.extend_from_slice(replacement);
        done = range.end;
    }
    out.extend_from_slice(&buffer[done..plan.hold]);
    Some(out.freeze())
}
