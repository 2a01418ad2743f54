//! Gateways that share a backend of real processes and a real Redis.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use sandgate::ids::Scope;
use sandgate_tests::support::{Cli, component};

use crate::redis_server::RedisServer;

/// One deployment. What its sandboxes left running ends with it.
pub(crate) struct Deployment {
    pub(crate) cli: Cli,
    server: Mutex<RedisServer>,
    user: String,
}

/// How long a lease lasts here, in seconds.
pub(crate) const TTL: u32 = 3;

impl Deployment {
    /// Leases in Redis, lasting for [`TTL`] seconds; `lifecycle` is what else the provider's lifecycle section has.
    pub(crate) fn new(lifecycle: &str) -> Self {
        let redis = RedisServer::start(&[]);
        let ownership = format!(
            "type = \"redis\"\nredis_url = {:?}\nrenewal_interval_seconds = 1\nttl_multiplier = {TTL}\n",
            redis.url()
        );
        Self::with(redis, &ownership, lifecycle)
    }

    /// Leases in each gateway's own memory.
    pub(crate) fn in_memory() -> Self {
        Self::with(RedisServer::start(&[]), "type = \"memory\"\n", "")
    }

    fn with(redis: RedisServer, ownership: &str, lifecycle: &str) -> Self {
        let cli = Cli::new();
        // Ids come from the scope, and other tests have sandboxes of the same kind.
        let user = cli.root().file_name().unwrap().to_str().unwrap().replace('.', "-");
        let (state, cache, dir) = (cli.root().join("state"), Cli::cache_dir(), cli.root().join("backend"));
        cli.write_config(&format!(
            "default_provider = \"daemon\"\n[gateway]\nstate_dir = {state:?}\ncache_dir = {cache:?}\n\
             [ownership]\n{ownership}\
             [providers.daemon]\ncomponent = {:?}\nsettings = {{ dir = {dir:?} }}\n\
             [providers.daemon.grants.process]\nisolation = \"none\"\n\
             allow_unconfined_commands_on_this_host = true\nnetwork = true\n\
             [providers.daemon.lifecycle]\n{lifecycle}",
            component("daemon"),
        ));
        Self { cli, server: Mutex::new(redis), user }
    }

    /// `args` with this deployment's user and a thread behind the first words (a command, perhaps with a subcommand).
    pub(crate) fn of<'a>(&'a self, words: &[&'a str], thread: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [words, &["--user", &self.user, "--thread", thread], args].concat()
    }

    /// The id of a thread's sandbox.
    pub(crate) fn id(&self, thread: &str) -> String {
        Scope::new(self.user.parse().unwrap(), thread.parse().unwrap()).hashed_id().to_string()
    }

    /// Where the backend has its records.
    pub(crate) fn backend(&self) -> PathBuf {
        self.cli.root().join("backend")
    }

    /// The file in which the backend has a thread's sandbox.
    pub(crate) fn record(&self, thread: &str) -> PathBuf {
        self.backend().join(self.id(thread))
    }

    /// A shell script that waits for a command's end and then says `alive` if its own sandbox was not stopped meanwhile.
    pub(crate) fn watching(&self, thread: &str, command: &str) -> String {
        format!(
            "IFS=: read -r pid start rest < {record:?} || exit 90\necho ready\n{command}\n\
             read -r stat < /proc/$pid/stat && set -- ${{stat##*) }} && [ \"${{20}}\" = \"$start\" ] && [ \"$1\" != Z ] && echo alive",
            record = self.record(thread),
        )
    }

    /// What the backend did, line by line: `created ID PID TIME`, `destroyed ID PID TIME`.
    pub(crate) fn log(&self) -> Vec<[String; 3]> {
        let text = std::fs::read_to_string(self.backend().join("log")).unwrap_or_default();
        let words = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            [(); 3].map(|()| words.next().unwrap_or_default())
        };
        text.lines().map(words).collect()
    }

    /// The sandboxes that live: their processes.
    pub(crate) fn living(&self) -> Vec<i32> {
        let made = self.log().into_iter().filter(|[what, ..]| what == "created");
        made.filter(|[_, id, pid]| {
            let line = std::fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
            line.starts_with(format!("sandgate-daemon-{id}\0").as_bytes())
        })
        .map(|[_, _, pid]| pid.parse().unwrap())
        .collect()
    }

    pub(crate) fn stop_redis(&self) {
        self.server.lock().unwrap().stop();
    }

    /// Starts it again, without its data.
    pub(crate) fn restart_redis(&self) {
        self.server.lock().unwrap().restart();
    }

    /// Asks Redis.
    pub(crate) fn redis(&self, words: &[&str]) -> String {
        let port = self.server.lock().unwrap().port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port, "--raw"]).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// A thread's lease, as `own:…` or `del:…`; empty if there is none.
    pub(crate) fn lease(&self, thread: &str) -> String {
        self.redis(&["GET", &format!("deerflow:sandbox:owner:daemon:{}", self.id(thread))])
    }

    /// All leases.
    pub(crate) fn leases(&self) -> Vec<String> {
        let keys = self.redis(&["KEYS", "deerflow:sandbox:owner:daemon:*"]);
        keys.lines().map(|key| self.redis(&["GET", key])).filter(|lease| !lease.is_empty()).collect()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        for pid in self.living() {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
