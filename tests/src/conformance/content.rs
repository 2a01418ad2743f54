//! Reading: what was written comes back, whole or in parts.

use sandgate::Sandbox;
use sandgate::values::{FileKind, ReadRange, WriteOptions};

use crate::support::{Subject, all_kinds_of_bytes, sh, text};

const LIMIT: u64 = 64 << 20;

async fn read(sandbox: &Sandbox, path: &str, range: ReadRange) -> String {
    text(&sandbox.read(&sandbox.path(path).unwrap(), range, LIMIT).await.unwrap())
}

/// Every content comes back as it was written, and is what commands see.
pub async fn every_kind_of_byte_comes_back(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for (name, bytes) in all_kinds_of_bytes() {
        let path = sandbox.path("content").unwrap();
        let written = sandbox.write(&path, bytes.clone(), WriteOptions::default()).await.unwrap();
        assert_eq!(written, bytes.len() as u64, "{name}");
        let back = sandbox.read(&path, ReadRange::All, LIMIT).await.unwrap();
        assert!(back == bytes, "{name}: {} of {} bytes, or others", back.len(), bytes.len());
        assert_eq!(sandbox.stat(&path).await.unwrap().size, bytes.len() as u64, "{name}");
        // The other way round: a command writes it, and it is read.
        sh(&sandbox, "cat content > copy; cmp content copy").await;
        let copy = sandbox.read(&sandbox.path("copy").unwrap(), ReadRange::All, LIMIT).await.unwrap();
        assert!(copy == bytes, "{name}");
    }
}

/// Ranges of bytes; past the end there is nothing, and that is no error.
pub async fn ranges_of_bytes(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "printf 0123456789 > ten; : > empty; head -c 200000 /dev/zero > zeros; printf end >> zeros").await;
    for (offset, length, expected) in [
        (0, None, "0123456789"),
        (0, Some(4), "0123"),
        (3, Some(4), "3456"),
        (3, None, "3456789"),
        (9, Some(1), "9"),
        (8, Some(100), "89"),
        (0, Some(0), ""),
        (10, None, ""),
        (10, Some(5), ""),
        (11, Some(5), ""),
        (1 << 40, Some(5), ""),
        (u64::MAX, Some(u64::MAX), ""),
        (2, Some(u64::MAX), "23456789"),
    ] {
        let range = ReadRange::Bytes { offset, length };
        assert_eq!(read(&sandbox, "ten", range).await, expected, "{range:?}");
    }
    assert_eq!(read(&sandbox, "empty", ReadRange::Bytes { offset: 0, length: None }).await, "");
    assert_eq!(read(&sandbox, "zeros", ReadRange::Bytes { offset: 199_999, length: Some(3) }).await, "\0en");
}

/// Ranges of lines, both ends included; the last line may lack its end.
pub async fn ranges_of_lines(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "printf 'a\\nb\\r\\n\\nd\\ne' > five; printf 'a\\nb\\n' > two; : > empty; seq 100000 > many").await;
    for (file, start, end, expected) in [
        ("five", 1, None, "a\nb\r\n\nd\ne"),
        ("five", 1, Some(1), "a\n"),
        ("five", 2, Some(3), "b\r\n\n"),
        ("five", 4, None, "d\ne"),
        ("five", 5, Some(5), "e"),
        ("five", 5, Some(99), "e"),
        ("five", 6, None, ""),
        ("five", 1 << 40, None, ""),
        ("five", 3, Some(2), ""),
        ("two", 2, None, "b\n"),
        ("two", 3, None, ""),
        ("two", 1, Some(u64::MAX), "a\nb\n"),
        ("empty", 1, None, ""),
        ("many", 50_000, Some(50_002), "50000\n50001\n50002\n"),
        ("many", 100_000, None, "100000\n"),
    ] {
        let range = ReadRange::Lines { start, end };
        assert_eq!(read(&sandbox, file, range).await, expected, "{file} {range:?}");
    }
    let error = sandbox.read(&sandbox.path("two").unwrap(), ReadRange::Lines { start: 0, end: None }, 9).await;
    assert_eq!(error.unwrap_err().code(), sandgate::Code::InvalidArgument);
}

/// Kind, size and mode of what a path names, not of what a link there leads to.
pub async fn a_stat_says_what_a_path_is(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(
        &sandbox,
        "printf 12345 > file; chmod 640 file; mkdir dir; chmod 750 dir; ln -s file link; ln -s gone broken; mkfifo fifo; \
         : > program; chmod 4755 program",
    )
    .await;
    for (path, kind, size, mode) in [
        ("file", FileKind::File, 5, Some(0o640)),
        ("dir", FileKind::Directory, 0, Some(0o750)),
        ("link", FileKind::Symlink, 0, None),
        ("broken", FileKind::Symlink, 0, None),
        ("fifo", FileKind::Other, 0, None),
        ("program", FileKind::File, 0, Some(0o4755)),
        (".", FileKind::Directory, 0, None),
    ] {
        let stat = sandbox.stat(&sandbox.path(path).unwrap()).await.unwrap();
        assert_eq!((stat.kind, stat.size, stat.read_only), (kind, size, false), "{path}");
        assert!(mode.is_none_or(|mode| stat.mode == mode), "{path}: {:o}", stat.mode);
        let modified = stat.modified_ms.expect("this backend's files have times");
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
        assert!(u128::from(modified) <= now + 5000 && u128::from(modified) + 600_000 > now, "{path}: {modified}");
    }
    let content = sandbox.read_file(&sandbox.path("link").unwrap(), ReadRange::All).await.unwrap();
    assert_eq!((content.stat.kind, content.stat.size), (FileKind::File, 5), "reading follows a link");
}
