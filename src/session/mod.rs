//! Multipath sessions: requests over several paths to one server, none lost and none run twice
//! while both live, whatever the paths do.

mod address;
mod name;
mod path;
mod permits;
mod policy;
mod slots;
pub mod status;

pub use address::PathAddr;
pub use name::Name;
pub use path::PathState;
pub use permits::{Permit, Purpose};
pub use policy::{PATHS_MAX, Policy};
