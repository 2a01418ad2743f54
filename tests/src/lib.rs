//! What the cross-cutting tests share: the conformance suite, written once for every provider, and its support.
//!
//! A provider runs the suite with one line, [`conformance_suite!`], which lists every case: a new case is run for all
//! providers without any of them being named.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test that panics says where it failed")]

pub mod conformance;
pub mod simulation;
pub mod support;
