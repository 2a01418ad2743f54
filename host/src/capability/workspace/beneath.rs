//! Opening things beneath a directory, with the kernel's word that no link was followed.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::fault::Fault;
use crate::error::Error;

/// How often an open is tried again when the kernel says that a rename got in its way. It happens only while somebody
/// renames directories of this very path without pause; so many failures in a row are no accident.
const MAX_TRIES: u32 = 64;

/// Never above the directory, and through no link of any kind.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens `path` (relative; empty for the directory itself) beneath `dir`.
///
/// A link anywhere in it is `ELOOP`; only with `PATH | NOFOLLOW` may the last segment be one, and then the link itself
/// is opened. `mode` counts only if the flags make a file.
pub(super) fn open(dir: impl AsFd, path: impl AsRef<OsStr>, flags: OFlags, mode: Mode) -> Result<OwnedFd, Fault> {
    let (dir, path) = (dir.as_fd(), path.as_ref());
    let path = if path.is_empty() { OsStr::new(".") } else { path };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, mode, RESOLVE) {
            Ok(fd) => return Ok(fd),
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_TRIES => {
                tries += 1;
                std::thread::yield_now();
            }
            Err(errno) => return Err(explain(errno, probe)),
        }
    }
}

/// Opens a directory only to work beneath it.
pub(super) fn dir(at: impl AsFd, path: impl AsRef<OsStr>) -> Result<OwnedFd, Fault> {
    open(at, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

/// Whether `openat2` works at all here.
fn probe() -> Result<(), Errno> {
    rustix::fs::openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS).map(drop)
}

/// Tells a kernel without `openat2`, or a seccomp filter that blocks it, from an ordinary refusal.
fn explain(errno: Errno, probe: impl FnOnce() -> Result<(), Errno>) -> Fault {
    let missing = match errno {
        Errno::NOSYS => true,
        Errno::PERM => matches!(probe(), Err(Errno::PERM | Errno::NOSYS)),
        _ => false,
    };
    if missing {
        let error =
            Error::unsupported("this gateway can't open files safely: its kernel offers no openat2 system call")
                .hint("run the gateway on Linux 5.6 or later and let its seccomp profile allow openat2");
        return Fault::Told(error);
    }
    Fault::Os(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_kernel_without_openat2_is_named() {
        for (errno, probed) in [(Errno::NOSYS, Ok(())), (Errno::PERM, Err(Errno::PERM))] {
            match explain(errno, || probed) {
                Fault::Told(error) => {
                    assert_eq!(error.code(), Code::Unsupported);
                    assert!(error.to_string().contains("openat2"), "{error}");
                }
                Fault::Os(errno) => panic!("{errno} was not explained"),
            }
        }
        assert!(matches!(explain(Errno::PERM, || Ok(())), Fault::Os(Errno::PERM)));
        assert!(matches!(explain(Errno::ACCESS, || Err(Errno::PERM)), Fault::Os(Errno::ACCESS)));
    }
}
