//! Links that are swapped while files are used.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Home, names, path};
use crate::error::Code;
use crate::values::{GrepOptions, ListOptions};

const WS: &str = "/mnt/user-data/workspace";

/// Swaps `workspace/d` between a directory and a link out, on a thread, until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(home: &Home) -> Self {
        std::fs::create_dir(home.host("workspace/d")).unwrap();
        home.link(home.host("outside"), "workspace/link");
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ended, count) = (Arc::clone(&stop), Arc::clone(&swaps));
        let (d, link) = (home.host("workspace/d"), home.host("workspace/link"));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                exchange(&d, &link);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, swaps, thread: Some(thread) }
    }

    fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// In one step, so that there is always one of the two under each name.
fn exchange(a: &Path, b: &Path) {
    use rustix::fs::{CWD, RenameFlags};
    rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_never_land_outside() {
    let home = Home::new();
    let swapper = Swapper::start(&home);
    let (mut written, mut refused) = (0, 0);
    for n in 0..10_000 {
        match home.write(&format!("{WS}/d/sub{}/f{n}", n % 7), b"x").await {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::PathEscapes, "{error}");
                refused += 1;
            }
        }
    }
    assert!(names(home.host("outside")).is_empty(), "{:?}", names(home.host("outside")));
    // Otherwise nothing was tried.
    assert!(swapper.swaps() > 1000, "{} swaps", swapper.swaps());
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_is_read_removed_or_found() {
    let home = Home::new();
    home.put("outside/f", "secret");
    home.put("outside/deep/er/f", "secret");
    let swapper = Swapper::start(&home);
    home.put("workspace/ordinary", "needle");
    for round in 0..2500 {
        if let Ok(content) = home.read(&format!("{WS}/d/f")).await {
            assert_ne!(content, b"secret");
        }
        // Either name may be the link just now.
        for name in ["d", "link"] {
            match home.files.remove(&path(&format!("{WS}/{name}/deep")), true).await {
                Ok(()) => panic!("something outside was removed"),
                Err(error) => assert!(matches!(error.code(), Code::PathEscapes | Code::NotFound), "{error}"),
            }
        }
        if round % 10 == 0 {
            let grep = home.files.grep(&path(WS), "secret|needle", &GrepOptions::default()).await.unwrap();
            assert_eq!(grep.matches.len(), 1, "{grep:?}");
            let options = ListOptions { max_depth: 5, ..ListOptions::default() };
            let list = home.files.list_dir(&path(WS), options).await.unwrap();
            assert!(list.entries.iter().all(|entry| !entry.path.contains("deep")), "{list:?}");
        }
    }
    assert!(swapper.swaps() > 1000, "{} swaps", swapper.swaps());
    assert_eq!(std::fs::read(home.host("outside/deep/er/f")).unwrap(), b"secret");
}
