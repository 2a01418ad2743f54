//! One running command: its input, its output, its signals, and its end.

use std::collections::VecDeque;
use std::pin::pin;
use std::process::ExitStatus as OsStatus;
use std::time::Duration;

use rustix::process::Signal as OsSignal;
use std::os::unix::process::ExitStatusExt;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep_until};

use super::grant::seconds;
use super::groups::Group;
use super::headtail::HeadTail;
use super::members::signal_command;
use super::output::Output;
use super::start::Mark;
use crate::error::{Code, Error, Result};
use crate::values::{ByteStream, Event, ExitStatus, Signal, SignalStream};

/// How long the members of a killed group may take to vanish before the end is reported all the same. Only a process
/// that hangs in the kernel (a dead network file system) takes that long.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How often a command that nobody waits for is asked to end (SIGTERM) before it is killed. More than once, since a shell
/// that is just about to start the next program passes nothing on to it.
const ASKS: u32 = 4;

/// How long it may take after each: enough in all to remove a file on a busy machine, and less than anybody notices.
const CLEAR_UP: Duration = Duration::from_millis(500);

/// How often a command that is about to start in its namespace is looked for: to remember the namespace's first process,
/// and for signals that came before the command.
const START_LOOK: Duration = Duration::from_millis(1);

/// After so many looks the kernel does not tell (it lacks the list of children), and the group has to do.
const MAX_START_LOOKS: u32 = 2000;

/// How many signals wait for a command to start; more than these change nothing.
const MAX_WAITING_SIGNALS: usize = 16;

/// A command that has been started.
pub(super) struct Running {
    /// Before the child: what is dropped first kills, while the leader's number is its own.
    pub(super) group: Group,
    pub(super) child: Child,
    pub(super) output: Output,
    pub(super) events: Sender<Event>,
    pub(super) stdin: Option<(pipe::Sender, ByteStream)>,
    pub(super) signals: Option<SignalStream>,
    pub(super) timeout: Option<Duration>,
    pub(super) limit: Option<HeadTail>,
    /// Its leader is bubblewrap.
    pub(super) namespace: bool,
    /// Where those that start it say that they did. None: the program was started directly.
    pub(super) mark: Option<Mark>,
}

/// Why the watching ended.
enum End {
    Exited(OsStatus),
    TimedOut(Duration),
    CallerGone,
    BrokenInput(Error),
    Lost(std::io::Error),
}

impl Running {
    /// Sees the command through to its end. Dropping this (the runtime shuts down) kills the command.
    pub(super) async fn supervise(mut self) {
        let end = self.watch().await;
        // Dropped the other way round: the group before the child.
        let Self { mut child, mut group, mut output, events, mut limit, mark, .. } = self;
        let failed = match end {
            End::Exited(status) => {
                // What ended by a signal was killed, whoever it was then.
                let last = match mark {
                    Some(mark) if status.code().is_some() && !mark.started() => Event::Failed(never_started()),
                    _ => Event::Exited(exit_status(status)),
                };
                let mut rest = output.rest();
                if let Some(mib) = group.killed_for_memory() {
                    tracing::warn!(memory_mib = mib, "a process was killed at its command's limit on memory");
                    rest.push_back(Event::Stderr(memory_note(mib).into()));
                }
                // A slow reader takes its time, while the group may end and its number become another's.
                if group.while_doing(deliver(&events, rest, limit.take(), last)).await {
                    drop(events);
                    // What it left in the background goes on, and may write.
                    group.leave_rest(output.discard()).await;
                }
                return;
            }
            End::CallerGone => None,
            End::TimedOut(limit) => Some(
                Error::timeout(format!("the command was ended after its time limit of {}", seconds(limit))).hint(
                    "ask for a longer timeout, or start long work in the background with its output in a file (command > log 2>&1 &)",
                ),
            ),
            End::BrokenInput(error) => Some(error.context("standard input broke off and the command was ended")),
            End::Lost(error) => Some(Error::new(Code::ExitUnknown, format!("the command's end was not seen: {error}"))),
        };
        group.signal(OsSignal::KILL);
        let reaped = group.led_by(&mut child).await.is_ok();
        if reaped && !group.emptied(KILL_GRACE).await {
            tracing::warn!(group = group.id().as_raw_nonzero(), "a command's processes did not end when killed");
        }
        if let Some(error) = failed {
            group.while_doing(deliver(&events, output.rest(), limit, Event::Failed(error))).await;
        }
    }

    async fn watch(&mut self) -> End {
        let Self { child, group, output, events, stdin, signals, timeout, limit, namespace, mark: _ } = self;
        let deadline = timeout.and_then(|timeout| Some((Instant::now().checked_add(timeout)?, timeout)));
        let mut alarm = pin!(async {
            match deadline {
                Some((at, timeout)) => {
                    sleep_until(at).await;
                    timeout
                }
                None => std::future::pending().await,
            }
        });
        let mut feeding = stdin.is_some();
        let mut still_open = None;
        let mut feed = pin!(feed(stdin.take()));
        let mut waiting: VecDeque<Signal> = VecDeque::new();
        let mut reading = true;
        let mut looks = if *namespace { MAX_START_LOOKS } else { 0 };
        let mut ticks = tokio::time::interval(START_LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let end = loop {
            // In this order: a flood of output must hide neither the end, nor the deadline, nor a signal.
            tokio::select! {
                biased;
                () = events.closed() => break End::CallerGone,
                status = group.led_by(child) => break status.map_or_else(End::Lost, End::Exited),
                timeout = &mut alarm => break End::TimedOut(timeout),
                fed = &mut feed, if feeding => match fed {
                    Ok(()) => feeding = false,
                    Err(broken) => {
                        still_open = Some(broken.pipe);
                        break End::BrokenInput(broken.error);
                    }
                },
                signal = next_signal(signals), if signals.is_some() => match signal {
                    Some(signal) if waiting.len() < MAX_WAITING_SIGNALS => {
                        waiting.push_back(signal);
                        send_waiting(group, *namespace, &mut waiting);
                    }
                    Some(_) => {}
                    None => *signals = None,
                },
                _ = ticks.tick(), if looks > 0 || !waiting.is_empty() => {
                    looks = if looks == 0 || group.find_first() { 0 } else { looks - 1 };
                    send_waiting(group, *namespace, &mut waiting);
                }
                taken = async {
                    // First room, then bytes: while the reader is slow, the command waits in its write.
                    let permit = events.reserve().await.ok()?;
                    Some((permit, output.next().await))
                }, if reading => match taken {
                    None => break End::CallerGone,
                    Some((_, None)) => reading = false,
                    Some((permit, Some(event))) => {
                        let event = match limit {
                            Some(limit) => limit.push(event),
                            None => Some(event),
                        };
                        if let Some(event) = event {
                            permit.send(event);
                        }
                    }
                },
            }
        };
        // While its input is still open: one that reads to the end must not take this for the end.
        if matches!(end, End::CallerGone | End::BrokenInput(_)) {
            clear_up(group, child, *namespace).await;
        }
        drop(still_open);
        end
    }
}

/// Sends the rest of the output, and how it ended. False: the caller is gone.
async fn deliver(events: &Sender<Event>, rest: VecDeque<Event>, mut limit: Option<HeadTail>, last: Event) -> bool {
    for event in rest {
        let event = match &mut limit {
            Some(limit) => limit.push(event),
            None => Some(event),
        };
        if let Some(event) = event
            && events.send(event).await.is_err()
        {
            return false;
        }
    }
    for event in limit.into_iter().flat_map(HeadTail::finish) {
        if events.send(event).await.is_err() {
            return false;
        }
    }
    events.send(last).await.is_ok()
}

/// Writes the input and closes it. A command that does not want all of it is no error.
async fn feed(stdin: Option<(pipe::Sender, ByteStream)>) -> Result<(), Broken> {
    let Some((mut pipe, mut bytes)) = stdin else { return Ok(()) };
    while let Some(piece) = bytes.recv().await {
        match piece {
            Ok(piece) if pipe.write_all(&piece).await.is_err() => break,
            Ok(_) => {}
            Err(error) => return Err(Broken { error, pipe }),
        }
    }
    Ok(())
}

/// Input that broke off; closed, it would look like one that ends.
struct Broken {
    error: Error,
    pipe: pipe::Sender,
}

async fn next_signal(signals: &mut Option<SignalStream>) -> Option<Signal> {
    match signals {
        Some(signals) => signals.recv().await,
        None => None,
    }
}

/// Gives a command the time to clear up.
async fn clear_up(group: &mut Group, child: &mut Child, namespace: bool) {
    for _ in 0..ASKS {
        if !ask_to_end(group, namespace) || tokio::time::timeout(CLEAR_UP, group.led_by(child)).await.is_ok() {
            return;
        }
    }
}

/// False: there is no command yet that could clear up.
fn ask_to_end(group: &Group, namespace: bool) -> bool {
    if namespace {
        return signal_command(group.id(), OsSignal::TERM);
    }
    group.signal(OsSignal::TERM);
    true
}

fn send_waiting(group: &Group, namespace: bool, waiting: &mut VecDeque<Signal>) {
    while let Some(signal) = waiting.front() {
        let signal = match signal {
            Signal::Hangup => OsSignal::HUP,
            Signal::Interrupt => OsSignal::INT,
            Signal::Quit => OsSignal::QUIT,
            Signal::Kill => OsSignal::KILL,
            Signal::Terminate => OsSignal::TERM,
            Signal::Usr1 => OsSignal::USR1,
            Signal::Usr2 => OsSignal::USR2,
        };
        if !namespace || signal == OsSignal::KILL {
            group.signal(signal);
        } else if !signal_command(group.id(), signal) {
            return;
        }
        waiting.pop_front();
    }
}

fn never_started() -> Error {
    Error::unavailable("the command was never started: its isolation or its control group could not be set up")
        .hint("the reason is in its error output; nothing of it has run, so that it may be tried again")
}

/// The end alone (137) does not tell a command that took too much from one that somebody killed.
fn memory_note(mib: u64) -> String {
    format!("sandgate: the kernel killed a process of this command at its limit of {mib} MiB of memory\n")
}

/// In the namespace profile the code is what bubblewrap reports: the command's own, or 128 + N if signal N ended it. The
/// two can't be told apart from outside, so that no signal is claimed there unless it ended bubblewrap as well.
fn exit_status(status: OsStatus) -> ExitStatus {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    let code = status.code().or(signal.map(|signal| 128 + i32::from(signal))).unwrap_or(-1);
    ExitStatus { code, signal }
}
