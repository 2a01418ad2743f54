//! One lazily made connection to Redis that reconnects by itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError,
    RedisFuture, RedisResult, ServerErrorKind, TlsCertificates, TlsMode, Value,
};
use tokio::sync::Mutex;

use crate::error::{Code, Error, Result};

/// How long one operation of a lease store may take, connecting and one retry included. A teardown's heartbeat does at
/// most two in a row when it ends, so this also bounds how long a finished teardown waits for it.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

enum Connector {
    Server(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

/// A connection that commands are sent over, whatever is behind it.
#[derive(Clone)]
pub(super) enum Link {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Server(link) => link.req_packed_command(cmd),
            Self::Cluster(link) => link.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Server(link) => link.req_packed_commands(pipeline, offset, count),
            Self::Cluster(link) => link.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Server(link) => link.get_db(),
            Self::Cluster(link) => link.get_db(),
        }
    }
}

#[derive(Default)]
struct Cached {
    link: Option<Link>,
    /// Counts the links, so that whoever saw one break does not throw its successor away.
    generation: u64,
}

/// A Redis deployment: one server, a Sentinel group or a cluster.
///
/// URLs: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, `unix:///path`;
/// `redis+sentinel://[user:password@]host[:port],host[:port]…/master[/db]` and
/// `redis+cluster://[user:password@]host[:port],host[:port]…`, with `rediss+…` for TLS. Nothing is connected before the
/// first operation. Every operation ends within [`OPERATION_TIMEOUT`]; one whose connection turns out to be broken is
/// tried once more on a new one, which is safe since all of ours may be repeated.
pub struct RedisConnection {
    connector: Connector,
    shown: String,
    encrypted: bool,
    cached: Mutex<Cached>,
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisConnection").field(&self.shown).finish()
    }
}

/// A URL taken apart, without its secrets in `shown`.
struct Url<'a> {
    tls: bool,
    login: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Url<'a> {
    fn parse(rest: &'a str, tls: bool) -> Self {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).collect();
        Self { tls, login, hosts, path }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "rediss" } else { "redis" }
    }

    fn nodes(&self, login: bool) -> Vec<String> {
        let login = if login && !self.login.is_empty() { format!("{}@", self.login) } else { String::new() };
        self.hosts.iter().map(|host| format!("{}://{login}{host}", self.scheme())).collect()
    }
}

fn bad_url(shown: &str, why: impl fmt::Display) -> Error {
    Error::config(format!("the Redis URL {shown} is not usable: {why}")).hint(
        "use redis://host:port/db, rediss:// for TLS, redis+sentinel://host,host/master or redis+cluster://host,host",
    )
}

/// The URL without login and query, for messages. Where it can't be told what is which, less is shown.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    // A password may hold any character, so the last @ ends the login, unless it may belong to a query.
    let rest = match rest.rsplit_once('@') {
        Some((before, _)) if before.contains(['?', '#']) => "…",
        Some((_, after)) => after,
        None => rest,
    };
    format!("{scheme}://{}", rest.split(['?', '#']).next().unwrap_or_default())
}

impl RedisConnection {
    /// Checks the URL and reads the certificate authority, if one is given; connects to nothing.
    pub fn open(url: &str, ca_file: Option<&Path>) -> Result<Arc<Self>> {
        // Whichever part of the process comes first chooses; both choices work here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let shown = shown(url);
        let fail = |error: RedisError| bad_url(&shown, describe(&error));
        let encrypted = url.starts_with("rediss");
        if ca_file.is_some() && !encrypted {
            return Err(Error::config(format!("`redis_ca_file` does not work with {shown}, which is not encrypted"))
                .hint("use a rediss:// or rediss+cluster:// URL, or remove `redis_ca_file`"));
        }
        let pem = ca_file
            .map(|file| {
                std::fs::read(file).map_err(|error| {
                    Error::config(format!("the certificate authority {} can't be read: {error}", file.display()))
                })
            })
            .transpose()?;
        // The client takes a file without any for an authority that trusts nobody.
        if let (Some(file), Some(pem)) = (ca_file, &pem)
            && memchr::memmem::find(pem, b"-----BEGIN CERTIFICATE-----").is_none()
        {
            let message = format!("the certificate authority {} holds no certificate in PEM form", file.display());
            return Err(Error::config(message).hint("name a file that begins with -----BEGIN CERTIFICATE-----"));
        }
        let certificates = pem.map(|root_cert| TlsCertificates { client_tls: None, root_cert: Some(root_cert) });
        let connector = if let Some((rest, tls)) = strip(url, "sentinel") {
            let url = Url::parse(rest, tls);
            let (master, db) = url.path.split_once('/').unwrap_or((url.path, "0"));
            if master.is_empty() || url.hosts.is_empty() {
                return Err(bad_url(&shown, "it names no sentinel or no master"));
            }
            if certificates.is_some() {
                return Err(Error::config("`redis_ca_file` does not work with a Sentinel URL")
                    .hint("add the certificate authority to the machine's own, or name the server itself"));
            }
            // The login of the URL is that of the server behind the sentinels.
            let server = format!("{}://{}@localhost/{db}", url.scheme(), url.login);
            let server = server.as_str().into_connection_info().map_err(fail)?;
            let settings: RedisConnectionInfo = server.redis_settings().clone();
            let mut node = SentinelNodeConnectionInfo::default().set_redis_connection_info(settings);
            if tls {
                node = node.set_tls_mode(TlsMode::Secure);
            }
            let client = SentinelClient::build(url.nodes(false), master, Some(node), SentinelServerType::Master);
            Connector::Sentinel(Box::new(Mutex::new(client.map_err(fail)?)))
        } else if let Some((rest, tls)) = strip(url, "cluster") {
            let url = Url::parse(rest, tls);
            if url.hosts.is_empty() {
                return Err(bad_url(&shown, "it names no node"));
            }
            let mut builder = ClusterClient::builder(url.nodes(true))
                .connection_timeout(OPERATION_TIMEOUT)
                .response_timeout(OPERATION_TIMEOUT);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates);
            }
            Connector::Cluster(Box::new(builder.build().map_err(fail)?))
        } else {
            let client = match certificates {
                Some(certificates) => Client::build_with_tls(url, certificates),
                None => Client::open(url),
            };
            Connector::Server(Box::new(client.map_err(fail)?))
        };
        Ok(Arc::new(Self { connector, shown, encrypted, cached: Mutex::default() }))
    }

    /// The URL without its login.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether keys are spread over several servers, so that one script may touch one key only.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.connector, Connector::Cluster(_))
    }

    pub(super) async fn connect(&self) -> RedisResult<Link> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(OPERATION_TIMEOUT))
            .set_response_timeout(Some(OPERATION_TIMEOUT));
        Ok(match &self.connector {
            Connector::Server(client) => {
                Link::Server(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Connector::Sentinel(client) => {
                Link::Server(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Connector::Cluster(client) => Link::Cluster(client.get_async_connection().await?),
        })
    }

    async fn link(&self) -> RedisResult<(Link, u64)> {
        let mut cached = self.cached.lock().await;
        if let Some(link) = &cached.link {
            return Ok((link.clone(), cached.generation));
        }
        let link = self.connect().await?;
        cached.generation += 1;
        cached.link = Some(link.clone());
        Ok((link, cached.generation))
    }

    async fn forget(&self, generation: u64) {
        let mut cached = self.cached.lock().await;
        if cached.generation == generation {
            cached.link = None;
        }
    }

    /// Runs an operation that may be repeated.
    pub(super) async fn run<T, F>(&self, operation: impl Fn(Link) -> F) -> Result<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let seen = std::sync::atomic::AtomicU64::new(0);
        let attempt = async {
            let (link, generation) = self.link().await?;
            seen.store(generation, std::sync::atomic::Ordering::Relaxed);
            operation(link).await
        };
        let whole = async {
            match attempt.await {
                Err(error) if is_broken(&error) => {
                    self.forget(seen.load(std::sync::atomic::Ordering::Relaxed)).await;
                    let (link, generation) = self.link().await?;
                    seen.store(generation, std::sync::atomic::Ordering::Relaxed);
                    operation(link).await
                }
                other => other,
            }
        };
        match tokio::time::timeout(OPERATION_TIMEOUT, whole).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if is_broken(&error) {
                    self.forget(seen.load(std::sync::atomic::Ordering::Relaxed)).await;
                }
                Err(self.down(describe(&error)))
            }
            Err(_) => {
                // A connection on which nothing comes back is as good as none. Never waits: the lock is only held
                // across a connect, which has then not been seen to work either.
                if let Ok(mut cached) = self.cached.try_lock() {
                    cached.link = None;
                }
                Err(self.down(format!("no answer within {} s", OPERATION_TIMEOUT.as_secs())))
            }
        }
    }

    fn down(&self, why: impl fmt::Display) -> Error {
        Error::new(Code::LeaseStoreDown, format!("the lease store at {} can't be used: {why}", self.shown)).hint(
            "check that Redis runs and that `redis_url` and its login are right; sandboxes that run are kept meanwhile",
        )
    }
}

/// `redis+KIND://rest` or `rediss+KIND://rest`.
fn strip<'a>(url: &'a str, kind: &str) -> Option<(&'a str, bool)> {
    let (scheme, rest) = url.split_once("://")?;
    let (scheme, found) = scheme.split_once('+')?;
    match scheme {
        "redis" if found == kind => Some((rest, false)),
        "rediss" if found == kind => Some((rest, true)),
        _ => None,
    }
}

/// Whether a new connection may do better: it broke, or the server behind it was demoted.
fn is_broken(error: &RedisError) -> bool {
    let demoted = matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown));
    error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error() || demoted
}

/// The error in one line. The client never puts a password into its errors.
pub(super) fn describe(error: &RedisError) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_where_but_no_login() {
        for (url, expected) in [
            ("redis://ann:s3cret@host:1/2?x=s3cret", "redis://host:1/2"),
            ("rediss+sentinel://:s3cret@a,b:2/main", "rediss+sentinel://a,b:2/main"),
            ("unix:///run/redis.sock?pass=s3cret", "unix:///run/redis.sock"),
            ("redis://user:p@ss@host", "redis://host"),
            ("redis://:s3/cret@host/1", "redis://host/1"),
            ("redis://:s3?cret@host", "redis://…"),
            ("unix:///redis.sock?pass=s3@cret", "unix://…"),
            ("s3cret", "…"),
        ] {
            assert_eq!(shown(url), expected);
        }
        let error = RedisConnection::open("http://ann:s3cret@host", None).unwrap_err();
        assert_eq!(error.code(), Code::Config);
        assert!(!error.to_string().contains("s3cret") && error.to_string().contains("http://host"), "{error}");
    }

    #[test]
    fn every_url_form_opens_without_a_server() {
        for url in [
            "redis://localhost:1",
            "redis://ann:pw@[::1]:1/3",
            "rediss://localhost",
            "unix:///nowhere.sock",
            "redis+sentinel://:pw@a:1,b:2/main/1",
            "rediss+sentinel://a/main",
            "redis+cluster://ann:pw@a:1,b:2",
            "rediss+cluster://a",
        ] {
            assert!(RedisConnection::open(url, None).is_ok(), "{url}");
        }
        for url in ["redis+sentinel://a:1", "redis+sentinel:///main", "redis+cluster://", "nonsense", "redis+x://a"] {
            assert!(RedisConnection::open(url, None).is_err(), "{url}");
        }
    }
}
