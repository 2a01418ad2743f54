//! The `sandgate` command.
#![expect(clippy::print_stdout, reason = "a command line program prints")]

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
