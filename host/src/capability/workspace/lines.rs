//! Cutting a range of lines out of a file as its pieces pass by, however long the lines are.

use bytes::Bytes;
use memchr::{memchr, memchr_iter};

/// Where a reader stands in its range of lines.
#[derive(Debug)]
pub(super) struct LineRange {
    /// The number of the line that the next byte belongs to.
    line: u64,
    start: u64,
    end: u64,
}

impl LineRange {
    /// Lines `start` (from 1) to `end`, both included; no `end`: to the end of the file.
    pub(super) fn new(start: u64, end: Option<u64>) -> Self {
        Self { line: 1, start, end: end.unwrap_or(u64::MAX) }
    }

    /// No byte that comes later is in the range.
    pub(super) fn is_over(&self) -> bool {
        self.line > self.end || self.end < self.start
    }

    /// The part of the next piece that is in the range; may be empty.
    pub(super) fn cut(&mut self, piece: &Bytes) -> Bytes {
        let from = self.skip(piece);
        let mut to = from;
        while !self.is_over() && to < piece.len() {
            if self.end == u64::MAX {
                to = piece.len();
                break;
            }
            match memchr(b'\n', &piece[to..]) {
                Some(at) => {
                    to += at + 1;
                    self.line += 1;
                }
                None => to = piece.len(),
            }
        }
        piece.slice(from..to)
    }

    /// How many bytes of the piece lie before the range.
    fn skip(&mut self, piece: &[u8]) -> usize {
        let missing = self.start.saturating_sub(self.line);
        if missing == 0 {
            return 0;
        }
        // Counting is much faster than visiting each line end, and in most pieces of a long file it is all that is
        // needed.
        let count = memchr_iter(b'\n', piece).count() as u64;
        if count < missing {
            self.line += count;
            return piece.len();
        }
        self.line = self.start;
        let nth = usize::try_from(missing - 1).unwrap_or(usize::MAX);
        memchr_iter(b'\n', piece).nth(nth).map_or(piece.len(), |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, piece: usize, start: u64, end: Option<u64>) -> String {
        let mut range = LineRange::new(start, end);
        let mut out = Vec::new();
        for part in text.as_bytes().chunks(piece) {
            if range.is_over() {
                break;
            }
            out.extend_from_slice(&range.cut(&Bytes::copy_from_slice(part)));
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ranges_are_the_same_however_the_file_is_cut_into_pieces() {
        for text in ["", "\n", "a", "a\n", "a\nb\r\n\nd\ne", "\n\n\n", "one long line without an end"] {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            for piece in 1..8 {
                for start in 1..8_u64 {
                    for end in (1..8).map(Some).chain([None]) {
                        let expected: String = lines
                            .iter()
                            .zip(1_u64..)
                            .filter(|(_, number)| *number >= start && end.is_none_or(|end| *number <= end))
                            .map(|(line, _)| *line)
                            .collect();
                        assert_eq!(cut(text, piece, start, end), expected, "{text:?} by {piece}: {start} to {end:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_reader_can_stop_after_its_last_line() {
        let mut range = LineRange::new(2, Some(2));
        assert_eq!(range.cut(&Bytes::from_static(b"a\nb\nc\n")), "b\n");
        assert!(range.is_over());
    }
}
