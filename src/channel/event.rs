//! What channels and their user hand each other.

use crate::addr::Addr;
use crate::counters;
use crate::error::Error;
use crate::homa::RunKey;
use crate::slots::Key;

use super::state::Channel;

pub type ChannelKey = Key<Channel>;

/// What became of an operation. `tag` is what the user gave with it; each tag comes back once,
/// unless its channel is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The channel may be used.
    Connected { tag: u64 },
    /// There is no channel, and its key is stale.
    NotConnected { tag: u64, error: Error },
    /// A channel that a peer opened; it is the user's from now on.
    Accepted {
        tag: u64,
        channel: ChannelKey,
        peer: Addr,
    },
    /// The pushed bytes are the user's again.
    Pushed { tag: u64 },
    /// The next message, or a part of it.
    Popped { tag: u64, piece: Piece },
    /// The peer closed its side, and all that it sent was popped.
    Ended { tag: u64 },
    /// A push or a pop failed: the channel is dead.
    Failed { tag: u64, error: Error },
}

/// Received bytes. The user holds the run until `Endpoint::release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub run: RunKey,
    /// Where in the region it starts, bytes.
    pub offset: u32,
    pub len: u32,
}

counters! {
    /// What the channels counted.
    pub struct Stats {
        /// Channels that connect opened.
        connected,
        /// Channels that peers opened.
        opened,
        /// Channels that nobody listened for, here.
        refused,
        /// Peers put off because the backlog, or the table of channels, was full.
        backlog_full,
        /// Messages sent for the first time.
        messages_out,
        /// Messages sent once more, since an RPC failed or the peer had no room.
        retries,
        /// Messages that came in order, or were put in order.
        messages_in,
        /// Messages that came again.
        duplicates,
        /// Messages that came before one that was sent earlier.
        early,
        /// Those of them that were dropped, as room was short.
        early_dropped,
        /// Credits and signs of life sent.
        notes_out,
        /// Channels that ended because the peer knows nothing of them.
        resets,
        /// Channels that ended because the peer was silent.
        timeouts,
        /// Messages that are no channel message.
        strangers,
        /// Channel messages that make no sense.
        malformed,
        /// Messages of a peer that ignores its credit.
        over_credit,
        /// Messages for channels that do not exist.
        no_channel,
    }
}
