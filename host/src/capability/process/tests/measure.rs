//! Numbers, to be looked at: `cargo test --release -p sandgate --lib -- --ignored --nocapture process::tests::measure`.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::bwrap::Bubblewrap;
use super::super::programs::DEFAULT_PATH;
use super::super::{Isolation, SpawnRequest};
use super::kit::{Kit, bash, grant, within};
use crate::values::Event;

/// The median of many rounds, each of which does one after the other, so that both see the same machine.
fn medians(mut samples: Vec<(Duration, Duration)>) -> (Duration, Duration) {
    let middle = samples.len() / 2;
    samples.sort_by_key(|sample| sample.0);
    let first = samples[middle].0;
    samples.sort_by_key(|sample| sample.1);
    (first, samples[middle].1)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn starting_a_command() {
    let kit = Kit::namespace();
    kit.bash("true").await;
    let wrapper =
        Bubblewrap::prepare(&grant(Isolation::Namespace), DEFAULT_PATH, &kit.dir.path().join("runtime")).await;
    let wrapper = wrapper.unwrap();
    let options = wrapper.options(&kit.mounts, &kit.mounts.workspace());
    let mut samples = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let mut command = Command::new(wrapper.program());
        command.args(&options).args(["/usr/bin/bash", "-c", "true"]).stdin(Stdio::null());
        assert!(command.output().unwrap().status.success());
        let direct = begun.elapsed();
        let begun = Instant::now();
        assert_eq!(kit.bash("true").await.code(), 0);
        samples.push((direct, begun.elapsed()));
    }
    let (direct, ours) = medians(samples);
    eprintln!(
        "bash -c true: bwrap alone {direct:?}, supervised {ours:?}, {:.2}x",
        ours.as_secs_f64() / direct.as_secs_f64()
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures"]
async fn streaming_a_gib() {
    let kit = Kit::new(Isolation::None);
    let script = "head -c 1G /dev/zero";
    let mut samples = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        let mut child = Command::new("bash").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let (mut buffer, mut pipe) = (vec![0; crate::values::CHUNK_SIZE], child.stdout.take().unwrap());
        while pipe.read(&mut buffer).unwrap() > 0 {}
        child.wait().unwrap();
        let direct = begun.elapsed();
        let begun = Instant::now();
        let mut events = kit.start(SpawnRequest { ..bash(script) }).await.unwrap();
        let mut size = 0;
        while let Some(event) = within(events.recv()).await {
            if let Event::Stdout(bytes) = event {
                size += bytes.len();
            }
        }
        assert_eq!(size, 1 << 30);
        samples.push((direct, begun.elapsed()));
    }
    let (direct, ours) = medians(samples);
    eprintln!(
        "1 GiB: pipe alone {direct:?}, streamed {ours:?}, {:.2} of its speed",
        direct.as_secs_f64() / ours.as_secs_f64()
    );
}
