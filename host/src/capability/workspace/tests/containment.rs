//! No link leads out, for any operation.

use super::{Home, names, path};
use crate::error::Code;
use crate::values::{FileKind, GlobOptions, GrepOptions, ListOptions, WriteMode};

const WS: &str = "/mnt/user-data/workspace";

#[tokio::test]
async fn links_out_of_a_mount_are_refused() {
    let home = Home::new();
    home.put("outside/secret.txt", "secret");
    home.link(home.host("outside/secret.txt"), "workspace/file");
    home.link(home.host("outside"), "workspace/dir");
    home.link("../outside", "workspace/relative");
    home.link("/etc/passwd", "workspace/passwd");
    for name in ["file", "dir/secret.txt", "relative/secret.txt", "passwd", "dir/missing", "dir/x/y"] {
        let at = format!("{WS}/{name}");
        home.check(home.read(&at).await, Code::PathEscapes, &at);
        home.check(home.write(&at, b"new").await, Code::PathEscapes, &at);
        home.check(home.write_as(&at, b"new", WriteMode::Append).await, Code::PathEscapes, &at);
        home.check(home.files.make_dir(&path(&at)).await, Code::PathEscapes, &at);
    }
    for name in ["dir", "relative"] {
        let at = format!("{WS}/{name}");
        home.check(home.files.list_dir(&path(&at), ListOptions::default()).await, Code::PathEscapes, &at);
        home.check(home.files.glob(&path(&at), "*", &GlobOptions::default()).await, Code::PathEscapes, &at);
        home.check(home.files.grep(&path(&at), "s", &GrepOptions::default()).await, Code::PathEscapes, &at);
        let below = format!("{at}/secret.txt");
        home.check(home.files.stat(&path(&below)).await, Code::PathEscapes, &below);
        home.check(home.files.remove(&path(&below), true).await, Code::PathEscapes, &below);
        home.check(home.write_as(&below, b"new", WriteMode::CreateNew).await, Code::PathEscapes, &below);
    }
    assert_eq!(names(home.host("outside")), ["secret.txt"]);
    assert_eq!(std::fs::read(home.host("outside/secret.txt")).unwrap(), b"secret");
}

#[tokio::test]
async fn dangling_links_never_make_their_target_outside() {
    let home = Home::new();
    home.link(home.host("outside/new.txt"), "workspace/link");
    home.link("../outside/new.txt", "workspace/relative");
    for name in ["link", "relative"] {
        let at = format!("{WS}/{name}");
        home.check(home.write(&at, b"x").await, Code::PathEscapes, &at);
        home.check(home.write_as(&at, b"x", WriteMode::Append).await, Code::PathEscapes, &at);
        home.check(home.write_as(&at, b"x", WriteMode::CreateNew).await, Code::AlreadyExists, &at);
        home.check(home.read(&at).await, Code::PathEscapes, &at);
    }
    assert!(names(home.host("outside")).is_empty());
}

#[tokio::test]
async fn a_sibling_with_a_common_prefix_is_outside() {
    let home = Home::new();
    home.put("workspace-extra/secret.txt", "secret");
    home.link("../workspace-extra", "workspace/link");
    home.check(home.read(&format!("{WS}/link/secret.txt")).await, Code::PathEscapes, "/link/secret.txt");
    let at = "/mnt/user-data/workspace-extra/secret.txt";
    home.check(home.read(at).await, Code::PermissionDenied, at);
}

#[tokio::test]
async fn links_are_resolved_as_the_sandbox_sees_them() {
    let home = Home::new();
    home.put("outputs/report.txt", "report");
    home.put("workspace/a/b/file", "here");
    // Absolute targets are virtual; relative ones may lead from mount to mount as their virtual paths do.
    home.link("/mnt/user-data/outputs/report.txt", "workspace/absolute");
    home.link("../outputs", "workspace/sibling");
    home.link("a/b", "workspace/inner");
    home.link("inner/../b/file", "workspace/up");
    for (name, content) in
        [("absolute", "report"), ("sibling/report.txt", "report"), ("inner/file", "here"), ("up", "here")]
    {
        let read = home.read(&format!("{WS}/{name}")).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), content, "{name}");
    }
    // A write goes through a link like a read.
    home.write(&format!("{WS}/sibling/new.txt"), b"new").await.unwrap();
    home.write(&format!("{WS}/absolute"), b"changed").await.unwrap();
    assert_eq!(std::fs::read(home.host("outputs/new.txt")).unwrap(), b"new");
    assert_eq!(std::fs::read(home.host("outputs/report.txt")).unwrap(), b"changed");
    assert!(home.host("workspace/absolute").is_symlink());
    // Through a dangling link that stays inside, the target is made.
    home.link("/mnt/user-data/outputs/later/x", "workspace/later");
    home.write(&format!("{WS}/later"), b"x").await.unwrap();
    assert_eq!(std::fs::read(home.host("outputs/later/x")).unwrap(), b"x");
}

#[tokio::test]
async fn links_in_circles_end() {
    let home = Home::new();
    home.link("b", "workspace/a");
    home.link("a", "workspace/b");
    home.link("self/x", "workspace/self");
    for name in ["a", "b/c", "self"] {
        let at = format!("{WS}/{name}");
        home.check(home.read(&at).await, Code::PathEscapes, &at);
        home.check(home.write(&at, b"x").await, Code::PathEscapes, &at);
    }
    // A long chain is fine up to Linux's own limit.
    home.put("workspace/end", "end");
    home.link("end", "workspace/l1");
    for n in 2..=41 {
        home.link(format!("l{}", n - 1), &format!("workspace/l{n}"));
    }
    assert_eq!(home.read(&format!("{WS}/l40")).await.unwrap(), b"end");
    let at = format!("{WS}/l41");
    home.check(home.read(&at).await, Code::PathEscapes, &at);
}

#[tokio::test]
async fn magic_links_are_refused() {
    let home = Home::with(&[("/mnt/proc", "workspace", crate::mounts::Access::ReadWrite)]);
    home.link("/proc/self/root/etc/passwd", "workspace/root");
    home.link("/proc/self/fd/0", "workspace/fd");
    for at in ["/mnt/proc/root", "/mnt/proc/fd"] {
        home.check(home.read(at).await, Code::PathEscapes, at);
    }
}

#[tokio::test]
async fn stat_describes_a_link_itself() {
    let home = Home::new();
    home.link("/etc/passwd", "workspace/link");
    let stat = home.files.stat(&path(&format!("{WS}/link"))).await.unwrap();
    assert_eq!((stat.kind, stat.size), (FileKind::Symlink, 0));
}

#[tokio::test]
async fn searches_do_not_follow_links() {
    let home = Home::new();
    home.put("outside/secret.txt", "needle");
    home.put("workspace/in/a.txt", "needle");
    home.link(home.host("outside"), "workspace/dir");
    home.link(home.host("outside/secret.txt"), "workspace/file.txt");
    home.link("in/a.txt", "workspace/inner.txt");
    let root = path(WS);
    let found = home.files.grep(&root, "needle", &GrepOptions::default()).await.unwrap();
    let paths: Vec<_> = found.matches.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(paths, [format!("{WS}/in/a.txt")]);
    let options = ListOptions { max_depth: 8, ..ListOptions::default() };
    let listed = home.files.list_dir(&root, options).await.unwrap();
    assert!(listed.entries.iter().all(|entry| !entry.path.contains("secret")), "{listed:?}");
    let link = listed.entries.iter().find(|entry| entry.path.ends_with("/dir")).unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    let globbed = home.files.glob(&root, "**/secret.txt", &GlobOptions::default()).await.unwrap();
    assert!(globbed.paths.is_empty(), "{globbed:?}");
}
