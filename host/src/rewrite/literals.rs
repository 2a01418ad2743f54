//! A fixed set of byte strings, found in a buffer that may end in the middle of one.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// The strings, and for each its failure table (how long a proper prefix of it ends at each of its positions).
#[derive(Debug)]
pub(super) struct Literals {
    /// None: it could not be built, and each string is looked for by itself, which is slower and finds the same.
    finder: Option<AhoCorasick>,
    patterns: Vec<(Vec<u8>, Vec<usize>)>,
}

impl Literals {
    /// None without any string (empty ones do not count).
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
        // Not the automatic choice: for few strings that is a table of up to a KiB for each of their bytes.
        let finder = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(pattern, _)| pattern));
        // It fails on gigabytes of strings. What is not looked for would get through, so looking never stops.
        Some(Self { finder: finder.ok(), patterns })
    }

    /// All occurrences, overlapping ones too, as (pattern, start, end) in the order of their ends.
    pub(super) fn occurrences<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
        let quick = self.finder.iter().flat_map(move |finder| finder.find_overlapping_iter(buffer));
        let quick = quick.map(|found| (found.pattern().as_usize(), found.start(), found.end()));
        let slow = if self.finder.is_none() { self.one_by_one(buffer) } else { Vec::new() };
        quick.chain(slow)
    }

    fn one_by_one(&self, buffer: &[u8]) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        for (number, (pattern, failure)) in self.patterns.iter().enumerate() {
            scan(pattern, failure, buffer, |end| found.push((number, end - pattern.len(), end)));
        }
        // Of those that end together the longest first, as the automaton has them.
        found.sort_unstable_by_key(|&(number, start, end)| (end, start, number));
        found
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
    scan(pattern, failure, &buffer[start..], |_| {})
}

/// Tells where the pattern ends, each time; gives how many bytes at the end of the buffer are a proper prefix of it.
fn scan(pattern: &[u8], failure: &[usize], buffer: &[u8], mut ends: impl FnMut(usize)) -> usize {
    let mut matched = 0;
    for (at, &byte) in buffer.iter().enumerate() {
        while matched > 0 && pattern[matched] != byte {
            matched = failure[matched - 1];
        }
        if pattern[matched] == byte {
            matched += 1;
        }
        if matched == pattern.len() {
            ends(at + 1);
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

#[cfg(test)]
mod tests {
    use super::super::test_rng::Rng;
    use super::*;

    #[test]
    fn each_string_by_itself_is_found_where_the_automaton_finds_it() {
        let mut rng = Rng(3);
        let mut total = 0;
        for round in 0..2000 {
            let word = |rng: &mut Rng, size| (0..size).map(|_| b'a' + rng.below(2) as u8).collect::<Vec<u8>>();
            let mut patterns: Vec<_> = (0..1 + rng.below(4))
                .map(|_| {
                    let size = 1 + rng.below(5);
                    word(&mut rng, size)
                })
                .collect();
            patterns.sort();
            patterns.dedup();
            let text = word(&mut rng, 60);
            let mut literals = Literals::new(patterns.clone()).unwrap();
            let quick: Vec<_> = literals.occurrences(&text).collect();
            literals.finder = None;
            assert_eq!(literals.occurrences(&text).collect::<Vec<_>>(), quick, "round {round}: {patterns:?}");
            total += quick.len();
        }
        assert!(total > 2000);
    }

    #[test]
    fn the_automaton_is_no_table_of_all_bytes() {
        let long: Vec<u8> = (0..128 << 10).map(|at: usize| (at * at % 251) as u8).collect();
        let literals = Literals::new([long.clone()]).unwrap();
        assert!(literals.finder.as_ref().unwrap().memory_usage() < 8 << 20);
        assert_eq!(literals.occurrences(&long).collect::<Vec<_>>(), [(0, 0, long.len())]);
    }
}
