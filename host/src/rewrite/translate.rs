//! Virtual paths to host paths and back, in text: for commands that see the host's own file system (isolation `none`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::literals::Literals;
use super::stream::{Held, Plan, Planner};
use crate::mounts::MountTable;

/// Translates the roots of a mount table wherever they stand in a text: `forward` from virtual to host, `reverse` from
/// host to virtual.
///
/// A root counts only where its name ends: before `/`, at the end of the text, or before a character that is no letter,
/// digit, `_`, `.` or `-`. So `/mnt/data` is found in `/mnt/data:/mnt/other` and not in `/mnt/data-old`, `/mnt/data2`
/// or `/mnt/data.bak`. The longest root that fits at a place wins. What was replaced is not looked at again.
///
/// The text of a command is not parsed: a host path with a space or a quote in it needs a quoted place to go to.
#[derive(Debug, Clone)]
pub struct Translator {
    forward: Roots,
    reverse: Roots,
}

/// One direction.
#[derive(Debug, Clone)]
struct Roots {
    literals: Option<Arc<Literals>>,
    replacements: Arc<[Vec<u8>]>,
}

impl Translator {
    /// A translator for the mounts of a table. A mount at `/`, or of it, is left out: it would be found everywhere.
    ///
    /// Where a mount's host path leads through links, the place it leads to is translated back as well, since that is
    /// what `pwd -P` says.
    pub fn new(table: &MountTable) -> Self {
        let (mut forward, mut reverse) = (BTreeMap::new(), BTreeMap::new());
        // Shallow mounts first, so that of two mounts of one directory the shorter name is what an agent sees.
        for mount in table.mounts().iter().rev() {
            let at = mount.at.as_str();
            let host = without_slash(&mount.host);
            if at != "/" {
                forward.entry(at.as_bytes().to_vec()).or_insert_with(|| host.clone());
            }
            let real = mount.host.canonicalize().map(|real| without_slash(&real));
            for host in [Some(host), real.ok()].into_iter().flatten().filter(|host| !host.is_empty()) {
                reverse.entry(host).or_insert_with(|| at.as_bytes().to_vec());
            }
        }
        Self { forward: Roots::new(forward), reverse: Roots::new(reverse) }
    }

    /// Host paths instead of virtual ones: for the text of a command, an argument, or a file that an agent writes.
    pub fn forward(&self, text: &str) -> String {
        self.forward.whole(text.as_bytes()).map_or_else(|| text.to_owned(), lossy)
    }

    /// Virtual paths instead of host ones, in a whole text.
    pub fn reverse(&self, text: &str) -> String {
        self.reverse.whole(text.as_bytes()).map_or_else(|| text.to_owned(), lossy)
    }

    /// The forward translation of one stream.
    pub fn forward_stream(&self) -> TranslatedStream {
        TranslatedStream { roots: self.forward.clone(), held: Held::default() }
    }

    /// The reverse translation of one stream.
    pub fn reverse_stream(&self) -> TranslatedStream {
        TranslatedStream { roots: self.reverse.clone(), held: Held::default() }
    }
}

/// Translates one stream in one direction, also where its pieces cut a path. Only bytes that could begin a path are held
/// back.
#[derive(Debug)]
pub struct TranslatedStream {
    roots: Roots,
    held: Held,
}

impl TranslatedStream {
    /// The next piece; what comes out may be shorter or longer, or empty.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        if self.roots.literals.is_none() { piece } else { self.held.step(&mut self.roots, piece, false) }
    }

    /// The end: what was held back.
    pub fn finish(&mut self) -> Bytes {
        self.held.step(&mut self.roots, Bytes::new(), true)
    }
}

impl Roots {
    fn new(pairs: BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        let (roots, replacements): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Self { literals: Literals::new(roots).map(Arc::new), replacements: replacements.into() }
    }

    fn whole(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut roots = self.clone();
        let plan = roots.plan(text, true);
        if plan.edits.is_empty() {
            return None;
        }
        let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
        for (range, replacement) in &plan.edits {
            out.extend_from_slice(&text[done..range.start]);
            out.extend_from_slice(replacement);
            done = range.end;
        }
        out.extend_from_slice(&text[done..]);
        Some(out)
    }
}

impl Planner for Roots {
    fn plan(&mut self, buffer: &[u8], last: bool) -> Plan<'_> {
        let Some(literals) = &self.literals else {
            return Plan { edits: Vec::new(), hold: buffer.len() };
        };
        let mut hold = if last { buffer.len() } else { literals.undecided(buffer) };
        let mut found = Vec::new();
        for (pattern, start, end) in literals.occurrences(buffer) {
            match name_ends(&buffer[end..], last) {
                Some(true) => found.push((start, end, pattern)),
                Some(false) => {}
                // What comes next decides.
                None => hold = hold.min(start),
            }
        }
        // The leftmost, and the longest of those.
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let (mut edits, mut done) = (Vec::new(), 0);
        for (start, end, pattern) in found {
            if start >= done && start < hold {
                edits.push((start..end, self.replacements[pattern].as_slice()));
                done = end;
            }
        }
        Plan { edits, hold: hold.max(done) }
    }
}

/// Whether a root that ends here ends a name; none: the bytes that would tell are not there yet.
fn name_ends(rest: &[u8], last: bool) -> Option<bool> {
    let Some(&first) = rest.first() else { return last.then_some(true) };
    if first.is_ascii() {
        return Some(!(first.is_ascii_alphanumeric() || matches!(first, b'_' | b'.' | b'-')));
    }
    // The rest of a character beyond ASCII may still be on its way.
    let head = &rest[..rest.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        Err(error) if error.valid_up_to() > 0 => std::str::from_utf8(&head[..error.valid_up_to()]).ok(),
        Err(error) if error.error_len().is_none() && !last => return None,
        Err(_) => None,
    };
    Some(valid.and_then(|text| text.chars().next()).is_none_or(|char| !char.is_alphanumeric()))
}

fn without_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::test_rng::Rng;
    use super::*;
    use crate::mounts::{Access, Mount, VirtualPath};

    fn table() -> MountTable {
        let mount = |at: &str, host: &str| Mount {
            at: VirtualPath::new(at).unwrap(),
            host: host.into(),
            access: Access::ReadWrite,
        };
        MountTable::new(
            vec![
                mount("/mnt/user-data", "/srv/base"),
                mount("/mnt/user-data/workspace", "/srv/base/workspace"),
                mount("/mnt/extra", "/srv/base-extra"),
                mount("/mnt/skills", "/srv/mnt/skills"),
                mount("/", "/srv/root"),
            ],
            VirtualPath::new("/mnt/user-data/workspace").unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn commands_get_host_paths() {
        let translator = Translator::new(&table());
        for (text, expected) in [
            ("cat /mnt/user-data/workspace/a.txt", "cat /srv/base/workspace/a.txt"),
            ("cd /mnt/user-data", "cd /srv/base"),
            ("ls /mnt/user-data;ls</mnt/extra>x", "ls /srv/base;ls</srv/base-extra>x"),
            ("ls '/mnt/user-data' \"/mnt/extra\"", "ls '/srv/base' \"/srv/base-extra\""),
            (
                "cp /mnt/user-data-backup/a /mnt/user-data2 /mnt/user-data.bak",
                "cp /mnt/user-data-backup/a /mnt/user-data2 /mnt/user-data.bak",
            ),
            ("P=/mnt/extra:/mnt/user-data/bin -I/mnt/extra/i", "P=/srv/base-extra:/srv/base/bin -I/srv/base-extra/i"),
            ("/mnt/skills/a\n/mnt/user-data\n", "/srv/mnt/skills/a\n/srv/base\n"),
            ("/mnt/extra/mnt/extra", "/srv/base-extra/srv/base-extra"),
            ("echo hi", "echo hi"),
        ] {
            assert_eq!(translator.forward(text), expected);
        }
    }

    #[test]
    fn output_gets_virtual_paths() {
        let translator = Translator::new(&table());
        for (text, expected) in [
            ("/srv/base/workspace/x", "/mnt/user-data/workspace/x"),
            ("/srv/base", "/mnt/user-data"),
            (
                "/srv/base-extra/x /srv/base2 /srv/base.bak /srv/base_backup",
                "/mnt/extra/x /srv/base2 /srv/base.bak /srv/base_backup",
            ),
            ("/srv/base:/srv/base-extra:/srv/base/w", "/mnt/user-data:/mnt/extra:/mnt/user-data/w"),
            (
                "/srv/base, /srv/base\\ \"/srv/base\" /srv/base\n",
                "/mnt/user-data, /mnt/user-data\\ \"/mnt/user-data\" /mnt/user-data\n",
            ),
            ("/srv/base。/srv/baseé/srv/base中", "/mnt/user-data。/srv/baseé/srv/base中"),
            ("/srv/base/workspaces", "/mnt/user-data/workspaces"),
            ("/srv/root/etc", "//etc"),
        ] {
            assert_eq!(translator.reverse(text), expected);
        }
    }

    #[test]
    fn random_splits_give_what_the_whole_text_gives() {
        let translator = Translator::new(&table());
        let parts = [
            "/srv/base",
            "/srv",
            "/base",
            "/workspace",
            "-extra",
            ":",
            "/",
            " ",
            "é",
            "。",
            "x",
            ".",
            "/mnt/skills",
            "\n",
        ];
        let mut rng = Rng(7);
        for _ in 0..3000 {
            let text: String = (0..1 + rng.below(20)).map(|_| parts[rng.below(parts.len())]).collect();
            let mut stream = translator.reverse_stream();
            let (mut out, mut rest) = (Vec::new(), text.as_bytes());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((1 + rng.below(9)).min(rest.len()));
                out.extend_from_slice(&stream.push(Bytes::copy_from_slice(piece)));
                rest = after;
            }
            out.extend_from_slice(&stream.finish());
            assert_eq!(String::from_utf8_lossy(&out), translator.reverse(&text), "{text:?}");
        }
    }

    #[test]
    fn only_what_could_begin_a_path_waits() {
        let translator = Translator::new(&table());
        let mut stream = translator.reverse_stream();
        let piece = Bytes::from_static(b"no path here");
        assert_eq!(stream.push(piece.clone()).as_ptr(), piece.as_ptr());
        assert_eq!(stream.push(Bytes::from_static(b"in /srv/base")), "in ");
        assert_eq!(stream.push(Bytes::from_static(b"-")), "");
        assert_eq!(stream.push(Bytes::from_static(b"2/x")), "/srv/base-2/x");
    }

    #[test]
    fn what_a_link_leads_to_is_translated_back() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let at = VirtualPath::new("/mnt/a").unwrap();
        let mount = Mount { at: at.clone(), host: link.clone(), access: Access::ReadOnly };
        let translator = Translator::new(&MountTable::new(vec![mount], at).unwrap());
        let text = format!("{}/x {}/y", real.display(), link.display());
        assert_eq!(translator.reverse(&text), "/mnt/a/x /mnt/a/y");
    }
}
