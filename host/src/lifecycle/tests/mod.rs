//! The lifecycle on virtual time, a scripted backend and real leases in memory.

mod acquiring;
mod capacity;
mod ephemeral;
mod keeping;
mod ledger;
mod reconciling;
mod rig;
mod stopping;
mod surveying;
