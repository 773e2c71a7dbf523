//! A kernel-bypass library OS that runs the Homa transport in user space over DPDK.
//!
//! One thread polls: it takes frames from a NIC queue, runs the protocol, hands frames back, and
//! completes the application's operations. The rooms of the house, lowest first:
//!
//! | room | what it knows |
//! |---|---|
//! | [`error`], [`time`], [`addr`], [`rng`], [`slots`], [`keyed`] | the words all rooms share |
//! | [`wire`] | what bytes mean: Homa's packets |
//! | [`trace`] | what a run leaves behind: captures |
//! | [`mem`] | bytes lent to and by the application |
//! | [`device`] | what a NIC queue must do |
//! | [`net`] | Ethernet, IP, ARP, ICMP |
//! | [`homa`] | the transport: RPCs, grants, resends, receive pages |
//! | [`session`] | requests over several paths, none lost and none run twice |
//! | [`channel`] | connections: messages in order over RPCs |
//! | [`runtime`] | the loop that turns them all |
//! | [`dpdk`] | a NIC queue, by DPDK (feature `dpdk`) |
//! | [`config`] | settings: a file, the environment, and what is wrong with them |
//! | [`libos`] | what applications see: sockets, tokens, buffers |
//! | [`capi`] | the same for C: `include/demi/*.h` (feature `dpdk`) |
//!
//! Rust programs begin with `LibOS`, whose calls are those of Demikernel's, with buffers and calls
//! of remote procedures beside them that Rust keeps safe; or, to be nearer to the loop, with
//! `libos::LibOS`.
//!
//! `ARCHITECTURE.md` says who may import whom and follows a frame through the house.

#![deny(unsafe_op_in_unsafe_fn, missing_debug_implementations)]

// What all rooms share.
#[forbid(unsafe_code)]
pub mod addr;
pub mod arena;
#[forbid(unsafe_code)]
pub mod error;
#[forbid(unsafe_code)]
pub mod keyed;
#[forbid(unsafe_code)]
pub mod rng;
#[forbid(unsafe_code)]
pub mod slots;
#[forbid(unsafe_code)]
pub mod time;

// What bytes mean, where they lie, and what carries them.
#[forbid(unsafe_code)]
pub mod device;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod mem;
#[forbid(unsafe_code)]
pub mod trace;
#[forbid(unsafe_code)]
pub mod wire;

// The rooms that know no clock and no device.
#[forbid(unsafe_code)]
pub mod channel;
#[forbid(unsafe_code)]
pub mod homa;
#[forbid(unsafe_code)]
pub mod net;
#[forbid(unsafe_code)]
pub mod session;

// The loop that turns them, over a NIC or over a network that only exists in memory.
#[forbid(unsafe_code)]
pub mod runtime;
#[forbid(unsafe_code)]
pub mod sim;

// What a user meets: settings, the library OS, and its face to C.
#[cfg(feature = "dpdk")]
pub mod capi;
#[forbid(unsafe_code)]
pub mod config;
#[forbid(unsafe_code)]
pub mod libos;

// The names that Demikernel's Rust programs import.
#[cfg(feature = "dpdk")]
pub use capi::rust::{Buf, LibOS, LibOSName, SocketOption};
#[cfg(feature = "dpdk")]
pub use capi::types::{demi_sgarray_t, demi_sgaseg_t};
pub use libos::{OperationResult, QDesc, QToken};
