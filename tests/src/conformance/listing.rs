//! Listing directories.

use sandgate::Sandbox;
use sandgate::values::{FileKind, ListOptions, Listing};

use crate::support::{Subject, sh};

async fn list(sandbox: &Sandbox, path: &str, options: ListOptions) -> Listing {
    sandbox.list_dir(&sandbox.path(path).unwrap(), options).await.unwrap()
}

/// The paths of a listing, relative to where it began.
fn relative(sandbox: &Sandbox, root: &str, listing: &Listing) -> Vec<String> {
    let root = format!("{}/", sandbox.path(root).unwrap());
    let strip =
        |path: &String| path.strip_prefix(&root).unwrap_or_else(|| panic!("{path} is not below {root}")).to_owned();
    listing.entries.iter().map(|entry| strip(&entry.path)).collect()
}

/// All entries, hidden ones too, sorted by path, with kind and size; not the directory itself.
pub async fn entries_are_sorted_and_whole(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir d; cd d; mkdir sub .hid a; printf 123 > b; : > .h; : > B; : > a-b; : > a.b; : > ü; mkfifo p; ln -s b l",
    )
    .await;
    let listing = list(&sandbox, "d", ListOptions::default()).await;
    let found: Vec<_> = relative(&sandbox, "d", &listing)
        .into_iter()
        .zip(listing.entries.iter().map(|entry| (entry.kind, entry.size)))
        .collect();
    let expected = [
        (".h", FileKind::File, 0),
        (".hid", FileKind::Directory, 0),
        ("B", FileKind::File, 0),
        ("a", FileKind::Directory, 0),
        ("a-b", FileKind::File, 0),
        ("a.b", FileKind::File, 0),
        ("b", FileKind::File, 3),
        ("l", FileKind::Symlink, 0),
        ("p", FileKind::Other, 0),
        ("sub", FileKind::Directory, 0),
        ("ü", FileKind::File, 0),
    ];
    assert_eq!(found, expected.map(|(name, kind, size)| (name.to_owned(), (kind, size))));
    assert_eq!((listing.truncated, listing.skipped), (false, 0));
    assert_eq!(list(&sandbox, "d/sub", ListOptions::default()).await, Listing::default(), "an empty one is empty");
}

/// As deep as asked for, as many as asked for, and it says if there are more.
pub async fn depths_and_limits(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p d/a/b/c d/z; : > d/a/f; : > d/a/b/g; : > d/a/b/c/h").await;
    for (max_depth, expected) in
        [(1, "a z"), (2, "a a/b a/f z"), (3, "a a/b a/b/c a/b/g a/f z"), (64, "a a/b a/b/c a/b/c/h a/b/g a/f z")]
    {
        let listing = list(&sandbox, "d", ListOptions { max_depth, ..ListOptions::default() }).await;
        assert_eq!(relative(&sandbox, "d", &listing).join(" "), expected, "depth {max_depth}");
    }
    // So many, sorted, and the word that there are more; which ones is the provider's choice.
    let everything =
        relative(&sandbox, "d", &list(&sandbox, "d", ListOptions { max_depth: 9, ..ListOptions::default() }).await);
    for (limit, truncated) in [(1, true), (3, true), (6, true), (7, false), (8, false)] {
        let listing = list(&sandbox, "d", ListOptions { max_depth: 9, limit, ..ListOptions::default() }).await;
        let found = relative(&sandbox, "d", &listing);
        assert_eq!((found.len(), listing.truncated), ((limit as usize).min(7), truncated));
        assert!(found.is_sorted() && found.iter().all(|path| everything.contains(path)), "{found:?}");
    }
    sh(&sandbox, "mkdir many; cd many; seq -f 'f%05g' 3000 | xargs touch").await;
    for (limit, truncated) in [(2999, true), (3000, false)] {
        let listing = list(&sandbox, "many", ListOptions { limit, ..ListOptions::default() }).await;
        assert_eq!((listing.entries.len(), listing.truncated), (limit as usize, truncated));
        assert!(listing.entries.is_sorted_by(|a, b| a.path < b.path));
    }
}

/// On request, and never for what lies above the place that was asked about, or is that place.
pub async fn ignored_names_are_left_out_below_the_root_only(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir -p node_modules/m/node_modules .git src; : > .git/x; : > node_modules/m/i.js; : > a.log; : > src/a.rs",
    )
    .await;
    let options = ListOptions { max_depth: 9, skip_ignored: true, ..ListOptions::default() };
    assert_eq!(relative(&sandbox, ".", &list(&sandbox, ".", options).await), ["src", "src/a.rs"]);
    assert_eq!(relative(&sandbox, "node_modules", &list(&sandbox, "node_modules", options).await), ["m", "m/i.js"]);
    assert_eq!(relative(&sandbox, "node_modules/m", &list(&sandbox, "node_modules/m", options).await), ["i.js"]);
    let all = list(&sandbox, ".", ListOptions { skip_ignored: false, ..options }).await;
    assert_eq!(all.entries.len(), 9, "{all:?}");
}

/// A link is an entry; what it leads to is not looked into, so that one that leads back ends.
pub async fn links_are_shown_and_not_followed(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "mkdir -p d/sub other; : > other/file; ln -s .. d/sub/up; ln -s ../other d/other; ln -s gone d/broken",
    )
    .await;
    let listing = list(&sandbox, "d", ListOptions { max_depth: 64, ..ListOptions::default() }).await;
    assert_eq!(relative(&sandbox, "d", &listing), ["broken", "other", "sub", "sub/up"]);
    // The place itself may be reached through one, and its entries have the names that the caller knows.
    let listing = list(&sandbox, "d/other", ListOptions::default()).await;
    assert_eq!(relative(&sandbox, "d/other", &listing), ["file"]);
}
