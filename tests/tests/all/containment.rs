//! No link, however it is made or swapped, leads out of a sandbox's mounts.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sandgate::config::MountConfig;
use sandgate::values::*;
use sandgate::{Code, Error, Sandbox};
use sandgate_tests::support::{Kind, Subject, command, conform, drive, failure, sh};

const SECRET: &str = "root of all evil";

/// A directory of the host beside the sandboxes, with a file in it.
fn outside(subject: &Subject) -> PathBuf {
    let outside = subject.root().join("outside");
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    std::fs::write(outside.join("secret"), SECRET).unwrap();
    outside
}

fn untouched(outside: &Path) {
    let mut names: Vec<_> = std::fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["secret", "sub"]);
    assert_eq!(std::fs::read_dir(outside.join("sub")).unwrap().count(), 0);
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), SECRET);
}

fn workspace(subject: &Subject) -> PathBuf {
    subject.root().join("state/users/ann/threads/t1/user-data/workspace")
}

async fn refused<T: std::fmt::Debug>(what: &str, result: impl Future<Output = Result<T, Error>>) {
    let error = failure(result.await);
    assert_eq!(error.code(), Code::PathEscapes, "{what}: {error}");
    assert!(!error.to_string().contains("sandgate-"), "a path of the host in {error}");
}

async fn every_operation_is_refused(sandbox: &Sandbox, file: &str, dir: &str) {
    let (at, below) = (sandbox.path(file).unwrap(), sandbox.path(&format!("{dir}/new/file")).unwrap());
    let dir = sandbox.path(dir).unwrap();
    let mode = |mode| WriteOptions { mode, text: false };
    refused("read", sandbox.read(&at, ReadRange::All, 1 << 20)).await;
    refused("range", sandbox.read(&at, ReadRange::Bytes { offset: 1, length: None }, 1 << 20)).await;
    refused("lines", sandbox.read(&at, ReadRange::Lines { start: 1, end: None }, 1 << 20)).await;
    refused("write", sandbox.write(&at, "x", mode(WriteMode::Replace))).await;
    refused("append", sandbox.write(&at, "x", mode(WriteMode::Append))).await;
    refused("grep", sandbox.grep(&at, ".", GrepOptions::default())).await;
    refused("write below", sandbox.write(&below, "x", mode(WriteMode::Replace))).await;
    refused("create below", sandbox.write(&below, "x", mode(WriteMode::CreateNew))).await;
    refused("append below", sandbox.write(&below, "x", mode(WriteMode::Append))).await;
    refused("stat below", sandbox.stat(&below)).await;
    refused("make below", sandbox.make_dir(&below)).await;
    refused("remove below", sandbox.remove(&below, true)).await;
    refused("list", sandbox.list_dir(&dir, ListOptions::default())).await;
    refused("glob", sandbox.glob(&dir, "**", GlobOptions::default())).await;
    refused("grep below", sandbox.grep(&dir, ".", GrepOptions::default())).await;
}

async fn links_out(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let outside = outside(subject);
    let dir = outside.display();
    // Links as an agent makes them, to targets that are there and to those that are not.
    let script = format!(
        "ln -s {dir}/secret file; ln -s {dir} dir; ln -s {dir}/not-yet new-file; ln -s {dir}/sub/not-yet new-dir; \
         ln -s dir chain; ln -s ../../../../../../../../../../../..{dir} relative; mkdir in; ln -s {dir} in/deep"
    );
    // Without isolation the command's text is translated, but this is no path of the sandbox's.
    sh(&sandbox, &script).await;
    for (file, dir) in [
        ("file", "dir"),
        ("new-file", "new-dir"),
        ("chain/secret", "chain"),
        ("relative/secret", "relative"),
        ("in/deep/secret", "in/deep/sub"),
        ("dir/not-yet", "dir/sub"),
    ] {
        every_operation_is_refused(&sandbox, file, dir).await;
    }
    // What only looks on finds the links and nothing behind them.
    let here = sandbox.path(".").unwrap();
    let deep = ListOptions { max_depth: 9, ..ListOptions::default() };
    assert_eq!(sandbox.list_dir(&here, deep).await.unwrap().entries.len(), 8);
    let found = sandbox.grep(&here, "evil", GrepOptions::default()).await.unwrap();
    assert_eq!(found.matches, []);
    let found = sandbox.glob(&here, "secret", GlobOptions::default()).await.unwrap();
    assert_eq!(found.paths, [""; 0]);
    // Removing takes the link.
    for link in ["file", "dir", "relative", "in"] {
        sandbox.remove(&sandbox.path(link).unwrap(), true).await.unwrap();
    }
    untouched(&outside);
}

#[test]
fn links_out_of_a_sandbox_are_refused_by_every_operation() {
    conform(Kind::Local, links_out);
}

#[test]
fn links_out_are_refused_without_isolation_too() {
    conform(Kind::LocalUnconfined, links_out);
}

#[test]
fn links_to_system_files_are_refused() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        sh(&sandbox, "ln -s /etc/passwd leak; ln -s / root; ln -s /proc/self/root proc; ln -s /proc/1/cwd cwd").await;
        for path in ["leak", "root/etc/passwd", "proc/etc/passwd", "cwd/etc/passwd", "root/etc/hostname"] {
            refused(path, sandbox.read(&sandbox.path(path).unwrap(), ReadRange::All, 1 << 20)).await;
        }
        // Nor by their own names: no mount holds them.
        for path in ["/etc/passwd", "/etc/shadow", "/", "/proc/self/environ", "/root/.bashrc"] {
            let error = failure(sandbox.read(&sandbox.path(path).unwrap(), ReadRange::All, 1 << 20).await);
            assert!(!matches!(error.code(), Code::Other | Code::Internal), "{path}: {error}");
        }
    });
}

#[test]
fn a_sibling_with_the_same_beginning_is_another_place() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let sibling = subject.root().join("state/users/ann/threads/t1/user-data-2");
        std::fs::create_dir(&sibling).unwrap();
        std::fs::write(sibling.join("secret"), SECRET).unwrap();
        let path = sandbox.path("/mnt/user-data-2/secret").unwrap();
        assert!(sandbox.read(&path, ReadRange::All, 100).await.is_err());
        assert!(sandbox.write(&path, "x", WriteOptions::default()).await.is_err());
        symlink(&sibling, workspace(subject).join("link")).unwrap();
        refused("link", sandbox.read(&sandbox.path("link/secret").unwrap(), ReadRange::All, 100)).await;
        assert_eq!(std::fs::read_to_string(sibling.join("secret")).unwrap(), SECRET);
    });
}

/// 10,000 writes, while a command in the sandbox swaps the directory that they go to with a link out, as fast as it can.
#[test]
fn a_link_that_is_swapped_while_files_are_written_leads_nowhere() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let outside = outside(subject);
        sh(&sandbox, &format!("mkdir d; ln -s {} l", outside.display())).await;
        // Exchanged in one step: were `d` ever missing, a write would make it as a parent, and nothing would be swapped again.
        let swap = r#"exec perl -e 'use POSIX; $| = 1; my ($d, $l) = ("d", "l");
            my $exchange = (uname)[4] eq "x86_64" ? 316 : 276; print "ready\n";
            while (1) { syscall($exchange, -100, $d, -100, $l, 2) }'"#;
        let mut swapper = sandbox.exec(command(swap)).await.unwrap();
        assert_eq!(swapper.next().await, Some(Event::Stdout("ready\n".into())));
        let (mut written, mut refusals) = (0, 0);
        let mut round = 0;
        // On a machine that is busy with other things the swapper may come late.
        while round < 10_000 || (refusals == 0 && round < 100_000) {
            let path = sandbox.path(&format!("d/sub/f{}", round % 50)).unwrap();
            match sandbox.write(&path, "x", WriteOptions::default()).await {
                Ok(_) => written += 1,
                Err(error) => {
                    assert_eq!(error.code(), Code::PathEscapes, "{error}");
                    refusals += 1;
                }
            }
            round += 1;
        }
        drop(swapper);
        untouched(&outside);
        assert!(written > 0 && refusals > 0, "{written} written, {refusals} refused: nothing was swapped");
    });
}

#[test]
fn a_read_only_mount_stays_as_it_is() {
    drive(async {
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir(host.path().join("sub")).unwrap();
        std::fs::write(host.path().join("data"), "given").unwrap();
        let mount = |at: &str, read_only| MountConfig {
            host_path: host.path().to_owned(),
            container_path: at.to_owned(),
            read_only,
        };
        let mounts = vec![mount("/mnt/data", true), mount("/mnt/writable", false)];
        let subject = Subject::open_with(Kind::Local, |config| config.mounts = mounts).await;
        let sandbox = subject.sandbox().await;
        let data = sandbox.path("/mnt/data/data").unwrap();
        assert_eq!(&sandbox.read(&data, ReadRange::All, 100).await.unwrap()[..], b"given");
        assert!(sandbox.stat(&data).await.unwrap().read_only);
        assert_eq!(sh(&sandbox, "cat /mnt/data/data").await, "given");
        for script in [
            "echo x > /mnt/data/data",
            "echo x > /mnt/data/new",
            "rm /mnt/data/data",
            "mkdir /mnt/data/d",
            "chmod 777 /mnt/data/data",
            "mv /mnt/data/sub /mnt/data/bus",
            "mount -o remount,rw /mnt/data",
        ] {
            assert!(!sandgate_tests::support::run(&sandbox, command(script)).await.success(), "{script}");
        }
        let (new, sub) = (sandbox.path("/mnt/data/a/new").unwrap(), sandbox.path("/mnt/data/sub").unwrap());
        let mode = |mode| WriteOptions { mode, text: false };
        for result in [
            sandbox.write(&data, "x", mode(WriteMode::Replace)).await.map(drop),
            sandbox.write(&data, "x", mode(WriteMode::Append)).await.map(drop),
            sandbox.write(&new, "x", mode(WriteMode::CreateNew)).await.map(drop),
            sandbox.make_dir(&new).await,
            sandbox.remove(&data, false).await,
            sandbox.remove(&sub, true).await,
        ] {
            let error = failure(result);
            assert_eq!(error.code(), Code::ReadOnly, "{error}");
        }
        // A way round through a link in a place that can be written.
        sh(&sandbox, "ln -s /mnt/data/data link").await;
        let link = sandbox.path("link").unwrap();
        assert_eq!(failure(sandbox.write(&link, "x", mode(WriteMode::Replace)).await).code(), Code::ReadOnly);
        assert_eq!(std::fs::read_to_string(host.path().join("data")).unwrap(), "given");
        assert_eq!(std::fs::read_dir(host.path()).unwrap().count(), 2);
        // The same directory may be writable under another name.
        sh(&sandbox, "echo changed > /mnt/writable/data").await;
        assert_eq!(std::fs::read_to_string(host.path().join("data")).unwrap(), "changed\n");
        subject.gateway().shutdown().await;
    });
}
