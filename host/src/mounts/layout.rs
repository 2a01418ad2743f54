//! Which directories of the host each sandbox gets.
//!
//! ```text
//! STATE/                            0700
//!   skills_view/public/             the skills that everyone sees
//!   users/USER/                     0700
//!     skills_view/{custom,legacy,integrations}/
//!     threads/THREAD/               0700   one sandbox
//!       user-data/                  0777   /mnt/user-data
//!         {workspace,uploads,outputs}/
//!       acp-workspace/              0777   /mnt/acp-workspace
//!       tmp/                        1777   /tmp, for commands in namespaces
//!     no-thread/                    0700   the user's sandbox that belongs to no thread: no thread's id leads here
//! ```
//!
//! The directories that sandboxes see are open to everyone, since a container's processes have user ids of their own.
//! No other user of the host gets to them: the directories around them are the gateway's alone. A mount needs no way
//! through those, as whoever makes it is the gateway or root.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::dir::Dir;
use super::skills::Skills;
use super::{Access, Mount, MountTable, VirtualPath};
use crate::error::{Code, Error, Result};
use crate::ids::Scope;

/// Places in a sandbox that are Sandgate's own: no configured mount may be at, below or above one.
pub const RESERVED: &[&str] = &[USER_DATA, ACP_WORKSPACE, TMP, "/proc", "/dev"];

/// The kinds of skills, each a directory below the skills' place in a sandbox.
pub const SKILL_CATEGORIES: &[&str] = &["public", "custom", "legacy", "integrations"];

const USER_DATA: &str = "/mnt/user-data";
const WORKSPACE: &str = "/mnt/user-data/workspace";
const ACP_WORKSPACE: &str = "/mnt/acp-workspace";
const TMP: &str = "/tmp";

/// What is always there in `user-data`.
const USER_DATA_DIRECTORIES: &[&str] = &["workspace", "uploads", "outputs"];

/// The gateway's alone.
const PRIVATE: u32 = 0o700;
/// Open to the processes of any container.
const OPEN: u32 = 0o777;
/// Open, and everyone removes only their own files.
const OPEN_STICKY: u32 = 0o1777;

/// Knows the directories of every sandbox.
#[derive(Debug)]
pub struct Layout {
    state: PathBuf,
    mounts: Vec<Mount>,
    skills: Option<Skills>,
}

impl Layout {
    /// A layout below `state` (an absolute path), with mounts that every sandbox gets.
    pub fn new(state: PathBuf, mounts: Vec<Mount>, skills: Option<Skills>) -> Self {
        Self { state, mounts, skills }
    }

    /// The skills, if there are any.
    pub fn skills(&self) -> Option<&Skills> {
        self.skills.as_ref()
    }

    /// Makes a sandbox's directories, brings its skills up to date, and gives its mounts; with `tmp`, also one for
    /// `/tmp` (for commands that have a file system of their own).
    ///
    /// Skills that can't be brought up to date are left out and logged: that is no reason to be without a sandbox.
    /// It reads and writes files: call it where blocking is allowed.
    pub fn table(&self, scope: &Scope, tmp: bool) -> Result<MountTable> {
        let root = self.make(scope, tmp).map_err(|errno| {
            Error::new(Code::Unavailable, format!("can't make the directories of sandbox {scope}: {errno}"))
                .hint("`sandgate doctor` checks the gateway's state directory")
        })?;
        let mount = |at: &str, host: PathBuf, access| Ok::<_, Error>(Mount { at: VirtualPath::new(at)?, host, access });
        let mut mounts = self.mounts.clone();
        // One mount for all of user-data: an agent may replace the directories in it by links, and a mount whose root
        // is such a link would lead out.
        mounts.push(mount(USER_DATA, root.join("user-data"), Access::ReadWrite)?);
        mounts.push(mount(ACP_WORKSPACE, root.join("acp-workspace"), Access::ReadWrite)?);
        if tmp {
            mounts.push(mount(TMP, root.join("tmp"), Access::ReadWrite)?);
        }
        if let Some(skills) = &self.skills {
            mounts.extend(skills.mounts(&scope.user));
        }
        MountTable::new(mounts, VirtualPath::new(WORKSPACE)?)
    }

    /// Makes the directories and says where they are.
    fn make(&self, scope: &Scope, tmp: bool) -> Result<PathBuf, Errno> {
        let own = Dir::base(&self.state, PRIVATE)?.child("users", PRIVATE)?.child(scope.user.as_str(), PRIVATE)?;
        let users = self.state.join("users").join(scope.user.as_str());
        let (root, path) = match &scope.thread {
            Some(thread) => (
                own.child("threads", PRIVATE)?.child(thread.as_str(), PRIVATE)?,
                users.join("threads").join(thread.as_str()),
            ),
            None => (own.child("no-thread", PRIVATE)?, users.join("no-thread")),
        };
        let user_data = root.child("user-data", OPEN)?;
        for name in USER_DATA_DIRECTORIES {
            // Agents write in user-data, so anything may be here.
            user_data.child_or_repair(name, OPEN)?;
        }
        root.child("acp-workspace", OPEN)?;
        if tmp {
            root.child("tmp", OPEN_STICKY)?;
        }
        Ok(path)
    }

    /// Where the gateway keeps its state.
    pub fn state(&self) -> &Path {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn scope(user: &str, thread: Option<&str>) -> Scope {
        Scope { user: user.parse().unwrap(), thread: thread.map(|thread| thread.parse().unwrap()) }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn layout(root: &Path) -> Layout {
        Layout::new(root.join("state"), Vec::new(), None)
    }

    #[test]
    fn a_thread_gets_its_directories_with_their_modes() {
        let root = tempfile::tempdir().unwrap();
        let table = layout(root.path()).table(&scope("ann", Some("t1")), true).unwrap();
        let thread = root.path().join("state/users/ann/threads/t1");
        let at: Vec<(&str, PathBuf)> = table.mounts().iter().map(|m| (m.at.as_str(), m.host.clone())).collect();
        assert_eq!(
            at,
            [
                ("/mnt/acp-workspace", thread.join("acp-workspace")),
                ("/mnt/user-data", thread.join("user-data")),
                ("/tmp", thread.join("tmp"))
            ]
        );
        assert_eq!(table.workspace().as_str(), "/mnt/user-data/workspace");
        for (path, expected) in [
            ("", 0o700),
            ("users", 0o700),
            ("users/ann", 0o700),
            ("users/ann/threads/t1", 0o700),
            ("users/ann/threads/t1/user-data", 0o777),
            ("users/ann/threads/t1/user-data/workspace", 0o777),
            ("users/ann/threads/t1/user-data/uploads", 0o777),
            ("users/ann/threads/t1/user-data/outputs", 0o777),
            ("users/ann/threads/t1/acp-workspace", 0o777),
            ("users/ann/threads/t1/tmp", 0o1777),
        ] {
            assert_eq!(mode(&root.path().join("state").join(path)), expected, "{path}");
        }
    }

    #[test]
    fn without_tmp_there_is_none() {
        let root = tempfile::tempdir().unwrap();
        let table = layout(root.path()).table(&scope("ann", Some("t1")), false).unwrap();
        assert!(table.mounts().iter().all(|mount| mount.at.as_str() != "/tmp"));
        assert!(!root.path().join("state/users/ann/threads/t1/tmp").exists());
    }

    #[test]
    fn no_two_scopes_share_a_directory() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let mut seen = std::collections::BTreeSet::new();
        for user in ["ann", "bob", "threads", "no-thread"] {
            for thread in [None, Some("no-thread"), Some("threads"), Some("ann"), Some("t")] {
                for mount in layout.table(&scope(user, thread), true).unwrap().mounts() {
                    assert!(mount.host.is_dir() && seen.insert(mount.host.clone()), "{:?}", mount.host);
                }
            }
        }
        for one in &seen {
            assert!(!seen.iter().any(|other| other != one && other.starts_with(one)), "{one:?} holds another");
        }
    }

    #[test]
    fn files_stay_when_a_table_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        let file = root.path().join("state/users/ann/threads/t1/user-data/workspace/a.txt");
        layout.table(&scope("ann", Some("t1")), true).unwrap();
        fs::write(&file, "kept").unwrap();
        layout.table(&scope("ann", Some("t1")), true).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "kept");
    }

    #[test]
    fn links_that_an_agent_planted_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let layout = layout(root.path());
        layout.table(&scope("ann", Some("t1")), true).unwrap();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let user_data = root.path().join("state/users/ann/threads/t1/user-data");
        for name in ["workspace", "uploads", "outputs"] {
            fs::remove_dir(user_data.join(name)).unwrap();
        }
        symlink(&outside, user_data.join("workspace")).unwrap();
        symlink("missing", user_data.join("uploads")).unwrap();
        fs::write(user_data.join("outputs"), "a file").unwrap();

        let table = layout.table(&scope("ann", Some("t1")), true).unwrap();
        for name in ["workspace", "uploads", "outputs"] {
            assert!(fs::symlink_metadata(user_data.join(name)).unwrap().is_dir(), "{name}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert_ne!(mode(&outside), 0o777);
        assert!(table.mounts().iter().all(|mount| !fs::symlink_metadata(&mount.host).unwrap().is_symlink()));
        assert_eq!(fs::read_to_string(user_data.join("outputs.moved-1")).unwrap(), "a file");
    }

    #[test]
    fn a_link_above_what_agents_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("state/users")).unwrap();
        fs::create_dir(root.path().join("outside")).unwrap();
        symlink(root.path().join("outside"), root.path().join("state/users/ann")).unwrap();
        let error = layout(root.path()).table(&scope("ann", Some("t1")), true).unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.to_string().contains("ann/t1") && !error.to_string().contains("outside"), "{error}");
        assert_eq!(fs::read_dir(root.path().join("outside")).unwrap().count(), 0);
    }

    #[test]
    fn configured_mounts_and_skills_are_in_the_table() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(root.path().join("skills/public/pdf")).unwrap();
        fs::write(root.path().join("skills/public/pdf/SKILL.md"), "# pdf").unwrap();
        let at = |path: &str| VirtualPath::new(path).unwrap();
        let state = root.path().join("state");
        let skills = Skills::new(root.path().join("skills"), at("/mnt/skills"), state.clone(), &[]).unwrap();
        let mount = Mount { at: at("/mnt/data/"), host: data.clone(), access: Access::ReadOnly };
        let layout = Layout::new(state, vec![mount], Some(skills));
        let table = layout.table(&scope("ann", None), false).unwrap();
        let find = |at: &str| table.mounts().iter().find(|mount| mount.at.as_str() == at).unwrap();
        assert_eq!((&find("/mnt/data").host, find("/mnt/data").access), (&data, Access::ReadOnly));
        let public = find("/mnt/skills/public");
        assert_eq!(public.access, Access::ReadOnly);
        assert_eq!(fs::read_to_string(public.host.join("pdf/SKILL.md")).unwrap(), "# pdf");
        for category in SKILL_CATEGORIES {
            assert!(find(&format!("/mnt/skills/{category}")).host.is_dir());
        }
    }
}
