//! What a path means: the same everywhere, and never something outside.

use sandgate::values::*;
use sandgate::{Code, Sandbox};

use crate::support::{Deviation, Subject, failure, sh, text};

/// The same path names the same file in commands and in every file operation.
pub async fn one_path_is_one_file_everywhere(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let mut places = vec![
        "/mnt/user-data/workspace",
        "/mnt/user-data/uploads",
        "/mnt/user-data/outputs",
        "/mnt/user-data",
        "/mnt/acp-workspace",
    ];
    if !subject.deviates(Deviation::NoOwnTmp) {
        places.push("/tmp");
    }
    for place in places {
        let dir = sandbox.path(&format!("{place}/made by a command")).unwrap();
        let file = sandbox.path(&format!("{dir}/f.txt")).unwrap();
        sh(&sandbox, &format!("mkdir '{dir}'; cd '{dir}'; echo one > '{file}'")).await;
        // The ten operations, each on what a command made, each seen by a command.
        assert_eq!(text(&sandbox.read(&file, ReadRange::All, 100).await.unwrap()), "one\n", "{place}");
        assert_eq!(sandbox.stat(&file).await.unwrap().size, 4, "{place}");
        let listing = sandbox.list_dir(&dir, ListOptions::default()).await.unwrap();
        assert_eq!(listing.entries, [DirEntry { path: file.to_string(), kind: FileKind::File, size: 4 }]);
        let found = sandbox.glob(&dir, "*.txt", GlobOptions::default()).await.unwrap();
        assert_eq!(found.paths, [file.to_string()]);
        let found = sandbox.grep(&dir, "one", GrepOptions::default()).await.unwrap();
        assert_eq!(found.matches, [GrepMatch { path: file.to_string(), line_number: 1, line: "one".into() }]);
        sandbox.write(&file, "two\n", WriteOptions::default()).await.unwrap();
        assert_eq!(sh(&sandbox, &format!("cat '{file}'")).await, "two\n", "{place}");
        let append = WriteOptions { mode: WriteMode::Append, text: false };
        sandbox.write(&file, "three\n", append).await.unwrap();
        assert_eq!(sh(&sandbox, &format!("cat '{file}'")).await, "two\nthree\n", "{place}");
        sandbox.remove(&file, false).await.unwrap();
        assert_eq!(sh(&sandbox, &format!("ls -A '{dir}'")).await, "", "{place}");
        sandbox.make_dir(&sandbox.path(&format!("{dir}/sub")).unwrap()).await.unwrap();
        let request =
            ExecRequest { cwd: Some(sandbox.path(&format!("{dir}/sub")).unwrap()), ..crate::support::command("pwd") };
        assert_eq!(text(&crate::support::run(&sandbox, request).await.stdout), format!("{dir}/sub\n"));
        sandbox.remove(&dir, true).await.unwrap();
        assert_eq!(sh(&sandbox, &format!("[ ! -e '{dir}' ] && echo gone")).await, "gone\n", "{place}");
    }
}

/// `..` is refused as such, wherever it leads.
pub async fn dots_lead_nowhere(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for path in
        ["..", "../x", "a/../b", "../../../../etc/passwd", "/mnt/user-data/workspace/../../../etc/passwd", "a/.."]
    {
        assert_eq!(failure(sandbox.path(path)).code(), Code::PathEscapes, "{path}");
    }
}

/// So that an agent need not know where it is.
pub async fn relative_paths_begin_at_the_workspace(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "echo here > f").await;
    let workspace = sh(&sandbox, "pwd").await.trim_end().to_owned();
    for path in ["f", "./f", "/f".replace("/f", &format!("{workspace}/f")).as_str(), ".//f", "f/", "./././f"] {
        let path = sandbox.path(path).unwrap();
        assert_eq!(path.as_str(), format!("{workspace}/f"));
        assert_eq!(text(&sandbox.read(&path, ReadRange::All, 100).await.unwrap()), "here\n");
    }
}

/// A link is followed as commands in the sandbox follow it.
pub async fn links_inside_lead_where_they_say(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "mkdir -p real/deep; echo x > real/deep/f; ln -s real/deep rel; ln -s ../deep real/deep/self; ln -s rel/f chain; \
        ln -s ../outputs sibling").await;
    for path in ["rel/f", "real/deep/self/f", "rel/self/self/f", "chain"] {
        let back = sandbox.read(&sandbox.path(path).unwrap(), ReadRange::All, 100).await;
        assert_eq!(text(&back.unwrap_or_else(|error| panic!("{path}: {error}"))), "x\n");
    }
    sandbox.write(&sandbox.path("sibling/made").unwrap(), "y", WriteOptions::default()).await.unwrap();
    assert_eq!(sh(&sandbox, "cat /mnt/user-data/outputs/made").await, "y");
}

async fn every_operation_fails(sandbox: &Sandbox, path: &str, codes: &[Code]) {
    let at = sandbox.path(path).unwrap();
    let append = WriteOptions { mode: WriteMode::Append, text: false };
    let create_new = WriteOptions { mode: WriteMode::CreateNew, text: false };
    let results = [
        ("read", sandbox.read(&at, ReadRange::All, 1 << 20).await.map(drop)),
        ("lines", sandbox.read(&at, ReadRange::Lines { start: 1, end: None }, 1 << 20).await.map(drop)),
        ("write", sandbox.write(&at, "x", WriteOptions::default()).await.map(drop)),
        ("append", sandbox.write(&at, "x", append).await.map(drop)),
        ("create-new", sandbox.write(&at, "x", create_new).await.map(drop)),
        ("list", sandbox.list_dir(&at, ListOptions::default()).await.map(drop)),
        ("glob", sandbox.glob(&at, "**", GlobOptions::default()).await.map(drop)),
        ("grep", sandbox.grep(&at, ".", GrepOptions::default()).await.map(drop)),
    ];
    for (operation, result) in results {
        let error = failure(result);
        assert!(codes.contains(&error.code()), "{operation} {path}: {}: {error}", error.code());
    }
}

/// A link that leads in circles ends in an error, whatever is asked of it.
pub async fn links_in_circles_end(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "ln -s loop loop; ln -s b a; ln -s a b").await;
    for path in ["loop", "a", "loop/x"] {
        // Making what is there already is refused for that, too; and at the end of a circle there is no file.
        let codes = [Code::PathEscapes, Code::AlreadyExists, Code::NotADirectory, Code::NotFound];
        every_operation_fails(&sandbox, path, &codes).await;
    }
}
