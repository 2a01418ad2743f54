//! The names that searches leave out: other programs' databases, caches and products.
//!
//! Every provider uses this one list, so that the same search finds the same files everywhere.

use std::sync::LazyLock;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The names, as patterns for one segment of a path, case-sensitive; a line each, `#` begins a comment. Guests read the same file.
const LIST: &str = include_str!("../../../../wit/ignored-names.txt");

/// The names, as patterns for one segment of a path, case-sensitive.
pub fn ignored() -> impl Iterator<Item = &'static str> {
    LIST.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

static SET: LazyLock<GlobSet> = LazyLock::new(|| {
    let mut set = GlobSetBuilder::new();
    for name in ignored() {
        // A test compiles each of them, so that none is lost here.
        if let Ok(glob) = GlobBuilder::new(name).literal_separator(true).build() {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
});

/// Whether a file or directory of this name (one segment) is left out.
pub fn is_ignored_name(name: &str) -> bool {
    SET.is_match(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_counts() {
        assert_eq!(SET.len(), ignored().count());
        assert!(SET.len() >= 50);
        for name in ignored() {
            assert!(is_ignored_name(&name.replace('*', "x")), "{name}");
        }
    }

    #[test]
    fn names_are_compared_whole_and_by_case() {
        for name in [".github", "Build", "builder", "log", "a.logs", "environment", "upload-1.part", ".gitignore"] {
            assert!(!is_ignored_name(name), "{name}");
        }
        for name in ["a.log", ".log", "a~", ".upload-1-2.part", "x.egg-info"] {
            assert!(is_ignored_name(name), "{name}");
        }
    }
}
