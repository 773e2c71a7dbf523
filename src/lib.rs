//! A kernel-bypass library OS that runs the Homa transport in user space over DPDK.
//!
//! One thread polls: it takes frames from a NIC queue, runs the protocol, hands frames back, and
//! completes the application's operations. The rooms of the house, lowest first:
//!
//! | room | what it knows |
//! |---|---|
//! | [`error`], [`time`], [`addr`], [`rng`], [`slots`] | the words all rooms share |
//! | [`wire`] | what bytes mean: Homa's packets |
//! | [`mem`] | bytes lent to and by the application |
//! | [`device`] | what a NIC queue must do |
//! | [`net`] | Ethernet, IP, ARP, ICMP |
//! | [`homa`] | the transport: RPCs, grants, resends, receive pages |
//! | [`runtime`] | the loop that turns them all |
//! | [`config`] | settings: a file, the environment, and what is wrong with them |
//!
//! `ARCHITECTURE.md` says who may import whom and follows a frame through the house.

#![deny(unsafe_op_in_unsafe_fn, missing_debug_implementations)]
#![warn(unreachable_pub)]

#[forbid(unsafe_code)]
pub mod addr;
#[forbid(unsafe_code)]
pub mod error;
#[forbid(unsafe_code)]
pub mod rng;
#[forbid(unsafe_code)]
pub mod slots;
#[forbid(unsafe_code)]
pub mod time;

#[forbid(unsafe_code)]
pub mod device;

#[forbid(unsafe_code)]
pub mod config;
