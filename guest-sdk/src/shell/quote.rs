//! Paths as callers give them, and texts as one word of a shell.

use crate::error::Result;
use crate::values::Error;

/// The longest path of the interface, in bytes.
const MAX_PATH: usize = 4096;
/// The longest segment of a path, in bytes.
const MAX_SEGMENT: usize = 255;

/// `text` as one word of a POSIX shell, whatever it contains. It must have no NUL, which no argument can hold.
pub(super) fn quote(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + 2);
    word.push('\'');
    for part in text.split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(before) => {
                word.push_str(before);
                word.push_str("'\\''");
            }
            None => word.push_str(part),
        }
    }
    word.push('\'');
    word
}

/// An absolute path that a script can be given: without NUL, empty segments, `.` and a slash at its end, so that it
/// names a link itself and that what `find` prints below it begins with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target(String);

impl Target {
    /// Checks the path of a caller.
    pub(super) fn parse(path: &str) -> Result<Self> {
        let refuse = |what: &str| Err(Error::InvalidArgument(format!("the path {path:?} {what}")));
        if !path.starts_with('/') {
            return refuse("is not absolute; begin it with a slash");
        }
        if path.contains('\0') {
            return refuse("contains a NUL");
        }
        if path.len() > MAX_PATH {
            return Err(Error::InvalidArgument(format!(
                "the path has {} bytes; at most {MAX_PATH} are possible",
                path.len()
            )));
        }
        let mut clean = String::with_capacity(path.len());
        for segment in path.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
            if segment.len() > MAX_SEGMENT {
                return Err(Error::InvalidArgument(format!(
                    "a segment of the path has {} bytes; at most {MAX_SEGMENT} are possible",
                    segment.len()
                )));
            }
            clean.push('/');
            clean.push_str(segment);
        }
        if clean.is_empty() {
            clean.push('/');
        }
        Ok(Self(clean))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment; empty for the root.
    pub(super) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// What `path` is called from here; a path that is this one itself goes by its name.
    pub(super) fn relative<'a>(&'a self, path: &'a str) -> &'a str {
        match path.strip_prefix(self.0.as_str()) {
            Some("") => self.name(),
            Some(rest) => rest.strip_prefix('/').unwrap_or(rest),
            None => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::testing;

    #[test]
    fn every_shell_reads_a_quoted_word_as_it_was() {
        for shell in testing::shells() {
            for text in
                ["", "a b", "it's", "''", "'", "$(touch x) `id` $HOME", "new\nline\n", "\"\\", "-n", "*?[a]", "ä\u{1}é"]
            {
                let run = shell.run(&format!("printf '%s' {}", quote(text)), b"");
                assert_eq!(String::from_utf8_lossy(&run.stdout), text, "{}", shell.name);
            }
        }
    }

    #[test]
    fn paths_are_absolute_and_tidy() {
        let clean = |path: &str| Target::parse(path).map(|target| target.as_str().to_owned()).ok();
        assert_eq!(clean("/a//b/./c/").as_deref(), Some("/a/b/c"));
        assert_eq!(clean("///").as_deref(), Some("/"));
        assert_eq!(clean("/a/../b").as_deref(), Some("/a/../b"));
        for bad in ["", "a", "./a", "/a\0", &format!("/{}", "x".repeat(256)), &"/x".repeat(2049)] {
            assert_eq!(clean(bad), None, "{bad:?}");
        }
        assert!(Target::parse(&format!("/{}", "x".repeat(255))).is_ok());
    }

    #[test]
    fn relative_names() {
        let target = |path| Target::parse(path).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(target("/a/b").relative("/a/b/c/d"), "c/d");
        assert_eq!(target("/").relative("/c/d"), "c/d");
        assert_eq!(target("/a/b.txt").relative("/a/b.txt"), "b.txt");
    }
}
