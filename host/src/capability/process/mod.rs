//! The process capability: programs of the gateway's machine, run for a sandbox in an isolation profile, supervised to
//! their exact end.

mod bwrap;
mod cgroup;
mod grant;
mod groups;
mod headtail;
mod leash;
mod limits;
mod members;
mod output;
mod programs;
mod seccomp;
mod spawn;
mod start;
mod supervise;
#[cfg(test)]
mod tests;

pub use grant::{DEFAULT_TIMEOUT, Isolation, ProcessGrant, ResourceLimits, SpawnRequest};
pub use groups::MAX_GROUPS;
pub use headtail::HeadTail;
pub use spawn::{HostEnv, Processes};
