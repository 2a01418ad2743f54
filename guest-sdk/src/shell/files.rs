//! One file or directory: its state, removing it, making directories.

use super::failure::Code;
use super::quote::Target;
use super::script::{script, stat};
use crate::error::Result;
use crate::values::{Error, FileKind, FileStat};

/// What `stat` is asked for wherever a [`FileStat`] is wanted.
pub(super) const STAT_FORMAT: &str = "%f %s %Y";

/// The kind in the upper bits of a file's mode.
pub(super) fn kind(mode: u32) -> FileKind {
    match mode & 0o170_000 {
        0o100_000 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// Reads a line in [`STAT_FORMAT`]. Whether the mount can be written is not known to a shell: `read_only` is false.
pub(super) fn parse_stat(line: &str) -> Option<FileStat> {
    let mut fields = line.split(' ');
    let mode = u32::from_str_radix(fields.next()?, 16).ok()?;
    let size = fields.next()?.parse().ok()?;
    let seconds: i64 = fields.next()?.parse().ok()?;
    if fields.next().is_some() {
        return None;
    }
    let kind = kind(mode);
    Some(FileStat {
        kind,
        size: if kind == FileKind::File { size } else { 0 },
        modified_ms: u64::try_from(seconds).ok().map(|seconds| seconds.saturating_mul(1000)),
        mode: mode & 0o7777,
        read_only: false,
    })
}

/// Prints a link's own state, never its target's.
pub(super) fn stat_script(target: &Target) -> String {
    script(target, &["stat"], &format!("{}\nprintf '%s\\n' \"$s\"", stat("", STAT_FORMAT)))
}

/// Makes a directory and its parents.
pub(super) fn make_dir_script(target: &Target) -> String {
    let body = format!(
        "if [ -d \"$p\" ]; then exit 0; fi\n\
         if [ -e \"$p\" ] || [ -L \"$p\" ]; then exit {not_a_directory}; fi\n\
         mkdir -p -- \"$p\"",
        not_a_directory = Code::NotADirectory,
    );
    script(target, &["mkdir"], &body)
}

/// Removes what `$p` itself names: of a link the link. A directory goes with all that is in it only if `recursive`.
pub(super) fn remove_script(target: &Target, recursive: bool) -> Result<String> {
    if target.is_root() || matches!(target.name(), "..") {
        return Err(Error::InvalidArgument(format!(
            "{}: this directory can't be removed; name it by a path that ends with its name",
            target.as_str()
        )));
    }
    let directory = if recursive { "rm -rf -- \"$p\"" } else { "rmdir -- \"$p\"" };
    let body = format!("{stat}\ncase $s in 4???) {directory} ;; *) rm -f -- \"$p\" ;; esac", stat = stat("", "%f"),);
    Ok(script(target, &["stat", "rm", "rmdir"], &body))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::shell::run::{NoOutput, OneLine};
    use crate::shell::testing::{Shell, area, shells, target};

    fn stat_of(shell: &Shell, path: &str) -> Result<FileStat> {
        let target = target(path);
        shell.drive(&target, &stat_script(&target), b"", OneLine::new(parse_stat))
    }

    fn remove(shell: &Shell, path: &str, recursive: bool) -> Result<()> {
        let target = target(path);
        shell.drive(&target, &remove_script(&target, recursive)?, b"", NoOutput)
    }

    fn make_dir(shell: &Shell, path: &str) -> Result<()> {
        let target = target(path);
        shell.drive(&target, &make_dir_script(&target), b"", NoOutput)
    }

    #[test]
    fn states_of_files_directories_and_links() {
        for shell in shells() {
            let area = area();
            let file = area.file("it's $(x)\n-n", "12345");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).expect("chmod");
            let stat = stat_of(&shell, &file).expect("stat");
            assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File, 5, 0o4751), "{}", shell.name);
            let modified = fs::metadata(&file).and_then(|meta| meta.modified()).expect("mtime");
            let seconds = modified.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
            assert_eq!(stat.modified_ms, Some(seconds * 1000));

            let link = area.path("link");
            symlink("nowhere", &link).expect("symlink");
            assert_eq!(stat_of(&shell, &link).expect("stat").kind, FileKind::Symlink);
            let root = stat_of(&shell, area.root()).expect("stat");
            assert_eq!((root.kind, root.size), (FileKind::Directory, 0));
            assert_eq!(stat_of(&shell, "/dev/null").expect("stat").kind, FileKind::Other);

            assert!(
                matches!(stat_of(&shell, &area.path("no")), Err(Error::NotFound(text)) if text.contains(area.root()))
            );
            assert!(matches!(stat_of(&shell, &format!("{file}/x")), Err(Error::NotADirectory(_))), "{}", shell.name);
        }
    }

    #[test]
    fn removing_never_follows_a_link() {
        for shell in shells() {
            let area = area();
            area.file("dir/file", "x");
            let (dir, link, file) = (area.path("dir"), area.path("link"), area.path("dir/file"));
            symlink(&dir, &link).expect("symlink");
            remove(&shell, &format!("{link}/"), true).expect("remove the link");
            assert!(fs::symlink_metadata(&link).is_err() && fs::metadata(&file).is_ok(), "{}", shell.name);

            assert!(matches!(remove(&shell, &dir, false), Err(Error::AlreadyExists(_))), "{}", shell.name);
            assert!(fs::metadata(&file).is_ok());
            symlink(area.root(), area.path("dir/up")).expect("symlink");
            area.file("bystander", "");
            remove(&shell, &dir, true).expect("remove the directory");
            assert!(fs::metadata(&dir).is_err() && fs::metadata(area.path("bystander")).is_ok());
            assert!(matches!(remove(&shell, &dir, true), Err(Error::NotFound(_))));
            fs::create_dir(&dir).expect("mkdir");
            remove(&shell, &dir, false).expect("remove an empty directory");
            assert!(matches!(remove(&shell, "/", true), Err(Error::InvalidArgument(_))));
            assert!(matches!(remove(&shell, &format!("{}/..", area.root()), true), Err(Error::InvalidArgument(_))));
        }
    }

    #[test]
    fn directories_with_their_parents() {
        for shell in shells() {
            let area = area();
            let deep = area.path("a/b\n/-c");
            make_dir(&shell, &deep).expect("make");
            assert!(fs::metadata(&deep).expect("there").is_dir(), "{}", shell.name);
            make_dir(&shell, &deep).expect("again");
            let file = area.file("file", "");
            assert!(matches!(make_dir(&shell, &file), Err(Error::NotADirectory(_))));
            assert!(matches!(make_dir(&shell, &format!("{file}/x")), Err(Error::NotADirectory(_))), "{}", shell.name);
        }
    }

    #[test]
    fn what_a_user_may_not_do_is_denied() {
        for shell in shells().into_iter().map(Shell::unprivileged) {
            let area = area();
            area.file("locked/file", "x");
            fs::set_permissions(area.path("locked"), fs::Permissions::from_mode(0o700)).expect("chmod");
            let file = area.path("locked/file");
            let denied = |result: Result<()>| matches!(result, Err(Error::PermissionDenied(_)));
            assert!(denied(stat_of(&shell, &file).map(|_| ())), "{}", shell.name);
            assert!(denied(remove(&shell, &file, false)), "{}", shell.name);
            assert!(denied(make_dir(&shell, &area.path("locked/new"))), "{}", shell.name);
        }
    }

    #[test]
    fn a_missing_tool_is_named() {
        for shell in shells() {
            let name = shell.name;
            let result = stat_of(&shell.without_tools(), "/");
            assert!(
                matches!(&result, Err(Error::Unsupported(text)) if text.contains("\"stat\"")),
                "{name}: {result:?}"
            );
        }
    }
}
