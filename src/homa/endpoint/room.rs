//! Room for newcomers, and who goes when slots or pages are short.

use crate::homa::event::{Payload, RpcKey, RunKey};
use crate::homa::msg_out::MsgOut;
use crate::homa::pool::BPAGE_LEN;
use crate::homa::rpc::{Rpc, State};
use crate::homa::share::Share;
use crate::time::Instant;
use crate::wire::homa::MAX_MESSAGE_LEN;

use super::Endpoint;

impl Endpoint {
    /// Whether one more request may come in: a quarter of the slots is left for our own calls, or
    /// else nested RPCs would wait for each other.
    pub(super) fn may_serve(&self) -> bool {
        let servers_max = self.params.rpcs_max - self.params.rpcs_max / 4;
        self.server_count < servers_max && !self.rpcs.is_full()
    }

    /// Whether one more call of ours may start. While a socket takes requests some slots are left
    /// for them, or else hosts whose calls fill all slots would wait for each other.
    pub(super) fn may_call(&self) -> bool {
        /// Of so many slots one is left.
        const SHARE: u32 = 32;
        let left = match self.sockets.has_server() {
            true => self.params.rpcs_max.div_ceil(SHARE) as usize,
            false => 0,
        };
        let calls = self.rpcs.len() - self.server_count as usize;
        !self.rpcs.is_full() && calls + left < self.params.rpcs_max as usize
    }

    /// Makes room for one more request; false if there is none.
    #[cold]
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        while self.reap_for_room(now) {
            if self.may_serve() {
                return true;
            }
        }
        self.give_up_unacked(now, |_, _| true)
    }

    /// Most are acknowledged in the end: those before the first living one leave the list.
    fn trim_unacked(&mut self) {
        while let Some(first) = self.unacked.front()
            && !self.rpcs.contains(*first)
        {
            self.unacked.pop_front();
        }
    }

    /// Ends the RPC that waits longest for an ack it will not get, if there is one whose response
    /// `is_fit`. True if so.
    pub(super) fn give_up_unacked(
        &mut self,
        now: Instant,
        is_fit: impl Fn(&Rpc, &MsgOut) -> bool,
    ) -> bool {
        /// RPCs looked at, at most.
        const LOOKS_MAX: usize = 64;
        self.trim_unacked();
        let fits = |key: &RpcKey| {
            let rpc = self.rpcs.get(*key);
            rpc.is_some_and(|rpc| {
                rpc.state == State::Replying && is_fit(rpc, &rpc.out) && !self.is_wanted(rpc)
            })
        };
        let found = self.unacked.iter().take(LOOKS_MAX).position(fits);
        let Some(key) = found.and_then(|place| self.unacked.remove(place)) else {
            return false;
        };
        self.stats.unacked += 1;
        self.end(now, key);
        true
    }

    /// Whether a client that had all of a response sent to it said not long ago that it still
    /// wants some: it asked for bytes again, or has no room for them yet.
    fn is_wanted(&self, rpc: &Rpc) -> bool {
        let silent = self.wheel.tick().wrapping_sub(rpc.heard_tick);
        rpc.heard_tick != rpc.sent_tick && silent < self.params.timeout_ticks
    }

    /// A run for a new message; if pages are short, one that clients do not acknowledge anyway.
    pub(super) fn alloc_run(&mut self, now: Instant, len: u32, share: Share) -> Option<RunKey> {
        /// The longest message takes so many.
        const PAGES_MAX: u32 = MAX_MESSAGE_LEN.div_ceil(BPAGE_LEN);
        let mut run = self.pool.alloc(len, share);
        for _ in 0..PAGES_MAX {
            // If its peer has its share, only what that peer holds is of use.
            let of_any = self.pool.admits_peer(len, share);
            let holds_pages = |rpc: &Rpc, out: &MsgOut| {
                matches!(out.payload, Payload::Received { .. }) && (of_any || rpc.share() == share)
            };
            if run.is_some() || !(self.reap_for_room(now) || self.give_up_unacked(now, holds_pages))
            {
                break;
            }
            run = self.pool.alloc(len, share);
        }
        run
    }

    /// From now on the RPC may be given up for others.
    pub(super) fn note_unacked(&mut self, key: RpcKey) {
        self.trim_unacked();
        if self.unacked.len() == self.params.rpcs_max as usize {
            let rpcs = &self.rpcs;
            self.unacked.retain(|key| rpcs.contains(*key));
        }
        self.unacked.push_back(key);
    }
}
