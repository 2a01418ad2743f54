//! Writing: all or nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Home, Limits, Workspace, names, path};
use crate::error::{Code, Error};
use crate::values::{WriteMode, WriteOptions};

const WS: &str = "/mnt/user-data/workspace";
const MODES: [WriteMode; 3] = [WriteMode::Replace, WriteMode::Append, WriteMode::CreateNew];

fn options(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, text: false }
}

#[tokio::test]
async fn parents_are_made_and_lengths_returned() {
    let home = Home::new();
    for (mode, name) in MODES.into_iter().zip(["a/b/c", "d/e/f", "g/h/i"]) {
        assert_eq!(home.write_as(&format!("{WS}/{name}"), b"12345", mode).await.unwrap(), 5);
        assert_eq!(std::fs::read(home.host("workspace").join(name)).unwrap(), b"12345");
    }
    assert_eq!(home.write(&format!("{WS}/empty"), b"").await.unwrap(), 0);
    assert_eq!(std::fs::read(home.host("workspace/empty")).unwrap(), b"");
}

#[tokio::test]
async fn modes_do_what_they_say() {
    let home = Home::new();
    let at = format!("{WS}/f");
    home.write_as(&at, b"one", WriteMode::CreateNew).await.unwrap();
    home.check(home.write_as(&at, b"two", WriteMode::CreateNew).await, Code::AlreadyExists, &at);
    home.write_as(&at, b"+two", WriteMode::Append).await.unwrap();
    assert_eq!(home.read(&at).await.unwrap(), b"one+two");
    home.write(&at, b"three").await.unwrap();
    assert_eq!(home.read(&at).await.unwrap(), b"three");
    std::fs::create_dir(home.host("workspace/d")).unwrap();
    home.check(home.write(&format!("{WS}/d"), b"x").await, Code::IsADirectory, "/d");
    home.check(home.write(&format!("{WS}/f/x"), b"x").await, Code::NotADirectory, "/f/x");
    assert_eq!(names(home.host("workspace")), ["d", "f"]);
}

#[tokio::test]
async fn replacing_is_one_step_and_keeps_the_mode_and_the_owner() {
    let home = Home::new();
    home.put("workspace/f", "old");
    let file = home.host("workspace/f");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    // Only root may give files away; as anyone else the owner is our own before and after.
    let owner = if rustix::process::geteuid().is_root() { 12345 } else { rustix::process::geteuid().as_raw() };
    std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
    let reader = std::fs::File::open(&file).unwrap();
    home.write(&format!("{WS}/f"), b"new").await.unwrap();
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o640, owner));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
    assert_eq!(std::fs::read(&file).unwrap(), b"new");
    assert_eq!(names(home.host("workspace")), ["f"]);
}

#[tokio::test]
async fn new_files_and_directories_are_for_all_that_the_umask_allows() {
    let home = Home::new();
    // What the standard library makes has the same modes; asking for the umask itself would change it for other tests.
    std::fs::write(home.host("file"), "").unwrap();
    std::fs::create_dir(home.host("dir")).unwrap();
    let mode = |at: &str| std::fs::metadata(home.host(at)).unwrap().mode() & 0o7777;
    for (write, name) in MODES.into_iter().zip(["a", "b", "c"]) {
        home.write_as(&format!("{WS}/d/{name}"), b"", write).await.unwrap();
        assert_eq!(mode(&format!("workspace/d/{name}")), mode("file"));
    }
    assert_eq!(mode("workspace/d"), mode("dir"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_changes_nothing() {
    let home = Home::new();
    home.put("workspace/old", "old");
    for mode in MODES {
        for name in ["old", "new", "a/b/new"] {
            if mode == WriteMode::CreateNew && name == "old" {
                continue;
            }
            let (sender, stream) = mpsc::channel(8);
            // More than an append keeps in memory.
            sender.send(Ok(Bytes::from(vec![1; 3 << 20]))).await.unwrap();
            sender.send(Err(Error::unavailable("the guest went away"))).await.unwrap();
            drop(sender);
            let error = home.files.write(&path(&format!("{WS}/{name}")), stream, options(mode)).await.unwrap_err();
            assert_eq!(error.message(), "the guest went away");
            assert_eq!(names(home.host("workspace")), ["old"], "{mode:?} {name}");
            assert_eq!(std::fs::read(home.host("workspace/old")).unwrap(), b"old");
        }
    }
}

#[tokio::test]
async fn a_dropped_write_changes_nothing() {
    let home = Home::new();
    home.put("workspace/old", "old");
    for mode in [WriteMode::Replace, WriteMode::Append] {
        for name in ["old", "a/b/new"] {
            let (sender, stream) = mpsc::channel(1);
            let files = home.files.clone();
            let at = path(&format!("{WS}/{name}"));
            let write = tokio::spawn(async move { files.write(&at, stream, options(mode)).await });
            // Each piece is taken only when the writer waits for the next batch: it is in the middle of its work.
            for _ in 0..40 {
                sender.send(Ok(Bytes::from(vec![1; 100_000]))).await.unwrap();
            }
            write.abort();
            assert!(write.await.unwrap_err().is_cancelled());
            // The last step may still run on another thread: it ends with the removal.
            tokio::time::timeout(std::time::Duration::from_secs(30), async {
                while names(home.host("workspace")) != ["old"] {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .unwrap();
            assert_eq!(std::fs::read(home.host("workspace/old")).unwrap(), b"old");
        }
    }
}

#[tokio::test]
async fn over_the_limit_nothing_changes() {
    let home = Home::new();
    home.put("workspace/old", "old");
    let table = Arc::new(home.files.table().clone());
    let small = Workspace::new(table, Limits { max_write: Some(1000) });
    for mode in MODES {
        for (name, size, fits) in [("old", 1001, false), ("x/new", 5000, false), ("fits", 1000, true)] {
            if mode == WriteMode::CreateNew && name == "old" {
                continue;
            }
            let (sender, stream) = mpsc::channel(100);
            for piece in vec![1; size].chunks(64) {
                sender.send(Ok(Bytes::copy_from_slice(piece))).await.unwrap();
            }
            drop(sender);
            let result = small.write(&path(&format!("{WS}/{name}")), stream, options(mode)).await;
            if fits {
                assert_eq!(result.unwrap(), 1000);
                std::fs::remove_file(home.host("workspace/fits")).unwrap();
            } else {
                let error = result.unwrap_err();
                assert_eq!(error.code(), Code::TooLarge);
                let (size, limit) = error.size_and_limit().unwrap();
                assert!(size > 1000 && limit == 1000, "{size} {limit}");
            }
            assert_eq!(names(home.host("workspace")), ["old"]);
            assert_eq!(std::fs::read(home.host("workspace/old")).unwrap(), b"old");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_all_land_whole() {
    let home = Arc::new(Home::new());
    let mut tasks = Vec::new();
    for writer in 0..8_u8 {
        let home = Arc::clone(&home);
        tasks.push(tokio::spawn(async move {
            for n in 0..50 {
                let line = format!("{writer} {n} {}\n", "x".repeat(20_000));
                home.write_as(&format!("{WS}/log"), line.as_bytes(), WriteMode::Append).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let text = std::fs::read_to_string(home.host("workspace/log")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.ends_with(&format!(" {}", "x".repeat(20_000)))));
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 400);
}

#[tokio::test]
async fn large_appends_arrive_in_order() {
    let home = Home::new();
    home.put("workspace/f", "head");
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    home.write_as(&format!("{WS}/f"), &content, WriteMode::Append).await.unwrap();
    let read = home.read(&format!("{WS}/f")).await.unwrap();
    assert_eq!(&read[..4], b"head");
    assert!(read[4..] == content);
    assert_eq!(names(home.host("workspace")), ["f"]);
}
