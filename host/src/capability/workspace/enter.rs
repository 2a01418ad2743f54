//! Whether something can start in a directory.

use rustix::fs::{Access, AtFlags};

use super::lookup::{self, Last, Target};
use super::{beneath, roots};
use crate::error::Result;
use crate::mounts::{MountTable, VirtualPath};

/// Checks that a path, links resolved as the sandbox would, is a directory that can be entered.
///
/// # Errors
/// `not-found`, `not-a-directory`, `permission-denied`, `path-escapes` (a link leads out of the mounts).
pub(crate) fn check_enterable(table: &MountTable, path: &VirtualPath) -> Result<()> {
    lookup::follow(table, path, Last::Follow, |target| match target {
        Target::Inside(spot) => {
            let dir = beneath::dir(roots::open(table, spot.mount)?, &spot.rest)?;
            Ok(rustix::fs::accessat(dir, ".", Access::EXEC_OK, AtFlags::empty())?)
        }
        Target::Above(_) => Ok(()),
    })
}
