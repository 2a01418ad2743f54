//! Being told to end: what was begun is given up, and what was made for it is not left behind.

use std::pin::pin;
use std::process::ExitCode;

use sandgate::{Error, Gateway, ShutdownMode};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Outcome, Output, print};

/// The signals that tell a program to end, listened to from here on.
pub(super) struct Told {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Told {
    pub(super) fn listen() -> Result<Self, Error> {
        let of = |kind| signal(kind).map_err(|error| Error::internal(format!("no signals: {error}")));
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hangup: of(SignalKind::hangup())?,
        })
    }

    /// Resolves at the next of them, with the exit code of a program that it ended.
    pub(super) async fn next(&mut self) -> ExitCode {
        let number = tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        };
        ExitCode::from(128 + number)
    }

    /// Does some work, unless it is told to end first.
    pub(super) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ExitCode> {
        tokio::select! {
            done = work => Ok(done),
            code = self.next() => Err(code),
        }
    }

    /// Ends a gateway that was here for a single command. Told to end while it does so, it says what it waits for; told
    /// again, it leaves things as they are.
    pub(super) async fn close(
        mut self,
        gateway: &Gateway,
        mode: ShutdownMode,
        output: Output,
        outcome: Outcome,
    ) -> Outcome {
        let mut shutdown = pin!(gateway.shutdown_with(mode));
        let report = match self.unless(&mut shutdown).await {
            Ok(report) => report,
            Err(_) => {
                print::note(output, "its sandbox is being stopped; once more, and it is left as it is");
                match self.unless(shutdown).await {
                    Ok(report) => report,
                    Err(code) => {
                        print::note(
                            output,
                            "interrupted while its sandbox was being stopped: `sandgate sandbox list` shows what is left",
                        );
                        return Ok(code);
                    }
                }
            }
        };
        if report.failed > 0 {
            let count = report.failed;
            print::note(
                output,
                &format!("sandboxes that could not be stopped: {count}; `sandgate sandbox list` shows what is left"),
            );
        }
        outcome
    }
}
