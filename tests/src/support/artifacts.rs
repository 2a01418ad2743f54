//! What was built before the tests: components and the program itself.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// `TARGET/debug` (or `release`): where the running test lies in `deps`.
pub fn target_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
}

/// A component by its name: `local` comes from `$SANDGATE_PROVIDERS`, all others are test guests.
pub fn component(name: &str) -> PathBuf {
    let (variable, folder) =
        if name == "local" { ("SANDGATE_PROVIDERS", "providers") } else { ("SANDGATE_TEST_GUESTS", "test-guests") };
    let folder = std::env::var_os(variable).map_or_else(|| target_dir().join(folder), PathBuf::from);
    built(folder.join(format!("{name}.wasm")))
}

/// The `sandgate` program.
pub(super) fn program() -> PathBuf {
    built(target_dir().join("sandgate"))
}

/// Where compiled components are kept, one place for all tests of a build: each is compiled once.
pub(super) fn cache_dir() -> PathBuf {
    place().join("sandgate-cache")
}

/// `TARGET/tmp`.
fn place() -> PathBuf {
    let place = target_dir().parent().unwrap_or(Path::new("/")).join("tmp");
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// A directory of a test's own, in a place that no sandbox has: not below `/tmp`, which sandboxes have one of their own of.
pub(super) fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("sandgate-").tempdir_in(place()).unwrap()
}

fn built(file: PathBuf) -> PathBuf {
    assert!(file.is_file(), "{} is missing: run `make providers test-guests`", file.display());
    file
}
