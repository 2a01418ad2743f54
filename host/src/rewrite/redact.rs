//! Secrets that were given to a command do not come back in its output.

use std::sync::Arc;

use bytes::Bytes;

use super::literals::Literals;
use super::stream::{Held, Plan, Planner};

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are left alone: they are found in ordinary text (`42`, `true`), and replacing them there destroys it.
pub const MIN_SECRET: usize = 8;

/// Replaces every occurrence of the given values of at least [`MIN_SECRET`] bytes in one stream by [`REDACTED`], also
/// where pieces of the stream cut it. Occurrences that overlap become one: no byte of any is left over.
///
/// Only bytes that could begin a value are held back. Use one for each stream ([`fork`](Self::fork) shares the work).
#[derive(Debug, Default)]
pub struct Redactor {
    marks: Option<Marks>,
    held: Held,
}

#[derive(Debug)]
struct Marks {
    secrets: Arc<Literals>,
    /// So many of the bytes that are held back belong to an occurrence that has its mark already.
    covered: usize,
}

impl Redactor {
    /// A redactor for the values; without one that is long enough it passes everything through untouched.
    pub fn new<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Self {
        let mut secrets: Vec<Vec<u8>> =
            values.into_iter().map(|value| value.as_ref().to_vec()).filter(|value| value.len() >= MIN_SECRET).collect();
        secrets.sort();
        secrets.dedup();
        let marks = Literals::new(secrets).map(|secrets| Marks { secrets: Arc::new(secrets), covered: 0 });
        Self { marks, held: Held::default() }
    }

    /// Another redactor for the same values, at the beginning of a stream.
    #[must_use]
    pub fn fork(&self) -> Self {
        let marks = self.marks.as_ref().map(|marks| Marks { secrets: Arc::clone(&marks.secrets), covered: 0 });
        Self { marks, held: Held::default() }
    }

    /// The next piece; what comes out may be shorter or longer, or empty.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        match &mut self.marks {
            Some(marks) => self.held.step(marks, piece, false),
            None => piece,
        }
    }

    /// The end: what was held back.
    pub fn finish(&mut self) -> Bytes {
        match &mut self.marks {
            Some(marks) => self.held.step(marks, Bytes::new(), true),
            None => Bytes::new(),
        }
    }

    /// A whole text at once.
    pub fn redact(&self, text: &str) -> String {
        let mut one = self.fork();
        let (head, tail) = (one.push(Bytes::copy_from_slice(text.as_bytes())), one.finish());
        // Only whole values were taken out of the text, but a value need not end where a character does.
        String::from_utf8_lossy(&[head, tail].concat()).into_owned()
    }
}

impl Planner for Marks {
    fn plan(&mut self, buffer: &[u8], last: bool) -> Plan<'_> {
        // Occurrences come ordered by their ends: one that reaches back joins what it touches. `true`: has its mark.
        let mut spans: Vec<(usize, usize, bool)> = Vec::new();
        if self.covered > 0 {
            spans.push((0, self.covered, true));
        }
        for (_, start, end) in self.secrets.occurrences(buffer) {
            let (mut start, mut marked) = (start, false);
            let mut end = end;
            while let Some(&(before, until, was)) = spans.last() {
                if until <= start {
                    break;
                }
                (start, end, marked) = (start.min(before), end.max(until), marked || was);
                spans.pop();
            }
            spans.push((start, end, marked));
        }
        let hold = if last { buffer.len() } else { self.secrets.undecided(buffer) };
        self.covered = 0;
        let mut edits = Vec::with_capacity(spans.len());
        for (start, end, marked) in spans {
            if start >= hold && !marked {
                // Inside of what may become a longer occurrence: it is found again then.
                break;
            }
            if end > hold {
                self.covered = end - hold;
            }
            let replacement: &[u8] = if marked { b"" } else { REDACTED.as_bytes() };
            edits.push((start.min(hold)..end.min(hold), replacement));
        }
        Plan { edits, hold }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_rng::Rng;
    use super::*;

    /// The plain way: mark every byte of every occurrence, then replace the runs that overlaps make.
    fn whole(text: &[u8], secrets: &[Vec<u8>]) -> Vec<u8> {
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for start in 0..text.len() {
            for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET) {
                if text[start..].starts_with(secret) {
                    spans.push((start, start + secret.len()));
                }
            }
        }
        spans.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (start, end) in spans {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        let (mut out, mut done) = (Vec::new(), 0);
        for (start, end) in merged {
            out.extend_from_slice(&text[done..start]);
            out.extend_from_slice(REDACTED.as_bytes());
            done = end;
        }
        out.extend_from_slice(&text[done..]);
        out
    }

    #[test]
    fn random_splits_give_what_the_whole_buffer_gives() {
        let mut rng = Rng(1);
        for round in 0..3000 {
            // Two letters make secrets that overlap themselves and each other.
            let secrets: Vec<Vec<u8>> =
                (0..rng.below(4)).map(|_| (0..6 + rng.below(8)).map(|_| b'a' + rng.below(2) as u8).collect()).collect();
            let mut text = Vec::new();
            while text.len() < 200 {
                match rng.below(3) {
                    0 if !secrets.is_empty() => text.extend_from_slice(&secrets[rng.below(secrets.len())]),
                    1 => text.push(b'-'),
                    _ => text.push(b'a' + rng.below(2) as u8),
                }
            }
            let mut redactor = Redactor::new(&secrets);
            let (mut out, mut rest) = (Vec::new(), &text[..]);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((1 + rng.below(30)).min(rest.len()));
                out.extend_from_slice(&redactor.push(Bytes::copy_from_slice(piece)));
                rest = after;
            }
            out.extend_from_slice(&redactor.finish());
            assert_eq!(
                String::from_utf8_lossy(&out),
                String::from_utf8_lossy(&whole(&text, &secrets)),
                "round {round}, secrets {secrets:?}"
            );
        }
    }

    #[test]
    fn only_what_could_begin_a_secret_waits() {
        let mut redactor = Redactor::new(["hunter2-password"]);
        assert_eq!(redactor.push(Bytes::from_static(b"ready> ")), "ready> ");
        assert_eq!(redactor.push(Bytes::from_static(b"say hunt")), "say ");
        assert_eq!(redactor.push(Bytes::from_static(b"ing")), "hunting");
        assert_eq!(redactor.push(Bytes::from_static(b"hunter2-pass")), "");
        assert_eq!(redactor.push(Bytes::from_static(b"word!")), "[redacted]!");
        assert_eq!(redactor.push(Bytes::from_static(b"h")), "");
        assert_eq!(redactor.finish(), "h");
    }

    #[test]
    fn short_values_are_left_alone_and_cost_nothing() {
        let mut redactor = Redactor::new(["42", "", "1234567"]);
        assert!(redactor.marks.is_none());
        let piece = Bytes::from(vec![b'4'; 100]);
        assert_eq!(redactor.push(piece.clone()).as_ptr(), piece.as_ptr());
    }

    #[test]
    fn a_piece_without_a_secret_is_not_copied() {
        let mut redactor = Redactor::new(["hunter2-password"]);
        let piece = Bytes::from(vec![b'.'; 100]);
        assert_eq!(redactor.push(piece.clone()).as_ptr(), piece.as_ptr());
    }

    #[test]
    fn the_longer_of_two_secrets_wins() {
        let redactor = Redactor::new(["password", "password-and-more"]);
        assert_eq!(redactor.redact("password-and-more password"), "[redacted] [redacted]");
    }
}
