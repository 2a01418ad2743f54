//! Many schedules, and each guard taken out once.

#![expect(clippy::print_stdout, reason = "counts and violations are there to be read")]

use sandgate_tests::simulation::{Sabotage, replay_command, run};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// `SANDGATE_SIM_SEEDS` schedules, from `SANDGATE_SIM_FROM` on.
#[test]
fn no_schedule_breaks_an_invariant() {
    let (from, seeds) = (number("SANDGATE_SIM_FROM", 0), number("SANDGATE_SIM_SEEDS", 20_000));
    let mut steps = 0;
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for seed in from..from + seeds {
        match run(seed, None, false) {
            Ok(report) => {
                steps += report.steps;
                for (what, count) in report.counts {
                    *counts.entry(what).or_default() += count;
                }
            }
            Err(violation) => panic!("seed {seed}: {}\nreplay: {}", violation.what, replay_command(seed, None)),
        }
    }
    println!("{seeds} schedules, {steps} steps: {counts:?}");
    // A simulation in which nothing happens proves nothing.
    if seeds >= 1000 {
        for what in
            ["acquired", "creates", "stops", "crashes", "pauses", "cut off", "wipes", "died", "lost", "store faults"]
        {
            assert!(counts.get(what).copied().unwrap_or(0) * 10 >= seeds, "too few of {what:?}: {counts:?}");
        }
    }
}

/// How many schedules each removed guard may survive.
const PATIENCE: u64 = 20_000;

#[test]
fn every_guard_is_missed() {
    let mut unmissed = Vec::new();
    for sabotage in Sabotage::all() {
        let caught = (0..PATIENCE).find_map(|seed| run(seed, Some(sabotage), false).err());
        match caught {
            Some(violation) => println!("without {sabotage}: seed {}: {}", violation.seed, violation.what),
            None => unmissed.push(sabotage.to_string()),
        }
    }
    assert!(unmissed.is_empty(), "nothing goes wrong in {PATIENCE} schedules without {unmissed:?}");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in 0..8 {
        assert_eq!(run(seed, None, false).ok(), run(seed, None, true).ok(), "seed {seed}");
    }
}

/// Repeats the schedule of `SANDGATE_SIM_SEED`, without the guard of `SANDGATE_SIM_WITHOUT` if that is set, and prints
/// all that happens.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("SANDGATE_SIM_SEED") else { return };
    let sabotage = std::env::var("SANDGATE_SIM_WITHOUT").ok().map(|name| Sabotage::named(&name).expect("a guard"));
    match run(seed.parse().expect("a seed"), sabotage, true) {
        Ok(report) => println!("nothing forbidden happens: {report:?}"),
        Err(violation) => panic!("{}\n{}", violation.trace.join("\n"), violation.what),
    }
}
