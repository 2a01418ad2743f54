//! Walking a tree of the sandbox's view: directories of the host, and the mounts that lie over them.
//!
//! Directories are opened beneath the root of the search (or of the mount that lies there) and without links, so that
//! a walk never leaves it, whatever is swapped meanwhile. Links are visited, never followed. What vanishes during the
//! walk is passed over; what can't be read or named is counted.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::ignored::is_ignored_name;
use super::queue::Queue;
pub(in super::super) use super::start::{Found, Start, start, start_or_file};
use crate::capability::workspace::blocking::Cancel;
use crate::capability::workspace::fault::Fault;
use crate::capability::workspace::{beneath, kind, lookup, roots};
use crate::mounts::{Mount, MountTable, VirtualPath};
use crate::values::FileKind;

/// The most threads of one search: more make a disk no faster, and other calls want to run as well.
const MAX_THREADS: usize = 8;
/// How many files of a directory are one thread's job: enough to be worth handing over, few enough to share out.
const BATCH: usize = 128;
/// The most entries of a directory that are in memory at once.
const MAX_HELD: usize = 4096;
/// The most jobs that wait, some 100 bytes each; whoever finds more works on files itself and counts directories as
/// skipped. Only a tree made to exhaust the host has so many directories side by side.
const MAX_PENDING: usize = 1_000_000;
/// The most handed-over batches of files (each may hold a directory open).
const MAX_OPEN: usize = 64;
/// The buffer for reading directories, as large as the C library's.
const READ_DIR: usize = 32 << 10;

/// How to walk.
pub(in super::super) struct Walk<'a> {
    pub(in super::super) table: &'a MountTable,
    pub(in super::super) skip_ignored: bool,
    /// 1: only the entries of the root.
    pub(in super::super) max_depth: u32,
    pub(in super::super) threads: usize,
    pub(in super::super) cancel: &'a Cancel,
}

/// An entry of a directory.
pub(in super::super) struct Entry<'a> {
    /// Its path, beginning with what the caller called the root.
    pub(in super::super) shown: &'a str,
    /// Its path relative to the root.
    pub(in super::super) relative: &'a str,
    pub(in super::super) name: &'a str,
    pub(in super::super) kind: FileKind,
    /// The directory that it lies in; none for a mount, and for a directory that exists only as the parent of one.
    pub(in super::super) dir: Option<BorrowedFd<'a>>,
}

/// Whether a visitor could look at an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Seen {
    Yes,
    Unreadable,
}

/// What is done with the entries; called from several threads, in any order.
pub(in super::super) trait Visitor: Sync {
    /// What each thread keeps between entries.
    type Scratch;

    fn scratch(&self) -> Self::Scratch;

    /// Whether paths that begin with `prefix` (a directory's, with its slash) are of any interest now. A directory that
    /// is not is left out.
    fn wants_below(&self, prefix: &str) -> bool;

    fn visit(&self, scratch: &mut Self::Scratch, entry: &Entry<'_>) -> Seen;
}

/// A directory that jobs open things beneath: the root of the search, or a mount below it.
struct Base {
    dir: Arc<OwnedFd>,
    /// So many bytes of a relative path lead to it.
    skip: usize,
}

/// A directory that is to be read.
struct DirJob {
    /// None for a directory that exists only as the parent of mounts.
    base: Option<Arc<Base>>,
    /// Relative to the root of the search.
    relative: String,
    /// 0 for the root of the search.
    depth: u32,
    /// Mounts lie below it.
    overlaid: bool,
}

enum Job {
    Dir(DirJob),
    Files {
        dir: Arc<OwnedFd>,
        /// The directory's path, relative to the root of the search.
        parent: Arc<str>,
        entries: Vec<(String, FileKind)>,
    },
}

impl<'a> Walk<'a> {
    /// Without a limit of depth, on as many threads as are useful.
    pub(in super::super) fn all(table: &'a MountTable, skip_ignored: bool, cancel: &'a Cancel) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self { table, skip_ignored, max_depth: u32::MAX, threads, cancel }
    }

    /// Visits all below `start` and returns how many entries could not be read or named.
    pub(in super::super) fn run<V: Visitor>(&self, start: Start, shown: &VirtualPath, visitor: &V) -> u32 {
        let root = DirJob {
            base: start.dir.map(|dir| Arc::new(Base { dir, skip: 0 })),
            relative: String::new(),
            depth: 0,
            overlaid: lookup::has_mounts_below(self.table, &start.real),
        };
        let run = Run {
            walk: self,
            visitor,
            shown: if shown.as_str() == "/" { "" } else { shown.as_str() },
            real: start.real,
            queue: Queue::new(Job::Dir(root)),
            skipped: AtomicU32::new(0),
            handed_over: AtomicU32::new(0),
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                // Without another thread the walk is slower, that is all.
                let _ = std::thread::Builder::new().name("search".to_owned()).spawn_scoped(scope, || run.work());
            }
            run.work();
        });
        run.skipped.into_inner()
    }
}

/// A walk under way.
struct Run<'a, V> {
    walk: &'a Walk<'a>,
    visitor: &'a V,
    /// What the caller called the root, without a trailing slash.
    shown: &'a str,
    /// The root's virtual path, links resolved: where its mounts lie.
    real: VirtualPath,
    queue: Queue<Job>,
    skipped: AtomicU32,
    handed_over: AtomicU32,
}

/// What lies over an entry of a host directory.
enum Over<'a> {
    Mount(&'a Mount),
    /// Only mounts further below.
    Parent,
}

impl<V: Visitor> Run<'_, V> {
    fn work(&self) {
        let (mut scratch, mut buffer) = (self.visitor.scratch(), vec![MaybeUninit::uninit(); READ_DIR]);
        self.queue.work(|job| match job {
            _ if self.walk.cancel.is_set() => {}
            Job::Dir(job) => self.directory(&mut scratch, &mut buffer, &job),
            Job::Files { dir, parent, entries } => {
                self.handed_over.fetch_sub(1, Ordering::Relaxed);
                self.files(&mut scratch, &dir, &parent, &entries);
            }
        });
    }

    fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn directory(&self, scratch: &mut V::Scratch, buffer: &mut [MaybeUninit<u8>], job: &DirJob) {
        let relative = job.relative.as_str();
        let prefix = if relative.is_empty() { self.shown.to_owned() } else { join_root(self.shown, relative) };
        if !self.visitor.wants_below(&(prefix + "/")) {
            return;
        }
        let mut over = if job.overlaid { self.over(relative) } else { BTreeMap::new() };
        if let Some(base) = &job.base {
            let rest = relative.get(base.skip..).unwrap_or_default();
            match beneath::open(&base.dir, rest, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
                Ok(dir) => self.entries(scratch, buffer, job, base, &Arc::new(dir), &mut over),
                // Gone, or something else by now.
                Err(Fault::Os(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                Err(_) => self.skip(),
            }
        }
        for (name, over) in over {
            self.overlay(scratch, job, &name, &over);
        }
    }

    /// What lies over the entries of a directory, by name.
    fn over(&self, relative: &str) -> BTreeMap<String, Over<'_>> {
        let mut over = BTreeMap::new();
        let Ok(real) = self.real.join(relative) else { return over };
        for mount in self.walk.table.mounts_below(&real) {
            let Some(rest) = mount.at.below(&real) else { continue };
            match rest.split_once('/') {
                None => drop(over.insert(rest.to_owned(), Over::Mount(mount))),
                Some((name, _)) => drop(over.entry(name.to_owned()).or_insert(Over::Parent)),
            }
        }
        over
    }

    /// Visits what lies over a host directory, or where no host directory is.
    fn overlay(&self, scratch: &mut V::Scratch, parent: &DirJob, name: &str, over: &Over<'_>) {
        if self.walk.skip_ignored && is_ignored_name(name) {
            return;
        }
        let relative = join(&parent.relative, name);
        let (base, overlaid) = match over {
            Over::Parent => (None, true),
            Over::Mount(mount) => match roots::open(self.walk.table, mount) {
                Ok(dir) => {
                    let base = Base { dir: Arc::new(dir), skip: relative.len() + 1 };
                    (Some(Arc::new(base)), lookup::has_mounts_below(self.walk.table, &mount.at))
                }
                Err(_) => return self.skip(),
            },
        };
        self.visit(scratch, &relative, name, FileKind::Directory, None);
        self.descend(vec![DirJob { base, relative, depth: parent.depth + 1, overlaid }]);
    }

    /// Reads a directory, visits its entries and queues its directories.
    fn entries(
        &self,
        scratch: &mut V::Scratch,
        buffer: &mut [MaybeUninit<u8>],
        job: &DirJob,
        base: &Arc<Base>,
        dir: &Arc<OwnedFd>,
        over: &mut BTreeMap<String, Over<'_>>,
    ) {
        let mut reader = RawDir::new(dir.as_fd(), buffer);
        loop {
            let mut held = Vec::new();
            let more = self.hold(&mut reader, dir, &mut held);
            if held.is_empty() && !more {
                return;
            }
            // In order, so that the first results come early and later ones need not be looked at.
            held.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let (mut dirs, mut files) = (Vec::new(), Vec::new());
            for (name, kind) in held {
                let mut overlaid = false;
                match over.get(&name) {
                    None => {}
                    Some(Over::Parent) if kind == FileKind::Directory => {
                        over.remove(&name);
                        overlaid = true;
                    }
                    // The sandbox sees the mount here.
                    Some(_) => continue,
                }
                if kind == FileKind::Directory {
                    let relative = join(&job.relative, &name);
                    self.visit(scratch, &relative, &name, kind, Some(dir.as_fd()));
                    dirs.push(DirJob { base: Some(Arc::clone(base)), relative, depth: job.depth + 1, overlaid });
                } else {
                    files.push((name, kind));
                }
            }
            self.descend(dirs);
            self.share(scratch, dir, &job.relative, files);
            if !more || self.walk.cancel.is_set() {
                return;
            }
        }
    }

    /// Reads some entries; returns whether there may be more.
    fn hold(&self, reader: &mut RawDir<'_, BorrowedFd<'_>>, dir: &OwnedFd, held: &mut Vec<(String, FileKind)>) -> bool {
        while held.len() < MAX_HELD {
            let entry = match reader.next() {
                None => return false,
                // Removed while it is read.
                Some(Err(Errno::NOENT)) => return false,
                Some(Err(_)) => {
                    self.skip();
                    return false;
                }
                Some(Ok(entry)) => entry,
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(text) = name.to_str() else {
                self.skip();
                continue;
            };
            if self.walk.skip_ignored && is_ignored_name(text) {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems don't say.
                FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => kind::kind_of(&stat),
                    Err(Errno::NOENT) => continue,
                    Err(_) => {
                        self.skip();
                        continue;
                    }
                },
                known => known.into(),
            };
            held.push((text.to_owned(), kind));
        }
        true
    }

    /// Queues directories, the first one to be taken first.
    fn descend(&self, dirs: Vec<DirJob>) {
        if dirs.first().is_none_or(|dir| dir.depth >= self.walk.max_depth) {
            return;
        }
        if self.queue.len() > MAX_PENDING {
            dirs.iter().for_each(|_| self.skip());
            return;
        }
        self.queue.extend(dirs.into_iter().rev().map(Job::Dir));
    }

    /// Visits files, with the help of the other threads if there are many.
    fn share(&self, scratch: &mut V::Scratch, dir: &Arc<OwnedFd>, relative: &str, mut files: Vec<(String, FileKind)>) {
        if files.len() > BATCH && self.walk.threads > 1 {
            let parent: Arc<str> = Arc::from(relative);
            let mut batches = Vec::new();
            while files.len() > BATCH && self.handed_over.load(Ordering::Relaxed) < MAX_OPEN as u32 {
                self.handed_over.fetch_add(1, Ordering::Relaxed);
                let entries = files.split_off(files.len() - BATCH);
                batches.push(Job::Files { dir: Arc::clone(dir), parent: Arc::clone(&parent), entries });
            }
            self.queue.extend(batches);
        }
        self.files(scratch, dir, relative, &files);
    }

    fn files(&self, scratch: &mut V::Scratch, dir: &OwnedFd, parent: &str, entries: &[(String, FileKind)]) {
        for (name, kind) in entries {
            if self.walk.cancel.is_set() {
                return;
            }
            self.visit(scratch, &join(parent, name), name, *kind, Some(dir.as_fd()));
        }
    }

    fn visit(&self, scratch: &mut V::Scratch, relative: &str, name: &str, kind: FileKind, dir: Option<BorrowedFd<'_>>) {
        let entry = Entry { shown: &join_root(self.shown, relative), relative, name, kind, dir };
        if self.visitor.visit(scratch, &entry) == Seen::Unreadable {
            self.skip();
        }
    }
}

/// A relative path and a name in there.
fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() || name.is_empty() { format!("{parent}{name}") } else { format!("{parent}/{name}") }
}

/// A path below the root, whose own slash was taken off.
fn join_root(root: &str, relative: &str) -> String {
    format!("{root}/{relative}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::Access;

    /// Gives up at the first entry that it sees.
    struct GivesUp<'a> {
        cancel: &'a Cancel,
        seen: AtomicU32,
    }

    impl Visitor for GivesUp<'_> {
        type Scratch = ();

        fn scratch(&self) {}

        fn wants_below(&self, _: &str) -> bool {
            true
        }

        fn visit(&self, (): &mut (), _: &Entry<'_>) -> Seen {
            self.cancel.set();
            self.seen.fetch_add(1, Ordering::Relaxed);
            Seen::Yes
        }
    }

    #[test]
    fn a_walk_that_is_given_up_looks_at_nothing_more() {
        let temp = tempfile::tempdir().unwrap();
        for n in 0..1000 {
            std::fs::write(temp.path().join(format!("f{n}")), "").unwrap();
        }
        let at = VirtualPath::new("/mnt/a").unwrap();
        let mount = Mount { at: at.clone(), host: temp.path().to_owned(), access: Access::ReadOnly };
        let table = MountTable::new(vec![mount], at.clone()).unwrap();
        let cancel = Cancel::default();
        let visitor = GivesUp { cancel: &cancel, seen: AtomicU32::new(0) };
        let walk = Walk { threads: 1, ..Walk::all(&table, false, &cancel) };
        walk.run(start(&table, &at).unwrap(), &at, &visitor);
        assert_eq!(visitor.seen.into_inner(), 1);
    }
}
