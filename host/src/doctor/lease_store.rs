//! Where leases are kept, and whether that works.

use std::time::Duration;

use super::check::Check;
use super::command::{find, install};
use crate::config::Config;
use crate::error::Error;
use crate::ownership::{OPERATION_TIMEOUT, ProbeFailure, RedisConnection, Resolved, Trouble};

const NAME: &str = "redis";

/// Looks at the store that the configuration and this environment mean.
pub(super) fn redis(config: &Config) -> Check {
    // As long as a lease's own operations may take.
    redis_in(config, &|name| std::env::var(name).ok(), OPERATION_TIMEOUT)
}

fn redis_in(config: &Config, env: &dyn Fn(&str) -> Option<String>, patience: Duration) -> Check {
    let store = match config.lease_store(env) {
        Ok(store) => store,
        Err(error) => return failed(&error),
    };
    let Some(url) = &store.redis_url else {
        let detail = "leases are kept in this gateway's memory, which is right for a single gateway; several that share \
                      a backend need [ownership] with type = \"redis\"";
        return Check::skip(NAME, detail);
    };
    match RedisConnection::open(url, store.redis_ca_file.as_deref()) {
        Ok(connection) => probe(&connection, &store, patience),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> Check {
    let fix = error.hint_text().unwrap_or("correct [ownership], or the variable that the URL comes from");
    Check::fail(NAME, error.message()).fix(fix)
}

fn probe(connection: &RedisConnection, store: &Resolved, patience: Duration) -> Check {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Check::fail(NAME, format!("the check can't be run: {error}")).fix("try again"),
    };
    // Below the prefix, since a login may be confined to it; no sandbox id holds two colons in a row.
    let key = format!("{}:::doctor", store.key_prefix);
    let found = runtime.block_on(connection.probe(&key, patience));
    // A look-up of a name that hangs is left behind.
    runtime.shutdown_background();
    let url = connection.shown();
    match found {
        Ok(Some(version)) => Check::ok(NAME, format!("{version} answers at {url} and keeps the leases")),
        Ok(None) => Check::ok(NAME, format!("{url} answers and keeps the leases; its login may not see the version")),
        Err(failure) => trouble(url, &failure),
    }
}

fn trouble(url: &str, failure: &ProbeFailure) -> Check {
    let detail = &failure.detail;
    let (what, fix) = match failure.trouble {
        Trouble::Refused => (format!("nothing listens at {url}: {detail}"), start()),
        Trouble::Silent => (
            format!("{url} does not answer: {detail}"),
            "correct the host and port of the URL, and let this host through the firewall before it".to_owned(),
        ),
        Trouble::Unreachable => (
            format!("{url} can't be reached: {detail}"),
            "correct the host of the URL, or this host's name resolution and routes".to_owned(),
        ),
        Trouble::Tls => (
            format!("no encrypted connection to {url}: {detail}"),
            "name the authority of its certificate in ownership.redis_ca_file, use the host name that the certificate \
             is for, or write redis:// if the server does not encrypt"
                .to_owned(),
        ),
        Trouble::Login => (
            format!("{url} refuses the login: {detail}"),
            "put the right user and password into the URL: redis://USER:PASSWORD@HOST:PORT/DB, with % escapes for \
             special characters"
                .to_owned(),
        ),
        Trouble::Permission => (
            format!("the login at {url} may not run what leases need: {detail}"),
            "allow that user the keys below ownership.key_prefix and the commands of scripts: ACL SETUSER NAME \
             ~PREFIX:* +@read +@write +@scripting"
                .to_owned(),
        ),
        Trouble::NotRedis => (
            format!("what answers at {url} is not Redis, or only talks encrypted: {detail}"),
            "correct the host and port of the URL, or write rediss:// for a server with TLS".to_owned(),
        ),
        Trouble::ReadOnly => (
            format!("{url} is a replica, which can't be written: {detail}"),
            "name the primary, or its sentinels: redis+sentinel://HOST,HOST/NAME".to_owned(),
        ),
        Trouble::Other => (
            format!("{url} can't be used: {detail}"),
            "look into the server's log, and correct the server or the URL".to_owned(),
        ),
    };
    Check::fail(NAME, what).fix(fix)
}

/// How a server is started here.
fn start() -> String {
    let install = match find("redis-server") {
        Some(_) => String::new(),
        None => format!("{}, then ", install("redis-server", "redis")),
    };
    format!("{install}sudo systemctl start redis-server; or correct the URL")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::super::Status;
    use super::*;
    use crate::config::{OwnershipConfig, OwnershipType, Secret};
    use crate::ownership::test_server::RedisServer;

    /// Long enough for a busy machine; only what is silent on purpose takes it, and gets less.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn check_within(url: &str, patience: Duration) -> Check {
        let mut ownership = OwnershipConfig::new(OwnershipType::Redis);
        ownership.redis_url = Some(Secret::new(url));
        let config = Config { ownership: Some(ownership), ..Config::default() };
        redis_in(&config, &|_| None, patience)
    }

    #[track_caller]
    fn fails(url: &str, detail: &str, fix: &str) {
        let found = check_within(url, PATIENCE);
        let right = found.status == Status::Fail
            && found.detail.contains(detail)
            && found.fix.as_ref().is_some_and(|text| text.contains(fix));
        assert!(right, "{found:?}");
        assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
    }

    /// A server that says this to everybody, then closes; or says nothing and keeps the connection.
    fn server(answer: Option<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                match answer {
                    Some(answer) => {
                        let _ = stream.read(&mut [0; 1024]);
                        let _ = stream.write_all(answer.as_bytes());
                    }
                    None => held.push(stream),
                }
            }
        });
        address
    }

    #[test]
    fn memory_needs_nothing_and_says_when_redis_is_needed() {
        let found = redis_in(&Config::default(), &|_| None, PATIENCE);
        assert!(found.status == Status::Skip && found.detail.contains("type = \"redis\""), "{found:?}");
    }

    #[test]
    fn a_server_that_works_says_its_version_wherever_its_url_is_from() {
        let server = RedisServer::start(&[]);
        let url = server.url().replace("redis://", "redis://:@");
        let found = redis_in(
            &Config::default(),
            &|name| (name == "DEER_FLOW_STREAM_BRIDGE_REDIS_URL").then(|| url.clone()),
            PATIENCE,
        );
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(found.detail.starts_with("Redis ") && found.detail.contains(&server.url()), "{found:?}");
        let version = found.detail.split(' ').nth(1).unwrap();
        assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{found:?}");
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fails(&format!("redis://:s3cret@127.0.0.1:{port}"), "nothing listens at redis://127.0.0.1", "start");
        fails("unix:///nowhere.sock?pass=s3cret", "nothing listens at unix:///nowhere.sock", "start");
        let http = server(Some("HTTP/1.1 400 Bad Request\r\n\r\n"));
        fails(&format!("redis://:s3cret@{http}"), "is not Redis", "rediss://");
        fails(&format!("rediss://:s3cret@{http}"), "no encrypted connection", "redis_ca_file");
        let closing = server(Some(""));
        fails(&format!("redis://{closing}"), "is not Redis", "rediss://");
        fails("redis://:s3cret@name.invalid", "redis://name.invalid", "URL");
        fails("http://:s3cret@host", "http://host", "redis+sentinel");

        let begun = std::time::Instant::now();
        let silent = check_within(&format!("redis://{}", server(None)), Duration::from_millis(200));
        assert!(silent.status == Status::Fail && silent.detail.contains("no answer within 0.2 s"), "{silent:?}");
        assert!(begun.elapsed() < PATIENCE);
    }

    #[test]
    fn logins_that_are_wrong_or_may_too_little_are_told_apart() {
        let acl = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            acl.path(),
            "user default on >s3cret ~* +@all\nuser reader on >s3cret ~* +@read +info\n\
             user blind on >s3cret ~deerflow:sandbox:owner:* +@read +@write +@scripting\n",
        )
        .unwrap();
        let server = RedisServer::start(&["--aclfile", acl.path().to_str().unwrap()]);
        let url = |login: &str| server.url().replace("redis://", &format!("redis://{login}"));
        fails(&url(""), "refuses the login", "PASSWORD");
        fails(&url(":s3cret-but-wrong@"), "refuses the login", "PASSWORD");
        fails(&url("reader:s3cret@"), "may not run what leases need", "ACL SETUSER");
        assert_eq!(check_within(&url(":s3cret@"), PATIENCE).status, Status::Ok);
        let blind = check_within(&url("blind:s3cret@"), PATIENCE);
        assert!(blind.status == Status::Ok && blind.detail.contains("may not see the version"), "{blind:?}");
    }

    #[test]
    fn a_replica_is_no_place_for_leases() {
        // Of a primary that is not there: nothing is copied meanwhile. Port 1 is nobody's.
        let replica = RedisServer::start(&["--replicaof", "127.0.0.1", "1"]);
        fails(&replica.url(), "is a replica", "primary");
    }
}
