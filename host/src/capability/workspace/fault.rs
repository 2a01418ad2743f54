//! The one place that turns what the operating system says into an [`Error`] about the path that the caller named.

use rustix::io::Errno;

use crate::error::{Code, Error};
use crate::mounts::VirtualPath;

/// Why a step failed: what the operating system said, still to be put into words, or an error that is in words already.
#[derive(Debug)]
pub(super) enum Fault {
    Os(Errno),
    Told(Error),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Os(errno)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl Fault {
    /// In words, about `path`.
    pub(super) fn about(self, path: &VirtualPath) -> Error {
        match self {
            Self::Os(errno) => error(errno, path),
            Self::Told(error) => error,
        }
    }
}

/// What `errno` means for `path`.
pub(super) fn error(errno: Errno, path: &VirtualPath) -> Error {
    match errno {
        Errno::NOENT => Error::not_found(format!("{path} does not exist")),
        Errno::ACCESS | Errno::PERM => {
            Error::permission_denied(format!("the operating system refuses access to {path}"))
        }
        Errno::ROFS => read_only(path),
        Errno::ISDIR => is_a_directory(path),
        Errno::NOTDIR => not_a_directory(path),
        Errno::EXIST => Error::already_exists(format!("{path} exists already")),
        Errno::NOTEMPTY => Error::already_exists(format!("the directory {path} is not empty"))
            .hint("remove what is in it first, or remove it recursively"),
        Errno::LOOP | Errno::XDEV => escapes(path),
        Errno::NAMETOOLONG => Error::invalid_argument(format!("the path {path} is too long for the file system")),
        Errno::NOSPC => {
            Error::other(format!("no space is left for {path}")).hint("remove files that are not needed any more")
        }
        Errno::DQUOT => Error::other(format!("the disk quota leaves no room for {path}"))
            .hint("remove files that are not needed any more"),
        Errno::FBIG => Error::new(Code::TooLarge, format!("{path} would be larger than the file system allows")),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR | Errno::STALE => {
            Error::unavailable(format!("the gateway can't open {path} just now ({})", text(errno))).hint("try it again")
        }
        Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => special_file(path),
        Errno::TXTBSY => Error::other(format!("{path} is a program that is running")).hint("stop it first"),
        Errno::BUSY => Error::other(format!("{path} is in use as a mount point")),
        other => Error::other(format!("{path} can't be accessed ({})", text(other))),
    }
}

/// The path's mount can't be written.
pub(super) fn read_only(path: &VirtualPath) -> Error {
    Error::read_only(format!("{path} lies in a read-only mount")).hint("write to a path in a writable mount")
}

/// The path is a directory.
pub(super) fn is_a_directory(path: &VirtualPath) -> Error {
    Error::is_a_directory(format!("{path} is a directory")).hint("name a file in it")
}

/// The path, or one of its parents, is not a directory.
pub(super) fn not_a_directory(path: &VirtualPath) -> Error {
    Error::not_a_directory(format!("{path} or one of its parents is not a directory"))
}

/// The path leads out.
pub(super) fn escapes(path: &VirtualPath) -> Error {
    Error::path_escapes(format!("{path} leads out of its mount through a link"))
        .hint("use a file that lies in the sandbox itself")
}

/// The path is a pipe, socket or device.
pub(super) fn special_file(path: &VirtualPath) -> Error {
    Error::invalid_argument(format!("{path} is a pipe, socket or device, not a regular file"))
        .hint("use a command to read or write it")
}

/// The path is, or holds, the root of a mount.
pub(super) fn is_a_mount(path: &VirtualPath) -> Error {
    Error::permission_denied(format!("{path} is a mount, or holds one, and can't be removed"))
        .hint("remove what is in it instead")
}

fn text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_that_matters_has_its_code_and_names_the_path() {
        let path = VirtualPath::new("/mnt/user-data/workspace/f").unwrap();
        for (errno, code) in [
            (Errno::NOENT, Code::NotFound),
            (Errno::ACCESS, Code::PermissionDenied),
            (Errno::PERM, Code::PermissionDenied),
            (Errno::ROFS, Code::ReadOnly),
            (Errno::ISDIR, Code::IsADirectory),
            (Errno::NOTDIR, Code::NotADirectory),
            (Errno::EXIST, Code::AlreadyExists),
            (Errno::NOTEMPTY, Code::AlreadyExists),
            (Errno::LOOP, Code::PathEscapes),
            (Errno::XDEV, Code::PathEscapes),
            (Errno::NAMETOOLONG, Code::InvalidArgument),
            (Errno::FBIG, Code::TooLarge),
            (Errno::MFILE, Code::Unavailable),
            (Errno::NXIO, Code::InvalidArgument),
            (Errno::NOSPC, Code::Other),
            (Errno::DQUOT, Code::Other),
            (Errno::IO, Code::Other),
        ] {
            let error = error(errno, &path);
            assert_eq!(error.code(), code, "{errno}");
            assert!(error.to_string().contains(path.as_str()), "{error}");
        }
    }
}
