//! What fails while a command's isolation is set up, after all checks, is never the command's own end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::{Isolation, ProcessGrant, SpawnRequest};
use super::kit::{Kit, Outcome, bash, grant};
use crate::error::Code;
use crate::mounts::VirtualPath;

/// Bubblewrap behind a script that does something first, if it is told to by a file.
fn delayed(dir: &Path, first: &str) -> ProcessGrant {
    let script = dir.join("bwrap");
    let now = dir.join("now");
    std::fs::write(&script, format!("#!/bin/sh\n[ ! -e {} ] || {first}\nexec bwrap \"$@\"\n", now.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    ProcessGrant { bwrap: Some(script), ..grant(Isolation::Namespace) }
}

fn assert_never_started(outcome: &Outcome) {
    let error = outcome.end.clone().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.to_string().contains("never started"), "{error}");
    assert!(outcome.stdout.is_empty() && outcome.errors().contains("bwrap: "), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_vanishes_after_the_check() {
    let scratch = tempfile::tempdir().unwrap();
    let kit = Kit::with(delayed(scratch.path(), &format!("rmdir $(cat {}/now)", scratch.path().display())));
    let sub = kit.dir.path().join("workspace/sub");
    std::fs::create_dir(&sub).unwrap();
    let request = || SpawnRequest {
        cwd: Some(VirtualPath::new("/mnt/user-data/workspace/sub").unwrap()),
        ..bash("echo here; exit 1")
    };
    let outcome = kit.run(request()).await.unwrap();
    assert_eq!((outcome.text().as_str(), outcome.code()), ("here\n", 1));
    std::fs::write(scratch.path().join("now"), sub.as_os_str().as_encoded_bytes()).unwrap();
    assert_never_started(&kit.run(request()).await.unwrap());
    std::fs::remove_file(scratch.path().join("now")).unwrap();
    assert_eq!(kit.bash("exit 1").await.code(), 1, "a command's own 1 stays what it is");
    kit.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_vanishes_after_the_check() {
    let scratch = tempfile::tempdir().unwrap();
    let kit = Kit::with(delayed(scratch.path(), &format!("rmdir $(cat {}/now)", scratch.path().display())));
    kit.bash("true").await;
    let skills = kit.dir.path().join("skills");
    std::fs::write(scratch.path().join("now"), skills.as_os_str().as_encoded_bytes()).unwrap();
    assert_never_started(&kit.bash("echo never").await);
    kit.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_vanishes_after_the_check() {
    let scratch = tempfile::tempdir().unwrap();
    let tools = scratch.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let program = tools.join("nowhere");
    std::fs::copy("/bin/sh", &program).unwrap();
    let mut grant = delayed(scratch.path(), &format!("rm {}", program.display()));
    grant.system_paths = vec![tools.clone()];
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let kit = Kit::with_env(grant, [("PATH".to_owned(), path)]);
    let args = vec!["-c".to_owned(), "echo here; exit 127".to_owned()];
    let request = SpawnRequest { program: "nowhere".into(), args, ..SpawnRequest::default() };
    let outcome = kit.run(request.clone()).await.unwrap();
    assert_eq!((outcome.text().as_str(), outcome.code()), ("here\n", 127));
    std::fs::write(scratch.path().join("now"), "").unwrap();
    assert_never_started(&kit.run(request).await.unwrap());
    kit.settled().await;
}
