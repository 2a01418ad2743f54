//! The cross-cutting tests, in one binary: it links once.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod simulation;
