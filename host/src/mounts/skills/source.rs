//! Which skills there are, and which of them a view shows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::SKILL_CATEGORIES;
use super::walk::{Budget, signature, walk};
use crate::error::{Error, Result};
use crate::ids::UserId;

/// The file that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";

/// How deep a skill's folder may lie in its category: `integrations/PROVIDER/NAME`, and a spare one.
const MAX_NAMESPACES: usize = 3;

/// Longer than the step in which a file system's times move on: 10 ms with the slowest clock of a kernel.
const TICK: Duration = Duration::from_millis(20);

/// Whose view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View<'a> {
    /// What everyone sees.
    Public,
    /// What one user sees besides.
    User(&'a UserId),
}

impl View<'_> {
    /// The categories that it holds.
    pub(super) fn categories(self) -> &'static [&'static str] {
        match self {
            Self::Public => &["public"],
            Self::User(_) => &["custom", "legacy", "integrations"],
        }
    }
}

/// A skill that a view shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skill {
    /// Its folder.
    pub(super) folder: PathBuf,
    /// Differs when its files do.
    pub(super) signature: String,
    /// When one of its files changed last, in nanoseconds since 1970.
    changed: i128,
}

/// The skills that a view shows, by their place in it: `custom/NAME`.
pub(super) type Wanted = BTreeMap<String, Skill>;

/// Which skills are hidden.
#[derive(Debug)]
pub(super) struct Disabled(Vec<String>);

impl Disabled {
    /// From names: `NAME` hides every skill with that folder name, `CATEGORY/…/NAME` that one.
    pub(super) fn new(names: &[String]) -> Result<Self> {
        for name in names {
            let mut parts = name.split('/');
            let first = parts.next().unwrap_or_default();
            let rest: Vec<&str> = parts.collect();
            let good = rest.is_empty() || SKILL_CATEGORIES.contains(&first);
            if !good || name.split('/').any(|part| matches!(part, "" | "." | "..")) {
                // What nobody can match would be shown: better nothing at all.
                return Err(Error::config(format!("{name:?} names no skill"))
                    .hint("write \"NAME\", \"CATEGORY/NAME\" or \"integrations/PROVIDER/NAME\""));
            }
        }
        Ok(Self(names.to_vec()))
    }

    /// Whether the skill at a place such as `custom/NAME` is hidden.
    pub(super) fn hides(&self, place: &str) -> bool {
        let name = place.rsplit('/').next();
        self.0.iter().any(|disabled| disabled == place || Some(disabled.as_str()) == name)
    }
}

/// Looks through the source: what the view has to show.
pub(super) fn scan(source: &Path, view: View<'_>, disabled: &Disabled) -> io::Result<Wanted> {
    // A source that has gone is an error, not a view without skills: it may be a file system that is not mounted.
    fs::read_dir(source)?;
    let mut wanted = Wanted::new();
    let mut budget = Budget::default();
    let mut has_custom = false;
    for category in view.categories() {
        let folder = match view {
            View::User(user) if *category != "legacy" => source.join(category).join(user.as_str()),
            _ => source.join(category),
        };
        // A user's own skills take the place of the old common ones, even when they are hidden.
        if *category == "legacy" && has_custom {
            continue;
        }
        let mut found = Vec::new();
        if is_directory(&folder)? {
            find(&folder, category, 0, &mut found)?;
        }
        has_custom |= *category == "custom" && !found.is_empty();
        for (place, folder) in found {
            if !disabled.hides(&place) {
                let entries = walk(&folder, &mut budget)?;
                let changed = entries.iter().map(|entry| entry.changed).max().unwrap_or_default();
                wanted.insert(place, Skill { folder, signature: signature(entries.iter()), changed });
            }
        }
    }
    Ok(wanted)
}

/// Like [`scan`], but waits if something changed just now: a change right after the scan then has another time, and
/// can't go unnoticed.
pub(super) fn scan_settled(source: &Path, view: View<'_>, disabled: &Disabled) -> io::Result<Wanted> {
    let wanted = scan(source, view, disabled)?;
    let newest = wanted.values().map(|skill| skill.changed).max().unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i128);
    if (0..TICK.as_nanos() as i128).contains(&(now - newest)) {
        std::thread::sleep(TICK);
        return scan(source, view, disabled);
    }
    Ok(wanted)
}

/// Finds skills: a folder with a [`SKILL_FILE`] is one, with all that is in it; one without may hold some.
fn find(folder: &Path, place: &str, depth: usize, found: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // Links are left out (a skill's folder has to be in its place), and so are hidden folders such as `.git`.
        if !entry.file_type()?.is_dir() || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Some(name) = name.to_str() else {
            tracing::warn!(category = place, ?name, "a skill's folder is left out, as its name is not UTF-8");
            continue;
        };
        let (inner, place) = (entry.path(), format!("{place}/{name}"));
        match fs::symlink_metadata(inner.join(SKILL_FILE)) {
            Ok(_) => found.push((place, inner)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if depth + 1 < MAX_NAMESPACES {
                    find(&inner, &place, depth + 1, found)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_directory(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Differs when any skill that the view has to show does.
pub(super) fn wanted_signature(wanted: &Wanted) -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for (place, skill) in wanted {
        hasher.update(format!("{place}\0{}\n", skill.signature));
    }
    hasher.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
