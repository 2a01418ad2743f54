//! Writing a file in two commands: the first takes the bytes into a new file beside the target, the second puts that
//! in place.
//!
//! A stream that breaks off looks like one that ends: only the *call* tells, since it is dropped then. So nothing is put
//! in place before the first command has ended and the call still lives. What can be left behind is the file beside
//! the target, `.upload-NUMBERS.part`: when the call is dropped between the two commands, or when the first is killed
//! by a signal that it can't catch. Listings and searches that skip ignored names don't show it.

use super::failure::Code;
use super::quote::Target;
use super::script::{ENDINGS, clearing_up, script};
use crate::error::Result;
use crate::values::{Error, WriteMode, WriteOptions};

/// How many names are tried: more than commands run in one sandbox at the same time, and few enough that a directory
/// that can't be written is told soon.
const MAX_TRIES: u32 = 300;

/// A file beside the target, filled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upload {
    /// The numbers in its name.
    id: String,
    pub(super) size: u64,
}

/// Reads the line that the first command ends with.
pub(super) fn parse_upload(line: &str) -> Option<Upload> {
    let (id, size) = line.split_once(' ')?;
    let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    Some(Upload { id: plain.then(|| id.to_owned())?, size: size.parse().ok()? })
}

/// Sets `$t` to the file that `$p` leads to and `$d` to its directory, and refuses what can't be written.
fn resolve(options: WriteOptions) -> String {
    let existing = match options.mode {
        WriteMode::CreateNew => format!("if [ -e \"$p\" ] || [ -L \"$p\" ]; then exit {}; fi", Code::AlreadyExists),
        // The last letter keeps a line end that belongs to the name from being cut off.
        WriteMode::Replace | WriteMode::Append => "if [ -L \"$p\" ]; then\n\
             t=$(readlink -f -- \"$p\" && printf x) || { printf '%s\\n' 'the link leads nowhere: No such file or directory' >&2; exit 1; }\n\
             t=${t%??}\nfi"
        .into(),
    };
    format!(
        "t=$p\n{existing}\n\
         if [ -d \"$t\" ]; then exit {is_a_directory}; fi\n\
         if [ -e \"$t\" ] && [ ! -f \"$t\" ]; then exit {not_a_file}; fi\n\
         d=${{t%/*}}",
        is_a_directory = Code::IsADirectory,
        not_a_file = Code::NotAFile,
    )
}

/// Puts standard input into a new file beside the target and prints its numbers and its size.
pub(super) fn upload_script(target: &Target, options: WriteOptions) -> Result<String> {
    if target.is_root() {
        return Err(Error::IsADirectory("/: it is a directory, not a file".into()));
    }
    // The new file is made with noclobber, so that two writers never share one. Where every command has a process
    // namespace of its own, many have the same number `$$`, and a name that was taken may be free again by now: so a
    // failure is no reason to look closer, but to try the next name. What will replace a file is hidden from
    // others until it has that file's mode; any other keeps the mode that the user's umask gives to a new file.
    // A signal that comes while the file is being made waits until it is known whether it was: the subshell hears none, and
    // the shell only notes it.
    let body = format!(
        "{resolve}\n\
         mkdir -p -- \"$d/\" || {{\n\
         while [ -n \"$d\" ] && [ ! -e \"$d\" ]; do d=${{d%/*}}; done\n\
         [ -d \"$d/\" ] || exit {not_a_directory}; exit 1; }}\n\
         i=0; f=; k=\n\
         trap '[ -z \"$f\" ] || {{ trap \"\" {ENDINGS}; rm -f -- \"$f\"; }}' EXIT\n\
         trap 'k=1' {ENDINGS}\n\
         while :; do\n\
         n=$d/.upload-$$-$i.part\n\
         if ( trap '' {ENDINGS}; if [ -e \"$t\" ]; then umask 077; fi; set -C; : >\"$n\" ) 2>/dev/null; then f=$n; break; fi\n\
         if [ -n \"$k\" ]; then exit 1; fi\n\
         i=$((i + 1))\n\
         if [ $i -gt {MAX_TRIES} ]; then ( set -C; : >\"$n\" ) && f=$n && break; exit 1; fi\n\
         done\n\
         trap 'exit 1' {ENDINGS}\n\
         if [ -n \"$k\" ]; then exit 1; fi\n\
         cat >\"$f\" || exit 1\n\
         s=$(stat -c %s -- \"$f\") || exit 1\n\
         printf '%s %s\\n' \"$$-$i\" \"$s\" || exit 1\n\
         f=",
        resolve = resolve(options),
        not_a_directory = Code::NotADirectory,
    );
    Ok(clearing_up(&script(target, &["cat", "mkdir", "readlink", "rm", "stat"], &body)))
}

/// Puts the new file in place; it is gone afterwards, whatever happens.
pub(super) fn commit_script(target: &Target, options: WriteOptions, upload: &Upload) -> String {
    let commit = match options.mode {
        // The owner is kept where this user may give files away; that clears setuid, so the mode comes after it.
        WriteMode::Replace => "if [ -e \"$t\" ]; then\n\
             o=$(stat -c %u:%g -- \"$t\") && m=$(stat -c %a -- \"$t\") || exit 1\n\
             chown \"$o\" \"$f\" 2>/dev/null\n\
             chmod \"$m\" \"$f\" || exit 1\nfi\n\
             mv -f -- \"$f\" \"$t\" || exit 1"
            .into(),
        WriteMode::Append => "cat -- \"$f\" >>\"$t\" || exit 1".into(),
        // A link fails where the name is taken. Not every file system has links: there, noclobber makes the file, and
        // a reader can see it before it is whole.
        WriteMode::CreateNew => format!(
            "ln -- \"$f\" \"$t\" 2>/dev/null || {{\n\
             if [ -e \"$t\" ] || [ -L \"$t\" ]; then exit {exists}; fi\n\
             ( set -C; cat -- \"$f\" >\"$t\" ) || exit 1; }}",
            exists = Code::AlreadyExists
        ),
    };
    // The trap comes first: what `resolve` refuses must not leave the new file. `$d` is not known before.
    let body = format!(
        "trap 'exit 1' {ENDINGS}\n\
         f=; trap 'trap \"\" {ENDINGS}; rm -f -- \"${{f:-${{p%/*}}/.upload-{id}.part}}\"' EXIT\n\
         {resolve}\n\
         f=$d/.upload-{id}.part\n\
         {commit}\nexit 0",
        resolve = resolve(options),
        id = upload.id,
    );
    clearing_up(&script(target, &["cat", "chmod", "chown", "ln", "mv", "readlink", "rm", "stat"], &body))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::shell::run::{NoOutput, OneLine};
    use crate::shell::testing::{Area, Shell, area, shells, target};

    const REPLACE: WriteOptions = WriteOptions { mode: WriteMode::Replace, text: false };
    const APPEND: WriteOptions = WriteOptions { mode: WriteMode::Append, text: false };
    const CREATE: WriteOptions = WriteOptions { mode: WriteMode::CreateNew, text: false };

    fn upload(shell: &Shell, path: &str, data: &[u8], options: WriteOptions) -> Result<Upload> {
        let target = target(path);
        shell.drive(&target, &upload_script(&target, options)?, data, OneLine::new(parse_upload))
    }

    fn commit(shell: &Shell, path: &str, options: WriteOptions, upload: &Upload) -> Result<()> {
        let target = target(path);
        shell.drive(&target, &commit_script(&target, options, upload), b"", NoOutput)
    }

    fn write(shell: &Shell, path: &str, data: &[u8], options: WriteOptions) -> Result<u64> {
        let upload = upload(shell, path, data, options)?;
        commit(shell, path, options, &upload)?;
        Ok(upload.size)
    }

    /// No `.upload-…` is left anywhere.
    fn tidy(area: &Area) -> bool {
        let mut dirs = vec![std::path::PathBuf::from(area.root())];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
                if entry.file_name().to_string_lossy().starts_with(".upload-") {
                    return false;
                }
                if entry.file_type().expect("a type").is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
        true
    }

    #[test]
    fn bytes_arrive_as_they_are_and_parents_are_made() {
        let data: Vec<u8> = (0..=255u8).cycle().take(1_000_003).collect();
        for shell in shells() {
            let area = area();
            let path = area.path("new/it's\n/-f $(x)\n");
            assert_eq!(write(&shell, &path, &data, REPLACE).expect("write"), 1_000_003, "{}", shell.name);
            assert!(fs::read(&path).expect("read") == data, "{}", shell.name);
            assert_eq!(fs::metadata(&path).expect("meta").mode() & 0o777, 0o644, "{}", shell.name);
            assert_eq!(write(&shell, &path, b"", REPLACE).expect("write"), 0);
            assert_eq!(fs::read(&path).expect("read"), b"");
            assert!(tidy(&area));
        }
    }

    #[test]
    fn replacing_keeps_mode_owner_and_links() {
        for shell in shells() {
            let area = area();
            let file = area.file("real/script\n", "old");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).expect("chmod");
            let root = fs::metadata(&file).expect("meta").uid() == 0;
            if root {
                std::os::unix::fs::chown(&file, Some(4321), Some(1234)).expect("chown");
                fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).expect("chmod");
            }
            let before = fs::metadata(&file).expect("meta");
            let link = area.path("link");
            symlink("real/script\n", &link).expect("symlink");
            write(&shell, &link, b"new", REPLACE).expect("write");
            let meta = fs::metadata(&file).expect("meta");
            assert_eq!(fs::read(&file).expect("read"), b"new", "{}", shell.name);
            assert_eq!(
                (meta.mode(), meta.uid(), meta.gid()),
                (before.mode(), before.uid(), before.gid()),
                "{}",
                shell.name
            );
            assert_ne!(meta.ino(), before.ino(), "a reader of the old file keeps it");
            assert!(fs::symlink_metadata(&link).expect("meta").is_symlink());

            let dangling = area.path("dangling");
            symlink(area.path("real/later"), &dangling).expect("symlink");
            write(&shell, &dangling, b"later", REPLACE).expect("write");
            assert_eq!(fs::read(area.path("real/later")).expect("read"), b"later", "{}", shell.name);
            assert!(tidy(&area));
        }
    }

    #[test]
    fn appending_adds_to_the_end_or_makes_the_file() {
        for shell in shells() {
            let area = area();
            let path = area.path("log.txt");
            assert_eq!(write(&shell, &path, b"one\n", APPEND).expect("write"), 4);
            let before = fs::metadata(&path).expect("meta").ino();
            assert_eq!(write(&shell, &path, b"two", APPEND).expect("write"), 3);
            assert_eq!(fs::read(&path).expect("read"), b"one\ntwo", "{}", shell.name);
            assert_eq!(fs::metadata(&path).expect("meta").ino(), before);
            assert!(tidy(&area));
        }
    }

    #[test]
    fn creating_refuses_what_is_there_even_if_it_came_meanwhile() {
        for shell in shells() {
            let area = area();
            let path = area.path("x/file");
            assert_eq!(write(&shell, &path, b"first", CREATE).expect("write"), 5);
            assert!(matches!(write(&shell, &path, b"second", CREATE), Err(Error::AlreadyExists(_))), "{}", shell.name);
            symlink("nowhere", area.path("dangling")).expect("symlink");
            assert!(matches!(write(&shell, &area.path("dangling"), b"x", CREATE), Err(Error::AlreadyExists(_))));
            assert!(fs::metadata(area.path("nowhere")).is_err());

            let other = area.path("x/other");
            let waiting = upload(&shell, &other, b"late", CREATE).expect("upload");
            area.file("x/other", "early");
            assert!(matches!(commit(&shell, &other, CREATE, &waiting), Err(Error::AlreadyExists(_))), "{}", shell.name);
            assert_eq!(fs::read(&other).expect("read"), b"early");
            assert_eq!(fs::read(&path).expect("read"), b"first");
            assert!(tidy(&area), "{}", shell.name);
        }
    }

    #[test]
    fn nothing_changes_before_the_commit() {
        for shell in shells() {
            let area = area();
            let path = area.file("file", "old");
            for options in [REPLACE, APPEND] {
                upload(&shell, &path, b"half of what was", options).expect("upload");
                assert_eq!(fs::read(&path).expect("read"), b"old", "{}", shell.name);
            }
            upload(&shell, &area.path("new"), b"half", CREATE).expect("upload");
            assert!(fs::metadata(area.path("new")).is_err());
        }
    }

    #[test]
    fn an_upload_that_is_ended_cleans_up() {
        for shell in shells() {
            let area = area();
            let path = area.file("file", "old");
            let script = upload_script(&target(&path), REPLACE).expect("a script");
            let mut child = shell.spawn(&script);
            let mut input = child.stdin.take().expect("an input");
            std::io::Write::write_all(&mut input, b"half").expect("write");
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            let arrived = || {
                let entries = fs::read_dir(area.root()).expect("a directory");
                entries.filter_map(|entry| entry.ok()?.metadata().ok()).any(|meta| meta.len() == 4)
            };
            while !arrived() {
                assert!(std::time::Instant::now() < deadline, "{}: nothing arrives", shell.name);
                std::thread::yield_now();
            }
            let group = format!("-{}", child.id());
            let killed = std::process::Command::new("kill").args(["-TERM", "--", &group]).status().expect("kill");
            assert!(killed.success());
            let status = child.wait().expect("its end");
            assert!(!status.success(), "{}: {status}", shell.name);
            // The script's own subshell may end a little after the shell.
            while !tidy(&area) {
                assert!(std::time::Instant::now() < deadline, "{}: a file stays", shell.name);
                std::thread::yield_now();
            }
            assert_eq!(fs::read(&path).expect("read"), b"old");
        }
    }

    #[test]
    fn a_shell_with_options_of_its_own_changes_nothing() {
        for shell in shells() {
            let area = area();
            let path = target(&area.path("file"));
            let script = upload_script(&path, REPLACE).expect("a script");
            let run = shell.run(&format!("set -e -u -C\n{script}\nprintf '%s' \"$?$-\""), b"12345");
            let out = String::from_utf8_lossy(&run.stdout);
            let (line, after) = out.split_once('\n').expect("a line");
            assert_eq!(parse_upload(line).map(|upload| upload.size), Some(5), "{}", shell.name);
            assert!(after.starts_with('0') && after.contains('C'), "{}: the shell goes on as it was", shell.name);
        }
    }

    #[test]
    fn what_waits_for_its_commit_is_as_private_as_what_it_replaces() {
        for shell in shells() {
            let area = area();
            let path = area.file("secret", "old");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
            let waiting = upload(&shell, &path, b"new secret", REPLACE).expect("upload");
            let part = area.path(&format!(".upload-{}.part", waiting.id));
            assert_eq!(fs::metadata(part).expect("meta").mode() & 0o077, 0, "{}", shell.name);
        }
    }

    #[test]
    fn what_is_no_file_is_refused_and_left_alone() {
        for shell in shells() {
            let area = area();
            area.file("dir/file", "x");
            symlink("dir", area.path("to-dir")).expect("symlink");
            for options in [REPLACE, APPEND] {
                for path in ["dir", "to-dir", "dir/"] {
                    let result = write(&shell, &area.path(path), b"x", options);
                    assert!(matches!(result, Err(Error::IsADirectory(_))), "{} {path}: {result:?}", shell.name);
                }
                let through = write(&shell, &area.path("dir/file/x"), b"x", options);
                assert!(
                    matches!(through, Err(Error::NotADirectory(_) | Error::AlreadyExists(_))),
                    "{}: {through:?}",
                    shell.name
                );
            }
            assert!(matches!(write(&shell, "/dev/null", b"x", REPLACE), Err(Error::InvalidArgument(_))));
            assert!(matches!(write(&shell, "/", b"x", REPLACE), Err(Error::IsADirectory(_))));
            assert!(tidy(&area), "{}", shell.name);
        }
    }

    #[test]
    fn a_directory_that_came_meanwhile_swallows_nothing() {
        for shell in shells() {
            let area = area();
            let path = area.path("later");
            let waiting = upload(&shell, &path, b"x", REPLACE).expect("upload");
            fs::create_dir(&path).expect("mkdir");
            assert!(matches!(commit(&shell, &path, REPLACE, &waiting), Err(Error::IsADirectory(_))), "{}", shell.name);
            assert!(fs::read_dir(&path).expect("list").next().is_none() && tidy(&area), "{}", shell.name);
        }
    }

    #[test]
    fn a_directory_that_may_not_be_written_denies() {
        for shell in shells().into_iter().map(Shell::unprivileged) {
            let area = area();
            let path = area.file("file", "old");
            fs::set_permissions(area.root(), fs::Permissions::from_mode(0o555)).expect("chmod");
            let result = write(&shell, &path, b"new", REPLACE);
            assert!(matches!(result, Err(Error::PermissionDenied(_))), "{}: {result:?}", shell.name);
            let result = write(&shell, &area.path("sub/new"), b"new", CREATE);
            assert!(matches!(result, Err(Error::PermissionDenied(_))), "{}: {result:?}", shell.name);
            assert_eq!(fs::read(&path).expect("read"), b"old");
        }
    }

    #[test]
    fn strange_answers_are_no_upload() {
        assert_eq!(parse_upload("12-0 5"), Some(Upload { id: "12-0".into(), size: 5 }));
        for line in ["", "12-0", "12-0 x", " 5", "a;b 5", "$(x) 5"] {
            assert_eq!(parse_upload(line), None, "{line:?}");
        }
    }
}
