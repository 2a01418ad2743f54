//! Files that an agent writes where its commands see the host's own file system (isolation `none`): virtual paths in them
//! become host paths, and become virtual ones again when the same agent reads them back.

use std::num::NonZeroUsize;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::mounts::{MountTable, VirtualPath};
use crate::rewrite::{TranslatedStream, Translator};
use crate::values::{ByteStream, STREAM_DEPTH};

/// How many files are remembered as written by the agent. More are scripts of days; those that were written least recently are
/// read as they lie on the disk.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// What one sandbox's agent wrote as text.
#[derive(Debug)]
pub(super) struct Written(Mutex<LruCache<VirtualPath, ()>>);

impl Written {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }

    /// Remembers a file, and translates what goes into it.
    pub(super) fn translate(&self, mounts: &MountTable, path: &VirtualPath, data: ByteStream) -> ByteStream {
        self.0.lock().put(path.clone(), ());
        translated(data, Translator::new(mounts).forward_stream())
    }

    /// A file that was replaced by exact bytes is no longer the agent's text.
    pub(super) fn forget(&self, path: &VirtualPath) {
        self.0.lock().pop(path);
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
        let there = all(written.translate(&mounts, &script, byte_stream(text))).await;
        assert_eq!(there, "cat /srv/x/a /mnt/user-data-old/b");
        let back = |path| written.translate_back(&mounts, path, byte_stream(there.clone()));
        assert_eq!(all(back(&script)).await, text);
        assert_eq!(all(back(&upload)).await, there);
        written.forget(&script);
        assert_eq!(all(back(&script)).await, there);
    }
}
