//! What can be set about sockets, tokens and buffers.

use crate::channel;
use crate::error::Error;
use crate::runtime::Handles;
use crate::time::Duration;
use crate::wire::homa::MAX_MESSAGE_LEN;

/// Limits and times of one [`LibOSOver`](super::LibOSOver).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Makes this runtime's tokens and handles differ from those of others.
    pub seed: u64,
    /// Tokens alive at once: pending, or with a result nobody consumed. Default 65,536.
    pub tokens_max: u32,
    /// Messages up to this length are copied by push, so that their bytes are the application's
    /// again as soon as the copy is on its way. Default 4,096; at most 1,000,000.
    pub push_copy_max_bytes: u32,
    /// Memory for what `sgaalloc` gives and push copies, taken when first needed. Default 64 MiB.
    pub send_bytes: usize,
    /// New datagrams of one socket that the peers have not confirmed. Further ones wait their
    /// turn; replies never do. Default 1,024.
    pub datagram_outstanding_max: u32,
    /// Datagrams popped from one socket that could still be replied to. Beyond that the oldest
    /// gets an empty reply. Default 16,384.
    pub datagram_open_max: u32,
    /// From `sgafree` of a popped datagram to the empty reply, unless a reply comes first.
    /// Default 10 ms.
    pub datagram_reply_grace: Duration,
    /// Requests popped from one native socket and not answered. Beyond that the others wait to be
    /// popped. Default 16,384.
    pub service_max: u32,
    /// Of connections. Their seed is `seed`.
    pub channel: channel::Params,
    /// How long close, and the end of the runtime, wait for peers to confirm what was pushed, at
    /// most. Default 1 s.
    pub linger: Duration,
    /// Turns that brought nothing, in a row, before each further one gives the core away. 0: it
    /// is never given away. Default 1,000, less than 100 us.
    pub yield_after_turns: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seed: 1,
            tokens_max: 65_536,
            push_copy_max_bytes: 4_096,
            send_bytes: 64 << 20,
            datagram_outstanding_max: 1_024,
            datagram_open_max: 16_384,
            datagram_reply_grace: Duration::millis(10),
            service_max: 16_384,
            channel: channel::Params::default(),
            linger: Duration::secs(1),
            yield_after_turns: 1_000,
        }
    }
}

impl Params {
    /// Refuses what cannot work; the config room gives the user the key and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let ok = (1..=Handles::SLOTS_MAX).contains(&(self.tokens_max as usize))
            && self.push_copy_max_bytes <= MAX_MESSAGE_LEN
            && self.send_bytes > 0
            && self.datagram_outstanding_max > 0
            && self.datagram_open_max > 0
            && self.service_max > 0;
        if ok { Ok(()) } else { Err(Error::Invalid) }
    }
}
