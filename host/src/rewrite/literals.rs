//! A fixed set of byte strings, found in a buffer that may end in the middle of one.

use aho_corasick::{AhoCorasick, MatchKind};

/// The strings, and for each its failure table (how long a proper prefix of it ends at each of its positions).
#[derive(Debug)]
pub(super) struct Literals {
    finder: AhoCorasick,
    patterns: Vec<(Vec<u8>, Vec<usize>)>,
}

impl Literals {
    /// None without any string (empty ones do not count), or if there are more than the finder can hold.
    pub(super) fn new(patterns: impl IntoIterator<Item = Vec<u8>>) -> Option<Self> {
        let patterns: Vec<_> = patterns
            .into_iter()
            .filter(|pattern| !pattern.is_empty())
            .map(|pattern| {
                let failure = failure_table(&pattern);
                (pattern, failure)
            })
            .collect();
        if patterns.is_empty() {
            return None;
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(pattern, _)| pattern))
            .ok()?;
        Some(Self { finder, patterns })
    }

    /// All occurrences, overlapping ones too, as (pattern, start, end) in the order of their ends.
    pub(super) fn occurrences<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
        self.finder.find_overlapping_iter(buffer).map(|found| (found.pattern().as_usize(), found.start(), found.end()))
    }

    /// Where the longest end of the buffer begins that is a proper beginning of a string: what comes next decides.
    pub(super) fn undecided(&self, buffer: &[u8]) -> usize {
        let longest = self.patterns.iter().map(|(pattern, failure)| overlap(pattern, failure, buffer)).max();
        buffer.len() - longest.unwrap_or(0)
    }
}

/// How many bytes at the end of the buffer are a proper prefix of the pattern.
fn overlap(pattern: &[u8], failure: &[usize], buffer: &[u8]) -> usize {
    let start = buffer.len().saturating_sub(pattern.len() - 1);
    let mut matched = 0;
    for &byte in &buffer[start..] {
        while matched > 0 && pattern[matched] != byte {
            matched = failure[matched - 1];
        }
        if pattern[matched] == byte {
            matched += 1;
        }
        if matched == pattern.len() {
            matched = failure[matched - 1];
        }
    }
    matched
}

fn failure_table(pattern: &[u8]) -> Vec<usize> {
    let mut table = vec![0; pattern.len()];
    let mut matched = 0;
    for at in 1..pattern.len() {
        while matched > 0 && pattern[matched] != pattern[at] {
            matched = table[matched - 1];
        }
        if pattern[matched] == pattern[at] {
            matched += 1;
        }
        table[at] = matched;
    }
    table
}
