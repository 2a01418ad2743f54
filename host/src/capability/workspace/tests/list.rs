//! Listing directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Home, path};
use crate::error::Code;
use crate::values::{FileKind, ListOptions};

const WS: &str = "/mnt/user-data/workspace";

async fn list(home: &Home, options: ListOptions) -> Vec<String> {
    let listing = home.files.list_dir(&path(WS), options).await.unwrap();
    listing.entries.into_iter().map(|entry| entry.path.trim_start_matches(WS).to_owned()).collect()
}

#[tokio::test]
async fn depth_order_and_kinds() {
    let home = Home::new();
    home.put("workspace/b/c/d", "1234");
    home.put("workspace/a", "12");
    home.put("workspace/.hidden", "");
    home.put("workspace/b-c", "");
    home.link("a", "workspace/link");
    home.link("b", "workspace/dirlink");
    let depth = |max_depth| ListOptions { max_depth, ..ListOptions::default() };
    let one = ["/.hidden", "/a", "/b", "/b-c", "/dirlink", "/link"];
    assert_eq!(list(&home, depth(1)).await, one);
    assert_eq!(list(&home, depth(2)).await, ["/.hidden", "/a", "/b", "/b-c", "/b/c", "/dirlink", "/link"]);
    assert_eq!(list(&home, depth(64)).await, ["/.hidden", "/a", "/b", "/b-c", "/b/c", "/b/c/d", "/dirlink", "/link"]);
    let all = home.files.list_dir(&path(WS), depth(64)).await.unwrap();
    let of = |name: &str| all.entries.iter().find(|entry| entry.path == format!("{WS}/{name}")).unwrap();
    assert_eq!((of("a").kind, of("a").size), (FileKind::File, 2));
    assert_eq!((of("b").kind, of("b").size), (FileKind::Directory, 0));
    assert_eq!((of("link").kind, of("link").size), (FileKind::Symlink, 0));
    assert_eq!((all.truncated, all.skipped), (false, 0));
    // The root itself may be a link; paths are then below what the caller named.
    let linked = home.files.list_dir(&path(&format!("{WS}/dirlink")), depth(1)).await.unwrap();
    assert_eq!(linked.entries[0].path, format!("{WS}/dirlink/c"));
}

#[tokio::test]
async fn limits_and_roots() {
    let home = Home::new();
    home.put("workspace/d/c/x", "");
    home.put("workspace/a/b", "");
    let limited = |limit| ListOptions { limit, max_depth: 5, ..ListOptions::default() };
    let four = home.files.list_dir(&path(WS), limited(4)).await.unwrap();
    assert_eq!(
        four.entries.iter().map(|entry| &entry.path[WS.len()..]).collect::<Vec<_>>(),
        ["/a", "/a/b", "/d", "/d/c"]
    );
    assert!(four.truncated);
    assert!(!home.files.list_dir(&path(WS), limited(5)).await.unwrap().truncated);
    let at = format!("{WS}/a/b");
    home.check(home.files.list_dir(&path(&at), limited(5)).await, Code::NotADirectory, &at);
    home.check(home.files.list_dir(&path(WS), limited(0)).await, Code::InvalidArgument, "limit");
    home.check(home.files.list_dir(&path(WS), limited(100_001)).await, Code::InvalidArgument, "limit");
    let deep = ListOptions { max_depth: 65, ..ListOptions::default() };
    home.check(home.files.list_dir(&path(WS), deep).await, Code::InvalidArgument, "depth");
}

#[tokio::test]
async fn ignored_names_count_below_the_root_only() {
    let home = Home::new();
    home.put("workspace/build/src/node_modules/x", "");
    home.put("workspace/build/src/a.log", "");
    home.put("workspace/build/src/a", "");
    let options = ListOptions { max_depth: 9, skip_ignored: true, ..ListOptions::default() };
    assert!(list(&home, options).await.is_empty());
    let below = home.files.list_dir(&path(&format!("{WS}/build")), options).await.unwrap();
    let paths: Vec<_> = below.entries.iter().map(|entry| &entry.path[WS.len()..]).collect();
    assert_eq!(paths, ["/build/src", "/build/src/a"]);
    assert_eq!(list(&home, ListOptions { skip_ignored: false, ..options }).await.len(), 6);
}

#[tokio::test]
async fn names_that_are_not_utf8_are_counted() {
    let home = Home::new();
    home.put("workspace/ok", "needle");
    let bad = home.host("workspace").join(OsStr::from_bytes(b"bad\xff"));
    std::fs::create_dir(&bad).unwrap();
    std::fs::write(bad.join("inner"), "needle").unwrap();
    std::fs::write(home.host("workspace").join(OsStr::from_bytes(b"\xfe.txt")), "needle").unwrap();
    let listing = home.files.list_dir(&path(WS), ListOptions::default()).await.unwrap();
    assert_eq!((listing.entries.len(), listing.skipped), (1, 2));
    let glob = home.files.glob(&path(WS), "**", &Default::default()).await.unwrap();
    assert_eq!((glob.paths.len(), glob.skipped), (1, 2));
    let grep = home.files.grep(&path(WS), "needle", &Default::default()).await.unwrap();
    assert_eq!((grep.matches.len(), grep.skipped), (1, 2));
}
