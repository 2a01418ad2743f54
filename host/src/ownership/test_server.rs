//! A real `redis-server` of a test's own: a free loopback port, a private folder, ended by its process id.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

/// How long a server may take to answer before the test fails.
const START_DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct RedisServer {
    child: Option<Child>,
    port: u16,
    first: Vec<String>,
    args: Vec<String>,
    folder: TempDir,
}

impl RedisServer {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(&[], args)
    }

    /// With arguments that must come before (a configuration file and its mode).
    pub(crate) fn start_with(first: &[&str], args: &[&str]) -> Self {
        let mut folder = tempfile::tempdir().unwrap();
        let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let (first, args) = (owned(first), owned(args));
        // Another process may get the port first; the server then ends at once and the next port is tried.
        for _ in 0..20 {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let mut server = Self { child: None, port, first: first.clone(), args: args.clone(), folder };
            if server.run() {
                return server;
            }
            folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
        }
        panic!("no redis-server could be started");
    }

    /// Starts it, on its port; false if it ended before it answered.
    fn run(&mut self) -> bool {
        let child = Command::new("redis-server")
            .args(&self.first)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(if self.first.is_empty() { &["--save", "", "--appendonly", "no"][..] } else { &[] })
            .args(["--dir", self.folder.path().to_str().unwrap()])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need redis-server 6 or later on the PATH");
        let child = self.child.insert(child);
        let (sender, ready) = mpsc::channel();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // What it says itself, since another server may answer on the port. Read to the end, so that it never waits to write.
        std::thread::spawn(move || {
            while let Some(Ok(line)) = lines.next() {
                if line.contains("eady to accept connections") || line.contains("Sentinel ID is") {
                    let _ = sender.send(());
                }
            }
        });
        match ready.recv_timeout(START_DEADLINE) {
            Ok(()) => true,
            // It closed its output, and so ended.
            Err(mpsc::RecvTimeoutError::Disconnected) => false,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("redis-server does not say that it is ready"),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends it and starts it again on the same port, without its data.
    pub(crate) fn restart(&mut self) {
        self.stop();
        assert!(self.run(), "redis-server can't be started again");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
