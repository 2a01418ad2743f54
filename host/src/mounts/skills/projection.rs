//! Brings views up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};

use super::super::dir::Dir;
use super::super::{Access, Mount, VirtualPath};
use super::copy::copy;
use super::lock::Lock;
use super::source::{Disabled, View, Wanted, scan, scan_settled, wanted_signature};
use super::walk::{Budget, Entry, signature, walk};
use crate::error::{Code, Error, Result};
use crate::ids::UserId;

/// How often a rebuild begins anew when the source changes under it. Someone who writes without a pause would keep it
/// busy for ever; the next acquire tries again.
const ATTEMPTS: u32 = 2;

/// What a view was made from. Beside the categories, so that no sandbox sees it.
const MANIFEST: &str = ".projection-manifest.json";
const LOCK: &str = ".projection-lock";
/// Where copies are made and old ones go; also beside the categories, so that a rename is all it takes.
const STAGING: &str = ".staging-";

/// The skills of all users, and their views.
#[derive(Debug)]
pub struct Skills {
    /// The operator's folder.
    source: PathBuf,
    /// Where sandboxes see them.
    at: VirtualPath,
    /// The gateway's state.
    state: PathBuf,
    disabled: Disabled,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    source_signature: String,
    view_signature: String,
    /// By place: `custom/NAME`.
    skills: BTreeMap<String, Projected>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Projected {
    source: String,
    view: String,
}

const MANIFEST_VERSION: u32 = 1;

impl Skills {
    /// Skills of a folder, seen at `at`, with views below `state`, without the disabled ones (`NAME`, or
    /// `CATEGORY/…/NAME`).
    pub fn new(source: PathBuf, at: VirtualPath, state: PathBuf, disabled: &[String]) -> Result<Self> {
        Ok(Self { source, at, state, disabled: Disabled::new(disabled)? })
    }

    /// Where sandboxes see them.
    pub fn at(&self) -> &VirtualPath {
        &self.at
    }

    /// Brings the view that everyone sees up to date. After an error it is empty.
    pub fn ensure_public(&self) -> Result<()> {
        self.ensure(View::Public)
    }

    /// Brings a user's own view up to date. After an error it is empty.
    pub fn ensure_user(&self, user: &UserId) -> Result<()> {
        self.ensure(View::User(user))
    }

    /// The mounts for a user's sandbox, after bringing both views up to date. A view for which that fails is left out
    /// and the error logged.
    pub fn mounts(&self, user: &UserId) -> Vec<Mount> {
        let mut mounts = Vec::new();
        for view in [View::Public, View::User(user)] {
            if let Err(error) = self.ensure(view) {
                tracing::error!(%user, %error, "skills are left out of a sandbox");
                continue;
            }
            for category in view.categories() {
                // A category's name is a usable path, and the two together are as short as any.
                if let Ok(at) = self.at.join(category) {
                    mounts.push(Mount { at, host: self.root(view).join(category), access: Access::ReadOnly });
                }
            }
        }
        mounts
    }

    fn root(&self, view: View<'_>) -> PathBuf {
        match view {
            View::Public => self.state.join("skills_view"),
            View::User(user) => self.state.join("users").join(user.as_str()).join("skills_view"),
        }
    }

    fn ensure(&self, view: View<'_>) -> Result<()> {
        let failed = |error: io::Error| {
            let whose = match view {
                View::Public => "public skills".to_owned(),
                View::User(user) => format!("skills of user {user}"),
            };
            Error::new(Code::Unavailable, format!("can't project the {whose}: {error}"))
                .hint("check the folder that skills.host_path names; `sandgate doctor` checks the state directory")
        };
        let root = self.root(view);
        // Whatever fails, nothing that may have to be hidden stays visible.
        let emptied = |error: io::Error| match self.clear(view) {
            Ok(()) => failed(error),
            Err(second) => failed(io::Error::other(format!("{error}; and the view can't be emptied: {second}"))),
        };
        self.make_root(view).map_err(emptied)?;
        if self.is_fresh(view).unwrap_or(false) {
            return Ok(());
        }
        let _lock = Lock::take(&root.join(LOCK)).map_err(emptied)?;
        // Another one may have rebuilt it while we waited.
        if self.is_fresh(view).unwrap_or(false) {
            return Ok(());
        }
        self.rebuild(view).map_err(emptied)
    }

    /// Empties a view, unless a link is in the way: that would empty what it leads to.
    fn clear(&self, view: View<'_>) -> io::Result<()> {
        let root = self.root(view);
        let state = self.state.canonicalize()?;
        for category in view.categories() {
            let folder = root.join(category);
            let expected = folder.strip_prefix(&self.state).map(|below| state.join(below)).map_err(io::Error::other)?;
            if folder.canonicalize()? != expected {
                return Err(io::Error::other("a link stands in its way"));
            }
        }
        clear(&root, view)
    }

    /// Makes a view's directories, once. They are never replaced, since mounts lead to them.
    fn make_root(&self, view: View<'_>) -> io::Result<()> {
        let mut root = Dir::base(&self.state, 0o700)?;
        if let View::User(user) = view {
            root = root.child("users", 0o700)?.child(user.as_str(), 0o700)?;
        }
        let root = root.child("skills_view", 0o700)?;
        for category in view.categories() {
            root.child(category, 0o755)?;
        }
        Ok(())
    }

    fn is_fresh(&self, view: View<'_>) -> io::Result<bool> {
        let root = self.root(view);
        let Some(manifest) = read_manifest(&root) else { return Ok(false) };
        let wanted = scan(&self.source, view, &self.disabled)?;
        Ok(manifest.source_signature == wanted_signature(&wanted)
            && manifest.view_signature == signature(entries(&root, view)?.iter()))
    }

    fn rebuild(&self, view: View<'_>) -> io::Result<()> {
        let root = self.root(view);
        remove_leftovers(&root)?;
        for _ in 0..ATTEMPTS {
            let wanted = scan_settled(&self.source, view, &self.disabled)?;
            let staging = tempfile::Builder::new().prefix(STAGING).tempdir_in(&root)?;
            let kept = self.unchanged(view, &wanted)?;
            // Until the new manifest is there, nothing may take the view for fresh.
            remove_file(&root.join(MANIFEST))?;
            // First of all what must no longer be seen.
            remove_others(&root, view, &wanted, staging.path())?;
            for (number, (place, skill)) in wanted.iter().enumerate() {
                if !kept.contains_key(place) {
                    let fresh = staging.path().join(format!("new-{number}"));
                    copy(&skill.folder, &fresh)
                        .map_err(|error| io::Error::new(error.kind(), format!("{place}: {error}")))?;
                    swap(&fresh, &root.join(place))?;
                }
            }
            // What is left of it goes with the next rebuild.
            let _ = staging.close();
            if scan(&self.source, view, &self.disabled)? == wanted {
                return write_manifest(&root, view, &wanted);
            }
        }
        Err(io::Error::other("the source keeps changing"))
    }

    /// The skills whose copies are still good.
    fn unchanged(&self, view: View<'_>, wanted: &Wanted) -> io::Result<BTreeMap<String, Projected>> {
        let root = self.root(view);
        let Some(manifest) = read_manifest(&root) else { return Ok(BTreeMap::new()) };
        let entries = entries(&root, view)?;
        Ok(manifest
            .skills
            .into_iter()
            .filter(|(place, projected)| {
                wanted.get(place).is_some_and(|skill| skill.signature == projected.source)
                    && projected.view == signature(of_skill(&entries, place))
            })
            .collect())
    }
}

/// All that is in a view, with the category in front of each path.
fn entries(root: &Path, view: View<'_>) -> io::Result<Vec<Entry>> {
    let mut budget = Budget::default();
    let mut all = Vec::new();
    for category in view.categories() {
        all.extend(walk(&root.join(category), &mut budget)?.into_iter().map(|entry| entry.under(category)));
    }
    Ok(all)
}

/// A skill's folder and what is in it.
fn of_skill<'a>(entries: &'a [Entry], place: &'a str) -> impl Iterator<Item = &'a Entry> {
    entries.iter().filter(move |entry| entry.path.starts_with(place))
}

/// Removes all from a view that is neither wanted nor leads to what is.
fn remove_others(root: &Path, view: View<'_>, wanted: &Wanted, trash: &Path) -> io::Result<()> {
    let places: BTreeSet<&Path> = wanted.keys().map(Path::new).collect();
    let leads_to_one = |path: &Path| places.iter().any(|place| place.starts_with(path) && *place != path);
    // Parents come before what is in them, so what went with its parent is no longer there.
    let mut gone: Option<PathBuf> = None;
    for (number, entry) in entries(root, view)?.iter().enumerate() {
        let path = &entry.path;
        let folder = || fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_dir());
        let went = gone.as_ref().is_some_and(|gone| path.starts_with(gone));
        let stays = path.ancestors().any(|ancestor| places.contains(ancestor)) || (leads_to_one(path) && folder());
        if !(went || stays) {
            fs::rename(root.join(path), trash.join(format!("old-{number}")))?;
            gone = Some(path.clone());
        }
    }
    Ok(())
}

/// Puts a fresh copy in its place; what was there goes to where the copy was.
fn swap(fresh: &Path, place: &Path) -> io::Result<()> {
    match fs::rename(fresh, place) {
        // Nothing is there yet, not even the folders that lead to it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_parents(place)?;
            return fs::rename(fresh, place);
        }
        // Something is there that a plain rename does not replace.
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory) => {}
        other => return other,
    }
    match renameat_with(CWD, fresh, CWD, place, RenameFlags::EXCHANGE) {
        // File systems without an exchange have a moment without the skill instead.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            let mut old = fresh.to_path_buf().into_os_string();
            old.push("-old");
            fs::rename(place, old)?;
            fs::rename(fresh, place)
        }
        other => Ok(other?),
    }
}

/// Makes the folders that lead to a skill, open to be read by everyone whatever the umask.
fn make_parents(place: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = place.ancestors().skip(1).take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Empties a view; its category directories stay.
fn clear(root: &Path, view: View<'_>) -> io::Result<()> {
    remove_file(&root.join(MANIFEST))?;
    let trash = tempfile::Builder::new().prefix(STAGING).tempdir_in(root)?;
    for category in view.categories() {
        for (number, entry) in fs::read_dir(root.join(category))?.enumerate() {
            fs::rename(entry?.path(), trash.path().join(format!("{category}-{number}")))?;
        }
    }
    // Nobody sees the trash any more; what is left of it goes with the next rebuild.
    let _ = trash.close();
    for category in view.categories() {
        if fs::read_dir(root.join(category))?.next().is_some() {
            return Err(io::Error::other("something is still there"));
        }
    }
    Ok(())
}

/// Removes what a gateway left that ended in the middle.
fn remove_leftovers(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(STAGING.as_bytes()) {
            let folder = entry.file_type()?.is_dir();
            let removed = if folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            if let Err(error) = removed {
                // It only takes room: no sandbox sees it.
                tracing::warn!(%error, "what an earlier rebuild of skills left can't be removed");
            }
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a view was made from; none if that is not known.
fn read_manifest(root: &Path) -> Option<Manifest> {
    let bytes = fs::read(root.join(MANIFEST)).ok()?;
    serde_json::from_slice::<Manifest>(&bytes).ok().filter(|manifest| manifest.version == MANIFEST_VERSION)
}

fn write_manifest(root: &Path, view: View<'_>, wanted: &Wanted) -> io::Result<()> {
    let entries = entries(root, view)?;
    let skills = wanted
        .iter()
        .map(|(place, skill)| {
            let view = signature(of_skill(&entries, place));
            (place.clone(), Projected { source: skill.signature.clone(), view })
        })
        .collect();
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        source_signature: wanted_signature(wanted),
        view_signature: signature(entries.iter()),
        skills,
    };
    let mut file = tempfile::Builder::new().prefix(STAGING).tempfile_in(root)?;
    serde_json::to_writer(&mut file, &manifest)?;
    file.persist(root.join(MANIFEST))?;
    Ok(())
}
