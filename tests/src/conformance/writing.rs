//! Changing files and directories.

use bytes::Bytes;
use futures::future::join_all;
use sandgate::values::{FileKind, ReadRange, WriteMode, WriteOptions};
use sandgate::{Code, Error, Sandbox};
use tokio::sync::mpsc;

use crate::support::{Subject, broken_stream, failure, sh, text};

const REPLACE: WriteOptions = WriteOptions { mode: WriteMode::Replace, text: false };
const APPEND: WriteOptions = WriteOptions { mode: WriteMode::Append, text: false };
const CREATE_NEW: WriteOptions = WriteOptions { mode: WriteMode::CreateNew, text: false };

async fn write(sandbox: &Sandbox, path: &str, text: &str, options: WriteOptions) -> Result<u64, Error> {
    sandbox.write(&sandbox.path(path).unwrap(), text.to_owned(), options).await
}

async fn read(sandbox: &Sandbox, path: &str) -> String {
    text(&sandbox.read(&sandbox.path(path).unwrap(), ReadRange::All, 1 << 20).await.unwrap())
}

/// A file's parents come into being with it, in every mode.
pub async fn parents_are_made(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for (path, options) in [("a/b/c.txt", REPLACE), ("d/e/f.txt", APPEND), ("g/h/i.txt", CREATE_NEW)] {
        assert_eq!(write(&sandbox, path, "deep", options).await, Ok(4));
        assert_eq!(sh(&sandbox, &format!("cat {path}")).await, "deep");
    }
}

/// A program stays one when it is replaced, and nothing of the old content stays.
pub async fn replacing_keeps_the_mode_and_changes_all(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "printf '#!/bin/sh\\necho old, and longer than the new one\\n' > run; chmod 751 run").await;
    write(&sandbox, "run", "#!/bin/sh\necho new\n", REPLACE).await.unwrap();
    assert_eq!(sh(&sandbox, "./run").await, "new\n");
    assert_eq!(sandbox.stat(&sandbox.path("run").unwrap()).await.unwrap().mode, 0o751);
    // A new file is none.
    write(&sandbox, "text", "x", REPLACE).await.unwrap();
    assert_eq!(sandbox.stat(&sandbox.path("text").unwrap()).await.unwrap().mode & 0o111, 0);
    // Through a link the file changes that it leads to, and the link stays.
    sh(&sandbox, "ln -s text link").await;
    write(&sandbox, "link", "through", REPLACE).await.unwrap();
    assert_eq!(read(&sandbox, "text").await, "through");
    assert_eq!(sandbox.stat(&sandbox.path("link").unwrap()).await.unwrap().kind, FileKind::Symlink);
    assert_eq!(sh(&sandbox, "ls -A").await, "link\nrun\ntext\n", "nothing is left beside them");
}

/// Whoever reads while a file is replaced gets one content or the other.
pub async fn readers_see_the_old_or_the_new(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let content = |letter: char| letter.to_string().repeat(300_000);
    write(&sandbox, "f", &content('a'), REPLACE).await.unwrap();
    let writes = async {
        for n in 0..20 {
            write(&sandbox, "f", &content(if n % 2 == 0 { 'b' } else { 'a' }), REPLACE).await.unwrap();
        }
    };
    let reads = async {
        for _ in 0..20 {
            let seen = read(&sandbox, "f").await;
            assert!(seen == content('a') || seen == content('b'), "{} bytes, or a mix", seen.len());
        }
    };
    tokio::join!(writes, reads);
}

/// Appending makes a file, or adds to its end.
pub async fn appends_are_added_and_make_files(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    assert_eq!(write(&sandbox, "log", "one\n", APPEND).await, Ok(4));
    assert_eq!(write(&sandbox, "log", "", APPEND).await, Ok(0));
    assert_eq!(write(&sandbox, "log", "two", APPEND).await, Ok(3));
    sh(&sandbox, "echo three >> log; chmod 600 log").await;
    assert_eq!(write(&sandbox, "log", "four\n", APPEND).await, Ok(5));
    assert_eq!(read(&sandbox, "log").await, "one\ntwothree\nfour\n");
    assert_eq!(sandbox.stat(&sandbox.path("log").unwrap()).await.unwrap().mode, 0o600);
}

/// None of them is lost or torn.
pub async fn appends_at_once_all_land(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let line = |n: usize| format!("{n:03} {}\n", "x".repeat(500));
    let all = join_all((0..40).map(|n| {
        let sandbox = &sandbox;
        async move { write(sandbox, "log", &line(n), APPEND).await }
    }));
    for written in all.await {
        assert_eq!(written, Ok(505));
    }
    let text = read(&sandbox, "log").await;
    let mut found: Vec<&str> = text.split_inclusive('\n').collect();
    found.sort_unstable();
    assert_eq!(found, (0..40).map(line).collect::<Vec<_>>());
}

/// Of several that make one file, one succeeds.
pub async fn create_new_makes_and_never_replaces(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let all = join_all((0..8).map(|n| {
        let sandbox = &sandbox;
        async move { write(sandbox, "new", &format!("by {n}"), CREATE_NEW).await.map(|_| n) }
    }));
    let (made, refused): (Vec<_>, Vec<_>) = all.await.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1, "{refused:?}");
    assert!(refused.iter().all(|result| result.as_ref().is_err_and(|error| error.code() == Code::AlreadyExists)));
    assert_eq!(read(&sandbox, "new").await, format!("by {}", made[0].as_ref().unwrap()));
    // A link whose target is not there is there.
    sh(&sandbox, "ln -s nowhere dangling").await;
    assert_eq!(failure(write(&sandbox, "dangling", "x", CREATE_NEW).await).code(), Code::AlreadyExists);
    assert_eq!(failure(sandbox.stat(&sandbox.path("nowhere").unwrap()).await).code(), Code::NotFound);
    assert_eq!(sh(&sandbox, "ls -A").await, "dangling\nnew\n", "nothing is left beside them");
}

/// An upload that does not come to its end, or that nobody waits for any more, leaves things as they were.
pub async fn an_upload_that_breaks_off_changes_nothing(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "echo old > f").await;
    let (old, new) = (sandbox.path("f").unwrap(), sandbox.path("new").unwrap());
    for (path, options) in [(&old, REPLACE), (&new, REPLACE), (&new, CREATE_NEW)] {
        let error = failure(sandbox.write_file(path, broken_stream(b"half of it"), options).await);
        assert!(!error.message().is_empty());
    }
    // The caller gives up in the middle: when more has been taken than fits between here and the file.
    let (sender, data) = mpsc::channel(1);
    let upload = sandbox.write_file(&old, data, REPLACE);
    let give_up = async {
        for _ in 0..64 {
            sender.send(Ok(Bytes::from(vec![b'x'; 64 << 10]))).await.unwrap();
        }
    };
    tokio::select! {
        done = upload => panic!("{done:?}"),
        () = give_up => {}
    }
    drop(sender);
    assert_eq!(read(&sandbox, "f").await, "old\n");
    // What was begun is cleared away, at the latest soon.
    let deadline = "n=0; while [ \"$(ls -A)\" != f ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done; ls -A";
    assert_eq!(sh(&sandbox, deadline).await, "f\n");
}

/// Files, links (never their targets), empty directories; whole ones if that was asked for.
pub async fn removing(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir -p full/sub empty target; echo x > file; echo x > full/sub/f; echo keep > target/keep; ln -s target dirlink; \
         ln -s target/keep link; ln -s gone broken; mkfifo fifo; ln -s ../target full/out",
    )
    .await;
    let remove = |path: &str, recursive| {
        let (sandbox, path) = (&sandbox, sandbox.path(path).unwrap());
        async move { sandbox.remove(&path, recursive).await }
    };
    assert_eq!(failure(remove("full", false).await).code(), Code::AlreadyExists);
    assert_eq!(sh(&sandbox, "cat full/sub/f").await, "x\n");
    for (path, recursive) in [
        ("file", false),
        ("empty", false),
        ("link", false),
        ("broken", false),
        ("fifo", false),
        ("dirlink", true),
        ("full", true),
    ] {
        remove(path, recursive).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(failure(sandbox.stat(&sandbox.path(path).unwrap()).await).code(), Code::NotFound, "{path}");
    }
    assert_eq!(sh(&sandbox, "cat target/keep; ls -A").await, "keep\ntarget\n");
    for recursive in [false, true] {
        assert_eq!(failure(remove("file", recursive).await).code(), Code::NotFound);
    }
}

/// With their parents; one that is there is fine, something else that is there is not.
pub async fn making_directories(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let make = |path: &str| {
        let (sandbox, path) = (&sandbox, sandbox.path(path).unwrap());
        async move { sandbox.make_dir(&path).await }
    };
    make("a/b/c").await.unwrap();
    make("a/b/c").await.unwrap();
    make("a").await.unwrap();
    make(".").await.unwrap();
    assert_eq!(sandbox.stat(&sandbox.path("a/b/c").unwrap()).await.unwrap().kind, FileKind::Directory);
    sh(&sandbox, "echo x > file; ln -s a link").await;
    make("link").await.unwrap();
    make("link/more").await.unwrap();
    assert_eq!(sh(&sandbox, "cd a/more && pwd -P | grep -c more").await, "1\n");
    for path in ["file", "file/below"] {
        assert_eq!(failure(make(path).await).code(), Code::NotADirectory, "{path}");
    }
    assert_eq!(sh(&sandbox, "cat file").await, "x\n");
}
