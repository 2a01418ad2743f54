//! The virtual path system: what a sandbox sees of the host's files, and under which names.

mod dir;
mod layout;
mod path;
mod skills;
mod table;

pub use layout::{Layout, RESERVED, SKILL_CATEGORIES};
pub use path::{MAX_PATH, MAX_SEGMENT, VirtualPath};
pub use skills::Skills;
pub use table::{Access, Mount, MountTable, Place};
