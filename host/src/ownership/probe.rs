//! Whether a Redis deployment can be used, in the words of whoever has to mend it.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use super::connection::{Link, RedisConnection, describe};

/// What stands between a gateway and its Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody listens there.
    Refused,
    /// It did not answer in time.
    Silent,
    /// It can't be reached: no such host, no way there.
    Unreachable,
    /// The encrypted connection did not come about.
    Tls,
    /// It wants a login, or another one.
    Login,
    /// The login may not do what leases need.
    Permission,
    /// What answers does not speak Redis' protocol, or only encrypted.
    NotRedis,
    /// It can't be written to: a replica.
    ReadOnly,
    /// Something else.
    Other,
}

/// Why a Redis deployment can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFailure {
    /// What kind of trouble it is.
    pub trouble: Trouble,
    /// The client's or the server's own words, without the login.
    pub detail: String,
}

/// Every lease operation is a script that writes.
const WRITES: &str = "return redis.call('DEL', KEYS[1])";

impl RedisConnection {
    /// Connects anew, runs a script that writes (it deletes `key`, which must be one that nobody uses), and gives the
    /// server's version, if the login may ask for it. Takes at most `within`.
    pub async fn probe(&self, key: &str, within: Duration) -> Result<Option<String>, ProbeFailure> {
        let attempt = async {
            let mut link = self.connect().await?;
            Script::new(WRITES).key(key).invoke_async::<i64>(&mut link).await?;
            version(link).await
        };
        match tokio::time::timeout(within, attempt).await {
            Ok(Ok(version)) => Ok(version),
            Ok(Err(error)) => {
                Err(ProbeFailure { trouble: trouble(&error, self.is_encrypted()), detail: describe(&error) })
            }
            Err(_) => Err(ProbeFailure {
                trouble: Trouble::Silent,
                detail: format!("no answer within {} s", within.as_secs_f32()),
            }),
        }
    }
}

async fn version(mut link: Link) -> RedisResult<Option<String>> {
    match redis::cmd("INFO").arg("server").query_async::<Value>(&mut link).await {
        Ok(answer) => Ok(version_in(&answer)),
        // That is not needed for anything but to be shown.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The version in an answer to INFO: a text, or one for each node of a cluster.
fn version_in(answer: &Value) -> Option<String> {
    let text = match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.into(),
        Value::Map(nodes) => return nodes.iter().find_map(|(_, answer)| version_in(answer)),
        Value::Array(parts) => return parts.iter().find_map(version_in),
        _ => return None,
    };
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|found| found.trim().to_owned()))
    };
    // Valkey tells the version of Redis that it stands for as well.
    field("valkey_version")
        .map(|version| format!("Valkey {version}"))
        .or_else(|| field("redis_version").map(|version| format!("Redis {version}")))
}

fn trouble(error: &RedisError, encrypted: bool) -> Trouble {
    match error.kind() {
        ErrorKind::AuthenticationFailed => return Trouble::Login,
        ErrorKind::Parse => return Trouble::NotRedis,
        ErrorKind::Server(ServerErrorKind::NoPerm) => return Trouble::Permission,
        ErrorKind::Server(ServerErrorKind::ReadOnly) => return Trouble::ReadOnly,
        _ => {}
    }
    if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) {
        return Trouble::Login;
    }
    if error.is_connection_refusal() {
        return Trouble::Refused;
    }
    if error.is_timeout() {
        return Trouble::Silent;
    }
    let Some(kind) = error.source().and_then(io_kind) else {
        return if error.is_io_error() { Trouble::Unreachable } else { Trouble::Other };
    };
    match kind {
        io::ErrorKind::InvalidData if encrypted => Trouble::Tls,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            if encrypted {
                Trouble::Tls
            } else {
                Trouble::NotRedis
            }
        }
        _ => Trouble::Unreachable,
    }
}

/// The client hands out the pointer that it keeps the system's error behind.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let error = error.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    error.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_every_form_of_answer() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let redis = text("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n");
        assert_eq!(version_in(&redis).as_deref(), Some("Redis 7.0.15"));
        let valkey = text("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n");
        assert_eq!(version_in(&valkey).as_deref(), Some("Valkey 8.0.1"));
        let cluster = Value::Map(vec![(text("10.0.0.1:6379"), Value::Nil), (text("10.0.0.2:6379"), redis)]);
        assert_eq!(version_in(&cluster).as_deref(), Some("Redis 7.0.15"));
        assert_eq!(version_in(&text("nothing")), None);
    }
}
