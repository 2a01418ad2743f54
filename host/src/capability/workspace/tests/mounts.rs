//! Nested mounts, read-only ones, and directories that exist only in the sandbox's view.

use super::{Home, names, path};
use crate::error::Code;
use crate::mounts::Access::{ReadOnly, ReadWrite};
use crate::values::{FileKind, GlobOptions, GrepOptions, ListOptions, WriteMode};

#[tokio::test]
async fn read_only_mounts_refuse_every_change() {
    let home = Home::new();
    home.put("skills/a/SKILL.md", "skill");
    let at = "/mnt/skills/public/a/SKILL.md";
    assert_eq!(home.read(at).await.unwrap(), b"skill");
    assert!(home.files.stat(&path(at)).await.unwrap().read_only);
    for mode in [WriteMode::Replace, WriteMode::Append, WriteMode::CreateNew] {
        home.check(home.write_as(at, b"x", mode).await, Code::ReadOnly, at);
    }
    home.check(home.files.remove(&path(at), true).await, Code::ReadOnly, at);
    home.check(home.files.make_dir(&path("/mnt/skills/public/b")).await, Code::ReadOnly, "/mnt/skills/public/b");
    assert_eq!(names(home.host("skills")), ["a"]);
}

#[tokio::test]
async fn nothing_is_taken_from_the_stream_for_a_read_only_mount() {
    let home = Home::new();
    let (_sender, stream) = tokio::sync::mpsc::channel(1);
    // The stream never ends: only a refusal before it is read can come back.
    let result = home.files.write(&path("/mnt/skills/public/x"), stream, Default::default()).await;
    home.check(result, Code::ReadOnly, "/mnt/skills/public/x");
}

#[tokio::test]
async fn a_link_does_not_make_a_nested_read_only_mount_writable() {
    let home = Home::with(&[("/mnt/repo", "repo", ReadWrite), ("/mnt/repo/protected", "repo/protected", ReadOnly)]);
    home.put("repo/protected/a", "old");
    home.link("protected", "repo/link");
    home.link("/mnt/repo/protected/a", "repo/file");
    for at in ["/mnt/repo/protected/a", "/mnt/repo/link/a", "/mnt/repo/file", "/mnt/repo/link/sub/new"] {
        home.check(home.write(at, b"new").await, Code::ReadOnly, at);
    }
    home.check(home.files.remove(&path("/mnt/repo/link/a"), false).await, Code::ReadOnly, "/mnt/repo/link/a");
    assert!(home.files.stat(&path("/mnt/repo/link/a")).await.unwrap().read_only);
    assert_eq!(names(home.host("repo/protected")), ["a"]);
    assert_eq!(home.read("/mnt/repo/link/a").await.unwrap(), b"old");
}

#[tokio::test]
async fn a_read_only_mount_stays_so_through_a_link_to_a_writable_one() {
    let home = Home::new();
    home.put("workspace/a", "old");
    home.link("/mnt/user-data/workspace/a", "skills/link");
    home.check(home.write("/mnt/skills/public/link", b"x").await, Code::ReadOnly, "/mnt/skills/public/link");
    assert_eq!(home.read("/mnt/skills/public/link").await.unwrap(), b"old");
}

#[tokio::test]
async fn a_read_only_directory_stays_so_when_another_mount_contains_it_on_the_host() {
    // The skills lie in the writable mount's directory, under a name that no mount has there.
    let home = Home::with(&[
        ("/mnt/data", "data", ReadWrite),
        ("/mnt/skills", "data/hidden/skills", ReadOnly),
        ("/mnt/skills/drafts", "data/hidden/skills/drafts", ReadWrite),
    ]);
    home.put("data/hidden/skills/a", "old");
    for at in ["/mnt/data/hidden/skills/a", "/mnt/data/hidden/skills/new/x"] {
        home.check(home.write(at, b"new").await, Code::ReadOnly, at);
    }
    let at = "/mnt/data/hidden/skills/a";
    home.check(home.files.remove(&path(at), false).await, Code::ReadOnly, at);
    let at = "/mnt/data/hidden";
    home.check(home.files.remove(&path(at), true).await, Code::PermissionDenied, at);
    home.write("/mnt/data/hidden/skills/drafts/x", b"x").await.unwrap();
    home.write("/mnt/data/hidden/y", b"y").await.unwrap();
    assert_eq!(names(home.host("data/hidden/skills")), ["a", "drafts"]);
}

#[tokio::test]
async fn a_writable_mount_in_a_read_only_one_is_writable() {
    let home = Home::with(&[("/mnt/s", "s", ReadOnly), ("/mnt/s/drafts", "s/drafts", ReadWrite)]);
    home.write("/mnt/s/drafts/a/b", b"x").await.unwrap();
    home.check(home.write("/mnt/s/a", b"x").await, Code::ReadOnly, "/mnt/s/a");
    assert_eq!(home.read("/mnt/s/drafts/a/b").await.unwrap(), b"x");
}

#[tokio::test]
async fn what_a_nested_mount_covers_is_not_seen() {
    let home = Home::with(&[("/mnt/a", "a", ReadWrite), ("/mnt/a/sub", "elsewhere", ReadWrite)]);
    home.put("a/sub/covered.txt", "needle");
    home.put("elsewhere/visible.txt", "needle");
    home.link("sub", "a/link");
    let root = path("/mnt/a");
    let glob = home.files.glob(&root, "*.txt", &GlobOptions::default()).await.unwrap();
    assert_eq!(glob.paths, ["/mnt/a/sub/visible.txt"]);
    let grep = home.files.grep(&root, "needle", &GrepOptions::default()).await.unwrap();
    assert_eq!(grep.matches.iter().map(|found| &found.path).collect::<Vec<_>>(), ["/mnt/a/sub/visible.txt"]);
    let options = ListOptions { max_depth: 3, ..ListOptions::default() };
    let list = home.files.list_dir(&root, options).await.unwrap();
    let paths: Vec<_> = list.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/mnt/a/link", "/mnt/a/sub", "/mnt/a/sub/visible.txt"]);
    home.check(home.read("/mnt/a/link/covered.txt").await, Code::NotFound, "/mnt/a/link/covered.txt");
    assert_eq!(home.read("/mnt/a/link/visible.txt").await.unwrap(), b"needle");
}

#[tokio::test]
async fn parents_of_mounts_are_directories() {
    let home = Home::new();
    home.put("skills/s/SKILL.md", "needle");
    home.put("workspace/w.md", "needle");
    for at in ["/", "/mnt", "/mnt/skills", "/mnt/user-data"] {
        let stat = home.files.stat(&path(at)).await.unwrap();
        assert_eq!((stat.kind, stat.read_only), (FileKind::Directory, true), "{at}");
        home.check(home.read(at).await, Code::IsADirectory, at);
        home.check(home.write(at, b"x").await, Code::IsADirectory, at);
        home.check(home.files.remove(&path(at), true).await, Code::PermissionDenied, at);
        home.files.make_dir(&path(at)).await.unwrap();
    }
    let list = home.files.list_dir(&path("/mnt"), ListOptions::default()).await.unwrap();
    assert_eq!(list.entries.iter().map(|entry| &entry.path).collect::<Vec<_>>(), ["/mnt/skills", "/mnt/user-data"]);
    let list = home.files.list_dir(&path("/"), ListOptions { max_depth: 3, ..ListOptions::default() }).await.unwrap();
    let paths: Vec<_> = list.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/mnt",
            "/mnt/skills",
            "/mnt/skills/public",
            "/mnt/user-data",
            "/mnt/user-data/outputs",
            "/mnt/user-data/workspace"
        ]
    );
    for at in ["/mnt", "/"] {
        let glob = home.files.glob(&path(at), "*.md", &GlobOptions::default()).await.unwrap();
        assert_eq!(glob.paths, ["/mnt/skills/public/s/SKILL.md", "/mnt/user-data/workspace/w.md"], "{at}");
        let grep = home.files.grep(&path(at), "NEEDLE", &GrepOptions::default()).await.unwrap();
        assert_eq!(grep.matches.len(), 2, "{at}");
    }
}

#[tokio::test]
async fn a_mount_shows_below_a_directory_that_the_host_lacks() {
    let home = Home::with(&[("/mnt/a", "a", ReadWrite), ("/mnt/a/x/y", "y", ReadOnly), ("/mnt/a/f/z", "z", ReadOnly)]);
    home.put("y/file", "here");
    home.put("a/f", "a file where the sandbox sees a directory");
    let stat = home.files.stat(&path("/mnt/a/x")).await.unwrap();
    assert_eq!(stat.kind, FileKind::Directory);
    let list =
        home.files.list_dir(&path("/mnt/a"), ListOptions { max_depth: 9, ..ListOptions::default() }).await.unwrap();
    let paths: Vec<_> = list.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/mnt/a/f", "/mnt/a/f/z", "/mnt/a/x", "/mnt/a/x/y", "/mnt/a/x/y/file"]);
    let list = home.files.list_dir(&path("/mnt/a/x"), ListOptions::default()).await.unwrap();
    assert_eq!(list.entries.len(), 1);
    home.check(home.write("/mnt/a/x", b"file").await, Code::IsADirectory, "/mnt/a/x");
}

#[tokio::test]
async fn a_mount_point_that_became_a_link_is_refused() {
    let home =
        Home::with(&[("/mnt/user-data", "data", ReadWrite), ("/mnt/user-data/uploads", "data/uploads", ReadWrite)]);
    home.put("outside/secret", "secret");
    std::fs::remove_dir(home.host("data/uploads")).unwrap();
    home.link(home.host("outside"), "data/uploads");
    let error = home.read("/mnt/user-data/uploads/secret").await.unwrap_err();
    assert_eq!(error.code(), Code::PathEscapes, "{error}");
    let error = home.write("/mnt/user-data/uploads/new", b"x").await.unwrap_err();
    assert_eq!(error.code(), Code::PathEscapes, "{error}");
    assert_eq!(names(home.host("outside")), ["secret"]);
}

#[tokio::test]
async fn a_missing_host_directory_is_the_operators_to_mend() {
    let home = Home::new();
    std::fs::remove_dir(home.host("outputs")).unwrap();
    let at = "/mnt/user-data/outputs";
    for result in
        [home.read(&format!("{at}/a")).await.map(|_| ()), home.write(&format!("{at}/a"), b"").await.map(|_| ())]
    {
        home.check(result, Code::NotFound, at);
    }
    // The others still work, and a search says that something was left out.
    home.write("/mnt/user-data/workspace/a", b"x").await.unwrap();
    let glob = home.files.glob(&path("/mnt"), "*", &GlobOptions::default()).await.unwrap();
    assert_eq!((glob.paths.len(), glob.skipped), (1, 1));
}

#[tokio::test]
async fn paths_outside_of_all_mounts_say_where_files_are() {
    let home = Home::new();
    for at in ["/etc/passwd", "/mnt/skills/other/x", "/home"] {
        let error = home.read(at).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(error.to_string().contains("/mnt/user-data/workspace"), "{error}");
        home.check(home.write(at, b"x").await, Code::PermissionDenied, at);
        home.check(home.files.list_dir(&path(at), ListOptions::default()).await, Code::PermissionDenied, at);
    }
}
