//! Finding paths by a pattern.

use super::pattern::PathPattern;
use super::top::Top;
use super::walk::{self, Entry, Seen, Visitor, Walk};
use crate::capability::workspace::blocking::Cancel;
use crate::error::Result;
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{FileKind, GlobOptions, GlobResult};

pub(in super::super) fn glob(
    table: &MountTable,
    path: &VirtualPath,
    pattern: &str,
    options: GlobOptions,
    cancel: &Cancel,
) -> Result<GlobResult> {
    let pattern = PathPattern::new(pattern)?;
    let start = walk::start(table, path)?;
    let found = Glob { pattern, include_dirs: options.include_dirs, top: Top::new(options.max_results) };
    let walk = Walk::all(table, options.skip_ignored, cancel);
    let skipped = walk.run(start, path, &found);
    let (paths, truncated) = found.top.finish();
    Ok(GlobResult { paths: paths.into_iter().map(|(path, ())| path).collect(), truncated, skipped })
}

struct Glob {
    pattern: PathPattern,
    include_dirs: bool,
    top: Top<String, ()>,
}

impl Visitor for Glob {
    type Scratch = ();

    fn scratch(&self) {}

    fn wants_below(&self, prefix: &str) -> bool {
        self.top.wants(prefix)
    }

    fn visit(&self, (): &mut (), entry: &Entry<'_>) -> Seen {
        let wanted = self.include_dirs || entry.kind != FileKind::Directory;
        if wanted && self.pattern.matches(entry.relative) && self.top.wants(entry.shown) {
            self.top.offer(entry.shown.to_owned(), ());
        }
        Seen::Yes
    }
}
