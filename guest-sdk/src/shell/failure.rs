//! How a script says what went wrong, and the error that its caller gets.
//!
//! A script ends with one of the [`Code`]s for what it has checked itself. For what a tool refuses, the reason is taken
//! from the end of the tool's message: scripts run in the locale `C`, where the texts of the system's errors are the
//! same everywhere.

use super::quote::Target;
use crate::error::Result;
use crate::values::{Error, ExitStatus};

/// The exit codes of the scripts: a range that neither tools nor shells nor signals use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Code {
    NotFound = 81,
    IsADirectory = 82,
    NotADirectory = 83,
    /// A socket, pipe or device where a regular file is needed.
    NotAFile = 84,
    AlreadyExists = 85,
    Denied = 86,
    /// A tool is missing; the script has written its name.
    NoTool = 87,
    /// The sandbox's `grep` reads bytes, and the pattern needs characters.
    NoUtf8 = 88,
}

impl Code {
    const ALL: [Self; 8] = [
        Self::NotFound,
        Self::IsADirectory,
        Self::NotADirectory,
        Self::NotAFile,
        Self::AlreadyExists,
        Self::Denied,
        Self::NoTool,
        Self::NoUtf8,
    ];
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (*self as i32).fmt(f)
    }
}

/// The ending of a message, the error that it is, and what is said of the path.
type Reason = (&'static str, fn(String) -> Error, &'static str);

/// Endings of messages and what they mean. Shells have words of their own for some of them.
const REASONS: [Reason; 14] = [
    ("No such file or directory", Error::NotFound, "no such file or directory"),
    ("Directory nonexistent", Error::NotFound, "no such file or directory"),
    ("nonexistent directory", Error::NotFound, "no such file or directory"),
    ("Permission denied", Error::PermissionDenied, "permission denied"),
    ("Operation not permitted", Error::PermissionDenied, "operation not permitted"),
    ("Device or resource busy", Error::PermissionDenied, "it is in use, as a mount point for example"),
    ("Read-only file system", Error::ReadOnly, "the file system is read-only"),
    ("Is a directory", Error::IsADirectory, "it is a directory"),
    ("Not a directory", Error::NotADirectory, "not a directory"),
    ("File exists", Error::AlreadyExists, "it exists already"),
    ("Directory not empty", Error::AlreadyExists, "the directory is not empty; remove it recursively"),
    ("Too many levels of symbolic links", Error::PathEscapes, "it leads through too many links, or in circles"),
    ("Symbolic link loop", Error::PathEscapes, "it leads through too many links, or in circles"),
    ("File name too long", Error::InvalidArgument, "the name is too long"),
];

/// Nothing if the script succeeded, else the error. `text` is what it had to say.
pub(super) fn check(target: &Target, status: &ExitStatus, text: &[u8]) -> Result<()> {
    if status.code == 0 && status.signal.is_none() {
        return Ok(());
    }
    let path = target.as_str();
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let code = Code::ALL.into_iter().find(|code| *code as i32 == status.code && status.signal.is_none());
    Err(match code {
        Some(Code::NotFound) => Error::NotFound(format!("{path}: no such file or directory")),
        Some(Code::IsADirectory) => Error::IsADirectory(format!("{path}: it is a directory, not a file")),
        Some(Code::NotADirectory) => Error::NotADirectory(format!("{path}: not a directory")),
        Some(Code::NotAFile) => Error::InvalidArgument(format!(
            "{path}: it is a socket, pipe or device; only regular files can be read and written"
        )),
        Some(Code::AlreadyExists) => Error::AlreadyExists(format!("{path}: it exists already")),
        Some(Code::Denied) => Error::PermissionDenied(format!("{path}: permission denied")),
        Some(Code::NoTool) => Error::Unsupported(format!("the sandbox has no {text:?}, which file operations need")),
        Some(Code::NoUtf8) => Error::Unsupported(
            "the sandbox's grep knows no characters beyond ASCII within brackets; write them as (a|b) and not as [ab]"
                .into(),
        ),
        None => reason(path, text).unwrap_or_else(|| {
            let how = match status.signal {
                Some(signal) => format!("was ended by signal {signal}"),
                None => format!("ended with status {}", status.code),
            };
            let colon = if text.is_empty() { "" } else { ": " };
            Error::Other(format!("{path}: the command for it {how}{colon}{text}"))
        }),
    })
}

/// The error that the last line of a tool's messages stands for.
fn reason(path: &str, text: &str) -> Option<Error> {
    let (_, error, words) = REASONS.into_iter().find(|(ending, ..)| text.ends_with(ending))?;
    Some(error(format!("{path}: {words}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32, text: &str) -> Option<Error> {
        let target = Target::parse("/mnt/a").unwrap_or_else(|error| panic!("{error:?}"));
        check(&target, &ExitStatus::from_code(code), text.as_bytes()).err()
    }

    #[test]
    fn success_is_no_error() {
        assert_eq!(error(0, "some warning").map(|error| error.message().to_owned()), None);
    }

    #[test]
    fn codes_and_reasons_become_errors_with_the_callers_path() {
        assert!(matches!(error(81, ""), Some(Error::NotFound(text)) if text.starts_with("/mnt/a: ")));
        assert!(matches!(error(87, "find\n"), Some(Error::Unsupported(text)) if text.contains("\"find\"")));
        let denied = error(1, "head: cannot open '/real/a' for reading: Permission denied\n");
        assert!(matches!(denied, Some(Error::PermissionDenied(text)) if text == "/mnt/a: permission denied"));
        assert!(matches!(error(2, "sh: 1: cannot create /a: Directory nonexistent"), Some(Error::NotFound(_))));
        let read_only = error(1, "mkdir: cannot create directory '/a': Read-only file system");
        assert!(matches!(read_only, Some(Error::ReadOnly(text)) if text.starts_with("/mnt/a: ")));
        assert!(matches!(error(1, "rmdir: '/a': Directory not empty"), Some(Error::AlreadyExists(_))));
        assert!(
            matches!(error(1, "cat: write error: No space left on device"), Some(Error::Other(text)) if text.contains("No space"))
        );
    }

    #[test]
    fn a_signal_is_never_taken_for_a_code() {
        let target = Target::parse("/a").unwrap_or_else(|error| panic!("{error:?}"));
        let status = ExitStatus { code: 137, signal: Some(9) };
        assert!(matches!(check(&target, &status, b""), Err(Error::Other(text)) if text.contains("signal 9")));
    }
}
