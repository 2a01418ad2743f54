//! The gateway's own environment, with secrets in it, through the real program.

use sandgate_tests::support::{Cli, drive};

/// Names of secrets as services and vendors have them.
const SECRETS: &[&str] = &[
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "SSH_AUTH_SOCK",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DATABASE_URL",
    "REDIS_URL",
    "PGPASSWORD",
    "MYSQL_PWD",
    "SENTRY_DSN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GIT_ASKPASS",
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "npm_config__authToken",
    "E2B_API_KEY",
    "MONGODB_URI",
    "CONNECTION_STRING",
];

/// 200 variables: every name above, as many that are made like them, and harmless ones between.
fn with_environment(mut cli: Cli) -> (Cli, Vec<String>) {
    let mut values = Vec::new();
    for n in 0..200 {
        let name = match (n % 4, SECRETS.get(n / 4)) {
            (0, Some(name)) => (*name).to_owned(),
            (0, None) => format!("SERVICE_{n}_SECRET"),
            (1, _) => format!("service_{n}_token"),
            (2, _) => format!("MY_{n}_PASSWORD_FILE"),
            (_, _) => format!("HARMLESS_{n}"),
        };
        let value = if name.starts_with("HARMLESS") { format!("plain-{n}") } else { format!("s3cret-value-{n}-x") };
        if !name.starts_with("HARMLESS") {
            values.push(value.clone());
        }
        cli = cli.env(name, value);
    }
    (cli, values)
}

/// What a command can find out: its environment, that of all processes it sees, and what its shell knows.
const LOOK: &str = "env; set; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; export -p";

#[test]
fn a_command_sees_no_secret_of_the_gateway() {
    drive(async {
        let (cli, secrets) = with_environment(Cli::new());
        let output = cli.run(&["exec", "-c", LOOK]).await;
        output.expect(0);
        let seen = output.text();
        assert!(secrets.len() == 150 && secrets.iter().all(|secret| !seen.contains(secret)), "{seen}");
        assert!(seen.contains("HARMLESS_3=plain-3") && seen.contains("HARMLESS_199=plain-199"), "{seen}");
        for name in SECRETS {
            assert!(!seen.contains(&format!("{name}=")), "{name}");
        }
    });
}

#[test]
fn with_an_allow_list_it_sees_what_is_listed() {
    drive(async {
        let config = "[environment]\nmode = \"allow-list\"\nallow = [\"HARMLESS_3\", \"HARMLESS_1*\", \"E2B_API_KEY\"]\ndeny = [\"HARMLESS_19*\"]\n";
        let (cli, _) = with_environment(Cli::with_config(config));
        let output = cli.run(&["exec", "-c", "env"]).await;
        output.expect(0);
        let seen = output.text();
        let has = |name: &str| seen.lines().any(|line| line.starts_with(&format!("{name}=")));
        assert!(
            has("HARMLESS_3") && has("HARMLESS_11") && has("HARMLESS_103") && has("PATH") && has("E2B_API_KEY"),
            "{seen}"
        );
        assert!(!has("HARMLESS_7") && !has("HARMLESS_199") && !has("GITHUB_TOKEN") && !has("SSH_AUTH_SOCK"), "{seen}");
        assert!(!seen.contains("s3cret-value-0-x"), "{seen}");
    });
}

#[test]
fn an_injected_value_is_in_no_log_line_and_comes_out_redacted() {
    drive(async {
        let secret = "tr0ub4dor-and-3";
        let cli = Cli::new().env("API_TOKEN", secret).env("RUST_LOG", "trace");
        let script = "echo \"it is $API_TOKEN\"; echo \"$API_TOKEN\" >&2; [ \"${#API_TOKEN}\" = 15 ] && exit 6";
        for output in [
            cli.run(&["exec", "--env", "API_TOKEN", "-c", script]).await,
            cli.run(&["--output", "json", "exec", "--env", "API_TOKEN", "-c", script]).await,
        ] {
            output.expect(6);
            assert_eq!(output.text(), "it is [redacted]\n");
            assert!(output.stderr.lines().count() > 20, "there is a log: {}", output.stderr);
            assert!(!output.stderr.contains(secret) && output.stderr.contains("[redacted]"), "{}", output.stderr);
        }
        // Nor in what goes wrong, whenever it does.
        for args in [
            ["exec", "--env", "API_TOKEN", "--cwd", "gone", "-c", "true"],
            ["exec", "--env", "API_TOKEN", "--timeout", "100ms", "-c", "echo $API_TOKEN; sleep 60"],
            ["exec", "--env", "API_TOKEN", "--provider", "none", "-c", "true"],
        ] {
            let output = cli.run(&args).await;
            assert_ne!(output.code, Some(0));
            assert!(!output.stderr.contains(secret) && !output.text().contains(secret), "{output:?}");
        }
        // A variable is the gateway's secret until it is given to a command.
        let output = cli.run(&["exec", "-c", "echo \"[$API_TOKEN]\""]).await;
        assert_eq!(output.expect(0).text(), "[]\n");
    });
}

#[test]
fn names_that_run_code_are_refused_with_their_name() {
    drive(async {
        let cli = Cli::new();
        for name in ["LD_PRELOAD", "BASH_ENV", "A B", "1X"] {
            let error = cli.error(&["exec", "--env", &format!("{name}=value-of-it"), "-c", "echo ran"], 125).await;
            assert_eq!(error["code"], "invalid-argument");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(name) && !message.contains("value-of-it"), "{message}");
        }
    });
}
