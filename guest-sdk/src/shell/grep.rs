//! Lines that match: `find` names the files, `grep` their lines, and the guest decides which of them count.
//!
//! GNU `grep` can end a name by NUL and tell binary files apart, so a batch of files takes two processes. Where it can't
//! (BusyBox), a loop asks for each file by itself: one process for each file without a match.

use super::ere::Pattern;
use super::failure::Code;
use super::find::{End, MAX_COLLECTED, Records, check_max, prune, with_end};
use super::matcher::Matcher;
use super::quote::{Target, quote};
use super::run::{Flow, Sink, unreadable};
use super::script::{script, stat};
use crate::error::Result;
use crate::values::{GrepMatch, GrepOptions, GrepResult};

/// Larger files are skipped, in bytes.
const MAX_FILE: u32 = 1_000_000;
/// Files with a NUL among their first bytes are binary; so many are looked at where `grep` itself does not.
const BINARY_HEAD: u32 = 8192;
/// Longer lines are skipped, in bytes.
const MAX_LINE: usize = 2000;
/// Longer lines are cut to so many characters, of which the last three say so.
const MAX_SHOWN: usize = 200;
const CUT: &str = "...";

/// For each match: the path, NUL, the line's number, a colon, the line, and its end.
pub(super) fn grep_script(
    target: &Target,
    pattern: &Pattern,
    glob: Option<&Matcher>,
    options: &GrepOptions,
) -> Result<String> {
    check_max("max-results", options.max_results)?;
    let how = format!("-{}{}", if pattern.literal { 'F' } else { 'E' }, if pattern.ignore_case { "i" } else { "" });
    // UTF-8 so that a dot is a character; `-a` since bytes that are no UTF-8 make no file binary.
    let batch =
        format!(r#"grep -lI --null -e "" -- "$@" | LC_ALL=C.UTF-8 xargs -0 -r grep -aHn --null {how} -e "$G" --; :"#);
    let one_by_one = format!(
        r#"for f do
LC_ALL=C.UTF-8 grep -q {how} -e "$G" -- "$f" || continue
[ $(head -c {BINARY_HEAD} <"$f" | tr -d "\000" | wc -c) -eq $(head -c {BINARY_HEAD} <"$f" | wc -c) ] || continue
LC_ALL=C.UTF-8 grep -n {how} -e "$G" -- "$f" | while IFS= read -r l; do printf "%s\000%s\n" "$f" "$l"; done
done; :"#
    );
    let files = format!(
        "-type f ! -size +{MAX_FILE}c {} -exec sh -c \"$i\" sh {{}} +",
        glob.and_then(Matcher::name_hint).map(|name| format!("-name {}", quote(name))).unwrap_or_default(),
    );
    // A file that is the root itself is searched whatever its name is.
    let search = format!(
        "case $s in 4???) find -H \"$p\" -mindepth 1 {} {files} ;; *) find -H \"$p\" {files} ;; esac",
        prune(options.skip_ignored),
    );
    let body = format!(
        "{stat}\ncase $s in\n4???) {{ [ -r \"$p\" ] && [ -x \"$p\" ]; }} || exit {denied} ;;\n\
         8???) [ -r \"$p\" ] || exit {denied} ;;\n*) exit {not_a_file} ;;\nesac\n\
         {utf8}\nG={pattern}; export G\n\
         if printf 'x\\n' | grep -aHn --null -e x - >/dev/null 2>&1 && command -v xargs >/dev/null 2>&1\n\
         then i={batch}\nelse i={one_by_one}\nfi\n{search}",
        stat = stat("-L", "%f"),
        denied = Code::Denied,
        not_a_file = Code::NotAFile,
        utf8 = if pattern.needs_utf8 { needs_utf8() } else { String::new() },
        pattern = quote(&pattern.text),
        batch = quote(&batch),
        one_by_one = quote(&one_by_one),
        search = with_end(&search),
    );
    Ok(script(target, &["find", "sh", "stat", "grep", "head", "tr", "wc"], &body))
}

/// Ends the script if `grep` reads bytes.
fn needs_utf8() -> String {
    format!("printf 'é\\n' | LC_ALL=C.UTF-8 grep '^.$' >/dev/null 2>&1 || exit {}", Code::NoUtf8)
}

enum State {
    Path,
    /// In the line of this path, or of none that counts.
    Line(Option<String>),
    End,
}

/// Collects matches.
pub(super) struct GrepSink {
    target: Target,
    glob: Option<Matcher>,
    max: usize,
    state: State,
    records: Records,
    /// The last path that is not UTF-8: each such file counts once.
    not_utf8_path: Vec<u8>,
    not_utf8: u32,
    matches: Vec<GrepMatch>,
    collected: usize,
    truncated: bool,
    end: End,
}

impl GrepSink {
    pub(super) fn new(target: Target, glob: Option<Matcher>, options: &GrepOptions) -> Self {
        Self {
            target,
            glob,
            max: options.max_results as usize,
            state: State::Path,
            records: Records::default(),
            not_utf8_path: Vec::new(),
            not_utf8: 0,
            matches: Vec::new(),
            collected: 0,
            truncated: false,
            end: End::default(),
        }
    }

    /// The path if its matches count.
    fn select(&mut self, path: Vec<u8>) -> Option<String> {
        match String::from_utf8(path) {
            Ok(path) => {
                let wanted = self.glob.as_ref().is_none_or(|glob| glob.matches(self.target.relative(&path)));
                wanted.then_some(path)
            }
            Err(error) => {
                if self.not_utf8_path != error.as_bytes() {
                    self.not_utf8_path = error.into_bytes();
                    self.not_utf8 = self.not_utf8.saturating_add(1);
                }
                None
            }
        }
    }

    fn add(&mut self, path: String, record: &[u8]) -> Result<Flow> {
        let colon = record.iter().position(|byte| *byte == b':').unwrap_or(record.len());
        let (number, line) = record.split_at(colon);
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let (Some(line_number), Some((_, line))) = (number, line.split_first()) else {
            return Err(unreadable(&String::from_utf8_lossy(record.get(..100).unwrap_or(record))));
        };
        if line.len() > MAX_LINE {
            return Ok(Flow::More);
        }
        let line = shown(line);
        self.collected += path.len() + line.len() + size_of::<GrepMatch>();
        if self.matches.len() >= self.max || self.collected > MAX_COLLECTED {
            self.truncated = true;
            return Ok(Flow::Enough);
        }
        self.matches.push(GrepMatch { path, line_number, line });
        Ok(Flow::More)
    }
}

/// A line as it is shown.
fn shown(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\r', '\n']);
    if line.chars().nth(MAX_SHOWN).is_none() {
        return line.to_owned();
    }
    line.chars().take(MAX_SHOWN - CUT.len()).chain(CUT.chars()).collect()
}

impl Sink for GrepSink {
    type Output = GrepResult;

    fn feed(&mut self, mut bytes: &[u8]) -> Result<Flow> {
        loop {
            match std::mem::replace(&mut self.state, State::Path) {
                State::Path => match self.records.next(&mut bytes, 0)? {
                    Some(path) if path.is_empty() => self.state = State::End,
                    Some(path) => self.state = State::Line(self.select(path)),
                    None => return Ok(Flow::More),
                },
                State::Line(path) => match (self.records.next(&mut bytes, b'\n')?, path) {
                    (Some(record), Some(path)) => {
                        if self.add(path, &record)? == Flow::Enough {
                            return Ok(Flow::Enough);
                        }
                    }
                    (Some(_), None) => {}
                    (None, path) => {
                        self.state = State::Line(path);
                        return Ok(Flow::More);
                    }
                },
                State::End => {
                    self.state = State::End;
                    self.end.feed(bytes)?;
                    return Ok(Flow::More);
                }
            }
        }
    }

    fn finish(mut self) -> Result<GrepResult> {
        let skipped = if self.truncated { 0 } else { self.end.skipped()? };
        self.matches.sort_unstable_by(|a, b| (&a.path, a.line_number).cmp(&(&b.path, b.line_number)));
        Ok(GrepResult {
            matches: self.matches,
            truncated: self.truncated,
            skipped: skipped.saturating_add(self.not_utf8),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::shell::testing::{Shell, area, shells, target};
    use crate::values::Error;

    fn options() -> GrepOptions {
        GrepOptions { glob: None, literal: false, case_sensitive: false, max_results: 100, skip_ignored: false }
    }

    fn grep(shell: &Shell, path: &str, pattern: &str, options: &GrepOptions) -> Result<GrepResult> {
        let target = target(path);
        let pattern = Pattern::new(pattern, options.literal, options.case_sensitive)?;
        let glob = options.glob.as_deref().map(Matcher::new).transpose().map_err(Error::InvalidArgument)?;
        let script = grep_script(&target, &pattern, glob.as_ref(), options)?;
        shell.drive(&target, &script, b"", GrepSink::new(target.clone(), glob, options))
    }

    fn found(result: &GrepResult, root: &str) -> Vec<String> {
        let name = |one: &GrepMatch| one.path.strip_prefix(root).expect("below the root").to_owned();
        result.matches.iter().map(|one| format!("{}:{}:{}", name(one), one.line_number, one.line)).collect()
    }

    #[test]
    fn matches_are_sorted_and_any_name_survives() {
        for shell in shells() {
            let area = area();
            area.file("b.txt", "one\nTODO: x\ntodo y");
            area.file("a\nb:3:c.txt", "todo\r\n:a:b todo\n");
            area.file("-n/it's $(x)", "xtodox\n");
            let mut many = String::new();
            for line in 1..=12 {
                many += &format!("todo {line}\n");
            }
            area.file("many", &many);
            symlink("b.txt", area.path("link")).expect("symlink");
            let result = grep(&shell, area.root(), "todo", &GrepOptions { glob: Some("*.txt".into()), ..options() })
                .expect("grep");
            let expected = ["/a\nb:3:c.txt:1:todo", "/a\nb:3:c.txt:2::a:b todo", "/b.txt:2:TODO: x", "/b.txt:3:todo y"];
            assert_eq!(found(&result, area.root()), expected, "{}", shell.name);
            let exact =
                grep(&shell, area.root(), "todo", &GrepOptions { case_sensitive: true, ..options() }).expect("grep");
            assert_eq!(exact.matches.len(), 1 + 2 + 1 + 12, "{}", shell.name);
            let numbers: Vec<_> =
                exact.matches.iter().filter(|one| one.path.ends_with("many")).map(|one| one.line_number).collect();
            assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn patterns_are_expressions_or_plain_text() {
        for shell in shells() {
            let area = area();
            area.file("x", "a.b\naxb\n-e\n$(x) 'q' \"\\\n");
            let lines = |pattern: &str, literal| {
                let result = grep(&shell, area.root(), pattern, &GrepOptions { literal, ..options() }).expect("grep");
                result.matches.iter().map(|one| one.line_number).collect::<Vec<_>>()
            };
            assert_eq!(lines("a.b", false), [1, 2], "{}", shell.name);
            assert_eq!(lines("A.B", true), [1], "{}", shell.name);
            assert_eq!(lines("-e", false), [3]);
            assert_eq!(lines("$(x) 'q' \"\\", true), [4]);
            assert_eq!(lines("", false), [1, 2, 3, 4]);
            assert_eq!(lines("nothing", false), [0; 0]);
            assert!(matches!(grep(&shell, area.root(), "(", &options()), Err(Error::InvalidArgument(_))));
            assert!(matches!(grep(&shell, area.root(), "(?=x)", &options()), Err(Error::Unsupported(_))));
        }
    }

    #[test]
    fn binary_large_and_long_is_skipped_and_wrong_bytes_are_replaced() {
        for shell in shells() {
            let area = area();
            area.bytes("binary", b"needle\0\n");
            area.bytes("latin", b"caf\xe9 needle\n");
            area.file("large", &format!("needle\n{}", "x".repeat(999_994)));
            area.file("just", &format!("needle\n{}", "x".repeat(999_993)));
            area.file("long", &format!("{}needle\nneedle\n{}needle", "x".repeat(1995), "y".repeat(1994)));
            let result = grep(&shell, area.root(), "needle", &options()).expect("grep");
            let found = found(&result, area.root());
            let cut = format!("/long:3:{}...", "y".repeat(197));
            assert_eq!(
                found,
                ["/just:1:needle", "/latin:1:caf\u{fffd} needle", "/long:2:needle", cut.as_str()],
                "{}",
                shell.name
            );
            assert_eq!((result.truncated, result.skipped), (false, 0), "{}", shell.name);
        }
    }

    #[test]
    fn one_file_can_be_searched_whatever_its_name() {
        for shell in shells() {
            let area = area();
            let file = area.file("x.log", "a\nb\n");
            let link = area.outside("link");
            symlink(&file, &link).expect("symlink");
            let skip = GrepOptions { skip_ignored: true, ..options() };
            assert_eq!(
                found(&grep(&shell, &file, "b", &skip).expect("grep"), area.root()),
                ["/x.log:2:b"],
                "{}",
                shell.name
            );
            assert_eq!(found(&grep(&shell, &link, "b", &skip).expect("grep"), &link), [":2:b"], "{}", shell.name);
            let glob = |glob: &str| grep(&shell, &file, "b", &GrepOptions { glob: Some(glob.into()), ..options() });
            assert_eq!(glob("*.log").expect("grep").matches.len(), 1);
            assert_eq!(glob("*.txt").expect("grep").matches.len(), 0);
        }
    }

    #[test]
    fn globs_ignored_names_and_limits() {
        for shell in shells() {
            let area = area();
            for name in ["a.rs", "src/b.rs", "src/x/c.rs", "node_modules/d.rs", "e.log"] {
                area.file(name, "needle\nneedle\n");
            }
            let with = |glob: Option<&str>, max_results| {
                let options =
                    GrepOptions { glob: glob.map(str::to_owned), skip_ignored: true, max_results, ..options() };
                grep(&shell, area.root(), "needle", &options).expect("grep")
            };
            let paths = |result: GrepResult| result.matches.into_iter().map(|one| one.path).collect::<Vec<_>>();
            assert_eq!(paths(with(None, 100)).len(), 6, "{}", shell.name);
            assert_eq!(paths(with(Some("src/*.rs"), 100)), [area.path("src/b.rs"), area.path("src/b.rs")]);
            assert_eq!(paths(with(Some("/*.{rs,py}"), 100)), [area.path("a.rs"), area.path("a.rs")]);
            let exact = with(Some("src/*.rs"), 2);
            assert!(
                exact.matches.len() == 2 && !exact.truncated,
                "{}: what the glob leaves out counts for no limit",
                shell.name
            );
            let less = with(None, 5);
            assert!(less.matches.len() == 5 && less.truncated, "{}", shell.name);
        }
    }

    #[test]
    fn failures_are_never_an_empty_result() {
        for shell in shells() {
            let area = area();
            assert!(
                matches!(grep(&shell, &area.path("no"), "x", &options()), Err(Error::NotFound(_))),
                "{}",
                shell.name
            );
            assert!(
                matches!(grep(&shell, "/dev/null", "x", &options()), Err(Error::InvalidArgument(_))),
                "{}",
                shell.name
            );
            fs::write(Path::new(area.root()).join(OsStr::from_bytes(b"\xff")), "x\nx\n").expect("a file");
            area.file("secret", "x");
            area.file("locked/x", "x");
            area.file("open", "x");
            fs::set_permissions(area.path("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
            fs::set_permissions(area.path("locked"), fs::Permissions::from_mode(0o700)).expect("chmod");
            let shell = shell.unprivileged();
            let result = grep(&shell, area.root(), "x", &options()).expect("grep");
            assert_eq!(found(&result, area.root()), ["/open:1:x"], "{}", shell.name);
            assert_eq!(result.skipped, 3, "{}: a file, a directory, and a name that is not UTF-8", shell.name);
            for path in ["locked", "secret"] {
                let denied = grep(&shell, &area.path(path), "x", &options());
                assert!(matches!(denied, Err(Error::PermissionDenied(_))), "{} {path}: {denied:?}", shell.name);
            }
        }
    }

    #[test]
    fn characters_beyond_ascii_are_found_or_refused() {
        for shell in shells() {
            let area = area();
            area.file("x", "été\nÉTÉ\nète\nßü\n");
            let lines = |pattern: &str| {
                let result = grep(&shell, area.root(), pattern, &options())?;
                Ok::<_, Error>(result.matches.iter().map(|one| one.line_number).collect::<Vec<_>>())
            };
            assert_eq!(lines("É").expect("grep"), [1, 2], "{}", shell.name);
            assert_eq!(lines("^ÉTé{1}$").expect("grep"), [1, 2], "{}", shell.name);
            assert_eq!(lines("ßü?$").expect("grep"), [4], "{}", shell.name);
            // Debian's BusyBox has no locales.
            match lines("^[èê]") {
                Ok(found) => assert!(found == [3] && shell.name != "busybox", "{} {found:?}", shell.name),
                Err(error) => assert!(matches!(error, Error::Unsupported(_)) && shell.name == "busybox", "{error:?}"),
            }
        }
    }

    #[test]
    fn many_files_take_several_batches() {
        for shell in shells() {
            let area = area();
            for number in 0..700 {
                area.file(
                    &format!("{}/{number}", "long-name".repeat(25)),
                    if number % 7 == 0 { "needle\n" } else { "hay\n" },
                );
            }
            let result = grep(&shell, area.root(), "needle", &options()).expect("grep");
            assert_eq!((result.matches.len(), result.skipped), (100, 0), "{}", shell.name);
            assert!(!result.truncated, "{}", shell.name);
        }
    }
}
