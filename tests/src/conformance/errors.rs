//! Which error, and that it names what the caller named.

use sandgate::values::*;
use sandgate::{Code, Error, Sandbox};

use crate::support::{Subject, failure, sh};

const CREATE_NEW: WriteOptions = WriteOptions { mode: WriteMode::CreateNew, text: false };
const APPEND: WriteOptions = WriteOptions { mode: WriteMode::Append, text: false };

/// One of the operations, by its name.
async fn operate(sandbox: &Sandbox, operation: &str, path: &str) -> Result<(), Error> {
    let path = &sandbox.path(path)?;
    match operation {
        "read" => sandbox.read(path, ReadRange::All, 1 << 20).await.map(drop),
        "read-bytes" => sandbox.read(path, ReadRange::Bytes { offset: 1, length: Some(1) }, 9).await.map(drop),
        "read-lines" => sandbox.read(path, ReadRange::Lines { start: 1, end: Some(1) }, 9).await.map(drop),
        "write" => sandbox.write(path, "new", WriteOptions::default()).await.map(drop),
        "append" => sandbox.write(path, "new", APPEND).await.map(drop),
        "create-new" => sandbox.write(path, "new", CREATE_NEW).await.map(drop),
        "stat" => sandbox.stat(path).await.map(drop),
        "list" => sandbox.list_dir(path, ListOptions::default()).await.map(drop),
        "glob" => sandbox.glob(path, "*", GlobOptions::default()).await.map(drop),
        "grep" => sandbox.grep(path, "x", GrepOptions::default()).await.map(drop),
        "remove" => sandbox.remove(path, false).await,
        "remove-all" => sandbox.remove(path, true).await,
        "make-dir" => sandbox.make_dir(path).await,
        other => panic!("no operation {other}"),
    }
}

async fn expect(sandbox: &Sandbox, code: Code, operations: &[&str], paths: &[&str]) {
    for path in paths {
        for operation in operations {
            let error = failure(operate(sandbox, operation, path).await);
            assert_eq!(error.code(), code, "{operation} {path}: {error}");
            let named = sandbox.path(path).unwrap();
            assert!(error.message().contains(named.as_str()), "{operation} {path} is not named: {error}");
        }
    }
}

/// `not-found`
pub async fn what_is_not_there(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir dir; ln -s gone broken").await;
    let reading = ["read", "read-bytes", "read-lines", "list", "glob", "grep"];
    expect(&sandbox, Code::NotFound, &reading, &["gone", "dir/gone", "gone/a/b", "broken"]).await;
    expect(&sandbox, Code::NotFound, &["stat", "remove", "remove-all"], &["gone", "dir/gone", "gone/a/b"]).await;
    assert_eq!(sh(&sandbox, "find . | sort").await, ".\n./broken\n./dir\n");
}

/// `is-a-directory`
pub async fn what_is_a_directory(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p dir/full; ln -s dir link").await;
    let operations = ["read", "read-bytes", "read-lines", "write", "append"];
    expect(&sandbox, Code::IsADirectory, &operations, &["dir", "dir/full", "link", "."]).await;
    let error = failure(operate(&sandbox, "create-new", "dir").await);
    assert!(matches!(error.code(), Code::IsADirectory | Code::AlreadyExists), "{error}");
    assert_eq!(sh(&sandbox, "find . | sort").await, ".\n./dir\n./dir/full\n./link\n");
}

/// `not-a-directory`
pub async fn what_is_not_a_directory(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "echo x > file; ln -s file link").await;
    expect(&sandbox, Code::NotADirectory, &["list", "glob", "make-dir"], &["file", "link", "file/below"]).await;
    let below = ["read", "stat", "write", "append", "create-new", "grep", "remove", "remove-all"];
    expect(&sandbox, Code::NotADirectory, &below, &["file/below", "file/deep/below"]).await;
    assert_eq!(sh(&sandbox, "cat file; ls -A").await, "x\nfile\nlink\n");
}

/// `already-exists`
pub async fn what_is_there_already(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "echo old > file; mkdir -p full/sub").await;
    expect(&sandbox, Code::AlreadyExists, &["create-new"], &["file"]).await;
    expect(&sandbox, Code::AlreadyExists, &["remove"], &["full"]).await;
    assert_eq!(sh(&sandbox, "cat file; ls full").await, "old\nsub\n");
}

/// `invalid-argument`, for what no file system could have and no list could hold.
pub async fn arguments_out_of_range(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for path in ["nul\0", &"n".repeat(256), &"d/".repeat(3000)] {
        assert_eq!(failure(sandbox.path(path)).code(), Code::InvalidArgument, "{path:?}");
    }
    let here = sandbox.path(".").unwrap();
    for limit in [0, MAX_RESULTS + 1] {
        let list = sandbox.list_dir(&here, ListOptions { limit, ..ListOptions::default() }).await;
        assert_eq!(failure(list).code(), Code::InvalidArgument, "{limit}");
        let glob = sandbox.glob(&here, "*", GlobOptions { max_results: limit, ..GlobOptions::default() }).await;
        assert_eq!(failure(glob).code(), Code::InvalidArgument, "{limit}");
        let grep = sandbox.grep(&here, "x", GrepOptions { max_results: limit, ..GrepOptions::default() }).await;
        assert_eq!(failure(grep).code(), Code::InvalidArgument, "{limit}");
    }
    for max_depth in [0, MAX_DEPTH + 1] {
        let list = sandbox.list_dir(&here, ListOptions { max_depth, ..ListOptions::default() }).await;
        assert_eq!(failure(list).code(), Code::InvalidArgument, "{max_depth}");
    }
}

/// A pipe that nobody writes to is refused at once, for reading and for writing, and not waited for.
pub async fn what_is_no_regular_file(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkfifo fifo").await;
    let path = sandbox.path("fifo").unwrap();
    let read = failure(sandbox.read(&path, ReadRange::All, 100).await);
    let written = failure(sandbox.write(&path, "x", WriteOptions::default()).await);
    for error in [read, written] {
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(path.as_str()), "{error}");
    }
    assert_eq!(sh(&sandbox, "test -p fifo && echo still").await, "still\n");
}

/// A name with line breaks and escape codes is shown as one harmless line, and kept as it is for programs.
pub async fn names_that_steer_terminals(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let name = "gone\nerror[internal]: forged\r\u{1b}[2J";
    for operation in ["read", "stat", "list", "glob", "grep", "remove"] {
        let error = failure(operate(&sandbox, operation, name).await);
        assert_eq!(error.code(), Code::NotFound, "{operation}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{operation}: {error:?}");
        assert!(error.message().contains(name), "{operation}: {error:?}");
    }
}
