//! Variables that a caller gives to one command.

use sandgate::values::{Event, ExecRequest};
use sandgate::{Code, Sandbox};

use crate::support::{Handshake, Subject, command, failure, processes, run, sh, text};

const SECRET: &str = "hunter2-correct-horse";

fn with(name: &str, value: &str, script: &str) -> ExecRequest {
    ExecRequest { env: [(name.to_owned(), value.to_owned())].into(), ..command(script) }
}

async fn absent(sandbox: &Sandbox, path: &str) {
    assert_eq!(failure(sandbox.stat(&sandbox.path(path).unwrap()).await).code(), Code::NotFound);
}

/// It is there for the command that it was given to, and for no other.
pub async fn a_variable_is_seen_by_its_command_only(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let request = with("API_TOKEN", SECRET, "sh -c 'printf %s \"${#API_TOKEN}\"'; env | grep -c ^API_TOKEN=");
    assert_eq!(text(&run(&sandbox, request).await.stdout), format!("{}1\n", SECRET.len()));
    assert_eq!(sh(&sandbox, "echo \"[$API_TOKEN]\"; env | grep -c ^API_TOKEN= || true").await, "[]\n0\n");
    // While another command has it.
    let talk = {
        let mut talk = Handshake::start(&sandbox, with("API_TOKEN", SECRET, "echo ready; cat > /dev/null")).await;
        assert_eq!(talk.next().await, Event::Stdout("ready\n".into()));
        talk
    };
    assert_eq!(sh(&sandbox, "echo \"[$API_TOKEN]\"").await, "[]\n");
    drop(talk);
}

/// Any text but NUL is a value.
pub async fn values_are_exact(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for value in ["", " ", "a=b", "it's \"q\"", "new\nline\n", "$HOME `id` $(id)", "\\", "ünï 🦀", "\u{1}\u{7f}", "-n"]
    {
        // Through a file, since what is long enough would be redacted from the output.
        let output = run(&sandbox, with("VALUE", value, "printf %s \"$VALUE\" > value")).await;
        assert!(output.success(), "{value:?}");
        let back = sandbox.read(&sandbox.path("value").unwrap(), Default::default(), 1000).await.unwrap();
        assert_eq!(text(&back), value);
    }
    let error = failure(sandbox.exec(with("VALUE", "a\0b", "touch canary")).await);
    assert_eq!(error.code(), Code::InvalidArgument);
    absent(&sandbox, "canary").await;
}

/// Whatever prints it, on either stream, whole or in parts, the reader does not get it.
pub async fn a_value_is_redacted_from_the_output(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let script = "echo \"a $TOKEN b\"; echo \"$TOKEN$TOKEN\" >&2; env | grep TOKEN";
    let output = run(&sandbox, with("TOKEN", SECRET, script)).await;
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(!all.contains(SECRET) && all.matches("[redacted]").count() == 4, "{all}");

    // In parts, with all that came before delivered before the next part is written.
    let script = "for c in h unter2-cor r ect-hor se; do printf %s $c; read -r next; done; echo .";
    let talk = Handshake::start(&sandbox, with("TOKEN", SECRET, script)).await;
    for _ in 0..5 {
        talk.say("next").await;
    }
    let all: Vec<u8> = talk
        .rest()
        .await
        .into_iter()
        .flat_map(|event| if let Event::Stdout(bytes) = event { bytes.to_vec() } else { Vec::new() })
        .collect();
    assert_eq!(text(&all), "[redacted].\n");

    // What only begins like it is whole.
    let output = run(&sandbox, with("TOKEN", SECRET, "printf 'hunter2-correct-hors'")).await;
    assert_eq!(text(&output.stdout), "hunter2-correct-hors");
}

/// Names that no shell could use, and names that run code, are refused with the name, without the value, and before
/// anything is started.
pub async fn unusable_names_are_refused_before_anything_runs(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for name in [
        "",
        "A=B",
        "a b",
        "1A",
        "A-B",
        "A.B",
        "Ä",
        "A\n",
        "A;touch canary",
        "$(touch canary)",
        "LD_PRELOAD",
        "ld_preload",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "ENV",
        "BASH_FUNC_x",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "IFS",
    ] {
        let error = failure(sandbox.exec(with(name, SECRET, "touch canary")).await);
        assert_eq!(error.code(), Code::InvalidArgument, "{name:?}: {error}");
        let message = error.to_string();
        assert!(message.contains(&format!("{name:?}")) && !message.contains(SECRET), "{message}");
        absent(&sandbox, "canary").await;
    }
}

/// Others on the machine, and other commands of the sandbox, don't read it off a list of processes.
pub async fn a_value_is_in_no_command_line(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    // Made here, so that no test's own text has it.
    let value = format!("very-{}-secret", "x".repeat(12));
    let mut talk = Handshake::start(&sandbox, with("TOKEN", &value, "echo ready; sleep 300 & cat > /dev/null")).await;
    assert_eq!(talk.next().await, Event::Stdout("ready\n".into()));
    let found: Vec<_> = processes().into_iter().filter(|process| process.command_line.contains(&value)).collect();
    assert!(found.is_empty(), "{found:?}");
    let pattern = "very-xxxxxx[x]*-secret";
    let script = format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '{pattern}' || true");
    assert_eq!(sh(&sandbox, &script).await, "0\n");
}
