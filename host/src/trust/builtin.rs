//! Where the components are that come with Sandgate.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{Code, Error, Result};
use crate::trust::ComponentSource;

/// The variable that names a folder to look into first.
const VARIABLE: &str = "SANDGATE_PROVIDERS";

/// The file of a component. A built-in one, `builtin:NAME`, is the file `NAME.wasm` in the first folder that has it:
/// `$SANDGATE_PROVIDERS`, `providers` beside the running program, `../lib/sandgate/providers` from there.
pub fn locate(source: &ComponentSource) -> Result<PathBuf> {
    let program = std::env::current_exe().ok();
    locate_in(source, std::env::var_os(VARIABLE), program.as_deref().and_then(Path::parent))
}

fn locate_in(source: &ComponentSource, variable: Option<OsString>, program: Option<&Path>) -> Result<PathBuf> {
    let name = match source {
        ComponentSource::File(path) => return Ok(path.clone()),
        ComponentSource::Builtin(name) => name,
    };
    let mut folders = Vec::new();
    folders.extend(variable.filter(|folder| !folder.is_empty()).map(PathBuf::from));
    if let Some(program) = program {
        folders.push(program.join("providers"));
        folders.push(program.join("../lib/sandgate/providers"));
    }
    let files: Vec<PathBuf> = folders.iter().map(|folder| folder.join(format!("{name}.wasm"))).collect();
    if let Some(file) = files.iter().find(|file| file.exists()) {
        return Ok(file.clone());
    }
    let tried = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(Error::new(Code::ComponentUnreadable, format!("the built-in component {name:?} is not there; tried {tried}"))
        .hint(format!("build the components with `make providers`, or name their folder in ${VARIABLE}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_are_tried_in_order_and_all_named_in_the_error() {
        let root = tempfile::tempdir().unwrap();
        let (mine, program) = (root.path().join("mine"), root.path().join("bin"));
        let (beside, lib) = (program.join("providers"), root.path().join("lib/sandgate/providers"));
        let source = ComponentSource::Builtin("local".into());
        let find = || locate_in(&source, Some(mine.clone().into()), Some(&program));

        fs::create_dir_all(&program).unwrap();
        let error = find().unwrap_err();
        assert_eq!(error.code(), Code::ComponentUnreadable);
        for part in
            ["mine/local.wasm", "bin/providers/local.wasm", "lib/sandgate/providers/local.wasm", "make providers"]
        {
            assert!(error.to_string().contains(part), "{error}");
        }
        for folder in [&lib, &beside, &mine] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("local.wasm"), "x").unwrap();
            assert_eq!(find().unwrap().canonicalize().unwrap(), folder.join("local.wasm").canonicalize().unwrap());
        }
    }

    #[test]
    fn a_file_is_taken_as_it_is() {
        let source = ComponentSource::File("/a/b.wasm".into());
        assert_eq!(locate_in(&source, None, None).unwrap(), Path::new("/a/b.wasm"));
    }
}
