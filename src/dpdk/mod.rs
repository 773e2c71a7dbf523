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

pub use crate::error::StartError;
pub use backend::Backend;
pub use clock::{Clock, ticks};
pub use eal::{Eal, EalParams};
pub use open::PortParams;
pub use port::{Counters, DeviceCounters, Port};
pub use ring::{RingParams, ring_pair};
