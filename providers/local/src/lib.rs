//! The Local provider: sandboxes on the gateway's own machine.
//!
//! All that it knows is how to hand a call to the host's process and workspace capabilities; isolation, mounts and
//! environment are the host's and the operator's. Every stream goes through untouched, so the host takes its own back
//! and no byte of output or of a file passes through this component.

use sandgate_guest::prelude::*;
use sandgate_guest::{process, workspace};

struct Local;

sandgate_guest::export!(Local);

impl Lifecycle for Local {
    fn describe() -> Description {
        Description {
            name: "local".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            id_scheme: IdScheme::Readable,
            features: Features::SHARES_MOUNTS
                | Features::FINDABLE
                | Features::EPHEMERAL
                | Features::SPLIT_OUTPUT
                | Features::STDIN
                | Features::SIGNALS,
        }
    }

    async fn create(request: CreateRequest) -> Result<Vec<u8>> {
        Ok(request.sandbox_id.into_bytes())
    }

    /// A local sandbox is its directories, and those are there whenever somebody asks.
    async fn find(request: CreateRequest) -> Result<Option<Vec<u8>>> {
        Ok(Some(request.sandbox_id.into_bytes()))
    }

    async fn probe(_: Vec<u8>) -> Result<Liveness> {
        Ok(Liveness::Alive)
    }

    /// The host ends what a sandbox's commands left running; its files stay for the thread's next turn.
    async fn destroy(_: Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// `shell` of the provider's settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    shell: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { shell: "bash".into() }
    }
}

impl Sandbox for Local {
    async fn exec(
        _: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let Settings { shell } = sandgate_guest::settings()?;
        let spawn = process::SpawnRequest {
            program: shell,
            args: vec!["-c".into(), request.command],
            env: request.env,
            cwd: request.cwd,
            timeout_ms: request.timeout_ms,
            output_limit: request.output_limit,
        };
        process::spawn(spawn, stdin, signals).await
    }

    async fn read_file(_: Vec<u8>, path: String, range: ReadRange) -> Result<Content> {
        workspace::read(path, range).await
    }

    async fn write_file(_: Vec<u8>, path: String, data: ByteStream, options: WriteOptions) -> Result<u64> {
        workspace::write(path, data, options).await
    }

    async fn stat(_: Vec<u8>, path: String) -> Result<FileStat> {
        workspace::stat(path).await
    }

    async fn list_dir(_: Vec<u8>, path: String, options: ListOptions) -> Result<Listing> {
        workspace::list_dir(path, options).await
    }

    async fn glob(_: Vec<u8>, path: String, pattern: String, options: GlobOptions) -> Result<GlobResult> {
        workspace::glob(path, pattern, options).await
    }

    async fn grep(_: Vec<u8>, path: String, pattern: String, options: GrepOptions) -> Result<GrepResult> {
        workspace::grep(path, pattern, options).await
    }

    async fn remove(_: Vec<u8>, path: String, recursive: bool) -> Result<()> {
        workspace::remove(path, recursive).await
    }

    async fn make_dir(_: Vec<u8>, path: String) -> Result<()> {
        workspace::make_dir(path).await
    }
}
