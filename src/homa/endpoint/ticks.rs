//! What time brings: RESENDs, NEED_ACKs, and the end of RPCs whose peer is silent.

use crate::error::Error;
use crate::homa::event::RpcKey;
use crate::homa::rpc::State;
use crate::time::Instant;

use super::{Body, Endpoint};

/// RPCs looked at in one call, at most, besides those for the time since the last call; the others
/// of the tick wait for the next.
const TIMERS_PER_TURN: u64 = 64;

/// So many more for each microsecond since the last call. Where calls are rare, as when all turns
/// are full of packets, 64 at a time would make ticks ever longer; so timers have the same share
/// of all time, which is up to a half.
const TIMERS_PER_MICRO: u64 = 16;

/// What a look at an RPC led to.
enum Look {
    /// Look again in so many ticks.
    Again(u32),
    /// It is finished, timed out, or needs no timer in this state.
    Done,
}

impl Endpoint {
    /// When [`Self::handle_timeout`] should be called next; `None` if nothing waits for time.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.due_left || self.has_left_over() || self.outgoing.has_prompt() {
            return Some(self.last_tick_at);
        }
        let tick = (!self.wheel.is_empty()).then(|| self.last_tick_at + self.params.tick);
        let is_paced = self.pacer.is_on() && self.outgoing.has_long();
        let paced = is_paced.then(|| self.pacer.ready_at());
        let all = [tick, self.repairs.next_at(), paced];
        all.into_iter().flatten().min()
    }

    /// Counts a tick if one has passed, and looks at the RPCs that are due.
    ///
    /// However much time went by, it is one tick: what the loop did not live through was not the
    /// peers' silence. So the caller should not call it while received packets still wait.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.repairs.is_empty() {
            self.repair(now);
        }
        self.catch_up(now);
        if self.due_left {
            self.look_at_due(now);
        }
        if now >= self.last_tick_at + self.params.tick && !self.due_left {
            self.tick(now);
        }
    }

    /// Goes on with what earlier calls had too much of to do it at once. In each turn, or it would
    /// fall behind; [`Self::handle_timeout`] does so too.
    #[inline]
    pub fn catch_up(&mut self, now: Instant) {
        if self.has_left_over() {
            self.go_on(now);
        }
    }

    #[inline]
    fn has_left_over(&self) -> bool {
        self.waiters_left || !self.reaper.is_done() || !self.unparked.is_empty()
    }

    #[cold]
    fn go_on(&mut self, now: Instant) {
        if !self.reaper.is_done() {
            self.reap(now);
        }
        if !self.unparked.is_empty() {
            self.unpark_more(now);
        }
        if self.waiters_left {
            self.serve_all_waiters(now);
        }
    }

    fn tick(&mut self, now: Instant) {
        if self.wheel.is_empty() {
            // What happens once a tick, such as CUTOFFS to a peer, goes by the number all the same.
            self.wheel.advance();
            self.last_tick_at = now;
            return;
        }
        let next = self.last_tick_at + self.params.tick;
        self.last_tick_at = if now < next + self.params.tick {
            next
        } else {
            now
        };
        self.looked_at = self.looked_at.max(self.last_tick_at);
        self.wheel.advance();
        if self.traffic.is_some() {
            self.follow_traffic(now);
        }
        self.serve_askers();
        self.look_at_due(now);
    }

    /// New cutoffs if the traffic has changed; peers are told as they name the old version.
    #[cold]
    fn follow_traffic(&mut self, now: Instant) {
        let params = &mut self.params;
        let cutoffs = self.traffic.as_mut();
        if let Some(cutoffs) = cutoffs.and_then(|one| one.poll(now, &params.unsched_cutoffs)) {
            params.unsched_cutoffs = cutoffs;
            // 0 means "none yet".
            params.cutoff_version = params.cutoff_version.checked_add(1).unwrap_or(1);
        }
    }

    /// Looks at RPCs that are due, as many as one call may.
    fn look_at_due(&mut self, now: Instant) {
        let micros = now.since(self.looked_at).as_nanos() / 1_000;
        self.looked_at = now;
        for _ in 0..TIMERS_PER_TURN + TIMERS_PER_MICRO * micros {
            let Some(slot) = self.wheel.poll_due() else {
                self.due_left = false;
                return;
            };
            let Some(key) = self.rpcs.key_at(slot) else {
                continue;
            };
            match self.look(now, key) {
                Look::Again(ticks) => self.wheel.file_in(slot, ticks),
                Look::Done => {}
            }
        }
        self.due_left = true;
    }

    fn look(&mut self, now: Instant, key: RpcKey) -> Look {
        let Some(rpc) = self.rpcs.get(key) else {
            return Look::Done;
        };
        if self.is_over(rpc) {
            self.end(now, key);
            return Look::Done;
        }
        // Rule TM-02: nothing is owed to us.
        let message = rpc.message.as_ref();
        let has_all = message.is_some_and(|message| message.has_all_granted());
        let (asks, ours) = match rpc.state {
            State::Sending => (true, rpc.out.is_sendable()),
            State::Receiving if rpc.is_waiting() => return self.look_at_waiting(now, key),
            State::Receiving if has_all => return self.look_at_ungranted(key),
            State::Receiving => (true, false),
            State::Incoming if rpc.is_waiting() || has_all => {
                return self.look_at_held(now, key);
            }
            State::Incoming => (true, false),
            State::Replying if rpc.out.is_sent() => return self.look_at_sent(now, key),
            State::Replying => (false, rpc.out.is_sendable()),
            State::Requested | State::InService => return Look::Done,
        };
        if ours {
            return self.restart_silence(key);
        }
        self.look_at_silent(now, key, asks)
    }

    /// Rules TM-02 to TM-05: the ball is in our court, so the peer's silence means nothing.
    fn restart_silence(&mut self, key: RpcKey) -> Look {
        let tick = self.wheel.tick();
        if let Some(rpc) = self.rpcs.get_mut(key) {
            rpc.heard_tick = tick;
        }
        Look::Again(self.params.resend_ticks)
    }

    /// Rules TM-02, TM-03: a request waits for pages or grants of ours, so we ask for nothing.
    ///
    /// Meanwhile its client hears nothing and so asks. Deviation: one that does not is gone, and
    /// must not keep its slot until its turn comes. But a client with thousands of such RPCs asks
    /// for few of them in a tick: as long as it asks for any, each has the time to stand in line.
    fn look_at_held(&mut self, now: Instant, key: RpcKey) -> Look {
        let tick = self.wheel.tick();
        let Some(rpc) = self.rpcs.get(key) else {
            return Look::Done;
        };
        let (silent, timeout) = (tick.wrapping_sub(rpc.heard_tick), self.params.timeout_ticks);
        if silent < timeout {
            return Look::Again(self.params.resend_ticks);
        }
        let peer = self.peers.get(rpc.peer);
        let line = peer.rpc_count / u32::from(self.params.resends_per_peer_tick);
        if silent < timeout + line && peer.was_heard(tick, timeout) {
            return Look::Again(self.params.resend_ticks);
        }
        self.end(now, key);
        Look::Done
    }

    /// Rule TM-03: a response waits for pages, so we ask for nothing, and the server's silence does
    /// not count. It would take ours for our end: it hears that we live. Deviation: not for ever,
    /// as hosts may wait for each other's pages.
    fn look_at_waiting(&mut self, now: Instant, key: RpcKey) -> Look {
        if self.has_waited_out(key) {
            self.fail(now, key, Error::NoMemory);
            return Look::Done;
        }
        self.queue_control(key, Body::Busy);
        let _ = self.restart_silence(key);
        Look::Again(self.params.timeout_ticks / 4)
    }

    /// A server asks for an ack of a response that waits for pages. If it is short of slots it
    /// gives up who says nothing, so it hears that we live, though not each time.
    pub(super) fn tell_waiting(&mut self, key: RpcKey) {
        let tick = self.wheel.tick();
        if let Some(rpc) = self.rpcs.get_mut(key)
            && tick.wrapping_sub(rpc.heard_tick) >= self.params.request_ack_ticks
        {
            rpc.heard_tick = tick;
            self.queue_control(key, Body::Busy);
        }
    }

    /// Rule TM-02: a response waits for grants of ours, so nothing is owed to us. As above, its
    /// server hears that we live.
    fn look_at_ungranted(&mut self, key: RpcKey) -> Look {
        let tick = self.wheel.tick();
        if let Some(rpc) = self.rpcs.get_mut(key)
            && tick.wrapping_sub(rpc.asked_tick) >= self.params.timeout_ticks / 4
        {
            rpc.asked_tick = tick;
            self.queue_control(key, Body::Busy);
        }
        self.restart_silence(key)
    }

    /// Whether an RPC, if it waits for pages, has done so for too long. Its client fails; a server
    /// says nothing of it any more, so that its client does.
    pub(super) fn has_waited_out(&self, key: RpcKey) -> bool {
        self.rpcs.get(key).is_some_and(|rpc| {
            let waited = self.wheel.tick().wrapping_sub(rpc.asked_tick);
            rpc.is_waiting() && waited >= self.params.need_ack_give_up_ticks
        })
    }

    /// The peer owes us something. `asks`: a message of its, rather than grants for one of ours.
    fn look_at_silent(&mut self, now: Instant, key: RpcKey, asks: bool) -> Look {
        let tick = self.wheel.tick();
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Look::Done;
        };
        let silent = tick.wrapping_sub(rpc.heard_tick);
        let left = self.params.timeout_ticks.saturating_sub(silent);
        if left == 0 {
            let is_client = rpc.id.is_client();
            if asks && self.excuse_unasked(key) {
                self.ask(key);
                return Look::Again(self.params.timeout_ticks / 4);
            }
            self.stats.timeouts += u64::from(is_client);
            self.abort(now, key, Error::PeerTimedOut);
            return Look::Done;
        }
        if !asks {
            return Look::Again(left);
        }
        if silent > rpc.ask_interval {
            // Who was busy has not answered: long pauses are for the living.
            rpc.ask_interval = self.params.resend_interval_ticks;
        }
        let first = self.params.resend_ticks.saturating_sub(silent);
        let since_asked = tick.wrapping_sub(rpc.asked_tick);
        let wait = first.max(rpc.ask_interval.saturating_sub(since_asked));
        if wait > 0 {
            return Look::Again(wait.min(left));
        }
        self.ask(key);
        let stands_in_line = self.rpcs.get(key).is_some_and(|rpc| rpc.stands_in_line);
        // In line it has its turn without being looked at: to look at 100,000 RPCs in every few
        // ticks would take longer than those.
        let pause = match stands_in_line {
            true => self.params.timeout_ticks / 4,
            false => self.params.resend_interval_ticks,
        };
        Look::Again(pause.min(left))
    }

    /// Who was not asked since it was last heard owes no answer, if its peer lives: others were
    /// asked for first. True if so; then its silence begins when it is asked.
    ///
    /// Else RPCs to slow handlers would time out once there are more of them than may be asked for
    /// in that time: 800 by default.
    pub(super) fn excuse_unasked(&mut self, key: RpcKey) -> bool {
        let tick = self.wheel.tick();
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return false;
        };
        let silent = tick.wrapping_sub(rpc.heard_tick);
        let since_asked = tick.wrapping_sub(rpc.asked_tick);
        let peer = self.peers.get(rpc.peer);
        let is_unasked = since_asked >= silent && peer.was_heard(tick, self.params.timeout_ticks);
        if is_unasked {
            rpc.heard_tick = tick.wrapping_sub(silent.min(self.params.resend_ticks));
        }
        is_unasked
    }

    /// The whole response went out: asks the client to acknowledge it, and gives up in the end.
    fn look_at_sent(&mut self, now: Instant, key: RpcKey) -> Look {
        let tick = self.wheel.tick();
        let params = &self.params;
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Look::Done;
        };
        let since_sent = tick.wrapping_sub(rpc.sent_tick);
        if since_sent >= params.need_ack_give_up_ticks {
            self.stats.unacked += 1;
            self.end(now, key);
            return Look::Done;
        }
        if since_sent < params.request_ack_ticks {
            return Look::Again(params.request_ack_ticks - since_sent);
        }
        rpc.need_acks += 1;
        rpc.asked_tick = tick;
        let pause = match rpc.need_acks < params.need_acks_fast {
            true => 1,
            false => params.need_ack_interval_ticks,
        };
        let pause = pause.min(params.need_ack_give_up_ticks - since_sent);
        if rpc.need_acks == params.need_acks_fast {
            self.note_unacked(key);
        }
        self.queue_control(key, Body::NeedAck);
        Look::Again(pause)
    }
}
