//! A network that only exists in memory, in virtual time: the very same [`Poller`] runs over it
//! as over a NIC, and everything that happens follows from a seed.
//!
//! [`Poller`]: crate::runtime::Poller

mod app;
pub mod chaos;
mod faults;
mod garbage;
mod nic;
pub mod record;
mod role;
mod talker;
mod tap;
mod workload;
mod world;

pub use app::{App, Echo, Requester, RequesterParams};
pub use faults::{Copied, Faults};
pub use garbage::Garbage;
pub use nic::Nic;
pub use role::Role;
pub use talker::{Part, Talk, Talker, TalkerParams};
pub use tap::{Drops, Tap, Tapped};
pub use workload::Sizes;
pub use world::{Crossing, Host, Watch, World};
