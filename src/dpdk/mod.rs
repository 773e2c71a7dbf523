//! A NIC queue by DPDK: the environment layer, mempools, mbufs, ports.
//!
//! [`Eal`] starts once per process and is the token one must hold to make a [`Port`], which
//! implements [`Device`](crate::device::Device). Devices are plugged in when their port is opened,
//! so one EAL serves several ports, each used by the thread that opened it. Nothing here is `Send`.
//!
//! The data path neither allocates nor locks: a port keeps a small stack of free mbufs of its own,
//! and calls the driver's burst functions directly.

mod backend;
mod clock;
mod eal;
pub mod floor;
mod interface;
mod lock;
mod mbuf;
mod mempool;
mod open;
mod port;
mod ring;

use std::fmt;

use crate::error::Error;

pub use backend::Backend;
pub use clock::{Clock, ticks};
pub use eal::{Eal, EalParams};
pub use open::PortParams;
pub use port::{Counters, DeviceCounters, Port};
pub use ring::{RingParams, ring_pair};

/// Why the EAL or a port could not start, in one line for people: what failed, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    error: Error,
    text: String,
}

impl StartError {
    fn new(error: Error, text: impl Into<String>) -> Self {
        Self {
            error,
            text: text.into(),
        }
    }

    /// The same for programs.
    pub fn error(&self) -> Error {
        self.error
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

impl From<StartError> for Error {
    fn from(start: StartError) -> Self {
        start.error
    }
}
