//! The running thing: the loop that turns device, network layer and transport, and what those need
//! who wait for it.

mod handle;
mod leg;
mod poller;
mod rendezvous;
mod token;
mod wait;

pub use handle::Handles;
pub use leg::Leg;
pub use poller::Poller;
pub use rendezvous::Rendezvous;
pub use token::{QToken, Search, Tokens};
pub use wait::{Clock, Deadline, Idleness, Waker};
