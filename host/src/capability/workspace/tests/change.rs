//! Removing and making directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::super::blocking::Cancel;
use super::super::change::{Stack, empty};
use super::super::roots::Marks;
use super::{Home, names, path};
use crate::error::Code;

const WS: &str = "/mnt/user-data/workspace";

#[tokio::test]
async fn directories_are_made_with_their_parents() {
    let home = Home::new();
    for _ in 0..2 {
        home.files.make_dir(&path(&format!("{WS}/a/b/c"))).await.unwrap();
        assert!(home.host("workspace/a/b/c").is_dir());
    }
    home.files.make_dir(&path(WS)).await.unwrap();
    home.put("workspace/f", "x");
    for name in ["f", "f/x"] {
        let at = format!("{WS}/{name}");
        home.check(home.files.make_dir(&path(&at)).await, Code::NotADirectory, &at);
    }
}

#[tokio::test]
async fn only_what_is_named_is_removed() {
    let home = Home::new();
    for file in ["f", "full/a/b", "full/c", "keep"] {
        home.put(&format!("workspace/{file}"), "x");
    }
    std::fs::create_dir(home.host("workspace/empty")).unwrap();
    let remove = async |name: &str, recursive| home.files.remove(&path(&format!("{WS}/{name}")), recursive).await;
    home.check(remove("full", false).await, Code::AlreadyExists, "/full");
    for (name, recursive) in [("f", false), ("empty", false), ("full", true)] {
        remove(name, recursive).await.unwrap();
    }
    assert_eq!(names(home.host("workspace")), ["keep"]);
    home.check(remove("f", false).await, Code::NotFound, "/f");
    remove("keep", true).await.unwrap();
}

#[test]
fn a_removal_remembers_few_directories_and_misses_none() {
    // A directory takes some 50 bytes.
    for (limit, at_most) in [(usize::MAX, usize::MAX), (4000, 5000), (1, 1000)] {
        let temp = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::create_dir_all(temp.path().join(format!("{number}/deeper/still"))).unwrap();
            std::fs::create_dir_all(temp.path().join(format!("7/{number}"))).unwrap();
            std::fs::write(temp.path().join(format!("7/{number}/f")), "x").unwrap();
            std::fs::write(temp.path().join(format!("f{number}")), "x").unwrap();
        }
        let top = std::fs::File::open(temp.path()).unwrap().into();
        let mut pending = Stack::new(limit);
        empty(&top, &Marks::default(), &path(WS), &Cancel::default(), &mut pending).unwrap();
        assert!(names(temp.path()).is_empty(), "{limit}");
        assert!(pending.peak <= at_most, "{} bytes with a limit of {limit}", pending.peak);
    }
}

#[tokio::test]
async fn links_are_removed_and_their_targets_kept() {
    let home = Home::new();
    home.put("outside/keep", "x");
    home.put("outputs/keep", "x");
    home.put("workspace/d/x", "x");
    home.link(home.host("outside"), "workspace/d/out");
    home.link("/mnt/user-data/outputs", "workspace/link");
    home.link("missing", "workspace/dangling");
    for name in ["link", "dangling", "d"] {
        home.files.remove(&path(&format!("{WS}/{name}")), true).await.unwrap();
    }
    assert!(names(home.host("workspace")).is_empty());
    assert_eq!((names(home.host("outside")), names(home.host("outputs"))), (vec!["keep".into()], vec!["keep".into()]));
}

#[tokio::test]
async fn mounts_are_not_removed() {
    let home = Home::new();
    home.put("workspace/f", "x");
    for at in [WS, "/mnt/user-data", "/mnt", "/"] {
        home.check(home.files.remove(&path(at), true).await, Code::PermissionDenied, at);
    }
    home.check(
        home.files.remove(&path("/mnt/skills/public"), true).await,
        Code::PermissionDenied,
        "/mnt/skills/public",
    );
    assert_eq!(names(home.host("workspace")), ["f"]);
}

#[tokio::test]
async fn deep_and_wide_trees_are_removed() {
    let home = Home::new();
    // Deeper than a process may have files open.
    let deep = "workspace/tree".to_owned() + &"/d".repeat(1500);
    std::fs::create_dir_all(home.host(&deep)).unwrap();
    for n in 0..2000 {
        home.put(&format!("workspace/tree/wide/{n}"), "");
    }
    // A command may make names that no virtual path can hold.
    let odd = home.host("workspace/tree").join(OsStr::from_bytes(b"\xff"));
    std::fs::create_dir_all(odd.join(OsStr::from_bytes(b"\xfe"))).unwrap();
    home.files.remove(&path(&format!("{WS}/tree")), true).await.unwrap();
    assert!(names(home.host("workspace")).is_empty());
}
