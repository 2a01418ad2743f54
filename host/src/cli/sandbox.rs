//! `sandgate sandbox`: what there is at the backends, who looks after it, and ending it.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use sandgate::config::Loaded;
use sandgate::ids::{ProviderName, SandboxId, Scope, ThreadId, UserId};
use sandgate::lifecycle::{Lifecycle, ReconcileReport, ShutdownMode, Sighted, Stopped};
use sandgate::ownership::LeaseState;
use sandgate::{Code, Error, Gateway};
use serde_json::{Value, json};

use super::told::Told;
use super::{Outcome, Output, exit_code, print, visit};

/// Look at sandboxes and end them
#[derive(Debug, Subcommand)]
pub(super) enum Sandbox {
    /// List the sandboxes at the backends, and which gateway looks after each
    ///
    /// Phases: owned (a gateway looks after it), stopping (a gateway is stopping it), unowned (no gateway does; the next
    /// reconciliation adopts it once it was so for a whole lease time), unknown (its lease can't be read).
    #[command(
        after_help = "Examples:\n  sandgate sandbox list\n  sandgate sandbox list --output json | jq -r '.sandboxes[] | select(.phase == \"unowned\") | .id'"
    )]
    List {
        #[command(flatten)]
        of: Of,
    },
    /// Show one sandbox
    #[command(
        after_help = "Examples:\n  sandgate sandbox show 3f2a9c0b7d1e4f56\n  sandgate sandbox show --thread t1 --provider e2b"
    )]
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// End a sandbox, also one that is in use
    ///
    /// One that a gateway looks after is left alone: end it there, or take it over. Where leases are kept in each gateway's
    /// memory, nobody can see whether one does.
    #[command(
        after_help = "Examples:\n  sandgate sandbox destroy 3f2a9c0b7d1e4f56\n  sandgate sandbox destroy --thread t1 --provider e2b --take-over"
    )]
    Destroy {
        #[command(flatten)]
        which: Which,
        /// End it even if another gateway looks after it: whoever uses it there loses it
        #[arg(long)]
        take_over: bool,
    },
    /// Compare the backends' sandboxes with the leases, as gateways do by themselves
    ///
    /// Without `--stop-orphans` or `--watch` it is a single look, and nothing is stopped: what nobody looks after is counted as
    /// `deferred` (a running gateway adopts it after a whole lease time) or, where leases are kept in memory so that nobody else
    /// can be seen, as `adopted`. `unknown` are those whose lease could not be read (exit code 5).
    #[command(
        after_help = "Examples:\n  sandgate sandbox reconcile\n  sandgate sandbox reconcile --stop-orphans\n  sandgate sandbox reconcile --watch"
    )]
    Reconcile {
        #[command(flatten)]
        of: Of,
        /// Watch for a whole lease time, and stop what no gateway looked after in it (needs leases in Redis)
        #[arg(long)]
        stop_orphans: bool,
        /// Go on until told to end (SIGTERM, Ctrl-C), as a gateway that lends nothing: adopt what nobody looks after, and
        /// stop it when it was idle for the provider's `idle_timeout_seconds`. At the end, what it still has is given up,
        /// for another gateway to adopt
        #[arg(long, conflicts_with = "stop_orphans")]
        watch: bool,
    },
}

/// The sandboxes of which providers.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// Only this provider's [default: all]
    #[arg(short, long, value_name = "NAME")]
    provider: Option<ProviderName>,
}

/// One sandbox, by its id or by whose it is.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Its id, as `sandbox list` prints it
    #[arg(value_name = "ID", conflicts_with_all = ["user", "thread"], required_unless_present_any = ["user", "thread"])]
    id: Option<SandboxId>,
    /// The provider [default: the configuration's default_provider]
    #[arg(short, long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// The user that it belongs to, instead of an id [default: the user `default`]
    #[arg(short, long, value_name = "ID")]
    user: Option<UserId>,
    /// The thread that it belongs to, instead of an id
    #[arg(short, long, value_name = "ID")]
    thread: Option<ThreadId>,
}

impl Which {
    fn provider<'a>(&'a self, gateway: &'a Gateway) -> &'a ProviderName {
        self.provider.as_ref().unwrap_or(&gateway.config().default_provider)
    }

    fn scope(&self) -> Option<Scope> {
        let named = self.user.is_some() || self.thread.is_some();
        named.then(|| Scope { user: self.user.clone().unwrap_or_default(), thread: self.thread.clone() })
    }

    fn id(&self, lifecycle: &Lifecycle) -> SandboxId {
        match (&self.id, self.scope()) {
            (Some(id), _) => id.clone(),
            (None, scope) => lifecycle.id_of(&scope.unwrap_or_default()),
        }
    }
}

impl Sandbox {
    pub(super) async fn run(self, loaded: Loaded, output: Output) -> Outcome {
        if let Self::Reconcile { of, watch: true, .. } = self {
            return watch(loaded, of, output).await;
        }
        let gateway = visit(loaded).await?;
        let outcome = match self {
            Self::List { of } => list(&gateway, of, output).await,
            Self::Show { which } => show(&gateway, which, output).await,
            Self::Destroy { which, take_over } => destroy(&gateway, which, take_over, output).await,
            Self::Reconcile { of, stop_orphans, .. } => reconcile(&gateway, of, stop_orphans, output).await,
        };
        gateway.shutdown_with(ShutdownMode::Keep).await;
        outcome
    }
}

/// The providers that are asked about.
fn providers(gateway: &Gateway, of: Of) -> Vec<ProviderName> {
    match of.provider {
        Some(name) => vec![name],
        None => gateway.config().providers.keys().cloned().collect(),
    }
}

/// Whether a provider's sandboxes can be seen from here, and if not, why.
fn unseen(name: &ProviderName, lifecycle: &Lifecycle) -> Option<String> {
    let features = lifecycle.features();
    if features.ephemeral {
        Some(format!("{name}: its sandboxes live in the gateway that lends them, so none can be seen from here"))
    } else if !features.listable {
        Some(format!("{name}: it can't list its sandboxes; `sandbox show --user … --thread …` finds one"))
    } else {
        None
    }
}

async fn list(gateway: &Gateway, of: Of, output: Output) -> Outcome {
    let (mut sandboxes, mut problems, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for name in providers(gateway, of) {
        let surveyed = async {
            let lifecycle = gateway.lifecycle(&name).await?;
            notes.extend(unseen(&name, lifecycle));
            lifecycle.survey().await
        };
        match surveyed.await {
            Ok(survey) => {
                if !survey.complete && gateway.lifecycle(&name).await?.features().listable {
                    notes.push(format!("{name}: it has more sandboxes than are listed at once"));
                }
                for sighted in &survey.sandboxes {
                    let problem = sighted.unreadable.as_ref();
                    notes.extend(
                        problem.map(|why| format!("{name}: the lease of {}: {}", sighted.id, print::shown(why))),
                    );
                }
                sandboxes.extend(survey.sandboxes.into_iter().map(|sighted| (name.clone(), sighted)));
            }
            // The only one that was asked for.
            Err(error) if error.code() == Code::UnknownProvider => return Err(error),
            Err(error) => problems.push((name, error)),
        }
    }
    if output == Output::Json {
        let sandboxes: Vec<Value> = sandboxes.iter().map(|(name, sighted)| object(name, sighted)).collect();
        let problems: Vec<Value> = problems
            .iter()
            .map(|(name, error)| {
                json!({ "provider": name.as_str(), "code": error.code().as_str(), "message": error.message(), "hint": error.hint_text() })
            })
            .collect();
        print::json(&json!({ "sandboxes": sandboxes, "problems": problems, "notes": notes }))?;
    } else {
        if sandboxes.is_empty() {
            print::line("no sandboxes")?;
        } else {
            let head = ["PROVIDER", "ID", "USER", "THREAD", "PHASE", "OWNER", "LEASE", "AGE"].map(String::from);
            let rows = sandboxes.iter().map(|(name, sighted)| row(name, sighted));
            print::table(&std::iter::once(head.to_vec()).chain(rows).collect::<Vec<_>>())?;
        }
        for note in notes {
            print::note(output, &note);
        }
        for (name, error) in &problems {
            print::error(output, &error.clone().context(format_args!("provider {name}")));
        }
    }
    Ok(ExitCode::from(problems.first().map_or(0, |(_, error)| exit_code(error.code(), None))))
}

async fn show(gateway: &Gateway, which: Which, output: Output) -> Outcome {
    let name = which.provider(gateway);
    let lifecycle = gateway.lifecycle(name).await?;
    let id = which.id(lifecycle);
    let found = lifecycle.look_up(&id, which.scope().as_ref()).await?;
    let Some(sighted) = found else {
        let error = Error::not_found(format!("provider {name} has no sandbox {id}"));
        return Err(match unseen(name, lifecycle) {
            Some(why) => error.hint(why),
            None => error.hint("`sandgate sandbox list` shows what there is"),
        });
    };
    match output {
        Output::Json => print::json(&object(name, &sighted))?,
        Output::Table => {
            let values = object(name, &sighted);
            let rows = values.as_object().into_iter().flatten().map(|(key, value)| {
                let text = match value {
                    Value::Null => "-".to_owned(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                vec![format!("{}:", key.replace('_', " ")), text]
            });
            print::table(&rows.collect::<Vec<_>>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn destroy(gateway: &Gateway, which: Which, take_over: bool, output: Output) -> Outcome {
    let name = which.provider(gateway);
    let lifecycle = gateway.lifecycle(name).await?;
    let id = which.id(lifecycle);
    match lifecycle.destroy_anywhere(&id, which.scope().as_ref(), take_over).await? {
        Stopped::Yes => {}
        Stopped::NotHere => {
            let error = Error::not_found(format!("provider {name} has no sandbox {id}"));
            return Err(match unseen(name, lifecycle) {
                Some(why) => error.hint(why),
                None => error.hint("`sandgate sandbox list` shows what there is"),
            });
        }
        Stopped::Refused | Stopped::InUse => {
            let owner = lifecycle.look_up(&id, which.scope().as_ref()).await?.and_then(|sighted| sighted.lease);
            let owner = owner.map_or_else(
                || "another gateway".to_owned(),
                |lease| format!("gateway {}", print::shown(&lease.owner.to_string())),
            );
            return Err(Error::new(Code::NotOwner, format!("{owner} looks after sandbox {id} of provider {name}"))
                .hint("end it there, or pass --take-over: whoever uses it there loses it"));
        }
    }
    match output {
        Output::Json => print::json(&json!({ "provider": name.as_str(), "id": id.as_str(), "destroyed": true }))?,
        Output::Table => print::line(&format!("sandbox {id} of provider {name} is gone"))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn reconcile(gateway: &Gateway, of: Of, stop_orphans: bool, output: Output) -> Outcome {
    let head = [
        "PROVIDER",
        "LISTED",
        "WHOLE LIST",
        "ADOPTED",
        "DEFERRED",
        "UNKNOWN",
        "DEAD",
        "DUPLICATES",
        "STOPPED",
        "FAILED",
    ];
    let (mut rows, mut objects) = (vec![head.map(String::from).to_vec()], Vec::new());
    let (mut problem, mut unknown, mut failed) = (None, false, false);
    for name in providers(gateway, of) {
        let reconciled = async {
            let lifecycle = gateway.lifecycle(&name).await?;
            if !lifecycle.features().listable {
                unseen(&name, lifecycle).iter().for_each(|why| print::note(output, why));
                return Ok(None);
            }
            let reconciled =
                if stop_orphans { stop_all(gateway, &name, lifecycle, output).await } else { look(lifecycle).await };
            reconciled.map(Some)
        };
        match reconciled.await {
            Ok(Some(reconciled)) => {
                unknown |= reconciled.report.unknown > 0;
                failed |= reconciled.failed > 0;
                let values = reconciled.counts(&name);
                let cell = |value: &Value| match value {
                    Value::Bool(whole) => if *whole { "yes" } else { "no" }.to_owned(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                rows.push(values.iter().map(|(_, value)| cell(value)).collect());
                objects.push(Value::from_iter(values));
            }
            Ok(None) => {}
            // The others have a right to be looked at; the last problem decides the exit code.
            Err(error) => {
                let error = error.context(format_args!("provider {name}"));
                if let Some(earlier) = problem.replace(error) {
                    print::error(output, &earlier);
                }
            }
        }
    }
    match output {
        Output::Json => print::json(&objects)?,
        Output::Table => print::table(&rows)?,
    }
    match problem {
        Some(error) => Err(error),
        None if failed => Ok(ExitCode::from(1)),
        None if unknown => Ok(ExitCode::from(5)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Looks after what nobody else does, until told to end.
async fn watch(loaded: Loaded, of: Of, output: Output) -> Outcome {
    let mut told = Told::listen()?;
    let gateway = Gateway::open(loaded.config).await?;
    let (mut watched, mut others) = (Vec::new(), Vec::new());
    for name in providers(&gateway, of) {
        match gateway.lifecycle(&name).await {
            Ok(lifecycle) => match unseen(&name, lifecycle) {
                Some(why) => others.push(why),
                None => watched.push(name.to_string()),
            },
            Err(error) if error.code() == Code::UnknownProvider => return Err(error),
            // The others have a right to be looked after.
            Err(error) => {
                others.push(format!("{name}: it can't be loaded"));
                print::error(output, &error.context(format_args!("provider {name}")));
            }
        }
    }
    if watched.is_empty() {
        let nothing =
            Error::new(Code::Unsupported, "no provider here can list its sandboxes: there is nothing to watch");
        return Err(nothing.hint(others.join("\n")));
    }
    others.iter().for_each(|why| print::note(output, why));
    print::note(output, &format!("watching {} as {}", watched.join(", "), gateway.owner_id()));
    told.next().await;
    told.close(&gateway, ShutdownMode::Keep, output, Ok(ExitCode::SUCCESS)).await
}

/// What reconciling one provider came to.
#[derive(Debug, Default)]
struct Reconciled {
    report: ReconcileReport,
    /// Orphans that were stopped.
    stopped: usize,
    /// Orphans that could not be stopped.
    failed: usize,
}

impl Reconciled {
    /// The columns, by their names in JSON.
    fn counts(&self, name: &ProviderName) -> Vec<(String, Value)> {
        let ReconcileReport { listed, complete, adopted, deferred, unknown, dead, duplicates } = self.report;
        let values = [
            ("provider", json!(name.as_str())),
            ("listed", json!(listed)),
            ("complete", json!(complete)),
            ("adopted", json!(adopted)),
            ("deferred", json!(deferred)),
            ("unknown", json!(unknown)),
            ("dead", json!(dead)),
            ("duplicates", json!(duplicates)),
            ("stopped", json!(self.stopped)),
            ("failed", json!(self.failed)),
        ];
        values.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// One more pass. What is left over is as the last pass saw it.
    async fn pass(&mut self, lifecycle: &Lifecycle) -> Result<(), Error> {
        let before = self.report;
        let now = lifecycle.reconcile().await?;
        self.report = ReconcileReport {
            adopted: before.adopted + now.adopted,
            dead: before.dead + now.dead,
            duplicates: before.duplicates + now.duplicates,
            ..now
        };
        Ok(())
    }

    /// Stops what the passes adopted.
    async fn stop(&mut self, name: &ProviderName, lifecycle: &Lifecycle, output: Output) {
        self.failed = 0;
        for status in lifecycle.list() {
            match lifecycle.destroy(&status.id, false).await {
                Ok(Stopped::Yes) => self.stopped += 1,
                // A peer has it, or works in it: it is no orphan.
                Ok(Stopped::Refused | Stopped::InUse | Stopped::NotHere) => {}
                Err(error) => {
                    self.failed += 1;
                    print::error(output, &error.context(format_args!("provider {name}")));
                }
            }
        }
    }
}

/// One reconciliation. What it adopts is given up again at the end.
async fn look(lifecycle: &Lifecycle) -> Result<Reconciled, Error> {
    let mut reconciled = Reconciled::default();
    reconciled.pass(lifecycle).await?;
    Ok(reconciled)
}

/// Reconciles until a whole lease time has passed, and stops what it adopts.
async fn stop_all(
    gateway: &Gateway,
    name: &ProviderName,
    lifecycle: &Lifecycle,
    output: Output,
) -> Result<Reconciled, Error> {
    let Some(times) = gateway.shared_leases() else {
        return Err(Error::new(
            Code::Unsupported,
            "leases are kept in each gateway's memory, so that nobody can say which sandboxes are orphans",
        )
        .hint("set ownership.type = \"redis\", or end single ones with `sandgate sandbox destroy`"));
    };
    // An orphan's grace begins when it is first seen; a look every quarter of it shows whether it stays one.
    let (step, looks) = (times.ttl() / 4, 5);
    let mut reconciled = Reconciled::default();
    for number in 0..=looks {
        reconciled.pass(lifecycle).await?;
        let left = reconciled.report.deferred + reconciled.report.unknown;
        if number == 0 && left > 0 {
            let seconds = times.ttl().as_secs();
            print::note(
                output,
                &format!("{name}: watching {left} sandboxes that nobody looks after for {seconds} seconds"),
            );
        }
        // There may be less room here than there are orphans: those that were adopted make way for the next.
        loop {
            let before = reconciled.stopped;
            reconciled.stop(name, lifecycle, output).await;
            if reconciled.stopped == before || reconciled.report.deferred == 0 {
                break;
            }
            reconciled.pass(lifecycle).await?;
        }
        if reconciled.report.deferred + reconciled.report.unknown == 0 || number == looks {
            break;
        }
        tokio::time::sleep(step).await;
    }
    Ok(reconciled)
}

/// A word for what a sandbox is doing, as far as can be seen from here.
fn phase(sighted: &Sighted) -> String {
    match (&sighted.here, &sighted.lease) {
        (Some(here), _) => json!(here.phase).as_str().unwrap_or_default().to_owned(),
        (None, Some(lease)) if lease.state == LeaseState::Destroying => "stopping".to_owned(),
        (None, Some(_)) => "owned".to_owned(),
        (None, None) if sighted.unreadable.is_some() => "unknown".to_owned(),
        (None, None) => "unowned".to_owned(),
    }
}

fn age(sighted: &Sighted) -> Option<Duration> {
    let created = UNIX_EPOCH + Duration::from_millis(sighted.created_ms?);
    SystemTime::now().duration_since(created).ok()
}

fn object(name: &ProviderName, sighted: &Sighted) -> Value {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "provider": name.as_str(),
        "id": sighted.id.as_str(),
        "user": sighted.scope.as_ref().map(|scope| scope.user.as_str()),
        "thread": sighted.scope.as_ref().and_then(|scope| scope.thread.as_ref()).map(ThreadId::as_str),
        "phase": phase(sighted),
        "owner": sighted.lease.as_ref().map(|lease| lease.owner.as_str()),
        "lease_left_ms": sighted.lease.as_ref().map(|lease| milliseconds(lease.left)),
        "at_backend": sighted.listed,
        "created_ms": sighted.created_ms,
        "age_ms": age(sighted).map(milliseconds),
        "consumers": sighted.here.as_ref().map(|here| here.holds),
        "running": sighted.here.as_ref().map(|here| here.operations),
    })
}

fn row(name: &ProviderName, sighted: &Sighted) -> Vec<String> {
    let dash = || "-".to_owned();
    let scope = sighted.scope.as_ref();
    vec![
        name.to_string(),
        sighted.id.to_string(),
        scope.map_or_else(dash, |scope| scope.user.to_string()),
        scope.and_then(|scope| scope.thread.as_ref()).map_or_else(dash, ToString::to_string),
        phase(sighted),
        sighted.lease.as_ref().map_or_else(dash, |lease| print::shown(&lease.owner.to_string())),
        sighted.lease.as_ref().map_or_else(dash, |lease| format!("{} s", lease.left.as_secs())),
        age(sighted).map_or_else(dash, shown_age),
    ]
}

/// `12 s`, `3 min`, `5 h` or `2 d`: what fits into a column.
fn shown_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_fit_into_a_column() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d")] {
            assert_eq!(shown_age(Duration::from_secs(seconds)), text);
        }
    }
}
