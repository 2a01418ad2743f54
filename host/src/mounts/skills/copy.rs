//! Copies one skill.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat, statat};
use rustix::io::Errno;

/// Copies the folder `from` to `to`, which must not exist. Files become new files with new contents (never links to
/// the old ones) that everyone may read. Links that lead to something in the skill stay links; others are left out, and
/// so are pipes, sockets and devices.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, from, directory, Mode::empty())?;
    let copier = Copier { root: root.as_fd() };
    copier.directory(root.as_fd(), Path::new(""), to)
}

struct Copier<'a> {
    /// The skill's folder.
    root: BorrowedFd<'a>,
}

impl Copier<'_> {
    /// `path` is where `from` lies in the skill.
    fn directory(&self, from: BorrowedFd<'_>, path: &Path, to: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o755).create(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
        for entry in Dir::read_from(from)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = OsStr::from_bytes(name);
            self.entry(from, name, &path.join(name), &to.join(name))?;
        }
        Ok(())
    }

    fn entry(&self, parent: BorrowedFd<'_>, name: &OsStr, path: &Path, to: &Path) -> io::Result<()> {
        let kind = FileType::from_raw_mode(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        let open = |extra: OFlags| -> io::Result<OwnedFd> {
            // Whatever stands there by now, no link is followed and no pipe waited for.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | extra;
            Ok(openat(parent, name, flags, Mode::empty())?)
        };
        match kind {
            FileType::Directory => self.directory(open(OFlags::DIRECTORY)?.as_fd(), path, to),
            FileType::RegularFile => file(File::from(open(OFlags::empty())?), to),
            FileType::Symlink => self.link(parent, name, path, to),
            _ => {
                tracing::warn!(file = %path.display(), "left out of a skill: no file, directory or link");
                Ok(())
            }
        }
    }

    fn link(&self, parent: BorrowedFd<'_>, name: &OsStr, path: &Path, to: &Path) -> io::Result<()> {
        let target = readlinkat(parent, name, Vec::new())?;
        let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
        // The kernel says whether it stays inside: absolute targets and `..` beyond the skill don't.
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside) {
            Ok(_) => symlink(target, to),
            Err(Errno::XDEV | Errno::LOOP | Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {
                tracing::warn!(file = %path.display(), "left out of a skill: a link that leads out of it or nowhere");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn file(mut from: File, to: &Path) -> io::Result<()> {
    let found = from.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("a file was replaced while it was copied"));
    }
    let mode = if found.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
    io::copy(&mut from, &mut copy)?;
    copy.set_permissions(fs::Permissions::from_mode(mode))
}
