//! Glob patterns on paths: what `glob-options` in the WIT promises.
//!
//! One file for the guest SDK and the host, so that a pattern means the same whoever searches. Written here and not taken
//! from a crate since those that are small enough for a guest match bytes (`?` is half of an `é` to them), and those that do
//! not bring a whole regex engine. The tests compare it with `globset`.

/// Longer patterns are refused, in bytes: with the next limit, this bounds the memory of a pattern.
const MAX_PATTERN: usize = 1024;
/// A pattern whose braces stand for more patterns is refused: eight groups of two are so many.
const MAX_ALTERNATIVES: usize = 256;
/// Braces nest at most so deep: a guest's stack is small.
const MAX_NESTING: usize = 16;

/// A pattern, ready to match paths relative to the root of a search.
pub(super) struct Matcher {
    alternatives: Vec<Vec<Segment>>,
    suffix: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Segment {
    /// `**`: any number of segments.
    Any,
    One(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Char(char),
    /// `?`
    AnyChar,
    /// `*`
    Star,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Between segments; only until the pattern has been cut there.
    Slash,
}

impl Matcher {
    /// Reads a pattern, or says why it can't be read.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let refuse = |what: String| Err(format!("the glob {pattern:?} {what}"));
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the glob has {} bytes; at most {MAX_PATTERN} are possible", pattern.len()));
        }
        let (anchored, relative) = match pattern.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        if relative.is_empty() {
            return refuse("is empty; use ** for everything".into());
        }
        let mut parser = Parser { rest: relative.chars().peekable() };
        let tokens = match parser.alternatives(0) {
            Ok(tokens) => tokens,
            Err(what) => return refuse(what),
        };
        let alternatives: Vec<_> = tokens.into_iter().map(|tokens| segments(tokens, anchored)).collect();
        Ok(Self { suffix: suffix(relative), alternatives })
    }

    /// Whether the path, relative and without slashes at its ends, matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        let segments: Vec<&str> = path.split('/').collect();
        self.alternatives.iter().any(|pattern| match_segments(pattern, &segments))
    }

    /// A pattern for `find -name` that every match's name has, if there is one that means the same to every `find`. It
    /// spares looking at most files of a tree.
    pub(super) fn name_hint(&self) -> Option<&str> {
        self.suffix.as_deref()
    }
}

/// The last segment if there is nothing but ASCII letters, digits, `*` and the like in it.
fn suffix(pattern: &str) -> Option<String> {
    let last = pattern.rsplit('/').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "*._-+@=".contains(c);
    let braces_before = pattern.contains(['{', '[', '\\']);
    (!last.is_empty() && last != "**" && !braces_before && last.chars().all(plain)).then(|| last.to_owned())
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

/// Why a pattern is refused.
type Parsed<T> = std::result::Result<T, String>;

impl Parser<'_> {
    /// Every pattern that the text stands for, up to its end or, in braces, up to their end.
    fn alternatives(&mut self, depth: usize) -> Parsed<Vec<Vec<Token>>> {
        if depth > MAX_NESTING {
            return Err(format!("has braces nested deeper than {MAX_NESTING}"));
        }
        let in_braces = depth > 0;
        let mut done: Vec<Vec<Token>> = Vec::new();
        let mut current: Vec<Vec<Token>> = vec![Vec::new()];
        loop {
            let token = match self.rest.next() {
                None if in_braces => return Err("has a { without its }".into()),
                None => break,
                Some('}') if in_braces => break,
                Some('}') => return Err("has a } without its {; write \\} for the character".into()),
                Some(',') if in_braces => {
                    done.append(&mut std::mem::replace(&mut current, vec![Vec::new()]));
                    continue;
                }
                Some('{') => {
                    let inner = self.alternatives(depth + 1)?;
                    if current.len() * inner.len() + done.len() > MAX_ALTERNATIVES {
                        return Err(format!("stands for more than {MAX_ALTERNATIVES} patterns"));
                    }
                    current = current
                        .iter()
                        .flat_map(|before| inner.iter().map(|after| [before.as_slice(), after.as_slice()].concat()))
                        .collect();
                    continue;
                }
                Some('*') => Token::Star,
                Some('?') => Token::AnyChar,
                Some('[') => self.class()?,
                Some('/') => Token::Slash,
                Some('\\') => match self.rest.next() {
                    Some(c) => Token::Char(c),
                    None => return Err("ends with a backslash".into()),
                },
                Some(c) => Token::Char(c),
            };
            current.iter_mut().for_each(|tokens| tokens.push(token.clone()));
        }
        done.append(&mut current);
        if done.len() > MAX_ALTERNATIVES {
            return Err(format!("stands for more than {MAX_ALTERNATIVES} patterns"));
        }
        Ok(done)
    }

    /// What follows a `[`.
    fn class(&mut self) -> Parsed<Token> {
        let unclosed = || "has a [ without its ]".to_owned();
        let negated = self.rest.next_if(|c| matches!(c, '!' | '^')).is_some();
        let mut ranges = Vec::new();
        loop {
            let low = match self.rest.next().ok_or_else(unclosed)? {
                ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
                c => c,
            };
            let mut ahead = self.rest.clone();
            let high = match (ahead.next(), ahead.next()) {
                (Some('-'), Some(high)) if high != ']' => {
                    self.rest.next();
                    self.rest.next();
                    high
                }
                _ => low,
            };
            if low > high {
                return Err(format!("has the range {low}-{high}, which is empty"));
            }
            ranges.push((low, high));
        }
    }
}

/// One alternative, cut at its slashes.
fn segments(tokens: Vec<Token>, anchored: bool) -> Vec<Segment> {
    let mut segments = Vec::new();
    if !anchored {
        segments.push(Segment::Any);
    }
    for part in tokens.split(|token| *token == Token::Slash).filter(|part| !part.is_empty()) {
        segments.push(if part == [Token::Star, Token::Star] { Segment::Any } else { Segment::One(part.to_vec()) });
    }
    match segments.last() {
        // What ends with `**` is below something: `a/**` does not match `a` itself.
        Some(Segment::Any) if segments.len() > usize::from(!anchored) => segments.push(Segment::One(vec![Token::Star])),
        Some(Segment::One(_)) => {}
        // An empty alternative, as in `{,a}`: no path is empty.
        _ => segments = vec![Segment::One(Vec::new())],
    }
    segments
}

/// Matches `**` as `*` is matched in a segment: only the last one that was passed is ever tried again.
fn match_segments(pattern: &[Segment], path: &[&str]) -> bool {
    matches(
        pattern.len(),
        path.len(),
        |p| pattern.get(p) == Some(&Segment::Any),
        |p, s| match (pattern.get(p), path.get(s)) {
            (Some(Segment::One(tokens)), Some(segment)) => match_tokens(tokens, segment),
            _ => false,
        },
    )
}

fn match_tokens(tokens: &[Token], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    matches(
        tokens.len(),
        text.len(),
        |p| tokens.get(p) == Some(&Token::Star),
        |p, s| match (tokens.get(p), text.get(s)) {
            (Some(Token::Char(expected)), Some(c)) => expected == c,
            (Some(Token::AnyChar), Some(_)) => true,
            (Some(Token::Class { negated, ranges }), Some(c)) => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *negated
            }
            _ => false,
        },
    )
}

/// Wildcard matching of a sequence, in a time of at most pattern times subject.
fn matches(pattern: usize, subject: usize, star: impl Fn(usize) -> bool, one: impl Fn(usize, usize) -> bool) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut retry = None;
    while s < subject {
        if p < pattern && star(p) {
            retry = Some((p + 1, s));
            p += 1;
        } else if p < pattern && one(p, s) {
            p += 1;
            s += 1;
        } else if let Some((after, from)) = retry {
            retry = Some((after, from + 1));
            p = after;
            s = from + 1;
        } else {
            return false;
        }
    }
    (p..pattern).all(star)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(pattern: &str) -> Matcher {
        Matcher::new(pattern).unwrap_or_else(|error| panic!("{pattern:?}: {error:?}"))
    }

    #[test]
    fn patterns_match_from_the_right_unless_they_begin_with_a_slash() {
        for (pattern, path, expected) in [
            ("*.py", "a.py", true),
            ("*.py", "x/y/a.py", true),
            ("/*.py", "a.py", true),
            ("/*.py", "x/a.py", false),
            ("src/*.js", "v/src/a.js", true),
            ("src/*.js", "src/x/a.js", false),
            ("**/*.rs", "a.rs", true),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "x/src/a/b/c.rs", true),
            ("src/**", "src/a/b", true),
            ("src/**", "src", false),
            ("**", "anything/at all", true),
            ("src", "x/src", true),
            ("src/", "x/src", true),
            ("*", ".hidden", true),
            ("?.txt", "é.txt", true),
            ("[à-ï].txt", "é.txt", true),
            ("[!a-c]x", "dx", true),
            ("[^a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("*.{js,ts{,x}}", "a/b.tsx", true),
            ("{a,b}/{c,d}", "x/b/c", true),
            ("{a,b}/{c,d}", "x/c/b", false),
            ("\\*", "a", false),
            ("\\*", "*", true),
            ("!x", "!x", true),
            ("a**b", "axxb", true),
            ("a**b", "a/b", false),
            ("A", "a", false),
            ("/**/x", "x", true),
            ("??.py", "ü.py", false),
            ("?", "🦀", true),
            ("[!a].py", "ü.py", true),
            ("[!ü].py", "ü.py", false),
            ("x[!a]y", "x/y", false),
            ("x[+-9]y", "x/y", false),
            ("x[+-9]y", "x.y", true),
            ("{,a}", "x/a", true),
            ("{,a}", "b", false),
            ("a\nb", "x/a\nb", true),
        ] {
            assert_eq!(matcher(pattern).matches(path), expected, "{pattern:?} {path:?}");
        }
    }

    #[test]
    fn broken_patterns_are_named() {
        for pattern in
            ["", "/", "{a", "a}", "[a", "[]", "a\\", "[b-a]", &"{a,b}".repeat(9), &"{".repeat(500), &"x".repeat(1025)]
        {
            assert!(Matcher::new(pattern).is_err(), "{pattern:?}");
        }
        assert!(Matcher::new(&"{a,b}".repeat(8)).is_ok());
    }

    #[test]
    fn a_hint_is_given_only_where_it_is_the_same_to_find() {
        for (pattern, hint) in [
            ("*.rs", Some("*.rs")),
            ("src/**/*.rs", Some("*.rs")),
            ("/Makefile", Some("Makefile")),
            ("src/**", None),
            ("?.rs", None),
            ("*.{a,b}", None),
            ("{x,y/z}", None),
            ("{a,b/c}.d", None),
            ("src/", None),
            ("*é", None),
        ] {
            assert_eq!(matcher(pattern).name_hint(), hint, "{pattern:?}");
        }
    }

    #[test]
    fn matching_takes_no_exponential_time() {
        let pattern = matcher(&format!("{}{}b", "**/a/".repeat(100), "*a".repeat(200)));
        assert!(!pattern.matches(&format!("{}{}", "a/".repeat(1000), "a".repeat(255))));
    }

    /// Patterns and paths by chance. Negated classes are not among them: they match a slash to `globset`.
    #[test]
    fn it_agrees_with_globset() {
        let mut state = 1u64;
        let mut next = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let pieces = ["a", "b", "é", "*", "?", "/", "**/", "/**", "{a,b}", "{a/b,é*}", "[ab]", "."];
        let names = ["a", "b", "é", "ab", ".", "a.b"];
        let mut compared = [0, 0];
        for _ in 0..20_000 {
            let pattern: String = (0..1 + next(4)).map(|_| pieces[next(pieces.len())]).collect();
            // What is no well-formed path of segments is an error or nothing to it.
            if pattern.contains("//") || pattern.ends_with('/') || pattern.contains("***") || pattern == "/**" {
                continue;
            }
            let path: String = (0..1 + next(3)).map(|_| names[next(names.len())]).collect::<Vec<_>>().join("/");
            // To it, `?` and a class are one byte.
            if pattern.contains(['?', '[']) && path.contains('é') {
                continue;
            }
            let (ours, theirs) = match pattern.strip_prefix('/') {
                Some(rest) => (pattern.clone(), rest.to_owned()),
                None => (pattern.clone(), format!("**/{pattern}")),
            };
            let Ok(glob) = globset::GlobBuilder::new(&theirs).literal_separator(true).build() else { continue };
            let expected = glob.compile_matcher().is_match(&path);
            assert_eq!(matcher(&ours).matches(&path), expected, "{ours:?} {path:?}");
            compared[usize::from(expected)] += 1;
        }
        assert!(compared.iter().all(|count| *count > 1000), "{compared:?}");
    }
}
