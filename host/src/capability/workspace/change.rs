//! Entering directories in order to change them, making directories, and removing things.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::blocking::Cancel;
use super::fault::{self, Fault};
use super::lookup::{self, Last, Spot, Target};
use super::roots::Marks;
use super::{beneath, kind, roots};
use crate::error::{Error, Result};
use crate::mounts::{Access, MountTable, VirtualPath};
use crate::values::FileKind;

/// Files and directories are made with all permissions that the gateway's umask leaves: what runs in the sandbox may be
/// another user (a container's, a namespace's) and must be able to use what an agent wrote. The umask is the operator's
/// say in it.
pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// A directory that is going to be changed.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) dir: OwnedFd,
    pub(super) marks: Marks,
    /// Directories that were made on the way (as parent and name), outermost first.
    made: Vec<(OwnedFd, String)>,
}

impl Entered {
    /// Keeps the directories that were made on the way.
    pub(super) fn keep(&mut self) {
        self.made.clear();
    }
}

impl Drop for Entered {
    /// Takes back what was made, unless it was kept. Only empty directories can go, so that nobody else's work is lost.
    fn drop(&mut self) {
        for (parent, name) in self.made.drain(..).rev() {
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Walks down to `rest` beneath the spot's mount, making what is missing if `create`; refuses unless files may be
/// changed there.
///
/// Each directory on the way is compared with the roots of the other mounts: one mount's directory may lie within
/// another's on the host, and keeps its own access when it is reached that way.
pub(super) fn enter(
    table: &MountTable,
    spot: &Spot<'_>,
    rest: &str,
    create: bool,
    path: &VirtualPath,
) -> Result<Entered, Fault> {
    if spot.read_only {
        return Err(fault::read_only(path).into());
    }
    let dir = roots::open(table, spot.mount)?;
    let mut entered = Entered { dir, marks: Marks::of(table, spot.mount)?, made: Vec::new() };
    let mut access = spot.mount.access;
    for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
        let mut made = false;
        let next = match beneath::dir(&entered.dir, segment) {
            Err(Fault::Os(Errno::NOENT)) if create && access == Access::ReadWrite => {
                match rustix::fs::mkdirat(&entered.dir, segment, DIR_MODE) {
                    Ok(()) => made = true,
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                beneath::dir(&entered.dir, segment)?
            }
            Err(Fault::Os(Errno::NOENT)) if create => return Err(fault::read_only(path).into()),
            other => other?,
        };
        access = entered.marks.access(&next)?.unwrap_or(access);
        let parent = std::mem::replace(&mut entered.dir, next);
        if made {
            entered.made.push((parent, segment.to_owned()));
        }
    }
    if access == Access::ReadOnly {
        return Err(fault::read_only(path).into());
    }
    Ok(entered)
}

/// Makes a directory and its parents.
pub(super) fn make_dir(table: &MountTable, path: &VirtualPath) -> Result<()> {
    lookup::follow(table, path, Last::Follow, |target| {
        // What exists in the sandbox's view alone is there already.
        let Target::Inside(spot) = target else { return Ok(()) };
        enter(table, spot, &spot.rest, true, path)?.keep();
        Ok(())
    })
}

/// Removes a file, a link or a directory.
pub(super) fn remove(table: &MountTable, path: &VirtualPath, recursive: bool, cancel: &Cancel) -> Result<()> {
    lookup::follow(table, path, Last::Keep, |target| {
        let Target::Inside(spot) = target else { return Err(fault::is_a_mount(path).into()) };
        let Some((parent, name)) = spot.parent_and_name() else { return Err(fault::is_a_mount(path).into()) };
        if lookup::has_mounts_below(table, &spot.path) {
            return Err(fault::is_a_mount(path).into());
        }
        let entered = enter(table, spot, parent, false, path)?;
        let stat = rustix::fs::statat(&entered.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind::kind_of(&stat) != FileKind::Directory {
            return Ok(rustix::fs::unlinkat(&entered.dir, name, AtFlags::empty())?);
        }
        let dir = beneath::dir(&entered.dir, name)?;
        if entered.marks.access(&dir)?.is_some() {
            return Err(fault::is_a_mount(path).into());
        }
        if recursive {
            empty(&dir, &entered.marks, path, cancel, &mut Stack::new(MAX_PENDING))?;
        }
        Ok(rustix::fs::unlinkat(&entered.dir, name, AtFlags::REMOVEDIR)?)
    })
}

/// How many bytes of directories a removal remembers: some 10,000 of them. The others are found when these are gone.
const MAX_PENDING: usize = 1 << 20;

/// A directory, by its path beneath the one that is emptied.
struct Pending {
    rest: OsString,
    /// It stays in place until all that is known to be in it is gone.
    looked_through: bool,
}

/// The directories that are still to be removed, the next one last.
pub(super) struct Stack {
    dirs: Vec<Pending>,
    bytes: usize,
    limit: usize,
    /// The most bytes that it ever held.
    #[cfg(test)]
    pub(super) peak: usize,
}

impl Stack {
    /// Over the limit, it still takes one directory for each on the way down, so that a removal always goes on.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            dirs: Vec::new(),
            bytes: 0,
            limit,
            #[cfg(test)]
            peak: 0,
        }
    }

    fn push(&mut self, rest: OsString, looked_through: bool) {
        let dir = Pending { rest, looked_through };
        self.bytes += dir.weight();
        self.dirs.push(dir);
        #[cfg(test)]
        {
            self.peak = self.peak.max(self.bytes);
        }
    }

    fn pop(&mut self) -> Option<Pending> {
        let dir = self.dirs.pop()?;
        self.bytes -= dir.weight();
        Some(dir)
    }
}

impl Pending {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.rest.len()
    }
}

/// Removes all that is in a directory.
///
/// Directories are opened anew by their path beneath it, so that a deep tree takes no more descriptors than a flat one;
/// one that is nested deeper than a path can be long is an error.
pub(super) fn empty(
    top: &OwnedFd,
    marks: &Marks,
    path: &VirtualPath,
    cancel: &Cancel,
    pending: &mut Stack,
) -> Result<(), Fault> {
    pending.push(OsString::new(), false);
    while let Some(Pending { rest, looked_through }) = pending.pop() {
        if cancel.is_set() {
            return Err(Error::other(format!("removing {path} was given up")).into());
        }
        if looked_through {
            if !rest.is_empty() {
                let rest = Path::new(&rest);
                let (parent, name) = (rest.parent().unwrap_or(Path::new("")), rest.file_name().unwrap_or_default());
                rustix::fs::unlinkat(beneath::dir(top, parent)?, name, AtFlags::REMOVEDIR)?;
            }
            continue;
        }
        let dir = match beneath::open(top, &rest, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Err(Fault::Os(Errno::NAMETOOLONG)) => {
                let error =
                    Error::invalid_argument(format!("{path} holds directories nested deeper than a path can be"))
                        .hint("remove it with a command such as rm -r");
                return Err(error.into());
            }
            other => other?,
        };
        if marks.access(&dir)?.is_some() {
            return Err(fault::is_a_mount(path).into());
        }
        let (within, all) = remove_files(&dir, &rest, pending)?;
        pending.push(rest, all);
        within.into_iter().for_each(|rest| pending.push(rest, false));
    }
    Ok(())
}

/// Removes what is no directory from one. Gives directories in it, and whether these are all: there may be more if
/// there is no room for them.
fn remove_files(dir: &OwnedFd, rest: &OsStr, pending: &Stack) -> Result<(Vec<OsString>, bool), Fault> {
    let (mut within, mut bytes) = (Vec::new(), pending.bytes);
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_dir = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind::kind_of(&stat) == FileKind::Directory
            }
            _ => false,
        };
        if !is_dir {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            }
        }
        let inner: OsString = Path::new(rest).join(OsStr::from_bytes(name.to_bytes())).into();
        bytes += size_of::<Pending>() + inner.len();
        within.push(inner);
        if bytes >= pending.limit {
            return Ok((within, false));
        }
    }
    Ok((within, true))
}
