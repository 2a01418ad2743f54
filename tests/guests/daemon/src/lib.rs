//! A provider whose every sandbox is a process of this machine that outlives its gateway: what tests of ownership need
//! where a real backend has containers. `backend.sh` is the backend; here is what turns it into a provider.

use sandgate_guest::prelude::*;
use sandgate_guest::process;
use serde::{Deserialize, Serialize};

struct Daemon;

sandgate_guest::export!(Daemon);

const BACKEND: &str = include_str!("backend.sh");

/// The sandboxes of one page of the inventory.
const PAGE: usize = 100;

/// What `backend.sh` exits with when a sandbox is there already, or is not there.
const EXISTS: i32 = 10;
const ABSENT: i32 = 11;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Where the records and the log are: an absolute path of the host.
    dir: String,
    /// How long a stop takes, so that one can outlast a lease.
    #[serde(default)]
    stop_seconds: u32,
}

/// What the host keeps for us.
#[derive(Serialize, Deserialize)]
struct Record {
    id: String,
    pid: u32,
    start: u64,
}

impl Record {
    fn parse(instance: &[u8]) -> Result<Self> {
        Ok(serde_json::from_slice(instance)?)
    }

    /// From `pid:start`.
    fn of(id: &str, text: &str) -> Result<Self> {
        let parsed = text.split_once(':').and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse().ok()?)));
        let (pid, start) = parsed.ok_or_else(|| strange(text))?;
        Ok(Self { id: id.to_owned(), pid, start })
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    fn words(&self) -> [String; 3] {
        [self.id.clone(), self.pid.to_string(), self.start.to_string()]
    }
}

fn strange(text: &str) -> Error {
    Error::Other(format!("the backend answered {text:?}"))
}

/// How a step of the backend ended.
enum Outcome {
    Done(String),
    Exists,
    Absent,
}

/// Runs one step of the backend. Whatever it does not say for certain is an error.
async fn backend(verb: &str, dir: String, words: impl IntoIterator<Item = String>) -> Result<Outcome> {
    let mut args = vec!["-c".into(), BACKEND.into(), "backend".into(), verb.into(), dir];
    args.extend(words);
    let mut events = process::spawn(process::SpawnRequest::new("bash", args), None, None).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await {
        match event {
            Event::Stdout(bytes) => stdout.extend(bytes),
            Event::Stderr(bytes) => stderr.extend(bytes),
            Event::Dropped(count) => {
                return Err(Error::Unavailable(format!("{count} bytes of the backend's answer are missing")));
            }
            Event::Failed(error) => return Err(error),
            Event::Exited(status) => {
                return match status.code {
                    0 => Ok(Outcome::Done(String::from_utf8_lossy(&stdout).trim_end().to_owned())),
                    EXISTS => Ok(Outcome::Exists),
                    ABSENT => Ok(Outcome::Absent),
                    code => {
                        let said = String::from_utf8_lossy(&stderr).trim_end().replace('\n', ", ");
                        Err(Error::Unavailable(format!("the backend can't {verb}: exit code {code}: {said}")))
                    }
                };
            }
        }
    }
    Err(Error::Unavailable(format!("the end of the backend's {verb} was not seen")))
}

async fn lives(record: &Record) -> Result<bool> {
    let Settings { dir, .. } = sandgate_guest::settings()?;
    match backend("probe", dir, record.words()).await? {
        Outcome::Done(_) => Ok(true),
        Outcome::Absent => Ok(false),
        Outcome::Exists => Err(strange("exists")),
    }
}

impl Lifecycle for Daemon {
    fn describe() -> Description {
        let features =
            Features::FINDABLE | Features::LISTABLE | Features::SPLIT_OUTPUT | Features::STDIN | Features::SIGNALS;
        Description::new("daemon", env!("CARGO_PKG_VERSION"), features)
    }

    async fn create(request: CreateRequest) -> Result<Vec<u8>> {
        let Settings { dir, .. } = sandgate_guest::settings()?;
        let CreateRequest { sandbox_id: id, scope, deployment } = request;
        let words = [id.clone(), scope.user, scope.thread.unwrap_or_default(), deployment];
        match backend("create", dir, words).await? {
            Outcome::Done(text) => Record::of(&id, &text)?.bytes(),
            Outcome::Exists => Err(Error::AlreadyExists(format!("there is a living sandbox {id}"))),
            Outcome::Absent => Err(strange("absent")),
        }
    }

    async fn find(request: CreateRequest) -> Result<Option<Vec<u8>>> {
        let Settings { dir, .. } = sandgate_guest::settings()?;
        let id = request.sandbox_id;
        match backend("find", dir, [id.clone(), request.deployment]).await? {
            Outcome::Done(text) => Ok(Some(Record::of(&id, &text)?.bytes()?)),
            Outcome::Absent => Ok(None),
            Outcome::Exists => Err(strange("exists")),
        }
    }

    async fn inventory(deployment: String, cursor: Option<String>) -> Result<Page> {
        let Settings { dir, .. } = sandgate_guest::settings()?;
        let words = [deployment, cursor.unwrap_or_default(), PAGE.to_string()];
        let Outcome::Done(text) = backend("inventory", dir, words).await? else { return Err(strange("no list")) };
        let (mut items, mut more) = (Vec::new(), false);
        for line in text.lines() {
            match line {
                "more" => more = true,
                line => items.push(item(line)?),
            }
        }
        let next = items.last().filter(|_| more).map(|item| item.sandbox_id.clone());
        Ok(Page { items, next })
    }

    async fn probe(instance: Vec<u8>) -> Result<Liveness> {
        Ok(if lives(&Record::parse(&instance)?).await? { Liveness::Alive } else { Liveness::Dead })
    }

    async fn destroy(instance: Vec<u8>) -> Result<()> {
        let Settings { dir, stop_seconds } = sandgate_guest::settings()?;
        let words = Record::parse(&instance)?.words().into_iter().chain([stop_seconds.to_string()]);
        match backend("destroy", dir, words).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Absent | Outcome::Exists => Err(strange("no end")),
        }
    }
}

/// From `id:pid:start:user:thread:created`.
fn item(line: &str) -> Result<Item> {
    let fields: Vec<&str> = line.split(':').collect();
    let [id, pid, start, user, thread, created] = fields[..] else { return Err(strange(line)) };
    let record = Record::of(id, &format!("{pid}:{start}"))?;
    let thread = Some(thread).filter(|thread| !thread.is_empty()).map(str::to_owned);
    Ok(Item {
        sandbox_id: id.to_owned(),
        instance: record.bytes()?,
        scope: Some(Scope { user: user.to_owned(), thread }),
        created_ms: created.parse().ok(),
    })
}

impl Sandbox for Daemon {
    async fn exec(
        instance: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let record = Record::parse(&instance)?;
        if !lives(&record).await? {
            return Err(Error::Gone(format!("the process of sandbox {} has ended", record.id)));
        }
        let spawn = process::SpawnRequest {
            program: "bash".into(),
            args: vec!["-c".into(), request.command],
            env: request.env,
            cwd: request.cwd,
            timeout_ms: request.timeout_ms,
            output_limit: request.output_limit,
        };
        process::spawn(spawn, stdin, signals).await
    }
}
