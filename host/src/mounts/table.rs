//! Which directories of the host a sandbox sees, and where.

use std::path::PathBuf;

use super::VirtualPath;
use crate::error::{Error, Result};

/// Whether a mount may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing below it can be changed.
    ReadOnly,
    /// Files can be made, changed and removed.
    ReadWrite,
}

/// One directory of the host at one place in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where the sandbox sees it.
    pub at: VirtualPath,
    /// Which directory of the host it is: an absolute path. It never reaches a guest or an agent.
    pub host: PathBuf,
    /// Whether it may be written.
    pub access: Access,
}

/// All that one sandbox sees of the host. Mounts may nest; the deepest one that contains a path decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountTable {
    /// Deepest first, so that the first match is the right one.
    mounts: Vec<Mount>,
    workspace: Option<VirtualPath>,
}

/// Where a virtual path lies: a mount and what is left of the path below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The deepest mount that contains it.
    pub mount: &'a Mount,
    /// Relative to the mount's root; empty for the root itself.
    pub rest: &'a str,
}

impl MountTable {
    /// A table; `workspace` is where commands start and relative paths begin. Two mounts at one place are refused.
    pub fn new(mut mounts: Vec<Mount>, workspace: VirtualPath) -> Result<Self> {
        mounts.sort_by(|a, b| b.at.as_str().len().cmp(&a.at.as_str().len()).then_with(|| a.at.cmp(&b.at)));
        if let Some(pair) = mounts.windows(2).find(|pair| pair[0].at == pair[1].at) {
            return Err(Error::config(format!("two mounts at {}", pair[0].at)).hint("remove one of them"));
        }
        Ok(Self { mounts, workspace: Some(workspace) })
    }

    /// Where relative paths begin.
    pub fn workspace(&self) -> VirtualPath {
        self.workspace.clone().unwrap_or_else(VirtualPath::root)
    }

    /// The mounts, deepest first.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Where a path lies; an error that lists the mounts if it lies in none.
    pub fn place<'a>(&'a self, path: &'a VirtualPath) -> Result<Place<'a>> {
        self.mounts
            .iter()
            .find_map(|mount| path.below(&mount.at).map(|rest| Place { mount, rest }))
            .ok_or_else(|| self.outside(path))
    }

    /// Mounts that lie below a path (not at it), whether or not the path itself lies in one: they show up as directories when it is listed.
    pub fn mounts_below<'a>(&'a self, path: &VirtualPath) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter().filter(move |mount| mount.at.below(path).is_some_and(|rest| !rest.is_empty()))
    }

    fn outside(&self, path: &VirtualPath) -> Error {
        let mut roots: Vec<&str> = self.mounts.iter().map(|mount| mount.at.as_str()).collect();
        roots.sort_unstable();
        // Nested mounts say nothing new to someone who looks for a place to be.
        let outermost: Vec<&str> = roots
            .iter()
            .copied()
            .filter(|root| !roots.iter().any(|other| other != root && root.starts_with(&format!("{other}/"))))
            .collect();
        Error::permission_denied(format!("{path} lies outside this sandbox's files"))
            .hint(format!("use a path under {}", outermost.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::new(text).unwrap()
    }

    fn table() -> MountTable {
        let mount = |at: &str, access| Mount { at: path(at), host: PathBuf::from(format!("/host{at}")), access };
        MountTable::new(
            vec![
                mount("/mnt/user-data", Access::ReadWrite),
                mount("/mnt/skills/public", Access::ReadOnly),
                mount("/mnt/skills/public/drafts", Access::ReadWrite),
            ],
            path("/mnt/user-data/workspace"),
        )
        .unwrap()
    }

    #[test]
    fn the_deepest_mount_decides() {
        let table = table();
        let (inner, outer) = (path("/mnt/skills/public/drafts/a/b"), path("/mnt/skills/public/a"));
        assert_eq!(table.place(&inner).unwrap().rest, "a/b");
        assert_eq!(table.place(&inner).unwrap().mount.access, Access::ReadWrite);
        assert_eq!(table.place(&outer).unwrap().mount.access, Access::ReadOnly);
    }

    #[test]
    fn siblings_with_a_common_prefix_are_outside() {
        let table = table();
        for text in ["/mnt/user-data-extra/a", "/mnt", "/", "/etc/passwd"] {
            let error = table.place(&path(text)).unwrap_err();
            assert_eq!(error.code(), Code::PermissionDenied, "{text}");
            assert!(error.to_string().contains("/mnt/skills/public, /mnt/user-data"), "{error}");
        }
    }

    #[test]
    fn two_mounts_at_one_place_are_refused() {
        let mount = Mount { at: path("/mnt/a"), host: "/a".into(), access: Access::ReadOnly };
        assert!(MountTable::new(vec![mount.clone(), mount], path("/mnt/a")).is_err());
    }

    #[test]
    fn mounts_below_a_plain_directory_are_found() {
        let (table, skills) = (table(), path("/mnt/skills"));
        let below: Vec<&str> = table.mounts_below(&skills).map(|mount| mount.at.as_str()).collect();
        assert_eq!(below, ["/mnt/skills/public/drafts", "/mnt/skills/public"]);
    }
}
