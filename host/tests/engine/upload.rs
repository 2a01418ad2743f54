//! A long upload is no reason to end a call; a silent one is.

use std::time::Duration;

use bytes::Bytes;
use sandgate::engine::{EngineOptions, InstanceRecord};
use sandgate::error::{Code, Result};
use sandgate::mounts::VirtualPath;
use sandgate::values::WriteOptions;
use tokio::sync::mpsc;

use crate::support::{Bench, hostile, local, options};

const LIMIT: Duration = Duration::from_secs(10);

/// Sends pieces with pauses shorter than the limit, then either ends or falls silent.
async fn upload(component: Vec<u8>, silent: bool) -> Result<u64> {
    let bench = Bench::new(EngineOptions { call_timeout: LIMIT, ..options() }, component, "{}").await;
    let path = VirtualPath::new("/mnt/user-data/workspace/big").unwrap();
    let (sender, data) = mpsc::channel::<Result<Bytes>>(1);
    let record = InstanceRecord::default();
    let writing = bench.provider.write_file(&bench.room.target, &record, &path, data, WriteOptions::default());
    let feeding = async {
        for _ in 0..10 {
            sender.send(Ok(Bytes::from_static(b"piece"))).await.unwrap();
            while sender.capacity() == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::pause();
            tokio::time::advance(LIMIT * 8 / 10).await;
            tokio::time::resume();
        }
        if silent {
            tokio::time::pause();
            tokio::time::advance(LIMIT * 2).await;
            tokio::time::resume();
            std::future::pending::<()>().await;
        }
        drop(sender);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        written = writing => written,
        () = feeding => unreachable!("it has no end"),
    }
}

#[tokio::test]
async fn a_slow_upload_goes_on_as_long_as_bytes_move() {
    assert_eq!(upload(hostile(), false).await, Ok(50), "read by the guest");
    assert_eq!(upload(local(), false).await, Ok(50), "handed through");
}

#[tokio::test]
async fn an_upload_to_a_guest_that_falls_silent_is_ended() {
    assert_eq!(upload(hostile(), true).await.unwrap_err().code(), Code::Timeout);
}

#[tokio::test]
async fn an_upload_through_a_guest_that_falls_silent_is_ended() {
    assert_eq!(upload(local(), true).await.unwrap_err().code(), Code::Timeout);
}
