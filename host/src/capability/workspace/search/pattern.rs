//! Patterns for paths, and how long they may be.

use super::matcher::Matcher;
use crate::error::{Error, Result};

/// The longest expression that grep takes, in bytes: any that a person or an agent writes is shorter, and what it is
/// compiled to grows with it.
pub const MAX_PATTERN: usize = 16 << 10;

/// A pattern that was read.
///
/// `*` and `?` stay within a segment, `**` as a whole segment spans any number of them (none too), `[…]` and `{a,b}` are
/// as usual, `\` takes the next character literally (not within `[…]`). All of them match characters, not bytes. Upper and
/// lower case differ; hidden names are names like others. A pattern matches from the right (`src/*.js` finds `v/src/a.js`
/// too) unless it begins with `/`, which ties it to the root of the search.
pub struct PathPattern(Matcher);

impl PathPattern {
    /// Reads a pattern; `invalid-argument` if it can't be read or can't match anything.
    pub fn new(text: &str) -> Result<Self> {
        Matcher::new(text).map(Self).map_err(|why| {
            Error::invalid_argument(why).hint("put a backslash before a character that is meant literally")
        })
    }

    /// Whether a path, relative to the root of the search, matches.
    pub fn matches(&self, relative: &str) -> bool {
        self.0.matches(relative)
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
    fn a_broken_pattern_is_named_and_says_what_to_do() {
        let error = PathPattern::new("[a").err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("\"[a\"") && error.hint_text().is_some(), "{error}");
        assert!(PathPattern::new("src/").is_ok_and(|pattern| pattern.matches("x/src")));
    }
}
