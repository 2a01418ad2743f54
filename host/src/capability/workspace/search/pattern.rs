//! Patterns for paths.
//!
//! `*` and `?` stay within a segment, `**` as a whole segment spans any number of them (none too), `[…]` and `{a,b}` are
//! as usual, `\` takes the next character literally. Upper and lower case differ; hidden names are names like others. A
//! pattern matches from the right (`src/*.js` finds `v/src/a.js` too) unless it begins with `/`, which ties it to the
//! root of the search.

use globset::{GlobBuilder, GlobMatcher};

use crate::error::{Error, Result};

/// The longest pattern or expression, in bytes: any that a person or an agent writes is shorter, and what it is compiled
/// to grows with it.
pub const MAX_PATTERN: usize = 16 << 10;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct PathPattern(GlobMatcher);

impl PathPattern {
    /// Compiles a pattern; `invalid-argument` if it can't be read or can't match anything.
    pub fn new(text: &str) -> Result<Self> {
        check_length("pattern", text)?;
        let (anchored, rest) = match text.strip_prefix('/') {
            Some(rest) => (true, rest.trim_start_matches('/')),
            None => (false, text),
        };
        if rest.is_empty() {
            return Err(Error::invalid_argument(format!("the pattern {text:?} is empty")).hint("use ** to find all"));
        }
        if rest.ends_with('/') {
            return Err(Error::invalid_argument(format!("the pattern {text:?} ends with a slash"))
                .hint("leave the slash out and ask for directories to be included"));
        }
        let full = if anchored { rest.to_owned() } else { format!("**/{rest}") };
        GlobBuilder::new(&full)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map(|glob| Self(glob.compile_matcher()))
            .map_err(|error| {
                Error::invalid_argument(format!("the pattern {text:?} can't be read: {}", error.kind()))
                    .hint("put a backslash before a character that is meant literally")
            })
    }

    /// Whether a path, relative to the root of the search, matches.
    pub fn matches(&self, relative: &str) -> bool {
        self.0.is_match(relative)
    }
}

/// Refuses what is longer than [`MAX_PATTERN`].
pub(in super::super) fn check_length(what: &str, text: &str) -> Result<()> {
    if text.len() <= MAX_PATTERN {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("the {what} is {} bytes long", text.len()))
        .hint(format!("use one of at most {MAX_PATTERN} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn patterns_match_from_the_right_unless_anchored() {
        for (pattern, path, expected) in [
            ("*.py", "a.py", true),
            ("*.py", "x/y/a.py", true),
            ("*.py", ".hidden.py", true),
            ("*.py", "a.PY", false),
            ("src/*.js", "src/a.js", true),
            ("src/*.js", "v/src/a.js", true),
            ("src/*.js", "src/x/a.js", false),
            ("src/*.js", "xsrc/a.js", false),
            ("/src/*.js", "src/a.js", true),
            ("/src/*.js", "v/src/a.js", false),
            ("/*.py", "x/a.py", false),
            ("**/a.py", "a.py", true),
            ("**/a.py", "x/y/a.py", true),
            ("src/**/a.py", "src/a.py", true),
            ("src/**/a.py", "src/x/y/a.py", true),
            ("src/**", "src/x/y", true),
            ("src/**", "src", false),
            ("**", "a", true),
            ("**", "a/b", true),
            ("*", "a/b", true),
            ("/*", "a/b", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[ab].{py,rs}", "x/b.rs", true),
            ("[!ab].rs", "c.rs", true),
            (r"\*.py", "*.py", true),
            (r"\*.py", "a.py", false),
            ("a\nb", "x/a\nb", true),
        ] {
            assert_eq!(PathPattern::new(pattern).unwrap().matches(path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn broken_patterns_say_why() {
        for (pattern, why) in [("[a", "unclosed"), ("{a", "unclosed"), ("", "empty"), ("/", "empty"), ("a/", "slash")] {
            let error = PathPattern::new(pattern).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.to_string().contains(why), "{pattern}: {error}");
        }
        assert!(PathPattern::new(&"?".repeat(MAX_PATTERN + 1)).is_err());
    }
}
