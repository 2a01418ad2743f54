//! The gateway's own folders.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::check::Check;
use crate::config::Config;

/// Less room than this soon makes commands fail that write files.
const LITTLE_ROOM: u64 = 1 << 30;

pub(super) fn state(config: &Config) -> Check {
    let (name, path) = ("state directory", config.state_dir());
    let me = rustix::process::geteuid().as_raw();
    for inner in ["users", "skills_view"].map(|inner| path.join(inner)) {
        // Left by a gateway that ran as another user: this one refuses to put anything into it.
        if fs::symlink_metadata(&inner).is_ok_and(|found| found.uid() != me) {
            return Check::fail(name, format!("{} belongs to another user than the gateway's ({me})", inner.display()))
                .fix(format!("sudo chown -R \"$(id -un)\" {}", inner.display()));
        }
    }
    folder(name, "gateway.state_dir", &path)
}

pub(super) fn cache(config: &Config) -> Check {
    folder("cache directory", "gateway.cache_dir", &config.cache_dir())
}

fn folder(name: &str, key: &str, path: &Path) -> Check {
    let shown = path.display();
    let make = format!("sudo install -d -m 0700 -o \"$(id -un)\" {shown}, or set {key}");
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return missing(name, path, &make),
        Err(error) => return Check::fail(name, format!("{shown}: {error}")).fix(make),
    };
    if !found.is_dir() {
        return Check::fail(name, format!("{shown} is not a directory")).fix(format!("set {key} to a directory"));
    }
    let me = rustix::process::geteuid().as_raw();
    if found.uid() != me {
        return Check::fail(name, format!("{shown} belongs to user {}, the gateway runs as {me}", found.uid()))
            .fix(format!("sudo chown \"$(id -un)\" {shown}"));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Check::fail(name, format!("{shown} can be written by others (mode {mode:04o})"))
            .fix(format!("chmod go-w {shown}"));
    }
    // The system says whether a file could be made, without making one (a read-only file system says no, too).
    if let Err(error) = accessat(CWD, path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        return Check::fail(name, format!("{shown} can't be written: {error}")).fix(format!("chmod u+rwx {shown}"));
    }
    room(name, path, format!("{shown}, mode {mode:04o}"))
}

/// A folder that is still to be made.
fn missing(name: &str, path: &Path, make: &str) -> Check {
    let shown = path.display();
    let Some(parent) = path.ancestors().skip(1).find(|parent| parent.exists()) else {
        return Check::fail(name, format!("{shown} can't be made")).fix(make);
    };
    match accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Ok(()) if parent.is_dir() => room(name, parent, format!("{shown} is not there yet, the gateway will make it")),
        _ => Check::fail(name, format!("{shown} is not there, and {} can't be written", parent.display())).fix(make),
    }
}

fn room(name: &str, path: &Path, detail: String) -> Check {
    match statvfs(path) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let detail = format!("{detail}, {} MiB free", free >> 20);
            if free < LITTLE_ROOM {
                Check::warn(name, detail).fix(format!("make room on the file system of {}", path.display()))
            } else {
                Check::ok(name, detail)
            }
        }
        Err(_) => Check::ok(name, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn folders_that_are_missing_open_to_others_or_files_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let look = |path: &Path| folder("state directory", "gateway.state_dir", path);
        let check = look(&root.path().join("a/b"));
        assert_eq!(check.status, Status::Ok, "{check:?}");
        assert!(check.detail.contains("will make it") && !root.path().join("a").exists());

        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let check = look(root.path());
        assert_eq!(check.status, Status::Ok, "{check:?}");
        assert!(check.detail.contains("mode 0700"), "{check:?}");

        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let check = look(root.path());
        assert_eq!(check.status, Status::Fail);
        assert_eq!(check.fix.unwrap(), format!("chmod go-w {}", root.path().display()));

        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(look(&file).fix.unwrap(), "set gateway.state_dir to a directory");
        let check = look(&file.join("below"));
        assert!(check.status == Status::Fail && check.fix.unwrap().starts_with("sudo install -d"));
    }

    #[test]
    fn what_another_user_left_in_the_state_is_found() {
        let root = tempfile::tempdir().unwrap();
        let users = root.path().join("users");
        fs::create_dir(&users).unwrap();
        let mut config = Config::default();
        config.gateway.state_dir = Some(root.path().to_path_buf());
        assert_ne!(state(&config).status, Status::Fail);
        // Only root can give a directory away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&users, Some(12_345), None).unwrap();
            let check = state(&config);
            assert!(check.status == Status::Fail && check.fix.unwrap().starts_with("sudo chown -R"));
        }
    }
}
