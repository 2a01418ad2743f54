//! Finding paths by patterns, and lines by expressions.

use sandgate::values::{GlobOptions, GlobResult, GrepOptions, GrepResult};
use sandgate::{Code, Sandbox};

use crate::support::{Subject, failure, sh};

async fn glob_with(sandbox: &Sandbox, path: &str, pattern: &str, options: GlobOptions) -> (Vec<String>, GlobResult) {
    let root = sandbox.path(path).unwrap();
    let found = sandbox.glob(&root, pattern, options).await.unwrap();
    let strip = |path: &String| path.strip_prefix(&format!("{root}/")).unwrap().to_owned();
    (found.paths.iter().map(strip).collect(), found)
}

async fn glob(sandbox: &Sandbox, pattern: &str) -> String {
    let (paths, found) = glob_with(sandbox, ".", pattern, GlobOptions::default()).await;
    assert_eq!((found.truncated, found.skipped), (false, 0), "{pattern}");
    paths.join(" ")
}

async fn grep_with(sandbox: &Sandbox, path: &str, pattern: &str, options: GrepOptions) -> (Vec<String>, GrepResult) {
    let root = sandbox.path(path).unwrap();
    let found = sandbox.grep(&root, pattern, options).await.unwrap();
    let workspace = format!("{}/", sandbox.path(".").unwrap());
    let shown = found.matches.iter().map(|found| {
        let path = found.path.strip_prefix(&workspace).unwrap();
        format!("{path}:{}:{}", found.line_number, found.line)
    });
    (shown.collect(), found)
}

async fn grep(sandbox: &Sandbox, pattern: &str, options: GrepOptions) -> Vec<String> {
    let (lines, found) = grep_with(sandbox, ".", pattern, options).await;
    assert_eq!((found.truncated, found.skipped), (false, 0), "{pattern}");
    lines
}

/// `src/*.js` finds `v/src/a.js` too; `/src/*.js` does not.
pub async fn globs_match_from_the_right_unless_tied(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p src/x v/src xsrc; touch a.js src/a.js src/x/a.js v/src/a.js xsrc/a.js .h.js src/A.JS").await;
    for (pattern, expected) in [
        ("*.js", ".h.js a.js src/a.js src/x/a.js v/src/a.js xsrc/a.js"),
        ("a.js", "a.js src/a.js src/x/a.js v/src/a.js xsrc/a.js"),
        ("src/*.js", "src/a.js v/src/a.js"),
        ("/src/*.js", "src/a.js"),
        ("/*.js", ".h.js a.js"),
        ("/**/*.js", ".h.js a.js src/a.js src/x/a.js v/src/a.js xsrc/a.js"),
        ("*.JS", "src/A.JS"),
        ("gone*", ""),
    ] {
        assert_eq!(glob(&sandbox, pattern).await, expected, "{pattern}");
    }
    // Tied to where the search begins.
    let (paths, _) = glob_with(&sandbox, "v", "/src/*.js", GlobOptions::default()).await;
    assert_eq!(paths, ["src/a.js"]);
    let dirs = GlobOptions { include_dirs: true, ..GlobOptions::default() };
    assert_eq!(glob_with(&sandbox, ".", "*src", dirs).await.0, ["src", "v/src", "xsrc"]);
    assert_eq!(glob(&sandbox, "*src").await, "", "directories only on request");
}

/// `*` and `?` stay within a segment, `**` spans segments, classes and alternatives are as usual.
pub async fn globs_know_segments_classes_and_alternatives(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p d/e; touch abc axc d/abc d/e/abc d/b.py d/c.rs d/d.txt 'st*r' 'q?' d/e/ü.py").await;
    for (pattern, expected) in [
        ("a?c", "abc axc d/abc d/e/abc"),
        ("d?abc", ""),
        ("d*abc", ""),
        ("d/**/abc", "d/abc d/e/abc"),
        ("/d/**", "d/abc d/b.py d/c.rs d/d.txt d/e/abc d/e/ü.py"),
        ("d/*", "d/abc d/b.py d/c.rs d/d.txt"),
        ("[bc].{py,rs}", "d/b.py d/c.rs"),
        ("[!b].{py,rs}", "d/c.rs d/e/ü.py"),
        ("[a-c].*", "d/b.py d/c.rs"),
        ("?.py", "d/b.py d/e/ü.py"),
        ("[äü].py", "d/e/ü.py"),
        ("{ä,ü}.py", "d/e/ü.py"),
        ("st\\*r", "st*r"),
        ("st[*]r", "st*r"),
        ("q\\?", "q?"),
        ("{,d/}abc", "abc d/abc d/e/abc"),
        ("d/e/", ""),
        ("**", "abc axc d/abc d/b.py d/c.rs d/d.txt d/e/abc d/e/ü.py q? st*r"),
    ] {
        assert_eq!(glob(&sandbox, pattern).await, expected, "{pattern}");
    }
}

/// A name that is not UTF-8 can't be told, since paths are text: it is counted, and hides no other.
pub async fn names_that_are_no_text_are_counted(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir d; echo needle > d/ok; echo needle > \"d/$(printf 'a\\377')\"").await;
    for pattern in ["*", "**", "/d/*", "??"] {
        let (paths, found) = glob_with(&sandbox, ".", pattern, GlobOptions::default()).await;
        assert_eq!((paths, found.truncated, found.skipped), (vec!["d/ok".to_owned()], false, 1), "{pattern}");
    }
}

/// So many, sorted, and the word that there are more; which ones is the provider's choice.
pub async fn globs_are_cut_at_their_limit(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "seq -f 'f%03g' 300 | xargs touch").await;
    let all: Vec<String> = (1..=300).map(|n| format!("f{n:03}")).collect();
    for (max_results, truncated) in [(1, true), (299, true), (300, false), (1000, false)] {
        let options = GlobOptions { max_results, ..GlobOptions::default() };
        let (paths, found) = glob_with(&sandbox, ".", "f*", options).await;
        assert_eq!(found.truncated, truncated, "{max_results}");
        assert_eq!(paths.len(), (max_results as usize).min(300));
        assert!(paths.is_sorted() && paths.iter().all(|path| all.contains(path)), "{paths:?}");
    }
}

/// Below the place that was asked about; the place itself may be one of them.
pub async fn searches_leave_out_ignored_names_below_the_root_only(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir -p node_modules/m/build .git src; for f in .git/x.js node_modules/m/i.js node_modules/m/build/o.js \
        src/a.js src/b.log; do echo needle > $f; done",
    )
    .await;
    assert_eq!(glob(&sandbox, "*.js").await, "src/a.js");
    assert_eq!(grep(&sandbox, "needle", GrepOptions::default()).await, ["src/a.js:1:needle"]);
    let (paths, _) = glob_with(&sandbox, "node_modules", "*.js", GlobOptions::default()).await;
    assert_eq!(paths, ["m/i.js"]);
    let (lines, _) = grep_with(&sandbox, "node_modules", "needle", GrepOptions::default()).await;
    assert_eq!(lines, ["node_modules/m/i.js:1:needle"]);
    let all = GlobOptions { skip_ignored: false, ..GlobOptions::default() };
    assert_eq!(glob_with(&sandbox, ".", "*", all).await.0.len(), 5);
    let all = GrepOptions { skip_ignored: false, ..GrepOptions::default() };
    assert_eq!(grep(&sandbox, "needle", all).await.len(), 5);
}

/// Sorted by path and line, without the line's end, in hidden files too.
pub async fn lines_are_found_with_their_numbers(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir -p b; printf 'one\\ntwo needle\\nthree\\nneedle four\\n' > b/f; printf 'needle' > a; printf 'x\\r\\nneedle\\r\\n' > crlf; \
         printf 'needle \\377 caf\\351\\n' > latin; echo needle > .hidden; : > empty; printf '\\n\\n  needle: a:b\\n' > 'c:1:d'",
    )
    .await;
    let found = grep(&sandbox, "needle", GrepOptions::default()).await;
    let expected = [
        ".hidden:1:needle",
        "a:1:needle",
        "b/f:2:two needle",
        "b/f:4:needle four",
        "c:1:d:3:  needle: a:b",
        "crlf:2:needle",
        "latin:1:needle \u{fffd} caf\u{fffd}",
    ];
    assert_eq!(found, expected);
    let only = GrepOptions { glob: Some("/b/*".into()), ..GrepOptions::default() };
    assert_eq!(grep(&sandbox, "needle", only).await, ["b/f:2:two needle", "b/f:4:needle four"]);
    let only = GrepOptions { glob: Some("{a,f}".into()), ..GrepOptions::default() };
    assert_eq!(grep(&sandbox, "needle$", only).await, ["a:1:needle", "b/f:2:two needle"]);
}

/// Regular expressions, plain text, with and without regard to case.
pub async fn expressions_case_and_literals(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "printf 'alpha\\nALPHA beta\\na.c\\nabc\\nfoo(bar)\\n$x [y] \\\\ ^z\\n12 34\\n\\n-e dash\\n' > f")
        .await;
    let options = GrepOptions::default();
    for (pattern, literal, case_sensitive, lines) in [
        ("alpha", false, false, "1 2"),
        ("alpha", false, true, "1"),
        ("Alpha", true, false, "1 2"),
        ("a.c", false, true, "3 4"),
        ("a.c", true, true, "3"),
        ("foo(bar)", true, true, "5"),
        (r"foo\(bar\)", false, true, "5"),
        ("^a", false, true, "1 3 4"),
        ("c$", false, true, "3 4"),
        ("[0-9]+ [0-9]{2}", false, true, "7"),
        (r"\d+ \d+", false, true, "7"),
        ("alpha|dash", false, true, "1 9"),
        ("$x [y] \\ ^z", true, true, "6"),
        ("-e", true, true, "9"),
        ("^$", false, true, "8"),
        (r"\bbeta\b", false, true, "2"),
        ("nothing like it", false, false, ""),
    ] {
        let options = GrepOptions { literal, case_sensitive, ..options.clone() };
        let (_, found) = grep_with(&sandbox, ".", pattern, options).await;
        let numbers: Vec<String> = found.matches.iter().map(|found| found.line_number.to_string()).collect();
        assert_eq!(numbers.join(" "), lines, "{pattern:?} literal {literal} case {case_sensitive}");
    }
}

/// So many, sorted by path and line, and the word that there are more; which ones is the provider's choice.
pub async fn greps_are_cut_at_their_limit(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "for f in a b c; do seq 100 > $f; done").await;
    for (max_results, truncated) in [(1, true), (150, true), (299, true), (300, false), (301, false)] {
        let options = GrepOptions { max_results, ..GrepOptions::default() };
        let (_, found) = grep_with(&sandbox, ".", "^", options).await;
        assert_eq!(found.truncated, truncated, "{max_results}");
        assert_eq!(found.matches.len(), (max_results as usize).min(300));
        assert!(found.matches.is_sorted_by(|a, b| a < b), "{found:?}");
        assert!(found.matches.iter().all(|found| found.line == found.line_number.to_string()), "{found:?}");
    }
}

/// Data is not text; a long line is cut where it is shown, a very long one is left out.
pub async fn binary_and_large_files_and_long_lines_are_left_out(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "pad() { head -c $1 /dev/zero | tr '\\0' x; }; printf 'needle\\0\\n' > binary; \
         { echo needle; pad 1000000; } > large; { echo needle; pad 999990; echo; } > just; \
         { printf needle; pad 100; echo; } > short; { printf needle; pad 500; echo; } > long; { printf needle; pad 3000; echo; echo needle; } > very",
    )
    .await;
    let found = grep(&sandbox, "needle", GrepOptions::default()).await;
    let (short, long) = (format!("short:1:needle{}", "x".repeat(100)), format!("long:1:needle{}...", "x".repeat(191)));
    assert_eq!(found, ["just:1:needle", &long, &short, "very:2:needle"]);
}

/// A search may be about one file, whose name does not matter.
pub async fn one_file_can_be_searched(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p build; printf 'x\\nneedle\\n' > build/a.log; ln -s build/a.log link").await;
    let (lines, found) = grep_with(&sandbox, "build/a.log", "needle", GrepOptions::default()).await;
    assert_eq!((lines, found.truncated), (vec!["build/a.log:2:needle".to_owned()], false));
    let (lines, _) = grep_with(&sandbox, "link", "needle", GrepOptions::default()).await;
    assert_eq!(lines, ["link:2:needle"]);
    let only = GrepOptions { glob: Some("*.txt".into()), ..GrepOptions::default() };
    assert!(grep_with(&sandbox, "build/a.log", "needle", only).await.0.is_empty());
}

/// With the pattern in the message, and not as an empty result.
pub async fn patterns_that_are_none_are_refused(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let here = sandbox.path(".").unwrap();
    for pattern in ["", "/", "[", "{a", "[z-a]"] {
        let result = sandbox.glob(&here, pattern, GlobOptions::default()).await;
        let Err(error) = result else { panic!("{pattern:?} was taken: {result:?}") };
        assert_eq!(error.code(), Code::InvalidArgument, "{pattern}: {error}");
        assert!(error.message().contains(&format!("{pattern:?}")), "{error}");
        let options = GrepOptions { glob: Some(pattern.into()), ..GrepOptions::default() };
        assert_eq!(failure(sandbox.grep(&here, "x", options).await).code(), Code::InvalidArgument, "{pattern}");
    }
    for pattern in ["(", "[", "a{2,1}", "*"] {
        let result = sandbox.grep(&here, pattern, GrepOptions::default()).await;
        let Err(error) = result else { panic!("{pattern:?} was taken: {result:?}") };
        assert_eq!(error.code(), Code::InvalidArgument, "{pattern}: {error}");
        let literal = GrepOptions { literal: true, ..GrepOptions::default() };
        assert!(sandbox.grep(&here, pattern, literal).await.is_ok(), "{pattern} as plain text");
    }
}
