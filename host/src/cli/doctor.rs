//! `sandgate doctor`.
use super::{Outcome, Output};
pub(super) async fn run(_: Result<sandgate::config::Loaded, sandgate::Error>, _: Output) -> Outcome {
    Ok(std::process::ExitCode::SUCCESS)
}
