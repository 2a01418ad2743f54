//! What the three searches share: which names are ignored, and how a search reports what it could not read.
//!
//! A search prints its records, each ended by NUL; then, where a record begins, one more NUL, the status of the tool,
//! NUL, and the tool's messages. So the messages come apart from the records even where a backend mixes the streams, and
//! an answer without this end is known to be cut.

use super::quote::quote;
use crate::error::Result;
use crate::values::Error;

/// The names that `skip-ignored` leaves out, one glob a line.
const IGNORED: &str = include_str!("../../wit/ignored-names.txt");

/// So many bytes of results are collected for one call. A guest's memory is small, and an agent that gets so much can't
/// use it: the answer is marked as truncated.
pub(super) const MAX_COLLECTED: usize = 8 << 20;
/// The largest `limit` and `max-results` of the interface.
const MAX_RESULTS: u32 = 100_000;
/// The longest record, in bytes. The longest is the state of all files that one `stat` was given; no system takes
/// more arguments than 2 MiB, and each file has less than 64 bytes besides its name.
const MAX_RECORD: usize = 16 << 20;
/// The longest line of a tool's messages that is looked at, in bytes: a path and a reason.
const MAX_MESSAGE: usize = 8 << 10;

/// Endings of messages about a file that was left out. A search goes on after them.
const SKIPPED: [&str; 9] = [
    "Permission denied",
    "Operation not permitted",
    "Input/output error",
    "Stale file handle",
    "Structure needs cleaning",
    "Transport endpoint is not connected",
    "Too many levels of symbolic links",
    "File name too long",
    "Host is down",
];
/// Parts of messages that say nothing about the result: something went away during the search, or a shell dislikes a
/// locale.
const HARMLESS: [&str; 3] = ["No such file or directory", "Not a directory", "setlocale"];

/// Tests for `find` that leave out the ignored names and what is below them; empty if nothing is to be left out.
pub(super) fn prune(skip_ignored: bool) -> String {
    if !skip_ignored {
        return String::new();
    }
    let names: Vec<String> = IGNORED
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|name| format!("-name {}", quote(name)))
        .collect();
    format!("\\( {} \\) -prune -o", names.join(" -o "))
}

/// Runs a search and prints its end.
pub(super) fn with_end(search: &str) -> String {
    format!("{{ e=$( {{ {search}; }} 2>&1 >&3 3>&- ); s=$?; printf '\\000%s\\000%s' \"$s\" \"$e\"; }} 3>&1\nexit 0")
}

/// Refuses more results than the interface has.
pub(super) fn check_max(name: &str, value: u32) -> Result<()> {
    if value > MAX_RESULTS {
        return Err(Error::InvalidArgument(format!("{name} is {value}; at most {MAX_RESULTS} are possible")));
    }
    Ok(())
}

/// Cuts a stream into records.
#[derive(Default)]
pub(super) struct Records {
    partial: Vec<u8>,
}

impl Records {
    /// Takes one record off the front of `bytes`, with what came of it before; none if its end has not come.
    pub(super) fn next(&mut self, bytes: &mut &[u8], end: u8) -> Result<Option<Vec<u8>>> {
        let at = bytes.iter().position(|byte| *byte == end);
        let (head, rest) = bytes.split_at(at.unwrap_or(bytes.len()));
        self.partial.extend_from_slice(head);
        if self.partial.len() > MAX_RECORD {
            return Err(Error::Other(format!("the sandbox's tools gave a record of more than {MAX_RECORD} bytes")));
        }
        *bytes = rest.get(1..).unwrap_or_default();
        Ok(at.is_some().then(|| std::mem::take(&mut self.partial)))
    }
}

/// The end of a search: the tool's status, then its messages.
#[derive(Default)]
pub(super) struct End {
    records: Records,
    status: Option<String>,
    line: Vec<u8>,
    messages: u32,
    skipped: u32,
    /// The first message that says something else than that a file was left out.
    unexpected: Option<String>,
}

impl End {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.status.is_none() {
            match self.records.next(&mut bytes, 0)? {
                Some(status) => self.status = Some(String::from_utf8_lossy(&status).into_owned()),
                None => return Ok(()),
            }
        }
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                // The reason is at the end of a message: of a long one, the beginning is dropped.
                _ if self.line.len() == MAX_MESSAGE => {
                    self.line.drain(..MAX_MESSAGE / 2);
                    self.line.push(*byte);
                }
                _ => self.line.push(*byte),
            }
        }
        Ok(())
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        if !line.is_empty() {
            self.messages = self.messages.saturating_add(1);
            if SKIPPED.iter().any(|reason| line.ends_with(reason)) {
                self.skipped = self.skipped.saturating_add(1);
            } else if !HARMLESS.iter().any(|part| line.contains(part)) && self.unexpected.is_none() {
                self.unexpected = Some(line.to_owned());
            }
        }
        self.line.clear();
    }

    /// How many files were left out; an error if the search can't be trusted to be whole.
    pub(super) fn skipped(mut self) -> Result<u32> {
        self.end_line();
        let Some(status) = self.status else {
            return Err(Error::Unavailable("the answer of the search in the sandbox is not whole".into()));
        };
        if let Some(message) = self.unexpected {
            return Err(Error::Other(format!("the search in the sandbox failed: {message}")));
        }
        if status != "0" && self.messages == 0 {
            return Err(Error::Other(format!("the search in the sandbox ended with status {status}")));
        }
        Ok(self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_names_are_those_that_agents_expect() {
        let prune = prune(true);
        for name in ["'.git'", "'node_modules'", "'*.egg-info'", "'.upload-*.part'", "'*~'", "'.ruff_cache'"] {
            assert!(prune.contains(&format!("-name {name} ")), "{name}");
        }
        assert_eq!(prune.matches("-name").count(), 50);
        assert_eq!(super::prune(false), "");
    }

    #[test]
    fn records_come_together_from_pieces() {
        let mut records = Records::default();
        let mut found = Vec::new();
        for piece in [&b"a"[..], b"b\0\0c", b"", b"d\0e"] {
            let mut rest = piece;
            while let Some(record) = records.next(&mut rest, 0).expect("small") {
                found.push(record);
            }
        }
        assert_eq!(found, [&b"ab"[..], b"", b"cd"]);
        let mut endless = Records::default();
        assert!((0..300).any(|_| endless.next(&mut &[b'x'; 65_536][..], 0).is_err()), "no record is endless");
    }

    fn end(text: &[u8]) -> Result<u32> {
        let mut end = End::default();
        for piece in text.chunks(3) {
            end.feed(piece)?;
        }
        end.skipped()
    }

    #[test]
    fn an_end_counts_what_was_left_out_and_fails_for_anything_else() {
        assert_eq!(end(b"0\0").expect("whole"), 0);
        let left_out =
            b"1\0find: '/a': Permission denied\nfind: /b: Input/output error\nfind: /c: No such file or directory\n";
        assert_eq!(end(left_out).expect("whole"), 2);
        for bad in [&b""[..], b"0", b"1\0", b"137\0", b"1\0find: unrecognized: -print0", b"0\0grep: Unmatched ["] {
            assert!(end(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
        let long = [&b"1\0"[..], &b"x".repeat(1 << 20), b": Permission denied"].concat();
        assert_eq!(end(&long).expect("whole"), 1);
    }

    #[test]
    fn limits_are_those_of_the_interface() {
        assert!(check_max("limit", 100_000).is_ok());
        assert!(matches!(check_max("limit", 100_001), Err(Error::InvalidArgument(text)) if text.contains("100001")));
    }
}
