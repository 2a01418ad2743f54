//! Directories that are made step by step from an open one, so that no link that an agent planted leads elsewhere.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with};
use rustix::io::Errno;

/// A directory is only looked through, never read: so it opens whatever its mode says.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How many names are tried for what is moved out of the way. An agent that plants this many gets an error.
const MAX_MOVED: u32 = 1000;

/// An open directory.
#[derive(Debug)]
pub(super) struct Dir(OwnedFd);

impl Dir {
    /// Opens or makes a directory by its path; the path is the operator's, so links in it are followed. One that somebody
    /// else owns or may write is [`Errno::PERM`]: they could put their own in place of what we make in it.
    pub(super) fn base(path: &Path, mode: u32) -> Result<Self, Errno> {
        let flags = HANDLE.difference(OFlags::NOFOLLOW);
        match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            other => return other.map(Self)?.ours(),
        }
        // Only the last one is private; what leads there is as `mkdir -p` makes it.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        openat(CWD, path, flags, Mode::empty()).map(Self)?.ours()
    }

    fn ours(self) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&self.0)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0;
        if ours { Ok(self) } else { Err(Errno::PERM) }
    }

    /// Opens or makes a directory in this one, with exactly this mode. Links are not followed: one in its place is
    /// [`Errno::NOTDIR`] or [`Errno::LOOP`], as any other file.
    pub(super) fn child(&self, name: &str, mode: u32) -> Result<Self, Errno> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let child = Self(openat(&self.0, name, HANDLE, Mode::empty())?);
        child.set_mode(name, mode)?;
        Ok(child)
    }

    /// Like [`child`](Self::child) in a directory that an agent may write: what is there and is no directory is moved
    /// out of the way, to `NAME.moved-N`, so that nothing is lost and the sandbox works.
    pub(super) fn child_or_repair(&self, name: &str, mode: u32) -> Result<Self, Errno> {
        match self.child(name, mode) {
            Err(Errno::NOTDIR | Errno::LOOP) => {}
            other => return other,
        }
        for number in 1..=MAX_MOVED {
            let moved = format!("{name}.moved-{number}");
            match renameat_with(&self.0, name, &self.0, &moved, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    tracing::warn!(
                        name,
                        moved,
                        "a sandbox's directory was replaced by something else; moved that away"
                    );
                    return self.child(name, mode);
                }
                // Another call was quicker.
                Err(Errno::NOENT) => return self.child(name, mode),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    fn set_mode(&self, name: &str, mode: u32) -> Result<(), Errno> {
        let found = rustix::fs::fstat(&self.0)?;
        let (foreign, private) = (found.st_uid != rustix::process::geteuid().as_raw(), mode & 0o077 == 0);
        if foreign && private {
            // Its owner could look into what others rely on.
            return Err(Errno::PERM);
        }
        if found.st_mode & 0o7777 == mode {
            return Ok(());
        }
        // A handle can't be changed directly, but its entry in /proc leads to this very directory.
        let entry = format!("/proc/self/fd/{}", self.0.as_fd().as_raw_fd());
        match rustix::fs::chmod(entry, Mode::from_raw_mode(mode)) {
            // A container's user made it: then it is as that user wants it.
            Err(Errno::PERM) if foreign => {
                tracing::warn!(name, owner = found.st_uid, "a sandbox's directory belongs to another user");
                Ok(())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn modes_are_exact_whatever_the_umask_and_what_was_there() {
        let root = tempfile::tempdir().unwrap();
        let base = Dir::base(&root.path().join("a/b"), 0o700).unwrap();
        base.child("open", 0o777).unwrap();
        let open = root.path().join("a/b/open");
        assert_eq!((mode(&root.path().join("a/b")), mode(&open)), (0o700, 0o777));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o000)).unwrap();
        base.child("open", 0o777).unwrap();
        assert_eq!(mode(&open), 0o777);
    }

    #[test]
    fn links_are_not_followed_and_nothing_outside_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
        let base = Dir::base(&root.path().join("base"), 0o700).unwrap();
        let link = root.path().join("base/link");
        symlink(&outside, &link).unwrap();
        assert!(matches!(base.child("link", 0o777), Err(Errno::NOTDIR | Errno::LOOP)));

        base.child_or_repair("link", 0o777).unwrap().child("inner", 0o777).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_dir());
        assert_eq!(fs::read_link(root.path().join("base/link.moved-1")).unwrap(), outside);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_eq!(mode(&outside), 0o700);
    }

    #[test]
    fn a_file_in_the_way_is_kept_under_another_name() {
        let root = tempfile::tempdir().unwrap();
        let base = Dir::base(root.path(), 0o700).unwrap();
        fs::write(root.path().join("x"), "one").unwrap();
        fs::write(root.path().join("x.moved-1"), "older").unwrap();
        base.child_or_repair("x", 0o755).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("x.moved-2")).unwrap(), "one");
        assert_eq!(fs::read_to_string(root.path().join("x.moved-1")).unwrap(), "older");
        assert!(root.path().join("x").is_dir());
    }

    #[test]
    fn a_private_directory_of_another_user_is_refused_an_open_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let base = Dir::base(root.path(), 0o700).unwrap();
        for (name, mode) in [("private", 0o700), ("open", 0o777)] {
            base.child(name, mode).unwrap();
            // Only root can give a directory away.
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(root.path().join(name), Some(12_345), None).unwrap();
                assert_eq!(base.child(name, mode).err(), (name == "private").then_some(Errno::PERM), "{name}");
            }
        }
    }
}
