//! The README shows the crate's own example, which is compiled as a documentation test.

use std::path::Path;

/// The first block of Rust code, without the lines that documentation hides.
fn example(text: &str, fence: &str) -> Vec<String> {
    let code = text.lines().skip_while(|line| *line != fence).skip(1).take_while(|line| *line != "```");
    code.filter(|line| !line.starts_with("# ")).map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_example_of_the_readme_is_the_one_that_is_compiled() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    let lib = std::fs::read_to_string(root.join("src/lib.rs"))?;
    let docs = lib.lines().filter_map(|line| line.strip_prefix("//!"));
    let docs: Vec<&str> = docs.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let compiled = example(&docs.join("\n"), "```no_run");
    assert!(compiled.len() > 20, "{compiled:?}");
    assert_eq!(example(&readme, "```rust"), compiled);
    Ok(())
}
