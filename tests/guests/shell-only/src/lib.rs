//! A provider that has nothing but `exec`: it shows, and the conformance suite proves, what the SDK's shell defaults do.

use sandgate_guest::prelude::*;
use sandgate_guest::process;

struct ShellOnly;

sandgate_guest::export!(ShellOnly);

impl Lifecycle for ShellOnly {
    fn describe() -> Description {
        let features = Features::SPLIT_OUTPUT | Features::STDIN | Features::SIGNALS | Features::EPHEMERAL;
        Description { id_scheme: IdScheme::Readable, ..Description::new("shell-only", "0.1.0", features) }
    }

    async fn create(request: CreateRequest) -> Result<Vec<u8>> {
        Ok(request.sandbox_id.into_bytes())
    }

    async fn probe(_: Vec<u8>) -> Result<Liveness> {
        Ok(Liveness::Alive)
    }

    async fn destroy(_: Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl Sandbox for ShellOnly {
    async fn exec(
        _: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let spawn = process::SpawnRequest {
            program: "sh".into(),
            args: vec!["-c".into(), request.command],
            env: request.env,
            cwd: request.cwd,
            timeout_ms: request.timeout_ms,
            output_limit: request.output_limit,
        };
        process::spawn(spawn, stdin, signals).await
    }
}
