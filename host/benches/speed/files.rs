//! Files: a large one against `cat` and `cp`, and a search of many against ripgrep.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use sandgate::config::MountConfig;
use sandgate::values::{CHUNK_SIZE, GrepOptions, MAX_RESULTS, ReadRange, STREAM_DEPTH, WriteOptions};
use sandgate::{Gateway, Sandbox};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::table::{Table, in_turn};
use super::{config, sandbox};

const GIB: usize = 1 << 30;
const ROUNDS: usize = 5;
const FILES: usize = 50_000;

pub(crate) async fn rows(table: &mut Table) {
    let data = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let mut config = config(state.path());
    config.mounts.push(MountConfig {
        host_path: data.path().canonicalize().unwrap(),
        container_path: "/mnt/data".into(),
        read_only: false,
    });
    let gateway = Gateway::open(config).await.unwrap();
    let sandbox = sandbox(&gateway, "bench").await;
    large(table, &sandbox, data.path()).await;
    search(table, &sandbox, data.path()).await;
    gateway.shutdown().await;
}

async fn large(table: &mut Table, sandbox: &Sandbox, data: &Path) {
    let (read, write) = ("read a 1 GiB file", "write a 1 GiB file");
    if !table.wants(read) && !table.wants(write) {
        return;
    }
    let (source, copy) = (data.join("source"), data.join("copy"));
    let piece = Bytes::from(vec![7_u8; CHUNK_SIZE]);
    std::fs::write(&source, vec![7_u8; GIB]).unwrap();
    if table.wants(read) {
        let path = sandbox.path("/mnt/data/source").unwrap();
        let (ours, theirs) = in_turn(
            ROUNDS,
            || async {
                let mut content = sandbox.read_file(&path, ReadRange::All).await.unwrap();
                let mut size = 0;
                while let Some(piece) = content.data.recv().await {
                    size += piece.unwrap().len();
                }
                assert_eq!(size, GIB);
            },
            || async {
                // With nobody to read from it, it is as fast as it can be.
                let mut command = Command::new("cat");
                assert!(command.arg(&source).stdout(Stdio::null()).status().await.unwrap().success());
            },
        )
        .await;
        table.speed(read, &ours, &theirs, 0.6);
    }
    if table.wants(write) {
        let path = sandbox.path("/mnt/data/written").unwrap();
        let (ours, theirs) = in_turn(
            ROUNDS,
            || async {
                let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
                let piece = piece.clone();
                tokio::spawn(async move {
                    for _ in 0..GIB / CHUNK_SIZE {
                        sender.send(Ok(piece.clone())).await.unwrap();
                    }
                });
                assert_eq!(sandbox.write_file(&path, receiver, WriteOptions::default()).await.unwrap(), GIB as u64);
                sandbox.remove(&path, false).await.unwrap();
            },
            || async {
                // Without sharing blocks between the files, which would copy nothing.
                let mut command = Command::new("cp");
                assert!(command.arg("--reflink=never").arg(&source).arg(&copy).status().await.unwrap().success());
                std::fs::remove_file(&copy).unwrap();
            },
        )
        .await;
        table.speed(write, &ours, &theirs, 0.6);
    }
    std::fs::remove_file(&source).unwrap();
}

async fn search(table: &mut Table, sandbox: &Sandbox, data: &Path) {
    let name = "grep 50,000 files";
    if !table.wants(name) {
        return;
    }
    let tree = data.join("tree");
    for file in 0..FILES {
        let folder = tree.join(format!("{}/{}", file % 100, file % 7));
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = format!("// file {file}\nfn main() {{\n    let value = {};\n", file * 31 % 997);
        for line in 0..20 {
            text.push_str(&format!("    call({line}, \"{}\");\n", (file * line) % 101));
        }
        std::fs::write(folder.join(format!("{file}.rs")), text).unwrap();
    }
    let pattern = "value = 4[0-9]{2};";
    let root = sandbox.path("/mnt/data/tree").unwrap();
    let options = || GrepOptions {
        case_sensitive: true,
        skip_ignored: false,
        max_results: MAX_RESULTS,
        ..GrepOptions::default()
    };
    let rg = || {
        let mut command = Command::new("rg");
        command.args(["--no-config", "--hidden", "--no-ignore", "--no-heading", "-n", "-e", pattern, "."]);
        command.current_dir(&tree);
        command
    };
    let found = sandbox.grep(&root, pattern, options()).await.unwrap();
    let ours: BTreeSet<String> = found
        .matches
        .iter()
        .map(|found| format!("{}:{}:{}", found.path.replacen("/mnt/data/tree", ".", 1), found.line_number, found.line))
        .collect();
    let output = rg().output().await.unwrap();
    let theirs: BTreeSet<String> = String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect();
    assert!(!found.truncated && !ours.is_empty() && ours == theirs, "the matches differ from ripgrep's");
    let (ours, theirs) = in_turn(
        ROUNDS,
        || async {
            sandbox.grep(&root, pattern, options()).await.unwrap();
        },
        || async {
            assert!(rg().output().await.unwrap().status.success());
        },
    )
    .await;
    table.time(name, &ours, &theirs, 1.5);
}
