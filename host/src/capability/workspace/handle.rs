//! The public face of the capability.

use std::sync::Arc;

use super::search::{glob, grep};
use super::{blocking, change, list, read, write};
use crate::error::{Error, Result};
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{
    ByteStream, Content, FileStat, GlobOptions, GlobResult, GrepOptions, GrepResult, ListOptions, Listing, MAX_DEPTH,
    MAX_RESULTS, ReadRange, WriteOptions,
};

/// The default of [`Limits::max_write`], and of the configuration: uploads of data sets fit, and one runaway stream does not
/// fill a host's disk.
pub const DEFAULT_MAX_WRITE: u64 = 1 << 30;

/// What an operator may limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes that one write may bring; none: no limit.
    pub max_write: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_write: Some(DEFAULT_MAX_WRITE) }
    }
}

/// The files of one call's mount table.
///
/// Cheap to make and to clone. Every error is about the virtual path that the caller gave; no path of the host is ever
/// in one. When the future of a call is dropped, its work stops and what it had begun to write is gone.
///
/// All calls need a tokio runtime.
#[derive(Debug, Clone)]
pub struct Workspace {
    table: Arc<MountTable>,
    limits: Limits,
}

impl Workspace {
    /// Lends the files of `table`.
    pub fn new(table: Arc<MountTable>, limits: Limits) -> Self {
        Self { table, limits }
    }

    /// What it lends.
    pub fn table(&self) -> &MountTable {
        &self.table
    }

    /// Opens a regular file and streams the part of it that is in `range`. Links are followed as far as they stay inside
    /// the mount table. At most 1 MiB is read ahead; dropping the stream ends the reading; an error in mid-file arrives
    /// in the stream.
    ///
    /// `is-a-directory`; `invalid-argument` for a pipe, socket or device, which is never opened, and for
    /// line 0.
    pub async fn read(&self, path: &VirtualPath, range: ReadRange) -> Result<Content> {
        read::read(Arc::clone(&self.table), path.clone(), range).await
    }

    /// Writes all of `data` and returns its length, making parent directories. If anything fails, the file and its
    /// directories are as they were; only an append that runs out of disk space may leave its first part, and then says
    /// how long that is.
    ///
    /// A link in the last segment is followed as far as it stays inside the mount table, and a dangling one makes its
    /// target; for `CreateNew` a link is `already-exists`. `Replace` makes a new file: it keeps permission bits and owner,
    /// not other hard links. An append of up to 1 MiB lands in one piece. Nothing is synced to disk.
    ///
    /// Bytes are kept exactly; `text` is of no account here, since it is for whoever translates paths in it.
    ///
    /// `read-only` before anything else; `is-a-directory`; `too-large` over [`Limits::max_write`].
    pub async fn write(&self, path: &VirtualPath, data: ByteStream, options: WriteOptions) -> Result<u64> {
        write::write(Arc::clone(&self.table), path.clone(), data, options.mode, self.limits.max_write).await
    }

    /// What is known of a path; a link in the last segment is described itself. A directory that exists only as the
    /// parent of mounts is a read-only one.
    pub async fn stat(&self, path: &VirtualPath) -> Result<FileStat> {
        let (table, path) = (Arc::clone(&self.table), path.clone());
        blocking::run(move |_| read::stat(&table, &path)).await
    }

    /// What is in a directory, mounts included, sorted by path. Links are listed, never descended into. If there is more
    /// than the limit, the first ones in that order are kept.
    ///
    /// `not-a-directory`; `invalid-argument` for a depth or limit out of range.
    pub async fn list_dir(&self, path: &VirtualPath, options: ListOptions) -> Result<Listing> {
        in_range("depth", options.max_depth, MAX_DEPTH)?;
        in_range("limit", options.limit, MAX_RESULTS)?;
        let (table, path) = (Arc::clone(&self.table), path.clone());
        blocking::run(move |cancel| list::list(&table, &path, options, cancel)).await
    }

    /// Paths below a directory that match `pattern` (see [`search::pattern`](super::search::pattern)), sorted. If there
    /// are more than the limit, the first ones in that order are kept.
    ///
    /// `not-a-directory`; `invalid-argument` for a pattern that can't be read.
    pub async fn glob(&self, path: &VirtualPath, pattern: &str, options: &GlobOptions) -> Result<GlobResult> {
        in_range("number of results", options.max_results, MAX_RESULTS)?;
        let (table, path, pattern, options) = (Arc::clone(&self.table), path.clone(), pattern.to_owned(), *options);
        blocking::run(move |cancel| glob::glob(&table, &path, &pattern, options, cancel)).await
    }

    /// Lines that match a regular expression, in one file or below a directory, sorted by path and line. If there are
    /// more than the limit, the first ones in that order are kept.
    ///
    /// `invalid-argument`, with the reason, for an expression or a pattern that can't be read.
    pub async fn grep(&self, path: &VirtualPath, pattern: &str, options: &GrepOptions) -> Result<GrepResult> {
        in_range("number of results", options.max_results, MAX_RESULTS)?;
        let (table, path) = (Arc::clone(&self.table), path.clone());
        let (pattern, options) = (pattern.to_owned(), options.clone());
        blocking::run(move |cancel| grep::grep(&table, &path, &pattern, &options, cancel)).await
    }

    /// Removes a file, a link (never its target), or a directory: an empty one, or with `recursive` a whole one. A
    /// recursive removal that fails or is given up half way has removed a part.
    ///
    /// `permission-denied` for a mount or what holds one; `already-exists` for a directory that is not empty.
    pub async fn remove(&self, path: &VirtualPath, recursive: bool) -> Result<()> {
        let (table, path) = (Arc::clone(&self.table), path.clone());
        blocking::run(move |cancel| change::remove(&table, &path, recursive, cancel)).await
    }

    /// Makes a directory and its parents; one that is there already is fine.
    ///
    /// `read-only` before anything else; `not-a-directory` if a file is in the way.
    pub async fn make_dir(&self, path: &VirtualPath) -> Result<()> {
        let (table, path) = (Arc::clone(&self.table), path.clone());
        blocking::run(move |_| change::make_dir(&table, &path)).await
    }
}

fn in_range(what: &str, value: u32, max: u32) -> Result<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{value} is out of range for the {what}")).hint(format!("use 1 to {max}")))
}
