//! `sandgate doctor`: what this machine has and lacks.

use std::process::ExitCode;

use sandgate::Error;
use sandgate::config::Loaded;
use sandgate::doctor::{self, Status};
use serde_json::json;

use super::{Outcome, Output, print};

/// Runs all checks. A configuration that can't be used is one more finding, and the rest is checked with the built-in one.
pub(super) async fn run(loaded: Result<Loaded, Error>, output: Output) -> Outcome {
    let (config, problem) = match loaded {
        Ok(loaded) => (loaded.config, None),
        Err(error) => (sandgate::config::Config::default(), Some(error)),
    };
    let checks = tokio::task::spawn_blocking(move || doctor::run(&config))
        .await
        .map_err(|error| Error::internal(format!("the checks broke off: {error}")))?;
    let failed = problem.is_some() || checks.iter().any(|check| check.status == Status::Fail);
    if output == Output::Json {
        let problem = problem.map(|error| error.to_string());
        print::json(&json!({ "ok": !failed, "configuration_error": problem, "checks": checks }))?;
    } else {
        if let Some(error) = problem {
            print::line(&format!(
                "FAIL  configuration: {error}\n      (the rest is checked with the built-in configuration)"
            ))?;
        }
        for check in &checks {
            let status = match check.status {
                Status::Ok => "ok  ",
                Status::Warn => "WARN",
                Status::Fail => "FAIL",
                Status::Skip => "skip",
            };
            print::line(&format!("{status}  {}: {}", check.name, check.detail))?;
            if let Some(fix) = &check.fix {
                print::line(&format!("      fix: {}", fix.replace('\n', "\n           ")))?;
            }
        }
    }
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
