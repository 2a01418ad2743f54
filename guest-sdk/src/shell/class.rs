//! Character classes: read as Rust's `regex` writes them, written as POSIX reads them.

use std::iter::Peekable;
use std::str::Chars;

use super::ere::{Translated, escaped_char, malformed, unsupported};

/// A range of characters, both included.
type Range = (char, char);

/// The named classes of `regex`. They are ASCII there, while those of POSIX go by the locale. A range never ends in what
/// has a meaning in POSIX brackets. NUL is in no line that is searched.
const NAMED: [(&str, &[Range]); 14] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("ascii", &[('\x01', '\x7f')]),
    ("blank", &[('\t', '\t'), (' ', ' ')]),
    ("cntrl", &[('\x01', '\x1f'), ('\x7f', '\x7f')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    (
        "punct",
        &[('!', '/'), (':', '@'), ('[', '['), ('\\', '\\'), (']', ']'), ('^', '^'), ('_', '_'), ('`', '`'), ('{', '~')],
    ),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("word", &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

/// A set of characters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Class {
    negated: bool,
    /// Single characters are ranges of one.
    ranges: Vec<Range>,
    /// POSIX classes, which go by the sandbox's locale.
    names: Vec<&'static str>,
}

/// The class of an escape such as `\d`, if it is one. What POSIX has of them goes by the sandbox's locale.
pub(super) fn escape_class(c: char) -> Option<Class> {
    let mut class = Class { negated: c.is_ascii_uppercase(), ..Class::default() };
    match c.to_ascii_lowercase() {
        'd' => class.ranges.push(('0', '9')),
        's' => class.names.push("space"),
        'w' => {
            class.names.push("alnum");
            class.ranges.push(('_', '_'));
        }
        _ => return None,
    }
    Some(class)
}

impl Class {
    /// Whether only a `grep` that reads characters can match it: to one that reads bytes, an `é` in it is two of them.
    pub(super) fn needs_utf8(&self) -> bool {
        self.ranges.iter().any(|(_, high)| !high.is_ascii())
    }

    /// What follows a `[`.
    pub(super) fn parse(rest: &mut Peekable<Chars<'_>>) -> Translated<Self> {
        let mut class = Self { negated: rest.next_if_eq(&'^').is_some(), ..Self::default() };
        let mut first = true;
        loop {
            let Some(c) = rest.next() else { return malformed("has a [ without its ]") };
            let low = match c {
                ']' if !first => return Ok(class),
                '[' if rest.peek() == Some(&':') => {
                    rest.next();
                    class.add_named(rest)?;
                    first = false;
                    continue;
                }
                '[' => return unsupported("a set within a set"),
                '&' | '~' | '-' if !first && rest.peek() == Some(&c) => return unsupported("an operation on sets"),
                '\\' => {
                    let Some(c) = rest.next() else { return malformed("has a [ without its ]") };
                    match escape_class(c) {
                        Some(other) => {
                            class.add(other)?;
                            first = false;
                            continue;
                        }
                        None => escaped_char(c, rest)?,
                    }
                }
                c => c,
            };
            first = false;
            let high = match range_end(rest)? {
                Some(high) => high,
                None => low,
            };
            if low > high {
                return malformed(format!("has the range {low}-{high}, which is empty"));
            }
            class.ranges.push((low, high));
        }
    }

    fn add(&mut self, other: Self) -> Translated<()> {
        if other.negated {
            return unsupported("a negated class such as \\D within brackets");
        }
        self.ranges.extend(other.ranges);
        self.names.extend(other.names);
        Ok(())
    }

    /// What follows a `[:`.
    fn add_named(&mut self, rest: &mut Peekable<Chars<'_>>) -> Translated<()> {
        let negated = rest.next_if_eq(&'^').is_some();
        let name: String = std::iter::from_fn(|| rest.next_if(char::is_ascii_alphabetic)).collect();
        if rest.next() != Some(':') || rest.next() != Some(']') {
            return unsupported("a set within a set");
        }
        let Some((_, ranges)) = NAMED.into_iter().find(|(known, _)| *known == name) else {
            return malformed(format!("has the unknown class [:{name}:]"));
        };
        // `[[:^digit:]]` is `[^[:digit:]]`; with anything beside it, POSIX has no words for it.
        if negated {
            let alone = self.ranges.is_empty() && self.names.is_empty() && !self.negated;
            if !alone || rest.peek() != Some(&']') {
                return unsupported("a negated class within brackets");
            }
            self.negated = true;
        }
        self.ranges.extend(ranges);
        Ok(())
    }

    /// As POSIX writes it: a `]` comes first, a `^` not first and a `-` last; a backslash is a character like others, and
    /// a `[` comes where no `.`, `=` or `:` can follow.
    pub(super) fn to_ere(&self) -> Translated<String> {
        let mut ranges = self.ranges.clone();
        let mut special = String::new();
        let mut take = |c: char| {
            let before = ranges.len();
            ranges.retain(|range| *range != (c, c));
            ranges.len() < before
        };
        let (close, open, caret, dash) = (take(']'), take('['), take('^'), take('-'));
        if caret && !close && !open && !dash && ranges.is_empty() && self.names.is_empty() && !self.negated {
            return Ok("\\^".into());
        }
        let mut text = String::from(if self.negated { "[^" } else { "[" });
        if close {
            text.push(']');
        }
        for (low, high) in ranges {
            if low == high {
                text.push(low);
            } else if [low, high].iter().any(|end| "[]^-".contains(*end)) {
                special = format!("{low}-{high}");
            } else {
                text.extend([low, '-', high]);
            }
        }
        if !special.is_empty() {
            return unsupported(format!("the range {special}, which ends in a bracket, ^ or -"));
        }
        for name in &self.names {
            text.push_str(&format!("[:{name}:]"));
        }
        if open {
            text.push('[');
        }
        // First in a set, a caret would negate it: then only a dash is left to come before it.
        match (caret, dash) {
            (true, true) if text == "[" => text.push_str("-^"),
            _ => {
                text.extend(caret.then_some('^'));
                text.extend(dash.then_some('-'));
            }
        }
        text.push(']');
        Ok(text)
    }
}

/// The end of a range if one follows: a `-` before the `]` is a character.
fn range_end(rest: &mut Peekable<Chars<'_>>) -> Translated<Option<char>> {
    let mut ahead = rest.clone();
    if ahead.next() != Some('-') || matches!(ahead.peek(), None | Some(']' | '-')) {
        return Ok(None);
    }
    rest.next();
    match rest.next() {
        Some('[') => unsupported("a set within a set"),
        Some('\\') => match rest.next() {
            Some(c) if escape_class(c).is_some() => malformed("has a range that ends in a class"),
            Some(c) => escaped_char(c, rest).map(Some),
            None => malformed("has a [ without its ]"),
        },
        Some(c) => Ok(Some(c)),
        None => malformed("has a [ without its ]"),
    }
}
