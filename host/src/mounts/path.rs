//! Paths as agents see them.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The longest path, as in Linux's PATH_MAX.
pub const MAX_PATH: usize = 4096;
/// The longest segment, as in Linux's NAME_MAX.
pub const MAX_SEGMENT: usize = 255;

/// An absolute path inside a sandbox, normalised: no `.`, no empty segment, no `..`, no trailing slash.
///
/// It says nothing about a host: only a [`MountTable`](super::MountTable) knows where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualPath(String);

impl VirtualPath {
    /// The root, `/`.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Parses an absolute path. `..` is refused, not resolved: what it means depends on links, and no honest caller
    /// needs it.
    pub fn new(text: &str) -> Result<Self> {
        if !text.starts_with('/') {
            return Err(Error::invalid_argument(format!("path {text:?} is not absolute"))
                .hint("begin it with a mount, such as /mnt/user-data/workspace"));
        }
        Self::root().join(text)
    }

    /// Like [`new`](Self::new), with a relative path taken from `base`.
    pub fn parse_in(base: &Self, text: &str) -> Result<Self> {
        if text.starts_with('/') { Self::new(text) } else { base.join(text) }
    }

    /// Appends a relative path (a leading slash is of no account here).
    pub fn join(&self, relative: &str) -> Result<Self> {
        if relative.contains('\0') {
            return Err(Error::invalid_argument(format!("path {relative:?} holds a NUL character")));
        }
        let mut joined = if self.0 == "/" { String::new() } else { self.0.clone() };
        for segment in relative.split('/') {
            match segment {
                "" | "." => {}
                ".." => {
                    return Err(Error::path_escapes(format!("path {relative:?} holds a \"..\" segment"))
                        .hint("name the file by its path without \"..\""));
                }
                long if long.len() > MAX_SEGMENT => {
                    return Err(Error::invalid_argument(format!(
                        "path {relative:?} has a segment of {} bytes; at most {MAX_SEGMENT} are possible",
                        long.len()
                    )));
                }
                segment => {
                    joined.push('/');
                    joined.push_str(segment);
                }
            }
        }
        if joined.len() > MAX_PATH {
            return Err(Error::invalid_argument(format!(
                "a path of {} bytes is too long; at most {MAX_PATH} are possible",
                joined.len()
            )));
        }
        Ok(Self(if joined.is_empty() { "/".to_owned() } else { joined }))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is left of this path below `ancestor` (empty if they are the same), or none if it does not lie there.
    /// Segments count, not characters: `/mnt/a-b` is not below `/mnt/a`.
    pub fn below(&self, ancestor: &Self) -> Option<&str> {
        if ancestor.0 == "/" {
            return Some(&self.0[1..]);
        }
        let rest = self.0.strip_prefix(&ancestor.0)?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for VirtualPath {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn paths_are_normalised() {
        for (text, expected) in [("/", "/"), ("//a///b/./c/", "/a/b/c"), ("/a\n b", "/a\n b"), ("/-rf", "/-rf")] {
            assert_eq!(VirtualPath::new(text).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn traversal_is_refused_and_not_resolved() {
        for text in ["/..", "/a/..", "/a/../b", "/mnt/user-data/workspace/../../../etc/passwd"] {
            assert_eq!(VirtualPath::new(text).unwrap_err().code(), Code::PathEscapes, "{text}");
        }
        assert_eq!(VirtualPath::new("/a..b/...").unwrap().as_str(), "/a..b/...");
    }

    #[test]
    fn malformed_paths_are_refused() {
        let (segment, path) = (format!("/{}", "x".repeat(256)), "/xx".repeat(2000));
        for text in ["", "a", "a/b", "/a\0b", &segment, &path] {
            assert_eq!(VirtualPath::new(text).unwrap_err().code(), Code::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn below_counts_segments() {
        let path = |text| VirtualPath::new(text).unwrap();
        assert_eq!(path("/mnt/a/b").below(&path("/mnt/a")), Some("b"));
        assert_eq!(path("/mnt/a").below(&path("/mnt/a")), Some(""));
        assert_eq!(path("/mnt/a-b").below(&path("/mnt/a")), None);
        assert_eq!(path("/mnt").below(&path("/")), Some("mnt"));
    }
}
