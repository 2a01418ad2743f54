//! Content on its way into a file: kept where no path leads to it until it is whole.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::change::FILE_MODE;

/// How often a name for a temporary file is drawn. Names are random; more than one draw is an accident, so many mean
/// that something else is wrong.
const MAX_DRAWS: u32 = 16;

/// A file that is not in place yet. Dropping it leaves nothing behind.
///
/// It has no name at all where the file system can do that (`O_TMPFILE`), so that even a gateway that is killed leaves
/// nothing; a name is needed only for the instant of taking an old file's place, since a nameless file can be linked
/// but not renamed over another. Elsewhere it has a hidden random name from the start.
#[derive(Debug)]
pub(super) struct Staged {
    file: OwnedFd,
    /// The directory that it will be placed in, and its temporary name there.
    named: Option<Named>,
}

#[derive(Debug)]
struct Named {
    dir: OwnedFd,
    name: String,
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

impl Staged {
    /// A new empty one on the file system of `dir`.
    pub(super) fn new(dir: &OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, FILE_MODE) {
            Ok(file) => Ok(Self { file, named: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::with_name(dir),
            Err(errno) => Err(errno),
        }
    }

    fn with_name(dir: &OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        draw(|name| {
            let file = rustix::fs::openat(dir, name, flags, FILE_MODE)?;
            Ok(Self { file, named: Some(Named { dir: dir.try_clone().map_err(errno)?, name: name.to_owned() }) })
        })
    }

    /// The content.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Puts it at a name that nothing has yet; `EXIST` if something has.
    pub(super) fn place_new(&mut self, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
        let Some(named) = &self.named else { return self.link(dir, name) };
        match rustix::fs::renameat_with(&named.dir, &named.name, dir, name, RenameFlags::NOREPLACE) {
            // Some network file systems can't do that; a link never replaces anything either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&named.dir, &named.name, dir, name, AtFlags::empty())
            }
            other => other,
        }
    }

    /// Puts it in the place of `old`, whose permission bits and, if the gateway may, owner it takes over. (Setuid and
    /// setgid bits go, as with every write by someone else. If the gateway may not give files away, it runs as an
    /// ordinary user, and the new file is that user's like all the others.)
    pub(super) fn place_over(&mut self, dir: &OwnedFd, name: &str, old: &Stat) -> Result<(), Errno> {
        let new = rustix::fs::fstat(&self.file)?;
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
            let (owner, group) = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
            match rustix::fs::fchown(&self.file, Some(owner), Some(group)) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        if self.named.is_none() {
            let at = dir.try_clone().map_err(errno)?;
            let named = draw(|name| self.link(dir, name).map(|()| name.to_owned()))?;
            self.named = Some(Named { dir: at, name: named });
        }
        match &self.named {
            Some(named) => rustix::fs::renameat(&named.dir, &named.name, dir, name),
            None => Err(Errno::NOENT),
        }
    }

    /// Gives a nameless file a name.
    fn link(&self, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
        let through_proc = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match rustix::fs::linkat(CWD, through_proc, dir, name, AtFlags::SYMLINK_FOLLOW) {
            // Without /proc there is a direct way, which needs a privilege on older kernels.
            Err(Errno::NOENT) => rustix::fs::linkat(&self.file, "", dir, name, AtFlags::EMPTY_PATH),
            other => other,
        }
    }
}

/// Calls `make` with random hidden names until one is free.
fn draw<T>(mut make: impl FnMut(&str) -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..MAX_DRAWS {
        let random = RandomState::new().build_hasher().finish();
        // Searches leave out `*.tmp`, should a killed gateway ever leave one behind.
        match make(&format!(".sandgate-{random:016x}.tmp")) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
    Err(Errno::EXIST)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn dir(path: &Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Both kinds: most test machines can do without a name, so that the other way is asked for here.
    fn both(dir: &OwnedFd) -> [Staged; 2] {
        [Staged::new(dir).unwrap(), Staged::with_name(dir).unwrap()]
    }

    #[test]
    fn dropping_leaves_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let at = dir(temp.path());
        let staged = both(&at);
        rustix::io::write(staged[1].file(), b"x").unwrap();
        drop(staged);
        assert_eq!(names(temp.path()), Vec::<String>::new());
    }

    #[test]
    fn a_nameless_file_is_used_where_possible() {
        let temp = tempfile::tempdir().unwrap();
        let staged = Staged::new(&dir(temp.path())).unwrap();
        assert_eq!(names(temp.path()).len(), usize::from(staged.named.is_some()));
    }

    #[test]
    fn new_files_never_replace() {
        let temp = tempfile::tempdir().unwrap();
        let at = dir(temp.path());
        for (mut staged, name) in both(&at).into_iter().zip(["a", "b"]) {
            rustix::io::write(staged.file(), name.as_bytes()).unwrap();
            staged.place_new(&at, name).unwrap();
            drop(staged);
            assert_eq!(std::fs::read_to_string(temp.path().join(name)).unwrap(), name);
        }
        for mut staged in both(&at) {
            assert_eq!(staged.place_new(&at, "a").unwrap_err(), Errno::EXIST);
        }
        assert_eq!(names(temp.path()), ["a", "b"]);
    }

    #[test]
    fn replacing_keeps_the_mode() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let (at, file) = (dir(temp.path()), temp.path().join("a"));
        for mut staged in both(&at) {
            std::fs::write(&file, "old").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o751)).unwrap();
            let old = rustix::fs::stat(&file).unwrap();
            rustix::io::write(staged.file(), b"new").unwrap();
            staged.place_over(&at, "a", &old).unwrap();
            drop(staged);
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o751);
        }
        assert_eq!(names(temp.path()), ["a"]);
    }
}
