//! Paths that match a pattern: `find` names all below the root, and the guest matches.

use super::find::{End, MAX_COLLECTED, Records, check_max, prune, with_end};
use super::matcher::Matcher;
use super::quote::{Target, quote};
use super::run::{Flow, Sink};
use super::script::{readable_dir, script};
use crate::error::Result;
use crate::values::{GlobOptions, GlobResult};

/// Prints the paths, each ended by NUL.
pub(super) fn glob_script(target: &Target, matcher: &Matcher, options: GlobOptions) -> Result<String> {
    check_max("max-results", options.max_results)?;
    let search = format!(
        "find -H \"$p\" -mindepth 1 {} {} {} -print0",
        prune(options.skip_ignored),
        if options.include_dirs { "" } else { "! -type d" },
        matcher.name_hint().map(|name| format!("-name {}", quote(name))).unwrap_or_default(),
    );
    Ok(script(target, &["find"], &format!("{}\n{}", readable_dir(), with_end(&search))))
}

/// Collects the paths that match.
pub(super) struct GlobSink {
    target: Target,
    matcher: Matcher,
    max: usize,
    records: Records,
    at_end: bool,
    paths: Vec<String>,
    collected: usize,
    not_utf8: u32,
    truncated: bool,
    end: End,
}

impl GlobSink {
    pub(super) fn new(target: Target, matcher: Matcher, options: GlobOptions) -> Self {
        Self {
            target,
            matcher,
            max: options.max_results as usize,
            records: Records::default(),
            at_end: false,
            paths: Vec::new(),
            collected: 0,
            not_utf8: 0,
            truncated: false,
            end: End::default(),
        }
    }
}

impl Sink for GlobSink {
    type Output = GlobResult;

    fn feed(&mut self, mut bytes: &[u8]) -> Result<Flow> {
        while !self.at_end {
            let Some(record) = self.records.next(&mut bytes, 0)? else { return Ok(Flow::More) };
            if record.is_empty() {
                self.at_end = true;
                break;
            }
            let Ok(path) = String::from_utf8(record) else {
                self.not_utf8 = self.not_utf8.saturating_add(1);
                continue;
            };
            if !self.matcher.matches(self.target.relative(&path)) {
                continue;
            }
            self.collected += path.len() + size_of::<String>();
            if self.paths.len() >= self.max || self.collected > MAX_COLLECTED {
                self.truncated = true;
                return Ok(Flow::Enough);
            }
            self.paths.push(path);
        }
        self.end.feed(bytes)?;
        Ok(Flow::More)
    }

    fn finish(mut self) -> Result<GlobResult> {
        let skipped = if self.truncated { 0 } else { self.end.skipped()? };
        self.paths.sort_unstable();
        Ok(GlobResult { paths: self.paths, truncated: self.truncated, skipped: skipped.saturating_add(self.not_utf8) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::shell::testing::{Shell, area, shells, target};
    use crate::values::Error;

    const FILES: GlobOptions = GlobOptions { include_dirs: false, max_results: 100, skip_ignored: false };

    fn glob(shell: &Shell, path: &str, pattern: &str, options: GlobOptions) -> Result<GlobResult> {
        let target = target(path);
        let matcher = Matcher::new(pattern).map_err(Error::InvalidArgument)?;
        let script = glob_script(&target, &matcher, options)?;
        shell.drive(&target, &script, b"", GlobSink::new(target.clone(), matcher, options))
    }

    fn names(result: &GlobResult, root: &str) -> Vec<String> {
        result.paths.iter().map(|path| path.strip_prefix(root).expect("below the root").to_owned()).collect()
    }

    #[test]
    fn what_matches_is_found_and_nothing_else() {
        for shell in shells() {
            let area = area();
            for name in
                ["a.py", "src/b.py", "src/x/c.py", "src/x/d.js", "py/e", "line\nend.py", "-n.py", "it's $(x).py"]
            {
                area.file(name, "");
            }
            symlink("nowhere", area.path("link.py")).expect("symlink");
            let found =
                |pattern, options| names(&glob(&shell, area.root(), pattern, options).expect("glob"), area.root());
            let all = ["/-n.py", "/a.py", "/it's $(x).py", "/line\nend.py", "/link.py", "/src/b.py", "/src/x/c.py"];
            assert_eq!(found("*.py", FILES), all, "{}", shell.name);
            assert_eq!(found("/src/*.py", FILES), ["/src/b.py"]);
            assert_eq!(found("src/**/*.{py,js}", FILES), ["/src/b.py", "/src/x/c.py", "/src/x/d.js"]);
            assert_eq!(found("py", FILES), [""; 0]);
            assert_eq!(found("py", GlobOptions { include_dirs: true, ..FILES }), ["/py"]);
            assert_eq!(found("nothing", FILES), [""; 0]);
        }
    }

    #[test]
    fn ignored_names_and_limits() {
        for shell in shells() {
            let area = area();
            for name in ["a.c", "x/b.c", "node_modules/m.c", "x/dist/d.c", "c.log"] {
                area.file(name, "");
            }
            let options = GlobOptions { skip_ignored: true, max_results: 2, ..FILES };
            let result = glob(&shell, area.root(), "*.c", options).expect("glob");
            assert_eq!(names(&result, area.root()), ["/a.c", "/x/b.c"], "{}", shell.name);
            assert!(!result.truncated, "{}: what is ignored counts for no limit", shell.name);
            let result = glob(&shell, area.root(), "*.c", GlobOptions { max_results: 1, ..options }).expect("glob");
            assert!(result.truncated && result.paths.len() == 1, "{}", shell.name);
        }
    }

    #[test]
    fn failures_are_never_an_empty_result() {
        for shell in shells() {
            let area = area();
            let file = area.file("file", "");
            assert!(matches!(glob(&shell, &area.path("no"), "*", FILES), Err(Error::NotFound(_))), "{}", shell.name);
            assert!(matches!(glob(&shell, &file, "*", FILES), Err(Error::NotADirectory(_))), "{}", shell.name);
            assert!(matches!(glob(&shell, area.root(), "[", FILES), Err(Error::InvalidArgument(_))));
            area.file("locked/x", "");
            fs::set_permissions(area.path("locked"), fs::Permissions::from_mode(0o700)).expect("chmod");
            let shell = shell.unprivileged();
            let result = glob(&shell, area.root(), "x", FILES).expect("glob");
            assert_eq!((result.paths.len(), result.skipped), (0, 1), "{}", shell.name);
            let denied = glob(&shell, &area.path("locked"), "x", FILES);
            assert!(matches!(denied, Err(Error::PermissionDenied(_))), "{}", shell.name);
        }
    }

    #[test]
    fn a_linked_root_is_searched_under_the_callers_name() {
        for shell in shells() {
            let area = area();
            area.file("x", "");
            let link = area.outside("link");
            symlink(area.root(), &link).expect("symlink");
            let result = glob(&shell, &link, "*", FILES).expect("glob");
            assert_eq!(names(&result, &link), ["/x"], "{}", shell.name);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let options = GlobOptions { max_results: 100_000, ..FILES };
        let mut sink = GlobSink::new(target("/r"), Matcher::new("*").expect("a glob"), options);
        let record = [b"/r/".as_slice(), &b"x".repeat(4000), b"\0"].concat();
        let fed = (0..10_000).position(|_| sink.feed(&record).expect("fine") == Flow::Enough);
        assert!(fed.is_some());
        let result = sink.finish().expect("a result");
        assert!(result.truncated && result.paths.iter().map(String::len).sum::<usize>() <= MAX_COLLECTED);
    }
}
