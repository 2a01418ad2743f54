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
            empty(&dir, &entered.marks, path, cancel)?;
        }
        Ok(rustix::fs::unlinkat(&entered.dir, name, AtFlags::REMOVEDIR)?)
    })
}

/// How many directories of one are remembered at once, so that a very wide one takes no memory of its own.
const AT_ONCE: usize = 1_000;

/// Removes all that is in a directory.
///
/// Directories are opened anew by their path beneath it, so that a deep tree takes no more descriptors than a flat one;
/// one that is nested deeper than a path can be long is an error.
fn empty(top: &OwnedFd, marks: &Marks, path: &VirtualPath, cancel: &Cancel) -> Result<(), Fault> {
    // Directories to be emptied; those that have been looked through stay in place until all below them are gone.
    let mut pending = vec![(OsString::new(), false)];
    while let Some((rest, looked_through)) = pending.pop() {
        if cancel.is_set() {
            return Err(Error::other(format!("removing {path} was given up")).into());
        }
        if looked_through && rest.is_empty() {
            return Ok(());
        }
        if looked_through {
            let rest = Path::new(&rest);
            let (parent, name) = (rest.parent().unwrap_or(Path::new("")), rest.file_name().unwrap_or_default());
            rustix::fs::unlinkat(beneath::dir(top, parent)?, name, AtFlags::REMOVEDIR)?;
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
        let place = pending.len();
        pending.push((rest.clone(), true));
        let mut directories = 0;
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let is_dir = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    kind::kind_of(&stat) == FileKind::Directory
                }
                _ => false,
            };
            if !is_dir {
                match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(errno.into()),
                }
            }
            pending.push((Path::new(&rest).join(OsStr::from_bytes(name.to_bytes())).into(), false));
            directories += 1;
            if directories == AT_ONCE {
                // The others are found when these are gone.
                pending[place].1 = false;
                break;
            }
        }
    }
    Ok(())
}
