//! One method for each function that a provider exports.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::bindings::lifecycle;
use super::convert::exec_request;
use super::failure::Blame;
use super::provider::{MAX_INSTANCE_RECORD, Provider};
use super::state::Target;
use super::streams::{FromGuest, bytes_from_guest, bytes_to_guest, events_from_guest, to_guest};
use super::tails::{DoneConsumer, Patience, checked_end, watch_for_errors};
use crate::error::{Code, Error, Result};
use crate::ids::Scope;
use crate::instance::{InstanceRecord, Liveness};
use crate::mounts::VirtualPath;
use crate::rewrite::Redactor;
use crate::values::*;

impl Provider {
    /// Makes a sandbox.
    pub async fn create(&self, target: &Target, scope: &Scope, deployment: &str) -> Result<InstanceRecord> {
        let request = create_request(target, scope, deployment);
        let record = self
            .simple("create", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_create(accessor, request).await })
            })
            .await?;
        self.record("create", record)
    }

    /// Looks for an existing sandbox.
    pub async fn find(&self, target: &Target, scope: &Scope, deployment: &str) -> Result<Option<InstanceRecord>> {
        let request = create_request(target, scope, deployment);
        let record = self
            .simple("find", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_find(accessor, request).await })
            })
            .await?;
        record.map(|record| self.record("find", record)).transpose()
    }

    pub(super) fn record(&self, operation: &'static str, record: Vec<u8>) -> Result<InstanceRecord> {
        if record.len() > MAX_INSTANCE_RECORD {
            let Blame { provider, operation } = self.blame(operation);
            return Err(Error::new(
                Code::GuestProtocol,
                format!("provider {provider} gave an instance record of {} bytes in {operation}", record.len()),
            )
            .hint(format!("a provider must keep it under {MAX_INSTANCE_RECORD} bytes")));
        }
        Ok(InstanceRecord::new(record))
    }

    /// Whether it lives; an error means unknown.
    pub async fn probe(&self, target: &Target, instance: &InstanceRecord) -> Result<Liveness> {
        let instance = instance.as_bytes().to_vec();
        let liveness = self
            .simple("probe", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_probe(accessor, instance).await })
            })
            .await?;
        Ok(match liveness {
            lifecycle::Liveness::Alive => Liveness::Alive,
            lifecycle::Liveness::Dead => Liveness::Dead,
        })
    }

    /// Ends it, and everything that the host keeps for it.
    pub async fn destroy(&self, target: &Target, instance: &InstanceRecord) -> Result<()> {
        let destroyed = self.destroy_there(target, instance).await;
        self.forget(&target.sandbox);
        destroyed
    }

    /// Ends it at the backend only: what the host keeps under its id may be another's of the same id.
    pub async fn destroy_there(&self, target: &Target, instance: &InstanceRecord) -> Result<()> {
        let instance = instance.as_bytes().to_vec();
        self.simple("destroy", Some(target), |accessor, exports| {
            Box::pin(async move { exports.sandgate_provider_lifecycle().call_destroy(accessor, instance).await })
        })
        .await
    }

    /// Starts a command.
    pub async fn exec(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        request: &ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let (blame, instance) = (self.blame("exec"), instance.as_bytes().to_vec());
        // An instance that has seen a secret is not used again.
        let reusable = request.env.is_empty();
        let patience = match request.timeout {
            Some(timeout) if !timeout.is_zero() => {
                Patience::Until(timeout.saturating_add(self.runtime.options().call_timeout))
            }
            // A command may be silent for as long as it runs, and how long that is only the provider knows.
            _ => Patience::Endless,
        };
        let secrets = Redactor::new(request.env.values());
        let request = exec_request(request);
        let (answer, session) = self
            .run(&blame, Some(target), move |accessor, exports| {
                Box::pin(async move {
                    let (stdin, signals) = accessor.with(|mut access| -> wasmtime::Result<_> {
                        access.get().secrets = secrets;
                        let deadline = Arc::clone(&access.get().deadline);
                        let stdin = stdin
                            .map(|stdin| bytes_to_guest(&mut access, stdin, &deadline).map(|(stream, _)| stream))
                            .transpose()?;
                        let signals = signals.map(|signals| to_guest(&mut access, signals)).transpose()?;
                        Ok((stdin, signals))
                    })?;
                    let sandbox = exports.sandgate_provider_sandbox();
                    let events = match sandbox.call_exec(accessor, instance, request, stdin, signals).await? {
                        Ok(events) => events,
                        Err(error) => return Ok(Err(error)),
                    };
                    accessor.with(|mut access| {
                        let deadline = Arc::clone(&access.get().deadline);
                        events_from_guest(access, events, &deadline).map(Ok)
                    })
                })
            })
            .await?;
        Ok(self.hand_out(blame, session, answer?, reusable, patience))
    }

    /// Reads a file or a part of it.
    pub async fn read_file(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        range: ReadRange,
    ) -> Result<Content> {
        let (blame, instance, path) = (self.blame("read-file"), instance.as_bytes().to_vec(), path.to_string());
        let (answer, session) = self
            .run(&blame, Some(target), move |accessor, exports| {
                Box::pin(async move {
                    let sandbox = exports.sandgate_provider_sandbox();
                    let content = match sandbox.call_read_file(accessor, instance, path, range.into()).await? {
                        Ok(content) => content,
                        Err(error) => return Ok(Err(error)),
                    };
                    accessor.with(|mut access| {
                        let deadline = Arc::clone(&access.get().deadline);
                        let mut data = bytes_from_guest(&mut access, content.data, &deadline)?;
                        let done = match &mut data {
                            // The host sees the end of its own stream itself.
                            FromGuest::Own(_) => {
                                let mut done = content.done;
                                done.close(&mut access)?;
                                None
                            }
                            FromGuest::Made(_, tail) => {
                                let (sender, receiver) = oneshot::channel();
                                let (closed_sender, closed) = oneshot::channel();
                                tail.closed.push(closed);
                                let consumer = DoneConsumer { word: Some(sender), _closed: closed_sender };
                                content.done.pipe(&mut access, consumer)?;
                                Some(receiver)
                            }
                        };
                        Ok(Ok((FileStat::from(content.stat), data, done)))
                    })
                })
            })
            .await?;
        let (stat, data, done) = answer?;
        let data = self.hand_out(blame, session, data, true, Patience::Progress);
        let data = match done {
            Some(done) => checked_end(data, done),
            None => data,
        };
        Ok(Content { stat, data })
    }

    /// Writes a file; returns the number of bytes.
    pub async fn write_file(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        data: ByteStream,
        options: WriteOptions,
    ) -> Result<u64> {
        let (instance, path) = (instance.as_bytes().to_vec(), path.to_string());
        // A stream that breaks off is an error to the host, and the guest must not take it for the end of the file.
        let (broken_sender, broken) = oneshot::channel();
        let (blame, target) = (self.blame("write-file"), Some(target));
        let written = self.run(&blame, target, move |accessor, exports| {
            Box::pin(async move {
                let data = accessor.with(|mut access| {
                    let deadline = Arc::clone(&access.get().deadline);
                    let data = watch_for_errors(data, broken_sender, Arc::clone(&deadline));
                    bytes_to_guest(&mut access, data, &deadline)
                })?;
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_write_file(accessor, instance, path, data.0, options.into()).await
            })
        });
        let broken = async {
            match broken.await {
                Ok(error) => error,
                Err(_) => std::future::pending().await,
            }
        };
        let (answer, session) = tokio::select! {
            biased;
            error = broken => return Err(error),
            written = written => written?,
        };
        self.keep(session);
        answer
    }

    /// What a path is.
    pub async fn stat(&self, target: &Target, instance: &InstanceRecord, path: &VirtualPath) -> Result<FileStat> {
        let (instance, path) = (instance.as_bytes().to_vec(), path.to_string());
        self.simple("stat", Some(target), |accessor, exports| {
            Box::pin(async move { exports.sandgate_provider_sandbox().call_stat(accessor, instance, path).await })
        })
        .await
        .map(Into::into)
    }

    /// A directory's entries.
    pub async fn list_dir(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        options: ListOptions,
    ) -> Result<Listing> {
        let (instance, path) = (instance.as_bytes().to_vec(), path.to_string());
        self.simple("list-dir", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_list_dir(accessor, instance, path, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Paths that match.
    pub async fn glob(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        pattern: &str,
        options: GlobOptions,
    ) -> Result<GlobResult> {
        let (instance, path, pattern) = (instance.as_bytes().to_vec(), path.to_string(), pattern.to_owned());
        self.simple("glob", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_glob(accessor, instance, path, pattern, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Lines that match.
    pub async fn grep(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        pattern: &str,
        options: GrepOptions,
    ) -> Result<GrepResult> {
        let (instance, path, pattern) = (instance.as_bytes().to_vec(), path.to_string(), pattern.to_owned());
        self.simple("grep", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_grep(accessor, instance, path, pattern, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Removes a file, a link or a directory.
    pub async fn remove(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        recursive: bool,
    ) -> Result<()> {
        let (instance, path) = (instance.as_bytes().to_vec(), path.to_string());
        self.simple("remove", Some(target), |accessor, exports| {
            Box::pin(async move {
                exports.sandgate_provider_sandbox().call_remove(accessor, instance, path, recursive).await
            })
        })
        .await
    }

    /// Makes a directory and its parents.
    pub async fn make_dir(&self, target: &Target, instance: &InstanceRecord, path: &VirtualPath) -> Result<()> {
        let (instance, path) = (instance.as_bytes().to_vec(), path.to_string());
        self.simple("make-dir", Some(target), |accessor, exports| {
            Box::pin(async move { exports.sandgate_provider_sandbox().call_make_dir(accessor, instance, path).await })
        })
        .await
    }
}

fn create_request(target: &Target, scope: &Scope, deployment: &str) -> lifecycle::CreateRequest {
    lifecycle::CreateRequest {
        sandbox_id: target.sandbox.to_string(),
        scope: lifecycle::Scope {
            user: scope.user.to_string(),
            thread: scope.thread.as_ref().map(ToString::to_string),
        },
        deployment: deployment.to_owned(),
    }
}
