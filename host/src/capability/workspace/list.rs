//! Listing a directory.

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::blocking::Cancel;
use super::kind;
use super::search::top::Top;
use super::search::walk::{self, Entry, Seen, Visitor, Walk};
use crate::error::Result;
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{DirEntry, FileKind, ListOptions, Listing};

pub(super) fn list(table: &MountTable, path: &VirtualPath, options: ListOptions, cancel: &Cancel) -> Result<Listing> {
    let start = walk::start(table, path)?;
    let found = List { top: Top::new(options.limit) };
    // One thread: most listings are a directory or two.
    let walk = Walk { max_depth: options.max_depth, threads: 1, ..Walk::all(table, options.skip_ignored, cancel) };
    let skipped = walk.run(start, path, &found);
    let (entries, truncated) = found.top.finish();
    let entries = entries.into_iter().map(|(path, (kind, size))| DirEntry { path, kind, size }).collect();
    Ok(Listing { entries, truncated, skipped })
}

struct List {
    top: Top<String, (FileKind, u64)>,
}

impl Visitor for List {
    type Scratch = ();

    fn scratch(&self) {}

    fn wants_below(&self, prefix: &str) -> bool {
        self.top.wants(prefix)
    }

    fn visit(&self, (): &mut (), entry: &Entry<'_>) -> Seen {
        if !self.top.wants(entry.shown) {
            return Seen::Yes;
        }
        let size = match (entry.kind, entry.dir) {
            (FileKind::File, Some(dir)) => match rustix::fs::statat(dir, entry.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => kind::size_of(&stat),
                Err(Errno::NOENT) => return Seen::Yes,
                Err(_) => return Seen::Unreadable,
            },
            _ => 0,
        };
        self.top.offer(entry.shown.to_owned(), (entry.kind, size));
        Seen::Yes
    }
}
