//! Opening the roots of mounts, and telling mounts apart by what they are on the host.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath;
use super::fault::Fault;
use crate::error::Error;
use crate::mounts::{Access, Mount, MountTable};

/// Opens a mount's root, only to work beneath it.
///
/// The operator chose its host path, so links in it count. But where the host path lies below that of a *writable*
/// mount, the sandbox could have put a link there itself: that part of it is opened beneath the outer mount, without
/// links.
pub(super) fn open(table: &MountTable, mount: &Mount) -> Result<OwnedFd, Fault> {
    let outer = table
        .mounts()
        .iter()
        .filter(|other| other.access == Access::ReadWrite)
        .filter_map(|other| Some((other, inner_path(&mount.host, &other.host)?)))
        .max_by_key(|(other, _)| other.host.components().count());
    let opened = match outer {
        Some((outer, rest)) => beneath::dir(open(table, outer)?, rest),
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, &mount.host, flags, Mode::empty()).map_err(Fault::Os)
        }
    };
    opened.map_err(|fault| match fault {
        Fault::Os(Errno::NOENT | Errno::NOTDIR) => {
            let error = Error::not_found(format!("the directory behind the mount {} is missing on the host", mount.at))
                .hint("ask the operator to make it, or to take the mount out");
            Fault::Told(error)
        }
        Fault::Os(Errno::LOOP) => {
            let text = format!("the directory behind the mount {} was replaced by a link", mount.at);
            Fault::Told(Error::path_escapes(text).hint("remove that link"))
        }
        other => other,
    })
}

/// What is left of `host` below `outer`, if it lies there; none for the same path.
fn inner_path<'a>(host: &'a Path, outer: &Path) -> Option<&'a str> {
    host.strip_prefix(outer).ok()?.to_str().filter(|rest| !rest.is_empty())
}

/// Which directories of the host are roots of mounts. A mount may also be reached through another one whose host
/// directory contains it; then it still keeps its own access.
#[derive(Debug, Default)]
pub(super) struct Marks(HashMap<(u64, u64), Access>);

impl Marks {
    /// The roots of all mounts but `except`; one whose directory is missing can't be reached and doesn't count.
    pub(super) fn of(table: &MountTable, except: &Mount) -> Result<Self, Fault> {
        let mut marks = HashMap::new();
        for mount in table.mounts().iter().filter(|mount| mount.at != except.at) {
            let root = match open(table, mount) {
                Ok(root) => root,
                Err(Fault::Told(_)) => continue,
                Err(fault) => return Err(fault),
            };
            let key = key(&rustix::fs::fstat(root)?);
            // Of two mounts of one directory, the one that forbids more counts.
            if marks.get(&key) != Some(&Access::ReadOnly) {
                marks.insert(key, mount.access);
            }
        }
        Ok(Self(marks))
    }

    /// Whether this directory is the root of another mount, and how that may be used.
    pub(super) fn access(&self, dir: impl AsFd) -> Result<Option<Access>, Fault> {
        Ok(self.0.get(&key(&rustix::fs::fstat(dir)?)).copied())
    }
}

fn key(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
