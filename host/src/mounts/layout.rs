//! Which directories of the host each sandbox gets.

/// Places in a sandbox that are Sandgate's own: no mount may be at, below or above one.
pub const RESERVED: &[&str] = &["/mnt/user-data", "/mnt/acp-workspace", "/tmp", "/proc", "/dev"];

/// The kinds of skills, each a directory below the skills' place in a sandbox.
pub const SKILL_CATEGORIES: &[&str] = &["public", "custom", "legacy", "integrations"];
