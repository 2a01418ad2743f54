//! The shared count of a provider's sandboxes, for limits that hold for a whole deployment.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use redis::Script;

use super::connection::RedisConnection;
use crate::error::{Code, Error, Result};
use crate::ids::{ProviderName, SandboxId};

/// What a reservation is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// There is a place, and it is taken now.
    Granted,
    /// Every place is taken.
    Full,
    /// Nobody has counted yet: a whole inventory must come first.
    NotReady,
}

/// What a reconciliation is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The ledger now says what the inventory says.
    Yes,
    /// Someone changed the ledger since the inventory began. Nothing was changed.
    Stale,
}

/// The count of one provider's sandboxes in a deployment. Everything fails closed: an error means that nobody knows
/// whether there is a place, so there is none.
pub trait Ledger: Send + Sync + 'static {
    /// Changes with every change; 0 for a ledger that is not there.
    fn revision(&self) -> BoxFuture<'_, Result<u64>>;

    /// Takes a place for a sandbox that is about to be made. Asking again with the same token is the same place.
    fn reserve<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Admission>>;

    /// Gives back a place for a sandbox that was not made.
    fn unreserve<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Notes a sandbox that exists, in the place of its reservation if it had one. Never refused: it exists.
    fn track<'a>(&'a self, id: &'a SandboxId, token: Option<&'a str>) -> BoxFuture<'a, Result<()>>;

    /// Frees the place of a sandbox that is certainly gone.
    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>>;

    /// Compares it with an inventory that began at `revision`. What is listed is noted. Only a `complete` inventory takes
    /// anything out: a sandbox that it lacks after having been missing for `max_age`, and reservations older than that;
    /// and only that makes a new ledger ready.
    fn reconcile<'a>(
        &'a self,
        revision: u64,
        listed: &'a [SandboxId],
        complete: bool,
        max_age: Duration,
    ) -> BoxFuture<'a, Result<Applied>>;
}

/// Where a provider's ledger lies: `<prefix>:<provider>-capacity`, for `e2b` where a Python gateway has it too.
pub fn ledger_key(base: &str, provider: &ProviderName) -> String {
    format!("{}:{provider}-capacity", base.trim_end_matches(':'))
}

/// The fields of the hash that are no places: its state, limit and revision.
const META_FIELDS: u32 = 3;

/// What every script begins with. KEYS[1] the hash, ARGV[1] the limit; time is the server's, in milliseconds.
const PRELUDE: &str = r"
    local key, limit = KEYS[1], ARGV[1]
    local stored = redis.call('HGET', key, 'meta:hard_limit')
    if stored and stored ~= limit then
      return redis.error_reply('LIMIT the capacity ledger was made for a limit of ' .. stored .. ', not ' .. limit)
    end
    local changed = false
    local function initialise()
      if not stored then
        redis.call('HSET', key, 'meta:state', 'initializing', 'meta:hard_limit', limit, 'meta:revision', 0)
        stored = limit
      end
    end
    local function put(field, value)
      if redis.call('HGET', key, field) ~= value then
        redis.call('HSET', key, field, value)
        changed = true
      end
    end
    local function drop(field)
      if redis.call('HDEL', key, field) == 1 then changed = true end
    end
    local function finish(answer)
      if changed then redis.call('HINCRBY', key, 'meta:revision', 1) end
      return answer
    end
    local function now()
      local time = redis.call('TIME')
      return time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local function text(milliseconds) return string.format('%.0f', milliseconds) end
";

fn script(body: &str) -> Script {
    Script::new(&format!("{PRELUDE}{body}"))
}

static REVISION: LazyLock<Script> =
    LazyLock::new(|| script("return tonumber(redis.call('HGET', key, 'meta:revision') or '0')"));

static RESERVE: LazyLock<Script> = LazyLock::new(|| {
    script(&format!(
        r"local token = 'r:' .. ARGV[2]
          if redis.call('HGET', key, 'meta:state') ~= 'ready' then return 'NOT_READY' end
          if redis.call('HEXISTS', key, token) == 1 then return 'GRANTED' end
          if redis.call('HLEN', key) - {META_FIELDS} >= tonumber(limit) then return 'FULL' end
          put(token, text(now()))
          return finish('GRANTED')"
    ))
});

static TRACK: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"initialise()
          if ARGV[3] ~= '' then drop('r:' .. ARGV[3]) end
          put('s:' .. ARGV[2], '1')
          return finish('OK')",
    )
});

static UNRESERVE: LazyLock<Script> = LazyLock::new(|| script("drop('r:' .. ARGV[2])\nreturn finish('OK')"));

static RELEASE: LazyLock<Script> = LazyLock::new(|| script("drop('s:' .. ARGV[2])\nreturn finish('OK')"));

static RECONCILE: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"local expected, complete, max_age = ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
          if (redis.call('HGET', key, 'meta:revision') or '0') ~= expected then return 'STALE' end
          initialise()
          local listed = {}
          for i = 5, #ARGV do
            listed['s:' .. ARGV[i]] = true
            put('s:' .. ARGV[i], '1')
          end
          if complete then
            local time = now()
            local fields = redis.call('HGETALL', key)
            for i = 1, #fields, 2 do
              local field, value = fields[i], fields[i + 1]
              local kind = string.sub(field, 1, 2)
              if kind == 's:' and not listed[field] then
                local missing = tonumber(string.match(value, '^m:(%d+)$'))
                if not missing then
                  put(field, 'm:' .. text(time))
                elseif time - missing >= max_age then
                  drop(field)
                end
              elseif kind == 'r:' and time - tonumber(value) > max_age then
                drop(field)
              end
            end
            put('meta:state', 'ready')
          end
          return finish('APPLIED')",
    )
});

/// A ledger in one Redis hash, with the fields of the Python system's: `meta:state`, `meta:hard_limit`,
/// `meta:revision`, `r:<token>` for reservations and `s:<sandbox id>` for sandboxes.
#[derive(Clone)]
pub struct RedisLedger {
    connection: Arc<RedisConnection>,
    key: String,
    limit: u32,
}

impl RedisLedger {
    /// The ledger under a key. Every gateway must give the same limit; another one's operations are refused. Connects
    /// to nothing yet.
    pub fn new(connection: Arc<RedisConnection>, key: String, limit: u32) -> Self {
        Self { connection, key, limit }
    }

    async fn call<T: redis::FromRedisValue>(&self, script: &Script, arguments: &[&str]) -> Result<T> {
        let called = self.connection.run(|mut link| {
            let mut call = script.key(&self.key);
            call.arg(self.limit);
            for argument in arguments {
                call.arg(*argument);
            }
            async move { call.invoke_async(&mut link).await }
        });
        called.await.map_err(|error| {
            Error::new(
                Code::CapacityBackend,
                format!("the shared count of sandboxes can't be used: {}", error.message()),
            )
            .hint(
                "no sandbox is made while the count is unknown; check Redis, and that all gateways have the same limit",
            )
        })
    }
}

impl Ledger for RedisLedger {
    fn revision(&self) -> BoxFuture<'_, Result<u64>> {
        self.call(&REVISION, &[]).boxed()
    }

    fn reserve<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Admission>> {
        async move {
            let answer: String = self.call(&RESERVE, &[token]).await?;
            Ok(match answer.as_str() {
                "GRANTED" => Admission::Granted,
                "FULL" => Admission::Full,
                _ => Admission::NotReady,
            })
        }
        .boxed()
    }

    fn unreserve<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<()>> {
        async move { self.call::<String>(&UNRESERVE, &[token]).await.map(drop) }.boxed()
    }

    fn track<'a>(&'a self, id: &'a SandboxId, token: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        async move { self.call::<String>(&TRACK, &[id.as_str(), token.unwrap_or_default()]).await.map(drop) }.boxed()
    }

    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        async move { self.call::<String>(&RELEASE, &[id.as_str()]).await.map(drop) }.boxed()
    }

    fn reconcile<'a>(
        &'a self,
        revision: u64,
        listed: &'a [SandboxId],
        complete: bool,
        max_age: Duration,
    ) -> BoxFuture<'a, Result<Applied>> {
        async move {
            let (revision, max_age) = (revision.to_string(), max_age.as_millis().to_string());
            let mut arguments = vec![revision.as_str(), if complete { "1" } else { "0" }, max_age.as_str()];
            arguments.extend(listed.iter().map(SandboxId::as_str));
            let answer: String = self.call(&RECONCILE, &arguments).await?;
            Ok(if answer == "APPLIED" { Applied::Yes } else { Applied::Stale })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::super::test_server::RedisServer;
    use super::*;

    const AGE: Duration = Duration::from_secs(120);

    fn ledger(server: &RedisServer, limit: u32) -> RedisLedger {
        let key = ledger_key("test:owner:", &"e2b".parse().unwrap());
        RedisLedger::new(RedisConnection::open(&server.url(), None).unwrap(), key, limit)
    }

    fn id(name: &str) -> SandboxId {
        name.parse().unwrap()
    }

    async fn raw<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
        let client = redis::Client::open(server.url()).unwrap();
        let mut link = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut link).await.unwrap()
    }

    const KEY: &str = "test:owner:e2b-capacity";

    #[tokio::test]
    async fn exactly_the_limit_is_granted_and_only_when_ready() {
        let server = RedisServer::start(&[]);
        let (one, two) = (ledger(&server, 2), ledger(&server, 2));
        assert_eq!(one.reserve("t").await.unwrap(), Admission::NotReady);
        assert_eq!(one.revision().await.unwrap(), 0);
        assert_eq!(one.reconcile(0, &[id("a")], false, AGE).await.unwrap(), Applied::Yes);
        assert_eq!(one.reserve("t").await.unwrap(), Admission::NotReady, "a partial inventory makes nothing ready");
        let revision = one.revision().await.unwrap();
        assert_eq!(one.reconcile(revision, &[id("a")], true, AGE).await.unwrap(), Applied::Yes);
        let racers = join_all((0..10).map(|racer| {
            let ledger = if racer % 2 == 0 { &one } else { &two };
            async move { ledger.reserve(&format!("t{racer}")).await.unwrap() }
        }))
        .await;
        let granted: Vec<_> = (0..10).filter(|racer| racers[*racer] == Admission::Granted).collect();
        assert!(granted.len() == 1 && racers.iter().filter(|answer| **answer == Admission::Full).count() == 9);
        let again = format!("t{}", granted[0]);
        assert_eq!(two.reserve(&again).await.unwrap(), Admission::Granted, "the same token is the same place");
        one.track(&id("b"), Some(&again)).await.unwrap();
        assert_eq!(one.reserve("more").await.unwrap(), Admission::Full);
        two.release(&id("a")).await.unwrap();
        assert_eq!(one.reserve("undone").await.unwrap(), Admission::Granted);
        assert_eq!(one.reserve("more").await.unwrap(), Admission::Full);
        one.unreserve("undone").await.unwrap();
        assert_eq!(one.reserve("more").await.unwrap(), Admission::Granted);
        let fields: Vec<String> = raw(&server, &["HKEYS", KEY]).await;
        assert_eq!(fields.iter().filter(|field| field.starts_with("meta:")).count(), META_FIELDS as usize);
        let mut places: Vec<_> = fields.iter().filter(|field| !field.starts_with("meta:")).cloned().collect();
        places.sort();
        assert_eq!(places, ["r:more", "s:b"]);
    }

    #[tokio::test]
    async fn another_limit_is_refused() {
        let server = RedisServer::start(&[]);
        ledger(&server, 2).reconcile(0, &[], true, AGE).await.unwrap();
        let other = ledger(&server, 3);
        for error in
            [other.reserve("t").await.map(drop), other.track(&id("a"), None).await, other.revision().await.map(drop)]
        {
            let error = error.unwrap_err();
            assert!(error.code() == Code::CapacityBackend && error.message().contains("limit of 2"), "{error}");
        }
        assert_eq!(raw::<u32>(&server, &["HLEN", KEY]).await, META_FIELDS);
    }

    #[tokio::test]
    async fn a_stale_inventory_changes_nothing() {
        let server = RedisServer::start(&[]);
        let ledger = ledger(&server, 5);
        ledger.reconcile(0, &[], true, AGE).await.unwrap();
        let began = ledger.revision().await.unwrap();
        ledger.reserve("t").await.unwrap();
        ledger.track(&id("new"), Some("t")).await.unwrap();
        let before: Vec<String> = raw(&server, &["HGETALL", KEY]).await;
        assert_eq!(ledger.reconcile(began, &[], true, Duration::ZERO).await.unwrap(), Applied::Stale);
        assert_eq!(raw::<Vec<String>>(&server, &["HGETALL", KEY]).await, before);
    }

    #[tokio::test]
    async fn what_is_missing_is_taken_out_only_after_its_time_and_by_whole_inventories() {
        let server = RedisServer::start(&[]);
        let ledger = ledger(&server, 5);
        ledger.reconcile(0, &[id("a"), id("b")], true, AGE).await.unwrap();
        ledger.reserve("crashed").await.unwrap();
        let reconcile = |listed: Vec<SandboxId>, complete, age| {
            let ledger = ledger.clone();
            async move {
                let revision = ledger.revision().await.unwrap();
                assert_eq!(ledger.reconcile(revision, &listed, complete, age).await.unwrap(), Applied::Yes);
            }
        };
        reconcile(vec![], false, Duration::ZERO).await;
        assert_eq!(raw::<u32>(&server, &["HLEN", KEY]).await, META_FIELDS + 3, "an incomplete one removes nothing");
        reconcile(vec![id("b")], true, AGE).await;
        assert!(raw::<String>(&server, &["HGET", KEY, "s:a"]).await.starts_with("m:"), "missing since now");
        reconcile(vec![id("a"), id("b")], true, AGE).await;
        assert_eq!(raw::<String>(&server, &["HGET", KEY, "s:a"]).await, "1", "back again");
        reconcile(vec![id("b")], true, AGE).await;
        // As if two minutes had passed: the server's clock is not ours to move.
        let _: u32 = raw(&server, &["HSET", KEY, "s:a", "m:1000", "r:crashed", "1000"]).await;
        reconcile(vec![id("b")], true, AGE).await;
        let mut places: Vec<String> = raw(&server, &["HKEYS", KEY]).await;
        places.retain(|field| !field.starts_with("meta:"));
        assert_eq!(places, ["s:b"]);
    }
}
