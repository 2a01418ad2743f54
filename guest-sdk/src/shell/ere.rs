//! Regular expressions for the sandbox's `grep -E`.
//!
//! Callers write them as for Rust's `regex` crate, which the host's own search uses. What has the same meaning as a
//! POSIX extended expression is translated; what has none is refused by name, so that no `grep` ever takes it for
//! something else. A search only asks whether a line matches: for that, lazy and greedy are the same.
//!
//! BusyBox is often built without locales and reads bytes. Characters beyond ASCII are written so that they are whole to
//! it too; what remains is that a `.` is one byte to it, and that no such character is in `\w`.

use std::iter::Peekable;
use std::str::Chars;

use super::class::{Class, escape_class};
use crate::error::Result;
use crate::values::Error;

/// Longer patterns are refused, in bytes: they are part of a command, which some systems allow 128 KiB.
const MAX_PATTERN: usize = 8 << 10;
/// The largest count of a repetition that every system's library takes.
const MAX_REPEAT: u32 = 255;
/// Groups nest at most so deep: a guest's stack is small.
const MAX_NESTING: usize = 100;

/// What `grep` is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) literal: bool,
    pub(super) ignore_case: bool,
    /// A `grep` that reads bytes would take it for something else.
    pub(super) needs_utf8: bool,
}

impl Pattern {
    pub(super) fn new(pattern: &str, literal: bool, case_sensitive: bool) -> Result<Self> {
        if pattern.len() > MAX_PATTERN {
            return Err(Error::InvalidArgument(format!(
                "the pattern has {} bytes; at most {MAX_PATTERN} are possible",
                pattern.len()
            )));
        }
        if pattern.contains(['\0', '\n']) {
            return Err(Error::InvalidArgument(format!(
                "the pattern {pattern:?} contains a NUL or a line end; a search goes line by line"
            )));
        }
        if literal {
            return Ok(Self { text: pattern.into(), literal, ignore_case: !case_sensitive, needs_utf8: false });
        }
        // The one flag that the whole pattern can have here.
        let (rest, flag) = match pattern.strip_prefix("(?i)") {
            Some(rest) => (rest, true),
            None => (pattern, false),
        };
        let ignore_case = flag || !case_sensitive;
        let mut translation =
            Translation { rest: rest.chars().peekable(), text: String::new(), ignore_case, needs_utf8: false };
        match translation.alternation(0) {
            Ok(()) => Ok(Self { text: translation.text, literal, ignore_case, needs_utf8: translation.needs_utf8 }),
            Err(Refusal::Malformed(what)) => Err(Error::InvalidArgument(format!("the pattern {pattern:?} {what}"))),
            Err(Refusal::Unsupported(what)) => Err(Error::Unsupported(format!(
                "the pattern {pattern:?} has {what}, which the search in this sandbox can't do; write it another way"
            ))),
        }
    }
}

/// Why a pattern is not translated.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is no regular expression; the text goes on after the pattern.
    Malformed(String),
    /// It has this construct.
    Unsupported(String),
}

pub(super) type Translated<T> = std::result::Result<T, Refusal>;

pub(super) fn malformed<T>(what: impl Into<String>) -> Translated<T> {
    Err(Refusal::Malformed(what.into()))
}

pub(super) fn unsupported<T>(what: impl Into<String>) -> Translated<T> {
    Err(Refusal::Unsupported(what.into()))
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    text: String,
    ignore_case: bool,
    needs_utf8: bool,
}

/// What can come before a repetition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing: the pattern, a group or an alternative begins here.
    Nothing,
    /// A position, such as `^`.
    Position,
    /// Something that can be repeated, which begins at this offset of the translation.
    Atom(usize),
    /// The same, with a repetition already.
    Repeated(usize),
}

impl Translation<'_> {
    /// Up to the end of the group, or of the pattern at depth 0.
    fn alternation(&mut self, depth: usize) -> Translated<()> {
        if depth > MAX_NESTING {
            return unsupported(format!("groups nested deeper than {MAX_NESTING}"));
        }
        let mut before = Before::Nothing;
        // POSIX leaves open what an empty alternative means; GNU, BusyBox and musl take it only in a group.
        let begin = self.text.len();
        let mut empty_alternative = false;
        let mut alternatives = 1;
        loop {
            let at = self.text.len();
            let Some(c) = self.rest.next() else {
                if depth > 0 {
                    return malformed("has a ( without its )");
                }
                break;
            };
            before = match c {
                ')' if depth > 0 => {
                    empty_alternative |= before == Before::Nothing;
                    if empty_alternative && alternatives > 1 || self.text.len() == begin {
                        return unsupported("an empty group or alternative");
                    }
                    self.text.push(')');
                    return Ok(());
                }
                ')' => return malformed("has a ) without its ("),
                '(' => {
                    self.group_head()?;
                    self.text.push('(');
                    self.alternation(depth + 1)?;
                    Before::Atom(at)
                }
                '|' => {
                    empty_alternative |= before == Before::Nothing;
                    alternatives += 1;
                    self.text.push('|');
                    Before::Nothing
                }
                '^' | '$' => {
                    self.text.push(c);
                    Before::Position
                }
                '.' => {
                    self.text.push('.');
                    Before::Atom(at)
                }
                '[' => {
                    let class = Class::parse(&mut self.rest)?;
                    self.needs_utf8 |= class.needs_utf8();
                    self.text.push_str(&class.to_ere()?);
                    Before::Atom(at)
                }
                '\\' => self.escape(at)?,
                '*' | '+' | '?' => self.repeat(before, &c.to_string())?,
                '{' => {
                    let counts = self.counts()?;
                    self.repeat(before, &counts)?
                }
                c => {
                    self.push_literal(c);
                    Before::Atom(at)
                }
            };
        }
        empty_alternative |= before == Before::Nothing;
        if empty_alternative && alternatives > 1 {
            return unsupported("an empty alternative");
        }
        Ok(())
    }

    /// What follows a `(`: POSIX groups have no names, and all are counted.
    fn group_head(&mut self) -> Translated<()> {
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        match self.rest.next() {
            Some(':') => Ok(()),
            Some('=' | '!') => unsupported("look-ahead"),
            Some('P') if self.rest.next_if_eq(&'<').is_some() => self.group_name(),
            Some('<') => match self.rest.peek() {
                Some('=' | '!') => unsupported("look-behind"),
                _ => self.group_name(),
            },
            Some('P') => unsupported("a reference to a named group"),
            Some('>') => unsupported("an atomic group"),
            Some('#') => unsupported("a comment"),
            Some(_) => unsupported("flags after the beginning"),
            None => malformed("has a ( without its )"),
        }
    }

    fn group_name(&mut self) -> Translated<()> {
        let name: String = std::iter::from_fn(|| self.rest.next_if(|c| *c != '>')).collect();
        let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
        if self.rest.next().is_none() || name.is_empty() || !name.chars().all(word) {
            return malformed("has a group with a malformed name");
        }
        Ok(())
    }

    /// What follows a backslash.
    fn escape(&mut self, at: usize) -> Translated<Before> {
        let Some(c) = self.rest.next() else { return malformed("ends with a backslash") };
        if let Some(class) = escape_class(c) {
            self.text.push_str(&class.to_ere()?);
            return Ok(Before::Atom(at));
        }
        match c {
            // Not POSIX, but GNU, BusyBox and musl have it with the same meaning.
            'b' if self.rest.peek() == Some(&'{') => unsupported("a half word boundary"),
            'b' | 'B' | '<' | '>' => {
                self.text.push('\\');
                self.text.push(c);
                Ok(Before::Position)
            }
            'A' | 'z' => unsupported("\\A or \\z; a search goes line by line, use ^ and $"),
            _ => {
                let literal = escaped_char(c, &mut self.rest)?;
                self.push_literal(literal);
                Ok(Before::Atom(at))
            }
        }
    }

    fn push_literal(&mut self, c: char) {
        let mut cases: Vec<char> = vec![c];
        if self.ignore_case && !c.is_ascii() {
            cases.extend(single(c.to_lowercase()));
            cases.extend(single(c.to_uppercase()));
            cases.sort_unstable();
            cases.dedup();
        }
        if cases.len() > 1 {
            let cases: Vec<String> = cases.into_iter().map(String::from).collect();
            self.text.push_str(&format!("({})", cases.join("|")));
            return;
        }
        // A bracket and a brace that close are literal by themselves; a backslash before them means nothing in POSIX.
        if "\\.[(){*+?|^$".contains(c) {
            self.text.push('\\');
        }
        self.text.push(c);
    }

    /// Adds a repetition, and takes the `?` that makes it lazy.
    fn repeat(&mut self, before: Before, how: &str) -> Translated<Before> {
        let at = match before {
            Before::Nothing => return malformed(format!("has nothing before its {how}")),
            Before::Position => return unsupported(format!("a {how} after a position such as ^")),
            // To a `grep` that reads bytes, only the last byte would be repeated.
            Before::Atom(at) if self.text.get(at..).is_some_and(|atom| atom.starts_with(|c: char| !c.is_ascii())) => {
                self.text.insert(at, '(');
                self.text.push(')');
                at
            }
            Before::Atom(at) => at,
            // POSIX leaves open what two of them mean.
            Before::Repeated(at) => {
                self.text.insert(at, '(');
                self.text.push(')');
                at
            }
        };
        self.text.push_str(how);
        self.rest.next_if_eq(&'?');
        Ok(Before::Repeated(at))
    }

    /// What follows a `{`, as POSIX writes it.
    fn counts(&mut self) -> Translated<String> {
        let text: String = std::iter::from_fn(|| self.rest.next_if(|c| *c != '}')).collect();
        if self.rest.next().is_none() {
            return malformed("has a { without its }; write \\{ for the character");
        }
        let number = |text: &str| match text.trim().parse::<u32>() {
            Ok(count) if count > MAX_REPEAT => unsupported(format!("a repetition of more than {MAX_REPEAT}")),
            Ok(count) => Ok(count),
            Err(_) => {
                malformed(format!("has the repetition {{{text}}}, which is no count; write \\{{ for the character"))
            }
        };
        let Some((low, high)) = text.split_once(',') else { return Ok(format!("{{{}}}", number(&text)?)) };
        let low = if low.trim().is_empty() && !high.trim().is_empty() { 0 } else { number(low)? };
        if high.trim().is_empty() {
            return Ok(format!("{{{low},}}"));
        }
        let high = number(high)?;
        if high < low {
            return malformed(format!("has the repetition {{{text}}}, which is empty"));
        }
        Ok(format!("{{{low},{high}}}"))
    }
}

/// The character if it is one alone.
fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

/// The character that an escape stands for, the same inside of brackets and outside.
pub(super) fn escaped_char(c: char, rest: &mut Peekable<Chars<'_>>) -> Translated<char> {
    let wrong = |c| {
        if c == '\n' || c == '\0' {
            malformed("contains a NUL or a line end; a search goes line by line")
        } else {
            Ok(c)
        }
    };
    match c {
        't' => Ok('\t'),
        'r' => Ok('\r'),
        'f' => Ok('\x0c'),
        'v' => Ok('\x0b'),
        'a' => Ok('\x07'),
        'n' => wrong('\n'),
        'x' => wrong(hex(rest, 2)?),
        'u' => wrong(hex(rest, 4)?),
        'U' => wrong(hex(rest, 8)?),
        'p' | 'P' => unsupported("a Unicode class (\\p)"),
        '0'..='9' | 'k' | 'g' => unsupported("a back-reference"),
        c if c.is_ascii_punctuation() || c == ' ' => Ok(c),
        c => malformed(format!("has the unknown escape \\{c}")),
    }
}

/// A code point in so many digits or in braces.
fn hex(rest: &mut Peekable<Chars<'_>>, digits: usize) -> Translated<char> {
    let text: String = if rest.next_if_eq(&'{').is_some() {
        let text = std::iter::from_fn(|| rest.next_if(|c| *c != '}')).collect();
        rest.next();
        text
    } else {
        rest.take(digits).collect()
    };
    let valid = text.len() <= 8 && text.chars().all(|c| c.is_ascii_hexdigit());
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| valid).and_then(char::from_u32);
    code.map_or_else(|| malformed("has an escape that is no code point"), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::quote::quote;
    use crate::shell::testing::{area, shells};

    fn ere(pattern: &str) -> String {
        Pattern::new(pattern, false, true).unwrap_or_else(|error| panic!("{pattern:?}: {error:?}")).text
    }

    #[test]
    fn what_posix_has_is_translated() {
        for (pattern, expected) in [
            ("fn \\w+\\(", "fn [_[:alnum:]]+\\("),
            ("(?:a|b)c", "(a|b)c"),
            ("(?P<name>a)(?<other>b)", "(a)(b)"),
            (".*?x+?y??", ".*x+y?"),
            ("a{2}b{2,}c{,3}d{1,2}?", "a{2}b{2,}c{0,3}d{1,2}"),
            ("a++", "(a+)+"),
            ("\\d\\D\\s\\S\\W", "[0-9][^0-9][[:space:]][^[:space:]][^_[:alnum:]]"),
            ("[\\w.-]+@[\\d]", "[_.[:alnum:]-]+@[0-9]"),
            ("\\x41\\u0042\\x{1F600}", "AB😀"),
            ("\\-\\/\\#\\]\\}", "-/#]}"),
            ("\\bword\\b", "\\bword\\b"),
            ("é+", "(é)+"),
            ("^$", "^$"),
            ("", ""),
        ] {
            assert_eq!(ere(pattern), expected, "{pattern:?}");
        }
        assert!(Pattern::new("(?i)x", false, true).is_ok_and(|pattern| pattern.ignore_case && pattern.text == "x"));
        assert!(Pattern::new("éa", false, false).is_ok_and(|pattern| pattern.text == "(É|é)a"));
        assert!(Pattern::new("[é]", false, true).is_ok_and(|pattern| pattern.needs_utf8));
        assert!(Pattern::new("a(", true, true).is_ok_and(|pattern| pattern.text == "a(" && pattern.literal));
    }

    #[test]
    fn what_it_has_not_is_named() {
        for (pattern, construct) in [
            ("(?=x)", "look-ahead"),
            ("a(?!x)", "look-ahead"),
            ("(?<=x)", "look-behind"),
            ("(?<!x)a", "look-behind"),
            ("(a)\\1", "back-reference"),
            ("\\p{L}", "Unicode class"),
            ("a(?i)b", "flags"),
            ("(?s:.)", "flags"),
            ("[a&&b]", "set"),
            ("[a[bc]]", "set"),
            ("[a\\D]", "negated class"),
            ("\\Ax", "\\A"),
            ("a{1000}", "repetition"),
            ("^*", "position"),
            ("()", "empty"),
            ("a|", "empty"),
        ] {
            let error = Pattern::new(pattern, false, false);
            assert!(
                matches!(&error, Err(Error::Unsupported(text)) if text.contains(construct)),
                "{pattern:?} {error:?}"
            );
        }
    }

    #[test]
    fn what_is_no_pattern_is_an_invalid_argument_as_it_is_to_the_host() {
        for pattern in [
            "(",
            ")",
            "a)",
            "[a",
            "[b-a]",
            "*",
            "a|*",
            "(+)",
            "a{",
            "a{x}",
            "a{2,1}",
            "\\",
            "\\q",
            "\\x{110000}",
            "(?P<>a)",
        ] {
            let error = Pattern::new(pattern, false, false);
            assert!(matches!(error, Err(Error::InvalidArgument(_))), "{pattern:?} {error:?}");
            assert!(regex::Regex::new(pattern).is_err(), "{pattern:?}");
        }
        for pattern in ["a\nb", "a\\nb", "a\0", "\\x0a", &"x".repeat(8193)] {
            assert!(matches!(Pattern::new(pattern, false, false), Err(Error::InvalidArgument(_))), "{pattern:?}");
        }
        assert!(Pattern::new(&"(".repeat(5000), false, false).is_err());
    }

    /// Every translation selects the lines that the host's own engine selects, in every `grep`.
    #[test]
    fn it_agrees_with_the_hosts_engine() {
        let lines = [
            "",
            "a",
            "aa",
            "aaa",
            "b",
            "ab",
            "abab",
            "foo bar",
            "foo_bar",
            "foo-bar",
            "x1",
            "42",
            "1.5",
            "[x]",
            "a]",
            "-",
            "^",
            "a^b",
            "\\",
            "a\\b",
            "tab\there",
            "(x)",
            "{x}",
            "a+b",
            "é",
            "été",
            "word",
            "a word here",
            "swords",
            "[",
            "!~",
            "A",
            "_",
            "a|b",
            "$",
        ];
        let patterns = [
            "a",
            "^a+$",
            "(?:ab)+",
            "a{2}",
            "a{2,}$",
            "^a{1,2}$",
            "\\w+",
            "^\\w+$",
            "\\d",
            "^\\D+$",
            "\\s",
            "^\\S+$",
            "\\W",
            "[\\w-]+",
            "^[\\w-]+$",
            "[^\\s]",
            "^[^\\w]$",
            "[]]",
            "[^]a]",
            "[\\]\\[]",
            "[a\\-z]",
            "^[\\^a]$",
            "[\\\\]",
            "\\[x\\]",
            "\\(x\\)",
            "\\{x\\}",
            "a\\+b",
            "^.$",
            "^é",
            "^é?t",
            "(?i)^É{1}",
            "[é]",
            "\\bword\\b",
            "\\bword",
            "word\\B",
            "a|b",
            "^(a|b)+$",
            "\\^",
            "\\$",
            "\\|",
            "\\t",
            "[[:digit:]]",
            "[[:^digit:]]",
            "[[:punct:]]",
            "^[[:punct:]]$",
            "^[[:word:]]+$",
            "[[:cntrl:]]",
            "[[:space:]x]",
            "^[[:^punct:]]+$",
            "^[^[:graph:]]*$",
            "^[[:alpha:]_]+$",
            ".*?b",
            "a??b",
            "(a+)+b",
            "a**",
            "[!-~]",
            "^[^\\d\\s]+$",
            "\\\\",
            "x\\d{1,2}",
            "]",
            "}",
            "[\\^-]",
            "[\\[^]",
            "^[^^-]$",
        ];
        let (area, shells) = (area(), shells());
        let file = area.file("lines", &lines.map(|line| format!("{line}\n")).concat());
        for pattern in patterns {
            let translated = match Pattern::new(pattern, false, true) {
                Ok(translated) => translated.text,
                Err(error) => panic!("{pattern:?}: {error:?}"),
            };
            let engine = regex::Regex::new(pattern).expect("the host takes it");
            let expected: Vec<&str> = lines.into_iter().filter(|line| engine.is_match(line)).collect();
            for shell in &shells {
                // BusyBox is built without locales here: what is documented above is not compared.
                let bytes = shell.name == "busybox";
                if bytes && (pattern.contains("[é]") || pattern.contains(".$") || pattern.contains("[[:^")) {
                    continue;
                }
                let known = |line: &str| !bytes || line.is_ascii() || pattern.contains('é');
                let ran =
                    shell.run(&format!("LC_ALL=C.UTF-8 grep -E -e {} -- {}", quote(&translated), quote(&file)), b"");
                let found: Vec<String> = String::from_utf8_lossy(&ran.stdout)
                    .lines()
                    .filter(|line| known(line))
                    .map(str::to_owned)
                    .collect();
                let expected: Vec<&str> = expected.iter().copied().filter(|line| known(line)).collect();
                assert_eq!(
                    found,
                    expected,
                    "{} {pattern:?} {translated:?} {}",
                    shell.name,
                    String::from_utf8_lossy(&ran.stderr)
                );
                assert_eq!(ran.stderr, b"", "{} {pattern:?}", shell.name);
            }
        }
    }
}
