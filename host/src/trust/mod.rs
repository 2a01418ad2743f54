//! Which component bytes the gateway accepts.

mod digest;

pub use digest::{Sha256Pin, sha256_of};
