//! The `sandgate` command.

mod cli;
mod inherited;

fn main() -> std::process::ExitCode {
    inherited::keep_from_children();
    cli::run()
}
