//! From a virtual path to a mount and a path beneath it, links resolved the way the sandbox itself would.

use std::collections::VecDeque;

use rustix::io::Errno;

use super::fault::{self, Fault};
use super::{beneath, roots};
use crate::error::{Error, Result};
use crate::mounts::{Access, Mount, MountTable, VirtualPath};

/// The most links that one path may lead through, as in Linux itself.
const MAX_LINKS: u32 = 40;
/// How often a path is looked up anew when it changes while it is being opened.
const MAX_TRIES: u32 = 40;

/// Whether a link in the last segment is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    Keep,
}

/// What a path turned out to be.
#[derive(Debug)]
pub(super) enum Target<'t> {
    /// It lies in a mount.
    Inside(Spot<'t>),
    /// It is no mount's, but mounts lie below it: a directory that exists only in the sandbox's view.
    Above(VirtualPath),
}

/// A place in a mount.
#[derive(Debug)]
pub(super) struct Spot<'t> {
    /// The deepest mount that contains it.
    pub(super) mount: &'t Mount,
    /// Beneath the mount's root; empty for the root itself.
    pub(super) rest: String,
    /// The virtual path, links resolved.
    pub(super) path: VirtualPath,
    /// This place, or the one that the caller's path names literally, lies in a read-only mount.
    pub(super) read_only: bool,
}

impl Spot<'_> {
    /// The directory that holds it (beneath the root) and its name in there; none for the root.
    pub(super) fn parent_and_name(&self) -> Option<(&str, &str)> {
        if self.rest.is_empty() { None } else { Some(self.rest.rsplit_once('/').unwrap_or(("", &self.rest))) }
    }
}

/// Tries `attempt` on the place that `path` names; if a link turns out to be in the way, resolves it and tries again.
///
/// The attempt must open things by [`beneath`] only, so that it fails with `ELOOP` on any link.
pub(super) fn follow<'t, T>(
    table: &'t MountTable,
    path: &VirtualPath,
    last: Last,
    mut attempt: impl FnMut(&Target<'t>) -> Result<T, Fault>,
) -> Result<T> {
    let mut target = place(table, path, path, false)?;
    for _ in 0..MAX_TRIES {
        let fault = match (attempt(&target), &target) {
            (Ok(done), _) => return Ok(done),
            (Err(Fault::Os(Errno::NOENT)), Target::Inside(spot)) if has_mounts_below(table, &spot.path) => {
                // The host has no such directory, but the sandbox sees one, as the parent of a mount.
                target = Target::Above(spot.path.clone());
                match attempt(&target) {
                    Ok(done) => return Ok(done),
                    Err(fault) => fault,
                }
            }
            (Err(fault), _) => fault,
        };
        match fault {
            Fault::Os(Errno::LOOP | Errno::XDEV) => target = resolve(table, path, last)?,
            other => return Err(other.about(path)),
        }
    }
    Err(Error::path_escapes(format!("{path} changes into a link and back while it is being opened"))
        .hint("stop the command that does it and try again"))
}

/// Whether mounts lie below a path.
pub(super) fn has_mounts_below(table: &MountTable, path: &VirtualPath) -> bool {
    table.mounts_below(path).next().is_some()
}

/// Where `real` lies; `path` is what the caller called it, and `linked` says that links led from there to `real`.
fn place<'t>(table: &'t MountTable, path: &VirtualPath, real: &VirtualPath, linked: bool) -> Result<Target<'t>> {
    match table.place(real) {
        Ok(place) => {
            let literal_read_only = table.place(path).is_ok_and(|place| place.mount.access == Access::ReadOnly);
            Ok(Target::Inside(Spot {
                // Found again by its name, since a place borrows from the path as well as from the table.
                mount: table
                    .mounts()
                    .iter()
                    .find(|mount| mount.at == place.mount.at)
                    .ok_or_else(|| fault::escapes(path))?,
                rest: place.rest.to_owned(),
                path: real.clone(),
                read_only: literal_read_only || place.mount.access == Access::ReadOnly,
            }))
        }
        Err(_) if has_mounts_below(table, real) => Ok(Target::Above(real.clone())),
        Err(_) if linked => Err(fault::escapes(path)),
        Err(error) => Err(error),
    }
}

/// Resolves the links in a path, segment by segment.
///
/// What it finds may be outdated at once; that is no matter, since the result is opened beneath its mount and without
/// links.
fn resolve<'t>(table: &'t MountTable, path: &VirtualPath, last: Last) -> Result<Target<'t>> {
    let mut pending: VecDeque<String> = segments(path.as_str()).collect();
    let mut real = VirtualPath::root();
    let mut links = 0;
    while let Some(segment) = pending.pop_front() {
        if segment == ".." {
            // All before it is free of links, so that this is its true parent.
            real = parent(&real)?;
            continue;
        }
        let here = real.join(&segment)?;
        let target = if pending.is_empty() && last == Last::Keep { None } else { link_at(table, path, &here)? };
        let Some(target) = target else {
            real = here;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(Error::path_escapes(format!("{path} leads through more than {MAX_LINKS} links"))
                .hint("look for a link that leads back to itself"));
        }
        if target.starts_with('/') {
            real = VirtualPath::root();
        }
        for segment in segments(&target).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(segment);
        }
    }
    place(table, path, &real, links > 0)
}

fn segments(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('/').filter(|segment| !segment.is_empty() && *segment != ".").map(str::to_owned)
}

fn parent(path: &VirtualPath) -> Result<VirtualPath> {
    VirtualPath::root().join(path.as_str().rsplit_once('/').map_or("", |(parent, _)| parent))
}

/// The target of the link at `here`, whose parents are free of links; none if it is not a link.
fn link_at(table: &MountTable, path: &VirtualPath, here: &VirtualPath) -> Result<Option<String>> {
    let Ok(Target::Inside(spot)) = place(table, here, here, false) else {
        // A directory above the mounts, or outside of all of them: whichever it is shows at the end.
        return Ok(None);
    };
    let Some((parent, name)) = spot.parent_and_name() else { return Ok(None) };
    let read = || -> Result<_, Fault> {
        let dir = beneath::dir(roots::open(table, spot.mount)?, parent)?;
        Ok(rustix::fs::readlinkat(dir, name, Vec::new())?)
    };
    match read() {
        Ok(target) => match target.into_string() {
            Ok(target) => Ok(Some(target)),
            Err(_) => Err(Error::unsupported(format!("{path} leads through a link to a name that is not UTF-8"))),
        },
        // Not a link, not there, or just being changed: the attempt that follows says what is wrong, if anything is.
        Err(Fault::Os(Errno::INVAL | Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(None),
        Err(fault) => Err(fault.about(path)),
    }
}
