//! Files that an agent writes where its commands see the host's own file system (isolation `none`): virtual paths in them
//! become host paths, and become virtual ones again when the same agent reads them back.

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::engine::Target;
use crate::mounts::{MountTable, VirtualPath};
use crate::rewrite::{TranslatedStream, Translator};
use crate::values::{ByteStream, GrepMatch, STREAM_DEPTH};

/// How many files are remembered as written by the agent. More are scripts of days; those that were written least recently are
/// read as they lie on the disk.
const REMEMBERED: usize = 4_096;

/// What one sandbox's agent wrote as text.
#[derive(Debug)]
pub(super) struct Written(Mutex<LruCache<VirtualPath, ()>>);

impl Written {
    pub(super) fn new() -> Self {
        // Unbounded, since it is bounded here: a bounded one takes all its memory at once, for every idle sandbox.
        Self(Mutex::new(LruCache::unbounded()))
    }

    /// Translates what goes into a file.
    pub(super) fn translate(&self, mounts: &MountTable, data: ByteStream) -> ByteStream {
        translated(data, Translator::new(mounts).forward_stream())
    }

    /// Remembers a file that was written as text.
    pub(super) fn remember(&self, path: &VirtualPath) {
        let mut paths = self.0.lock();
        paths.put(path.clone(), ());
        if paths.len() > REMEMBERED {
            paths.pop_lru();
        }
    }

    /// A file that was removed, or replaced by exact bytes, is no longer the agent's text.
    pub(super) fn forget(&self, path: &VirtualPath) {
        self.0.lock().pop(path);
    }

    /// Translates back the lines that a search found in files that the agent wrote.
    pub(super) fn lines_back(&self, target: &Target, found: &mut [GrepMatch]) {
        let translator = Translator::new(&target.mounts);
        let mut paths = self.0.lock();
        for found in found {
            if VirtualPath::new(&found.path).is_ok_and(|path| paths.get(&path).is_some()) {
                found.line = translator.reverse(&found.line);
            }
        }
    }

    /// Translates back what comes out of a file that the agent wrote.
    pub(super) fn translate_back(&self, mounts: &MountTable, path: &VirtualPath, data: ByteStream) -> ByteStream {
        if self.0.lock().get(path).is_none() {
            return data;
        }
        translated(data, Translator::new(mounts).reverse_stream())
    }
}

fn translated(mut data: ByteStream, mut stream: TranslatedStream) -> ByteStream {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    tokio::spawn(async move {
        loop {
            let (piece, more) = match data.recv().await {
                Some(Ok(piece)) => (Ok(stream.push(piece)), true),
                Some(Err(error)) => (Err(error), false),
                None => (Ok(stream.finish()), false),
            };
            let nothing = piece.as_ref().is_ok_and(Bytes::is_empty);
            if !nothing && sender.send(piece).await.is_err() {
                return;
            }
            if !more {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{Access, Mount};
    use crate::values::byte_stream;

    async fn all(mut data: ByteStream) -> String {
        let mut text = Vec::new();
        while let Some(piece) = data.recv().await {
            text.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn what_an_agent_wrote_comes_back_as_it_wrote_it_and_nothing_else_is_touched() {
        let at = VirtualPath::new("/mnt/user-data").unwrap();
        let mount = Mount { at: at.clone(), host: "/srv/x".into(), access: Access::ReadWrite };
        let mounts = MountTable::new(vec![mount], at.clone()).unwrap();
        let (script, upload) = (at.join("run.sh").unwrap(), at.join("upload.txt").unwrap());
        let written = Written::new();
        let text = "cat /mnt/user-data/a /mnt/user-data-old/b";
        let there = all(written.translate(&mounts, byte_stream(text))).await;
        written.remember(&script);
        assert_eq!(there, "cat /srv/x/a /mnt/user-data-old/b");
        let back = |path| written.translate_back(&mounts, path, byte_stream(there.clone()));
        assert_eq!(all(back(&script)).await, text);
        assert_eq!(all(back(&upload)).await, there);
        written.forget(&script);
        assert_eq!(all(back(&script)).await, there);
    }
}
