//! Gives back what RPCs hold that are over, a few at a time.
//!
//! When a socket closes all its RPCs are over at once, and when a client restarts so are those it
//! had with us. From then on nobody finds them any more, see [`Endpoint::is_over`]. But to give
//! back what 100,000 of them hold takes milliseconds, for which no short message may wait. So they
//! are looked for place by place, some in each turn. A lap over all places finds all that were
//! over when it began; more that are over meanwhile make the lap begin anew, but not the search,
//! so each is found within as many looks as there are places.

use crate::homa::event::RpcKey;
use crate::homa::rpc::Rpc;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::RpcId;

use super::{Endpoint, Peer};

/// Places looked at in one call, at most: about a microsecond.
const LOOKS_PER_CALL: u32 = 256;

/// RPCs ended in one call, at most. As many as the requests that may come in with a burst, so that
/// no more are added in a turn than end in it.
const ENDS_PER_CALL: u32 = 32;

/// Calls in a row, at most, for somebody who needs what one of them holds.
const CALLS_MAX: u32 = 16;

/// Where the search is.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    next: u32,
    /// Places to look at until none that is over can be left.
    left: u32,
}

impl Reaper {
    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}

impl Endpoint {
    /// Whether an RPC is over that is still here: its socket closed, or it is a request of an
    /// earlier life of its client.
    #[inline(always)]
    pub(super) fn is_over(&self, rpc: &Rpc) -> bool {
        !self.reaper.is_done() && self.is_orphan(rpc)
    }

    #[cold]
    fn is_orphan(&self, rpc: &Rpc) -> bool {
        let is_of_earlier_life = || rpc.incarnation != self.peers.get(rpc.peer).incarnation;
        self.sockets.get(rpc.socket).is_none() || (!rpc.id.is_client() && is_of_earlier_life())
    }

    /// As [`Self::is_over`]; false for one that is gone.
    #[inline(always)]
    pub(super) fn has_ended(&self, key: RpcKey) -> bool {
        !self.reaper.is_done() && self.rpcs.get(key).is_some_and(|rpc| self.is_orphan(rpc))
    }

    /// RPCs are over from now on; the first of them end at once.
    pub(super) fn begin_reaping(&mut self, now: Instant) {
        self.reaper.left = self.rpcs.place_count();
        self.reap(now);
    }

    /// Ends some that are over; false if it found none.
    #[cold]
    pub(super) fn reap(&mut self, now: Instant) -> bool {
        let places = self.rpcs.place_count();
        let mut ended = 0;
        for _ in 0..LOOKS_PER_CALL {
            if self.reaper.is_done() || ended == ENDS_PER_CALL {
                break;
            }
            let at = match self.reaper.next {
                next if next < places => next,
                _ => 0,
            };
            self.reaper.next = at + 1;
            if let Some((key, rpc)) = self.rpcs.at(at)
                && self.is_orphan(rpc)
            {
                self.end(now, key);
                ended += 1;
            }
            self.reaper.left -= 1;
        }
        ended > 0
    }

    /// Somebody lacks a slot or pages: ends some that are over, if it finds any. False if not.
    #[cold]
    pub(super) fn reap_for_room(&mut self, now: Instant) -> bool {
        (0..CALLS_MAX).any(|_| !self.reaper.is_done() && self.reap(now))
    }

    /// Ends the server RPCs of that name that are over: a late copy of such a request must find
    /// it among the finished ones.
    #[cold]
    pub(super) fn reap_named(
        &mut self,
        now: Instant,
        id: RpcId,
        (peer, peer_port): (Key<Peer>, u16),
        hash: u64,
    ) {
        let named = |endpoint: &Self| {
            endpoint.servers.find(hash, |slot| {
                let (key, rpc) = endpoint.rpcs.at(slot)?;
                let is_it = rpc.id == id && rpc.peer == peer && rpc.peer_port == peer_port;
                (is_it && endpoint.is_over(rpc)).then_some(key)
            })
        };
        while let Some(key) = named(self) {
            self.end(now, key);
        }
    }
}
