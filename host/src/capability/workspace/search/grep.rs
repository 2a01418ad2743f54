//! Finding lines by a regular expression.

use std::os::fd::OwnedFd;

use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::pattern::{PathPattern, check_length};
use super::top::Top;
use super::walk::{self, Entry, Seen, Start, Visitor, Walk};
use crate::capability::workspace::blocking::Cancel;
use crate::capability::workspace::fault::Fault;
use crate::capability::workspace::{beneath, kind};
use crate::error::{Error, Result};
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{FileKind, GrepMatch, GrepOptions, GrepResult};

/// Larger files are skipped: they are data, not text that somebody wrote, and would drown what is looked for.
const MAX_FILE: usize = 1_000_000;
/// A NUL among the first bytes makes a file binary.
const BINARY_HEAD: usize = 8192;
/// Longer lines are skipped: minified code and data, of which 200 characters say nothing.
const MAX_LINE: usize = 2000;
/// The most characters of a line that are shown, the mark of the cut included.
const MAX_SHOWN: usize = 200;
const CUT_MARK: &str = "...";

pub(in super::super) fn grep(
    table: &MountTable,
    path: &VirtualPath,
    pattern: &str,
    options: &GrepOptions,
    cancel: &Cancel,
) -> Result<GrepResult> {
    let grep = Grep {
        matcher: matcher(pattern, options)?,
        glob: options.glob.as_deref().map(PathPattern::new).transpose()?,
        top: Top::new(options.max_results),
    };
    let skipped = match walk::start_or_file(table, path)? {
        walk::Found::Start(start) => run(&grep, table, start, path, options, cancel),
        walk::Found::File(file) => {
            let name = path.as_str().rsplit('/').next().unwrap_or_default();
            if grep.glob.as_ref().is_none_or(|glob| glob.matches(name)) {
                let read = grep.search(&mut grep.scratch(), &file, path.as_str());
                read.map_err(|errno| Fault::Os(errno).about(path))?;
            }
            0
        }
    };
    let (matches, truncated) = grep.top.finish();
    let matches =
        matches.into_iter().map(|((path, line_number), line)| GrepMatch { path, line_number, line }).collect();
    Ok(GrepResult { matches, truncated, skipped })
}

fn run(
    grep: &Grep,
    table: &MountTable,
    start: Start,
    path: &VirtualPath,
    options: &GrepOptions,
    cancel: &Cancel,
) -> u32 {
    Walk::all(table, options.skip_ignored, cancel).run(start, path, grep)
}

fn matcher(pattern: &str, options: &GrepOptions) -> Result<RegexMatcher> {
    check_length("expression", pattern)?;
    RegexMatcherBuilder::new()
        .case_insensitive(!options.case_sensitive)
        .fixed_strings(options.literal)
        // `^` and `$` mean the ends of a line, wherever in a file it is, with either kind of line end.
        .multi_line(true)
        .crlf(true)
        .build(pattern)
        .map_err(|error| {
            let hint = "correct it, or ask for a literal search";
            // The lines before the last one show the pattern again, as it is.
            let text = error.to_string();
            let why = text.lines().last().map_or("", |last| last.trim_start_matches("error: "));
            Error::invalid_argument(format!("invalid regular expression {pattern:?}: {why}")).hint(hint)
        })
}

struct Grep {
    matcher: RegexMatcher,
    glob: Option<PathPattern>,
    top: Top<(String, u64), String>,
}

/// What a thread keeps from file to file.
struct Scratch {
    searcher: Searcher,
    content: Vec<u8>,
}

impl Visitor for Grep {
    type Scratch = Scratch;

    fn scratch(&self) -> Scratch {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            // Decided by the first bytes of a file, before it is searched.
            .binary_detection(BinaryDetection::none())
            .build();
        Scratch { searcher, content: Vec::new() }
    }

    fn wants_below(&self, prefix: &str) -> bool {
        self.top.wants(&(prefix.to_owned(), 0))
    }

    fn visit(&self, scratch: &mut Scratch, entry: &Entry<'_>) -> Seen {
        let Some(dir) = entry.dir.filter(|_| entry.kind == FileKind::File) else { return Seen::Yes };
        if self.glob.as_ref().is_some_and(|glob| !glob.matches(entry.relative)) || !self.wants_below(entry.shown) {
            return Seen::Yes;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match beneath::open(dir, entry.name, flags, Mode::empty()) {
            Ok(file) => match self.search(scratch, &file, entry.shown) {
                Ok(()) => Seen::Yes,
                Err(_) => Seen::Unreadable,
            },
            // Gone, or swapped for a link or a pipe, since the directory was read.
            Err(Fault::Os(Errno::NOENT | Errno::LOOP | Errno::NXIO)) => Seen::Yes,
            Err(_) => Seen::Unreadable,
        }
    }
}

impl Grep {
    /// Searches one file, if it is small text.
    fn search(&self, scratch: &mut Scratch, file: &OwnedFd, shown: &str) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(file)?;
        let size = usize::try_from(kind::size_of(&stat)).unwrap_or(usize::MAX);
        if kind::kind_of(&stat) != FileKind::File || size > MAX_FILE {
            return Ok(());
        }
        let Scratch { searcher, content } = scratch;
        content.clear();
        // Space for one byte more than there should be: a full read then shows that the file has grown.
        content.reserve(size + 1);
        loop {
            match rustix::io::read(file, spare_capacity(content)) {
                Ok(0) => break,
                Ok(_) if content.len() == size => break,
                Ok(_) if content.len() > MAX_FILE => return Ok(()),
                Ok(_) if content.len() == content.capacity() => content.reserve(BINARY_HEAD),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if memchr::memchr(0, content.get(..BINARY_HEAD).unwrap_or(content)).is_some() {
            return Ok(());
        }
        let sink = Lines { top: &self.top, shown, count: 0 };
        searcher
            .search_slice(&self.matcher, content, sink)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// Takes the matching lines of one file.
struct Lines<'a> {
    top: &'a Top<(String, u64), String>,
    shown: &'a str,
    count: usize,
}

impl Sink for Lines<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, std::io::Error> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE {
            return Ok(true);
        }
        let number = found.line_number().unwrap_or(0);
        self.top.offer((self.shown.to_owned(), number), display(line));
        self.count += 1;
        // One more than the limit shows that there are more; none after it can be among the first.
        Ok(self.count <= self.top.limit())
    }
}

/// A line as it is shown.
fn display(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if text.chars().nth(MAX_SHOWN).is_none() {
        return text.into_owned();
    }
    text.chars().take(MAX_SHOWN - CUT_MARK.len()).chain(CUT_MARK.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_to_200_characters() {
        assert_eq!(display("é".repeat(200).as_bytes()), "é".repeat(200));
        assert_eq!(display("é".repeat(201).as_bytes()), "é".repeat(197) + "...");
        assert_eq!(display(b"a\xffb"), "a\u{fffd}b");
    }
}
