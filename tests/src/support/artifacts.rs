//! What was built before the tests: components and the program itself.

use std::path::{Path, PathBuf};

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

fn built(file: PathBuf) -> PathBuf {
    assert!(file.is_file(), "{} is missing: run `make providers test-guests`", file.display());
    file
}
