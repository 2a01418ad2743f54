//! Damaged components, in numbers: any answer but a crash.
//!
//! `SANDGATE_FUZZ_SEED` and `SANDGATE_FUZZ_ROUNDS` replay or lengthen a run.

use std::time::{Duration, Instant};

use sandgate::engine::{Provider, Runtime, inspect};
use sandgate::error::Code;
use sandgate::trust::classify;

use crate::support::{granted, local, options};

/// Most rounds end at the first check; those that compile take a tenth of a second.
const ROUNDS: u64 = 1_500;
/// A slow machine does fewer.
const TIME: Duration = Duration::from_secs(20);

/// A small generator of our own: the same bytes in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn mutated(whole: &[u8], seed: u64) -> Vec<u8> {
    // A state of 0 would stay 0.
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes = whole.to_vec();
    for _ in 0..1 + rng.next() % 3 {
        let at = rng.next() % bytes.len();
        match rng.next() % 6 {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, rng.next() as u8),
            2 => {
                let end = (at + rng.next() % 64).min(bytes.len());
                bytes.drain(at..end);
            }
            // Mostly in place: what stays aligned gets further.
            3 => bytes[at] ^= 1 << (rng.next() % 8),
            _ => bytes[at] = rng.next() as u8,
        }
    }
    bytes
}

#[tokio::test]
async fn damaged_components_never_crash_the_gateway() {
    let whole = local();
    // Without a cache: nothing that this makes is of use to anyone.
    let options = sandgate::engine::EngineOptions { cache_dir: None, ..options() };
    let runtime = Runtime::new(options).unwrap();
    let first = number("SANDGATE_FUZZ_SEED").unwrap_or(1);
    let rounds = number("SANDGATE_FUZZ_ROUNDS").unwrap_or(ROUNDS);
    let begun = Instant::now();
    let (mut refused, mut loaded, mut done) = (0, 0, 0);
    for seed in first..first + rounds {
        if begun.elapsed() > TIME && number("SANDGATE_FUZZ_ROUNDS").is_none() {
            break;
        }
        done += 1;
        let bytes = mutated(&whole, seed);
        let checked = std::panic::catch_unwind(|| classify(&bytes).and_then(|()| inspect(&bytes).map(drop)));
        let Ok(checked) = checked else { panic!("seed {seed}: a check panics") };
        // The engine is given what the checks refuse as well, but for most of it there is nothing new to see.
        if checked.is_err() && seed % 8 != 0 {
            refused += 1;
            continue;
        }
        match Provider::load(&runtime, bytes, granted("{}")).await {
            Ok(_) => loaded += 1,
            Err(error) => {
                assert_ne!(error.code(), Code::Internal, "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > done / 10 && refused + loaded == done, "{refused} refused, {loaded} loaded, {done} in all");
}
