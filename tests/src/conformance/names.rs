//! Names that careless code takes for something else.

use sandgate::values::*;
use sandgate::{Code, Sandbox};

use crate::support::{Subject, failure, odd_names, quote, sh, text};

/// A pattern that finds this name and no other.
fn pattern(name: &str) -> String {
    name.chars().flat_map(|c| if "*?[]{},\\!".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}

/// The file `name` in `dir` through every operation; `dir` is relative to the workspace and ends in a slash, or empty.
async fn every_operation(sandbox: &Sandbox, dir: &str, name: &str) {
    let parent = sandbox.path(if dir.is_empty() { "." } else { dir }).unwrap();
    let path = sandbox.path(&format!("./{dir}{name}")).unwrap();
    let full = path.as_str().to_owned();
    let create_new = WriteOptions { mode: WriteMode::CreateNew, text: false };
    let append = WriteOptions { mode: WriteMode::Append, text: false };
    assert_eq!(sandbox.write(&path, "needle\n", create_new).await, Ok(7), "{name:?}");
    assert_eq!(sandbox.write(&path, "needle 2\n", WriteOptions::default()).await, Ok(9), "{name:?}");
    assert_eq!(sandbox.write(&path, "last\n", append).await, Ok(5), "{name:?}");
    assert_eq!(text(&sandbox.read(&path, ReadRange::All, 100).await.unwrap()), "needle 2\nlast\n", "{name:?}");
    let lines = ReadRange::Lines { start: 2, end: None };
    assert_eq!(text(&sandbox.read(&path, lines, 100).await.unwrap()), "last\n", "{name:?}");
    assert_eq!(sandbox.stat(&path).await.unwrap().size, 14, "{name:?}");
    assert_eq!(sh(sandbox, &format!("cat -- {}", quote(&full))).await, "needle 2\nlast\n", "{name:?}");

    let listing = sandbox.list_dir(&parent, ListOptions::default()).await.unwrap();
    assert!(listing.entries.iter().any(|entry| entry.path == full && entry.size == 14), "{name:?}: {listing:?}");
    let options = GlobOptions { skip_ignored: false, ..GlobOptions::default() };
    let found = sandbox.glob(&parent, &format!("/{}", pattern(name)), options).await.unwrap();
    assert_eq!(found.paths, std::slice::from_ref(&full), "{name:?}");
    let matched = GrepMatch { path: full.clone(), line_number: 1, line: "needle 2".into() };
    let options = GrepOptions { skip_ignored: false, ..GrepOptions::default() };
    for at in [&parent, &path] {
        let found = sandbox.grep(at, "needle", options.clone()).await.unwrap();
        assert_eq!(found.matches, std::slice::from_ref(&matched), "{name:?}");
    }
    let error = failure(sandbox.write(&path, "x", create_new).await);
    assert_eq!(error.code(), Code::AlreadyExists, "{name:?}");
    sandbox.remove(&path, false).await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    assert_eq!(failure(sandbox.stat(&path).await).code(), Code::NotFound, "{name:?}");
}

/// A file of any name can be made, read, changed, found and removed, and is what commands see by that name.
pub async fn odd_names_survive_every_operation(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for name in odd_names() {
        every_operation(&sandbox, "", &name).await;
    }
    assert_eq!(sh(&sandbox, "ls -A").await, "");
}

/// So can one in a directory of any name.
pub async fn odd_names_of_directories_do_too(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for name in odd_names() {
        let dir = sandbox.path(&format!("./{name}")).unwrap();
        sandbox.make_dir(&dir).await.unwrap();
        every_operation(&sandbox, &format!("./{name}/"), "-f\n$x").await;
        sh(&sandbox, &format!("cd -- {} && touch left", quote(dir.as_str()))).await;
        sandbox.remove(&dir, true).await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    assert_eq!(sh(&sandbox, "ls -A").await, "");
}

/// Patterns, expressions and places to run in are no commands either.
pub async fn nothing_in_a_name_is_run(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let here = sandbox.path(".").unwrap();
    for trick in [
        "$(touch canary)",
        "`touch canary`",
        "'; touch canary; '",
        "x\ntouch canary\n",
        "\"; touch canary; \"",
        "x' -exec touch canary ';' '",
    ] {
        let path = sandbox.path(&format!("./{trick}")).unwrap();
        drop(sandbox.glob(&here, trick, GlobOptions::default()).await);
        for literal in [true, false] {
            let options = GrepOptions { literal, glob: Some(trick.to_owned()), ..GrepOptions::default() };
            drop(sandbox.grep(&here, trick, options).await);
        }
        drop(sandbox.exec(ExecRequest { cwd: Some(path.clone()), ..ExecRequest::default() }).await);
        drop(sandbox.list_dir(&path, ListOptions::default()).await);
        let value = [("TRICK".to_owned(), trick.to_owned())].into();
        let request = ExecRequest { env: value, ..crate::support::command("true") };
        assert!(crate::support::run(&sandbox, request).await.success());
    }
    assert_eq!(sh(&sandbox, "ls -A").await, "");
}
