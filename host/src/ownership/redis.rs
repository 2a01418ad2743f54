//! Leases in Redis: for gateways that share a backend.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt, TryStreamExt};
use redis::Script;

use super::connection::RedisConnection;
use super::lease::{Lease, LeaseState, OwnerId, ttl_ms};
use super::store::{Purpose, Renewal, Store};
use crate::error::{Code, Error, Result};
use crate::ids::SandboxId;

/// Keys per renewal script: enough that a round trip's cost is spread thin, few enough that a script never holds the
/// server for longer than some hundred microseconds.
const RENEW_CHUNK: usize = 128;
/// Renewals in flight at once in a cluster, where a script may touch one key only.
const CLUSTER_CONCURRENCY: usize = 64;

// In all scripts: KEYS the leases, ARGV[1] who we are, ARGV[2] the time to live in milliseconds. Time is the server's.

static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"local held = redis.call('GET', KEYS[1])
          if held and string.sub(held, 1, 4) == 'del:' then return 0 end
          redis.call('SET', KEYS[1], 'own:' .. ARGV[1], 'PX', ARGV[2])
          return 1",
    )
});

static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"local held = redis.call('GET', KEYS[1])
          local destroy = ARGV[3] == '1'
          if held then
            if held == 'del:' .. ARGV[1] then
              if not destroy then return 0 end
            elseif held ~= 'own:' .. ARGV[1] then
              return 0
            end
          end
          redis.call('SET', KEYS[1], (destroy and 'del:' or 'own:') .. ARGV[1], 'PX', ARGV[2])
          return 1",
    )
});

const RENEW_SOURCE: &str = r"local mine = 'own:' .. ARGV[1]
          local outcomes = {}
          for i, key in ipairs(KEYS) do
            local held = redis.pcall('GET', key)
            if type(held) == 'table' then
              outcomes[i] = -2
            elseif not held then
              outcomes[i] = -1
            elseif held == mine then
              redis.call('PEXPIRE', key, ARGV[2])
              outcomes[i] = 1
            else
              outcomes[i] = 0
            end
          end
          return outcomes";

static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(RENEW_SOURCE));

static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"local held = redis.call('GET', KEYS[1])
          if held == 'own:' .. ARGV[1] or held == 'del:' .. ARGV[1] then return redis.call('DEL', KEYS[1]) end
          return 0",
    )
});

static OWNER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"local held = redis.call('GET', KEYS[1])
          if not held then return false end
          return {held, redis.call('PTTL', KEYS[1])}",
    )
});

/// Leases under one prefix of a Redis deployment, `<prefix>:<sandbox id>`, with the same keys and values as the Python
/// system's, so that both can share one Redis and one backend.
#[derive(Clone)]
pub struct RedisStore {
    connection: Arc<RedisConnection>,
    prefix: String,
    me: OwnerId,
    ttl_ms: u64,
}

impl RedisStore {
    /// A view of the leases under `prefix`, whose trailing colons don't count. Connects to nothing yet.
    pub fn new(connection: Arc<RedisConnection>, prefix: &str, me: OwnerId, ttl: Duration) -> Self {
        Self { connection, prefix: prefix.trim_end_matches(':').to_owned(), me, ttl_ms: ttl_ms(ttl) }
    }

    fn key(&self, id: &SandboxId) -> String {
        format!("{}:{id}", self.prefix)
    }

    async fn yes(&self, script: &Script, id: &SandboxId, extra: Option<u8>) -> Result<bool> {
        let key = self.key(id);
        let outcome: i64 = self
            .connection
            .run(|mut link| {
                let mut call = script.key(&key);
                call.arg(self.me.as_str()).arg(self.ttl_ms);
                if let Some(extra) = extra {
                    call.arg(extra);
                }
                async move { call.invoke_async(&mut link).await }
            })
            .await?;
        Ok(outcome == 1)
    }

    /// One round trip for all of them: scripts of many keys, sent as one pipeline.
    async fn renew_pipelined(&self, ids: &[SandboxId]) -> Result<Vec<Renewal>> {
        let mut pipeline = redis::pipe();
        // The server may have forgotten the script; loading it again with every pass costs next to nothing.
        pipeline.cmd("SCRIPT").arg("LOAD").arg(RENEW_SOURCE).ignore();
        for chunk in ids.chunks(RENEW_CHUNK) {
            let command = pipeline.cmd("EVALSHA").arg(RENEW.get_hash()).arg(chunk.len());
            for id in chunk {
                command.arg(self.key(id));
            }
            command.arg(self.me.as_str()).arg(self.ttl_ms);
        }
        let pipeline = &pipeline;
        let answers: Vec<Vec<i64>> =
            self.connection.run(|mut link| async move { pipeline.query_async(&mut link).await }).await?;
        Ok(answers.into_iter().flatten().map(renewal).collect())
    }

    async fn renew_one(&self, id: &SandboxId) -> Result<Renewal> {
        let key = self.key(id);
        let outcome: Vec<i64> = self
            .connection
            .run(|mut link| {
                let mut call = RENEW.key(&key);
                call.arg(self.me.as_str()).arg(self.ttl_ms);
                async move { call.invoke_async(&mut link).await }
            })
            .await?;
        outcome.first().copied().map(renewal).ok_or_else(|| strange("a renewal without an outcome"))
    }

    async fn renew_singly(&self, ids: &[SandboxId]) -> Result<Vec<Renewal>> {
        let calls: Vec<BoxFuture<'_, _>> = ids.iter().map(|id| self.renew_one(id).boxed()).collect();
        stream::iter(calls).buffered(CLUSTER_CONCURRENCY).try_collect().await
    }
}

fn renewal(outcome: i64) -> Renewal {
    match outcome {
        1 => Renewal::Renewed,
        -1 => Renewal::Lapsed,
        // The key holds something that is no lease. It must not cost the other leases of the pass theirs.
        -2 => Renewal::Unknown,
        _ => Renewal::Lost,
    }
}

fn strange(what: impl std::fmt::Display) -> Error {
    Error::new(Code::LeaseStoreDown, format!("the lease store answered {what}"))
        .hint("check that nothing else writes keys under the lease prefix")
}

impl Store for RedisStore {
    fn me(&self) -> &OwnerId {
        &self.me
    }

    fn sees_peers(&self) -> bool {
        true
    }

    fn take<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<bool>> {
        self.yes(&TAKE, id, None).boxed()
    }

    fn claim<'a>(&'a self, id: &'a SandboxId, purpose: Purpose) -> BoxFuture<'a, Result<bool>> {
        self.yes(&CLAIM, id, Some(u8::from(purpose == Purpose::Destroy))).boxed()
    }

    fn renew<'a>(&'a self, ids: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        async move {
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let outcomes = if self.connection.is_cluster() {
                self.renew_singly(ids).await
            } else {
                self.renew_pipelined(ids).await
            }?;
            if outcomes.len() != ids.len() {
                return Err(strange(format_args!("{} renewals with {} outcomes", ids.len(), outcomes.len())));
            }
            Ok(outcomes)
        }
        .boxed()
    }

    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        async move { self.yes(&RELEASE, id, None).await.map(drop) }.boxed()
    }

    fn owner<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Option<Lease>>> {
        async move {
            let key = self.key(id);
            let held: Option<(String, i64)> = self
                .connection
                .run(|mut link| {
                    let call = OWNER.key(&key);
                    async move { call.invoke_async(&mut link).await }
                })
                .await?;
            let Some((value, left)) = held else { return Ok(None) };
            let state = [LeaseState::Owned, LeaseState::Destroying]
                .into_iter()
                .find_map(|state| value.strip_prefix(state.prefix()).map(|owner| (state, OwnerId::from_text(owner))));
            // Whatever it is, the sandbox is not free: an unreadable value must not make it look unowned.
            let (state, owner) = state.ok_or_else(|| strange(format_args!("{value:?} for sandbox {id}")))?;
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            Ok(Some(Lease { owner, state, left }))
        }
        .boxed()
    }
}
