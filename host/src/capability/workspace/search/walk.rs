//! Walking a tree of the sandbox's view: directories of the host, and the mounts that lie over them.
//!
//! Directories are opened beneath the root of the search (or of the mount that lies there) and without links, so that
//! a walk never leaves it, whatever is swapped meanwhile. Links are visited, never followed. What vanishes during the
//! walk is passed over; what can't be read or named is counted.

use std::collections::{BTreeMap, BinaryHeap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry};
use rustix::io::Errno;

use super::ignored::is_ignored_name;
use super::queue::{Queue, Weigh};
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
/// The most bytes of directories that wait to be read: some 100,000 of them, while only a tree that was made to exhaust
/// the host has so many side by side. Those that find no room are looked up anew when there is some.
const MAX_PENDING: usize = 16 << 20;
/// The part of it that is looked up anew at once.
const LOOKED_UP: usize = 4;
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
    pub(in super::super) bounds: Bounds,
}

/// What a walk may keep in memory.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Bounds {
    /// See [`MAX_PENDING`].
    pending: usize,
    /// See [`MAX_HELD`].
    held: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { pending: MAX_PENDING, held: MAX_HELD }
    }
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
#[derive(Clone)]
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
    /// The directories in a directory that have not been queued yet, without those up to a name.
    Rest {
        dir: DirJob,
        after: Option<String>,
    },
    Files {
        dir: Arc<OwnedFd>,
        /// The directory's path, relative to the root of the search.
        parent: Arc<str>,
        entries: Vec<(String, FileKind)>,
    },
}

impl Weigh for Job {
    fn weight(&self) -> usize {
        let text = match self {
            Self::Dir(dir) => dir.relative.capacity(),
            Self::Rest { dir, after } => dir.relative.capacity() + after.as_ref().map_or(0, String::capacity),
            // Bounded by their number.
            Self::Files { .. } => return 0,
        };
        size_of::<Self>() + text
    }
}

impl<'a> Walk<'a> {
    /// Without a limit of depth, on as many threads as are useful.
    pub(in super::super) fn all(table: &'a MountTable, skip_ignored: bool, cancel: &'a Cancel) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        Self { table, skip_ignored, max_depth: u32::MAX, threads, cancel, bounds: Bounds::default() }
    }

    /// Visits all below `start` and returns how many entries could not be read or named.
    pub(in super::super) fn run<V: Visitor>(&self, start: Start, shown: &VirtualPath, visitor: &V) -> u32 {
        let run = self.begin(start, shown, visitor);
        run.finish();
        run.skipped.into_inner()
    }

    fn begin<'r, V: Visitor>(&'r self, start: Start, shown: &'r VirtualPath, visitor: &'r V) -> Run<'r, V> {
        let root = DirJob {
            base: start.dir.map(|dir| Arc::new(Base { dir, skip: 0 })),
            relative: String::new(),
            depth: 0,
            overlaid: lookup::has_mounts_below(self.table, &start.real),
        };
        Run {
            walk: self,
            visitor,
            shown: if shown.as_str() == "/" { "" } else { shown.as_str() },
            real: start.real,
            queue: Queue::new(Job::Dir(root), self.bounds.pending),
            skipped: AtomicU32::new(0),
            handed_over: AtomicU32::new(0),
        }
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
    /// Works on all, on all threads.
    fn finish(&self) {
        std::thread::scope(|scope| {
            for _ in 1..self.walk.threads {
                // Without another thread the walk is slower, that is all.
                let _ = std::thread::Builder::new().name("search".to_owned()).spawn_scoped(scope, || self.work());
            }
            self.work();
        });
    }

    fn work(&self) {
        let (mut scratch, mut buffer) = (self.visitor.scratch(), vec![MaybeUninit::uninit(); READ_DIR]);
        self.queue.work(|job| match job {
            _ if self.walk.cancel.is_set() => {}
            Job::Dir(job) => self.directory(&mut scratch, &mut buffer, &job),
            Job::Rest { dir, after } => self.rest(&mut buffer, &dir, after.as_deref()),
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
        if !self.visitor.wants_below(&self.prefix(job)) {
            return;
        }
        let mut over = self.over(job);
        if let Some(dir) = self.open(job) {
            self.entries(scratch, buffer, job, &Arc::new(dir), &mut over);
        }
        for (name, over) in over {
            self.overlay(scratch, job, &name, &over);
        }
    }

    /// A directory's path as it is shown, with its slash.
    fn prefix(&self, job: &DirJob) -> String {
        let mut prefix = join_root(self.shown, &job.relative);
        if !job.relative.is_empty() {
            prefix.push('/');
        }
        prefix
    }

    /// Opens a directory of the host; none if there is none, or not any more.
    fn open(&self, job: &DirJob) -> Option<OwnedFd> {
        let base = job.base.as_ref()?;
        let rest = job.relative.get(base.skip..).unwrap_or_default();
        match beneath::open(&base.dir, rest, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(dir) => Some(dir),
            // Gone, or something else by now.
            Err(Fault::Os(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => None,
            Err(_) => {
                self.skip();
                None
            }
        }
    }

    /// What lies over the entries of a directory, by name.
    fn over(&self, job: &DirJob) -> BTreeMap<String, Over<'_>> {
        let mut over = BTreeMap::new();
        if !job.overlaid {
            return over;
        }
        let Ok(real) = self.real.join(&job.relative) else { return over };
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
        if parent.depth + 1 < self.walk.max_depth {
            self.queue.extend([Job::Dir(DirJob { base, relative, depth: parent.depth + 1, overlaid })]);
        }
    }

    /// Reads a directory, visits its entries and queues its directories.
    fn entries(
        &self,
        scratch: &mut V::Scratch,
        buffer: &mut [MaybeUninit<u8>],
        job: &DirJob,
        dir: &Arc<OwnedFd>,
        over: &mut BTreeMap<String, Over<'_>>,
    ) {
        let mut reader = RawDir::new(dir.as_fd(), buffer);
        let (mut whole, mut any_dirs) = (true, false);
        loop {
            let mut held = Vec::new();
            let more = self.hold(&mut reader, dir, &mut held);
            whole &= !more;
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
                    self.visit(scratch, &join(&job.relative, &name), &name, kind, Some(dir.as_fd()));
                    any_dirs = true;
                    if whole {
                        dirs.push((name, overlaid));
                    }
                } else {
                    files.push((name, kind));
                }
            }
            if whole {
                self.descend(job, dirs, false);
            }
            self.share(scratch, dir, &job.relative, files);
            if self.walk.cancel.is_set() {
                return;
            }
            if !more {
                break;
            }
        }
        // Too many entries to have been put in order: its directories are looked up anew.
        if !whole && any_dirs && job.depth + 1 < self.walk.max_depth {
            self.queue.extend([Job::Rest { dir: job.clone(), after: None }]);
        }
    }

    /// Reads a directory again and queues the directories in it that come next.
    fn rest(&self, buffer: &mut [MaybeUninit<u8>], job: &DirJob, after: Option<&str>) {
        if !self.visitor.wants_below(&(self.prefix(job) + after.unwrap_or_default())) {
            return;
        }
        let Some(dir) = self.open(job) else { return };
        let over = self.over(job);
        let (mut next, mut bytes, mut more) = (BinaryHeap::new(), 0, false);
        let weight = |name: &String| size_of::<Job>() + job.relative.len() + name.len();
        let mut reader = RawDir::new(dir.as_fd(), buffer);
        while let Some(entry) = self.next(&mut reader) {
            // What can't be named or told apart was counted when its directory was first read.
            let Ok(name) = entry.file_name().to_str() else { continue };
            let passed = matches!(name, "." | "..") || after.is_some_and(|after| name <= after);
            if passed || matches!(over.get(name), Some(Over::Mount(_))) {
                continue;
            }
            if self.ignores(name) || self.kind(&dir, &entry) != Ok(FileKind::Directory) {
                continue;
            }
            let name = name.to_owned();
            bytes += weight(&name);
            next.push(name);
            while bytes > self.walk.bounds.pending / LOOKED_UP && next.len() > 1 {
                bytes -= next.pop().as_ref().map_or(0, weight);
                more = true;
            }
        }
        let next = next.into_sorted_vec().into_iter().map(|name| {
            let overlaid = over.contains_key(&name);
            (name, overlaid)
        });
        self.descend(job, next.collect(), more);
    }

    /// The next entry that a directory has, and what keeps others from being read is counted.
    fn next<'b>(&self, reader: &'b mut RawDir<'_, BorrowedFd<'_>>) -> Option<RawDirEntry<'b>> {
        match reader.next()? {
            Ok(entry) => Some(entry),
            // Removed while it is read.
            Err(Errno::NOENT) => None,
            Err(_) => {
                self.skip();
                None
            }
        }
    }

    fn ignores(&self, name: &str) -> bool {
        self.walk.skip_ignored && is_ignored_name(name)
    }

    fn kind(&self, dir: &OwnedFd, entry: &RawDirEntry<'_>) -> Result<FileKind, Errno> {
        match entry.file_type() {
            // Some file systems don't say.
            FileType::Unknown => {
                Ok(kind::kind_of(&rustix::fs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?))
            }
            known => Ok(known.into()),
        }
    }

    /// Reads some entries; returns whether there may be more.
    fn hold(&self, reader: &mut RawDir<'_, BorrowedFd<'_>>, dir: &OwnedFd, held: &mut Vec<(String, FileKind)>) -> bool {
        while held.len() < self.walk.bounds.held {
            let Some(entry) = self.next(reader) else { return false };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(text) = name.to_str() else {
                self.skip();
                continue;
            };
            if self.ignores(text) {
                continue;
            }
            match self.kind(dir, &entry) {
                Ok(kind) => held.push((text.to_owned(), kind)),
                Err(Errno::NOENT) => {}
                Err(_) => self.skip(),
            }
        }
        true
    }

    /// Queues directories in a directory, in order, as far as there is room; with `more`, others come after them.
    fn descend(&self, parent: &DirJob, names: Vec<(String, bool)>, more: bool) {
        let depth = parent.depth + 1;
        if names.is_empty() || depth >= self.walk.max_depth {
            return;
        }
        let job = |(name, overlaid): (String, bool)| {
            Job::Dir(DirJob { base: parent.base.clone(), relative: join(&parent.relative, &name), depth, overlaid })
        };
        self.queue.fill(names.into_iter().map(job).collect(), more, |taken| match taken.last() {
            Some(Job::Dir(last)) => {
                let after = last.relative.rsplit('/').next().map(str::to_owned);
                Some(Job::Rest { dir: parent.clone(), after })
            }
            _ => None,
        });
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
    use std::path::Path;

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

    /// Remembers all that it sees.
    #[derive(Default)]
    struct Sees(parking_lot::Mutex<Vec<String>>);

    impl Visitor for Sees {
        type Scratch = ();

        fn scratch(&self) {}

        fn wants_below(&self, _: &str) -> bool {
            true
        }

        fn visit(&self, (): &mut (), entry: &Entry<'_>) -> Seen {
            self.0.lock().push(entry.relative.to_owned());
            Seen::Yes
        }
    }

    fn table(mounts: &[(&str, &Path)]) -> MountTable {
        let at = |text| VirtualPath::new(text).unwrap();
        let mounts = mounts
            .iter()
            .map(|(place, host)| Mount { at: at(place), host: (*host).to_owned(), access: Access::ReadOnly })
            .collect();
        MountTable::new(mounts, at("/mnt/a")).unwrap()
    }

    #[test]
    fn a_walk_without_room_visits_all_once_and_keeps_to_its_bound() {
        let (temp, inner) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut expected = Vec::new();
        let mut make = |relative: String| {
            std::fs::create_dir_all(temp.path().join(&relative)).unwrap();
            expected.push(relative);
        };
        // Without a bound, these 800 would wait together: more than any of the bounds below.
        for n in 0..800 {
            make(format!("{n:03}"));
        }
        for (n, m) in (0..20).flat_map(|n| (0..50).map(move |m| (n * 42, m))) {
            make(format!("{n:03}/{m:02}"));
        }
        // The last ones in the order of wide ones: they have to be found by looking again.
        for relative in ["798/49/x", "798/49/x/y", "mount", "parent", "parent/mount"] {
            make(relative.to_owned());
        }
        std::fs::create_dir(temp.path().join("parent/mount/hidden")).unwrap();
        for relative in ["000/f", "798/49/x/y/f"] {
            std::fs::write(temp.path().join(relative), "").unwrap();
            expected.push(relative.to_owned());
        }
        std::fs::create_dir(inner.path().join("d")).unwrap();
        expected.extend(["mount/d".to_owned(), "parent/mount/d".to_owned()]);
        expected.sort();
        let places = [("/mnt/a", temp.path()), ("/mnt/a/mount", inner.path()), ("/mnt/a/parent/mount", inner.path())];
        let (table, at, cancel) = (table(&places), VirtualPath::new("/mnt/a").unwrap(), Cancel::default());
        // A job takes some 100 bytes.
        for (pending, held) in [(MAX_PENDING, MAX_HELD), (8 << 10, MAX_HELD), (0, MAX_HELD), (8 << 10, 7), (0, 1)] {
            for threads in [1, 4] {
                let bounds = Bounds { pending, held };
                let walk = Walk { threads, bounds, ..Walk::all(&table, false, &cancel) };
                let visitor = Sees::default();
                let run = walk.begin(start(&table, &at).unwrap(), &at, &visitor);
                run.finish();
                let (peak, skipped) = (run.queue.peak(), run.skipped.into_inner());
                let mut seen = visitor.0.into_inner();
                seen.sort();
                assert_eq!(seen, expected, "{bounds:?}, {threads} threads");
                assert_eq!(skipped, 0);
                // The few that are always taken, on each of four levels, and what is left of each.
                assert!(peak <= pending + threads * 4 * 17 * 150, "{peak} bytes with {bounds:?}, {threads} threads");
            }
        }
    }

    #[test]
    fn a_walk_that_is_given_up_looks_at_nothing_more() {
        let temp = tempfile::tempdir().unwrap();
        for n in 0..1000 {
            std::fs::write(temp.path().join(format!("f{n}")), "").unwrap();
        }
        let (table, at) = (table(&[("/mnt/a", temp.path())]), VirtualPath::new("/mnt/a").unwrap());
        let cancel = Cancel::default();
        let visitor = GivesUp { cancel: &cancel, seen: AtomicU32::new(0) };
        let walk = Walk { threads: 1, ..Walk::all(&table, false, &cancel) };
        walk.run(start(&table, &at).unwrap(), &at, &visitor);
        assert_eq!(visitor.seen.into_inner(), 1);
    }
}
