//! Running commands: which stream, which order, which exit code, which words, where.

use futures::future::join_all;
use sandgate::values::{Event, ExecRequest, ExitStatus};
use sandgate::{Code, DEFAULT_COLLECT_LIMIT};

use crate::support::{Handshake, Random, Subject, command, failure, quote, run, sh, text};

/// What was written to which stream arrives on it, in the order in which it was written.
pub async fn streams_are_told_apart_and_in_order(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let script = "echo o1; read x; echo e1 >&2; read x; echo o2; read x; echo e2 >&2; exit 4";
    let mut talk = Handshake::start(&sandbox, command(script)).await;
    let split = subject.features().split_output;
    let mut expected = Vec::new();
    for line in ["o1\n", "e1\n", "o2\n", "e2\n"] {
        let is_error = split && line.starts_with('e');
        let event = if is_error { Event::Stderr(line.into()) } else { Event::Stdout(line.into()) };
        assert_eq!(talk.next().await, event);
        expected.push(event);
        if expected.len() < 4 {
            talk.say("go").await;
        }
    }
    assert_eq!(talk.rest().await, [Event::Exited(ExitStatus { code: 4, signal: None })]);
}

/// Output streams: the reader has a line while the command still waits for an answer to it.
pub async fn a_line_arrives_before_the_command_ends(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let script = "n=0; while read -r line; do n=$((n+1)); echo \"$n:$line\"; done; echo end";
    let mut talk = Handshake::start(&sandbox, command(script)).await;
    for n in 1..=20 {
        talk.say(&format!("line {n}")).await;
        assert_eq!(talk.next().await, Event::Stdout(format!("{n}:line {n}\n").into()));
    }
    talk.close();
    let end = [Event::Stdout("end\n".into()), Event::Exited(ExitStatus { code: 0, signal: None })];
    assert_eq!(talk.rest().await, end);
}

/// The code is the command's own, whatever wraps it.
pub async fn exit_codes_are_exact(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    sh(&sandbox, "echo 'not a program' > plain; chmod 644 plain").await;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 3", 3),
        ("exit 42", 42),
        ("exit 124", 124),
        ("exit 255", 255),
        ("true", 0),
        ("false", 1),
        ("exec false", 1),
        ("false; true", 0),
        ("(exit 7)", 7),
        ("set -e; false; echo not reached", 1),
        ("true | (exit 5)", 5),
        ("no-such-program-anywhere", 127),
        ("/no/such/program", 127),
        ("./plain", 126),
        ("trap 'exit 9' EXIT; exit 1", 9),
    ] {
        let output = run(&sandbox, command(script)).await;
        assert_eq!(output.end, Ok(ExitStatus { code, signal: None }), "{script}: {}", text(&output.stderr));
        assert!(!text(&output.stdout).contains("not reached"), "{script}");
    }
    let output = run(&sandbox, command("if then")).await;
    assert_eq!(output.end.unwrap().code, 2, "a syntax error");
    assert!(!output.stderr.is_empty() || !subject.features().split_output, "a syntax error says what it is");
}

/// A command that a signal ends has the code that shells give it.
pub async fn deaths_by_signals_are_told(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for (name, number) in [("KILL", 9), ("TERM", 15), ("INT", 2), ("SEGV", 11), ("ABRT", 6), ("PIPE", 13)] {
        let output = run(&sandbox, command(format!("echo before; kill -{name} $$; read forever"))).await;
        let end = output.end.unwrap();
        assert_eq!(end.code, 128 + number, "{name}");
        assert!(end.signal.is_none_or(|signal| i32::from(signal) == number), "{name}: {end:?}");
        assert_eq!(&output.stdout[..], b"before\n", "{name}");
    }
    // Not the shell itself, but a child of it.
    assert_eq!(run(&sandbox, command("sh -c 'kill -9 $$'; exit $?")).await.end.unwrap().code, 137);
}

/// Commands at the same time do not mix.
pub async fn fifty_at_once(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let all = (0..50).map(|i| {
        let sandbox = &sandbox;
        async move {
            let request = ExecRequest {
                env: [("WHO".to_owned(), format!("w{i}"))].into(),
                ..command(format!("echo out-{i}-$WHO; echo err-{i} >&2; cat; exit {i}"))
            };
            (i, run(sandbox, request).await)
        }
    });
    for (i, output) in join_all(all).await {
        assert_eq!(output.end.unwrap().code, i);
        if subject.features().split_output {
            assert_eq!(text(&output.stdout), format!("out-{i}-w{i}\n"));
            assert_eq!(text(&output.stderr), format!("err-{i}\n"));
        } else {
            assert_eq!(text(&output.stdout), format!("out-{i}-w{i}\nerr-{i}\n"));
        }
    }
}

/// Nor does one find anything of the one before.
pub async fn two_hundred_in_a_row(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for i in 0..200 {
        let output = run(&sandbox, command(format!("echo {i}; LEFT=$LEFT.{i}; exit {}", i % 7))).await;
        assert_eq!((text(&output.stdout), output.end.unwrap().code), (format!("{i}\n"), i % 7));
    }
    assert_eq!(sh(&sandbox, "echo \"[$LEFT]\"").await, "[]\n");
}

/// No layer between caller and program takes a word apart or anything out of it.
pub async fn words_are_passed_exactly(subject: &Subject) {
    const PARTS: &[&str] = &[
        "",
        " ",
        "  ",
        "\n",
        "\t",
        "\r",
        "'",
        "\"",
        "\\",
        "$",
        "$HOME",
        "$(id)",
        "`id`",
        "${x}",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "~",
        "#",
        "!",
        "!!",
        "&",
        "&&",
        "|",
        ";",
        "<",
        ">",
        "(",
        ")",
        "-n",
        "-e",
        "--",
        "%s",
        "%%",
        "\\n",
        "\\0",
        "\u{1}",
        "\u{7f}",
        "é",
        "文",
        "🦀",
        "\u{200b}",
        "\u{feff}",
        "a",
        "b c",
        "=",
        ":",
        "/",
        "..",
        "\u{1b}[0m",
    ];
    let sandbox = subject.sandbox().await;
    let mut random = Random::new(31);
    for round in 0..300 {
        let words: Vec<String> = (0..random.below(6))
            .map(|_| (0..random.below(6)).map(|_| random.pick(PARTS)).collect::<String>())
            .collect();
        let mut script = "printf '%s\\0' first".to_owned();
        for word in &words {
            script.push(' ');
            script.push_str(&quote(word));
        }
        let output = run(&sandbox, command(&script)).await;
        let all = text(&output.stdout);
        let back: Vec<&str> = all.split_terminator('\0').skip(1).collect();
        assert_eq!(back, words, "round {round}: {script:?}: {output:?}");
    }
}

/// A command runs in the workspace, or where it is told; a place that is not there is named, and nothing runs.
pub async fn a_directory_to_run_in(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let here = sandbox.path(".").unwrap();
    assert_eq!(sh(&sandbox, "pwd").await, format!("{here}\n"));
    sh(&sandbox, "mkdir -p 'deep/er dir'; echo x > file").await;

    let there = sandbox.path("deep/er dir").unwrap();
    let request = ExecRequest { cwd: Some(there.clone()), ..command("pwd; touch made-here") };
    assert_eq!(text(&run(&sandbox, request).await.stdout), format!("{there}\n"));
    sandbox.stat(&sandbox.path("deep/er dir/made-here").unwrap()).await.unwrap();

    for (path, code) in [("gone/away", Code::NotFound), ("file", Code::NotADirectory)] {
        let cwd = sandbox.path(path).unwrap();
        let request = ExecRequest { cwd: Some(cwd.clone()), ..command(format!("touch {here}/canary")) };
        let error = match sandbox.exec(request).await {
            Err(error) => error,
            Ok(running) => failure(running.output(DEFAULT_COLLECT_LIMIT).await.end),
        };
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(cwd.as_str()), "{error}");
    }
    assert_eq!(failure(sandbox.stat(&sandbox.path("canary").unwrap()).await).code(), Code::NotFound);
}

/// NUL can't be passed to a program: it is refused, not cut off.
pub async fn a_command_with_nul_is_refused(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let error = failure(sandbox.exec(command("touch canary\0; true")).await);
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(failure(sandbox.stat(&sandbox.path("canary").unwrap()).await).code(), Code::NotFound);
}
