//! Shared helpers of the cross-cutting tests.

pub mod simulation;
