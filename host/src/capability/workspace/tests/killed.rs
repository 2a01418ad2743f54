//! A gateway that is killed in the middle of a write.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Home, Limits, Workspace, names, path};
use crate::mounts::{Access, Mount, MountTable};
use crate::values::{WriteMode, WriteOptions};

/// Tells the child where to write, and that it is one.
const DIR: &str = "SANDGATE_TEST_KILLED_WRITE";
const AT: &str = "/mnt/user-data/workspace/new/file";

#[test]
fn a_killed_write_leaves_nothing() {
    for mode in ["Replace", "Append", "CreateNew"] {
        let home = Home::new();
        let old = home.host("workspace/old");
        std::fs::write(&old, "old").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "capability::workspace::tests::killed::writes_for_ever"])
            .env(DIR, home.host("workspace"))
            .env("MODE", mode)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().ends_with("in the middle")), "the child ended too early");
        child.kill().unwrap();
        child.wait().unwrap();
        // The directory was made for the file; nobody is left to take it back, and it is empty.
        assert_eq!(names(home.host("workspace")), ["new", "old"], "{mode}");
        assert_eq!(names(home.host("workspace/new")), Vec::<String>::new(), "{mode}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "old");
    }
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn writes_for_ever() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let at = path("/mnt/user-data/workspace");
    let mount = Mount { at: at.clone(), host: dir.into(), access: Access::ReadWrite };
    let files = Workspace::new(Arc::new(MountTable::new(vec![mount], at).unwrap()), Limits::default());
    let mode = match std::env::var("MODE").unwrap().as_str() {
        "Append" => WriteMode::Append,
        "CreateNew" => WriteMode::CreateNew,
        _ => WriteMode::Replace,
    };
    let (sender, stream) = mpsc::channel(1);
    let feed = tokio::spawn(async move {
        for _ in 0..100 {
            sender.send(Ok(Bytes::from(vec![1; 512 << 10]))).await.unwrap();
        }
        eprintln!("in the middle");
        // Keeps the stream open: the end never comes.
        std::future::pending::<()>().await;
        drop(sender);
    });
    let _ = files.write(&path(AT), stream, WriteOptions { mode, text: false }).await;
    feed.await.unwrap();
}
