//! Captures of the Linux module played against our side, in virtual time.
//!
//! One of a capture's two hosts is ours; the other's frames are given to it as the module sent
//! them, each once the situation has come about in which the module sent it. Content and order
//! count, not times. Every frame of ours is judged at the moment it is sent.

mod capture;
mod host;
mod judge;
mod ledger;
mod play;
mod watch;
mod wire;

use demihoma::error::Error;
use demihoma::homa::Params;

pub use play::{play, play_ours};

/// What happens to our side at a frame of the capture, before that frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The application ends, the host lives.
    Close,
    /// The host stops.
    Stop,
    /// The host starts anew.
    Start,
    /// The application gives its only RPC up.
    Abort,
    /// The application does not look for responses from now on, until the capture ends.
    Leave,
}

/// How the RPCs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of them with their responses, the same as in the capture.
    Whole,
    /// Our application is told why not.
    Failed(Error),
    /// Nobody is told anything: it is not there any more, or never was.
    Unanswered,
    /// Our side says that nobody has the port.
    Refused,
    /// Some of them make no sense; the others are answered, at least so many.
    AtLeast(usize),
}

/// One capture, and which of its hosts is ours.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// The network of both, and the last byte of our address and of theirs.
    pub net: [u8; 3],
    pub ours: u8,
    pub theirs: u8,
    /// The host all of whose frames get lost.
    pub muted: Option<u8>,
    pub acts: &'static [(usize, Act)],
    pub end: End,
    /// The module's settings in its place.
    pub params: fn(&mut Params),
    /// Settings that the judge is not told of, to see that it finds out.
    pub secret: fn(&mut Params),
}
