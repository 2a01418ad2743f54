//! What every lease store must do, run on each of them. The Redis half runs on a real server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt, join_all};

use super::test_server::RedisServer;
use super::*;
use crate::error::Code;
use crate::ids::SandboxId;
use crate::runtime::TokioRuntime;

const TTL: Duration = Duration::from_secs(120);

fn id(name: &str) -> SandboxId {
    name.parse().unwrap()
}

/// A store, and power over its time.
trait Rig: Send + Sync {
    fn seen_by(&self, name: &str) -> Arc<dyn Store>;
    /// Lets time pass until a lease that was just renewed has only `left` to go.
    fn age<'a>(&'a self, id: &'a SandboxId, left: Duration) -> BoxFuture<'a, ()>;
}

struct MemoryRig(MemoryStore);

impl MemoryRig {
    fn new() -> Self {
        Self(MemoryStore::new(OwnerId::from_text("-"), TTL, TokioRuntime::current()))
    }
}

impl Rig for MemoryRig {
    fn seen_by(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(self.0.seen_by(OwnerId::from_text(name)))
    }

    fn age<'a>(&'a self, _: &'a SandboxId, left: Duration) -> BoxFuture<'a, ()> {
        tokio::time::advance(TTL - left).boxed()
    }
}

struct RedisRig {
    server: RedisServer,
    connection: Arc<RedisConnection>,
}

impl RedisRig {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        Self { connection: RedisConnection::open(&server.url(), None).unwrap(), server }
    }

    fn store(&self, name: &str) -> RedisStore {
        RedisStore::new(Arc::clone(&self.connection), "test:owner:", OwnerId::from_text(name), TTL)
    }

    async fn raw<T: ::redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = ::redis::Client::open(self.server.url()).unwrap();
        let mut link = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = ::redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut link).await.unwrap()
    }
}

impl Rig for RedisRig {
    fn seen_by(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(self.store(name))
    }

    fn age<'a>(&'a self, id: &'a SandboxId, left: Duration) -> BoxFuture<'a, ()> {
        async move {
            let key = format!("test:owner:{id}");
            let _: i64 = self.raw(&["PEXPIRE", &key, &left.as_millis().max(1).to_string()]).await;
            let deadline = Instant::now() + Duration::from_secs(10);
            while left.is_zero() && self.raw::<i64>(&["EXISTS", &key]).await == 1 {
                assert!(Instant::now() < deadline, "{key} never expires");
            }
        }
        .boxed()
    }
}

/// The states that a lease may be in before an operation, as in the table of [`Store`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Before {
    Absent,
    Lapsed,
    OwnMe,
    DelMe,
    OwnPeer,
    DelPeer,
}

async fn prepare(rig: &dyn Rig, id: &SandboxId, before: Before) -> (Arc<dyn Store>, Arc<dyn Store>) {
    let (me, peer) = (rig.seen_by("host:me"), rig.seen_by("host:peer"));
    match before {
        Before::Absent => {}
        Before::Lapsed => {
            assert!(peer.take(id).await.unwrap());
            rig.age(id, Duration::ZERO).await;
        }
        Before::OwnMe => assert!(me.take(id).await.unwrap()),
        Before::DelMe => assert!(me.claim(id, Purpose::Destroy).await.unwrap()),
        Before::OwnPeer => assert!(peer.take(id).await.unwrap()),
        Before::DelPeer => assert!(peer.claim(id, Purpose::Destroy).await.unwrap()),
    }
    (me, peer)
}

async fn state(store: &dyn Store, id: &SandboxId) -> Option<(String, LeaseState)> {
    store.owner(id).await.unwrap().map(|lease| (lease.owner.to_string(), lease.state))
}

/// Every cell of the operation table, the state afterwards and whether the time to live was touched.
async fn operation_table(rig: &dyn Rig) {
    use Before::*;
    use LeaseState::{Destroying, Owned};
    let mine = |state| Some(("host:me".to_owned(), state));
    let theirs = |state| Some(("host:peer".to_owned(), state));
    let unchanged = |before| match before {
        Absent | Lapsed => None,
        OwnMe => mine(Owned),
        DelMe => mine(Destroying),
        OwnPeer => theirs(Owned),
        DelPeer => theirs(Destroying),
    };
    let near_its_end = Duration::from_secs(20);
    for (round, before) in [Absent, Lapsed, OwnMe, DelMe, OwnPeer, DelPeer].into_iter().enumerate() {
        for operation in ["take", "claim", "destroy", "renew", "release", "owner"] {
            let id = id(&format!("table-{round}-{operation}"));
            let (me, _) = prepare(rig, &id, before).await;
            if !matches!(before, Absent | Lapsed) {
                rig.age(&id, near_its_end).await;
            }
            let after = match operation {
                "take" => {
                    let granted = me.take(&id).await.unwrap();
                    assert_eq!(granted, !matches!(before, DelMe | DelPeer), "{before:?} {operation}");
                    if granted { mine(Owned) } else { unchanged(before) }
                }
                "claim" => {
                    let granted = me.claim(&id, Purpose::Keep).await.unwrap();
                    assert_eq!(granted, matches!(before, Absent | Lapsed | OwnMe), "{before:?} {operation}");
                    if granted { mine(Owned) } else { unchanged(before) }
                }
                "destroy" => {
                    let granted = me.claim(&id, Purpose::Destroy).await.unwrap();
                    assert_eq!(granted, matches!(before, Absent | Lapsed | OwnMe | DelMe), "{before:?} {operation}");
                    if granted { mine(Destroying) } else { unchanged(before) }
                }
                "renew" => {
                    let expected = match before {
                        Absent | Lapsed => Renewal::Lapsed,
                        OwnMe => Renewal::Renewed,
                        DelMe | OwnPeer | DelPeer => Renewal::Lost,
                    };
                    assert_eq!(me.renew(std::slice::from_ref(&id)).await.unwrap(), [expected], "{before:?}");
                    unchanged(before)
                }
                "release" => {
                    me.release(&id).await.unwrap();
                    if matches!(before, OwnMe | DelMe) { None } else { unchanged(before) }
                }
                _ => unchanged(before),
            };
            assert_eq!(state(me.as_ref(), &id).await, after, "{before:?} {operation}");
            let left = me.owner(&id).await.unwrap().map(|lease| lease.left);
            let renewed = match operation {
                "take" => matches!(before, Absent | Lapsed | OwnMe | OwnPeer),
                "claim" => matches!(before, Absent | Lapsed | OwnMe),
                "destroy" => matches!(before, Absent | Lapsed | OwnMe | DelMe),
                "renew" => before == OwnMe,
                _ => false,
            };
            if let Some(left) = left {
                let whole = left > TTL - Duration::from_secs(60) && left <= TTL;
                assert_eq!(whole, renewed, "{before:?} {operation}: {left:?} left");
            }
        }
    }
}

async fn claims_are_exclusive_and_expire(rig: &dyn Rig) {
    let (a, b, id) = (rig.seen_by("a"), rig.seen_by("b"), id("exclusive"));
    assert!(a.claim(&id, Purpose::Keep).await.unwrap());
    assert!(!b.claim(&id, Purpose::Keep).await.unwrap());
    assert!(!b.claim(&id, Purpose::Destroy).await.unwrap());
    assert_eq!(state(b.as_ref(), &id).await, Some(("a".to_owned(), LeaseState::Owned)));
    rig.age(&id, Duration::ZERO).await;
    assert_eq!(a.owner(&id).await.unwrap(), None);
    assert!(b.claim(&id, Purpose::Keep).await.unwrap());
    b.release(&id).await.unwrap();
    assert!(a.claim(&id, Purpose::Keep).await.unwrap());
}

async fn a_takeover_is_seen_by_the_last_owner(rig: &dyn Rig) {
    let (a, b, id) = (rig.seen_by("a"), rig.seen_by("b"), id("takeover"));
    assert!(a.take(&id).await.unwrap() && b.take(&id).await.unwrap());
    let ids = [id.clone()];
    assert_eq!(a.renew(&ids).await.unwrap(), [Renewal::Lost]);
    assert_eq!(b.renew(&ids).await.unwrap(), [Renewal::Renewed]);
    a.release(&id).await.unwrap();
    assert_eq!(state(a.as_ref(), &id).await, Some(("b".to_owned(), LeaseState::Owned)));
}

async fn nothing_is_taken_while_it_is_torn_down(rig: &dyn Rig) {
    let (a, b, id) = (rig.seen_by("a"), rig.seen_by("b"), id("teardown"));
    assert!(a.claim(&id, Purpose::Destroy).await.unwrap() && a.claim(&id, Purpose::Destroy).await.unwrap());
    assert!(!a.take(&id).await.unwrap() && !b.take(&id).await.unwrap());
    assert!(!a.claim(&id, Purpose::Keep).await.unwrap(), "an own teardown is never unwound");
    assert!(!b.take(&id).await.unwrap());
    a.release(&id).await.unwrap();
    assert!(b.take(&id).await.unwrap());
    // A destroyer that died leaves a marker that lapses.
    assert!(b.claim(&id, Purpose::Destroy).await.unwrap());
    rig.age(&id, Duration::ZERO).await;
    assert!(a.take(&id).await.unwrap());
}

async fn many_racers_have_one_winner(rig: &dyn Rig) {
    let id = id("race");
    let stores: Vec<_> = (0..32).map(|racer| rig.seen_by(&format!("racer-{racer}"))).collect();
    let won = join_all(stores.iter().map(|store| store.claim(&id, Purpose::Keep))).await;
    assert_eq!(won.into_iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
}

async fn renewals_are_answered_in_order(rig: &dyn Rig) {
    let (a, b) = (rig.seen_by("a"), rig.seen_by("b"));
    let ids: Vec<_> = (0..300).map(|number| id(&format!("many-{number}"))).collect();
    for (number, id) in ids.iter().enumerate() {
        match number % 3 {
            0 => assert!(a.take(id).await.unwrap()),
            1 => assert!(b.take(id).await.unwrap()),
            _ => {}
        }
    }
    let expected: Vec<_> =
        (0..300).map(|number| [Renewal::Renewed, Renewal::Lost, Renewal::Lapsed][number % 3]).collect();
    assert_eq!(a.renew(&ids).await.unwrap(), expected);
    assert_eq!(a.renew(&[]).await.unwrap(), []);
}

async fn contract(rig: &dyn Rig) {
    operation_table(rig).await;
    claims_are_exclusive_and_expire(rig).await;
    a_takeover_is_seen_by_the_last_owner(rig).await;
    nothing_is_taken_while_it_is_torn_down(rig).await;
    many_racers_have_one_winner(rig).await;
    renewals_are_answered_in_order(rig).await;
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_the_contract() {
    let rig = MemoryRig::new();
    contract(&rig).await;
    assert!(!rig.0.sees_peers());
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let rig = RedisRig::new();
    contract(&rig).await;
    assert!(rig.store("a").sees_peers());
}

#[tokio::test]
async fn a_cluster_and_a_sentinel_group_keep_the_contract() {
    // One node with all slots is a whole cluster, and one sentinel a whole group.
    let cluster = RedisServer::start(&["--cluster-enabled", "yes"]);
    let mut rig = RedisRig { connection: RedisConnection::open(&cluster.url(), None).unwrap(), server: cluster };
    let _: () = rig.raw(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !rig.raw::<String>(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok") {
        assert!(Instant::now() < deadline, "the cluster does not form");
    }
    let url = format!("redis+cluster://127.0.0.1:{}", rig.server.port());
    rig.connection = RedisConnection::open(&url, None).unwrap();
    contract(&rig).await;

    let rig = RedisRig::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, format!("sentinel monitor main 127.0.0.1 {} 1\n", rig.server.port())).unwrap();
    let sentinel = RedisServer::start_with(&[file.to_str().unwrap(), "--sentinel"], &[]);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    contract(&RedisRig { connection: RedisConnection::open(&url, None).unwrap(), ..rig }).await;
}

#[tokio::test]
async fn keys_and_values_are_those_of_the_python_system() {
    let rig = RedisRig::new();
    let (store, id) = (rig.store("host:0123"), id("abc"));
    assert!(store.take(&id).await.unwrap());
    assert_eq!(rig.raw::<Vec<String>>(&["KEYS", "*"]).await, ["test:owner:abc"]);
    assert_eq!(rig.raw::<String>(&["GET", "test:owner:abc"]).await, "own:host:0123");
    let left: u64 = rig.raw(&["PTTL", "test:owner:abc"]).await;
    assert!(left > 110_000 && left <= 120_000, "{left}");
    assert!(store.claim(&id, Purpose::Destroy).await.unwrap());
    assert_eq!(rig.raw::<String>(&["GET", "test:owner:abc"]).await, "del:host:0123");
    // What another system wrote is respected, and what nobody can read is not taken for free.
    let _: () = rig.raw(&["SET", "test:owner:abc", "own:python:1"]).await;
    assert!(!store.claim(&id, Purpose::Keep).await.unwrap());
    let _: () = rig.raw(&["SET", "test:owner:abc", "rubbish"]).await;
    assert_eq!(store.owner(&id).await.unwrap_err().code(), Code::LeaseStoreDown);
}

#[tokio::test]
async fn a_restarted_server_is_found_again_and_a_stopped_one_is_an_error() {
    let mut rig = RedisRig::new();
    let (store, one, many) = (rig.store("a"), id("one"), vec![id("one"), id("two")]);
    assert!(store.take(&one).await.unwrap());
    rig.server.restart();
    // The first operation after the break already works, and the scripts are loaded again by themselves.
    assert_eq!(store.renew(&many).await.unwrap(), [Renewal::Lapsed, Renewal::Lapsed]);
    assert!(store.claim(&one, Purpose::Keep).await.unwrap());
    rig.server.restart();
    assert!(store.take(&one).await.unwrap());
    rig.server.stop();
    for error in [
        store.take(&one).await.map(drop).unwrap_err(),
        store.claim(&one, Purpose::Destroy).await.map(drop).unwrap_err(),
        store.renew(&many).await.map(drop).unwrap_err(),
        store.release(&one).await.unwrap_err(),
        store.owner(&one).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::LeaseStoreDown, "{error}");
    }
    rig.server.restart();
    assert!(store.take(&one).await.unwrap());
}

#[tokio::test]
async fn a_server_that_never_answers_is_an_error_in_time() {
    // Accepts nothing by itself: the kernel completes the connection and nobody ever replies.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let store = RedisStore::new(RedisConnection::open(&url, None).unwrap(), "p", OwnerId::from_text("a"), TTL);
    let start = Instant::now();
    let ids = [id("x")];
    let (take, renew) = tokio::join!(store.take(&ids[0]), store.renew(&ids));
    assert_eq!(take.unwrap_err().code(), Code::LeaseStoreDown);
    assert_eq!(renew.unwrap_err().code(), Code::LeaseStoreDown);
    let took = start.elapsed();
    assert!(took < OPERATION_TIMEOUT + Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn one_bad_key_never_shifts_the_answers_of_others() {
    let rig = RedisRig::new();
    let (store, ids) = (rig.store("a"), [id("good"), id("bad")]);
    let _: i64 = rig.raw(&["LPUSH", "test:owner:bad", "x"]).await;
    assert!(store.take(&ids[0]).await.unwrap());
    assert!(store.take(&ids[1]).await.is_err());
    assert_eq!(store.renew(&ids).await.unwrap(), [Renewal::Renewed, Renewal::Unknown]);
    for _ in 0..1000 {
        assert_eq!(state(&store, &ids[0]).await, Some(("a".to_owned(), LeaseState::Owned)));
    }
}

#[tokio::test]
async fn acl_users_and_passwords_work_and_never_show() {
    let rig = RedisRig::new();
    let _: () = rig.raw(&["ACL", "SETUSER", "gate", "on", ">s3cret", "~test:owner:*", "+@all"]).await;
    let url = |login: &str| rig.server.url().replace("redis://", &format!("redis://{login}@"));
    let open = |login: &str| RedisConnection::open(&url(login), None).unwrap();
    let store = |login: &str| RedisStore::new(open(login), "test:owner", OwnerId::from_text("a"), TTL);
    assert!(store("gate:s3cret").take(&id("x")).await.unwrap());
    let error = store("gate:wr0ng").take(&id("x")).await.unwrap_err();
    assert!(error.code() == Code::LeaseStoreDown && !error.to_string().contains("wr0ng"), "{error}");
    let outside = RedisStore::new(open("gate:s3cret"), "elsewhere", OwnerId::from_text("a"), TTL);
    assert_eq!(outside.take(&id("x")).await.unwrap_err().code(), Code::LeaseStoreDown);
}

/// A certificate authority and a certificate for `localhost`, in a folder.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |words: &str| {
        let output = std::process::Command::new("openssl").args(words.split(' ')).current_dir(&folder).output();
        let output = output.expect("this test needs openssl on the PATH");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost").unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=sandgate-test");
    openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names");
    folder
}

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let folder = certificates();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (cert, key, ca) = (path("server.crt"), path("server.key"), path("ca.crt"));
    let port = port.to_string();
    let tls = ["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let _server = RedisServer::start(&[&tls[..], &["--tls-auth-clients", "no"]].concat());
    let url = format!("rediss://localhost:{port}");
    let take = |ca: Option<&str>| {
        let connection = RedisConnection::open(&url, ca.map(std::path::Path::new)).unwrap();
        let store = RedisStore::new(connection, "p", OwnerId::from_text("a"), TTL);
        async move { store.take(&id("x")).await }
    };
    assert!(take(Some(&ca)).await.unwrap());
    let error = take(None).await.unwrap_err();
    assert!(error.code() == Code::LeaseStoreDown && error.message().contains("certificate"), "{error}");
}
