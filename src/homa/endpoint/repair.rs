//! Holes in messages: asked for while later packets still come. Decision 17.

use crate::homa::event::RpcKey;
use crate::time::Instant;
use crate::wire::homa::Resend;

use super::{Body, Control, Endpoint};

/// RPCs looked at in one call, at most.
const REPAIRS_PER_TURN: usize = 64;

impl Endpoint {
    /// A packet came out of its order: it made a hole, or filled one that was there since
    /// `filled_since`.
    #[cold]
    pub(super) fn on_gap(
        &mut self,
        now: Instant,
        key: RpcKey,
        filled_since: Option<Instant>,
        is_retransmit: bool,
    ) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        let reorder = &mut self.peers.get_mut(rpc.peer).reorder;
        match filled_since {
            Some(_) if is_retransmit => reorder.on_lost(),
            Some(since) => reorder.on_late(now.since(since)),
            None => {}
        }
        let patience = reorder.patience();
        let Some(message) = rpc.message.as_mut() else {
            return;
        };
        if message.repair_filed || message.holes().is_empty() {
            return;
        }
        message.repair_filed = self.repairs.file(now + patience, key);
    }

    /// A packet held nothing new. If it is the one that was asked for again, it was not lost.
    #[cold]
    pub(super) fn on_duplicate(&mut self, now: Instant, key: RpcKey, is_retransmit: bool) {
        let Some(rpc) = self.rpcs.get_mut(key).filter(|_| !is_retransmit) else {
            return;
        };
        let peer = rpc.peer;
        if let Some(since) = rpc
            .message
            .as_mut()
            .and_then(|message| message.repaired_since.take())
        {
            self.peers.get_mut(peer).reorder.on_late(now.since(since));
        }
    }

    /// Asks for the holes that are due, of as many RPCs as one call may.
    pub(super) fn repair(&mut self, now: Instant) {
        for _ in 0..REPAIRS_PER_TURN {
            let Some(key) = self.repairs.poll(now) else {
                return;
            };
            if let Some(at) = self.ask_for_holes(now, key) {
                let is_filed = self.repairs.file(at, key);
                let rpc = self.rpcs.get_mut(key);
                if let Some(message) = rpc.and_then(|rpc| rpc.message.as_mut()) {
                    message.repair_filed = is_filed;
                }
            }
        }
    }

    /// Asks for each hole that is due, and tells when to look again.
    fn ask_for_holes(&mut self, now: Instant, key: RpcKey) -> Option<Instant> {
        let (tick, most) = (self.wheel.tick(), self.params.resends_per_peer_tick);
        let next_tick_at = self.last_tick_at.max(now) + self.params.tick;
        let interval = self
            .params
            .tick
            .times(self.params.resend_interval_ticks.into());
        let priority = self.params.num_priorities - 1;
        if self.has_ended(key) {
            return None;
        }
        let rpc = self.rpcs.get_mut(key)?;
        let (peer_key, common, is_waiting) = (rpc.peer, rpc.common(), rpc.is_waiting());
        let peer = self.peers.get_mut(peer_key);
        let patience = peer.reorder.patience();
        let mut has_asked = false;
        let message = rpc.message.as_mut()?;
        message.repair_filed = false;
        if is_waiting {
            return None; // Nothing is kept of it, so it has no holes.
        }
        let (mut next_at, mut since) = (None::<Instant>, message.repaired_since);
        for hole in message.holes_mut() {
            let mut due_at = hole.due_at(patience, interval);
            if due_at <= now && !peer.may_resend(tick, most) {
                due_at = next_tick_at;
            } else if due_at <= now {
                let resend = Resend {
                    offset: hole.range.start,
                    length: Some(hole.range.end - hole.range.start),
                    priority,
                };
                let sent = self.control.push(Control {
                    peer: peer_key,
                    common,
                    body: Body::Resend(resend),
                });
                self.stats.control_full += u64::from(!sent);
                self.stats.repairs += 1;
                (hole.asked_at, since, has_asked) = (Some(now), Some(hole.since), true);
                due_at = now + interval;
            }
            next_at = Some(next_at.map_or(due_at, |at| at.min(due_at)));
        }
        message.repaired_since = since;
        if has_asked {
            rpc.asked_tick = tick;
        }
        next_at
    }
}
