//! Reading: every byte as it is, parts of files, and what is no file.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Duration;

use super::{Home, path};
use crate::error::Code;
use crate::values::{FileKind, ReadRange};

const WS: &str = "/mnt/user-data/workspace";
/// Only ends a test that hangs.
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn bytes_come_back_as_they_were_written() {
    let home = Home::new();
    let every: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for content in [&b""[..], b"a", b"\xef\xbb\xbfbom\r\n", b"a\rb\r\r\nc\nd", b"\0\xff\xfe\0", &every] {
        home.write(&format!("{WS}/f"), content).await.unwrap();
        assert_eq!(home.read(&format!("{WS}/f")).await.unwrap(), content);
        assert_eq!(std::fs::read(home.host("workspace/f")).unwrap(), content);
    }
}

#[tokio::test]
async fn odd_names_are_names() {
    let home = Home::new();
    let long = "x".repeat(255);
    for name in ["new\nline", "'\"`", "-rf", "$(touch x)", &long, ".hidden", " ", "*", "ä€😀", "a\\b", "...", "a:b"]
    {
        let at = format!("{WS}/d/{name}");
        home.write(&at, name.as_bytes()).await.unwrap();
        assert_eq!(home.read(&at).await.unwrap(), name.as_bytes());
        assert_eq!(std::fs::read(home.host("workspace/d").join(name)).unwrap(), name.as_bytes());
        let listed = home.files.list_dir(&path(&format!("{WS}/d")), Default::default()).await.unwrap();
        assert_eq!(listed.entries.len(), 1);
        assert_eq!(listed.entries[0].path, at);
        home.files.remove(&path(&at), false).await.unwrap();
        assert_eq!(home.files.stat(&path(&at)).await.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test]
async fn byte_ranges() {
    let home = Home::new();
    home.put("workspace/f", "0123456789");
    for (offset, length, expected) in [
        (0, None, "0123456789"),
        (3, Some(4), "3456"),
        (8, Some(100), "89"),
        (9, None, "9"),
        (10, None, ""),
        (11, Some(1), ""),
        (u64::MAX, None, ""),
        (2, Some(0), ""),
        (1, Some(u64::MAX), "123456789"),
    ] {
        let read = home.read_range(&format!("{WS}/f"), ReadRange::Bytes { offset, length }).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected, "{offset} {length:?}");
    }
}

#[tokio::test]
async fn line_ranges() {
    let home = Home::new();
    home.put("workspace/f", "one\ntwo\r\n\nfour");
    let all = [
        (1, None, "one\ntwo\r\n\nfour"),
        (2, Some(2), "two\r\n"),
        (3, Some(3), "\n"),
        (4, None, "four"),
        (4, Some(9), "four"),
        (5, None, ""),
        (3, Some(2), ""),
        (u64::MAX, Some(u64::MAX), ""),
    ];
    for (start, end, expected) in all {
        let read = home.read_range(&format!("{WS}/f"), ReadRange::Lines { start, end }).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected, "{start} {end:?}");
    }
    let error = home.read_range(&format!("{WS}/f"), ReadRange::Lines { start: 0, end: None }).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_part_of_a_huge_sparse_file() {
    let home = Home::new();
    home.put("workspace/f", "");
    let file = std::fs::OpenOptions::new().write(true).open(home.host("workspace/f")).unwrap();
    let end = 1 << 40;
    file.write_all_at(b"here", end).unwrap();
    let range = ReadRange::Bytes { offset: end - 2, length: Some(5) };
    assert_eq!(home.read_range(&format!("{WS}/f"), range).await.unwrap(), b"\0\0her");
    assert_eq!(home.files.stat(&path(&format!("{WS}/f"))).await.unwrap().size, end + 4);
}

#[tokio::test]
async fn a_long_line_is_never_held_as_a_whole() {
    let home = Home::new();
    let (length, piece) = (100_usize << 20, vec![b'x'; 1 << 20]);
    let file = std::fs::File::create(home.host("workspace/f")).unwrap();
    file.write_all_at(b"first\n", 0).unwrap();
    for n in 0..100_u64 {
        file.write_all_at(&piece, 6 + (n << 20)).unwrap();
    }
    file.write_all_at(b"\nlast\n", 6 + (100 << 20)).unwrap();
    let at = path(&format!("{WS}/f"));
    let mut content = home.files.read(&at, ReadRange::Lines { start: 2, end: Some(2) }).await.unwrap();
    let (mut total, mut largest) = (0, 0);
    while let Some(piece) = content.data.recv().await {
        let piece = piece.unwrap();
        total += piece.len();
        largest = largest.max(piece.len());
    }
    assert_eq!(total, length + 1);
    // What is held is what the stream holds: a few pieces, each far smaller than the line.
    assert!(largest * content.data.max_capacity() <= 1 << 20, "{largest} bytes in one piece");
    let last = home.read_range(at.as_str(), ReadRange::Lines { start: 3, end: None }).await.unwrap();
    assert_eq!(last, b"last\n");
}

#[tokio::test]
async fn a_stream_that_is_not_read_holds_no_thread_and_ends_when_dropped() {
    let home = Home::new();
    home.put("workspace/f", vec![1; 8 << 20]);
    let file = home.host("workspace/f");
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        fds.filter(|fd| std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|target| target == file)).count()
    };
    let at = path(&format!("{WS}/f"));
    // More streams than a runtime has threads for blocking work.
    let mut streams = Vec::new();
    for _ in 0..600 {
        streams.push(home.files.read(&at, ReadRange::All).await.unwrap());
    }
    let read = tokio::time::timeout(DEADLINE, home.read(at.as_str())).await.unwrap().unwrap();
    assert_eq!(read.len(), 8 << 20);
    assert!(open() >= 600);
    drop(streams);
    tokio::time::timeout(DEADLINE, async {
        while open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_no_file_is_refused_at_once() {
    let home = Home::new();
    let fifo = home.host("workspace/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(home.host("workspace/socket")).unwrap();
    std::fs::create_dir(home.host("workspace/dir")).unwrap();
    for (name, code) in
        [("fifo", Code::InvalidArgument), ("socket", Code::InvalidArgument), ("dir", Code::IsADirectory)]
    {
        let at = format!("{WS}/{name}");
        home.check(tokio::time::timeout(DEADLINE, home.read(&at)).await.unwrap(), code, &at);
        for mode in [crate::values::WriteMode::Replace, crate::values::WriteMode::Append] {
            home.check(tokio::time::timeout(DEADLINE, home.write_as(&at, b"x", mode)).await.unwrap(), code, &at);
        }
    }
    let grep = home.files.grep(&path(&format!("{WS}/fifo")), "x", &Default::default()).await;
    home.check(grep, Code::InvalidArgument, "/fifo");
    let grep = tokio::time::timeout(DEADLINE, home.files.grep(&path(WS), "x", &Default::default())).await.unwrap();
    assert_eq!(grep.unwrap().skipped, 0);
    assert_eq!(home.files.stat(&path(&format!("{WS}/fifo"))).await.unwrap().kind, FileKind::Other);
    drop(socket);
}

#[tokio::test]
async fn stat_tells_what_the_file_system_tells() {
    let home = Home::new();
    home.put("workspace/f", "12345");
    std::fs::set_permissions(home.host("workspace/f"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    let modified = std::time::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    std::fs::File::open(home.host("workspace/f")).unwrap().set_modified(modified).unwrap();
    let stat = home.files.stat(&path(&format!("{WS}/f"))).await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode, stat.read_only), (FileKind::File, 5, 0o4751, false));
    assert_eq!(stat.modified_ms, Some(1_234_567_890_123));
    assert_eq!(home.files.read(&path(&format!("{WS}/f")), ReadRange::All).await.unwrap().stat, stat);
    assert_eq!(home.files.stat(&path(WS)).await.unwrap().kind, FileKind::Directory);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let home = Home::new();
    home.put("workspace/f", "x");
    home.put("workspace/\u{fffd}", "not the file with a byte that is no UTF-8");
    std::fs::write(home.host("workspace").join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    for (name, code) in [("missing", Code::NotFound), ("a/b", Code::NotFound), ("f/b", Code::NotADirectory)] {
        let at = format!("{WS}/{name}");
        home.check(home.read(&at).await, code, &at);
        home.check(home.files.stat(&path(&at)).await, code, &at);
        home.check(home.files.list_dir(&path(&at), Default::default()).await, code, &at);
        home.check(home.files.grep(&path(&at), "x", &Default::default()).await, code, &at);
        home.check(home.files.remove(&path(&at), true).await, code, &at);
    }
}
