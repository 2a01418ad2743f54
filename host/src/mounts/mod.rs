//! The virtual path system: what a sandbox sees of the host's files, and under which names.

mod layout;
mod path;
mod table;

pub use layout::{RESERVED, SKILL_CATEGORIES};
pub use path::{MAX_PATH, MAX_SEGMENT, VirtualPath};
pub use table::{Access, Mount, MountTable, Place};
