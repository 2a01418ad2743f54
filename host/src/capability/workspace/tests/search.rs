//! Finding paths and lines.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{Home, path};
use crate::capability::workspace::search::ignored::{ignored, is_ignored_name};
use crate::error::Code;
use crate::values::{GlobOptions, GrepOptions, MAX_RESULTS};

const WS: &str = "/mnt/user-data/workspace";

fn all() -> GlobOptions {
    GlobOptions { max_results: MAX_RESULTS, ..GlobOptions::default() }
}

async fn glob(home: &Home, pattern: &str, options: GlobOptions) -> Vec<String> {
    let found = home.files.glob(&path(WS), pattern, &options).await.unwrap();
    found.paths.into_iter().map(|path| path[WS.len() + 1..].to_owned()).collect()
}

async fn grep(home: &Home, pattern: &str, options: GrepOptions) -> Vec<String> {
    let found = home.files.grep(&path(WS), pattern, &options).await.unwrap();
    found.matches.into_iter().map(|m| format!("{}:{}:{}", &m.path[WS.len() + 1..], m.line_number, m.line)).collect()
}

#[tokio::test]
async fn globs_find_files_and_on_request_directories() {
    let home = Home::new();
    for file in ["src/a.py", "src/x/b.py", "top.py", ".hidden/c.py", "src/x/d.js", "node_modules/e.py", "build/f.py"] {
        home.put(&format!("workspace/{file}"), "");
    }
    home.link("top.py", "workspace/link.py");
    assert_eq!(glob(&home, "*.py", all()).await, [".hidden/c.py", "link.py", "src/a.py", "src/x/b.py", "top.py"]);
    assert_eq!(glob(&home, "src/**/*.py", all()).await, ["src/a.py", "src/x/b.py"]);
    assert_eq!(glob(&home, "/*.py", all()).await, ["link.py", "top.py"]);
    assert_eq!(glob(&home, "x", all()).await, [""; 0]);
    assert_eq!(glob(&home, "x", GlobOptions { include_dirs: true, ..all() }).await, ["src/x"]);
    let everything = GlobOptions { skip_ignored: false, ..all() };
    assert_eq!(glob(&home, "[ef].py", everything).await, ["build/f.py", "node_modules/e.py"]);
    home.check(home.files.glob(&path(WS), "[", &all()).await, Code::InvalidArgument, "[");
    let at = format!("{WS}/top.py");
    home.check(home.files.glob(&path(&at), "*", &all()).await, Code::NotADirectory, &at);
}

#[tokio::test]
async fn only_more_than_the_limit_is_truncated_and_the_first_are_kept() {
    let home = Home::new();
    for n in 0..300 {
        home.put(&format!("workspace/d{}/f{n:03}", n % 10), "needle\nneedle\n");
    }
    let every = glob(&home, "f*", all()).await;
    for (limit, truncated) in [(7, true), (299, true), (300, false), (301, false)] {
        let options = GlobOptions { max_results: limit, ..all() };
        for _ in 0..5 {
            let found = home.files.glob(&path(WS), "f*", &options).await.unwrap();
            assert_eq!(found.truncated, truncated, "{limit}");
            let expected: Vec<_> = every.iter().take(limit as usize).map(|name| format!("{WS}/{name}")).collect();
            assert_eq!(found.paths, expected);
        }
    }
    for (limit, truncated) in [(1, true), (99, true), (600, false)] {
        let options = GrepOptions { max_results: limit, ..GrepOptions::default() };
        for _ in 0..5 {
            let found = home.files.grep(&path(WS), "needle", &options).await.unwrap();
            assert_eq!((found.matches.len(), found.truncated), (limit as usize, truncated));
            for (n, found) in found.matches.iter().enumerate() {
                let expected = (format!("{WS}/{}", every[n / 2]), n as u64 % 2 + 1);
                assert_eq!((found.path.clone(), found.line_number), expected);
            }
        }
    }
    home.check(
        home.files.glob(&path(WS), "*", &GlobOptions { max_results: 0, ..all() }).await,
        Code::InvalidArgument,
        "0",
    );
}

#[tokio::test]
async fn expressions_case_and_literals() {
    let home = Home::new();
    home.put("workspace/a.txt", "Alpha (1)\nbeta\r\nALPHA\nÄther");
    let with = |literal, case_sensitive| GrepOptions { literal, case_sensitive, ..GrepOptions::default() };
    assert_eq!(grep(&home, "alpha", with(false, false)).await, ["a.txt:1:Alpha (1)", "a.txt:3:ALPHA"]);
    assert_eq!(grep(&home, "ALPHA", with(false, true)).await, ["a.txt:3:ALPHA"]);
    assert_eq!(grep(&home, "(1)", with(true, false)).await, ["a.txt:1:Alpha (1)"]);
    assert_eq!(grep(&home, "^beta$", with(false, false)).await, ["a.txt:2:beta"]);
    // Ends of lines count wherever they are, also with a literal that the search can jump to.
    assert_eq!(grep(&home, "ta$", with(false, false)).await, ["a.txt:2:beta"]);
    assert_eq!(grep(&home, r"\)$", with(false, false)).await, ["a.txt:1:Alpha (1)"]);
    assert_eq!(grep(&home, "äther", with(false, false)).await, ["a.txt:4:Äther"]);
    assert_eq!(grep(&home, "-e", with(true, false)).await, [""; 0]);
    for broken in ["(", "a{2", "[z-a]", "a\nb"] {
        let error = home.files.grep(&path(WS), broken, &with(false, false)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{broken}");
        assert!(error.to_string().contains("regular expression"), "{error}");
    }
    let error = home.files.grep(&path(WS), "(", &with(false, false)).await.unwrap_err();
    assert!(error.to_string().contains("unclosed group"), "{error}");
    let options = GrepOptions { glob: Some("{".to_owned()), ..GrepOptions::default() };
    assert_eq!(home.files.grep(&path(WS), "x", &options).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn globs_narrow_a_search() {
    let home = Home::new();
    for file in ["main.py", "src/a.py", "v/src/b.py", "src/c.js", "src/x/d.py"] {
        home.put(&format!("workspace/{file}"), "needle");
    }
    let with = |glob: &str| GrepOptions { glob: Some(glob.to_owned()), ..GrepOptions::default() };
    assert_eq!(grep(&home, "needle", with("src/*.py")).await, ["src/a.py:1:needle", "v/src/b.py:1:needle"]);
    assert_eq!(grep(&home, "needle", with("/src/*.py")).await, ["src/a.py:1:needle"]);
    assert_eq!(grep(&home, "needle", with("*.js")).await, ["src/c.js:1:needle"]);
    // One file as the root is known by its own name.
    let file = path(&format!("{WS}/src/a.py"));
    for (pattern, count) in [("*.py", 1), ("/*.py", 1), ("*.js", 0), ("src/*.py", 0)] {
        assert_eq!(home.files.grep(&file, "needle", &with(pattern)).await.unwrap().matches.len(), count, "{pattern}");
    }
}

#[tokio::test]
async fn one_file_can_be_searched() {
    let home = Home::new();
    home.put("workspace/node_modules/f.log", "no\nneedle\n");
    home.link("node_modules/f.log", "workspace/link");
    // The caller named it: what is ignored below a root is no matter.
    for name in ["node_modules/f.log", "link"] {
        let at = format!("{WS}/{name}");
        let found = home.files.grep(&path(&at), "needle", &GrepOptions::default()).await.unwrap();
        assert_eq!(found.matches.len(), 1);
        assert_eq!((found.matches[0].path.as_str(), found.matches[0].line_number), (at.as_str(), 2));
    }
}

#[tokio::test]
async fn binary_large_and_long_are_skipped_at_their_limits() {
    let home = Home::new();
    let sized = |size: usize| [b"needle\n".as_slice(), &vec![b'x'; size - 7]].concat();
    home.put("workspace/just", sized(1_000_000));
    home.put("workspace/over", sized(1_000_001));
    let nul = |at: usize| [b"needle\n".as_slice(), &vec![b'x'; at - 7], b"\0"].concat();
    home.put("workspace/binary", nul(8191));
    home.put("workspace/text", nul(8192));
    home.put("workspace/line2000", format!("{}needle", "x".repeat(1994)));
    home.put("workspace/line2001", format!("{}needle\r\nneedle", "x".repeat(1995)));
    home.put("workspace/latin", b"\xe4 needle\n");
    let found = grep(&home, "needle", GrepOptions::default()).await;
    let names: Vec<_> = found.iter().map(|line| line.split(':').take(2).collect::<Vec<_>>().join(":")).collect();
    assert_eq!(names, ["just:1", "latin:1", "line2000:1", "line2001:2", "text:1"]);
    assert_eq!(found[1], "latin:1:\u{fffd} needle");
    assert_eq!(found[2], format!("line2000:1:{}...", "x".repeat(197)));
}

#[tokio::test]
async fn what_lies_above_the_root_does_not_count_as_ignored() {
    let home = Home::new();
    home.put("workspace/build/target/src/a.py", "needle");
    home.put("workspace/build/target/dist/b.py", "needle");
    let root = path(&format!("{WS}/build/target"));
    let found = home.files.grep(&root, "needle", &GrepOptions::default()).await.unwrap();
    assert_eq!(found.matches.len(), 1);
    assert_eq!(found.matches[0].path, format!("{WS}/build/target/src/a.py"));
    assert_eq!(home.files.glob(&root, "*.py", &all()).await.unwrap().paths.len(), 1);
}

/// A tree with a bit of everything; the same one in every run.
pub(super) fn grow(root: &Path, files: usize) {
    let mut seed = 42_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let dirs = ["src", "lib", ".hidden", "node_modules", "tests", "build", "docs", "a-b", "a", "buildings"];
    let words = ["alpha", "Beta", "needle", "fn main()", "import os", "Ünïcode", "x = 1;", "", "    ", "NEEDLE 7"];
    let ends = ["py", "rs", "js", "md", "log", "txt"];
    for n in 0..files {
        let mut dir = root.to_owned();
        for _ in 0..random(5) {
            dir.push(format!("{}{}", dirs[random(dirs.len())], ["", "1", "2"][random(3)]));
        }
        std::fs::create_dir_all(&dir).unwrap();
        let mut text = String::new();
        for _ in 0..random(60) {
            for _ in 0..random(8) {
                text.push_str(words[random(words.len())]);
                text.push(' ');
            }
            text.push('\n');
        }
        let mut content = text.into_bytes();
        if random(50) == 0 {
            content.insert(0, 0);
        }
        std::fs::write(dir.join(format!("f{n}.{}", ends[random(ends.len())])), content).unwrap();
    }
}

/// All files below a directory, relative to it: found by the standard library alone.
fn plain_walk(dir: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            plain_walk(&entry.path(), &format!("{name}/"), found);
        } else {
            found.push(name);
        }
    }
}

#[tokio::test]
async fn a_plain_search_finds_the_same() {
    let home = Home::new();
    let root = home.host("workspace");
    grow(&root, 1500);
    let mut files = Vec::new();
    plain_walk(&root, "", &mut files);
    files.sort();
    assert_eq!(glob(&home, "**", GlobOptions { skip_ignored: false, ..all() }).await, files);
    files.retain(|file| !file.split('/').any(is_ignored_name));
    assert_eq!(glob(&home, "**", all()).await, files);
    let expected: Vec<String> = files.iter().filter(|file| file.ends_with(".py")).cloned().collect();
    assert_eq!(glob(&home, "*.py", all()).await, expected);
    let mut expected = Vec::new();
    for file in &files {
        let content = std::fs::read(root.join(file)).unwrap();
        if content.contains(&0) {
            continue;
        }
        for (line, number) in String::from_utf8(content).unwrap().lines().zip(1..) {
            if line.to_lowercase().contains("needle") && line.chars().count() <= 200 {
                expected.push(format!("{file}:{number}:{line}"));
            }
        }
    }
    let options = GrepOptions { max_results: MAX_RESULTS, ..GrepOptions::default() };
    let mut found = grep(&home, "needle", options).await;
    found.retain(|line| !line.ends_with("..."));
    assert!(!found.is_empty());
    assert_eq!(found, expected);
}

/// The arguments that make ripgrep search as we do.
pub(super) fn ripgrep(root: &Path) -> Command {
    let mut command = Command::new("rg");
    command.args(["--hidden", "--no-ignore", "--no-config", "--no-messages", "-n", "--no-heading", "--color=never"]);
    command.args(["--max-filesize", "1000000"]).current_dir(root);
    for name in ignored() {
        command.args(["-g", &format!("!{name}")]);
    }
    command
}

/// Without ripgrep this fails, since nothing would be compared: `make tools` sees to it.
#[tokio::test]
async fn ripgrep_finds_the_same() {
    let there = Command::new("rg").arg("--version").output();
    assert!(there.is_ok_and(|version| version.status.success()), "rg is not there: run `make tools`");
    let home = Home::new();
    let root = home.host("workspace");
    grow(&root, 1500);
    for (pattern, case_sensitive) in
        [("needle", false), ("NEEDLE \\d+ ", true), (r"^\s*fn .*os", false), ("ünï", false)]
    {
        let case = if case_sensitive { "-s" } else { "-i" };
        let output = ripgrep(&root).args([case, "-e", pattern, "./"]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let place = |line: &str| line.splitn(3, ':').take(2).map(str::to_owned).collect::<Vec<_>>();
        let theirs: BTreeSet<_> = text
            .lines()
            .filter(|line| !line.starts_with("Binary file"))
            .map(|line| place(line.trim_start_matches("./")))
            .collect();
        let options = GrepOptions { case_sensitive, max_results: MAX_RESULTS, ..GrepOptions::default() };
        let ours: BTreeSet<_> = grep(&home, pattern, options).await.iter().map(|line| place(line)).collect();
        assert!(!ours.is_empty(), "{pattern}");
        assert_eq!(ours, theirs, "{pattern}");
    }
    let output = ripgrep(&root).args(["--files", "./"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: BTreeSet<_> = text.lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
    assert_eq!(glob(&home, "**", all()).await.into_iter().collect::<BTreeSet<_>>(), theirs);
}
