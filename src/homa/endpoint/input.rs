//! The network's side, inward: packets, links, unreachable notices.

use crate::addr::{Addr, Ip, Meta};
use crate::error::Error;
use crate::homa::event::{Event, RpcKey};
use crate::homa::mutant::{self, Mutant};
use crate::homa::peer::{Link, Peer, Sign};
use crate::homa::rpc::{Rpc, State};
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::{self as wire, Ack, Common, Cutoffs, Data, Grant, Packet, Resend, RpcId};

use super::{Body, Control, Endpoint, Verdict, finished_name, id_count, is_drawn};

/// Where a packet comes from and which RPC it is for.
#[derive(Clone, Copy)]
struct Arrival {
    now: Instant,
    from: Addr,
    /// Our port, as the packet names it.
    port: u16,
    /// The RPC as this side knows it.
    id: RpcId,
}

impl Arrival {
    #[inline]
    fn new(now: Instant, meta: Meta, common: Common) -> Self {
        Self {
            now,
            from: Addr::new(meta.from, common.sport),
            port: common.dport,
            id: common.id.peer_side(),
        }
    }

    /// The header of an answer that needs no RPC.
    fn answer(self) -> Common {
        Common {
            sport: self.port,
            dport: self.from.port,
            id: self.id,
        }
    }
}

impl Endpoint {
    /// Takes one Homa packet, as the IP header cut it. `app` is told if it made a message whole.
    #[inline(always)]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: Meta,
        packet: &[u8],
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        self.stats.packets_in += 1;
        match wire::parse_data(packet) {
            Some((common, data, payload)) => self.on_data((now, meta, common), data, payload, app),
            None => self.on_other(now, meta, packet),
        }
    }

    /// Takes a packet that is no DATA, or one that is odd; what happens by it waits to be told.
    #[cold]
    #[inline(never)]
    fn on_other(&mut self, now: Instant, meta: Meta, packet: &[u8]) -> Verdict {
        let Ok((common, packet)) = wire::parse(packet) else {
            self.stats.malformed += 1;
            return Verdict::Dropped;
        };
        let arrival = Arrival::new(now, meta, common);
        match packet {
            Packet::Data(data, payload) => {
                self.on_data((now, meta, common), data, payload, &mut Self::keep_event)
            }
            Packet::Grant(grant) => self.on_grant(arrival, grant),
            Packet::Resend(resend) => self.on_resend(arrival, resend),
            Packet::Unknown => self.on_unknown(arrival),
            Packet::Busy => self.on_busy(arrival),
            Packet::Cutoffs(cutoffs) => self.on_cutoffs(arrival, cutoffs),
            Packet::NeedAck => self.on_need_ack(arrival),
            Packet::Ack(acks) => self.on_acks(arrival, &acks.0),
            Packet::Freeze => {
                self.stats.freezes += 1;
                Verdict::Taken
            }
        }
    }

    /// A host or a router says that `to` cannot be reached, quoting a packet we sent from `port`
    /// for `id`.
    ///
    /// Only a live RPC with that very peer and port is ended, so that a forged notice must guess
    /// an id.
    pub fn handle_unreachable(
        &mut self,
        now: Instant,
        to: Addr,
        port: u16,
        id: RpcId,
        error: Error,
    ) {
        let peer = self.peers.find(to.ip);
        let key = peer.and_then(|peer| self.find_rpc(id, peer, to.port));
        match key.filter(|&key| self.rpcs.get(key).is_some_and(|rpc| rpc.port == port)) {
            Some(key) => self.abort(now, key, error),
            None => self.stats.unknown_rpc += 1,
        }
    }

    /// Whether [`Self::poll_unresolved`] has a peer.
    #[inline]
    pub fn has_unresolved(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// A peer whose link the network layer should find, told once.
    pub fn poll_unresolved(&mut self) -> Option<Ip> {
        self.unresolved.pop_front()
    }

    /// The RPC a packet is for, if it comes from that RPC's peer.
    fn find(&mut self, arrival: Arrival) -> Option<RpcKey> {
        let peer = self.peers.find(arrival.from.ip)?;
        self.find_rpc(arrival.id, peer, arrival.from.port)
    }

    /// The RPC of that id, if it is one with that socket of that peer.
    #[inline(always)]
    fn find_rpc(&self, id: RpcId, peer: Key<Peer>, peer_port: u16) -> Option<RpcKey> {
        if !id.is_client() {
            return self.find_server(id, peer, peer_port);
        }
        let key = self.find_client(id)?;
        let rpc = self.rpcs.get(key)?;
        (rpc.peer == peer && rpc.peer_port == peer_port).then_some(key)
    }

    /// The peer a packet comes from, made known if it was not. Its link is asked for at once, so
    /// that the answer finds it.
    #[inline(always)]
    fn sender(&mut self, now: Instant, ip: Ip) -> Option<Key<Peer>> {
        let Some(key) = self.peers.find_or_add(now, ip) else {
            self.stats.peers_full += 1;
            return None;
        };
        let peer = self.peers.get_mut(key);
        if peer.link == Link::Unknown {
            peer.link = Link::Asked;
            self.unresolved.push_back(peer.ip);
        }
        Some(key)
    }

    #[inline(always)]
    fn on_data(
        &mut self,
        (now, meta, common): (Instant, Meta, Common),
        data: Data,
        payload: &[u8],
        app: &mut impl FnMut(&mut Self, Event),
    ) -> Verdict {
        // Put together where it is needed, which is rarely.
        let arrival = move || Arrival::new(now, meta, common);
        if !data.fits(payload.len()) {
            self.stats.bad_data += 1;
            return Verdict::Dropped;
        }
        if data.message_length > self.pool.len_max() && self.refuse_too_long(arrival()) {
            return Verdict::Dropped;
        }
        let Some(peer) = self.sender(now, meta.from) else {
            return Verdict::Dropped;
        };
        if data.cutoff_version != self.params.cutoff_version || !self.peers.get(peer).uses_ours() {
            self.on_version(arrival(), peer, data.cutoff_version);
        }
        if let Some(ack) = data.ack {
            self.on_ack(now, peer, ack);
        }
        match self.find_or_start(arrival, common, peer) {
            Ok(key) => self.receive(now, key, data, payload, app),
            Err(verdict) => verdict,
        }
    }

    /// The RPC a DATA packet is for, which is made if the packet begins a request.
    #[inline(always)]
    fn find_or_start(
        &mut self,
        arrival: impl Fn() -> Arrival,
        common: Common,
        peer: Key<Peer>,
    ) -> Result<RpcKey, Verdict> {
        let (id, port) = (common.id.peer_side(), common.sport);
        if id.is_client() {
            let key = self.find_rpc(id, peer, port);
            self.stats.unknown_rpc += u64::from(key.is_none());
            return key.ok_or(Verdict::Dropped);
        }
        let hash = self.server_hash(id, self.peers.get(peer));
        let key = self.find_hashed(hash, |rpc| {
            rpc.id == id && rpc.peer == peer && rpc.peer_port == port
        });
        match key {
            Some(key) => Ok(key),
            None => self.start_server(arrival, peer, hash),
        }
    }

    /// A message longer than all pages together would wait for them for ever. False if it is for a
    /// socket with pages of its own, which are enough for any message.
    #[cold]
    fn refuse_too_long(&mut self, arrival: Arrival) -> bool {
        let key = self.find(arrival);
        let socket = match key.and_then(|key| self.rpcs.get(key)) {
            Some(rpc) => Some(rpc.socket),
            None => self.sockets.server_on(arrival.port),
        };
        if socket.is_some_and(|socket| self.sockets.lent(socket).is_some()) {
            return false;
        }
        self.stats.too_long += 1;
        if let Some(key) = key
            && let Some(State::Sending) = self.rpcs.get(key).map(|rpc| rpc.state)
        {
            self.abort(arrival.now, key, Error::MessageTooLong);
        }
        true
    }

    /// Learns which cutoffs a peer goes by: tells it ours, and finds out if it restarted.
    #[cold]
    #[inline(never)]
    fn on_version(&mut self, arrival: Arrival, key: Key<Peer>, theirs: u16) {
        let (ours, tick) = (self.params.cutoff_version, self.wheel.tick());
        let sign = match theirs {
            0 => self.sign_of_life(arrival, key),
            _ => Sign::Unclear,
        };
        let peer = self.peers.get_mut(key);
        let may_tell = theirs != ours && peer.may_send_cutoffs(tick);
        let restarted =
            peer.on_version(arrival.now, (theirs, ours), sign, self.params.restart_after);
        if !arrival.id.is_client() && is_drawn(arrival.id) {
            peer.on_life(id_count(arrival.id), restarted);
        }
        if restarted {
            self.stats.restarts += 1;
            self.end_servers_of(arrival.now, key);
        }
        if may_tell {
            self.queue(Control {
                peer: key,
                common: arrival.answer(),
                body: Body::Cutoffs,
            });
        }
    }

    /// What a packet that knows nothing of our cutoffs says about its sender.
    #[cold]
    fn sign_of_life(&mut self, arrival: Arrival, key: Key<Peer>) -> Sign {
        let peer = self.peers.get(key);
        if !arrival.id.is_client() {
            // The Linux module counts from 2 on in each life, so its ids tell nothing.
            return match is_drawn(arrival.id) {
                true => peer.sign_of(id_count(arrival.id)),
                false => Sign::Unclear,
            };
        }
        // Had we asked once it knew our cutoffs, that life would have named them.
        let (used_since, uses_ours) = (peer.uses_ours_since, peer.uses_ours());
        let rpc = self.find_rpc(arrival.id, key, arrival.from.port);
        match rpc
            .and_then(|rpc| self.rpcs.get(rpc))
            .and_then(Rpc::asked_at)
        {
            Some(at) if used_since < at || !uses_ours => Sign::Unclear,
            Some(_) | None => Sign::Late,
        }
    }

    /// Whether a packet is a late one for a server RPC that is over; `hash` is the RPC's.
    #[cold]
    fn is_finished(&mut self, arrival: Arrival, peer: Key<Peer>, hash: u64) -> bool {
        if !self.reaper.is_done() {
            let from = (peer, arrival.from.port);
            self.reap_named(arrival.now, arrival.id, from, hash);
        }
        let peer = self.peers.get(peer);
        let (port, incarnation) = (arrival.from.port, peer.incarnation);
        let name = finished_name(arrival.id, hash, port, incarnation, peer.place);
        let is_finished = self.finished.contains(arrival.now, name);
        self.stats.late_requests += u64::from(is_finished);
        is_finished
    }

    /// Makes a server RPC for a request that is new.
    #[inline(always)]
    fn start_server(
        &mut self,
        arrival: impl Fn() -> Arrival,
        peer: Key<Peer>,
        hash: u64,
    ) -> Result<RpcKey, Verdict> {
        let Arrival {
            now,
            from,
            port,
            id,
        } = arrival();
        let Some(socket) = self.sockets.server_on(port) else {
            self.stats.unknown_port += 1;
            return Err(Verdict::PortUnreachable);
        };
        let is_new = id > self.peers.get(peer).newest_request;
        if !is_new && self.is_finished(arrival(), peer, hash) {
            return Err(Verdict::Dropped);
        }
        if !self.may_serve() && !self.make_room(now) {
            self.stats.rpcs_full += 1;
            return Err(Verdict::Dropped);
        }
        let tick = self.wheel.tick();
        let Some((key, rpc)) = self.rpcs.enter() else {
            self.stats.rpcs_full += 1;
            return Err(Verdict::Dropped);
        };
        let (theirs, ours) = ((peer, from.port), (socket, port));
        let ask_interval = self.params.resend_interval_ticks;
        rpc.begin(id, theirs, ours, tick, ask_interval);
        rpc.state = State::Incoming;
        rpc.hash = hash;
        let peer = self.peers.get_mut(peer);
        peer.on_rpc(now);
        rpc.incarnation = peer.incarnation;
        peer.newest_request = peer.newest_request.max(id);
        self.server_count += 1;
        self.servers.insert(hash, key.index());
        Ok(key)
    }

    fn on_grant(&mut self, arrival: Arrival, grant: Grant) -> Verdict {
        let tick = self.wheel.tick();
        let Some(key) = self.find(arrival) else {
            self.stats.unknown_rpc += 1;
            return Verdict::Dropped;
        };
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        rpc.heard_tick = tick;
        rpc.ask_interval = self.params.resend_interval_ticks;
        self.peers.get_mut(rpc.peer).on_heard(tick);
        let Some(out) = rpc.msg_out_mut() else {
            self.stats.out_of_place += 1;
            return Verdict::Dropped;
        };
        let is_more = out.grant(grant.offset, grant.priority);
        if is_more && !mutant::is_on(Mutant::GrantIgnored) {
            self.file_out(key);
        }
        Verdict::Taken
    }

    fn on_resend(&mut self, arrival: Arrival, resend: Resend) -> Verdict {
        let Some(key) = self.find(arrival) else {
            return self.on_resend_unknown(arrival);
        };
        if self.has_waited_out(key) {
            self.stats.page_waits_over += 1;
            return Verdict::Dropped;
        }
        let (tick, interval) = (self.wheel.tick(), self.params.resend_interval_ticks);
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        self.peers.get_mut(rpc.peer).on_heard(tick);
        if !rpc.has_out() {
            // A server without a response is at work; a client that is done needs nothing more.
            match rpc.id.is_client() {
                true => self.stats.out_of_place += 1,
                false => {
                    if rpc.is_held() {
                        rpc.heard_tick = tick; // It lives, and owes us nothing.
                    }
                    if !mutant::is_on(Mutant::BusyForgotten) {
                        self.queue_control(key, Body::Busy);
                    }
                }
            }
            return Verdict::Taken;
        };
        if rpc.state == State::Replying && rpc.out.is_sent() {
            rpc.heard_tick = tick; // It owes us nothing but its ack.
        }
        let out = &mut rpc.out;
        let end = match resend.length {
            Some(length) => resend.offset.saturating_add(length),
            None => out.sent,
        };
        if resend.offset >= out.sent && !out.grant_by_resend(end, resend.priority) {
            self.queue_control(key, Body::Busy);
            return Verdict::Taken;
        }
        out.grant_by_resend(end, resend.priority);
        let asked = match mutant::is_on(Mutant::ResendOfWrongRange) {
            true => 0..1,
            false => resend.offset..end,
        };
        out.owe(asked, resend.priority, tick, interval);
        self.file_out(key);
        Verdict::Taken
    }

    fn on_resend_unknown(&mut self, arrival: Arrival) -> Verdict {
        let Some(peer) = self.sender(arrival.now, arrival.from.ip) else {
            return Verdict::Dropped;
        };
        let mut body = Body::Unknown;
        if !arrival.id.is_client() {
            // First of all, or a client whose server closed would wait in vain.
            if self.sockets.server_on(arrival.port).is_none() {
                self.stats.unknown_port += 1;
                return Verdict::PortUnreachable;
            }
            let hash = self.server_hash(arrival.id, self.peers.get(peer));
            if self.is_finished(arrival, peer, hash) {
                // RPC_UNKNOWN would draw the whole request once more.
                return Verdict::Dropped;
            }
            if !self.may_serve() {
                body = Body::Busy;
            }
        }
        self.stats.unknown_rpc += 1;
        self.queue(Control {
            peer,
            common: arrival.answer(),
            body,
        });
        Verdict::Taken
    }

    fn on_unknown(&mut self, arrival: Arrival) -> Verdict {
        let Some(key) = self.find(arrival) else {
            self.stats.unknown_rpc += 1;
            return Verdict::Dropped;
        };
        if !arrival.id.is_client() {
            self.end(arrival.now, key);
            return Verdict::Taken;
        }
        let (tick, interval) = (self.wheel.tick(), self.params.resend_interval_ticks);
        let priority = self.params.num_priorities - 1;
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        // It knows nothing of this RPC, but it lives.
        self.peers.get_mut(rpc.peer).on_heard(tick);
        if rpc.state != State::Sending {
            // Part of the response is here, so the notice is older than the truth.
            self.stats.late_unknowns += 1;
            return Verdict::Dropped;
        }
        if rpc.out.owe(0..rpc.out.sent, priority, tick, interval) {
            self.file_out(key);
        }
        Verdict::Taken
    }

    fn on_busy(&mut self, arrival: Arrival) -> Verdict {
        let (tick, longest) = (self.wheel.tick(), self.params.busy_backoff_max_ticks);
        match self.find(arrival).and_then(|key| self.rpcs.get_mut(key)) {
            Some(rpc) => {
                rpc.heard_tick = tick;
                rpc.ask_interval = rpc.ask_interval.saturating_mul(2).min(longest);
                self.peers.get_mut(rpc.peer).on_heard(tick);
                Verdict::Taken
            }
            None => {
                self.stats.unknown_rpc += 1;
                Verdict::Dropped
            }
        }
    }

    fn on_cutoffs(&mut self, arrival: Arrival, cutoffs: Cutoffs) -> Verdict {
        if cutoffs.version == 0 {
            // Naming it, we would look as if we had restarted.
            self.stats.out_of_place += 1;
            return Verdict::Dropped;
        }
        let Some(peer) = self.peers.find(arrival.from.ip) else {
            self.stats.unknown_rpc += 1;
            return Verdict::Dropped;
        };
        self.peers.get_mut(peer).cutoffs = cutoffs.into();
        Verdict::Taken
    }

    fn on_need_ack(&mut self, arrival: Arrival) -> Verdict {
        let Some(peer) = self.sender(arrival.now, arrival.from.ip) else {
            return Verdict::Dropped;
        };
        let key = if arrival.id.is_client() {
            self.find(arrival)
        } else {
            None
        };
        let missing = key.filter(|&key| {
            let state = self.rpcs.get(key).map(|rpc| rpc.state);
            matches!(state, Some(State::Sending | State::Receiving))
                && !mutant::is_on(Mutant::AckOfMissingBytes)
        });
        match missing {
            Some(key) if self.rpcs.get(key).is_some_and(Rpc::is_waiting) => {
                self.tell_waiting(key);
            }
            // Rule IN-56: bytes are missing, so ask for them instead. Once a tick is enough.
            Some(key) => {
                let tick = self.wheel.tick();
                if self.rpcs.get(key).is_some_and(|rpc| rpc.asked_tick != tick) {
                    self.ask(key);
                }
            }
            None => self.queue(Control {
                peer,
                common: arrival.answer(),
                body: Body::Ack,
            }),
        }
        Verdict::Taken
    }

    /// Takes the acks of an ACK packet: of the RPC it names, and of others.
    fn on_acks(&mut self, arrival: Arrival, others: &[Ack]) -> Verdict {
        let Some(peer) = self.peers.find(arrival.from.ip) else {
            self.stats.unknown_rpc += 1;
            return Verdict::Dropped;
        };
        let own = Ack {
            client_id: arrival.id.peer_side(),
            server_port: arrival.port,
        };
        self.on_ack(arrival.now, peer, own);
        for &ack in others {
            self.on_ack(arrival.now, peer, ack);
        }
        Verdict::Taken
    }

    /// The client has the response: nothing of the RPC is needed any more but its name.
    #[inline(always)]
    fn on_ack(&mut self, now: Instant, peer: Key<Peer>, ack: Ack) {
        let id = ack.client_id.peer_side();
        let hash = self.server_hash(id, self.peers.get(peer));
        let key = self.find_hashed(hash, |rpc| {
            rpc.id == id && rpc.peer == peer && rpc.port == ack.server_port
        });
        match key.and_then(|key| self.rpcs.get_mut(key).map(|rpc| (key, rpc))) {
            Some((key, rpc)) if rpc.state == State::Replying => {
                let notify = std::mem::take(&mut rpc.out.notify);
                self.tell_released(notify, Ok(()));
                self.end(now, key);
            }
            Some(_) => self.stats.out_of_place += 1,
            None => self.stats.unknown_rpc += 1,
        }
    }
}
