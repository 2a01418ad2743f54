//! The rows, and whether each keeps its promise.

use std::time::{Duration, Instant};

/// One row: what was measured, against what, and what is promised.
struct Row {
    name: &'static str,
    ours: String,
    theirs: String,
    measured: f64,
    bound: Bound,
}

/// What is promised of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64, &'static str),
    AtLeast(f64, &'static str),
}

pub(crate) struct Table {
    wanted: String,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(wanted: String) -> Self {
        Self { wanted, rows: Vec::new() }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.wanted)
    }

    pub(crate) fn add(&mut self, name: &'static str, ours: String, theirs: String, measured: f64, bound: Bound) {
        println!("{name}: {ours} against {theirs}: {measured:.2}");
        self.rows.push(Row { name, ours, theirs, measured, bound });
    }

    /// A ratio of two speeds of the same amount, ours over theirs.
    pub(crate) fn speed(&mut self, name: &'static str, ours: &Times, theirs: &Times, at_least: f64) {
        let ratio = theirs.median().as_secs_f64() / ours.median().as_secs_f64();
        self.add(name, ours.shown(), theirs.shown(), ratio, Bound::AtLeast(at_least, "x the speed"));
    }

    /// A ratio of two times, ours over theirs.
    pub(crate) fn time(&mut self, name: &'static str, ours: &Times, theirs: &Times, at_most: f64) {
        let ratio = ours.median().as_secs_f64() / theirs.median().as_secs_f64();
        self.add(name, ours.shown(), theirs.shown(), ratio, Bound::AtMost(at_most, "x the time"));
    }

    /// Prints all rows; false if a promise is broken.
    pub(crate) fn print(&self) -> bool {
        let mut kept = true;
        println!("\n{:<44} {:>18} {:>18} {:>10}   promised", "", "ours", "held against", "measured");
        for row in &self.rows {
            let (holds, promise) = match row.bound {
                Bound::AtMost(bound, unit) => (row.measured <= bound, format!("at most {bound} {unit}")),
                Bound::AtLeast(bound, unit) => (row.measured >= bound, format!("at least {bound} {unit}")),
            };
            kept &= holds;
            let mark = if holds { "" } else { "   BROKEN" };
            println!("{:<44} {:>18} {:>18} {:>10.2}   {promise}{mark}", row.name, row.ours, row.theirs, row.measured);
        }
        kept
    }
}

/// Several measurements of one thing.
#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    pub(crate) fn shown(&self) -> String {
        format!("{:.2?}", self.median())
    }
}

/// Measures two things in turn, so that a machine that changes its speed changes both.
pub(crate) async fn in_turn<A, B>(
    rounds: usize,
    mut ours: impl FnMut() -> A,
    mut theirs: impl FnMut() -> B,
) -> (Times, Times)
where
    A: Future<Output = ()>,
    B: Future<Output = ()>,
{
    let (mut a, mut b) = (Times::default(), Times::default());
    // The first round fills caches and is not counted.
    for round in 0..=rounds {
        let begun = Instant::now();
        ours().await;
        let (took_ours, begun) = (begun.elapsed(), Instant::now());
        theirs().await;
        if round > 0 {
            a.push(took_ours);
            b.push(begun.elapsed());
        }
    }
    (a, b)
}
