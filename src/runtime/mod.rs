//! The running thing: the loop that turns device, network layer and transport, and what those need
//! who wait for it.

pub mod fail;
mod handle;
mod leg;
mod poller;
mod rendezvous;
mod token;
#[cfg(feature = "dpdk")]
pub mod types;
mod wait;

pub use handle::Handles;
pub use leg::Leg;
pub use poller::Poller;
pub use rendezvous::Rendezvous;
pub use token::{QToken, Search, Tokens};
pub use wait::{Clock, Deadline, Idleness, Waker};
