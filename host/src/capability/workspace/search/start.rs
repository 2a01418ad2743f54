//! Where a search begins.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::capability::workspace::fault::{self, Fault};
use crate::capability::workspace::lookup::{self, Last, Target};
use crate::capability::workspace::{beneath, kind, roots};
use crate::error::Result;
use crate::mounts::{MountTable, VirtualPath};
use crate::values::FileKind;

/// A directory to search.
#[derive(Debug)]
pub(in super::super) struct Start {
    /// The open directory; none for one that exists only as the parent of mounts.
    pub(super) dir: Option<Arc<OwnedFd>>,
    /// Its virtual path, links resolved.
    pub(super) real: VirtualPath,
}

/// What a search may begin at.
#[derive(Debug)]
pub(in super::super) enum Found {
    Start(Start),
    File(OwnedFd),
}

/// Opens the directory at a path.
pub(in super::super) fn start(table: &MountTable, path: &VirtualPath) -> Result<Start> {
    lookup::follow(table, path, Last::Follow, |target| open_dir(table, target))
}

/// Opens the directory or the regular file at a path.
pub(in super::super) fn start_or_file(table: &MountTable, path: &VirtualPath) -> Result<Found> {
    lookup::follow(table, path, Last::Follow, |target| {
        if let Target::Inside(spot) = target {
            let root = roots::open(table, spot.mount)?;
            let found = beneath::open(&root, &spot.rest, OFlags::PATH, Mode::empty())?;
            match kind::kind_of(&rustix::fs::fstat(found)?) {
                FileKind::Directory => {}
                FileKind::Other => return Err(fault::special_file(path).into()),
                _ => return Ok(Found::File(kind::open_regular(root, &spot.rest, OFlags::RDONLY, path)?.0)),
            }
        }
        Ok(Found::Start(open_dir(table, target)?))
    })
}

fn open_dir(table: &MountTable, target: &Target<'_>) -> Result<Start, Fault> {
    match target {
        Target::Above(real) => Ok(Start { dir: None, real: real.clone() }),
        Target::Inside(spot) => {
            let root = roots::open(table, spot.mount)?;
            let dir = beneath::open(root, &spot.rest, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            Ok(Start { dir: Some(Arc::new(dir)), real: spot.path.clone() })
        }
    }
}
