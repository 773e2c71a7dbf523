//! The running thing: the loop that turns device, network layer and transport.

mod poller;

pub use poller::Poller;
