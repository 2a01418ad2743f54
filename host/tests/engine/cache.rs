//! Compiled components are kept, and only whole ones in a folder of our own are run.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sandgate::engine::EngineOptions;

use crate::support::{Bench, options};

fn with(folder: &Path) -> EngineOptions {
    EngineOptions { cache_dir: Some(folder.to_owned()), max_instances: 2, ..options() }
}

/// Each file with its inode: one that is written anew has another.
fn files(folder: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|file| (file.clone(), (file.metadata().unwrap().ino(), std::fs::read(&file).unwrap()))).collect()
}

#[tokio::test]
async fn the_second_load_compiles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    Bench::hostile(with(&cache)).await.still_works().await;
    let first = files(&cache);
    assert_eq!(first.len(), 1);
    Bench::hostile(with(&cache)).await.still_works().await;
    assert!(files(&cache) == first, "it was written again");
    // An engine with other settings compiles other code.
    let pooling = sandgate::engine::Pooling::Off;
    Bench::hostile(EngineOptions { pooling, stack: 256 << 10, ..with(&cache) }).await.still_works().await;
}

#[tokio::test]
async fn a_damaged_entry_is_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    Bench::hostile(with(&cache)).await.still_works().await;
    let (file, (_, whole)) = files(&cache).pop_first().unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        bytes
    };
    let mut damaged: Vec<Vec<u8>> = (1..8).map(|part| flipped(whole.len() * part / 8)).collect();
    damaged.extend([flipped(0), flipped(40), whole[..whole.len() / 2].to_vec(), whole[..10].to_vec(), Vec::new()]);
    for bytes in damaged {
        std::fs::write(&file, &bytes).unwrap();
        Bench::hostile(with(&cache)).await.still_works().await;
        let mended = std::fs::read(&file).unwrap();
        assert!(mended != bytes && mended.len() == whole.len(), "it was not compiled again");
    }
}

#[tokio::test]
async fn a_folder_that_others_can_enter_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    Bench::hostile(with(&cache)).await.still_works().await;
    assert!(files(&cache).is_empty());
}

#[tokio::test]
async fn a_folder_of_another_user_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make one.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&cache, Some(65_534), None).unwrap();
    Bench::hostile(with(&cache)).await.still_works().await;
    assert!(files(&cache).is_empty());
}
