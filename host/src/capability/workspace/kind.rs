//! What a file is, from what the kernel says about it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::beneath;
use super::fault::{self, Fault};
use crate::mounts::VirtualPath;
use crate::values::{FileKind, FileStat};

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// The kind of what a stat describes.
pub(super) fn kind_of(stat: &Stat) -> FileKind {
    FileType::from_raw_mode(stat.st_mode).into()
}

/// The size in bytes; 0 for what is not a file.
pub(super) fn size_of(stat: &Stat) -> u64 {
    if kind_of(stat) == FileKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 }
}

/// A stat in the form that callers see.
pub(super) fn file_stat(stat: &Stat, read_only: bool) -> FileStat {
    let modified_ms = u64::try_from(stat.st_mtime)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1000)?.checked_add(stat.st_mtime_nsec / 1_000_000));
    FileStat { kind: kind_of(stat), size: size_of(stat), modified_ms, mode: stat.st_mode & 0o7777, read_only }
}

/// The stat of a directory that exists only in the sandbox's view, as the parent of mounts.
pub(super) fn view_stat() -> FileStat {
    FileStat { kind: FileKind::Directory, size: 0, modified_ms: None, mode: 0o555, read_only: true }
}

/// Opens a regular file beneath a directory and says what it was then.
///
/// What it is gets asked before the real open: opening a pipe for reading or a device may wait or do something. If it
/// is swapped in between, `NONBLOCK` keeps that open from waiting.
pub(super) fn open_regular(
    root: impl AsFd,
    rest: &str,
    flags: OFlags,
    path: &VirtualPath,
) -> Result<(OwnedFd, Stat), Fault> {
    let root = root.as_fd();
    check_regular(&rustix::fs::fstat(beneath::open(root, rest, OFlags::PATH, Mode::empty())?)?, path)?;
    let file = beneath::open(root, rest, flags | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    check_regular(&stat, path)?;
    Ok((file, stat))
}

fn check_regular(stat: &Stat, path: &VirtualPath) -> Result<(), Fault> {
    match kind_of(stat) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(fault::is_a_directory(path).into()),
        // Only a link in the last segment that nobody follows ends up here.
        FileKind::Symlink => Err(rustix::io::Errno::LOOP.into()),
        FileKind::Other => Err(fault::special_file(path).into()),
    }
}
