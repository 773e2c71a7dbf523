//! Messages as they come in: pages for them, their bytes, and the end of it.

use crate::addr::Addr;
use crate::homa::event::{Event, Message, RpcKey, RunKey, SocketKey};
use crate::homa::grant::Grants;
use crate::homa::msg_in::{MsgIn, Place};
use crate::homa::mutant::{self, Mutant};
use crate::homa::peer::{Peer, SAVED_ACKS_MAX};
use crate::homa::rpc::State;
use crate::homa::share::Share;
use crate::homa::waiting::Waiter;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::{Ack, Common, Data, Resend};

use super::{Body, Control, Endpoint, Verdict, waiter};

/// Messages that get the pages they waited for in one call, at most.
pub(super) const WAITERS_PER_CALL: usize = 16;

impl Endpoint {
    /// Stores the bytes of a DATA packet, and tells the user when the message is whole.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        now: Instant,
        key: RpcKey,
        data: Data,
        payload: &[u8],
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        let tick = self.wheel.tick();
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        let heard_before = std::mem::replace(&mut rpc.heard_tick, tick);
        rpc.ask_interval = self.params.resend_interval_ticks;
        match rpc.state {
            State::Receiving | State::Incoming if rpc.message.is_some() => {
                let life = (data.life, self.peers.get(rpc.peer).incarnation);
                if rpc
                    .message
                    .as_ref()
                    .is_some_and(|message| !message.is_of(life))
                {
                    // Its sender restarted amid the message, and says other things now.
                    rpc.heard_tick = heard_before;
                    self.stats.other_life += 1;
                    return Verdict::Dropped;
                }
            }
            State::Sending | State::Receiving | State::Incoming => {
                let share = rpc.share();
                if self.sockets.has_lent() && self.sockets.lent(rpc.socket).is_some() {
                    return self.receive_lent(now, key, data, payload);
                }
                if let Some(traffic) = &mut self.traffic {
                    traffic.on_message(data.message_length);
                }
                if payload.len() == data.message_length as usize
                    && let Some(run) = self.pool.alloc_inlined(data.message_length, share)
                {
                    return self.receive_whole(now, key, data, payload, run, app);
                }
                self.start_receiving(now, key, data, payload.len());
            }
            State::Requested | State::InService | State::Replying => {
                if mutant::is_on(Mutant::DuplicateDelivered) && !rpc.id.is_client() {
                    let socket = rpc.socket;
                    self.events.push_back(Event::Request { socket, rpc: key });
                }
                return self.drop_duplicate(&data);
            }
        }
        self.store(now, key, data, payload)
    }

    /// The first packet of a longer message, or of one that finds no room.
    #[inline(never)]
    pub(super) fn start_receiving(
        &mut self,
        now: Instant,
        key: RpcKey,
        data: Data,
        payload_len: usize,
    ) {
        let Some(rpc) = self.rpcs.get(key) else {
            return;
        };
        let (of, socket) = ((key, rpc.peer), (rpc.socket, rpc.share()));
        let message = self.start_message(now, of, socket, data, payload_len);
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        rpc.message = Some(message);
        if rpc.state == State::Sending {
            rpc.state = State::Receiving;
            // The first byte of a response shows that the server has the whole request.
            let notify = std::mem::take(&mut rpc.out.notify);
            self.outgoing.unfile(key);
            self.tell_released(notify, Ok(()));
        }
    }

    /// A message of one packet is whole at once: it needs no account of what is missing.
    #[inline(always)]
    fn receive_whole(
        &mut self,
        now: Instant,
        key: RpcKey,
        data: Data,
        payload: &[u8],
        run: RunKey,
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        self.stats.retransmits_used += u64::from(data.retransmit);
        let Some((offset, len)) = self.pool.place(run) else {
            return Verdict::Dropped;
        };
        self.region.write(offset as usize, payload);
        let empty_reply =
            data.empty_reply && payload.len() == 1 && !mutant::is_on(Mutant::EmptyReplyLost);
        self.complete(now, key, (run, offset, len), empty_reply, app)
    }

    /// Sets up the first packet's message: its pages, and what may come without a grant.
    #[inline(never)]
    fn start_message(
        &mut self,
        now: Instant,
        of: (RpcKey, Key<Peer>),
        (socket, share): (SocketKey, Share),
        data: Data,
        payload_len: usize,
    ) -> Box<MsgIn> {
        let (key, len) = (of.0, data.message_length);
        let place = self.first_place(now, (socket, share), len, payload_len);
        let mut message = self.spare_messages.pop().unwrap_or_default();
        message.begin(len, data.incoming, now, place, share);
        message.life = (data.life, self.peers.get(of.1).incarnation);
        message.empty_reply = data.empty_reply && len == 1;
        if payload_len < len as usize {
            self.file_timer(now, key, self.params.resend_ticks);
        }
        match place {
            Place::Run(_) => {
                start_grants(
                    &mut self.grants,
                    of,
                    &mut message,
                    self.params.unsched_bytes,
                );
            }
            Place::First(_) => {}
            Place::Waiting => self.start_waiting(now, (key, socket), waiter(key, &message)),
        }
        message
    }

    /// A message begins to wait for pages.
    pub(super) fn start_waiting(
        &mut self,
        now: Instant,
        (key, socket): (RpcKey, SocketKey),
        waiter: Waiter,
    ) {
        self.stats.page_waits += 1;
        match self.sockets.lent_mut(socket) {
            None => self.pool.wait(waiter),
            Some(lent) => lent.wait(waiter),
        }
        let tick = self.wheel.tick();
        if let Some(rpc) = self.rpcs.get_mut(key) {
            rpc.asked_tick = tick;
        }
        self.file_timer(now, key, self.params.resend_ticks);
    }

    #[inline(never)]
    pub(super) fn store(
        &mut self,
        now: Instant,
        key: RpcKey,
        data: Data,
        payload: &[u8],
    ) -> Verdict {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        let mut lent = self.sockets.lent_mut(rpc.socket);
        let Some(message) = rpc.message.as_mut() else {
            return Verdict::Dropped;
        };
        if data.message_length != message.len {
            self.stats.bad_data += 1;
            return Verdict::Dropped;
        }
        let run = match message.place {
            Place::Run(run) => run,
            Place::First(run) => return self.store_beside(now, key, run, data, payload),
            Place::Waiting => {
                self.stats.page_wait_bytes += payload.len() as u64;
                return Verdict::Dropped;
            }
        };
        let range = data.offset..data.offset + payload.len() as u32;
        let was_next = range.start == message.end();
        let shared = || self.pool.place(run).map(|(base, _)| base);
        let Some(base) = lent.as_ref().map_or_else(shared, |_| Some(0)) else {
            return Verdict::Dropped;
        };
        let (before, region) = (message.received, &mut self.region);
        let inserted = message.insert(now, range, |part| {
            let from = (part.start - data.offset) as usize;
            let bytes = &payload[from..from + part.len()];
            let wrong = data.retransmit && mutant::is_on(Mutant::BytesMisplaced);
            match &mut lent {
                None => region.write((base + part.start) as usize + usize::from(wrong), bytes),
                Some(lent) => lent.write(run, part.start, bytes),
            }
        });
        let Ok(filled_since) = inserted else {
            self.stats.holes_overflow += 1;
            return Verdict::Dropped;
        };
        if message.received == before {
            self.on_duplicate(now, key, data.retransmit);
            return self.drop_duplicate(&data);
        }
        self.stats.retransmits_used += u64::from(data.retransmit);
        if let Some(grantee) = message.grantee {
            self.grants.on_data(grantee, message.received);
        }
        let is_whole = message.is_whole();
        let (grantee, empty_reply, len) = (message.grantee, message.empty_reply, message.len);
        if !was_next {
            self.on_gap(now, key, filled_since, data.retransmit);
        }
        if is_whole {
            if let Some(grantee) = grantee {
                self.grants.on_gone(grantee);
            }
            let place = (run, base, len);
            return self.complete(now, key, place, empty_reply, &mut Self::keep_event);
        }
        Verdict::Taken
    }

    /// Rule IN-16: a duplicate of the network's making, or of ours.
    fn drop_duplicate(&mut self, data: &Data) -> Verdict {
        match data.retransmit {
            true => self.stats.retransmits_late += 1,
            false => self.stats.duplicates += 1,
        }
        Verdict::Dropped
    }

    /// A message is whole, with its run, where that begins, and its length: the user is told.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        now: Instant,
        key: RpcKey,
        place: (RunKey, u32, u32),
        empty_reply: bool,
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        if rpc.id.is_client() {
            return self.end_with_response(now, key, place, empty_reply, app);
        }
        rpc.state = State::Requested;
        (rpc.run, _, _) = place;
        rpc.empty_reply = empty_reply;
        let socket = rpc.socket;
        if let Some(message) = rpc.message.take() {
            self.spare(message);
        }
        self.stats.requests_in += 1;
        let rpc = key;
        app(self, Event::Request { socket, rpc });
        Verdict::Taken
    }

    /// The response is whole: nothing of the RPC is needed any more, and a later packet will tell
    /// the server so. Rule PE-07.
    #[inline(always)]
    fn end_with_response(
        &mut self,
        now: Instant,
        key: RpcKey,
        (run, offset, len): (RunKey, u32, u32),
        empty_reply: bool,
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        let Some(rpc) = self.rpcs.leave(key) else {
            return Verdict::Dropped;
        };
        let peer = self.peers.get_mut(rpc.peer);
        peer.on_rpc_over(now);
        peer.on_heard(self.wheel.tick());
        let message = Message {
            run,
            offset,
            len,
            rpc: key,
            id: rpc.id,
            peer: Addr::new(peer.ip, rpc.peer_port),
            empty_reply,
        };
        let (socket, tag) = (rpc.socket, rpc.tag);
        let whole = rpc.message.take();
        if !rpc.out.is_one_packet() {
            self.outgoing.unfile(key);
        }
        let (run, notify) = rpc.out.end();
        let ack = Ack {
            client_id: rpc.id,
            server_port: rpc.peer_port,
        };
        if peer.save_ack(ack).is_err() {
            let (peer, common) = (rpc.peer, rpc.common());
            self.send_acks(peer, ack, common);
        }
        if let Some(message) = whole {
            self.spare(message);
        }
        // The response shows that the server had the whole request.
        self.tell_released(notify, Ok(()));
        self.release_sent(now, run);
        self.stats.responses += 1;
        let event = Event::Response {
            socket,
            tag,
            message,
        };
        app(self, event);
        Verdict::Taken
    }

    /// Saves the ack that found no list; or sends the one that found no room, and saved ones so
    /// that the next finds some.
    #[cold]
    fn send_acks(&mut self, peer: Key<Peer>, ack: Ack, common: Common) {
        self.peers.give_lists(peer);
        if self.peers.get_mut(peer).save_ack(ack).is_ok() {
            return;
        }
        self.queue(Control {
            peer,
            common,
            body: Body::Ack,
        });
        // Each ACK packet names one RPC in its header and takes up to five of the saved acks.
        const { assert!(SAVED_ACKS_MAX == 16) };
        for _ in 0..2 {
            if let Some(ack) = self.peers.get_mut(peer).take_ack() {
                let (id, dport) = (ack.client_id, ack.server_port);
                let common = Common {
                    id,
                    dport,
                    ..common
                };
                self.queue(Control {
                    peer,
                    common,
                    body: Body::Ack,
                });
            }
        }
    }

    /// Gives runs to messages that waited for them, as far as they go. Rules PL-16, PL-18.
    ///
    /// Whoever gives many pages back at once pays for few of those that waited: the others are
    /// served by the next turns, so that no short message has to wait for all of it.
    pub(super) fn serve_waiters(&mut self, now: Instant) {
        self.waiters_left = false;
        for served in 0.. {
            if served == WAITERS_PER_CALL {
                self.waiters_left = true;
                return;
            }
            let Some((waiter, run)) = self.pool.poll_waiter(now) else {
                return;
            };
            if !self.serve_waiter(now, waiter.rpc, run) {
                self.pool.release(run);
            }
        }
    }

    /// A message has the pages it waited for: all of it is asked for. False if it is gone.
    pub(super) fn serve_waiter(&mut self, now: Instant, key: RpcKey, run: RunKey) -> bool {
        let (tick, is_over) = (self.wheel.tick(), self.has_ended(key));
        let Some(rpc) = self.rpcs.get_mut(key) else {
            debug_assert!(false, "an RPC that ended still waited");
            return false;
        };
        rpc.heard_tick = tick;
        rpc.asked_tick = tick;
        let of = (key, rpc.peer);
        let Some(message) = &mut rpc.message else {
            debug_assert!(false, "an RPC without a message still waited");
            return false;
        };
        if is_over {
            // It waits no more, and is for the reaper, who finds that it holds nothing.
            message.place = Place::Run(RunKey::default());
            return false;
        }
        message.place = Place::Run(run);
        start_grants(&mut self.grants, of, message, self.params.unsched_bytes);
        let priority = self.params.num_priorities.saturating_sub(2);
        let resend = Resend {
            offset: 0,
            length: None,
            priority,
        };
        self.queue_control(key, Body::Resend(resend));
        self.file_timer(now, key, self.params.resend_ticks);
        true
    }
}

/// A message that has its pages may be granted more, if it needs that. Rule GR-27.
pub(super) fn start_grants(
    grants: &mut Grants,
    (key, peer): (RpcKey, Key<Peer>),
    message: &mut MsgIn,
    unsched_bytes: u32,
) {
    if message.granted < message.len {
        let (birth, len) = (message.birth, message.len);
        // No more than our own limit is believed, or a few packets would stop all grants.
        let granted = message.granted.min(unsched_bytes);
        message.grantee =
            grants.on_start((key, peer.index()), birth, len, message.received, granted);
    }
}
