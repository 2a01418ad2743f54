//! Listing a directory.
//!
//! `find` names the entries, in batches; one `stat` a batch tells their kinds and sizes. `stat` can't end its lines by
//! anything but a line end, so each line repeats the name, and the parser knows which name to expect: names may contain
//! line ends, and an entry that went away in between is seen to be missing.

use super::files::kind;
use super::find::{End, MAX_COLLECTED, Records, check_max, prune, with_end};
use super::quote::Target;
use super::run::{Flow, Sink};
use super::script::{readable_dir, script};
use crate::error::Result;
use crate::values::{DirEntry, Error, FileKind, ListOptions, Listing};

/// The deepest listing of the interface.
const MAX_DEPTH: u32 = 64;

/// Prints for each batch: the names, each ended by NUL; a NUL; the lines of `stat`; a NUL.
pub(super) fn list_script(target: &Target, options: ListOptions) -> Result<String> {
    if !(1..=MAX_DEPTH).contains(&options.max_depth) {
        return Err(Error::InvalidArgument(format!(
            "max-depth is {}; it can be from 1 (the directory's own entries) to {MAX_DEPTH}",
            options.max_depth
        )));
    }
    check_max("limit", options.limit)?;
    let batch = r#"printf "%s\000" "$@"; printf "\000"; stat -c "%f %s %n" -- "$@"; printf "\000"; :"#;
    let search = format!(
        "find -H \"$p\" -mindepth 1 -maxdepth {} {} -exec sh -c '{batch}' sh {{}} +",
        options.max_depth,
        prune(options.skip_ignored),
    );
    Ok(script(target, &["find", "sh", "stat"], &format!("{}\n{}", readable_dir(), with_end(&search))))
}

enum State {
    Names,
    States,
    End,
}

/// Collects a listing.
pub(super) struct ListSink {
    limit: usize,
    state: State,
    records: Records,
    names: Vec<Vec<u8>>,
    entries: Vec<DirEntry>,
    collected: usize,
    not_utf8: u32,
    truncated: bool,
    end: End,
}

impl ListSink {
    pub(super) fn new(options: ListOptions) -> Self {
        Self {
            limit: options.limit as usize,
            state: State::Names,
            records: Records::default(),
            names: Vec::new(),
            entries: Vec::new(),
            collected: 0,
            not_utf8: 0,
            truncated: false,
            end: End::default(),
        }
    }

    /// Pairs the batch's names with their states.
    fn take_batch(&mut self, mut states: &[u8]) -> Flow {
        for name in std::mem::take(&mut self.names) {
            // No line for this name: it went away.
            let Some((mode, size, rest)) = split_state(states, &name) else { continue };
            states = rest;
            let Ok(path) = String::from_utf8(name) else {
                self.not_utf8 = self.not_utf8.saturating_add(1);
                continue;
            };
            self.collected += path.len() + size_of::<DirEntry>();
            if self.entries.len() >= self.limit || self.collected > MAX_COLLECTED {
                self.truncated = true;
                return Flow::Enough;
            }
            let kind = kind(mode);
            self.entries.push(DirEntry { path, kind, size: if kind == FileKind::File { size } else { 0 } });
        }
        Flow::More
    }
}

/// Mode and size from the front of the states if that line is `name`'s, and what comes after it.
fn split_state<'a>(states: &'a [u8], name: &[u8]) -> Option<(u32, u64, &'a [u8])> {
    let mut fields = states.splitn(3, |byte| *byte == b' ');
    let number = |field: Option<&'a [u8]>| std::str::from_utf8(field?).ok();
    let mode = u32::from_str_radix(number(fields.next())?, 16).ok()?;
    let size = number(fields.next())?.parse().ok()?;
    let rest = fields.next()?.strip_prefix(name)?.strip_prefix(b"\n")?;
    Some((mode, size, rest))
}

impl Sink for ListSink {
    type Output = Listing;

    fn feed(&mut self, mut bytes: &[u8]) -> Result<Flow> {
        loop {
            if matches!(self.state, State::End) {
                self.end.feed(bytes)?;
                return Ok(Flow::More);
            }
            let Some(record) = self.records.next(&mut bytes, 0)? else { return Ok(Flow::More) };
            match self.state {
                State::Names if !record.is_empty() => self.names.push(record),
                State::Names if self.names.is_empty() => self.state = State::End,
                State::Names => self.state = State::States,
                State::States | State::End => {
                    self.state = State::Names;
                    if self.take_batch(&record) == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
            }
        }
    }

    fn finish(mut self) -> Result<Listing> {
        let skipped = if self.truncated { 0 } else { self.end.skipped()? };
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { entries: self.entries, truncated: self.truncated, skipped: skipped.saturating_add(self.not_utf8) })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::shell::testing::{Shell, area, shells, target};

    const ALL: ListOptions = ListOptions { max_depth: 64, limit: 1000, skip_ignored: false };

    fn list(shell: &Shell, path: &str, options: ListOptions) -> Result<Listing> {
        let target = target(path);
        shell.drive(&target, &list_script(&target, options)?, b"", ListSink::new(options))
    }

    fn names<'a>(listing: &'a Listing, root: &str) -> Vec<&'a str> {
        listing.entries.iter().map(|entry| entry.path.strip_prefix(root).expect("below the root")).collect()
    }

    #[test]
    fn entries_are_sorted_with_kinds_and_sizes_to_the_depth() {
        for shell in shells() {
            let area = area();
            area.file("b/c/d/e", "1234");
            area.file("a", "12");
            area.file("B", "");
            symlink("/nowhere", area.path("link")).expect("symlink");
            symlink("b", area.path("zdir")).expect("symlink");
            let listing = list(&shell, area.root(), ListOptions { max_depth: 2, ..ALL }).expect("list");
            assert_eq!(names(&listing, area.root()), ["/B", "/a", "/b", "/b/c", "/link", "/zdir"], "{}", shell.name);
            let kinds: Vec<_> = listing.entries.iter().map(|entry| (entry.kind, entry.size)).collect();
            let directory = (FileKind::Directory, 0);
            let link = (FileKind::Symlink, 0);
            assert_eq!(kinds, [(FileKind::File, 0), (FileKind::File, 2), directory, directory, link, link]);
            assert!(!listing.truncated && listing.skipped == 0);
            let one = list(&shell, &format!("{}/", area.root()), ListOptions { max_depth: 1, ..ALL }).expect("list");
            assert_eq!(names(&one, area.root()), ["/B", "/a", "/b", "/link", "/zdir"]);
        }
    }

    #[test]
    fn any_name_survives() {
        for shell in shells() {
            let area = area();
            let odd = ["\n", "a\nb", "81a4 5 x\n81a4 6 y", "-n", "it's $(x)", " ", "ä\\n", "*"];
            for name in odd {
                area.file(name, "x");
            }
            fs::write(Path::new(area.root()).join(OsStr::from_bytes(b"\xff\xfe")), "x").expect("a file");
            let listing = list(&shell, area.root(), ALL).expect("list");
            let mut expected: Vec<_> = odd.iter().map(|name| format!("/{name}")).collect();
            expected.sort();
            assert_eq!(names(&listing, area.root()), expected, "{}", shell.name);
            assert!(listing.entries.iter().all(|entry| entry.size == 1 && entry.kind == FileKind::File));
            assert_eq!(listing.skipped, 1, "{}: the name that is not UTF-8", shell.name);
        }
    }

    #[test]
    fn ignored_names_are_left_out_below_the_root_only() {
        for shell in shells() {
            // The root itself is called `build`.
            let area = area();
            for name in ["src/main.rs", ".git/HEAD", "src/node_modules/x/y", "x.log", "build/out.o", "keep~", "logs2"] {
                area.file(name, "");
            }
            let options = ListOptions { skip_ignored: true, limit: 3, ..ALL };
            let listing = list(&shell, area.root(), options).expect("list");
            assert_eq!(names(&listing, area.root()), ["/logs2", "/src", "/src/main.rs"], "{}", shell.name);
            assert!(!listing.truncated, "{}: ignored entries count for no limit", shell.name);
        }
    }

    #[test]
    fn a_limit_truncates_only_if_there_is_more() {
        for shell in shells() {
            let area = area();
            for number in 0..500 {
                area.file(&format!("{number}"), "");
            }
            let exact = list(&shell, area.root(), ListOptions { limit: 500, ..ALL }).expect("list");
            assert_eq!((exact.entries.len(), exact.truncated), (500, false), "{}", shell.name);
            let less = list(&shell, area.root(), ListOptions { limit: 499, ..ALL }).expect("list");
            assert_eq!((less.entries.len(), less.truncated), (499, true), "{}", shell.name);
            assert!(less.entries.is_sorted_by(|a, b| a.path < b.path));
        }
    }

    #[test]
    fn a_linked_root_lists_and_one_that_is_no_directory_does_not() {
        for shell in shells() {
            let area = area();
            area.file("dir/x", "");
            symlink("dir", area.path("link")).expect("symlink");
            let listing = list(&shell, &area.path("link"), ALL).expect("list");
            assert_eq!(names(&listing, &area.path("link")), ["/x"], "{}", shell.name);
            fs::create_dir(area.path("empty")).expect("mkdir");
            assert_eq!(list(&shell, &area.path("empty"), ALL).expect("list").entries.len(), 0);
            assert!(matches!(list(&shell, &area.path("dir/x"), ALL), Err(Error::NotADirectory(_))), "{}", shell.name);
            assert!(matches!(list(&shell, &area.path("no"), ALL), Err(Error::NotFound(_))), "{}", shell.name);
            let depth = |max_depth| list(&shell, area.root(), ListOptions { max_depth, ..ALL });
            assert!(
                matches!(depth(0), Err(Error::InvalidArgument(_)))
                    && matches!(depth(65), Err(Error::InvalidArgument(_)))
            );
        }
    }

    #[test]
    fn the_root_of_the_file_system_has_no_double_slash() {
        for shell in shells() {
            let listing = list(&shell, "/", ListOptions { max_depth: 1, ..ALL }).expect("list");
            assert!(listing.entries.iter().any(|entry| entry.path == "/tmp"), "{}", shell.name);
        }
    }

    #[test]
    fn unreadable_directories_are_counted_and_an_unreadable_root_is_an_error() {
        for shell in shells().into_iter().map(Shell::unprivileged) {
            let area = area();
            area.file("locked/x", "");
            area.file("open/x", "");
            fs::set_permissions(area.path("locked"), fs::Permissions::from_mode(0o700)).expect("chmod");
            let listing = list(&shell, area.root(), ALL).expect("list");
            assert_eq!(names(&listing, area.root()), ["/locked", "/open", "/open/x"], "{}", shell.name);
            assert_eq!(listing.skipped, 1, "{}", shell.name);
            let denied = list(&shell, &area.path("locked"), ALL);
            assert!(matches!(denied, Err(Error::PermissionDenied(_))), "{}: {denied:?}", shell.name);
        }
    }

    #[test]
    fn a_find_that_fails_is_an_error_and_never_an_empty_directory() {
        for shell in shells() {
            let area = area();
            area.file("dir/x", "");
            for body in ["echo 'find: unrecognized: -mindepth' >&2; exit 1", "exit 3", "kill -9 $$"] {
                let tool = area.file("tools/find", &format!("#!/bin/sh\n{body}\n"));
                fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("chmod");
                let shell = shells().into_iter().find(|other| other.name == shell.name).expect("the same shell");
                // BusyBox prefers the tools within it to those in the path.
                if shell.name != "busybox" {
                    let result = list(&shell.with_tools(&area.path("tools")), &area.path("dir"), ALL);
                    assert!(matches!(result, Err(Error::Other(_))), "{body}: {result:?}");
                }
            }
        }
    }

    #[test]
    fn an_entry_that_went_away_in_between_is_left_out() {
        let mut sink = ListSink::new(ALL);
        let answer =
            b"/r/a\0/r/b\nc\0/r/d\0\x0081a4 7 /r/a\n41ed 4096 /r/d\n\0\x000\0stat: /r/b: No such file or directory";
        for piece in answer.chunks(5) {
            assert_eq!(sink.feed(piece).expect("fine"), Flow::More);
        }
        let listing = sink.finish().expect("a listing");
        assert_eq!(names(&listing, ""), ["/r/a", "/r/d"]);
        assert_eq!(
            listing.entries.iter().map(|entry| entry.kind).collect::<Vec<_>>(),
            [FileKind::File, FileKind::Directory]
        );
    }

    #[test]
    fn an_answer_without_its_end_is_an_error() {
        let mut sink = ListSink::new(ALL);
        sink.feed(b"/r/a\0\x0081a4 7 /r/a\n\0").expect("fine");
        assert!(matches!(sink.finish(), Err(Error::Unavailable(_))));
    }
}
