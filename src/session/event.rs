//! What sessions tell their users.

use crate::homa::RunKey;
use crate::session::Permit;
use crate::session::client::PathKey;
use crate::session::server::{OpKey, SessionKey};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its handler ran: a WRITE once, a READ at least once. The status is the handler's.
    Executed,
    /// Its handler did not run and never will.
    NotExecuted,
    /// Nobody can say: it ran once, or not at all.
    Unknown,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// 0, or a negative errno: the handler's if it was executed, else the session's.
    pub status: i32,
    pub outcome: Outcome,
    /// The server had run it before this answer was asked for.
    pub is_replayed: bool,
    /// Copies that were sent.
    pub attempts: u16,
    /// What a READ read; the user's until `Endpoint::release`.
    pub data: Option<Received>,
}

/// Bytes in the receive memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub run: RunKey,
    /// Where in the region they begin.
    pub offset: u32,
    pub len: u32,
}

/// What a client's session tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// It is open, or could not be opened: then it is over, and the status says why.
    Opened {
        status: i32,
    },
    /// A request ended; `tag` as it was given with it.
    Completed {
        tag: u64,
        completion: Completion,
    },
    /// A wait for a permit ended; with `None`, as the session closes.
    Permit {
        tag: u64,
        permit: Option<Permit>,
    },
    Link(LinkEvent),
    /// It is closed.
    Closed {
        /// Permits that were held, and are void.
        held: usize,
        /// Requests of which nobody knows what became.
        unknown: usize,
    },
}

/// How the ways to the server fare. None of these comes before the session is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    PathUp(PathKey),
    PathDown {
        path: PathKey,
        status: i32,
    },
    /// The path will not come back by itself.
    PathFailed {
        path: PathKey,
        status: i32,
    },
    /// The first path after none is up.
    Reconnected,
    /// The last path went down.
    Disconnected,
    /// The server has lost its memory of the session, and begins anew with the next path.
    SessionLost,
}

/// What a server tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client would open a session: `Server::accept` or `Server::refuse` it.
    Connecting { session: SessionKey },
    /// A request is to be run; `Server::respond` ends it.
    Request { session: SessionKey, op: OpKey },
    /// A session has no path any more. It lingers.
    Disconnected { session: SessionKey },
    /// It has one again.
    Resumed { session: SessionKey },
    /// It is gone.
    Destroyed { session: SessionKey },
}
