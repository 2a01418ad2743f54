//! Views, as sandboxes see them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Skills;
use crate::error::Code;
use crate::ids::UserId;
use crate::mounts::VirtualPath;

struct World {
    root: TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("source")).unwrap();
        Self { root }
    }

    fn source(&self, path: &str) -> PathBuf {
        self.root.path().join("source").join(path)
    }

    /// Writes a skill with some text in its `SKILL.md`.
    fn skill(&self, place: &str, text: &str) {
        fs::create_dir_all(self.source(place)).unwrap();
        fs::write(self.source(place).join("SKILL.md"), text).unwrap();
    }

    fn skills(&self, disabled: &[&str]) -> Skills {
        let disabled: Vec<String> = disabled.iter().map(|name| (*name).to_owned()).collect();
        let at = VirtualPath::new("/mnt/skills").unwrap();
        Skills::new(self.source(""), at, self.root.path().join("state"), &disabled).unwrap()
    }

    fn public(&self, path: &str) -> PathBuf {
        self.root.path().join("state/skills_view/public").join(path)
    }

    fn of_user(&self, path: &str) -> PathBuf {
        self.root.path().join("state/users/ann/skills_view").join(path)
    }
}

fn ann() -> UserId {
    "ann".parse().unwrap()
}

/// All files below a directory with their texts (links with their targets).
fn files(root: &Path) -> BTreeMap<String, String> {
    fn add(root: &Path, path: &Path, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_dir() {
                add(root, &path, all);
            } else if found.is_symlink() {
                all.insert(name, format!("-> {}", fs::read_link(&path).unwrap().display()));
            } else {
                all.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(root, root, &mut all);
    all
}

fn inode(path: PathBuf) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn views_hold_copies_of_what_is_enabled() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/xls", "xls");
    world.skill("custom/ann/mine", "mine");
    world.skill("custom/bob/his", "his");
    world.skill("integrations/ann/lark/calendar", "calendar");
    fs::write(world.source("public/README.md"), "no skill").unwrap();
    fs::create_dir_all(world.source("public/no-skill/.git")).unwrap();
    let skills = world.skills(&["xls"]);
    skills.ensure_public().unwrap();
    skills.ensure_user(&ann()).unwrap();
    assert_eq!(files(&world.public("")), BTreeMap::from([("pdf/SKILL.md".into(), "pdf".into())]));
    assert_eq!(
        files(&world.of_user(""))
            .into_iter()
            .filter(|(name, _)| !name.starts_with('.'))
            .map(|(name, _)| name)
            .collect::<Vec<_>>(),
        ["custom/mine/SKILL.md", "integrations/lark/calendar/SKILL.md"]
    );
    // Copies: writing to one does not reach the source.
    assert_eq!(fs::metadata(world.public("pdf/SKILL.md")).unwrap().nlink(), 1);
    fs::write(world.public("pdf/SKILL.md"), "tampered").unwrap();
    assert_eq!(fs::read_to_string(world.source("public/pdf/SKILL.md")).unwrap(), "pdf");
}

#[test]
fn a_fresh_view_is_left_alone() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let before = (inode(world.public("")), inode(world.public("pdf")), inode(world.public("pdf/SKILL.md")));
    skills.ensure_public().unwrap();
    world.skills(&[]).ensure_public().unwrap();
    let after = (inode(world.public("")), inode(world.public("pdf")), inode(world.public("pdf/SKILL.md")));
    assert_eq!(before, after);
}

#[test]
fn a_change_rebuilds_only_the_skill_that_changed() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/xls", "xls");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let before = (inode(world.public("")), inode(world.public("pdf")), inode(world.public("xls")));
    world.skill("public/xls", "other");
    world.skill("public/new", "new");
    skills.ensure_public().unwrap();
    let after = (inode(world.public("")), inode(world.public("pdf")), inode(world.public("xls")));
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert_ne!(before.2, after.2);
    assert_eq!(fs::read_to_string(world.public("xls/SKILL.md")).unwrap(), "other");
    assert!(world.public("new/SKILL.md").exists());
    fs::remove_dir_all(world.source("public/pdf")).unwrap();
    skills.ensure_public().unwrap();
    assert!(!world.public("pdf").exists());
}

#[test]
fn disabling_hides_every_skill_of_that_name_or_just_one() {
    let world = World::new();
    for place in ["public/a/pdf", "public/b/pdf", "public/b/xls", "custom/ann/pdf", "custom/ann/xls"] {
        world.skill(place, place);
    }
    let seen = |disabled: &[&str]| {
        let skills = world.skills(disabled);
        skills.ensure_public().unwrap();
        skills.ensure_user(&ann()).unwrap();
        let public = files(&world.public("")).into_keys();
        public
            .chain(files(&world.of_user("custom")).into_keys().map(|name| format!("custom/{name}")))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(&[]).len(), 5);
    assert_eq!(seen(&["pdf"]), ["b/xls/SKILL.md", "custom/xls/SKILL.md"]);
    assert!(!world.public("a").exists(), "a folder that led to it only is gone");
    assert_eq!(seen(&["custom/pdf"]), ["a/pdf/SKILL.md", "b/pdf/SKILL.md", "b/xls/SKILL.md", "custom/xls/SKILL.md"]);
    assert_eq!(seen(&["public/b/pdf", "xls"]), ["a/pdf/SKILL.md", "custom/pdf/SKILL.md"]);
    assert_eq!(seen(&[]).len(), 5);
}

#[test]
fn a_skill_in_a_skill_belongs_to_the_outer_one() {
    let world = World::new();
    world.skill("public/outer", "outer");
    world.skill("public/outer/examples/inner", "inner");
    world.skills(&["inner"]).ensure_public().unwrap();
    assert_eq!(files(&world.public("")).len(), 2);
    world.skills(&["outer"]).ensure_public().unwrap();
    assert_eq!(files(&world.public("")).len(), 0);
}

#[test]
fn tampering_with_a_view_is_repaired() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/xls", "xls");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let expected = files(&world.public(""));
    fs::write(world.public("pdf/SKILL.md"), "PDF").unwrap();
    fs::write(world.public("planted"), "x").unwrap();
    fs::create_dir_all(world.public("other/folder")).unwrap();
    fs::remove_dir_all(world.public("xls")).unwrap();
    symlink("/etc", world.public("xls")).unwrap();
    skills.ensure_public().unwrap();
    assert_eq!(files(&world.public("")), expected);
    assert!(!world.public("other").exists());
}

#[test]
fn own_custom_skills_take_the_place_of_legacy_ones() {
    let world = World::new();
    world.skill("legacy/old", "old");
    fs::create_dir_all(world.source("custom/ann/no-skill")).unwrap();
    let skills = world.skills(&["hidden"]);
    skills.ensure_user(&ann()).unwrap();
    assert!(world.of_user("legacy/old/SKILL.md").exists(), "a folder without a skill is none");
    world.skill("custom/ann/hidden", "hidden");
    skills.ensure_user(&ann()).unwrap();
    assert!(!world.of_user("legacy/old").exists() && !world.of_user("custom/hidden").exists());
}

#[test]
fn links_stay_only_if_they_lead_to_something_in_the_skill() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/xls", "xls");
    fs::write(world.root.path().join("secret"), "secret").unwrap();
    fs::create_dir(world.source("public/pdf/sub")).unwrap();
    let link = |target: &str, name: &str| symlink(target, world.source("public/pdf").join(name)).unwrap();
    link("SKILL.md", "inside");
    link("../SKILL.md", "sub/up");
    link("sub/up", "twice");
    link("../xls/SKILL.md", "other-skill");
    link("../../../secret", "outside");
    link("/etc/passwd", "absolute");
    link("missing", "dangling");
    link("loop", "loop");
    rustix::fs::mknodat(rustix::fs::CWD, world.source("public/pdf/pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    // A skill's folder, or a whole category, that is a link.
    symlink(world.source("public/pdf"), world.source("public/linked")).unwrap();
    symlink("/etc", world.source("legacy")).unwrap();
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    skills.ensure_user(&ann()).unwrap();
    let names: Vec<String> = files(&world.public("")).into_keys().collect();
    assert_eq!(names, ["pdf/SKILL.md", "pdf/inside", "pdf/sub/up", "pdf/twice", "xls/SKILL.md"]);
    assert_eq!(fs::read_to_string(world.public("pdf/twice")).unwrap(), "pdf");
    assert_eq!(fs::read_dir(world.of_user("legacy")).unwrap().count(), 0);
}

#[test]
fn everyone_may_read_a_view_and_scripts_stay_executable() {
    let world = World::new();
    world.skill("public/ns/pdf", "pdf");
    let script = world.source("public/ns/pdf/run.sh");
    fs::write(&script, "#!/bin/sh").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(world.source("public/ns/pdf"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(world.source("public/ns/pdf/SKILL.md"), fs::Permissions::from_mode(0o4600)).unwrap();
    world.skills(&[]).ensure_public().unwrap();
    let mode = |path: &str| fs::metadata(world.public(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("ns"), mode("ns/pdf")), (0o755, 0o755, 0o755));
    assert_eq!((mode("ns/pdf/run.sh"), mode("ns/pdf/SKILL.md")), (0o755, 0o644));
}

#[test]
fn a_failure_empties_the_view_and_the_next_success_fills_it() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let category = inode(world.public(""));
    fs::rename(world.source(""), world.root.path().join("away")).unwrap();
    let error = skills.ensure_public().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().contains("can't project the public skills"), "{error}");
    assert_eq!(fs::read_dir(world.public("")).unwrap().count(), 0);
    assert!(skills.mounts(&ann()).is_empty());

    fs::rename(world.root.path().join("away"), world.root.path().join("source")).unwrap();
    let mounts = skills.mounts(&ann());
    let at: Vec<&str> = mounts.iter().map(|mount| mount.at.as_str()).collect();
    assert_eq!(at, ["/mnt/skills/public", "/mnt/skills/custom", "/mnt/skills/legacy", "/mnt/skills/integrations"]);
    assert!(world.public("pdf/SKILL.md").exists());
    assert_eq!(inode(world.public("")), category);
}

#[test]
fn a_view_whose_lock_fails_is_emptied() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    let skills = world.skills(&[]);
    let root = world.root.path().join("state/skills_view");
    let lock = root.join(".projection-lock");
    skills.ensure_public().unwrap();
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    // Stale, so that the lock is wanted.
    world.skill("public/xls", "xls");
    assert_eq!(skills.ensure_public().unwrap_err().code(), Code::Unavailable);
    assert_eq!(fs::read_dir(world.public("")).unwrap().count(), 0);
    fs::remove_dir(&lock).unwrap();
    skills.ensure_public().unwrap();
    assert!(world.public("xls/SKILL.md").exists());
}

#[test]
fn a_view_over_its_limit_is_emptied() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/big", "big");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let big = fs::File::create(world.source("public/big/data")).unwrap();
    // Sparse: it takes no room.
    big.set_len(super::walk::MAX_BYTES + 1).unwrap();
    let error = skills.ensure_public().unwrap_err().to_string();
    assert!(error.contains("more than 512 MiB"), "{error}");
    assert_eq!(fs::read_dir(world.public("")).unwrap().count(), 0);
    // Hidden, it counts no more.
    world.skills(&["big"]).ensure_public().unwrap();
    assert!(world.public("pdf/SKILL.md").exists());
}

#[test]
fn leftovers_and_a_broken_manifest_do_no_harm() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    let skills = world.skills(&[]);
    skills.ensure_public().unwrap();
    let root = world.root.path().join("state/skills_view");
    fs::create_dir_all(root.join(".staging-dead/new-0")).unwrap();
    fs::write(root.join(".staging-file"), "x").unwrap();
    fs::write(root.join(".projection-manifest.json"), "{\"version\": 1").unwrap();
    fs::write(world.public("pdf/SKILL.md"), "PDF").unwrap();
    skills.ensure_public().unwrap();
    assert_eq!(fs::read_to_string(world.public("pdf/SKILL.md")).unwrap(), "pdf");
    assert!(!root.join(".staging-dead").exists() && !root.join(".staging-file").exists());
}

#[test]
fn racing_rebuilds_agree_and_an_unrelated_skill_is_always_there() {
    let world = World::new();
    world.skill("public/pdf", "pdf");
    world.skill("public/xls", "0");
    world.skills(&[]).ensure_public().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(fs::read_to_string(world.public("pdf/SKILL.md")).unwrap(), "pdf");
                // The one that changes is whole whenever it is looked at.
                assert!(!fs::read_to_string(world.public("xls/SKILL.md")).unwrap().is_empty());
                looks += 1;
            }
            looks
        });
        for round in 1..=20 {
            world.skill("public/xls", &format!("{round}"));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| world.skills(&[]).ensure_public().unwrap());
                }
            });
            assert_eq!(fs::read_to_string(world.public("xls/SKILL.md")).unwrap(), format!("{round}"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
    });
}
