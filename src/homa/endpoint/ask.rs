//! Asking again for what did not come, within what a peer may be asked. Decision 16.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::homa::event::RpcKey;
use crate::homa::gaps::HOLES_MAX;
use crate::homa::msg_in::MsgIn;
use crate::homa::peer::Peer;
use crate::homa::rpc::State;
use crate::slots::Key;
use crate::wire::homa::Resend;

use super::{Body, Control, Endpoint};

/// Peers whose lines are served in one tick, at most.
const LINES_PER_TICK: usize = 64;

/// Stretches that one message can lack: its holes, and what was granted past the last byte.
const MISSING_MAX: usize = HOLES_MAX + 1;

impl Endpoint {
    /// Asks for what an RPC lacks, or lets it stand in line if its peer was asked enough.
    pub(super) fn ask(&mut self, key: RpcKey) {
        let Some(rpc) = self.rpcs.get(key).filter(|rpc| !rpc.stands_in_line) else {
            return;
        };
        let peer = rpc.peer;
        if self.askers.has_line(peer) || !self.ask_for_missing(key) {
            self.stand_in_line(peer, key);
        }
    }

    fn stand_in_line(&mut self, peer: Key<Peer>, key: RpcKey) {
        if let Some(rpc) = self.rpcs.get_mut(key) {
            rpc.stands_in_line = true;
        }
        let rpcs = &self.rpcs;
        self.askers.join(peer, key, |rpc| rpcs.contains(rpc));
    }

    /// A new tick: those who stand in line ask, as far as each peer may be asked.
    pub(super) fn serve_askers(&mut self) {
        if self.askers.is_empty() {
            return;
        }
        let most = self.params.resends_per_peer_tick;
        for peer in self.askers.next_peers(LINES_PER_TICK) {
            // One turn of each is enough, and then others come first again.
            for _ in 0..most {
                let Some(key) = self.askers.next(peer) else {
                    break;
                };
                if let Some(rpc) = self.rpcs.get_mut(key) {
                    rpc.stands_in_line = false;
                }
                self.excuse_unasked(key);
                if self.is_stuck(key) && !self.ask_for_missing(key) {
                    self.stand_in_line(peer, key);
                }
                let again = self.params.resend_ticks;
                if self.rpcs.contains(key) {
                    self.wheel.file_in(key.index(), again);
                }
            }
        }
    }

    /// Whether an RPC has still something to ask for, and hears nothing.
    fn is_stuck(&self, key: RpcKey) -> bool {
        let Some(rpc) = self.rpcs.get(key).filter(|rpc| !self.is_over(rpc)) else {
            return false;
        };
        let silent = self.wheel.tick().wrapping_sub(rpc.heard_tick);
        let lacks = |message: &MsgIn| !rpc.is_waiting() && !message.has_all_granted();
        let asks = match rpc.state {
            State::Sending => !rpc.out.is_sendable(),
            State::Receiving | State::Incoming => rpc.message.as_deref().is_none_or(lacks),
            State::Requested | State::InService | State::Replying => false,
        };
        asks && silent >= self.params.resend_ticks
    }

    /// Sends a RESEND for each stretch that is missing, or for everything if nothing came. False
    /// if the peer may not be asked for all of it in this tick: the next call goes on from there.
    fn ask_for_missing(&mut self, key: RpcKey) -> bool {
        let (tick, most) = (self.wheel.tick(), self.params.resends_per_peer_tick);
        let priority = self.params.num_priorities - 1;
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return true;
        };
        if rpc.is_waiting() {
            return true; // There is no room for what would come.
        }
        let (peer, common) = (rpc.peer, rpc.common());
        let asks = self.peers.get_mut(peer);
        let (first, missing): (u32, ArrayVec<Range<u32>, MISSING_MAX>) = match rpc.message.as_mut()
        {
            None => (0, ArrayVec::from_iter(std::iter::once(0..u32::MAX))),
            Some(message) => (message.ask_from, message.missing().collect()),
        };
        let mut left = None;
        for range in missing.into_iter().filter(|range| range.end > first) {
            if !asks.may_resend(tick, most) {
                left = Some(range.start);
                break;
            }
            let resend = Resend {
                offset: range.start,
                length: (range.end < u32::MAX).then(|| range.end - range.start),
                priority,
            };
            rpc.asked_tick = tick;
            let sent = self.control.push(Control {
                peer,
                common,
                body: Body::Resend(resend),
            });
            self.stats.control_full += u64::from(!sent);
        }
        if let Some(message) = rpc.message.as_mut() {
            message.ask_from = left.unwrap_or(0);
            let asked = first..left.unwrap_or(u32::MAX);
            let at = Some(self.last_tick_at);
            let holes = message.holes_mut().iter_mut();
            holes
                .filter(|hole| asked.contains(&hole.range.start))
                .for_each(|hole| hole.asked_at = at);
        }
        left.is_none()
    }
}
