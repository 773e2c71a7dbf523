//! The Homa transport, as a value: bytes and a time go in; bytes, events and the next time to be
//! woken come out. No clock, no chance, no input or output of its own.
//!
//! [`Endpoint`] joins the parts, each of which is told facts and asked for its decision:
//!
//! | part | decides |
//! |---|---|
//! | `socket`, `peer`, `table` | whom a packet is for |
//! | `gaps`, `msg_in` | which bytes are new |
//! | `pool`, `share`, `waiting` | where they go, and who waits for room |
//! | `grant` | which messages may send more |
//! | `msg_out`, `outgoing`, `control` | what goes out next |
//! | `pacer` | when, by how much the NIC has still to send |
//! | `cutoffs` | which lengths use which priority |
//! | `timer`, `askers` | which RPCs to look at in a tick, and which of them may ask |
//! | `repair` | when to ask for a hole |
//! | `finished` | which RPCs must not run again |

mod askers;
mod control;
mod cutoffs;
mod endpoint;
mod event;
mod finished;
mod gaps;
mod grant;
mod msg_in;
mod msg_out;
#[cfg(not(feature = "mutants"))]
mod mutant;
#[cfg(feature = "mutants")]
pub mod mutant;
mod outgoing;
mod pacer;
mod params;
mod peer;
mod pool;
mod repair;
mod rpc;
mod share;
mod socket;
mod table;
mod timer;
mod waiting;

pub use endpoint::{Endpoint, RpcInfo, Stats, Verdict};
pub use event::{Event, Message, Notify, Payload, RpcKey, RunKey, SocketKey};
pub use params::Params;
pub use pool::BPAGE_LEN;
pub use pool::lent::{LentPool, PARTS_MAX, Parts};

pub use crate::wire::homa::MAX_MESSAGE_LEN;
