//! Where a program is.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where programs are looked for if the gateway's environment says nothing.
pub(super) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// All programs of this name on a search path, in order. Relative directories in it are passed over: what they mean
/// depends on where the gateway happens to be.
pub(super) fn find_on<'a>(path: &'a str, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(move |dir| dir.join(name))
        .filter(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.is_file() && !file.as_os_str().as_bytes().contains(&0) && access(file, Access::EXEC_OK).is_ok()
}
