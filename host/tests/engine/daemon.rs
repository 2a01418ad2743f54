//! The test guest whose sandboxes are processes that outlive their gateway: other tests stand on what it promises.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use sandgate::engine::{IdScheme, InstanceRecord, Liveness, Page, Provider, Runtime, Target};
use sandgate::error::{Code, Result};
use sandgate::ids::Scope;
use sandgate::mounts::{MountTable, VirtualPath};
use sandgate::values::ExecRequest;
use serde_json::Value;

use crate::support::{Room, component_file, drain, granted, options, text};

const DEPLOYMENT: &str = "test";

/// The guest on a directory of its own. What it made ends with this.
struct Rig {
    provider: Provider,
    folder: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { provider: load(folder.path(), 0).await, folder }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("sandboxes").join(name)
    }

    async fn create(&self, room: &Room) -> Result<InstanceRecord> {
        self.provider.create(&room.target, &room.scope, DEPLOYMENT).await
    }

    async fn find(&self, room: &Room) -> Option<InstanceRecord> {
        self.provider.find(&room.target, &room.scope, DEPLOYMENT).await.unwrap()
    }

    async fn probe(&self, room: &Room, record: &InstanceRecord) -> Liveness {
        self.provider.probe(&room.target, record).await.unwrap()
    }

    async fn list(&self, deployment: &str, cursor: Option<String>) -> Page {
        self.provider.inventory(deployment, cursor).await.unwrap()
    }

    fn log(&self) -> Vec<String> {
        std::fs::read_to_string(self.file("log")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for line in self.log() {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["created", id, pid, _] = words[..]
                && let Ok(pid) = pid.parse()
                && daemon(pid).as_deref() == Some(id)
            {
                kill(pid);
            }
        }
    }
}

async fn load(folder: &Path, stop_seconds: u32) -> Provider {
    let bytes = std::fs::read(component_file("test-guests", "SANDGATE_TEST_GUESTS", "daemon")).unwrap();
    let settings = serde_json::json!({ "dir": folder.join("sandboxes"), "stop_seconds": stop_seconds });
    Provider::load(&Runtime::new(options()).unwrap(), bytes, granted(&settings.to_string())).await.unwrap()
}

fn room(thread: &str) -> Room {
    let mut room = Room::new(thread);
    room.target.sandbox = room.scope.hashed_id();
    room
}

fn pid(record: &InstanceRecord) -> i32 {
    let record: Value = serde_json::from_slice(record.as_bytes()).unwrap();
    i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
}

/// Whose sandbox a process is; none: it has ended, or is something else.
fn daemon(pid: i32) -> Option<String> {
    let command_line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    command_line.split('\0').next()?.strip_prefix("sandgate-daemon-").map(str::to_owned)
}

/// Field `number` of /proc/PID/stat, from 1.
fn stat(pid: i32, number: usize) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(number - 3).unwrap().parse().unwrap()
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while daemon(pid).is_some() {
        assert!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_sandbox_is_a_process_from_create_to_destroy() {
    let mut rig = Rig::new().await;
    let (described, room) = (rig.provider.description().clone(), room("t1"));
    assert!(described.id_scheme == IdScheme::Hashed && described.features.findable && described.features.listable);
    assert!(!described.features.ephemeral && !described.features.extendable);
    let id = room.target.sandbox.to_string();
    assert_eq!(rig.find(&room).await, None);
    assert_eq!(rig.list(DEPLOYMENT, None).await, Page::default());

    let record = rig.create(&room).await.unwrap();
    let process = pid(&record);
    assert_eq!(daemon(process).as_deref(), Some(id.as_str()));
    assert_eq!((stat(process, 5), stat(process, 6)), (process, process), "a group and a session of its own");
    assert_ne!(stat(process, 4), i32::try_from(std::process::id()).unwrap(), "no child of the gateway");
    let open: Vec<_> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap())
        .collect();
    assert!(open.iter().all(|file| file == Path::new("/dev/null")), "{open:?}");

    // What the commands of a provider left running ends with it; this does not.
    rig.provider = load(rig.folder.path(), 0).await;
    assert_eq!(rig.find(&room).await.as_ref(), Some(&record));
    assert_eq!(rig.probe(&room, &record).await, Liveness::Alive);
    assert_eq!(rig.create(&room).await.unwrap_err().code(), Code::AlreadyExists);
    let request = ExecRequest { command: "pwd; echo hello".into(), ..ExecRequest::default() };
    let events = rig.provider.exec(&room.target, &record, &request, None, None).await.unwrap();
    assert_eq!(text(&drain(events).await), "/mnt/user-data/workspace\nhello\n");

    let listed = rig.list(DEPLOYMENT, None).await;
    let [item] = &listed.items[..] else { panic!("{listed:?}") };
    assert_eq!((&item.sandbox, &item.instance), (&room.target.sandbox, &record));
    assert_eq!(item.scope.as_ref(), Some(&room.scope));
    assert!(item.created_ms.is_some_and(|created| created > 1_700_000_000_000) && listed.next.is_none());

    let elsewhere = rig.provider.find(&room.target, &room.scope, "other").await.unwrap();
    assert_eq!((elsewhere, rig.list("other", None).await), (None, Page::default()));

    rig.provider.destroy(&room.target, &record).await.unwrap();
    assert_eq!(daemon(process), None);
    assert_eq!(rig.probe(&room, &record).await, Liveness::Dead);
    assert_eq!(rig.find(&room).await, None);
    assert_eq!(rig.list(DEPLOYMENT, None).await, Page::default());
    let gone = rig.provider.exec(&room.target, &record, &request, None, None).await.unwrap_err();
    assert!(gone.code() == Code::Gone && gone.message().contains(&id), "{gone}");
    rig.provider.destroy(&room.target, &record).await.unwrap();

    let log = rig.log();
    let begins = [format!("created {id} {process} "), format!("destroyed {id} {process} ")];
    assert!(log.len() == 2 && log.iter().zip(&begins).all(|(line, begin)| line.starts_with(begin)), "{log:?}");
}

#[tokio::test]
async fn one_that_nobody_has_acquired_is_probed_and_ended_without_mounts() {
    let (rig, room) = (Rig::new().await, room("t1"));
    let record = rig.create(&room).await.unwrap();
    let mounts = Arc::new(MountTable::new(Vec::new(), VirtualPath::root()).unwrap());
    let adopted = Target { sandbox: room.target.sandbox.clone(), mounts };
    assert_eq!(rig.provider.probe(&adopted, &record).await.unwrap(), Liveness::Alive);
    rig.provider.destroy(&adopted, &record).await.unwrap();
    assert_eq!(rig.provider.probe(&adopted, &record).await.unwrap(), Liveness::Dead);
}

#[tokio::test]
async fn of_many_creates_at_once_one_makes_it() {
    let rig = Rig::new().await;
    let rooms: Vec<Room> = (0..4).map(|_| room("t1")).collect();
    let made = join_all(rooms.iter().map(|room| rig.create(room))).await;
    let refused = made.iter().filter(|made| made.as_ref().is_err_and(|error| error.code() == Code::AlreadyExists));
    assert_eq!((made.iter().filter(|made| made.is_ok()).count(), refused.count()), (1, 3), "{made:?}");
    assert_eq!(rig.log().len(), 1);
}

#[tokio::test]
async fn one_that_died_is_gone_and_its_successor_is_another() {
    let (rig, room) = (Rig::new().await, room("t1"));
    let old = rig.create(&room).await.unwrap();
    kill(pid(&old));
    assert_eq!(rig.probe(&room, &old).await, Liveness::Dead);
    assert_eq!(rig.find(&room).await, None);
    assert!(rig.list(DEPLOYMENT, None).await.items.is_empty());
    let new = rig.create(&room).await.unwrap();
    assert_ne!(new, old);
    // Ending the old one leaves the new one, its record and the log alone.
    rig.provider.destroy(&room.target, &old).await.unwrap();
    assert_eq!(rig.find(&room).await.as_ref(), Some(&new));
    assert_eq!(rig.log().len(), 2);
    // A process that merely has the number is not it.
    let mut forged: Value = serde_json::from_slice(new.as_bytes()).unwrap();
    forged["start"] = 1.into();
    let forged = InstanceRecord::new(forged.to_string().into_bytes());
    assert_eq!(rig.probe(&room, &forged).await, Liveness::Dead);
    rig.provider.destroy(&room.target, &forged).await.unwrap();
    assert_eq!(rig.probe(&room, &new).await, Liveness::Alive);
}

#[tokio::test]
async fn many_are_listed_in_pages() {
    let (rig, room) = (Rig::new().await, room("t1"));
    rig.create(&room).await.unwrap();
    let record = std::fs::read_to_string(rig.file(room.target.sandbox.as_str())).unwrap();
    // Many records of the one process: to the backend each is a sandbox.
    let mut wanted: BTreeSet<String> = BTreeSet::from([room.target.sandbox.to_string()]);
    while wanted.len() < 201 {
        let id = Scope::new("ann".parse().unwrap(), format!("t-{}", wanted.len()).parse().unwrap()).hashed_id();
        std::fs::write(rig.file(id.as_str()), &record).unwrap();
        wanted.insert(id.to_string());
    }
    let (mut found, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page = rig.list(DEPLOYMENT, cursor).await;
        sizes.push(page.items.len());
        found.extend(page.items.into_iter().map(|item| item.sandbox.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [100, 100, 1]);
    assert_eq!(found, Vec::from_iter(wanted));
}

#[tokio::test]
async fn a_stop_takes_as_long_as_the_settings_say() {
    let (mut rig, room) = (Rig::new().await, room("t1"));
    rig.provider = load(rig.folder.path(), 1).await;
    let record = rig.create(&room).await.unwrap();
    let begun = Instant::now();
    rig.provider.destroy(&room.target, &record).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(daemon(pid(&record)), None);
}
