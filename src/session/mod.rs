//! Multipath sessions: requests over several paths to one server, none lost and none run twice
//! while both live, whatever the paths do.

mod address;
mod client;
mod clock;
mod event;
mod name;
mod params;
mod path;
mod permits;
mod policy;
mod server;
mod slots;
pub mod status;

pub use address::PathAddr;
pub use client::{Attrs, Client, Flags, Gather, PathInfo, PathKey, Stats as ClientStats};
pub use event::{ClientEvent, Completion, LinkEvent, Outcome, Received, ServerEvent};
pub use name::Name;
pub use params::{ClientParams, ServerParams};
pub use path::PathState;
pub use permits::{Permit, Purpose};
pub use policy::{PATHS_MAX, Policy};
pub use server::{Op, OpKey, Server, SessionKey, Stats as ServerStats};
