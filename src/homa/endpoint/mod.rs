//! Where all parts of the transport meet.

mod app;
mod ask;
mod check;
mod first;
mod info;
mod input;
mod leave;
mod lent;
mod link;
mod output;
mod reap;
mod receive;
mod repair;
mod room;
mod ticks;

use std::collections::VecDeque;

use crate::addr::Ip;
use crate::arena::Arena;
use crate::counters;
use crate::error::Error;
use crate::homa::askers::Askers;
use crate::homa::control::{Body, Control, ControlQueue};
use crate::homa::cutoffs::Traffic;
use crate::homa::event::{Event, Notify, RpcKey, RunKey, SocketKey};
use crate::homa::finished::{Finished, Name};
use crate::homa::grant::Grants;
use crate::homa::msg_in::{MsgIn, Place};
use crate::homa::msg_out::Cut;
use crate::homa::mutant::{self, Mutant};
use crate::homa::outgoing::Outgoing;
use crate::homa::pacer::Pacer;
use crate::homa::params::Params;
use crate::homa::peer::{Peer, Peers};
use crate::homa::pool::Pool;
use crate::homa::repair::Repairs;
use crate::homa::rpc::{Rpc, State};
use crate::homa::socket::Sockets;
use crate::homa::table::Table;
use crate::homa::timer::Wheel;
use crate::homa::waiting::Waiter;
use crate::keyed::Keyed;
use crate::mem::Region;
use crate::rng::Rng;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::{DATA_LEN, RpcId};

pub use info::RpcInfo;

use link::Unparked;
use reap::Reaper;

/// Bits of an id that name the client's slot.
const SLOT_BITS: u32 = 20;

/// An odd number with its ones well spread: the golden ratio's fraction.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The transport of one runtime.
#[derive(Debug)]
pub struct Endpoint {
    params: Params,
    region: Region,
    pool: Pool,
    rpcs: Arena<Rpc>,
    /// Server RPCs by what their clients call them.
    servers: Table,
    server_count: u32,
    /// Server RPCs whose clients were asked for an ack often and in vain, the oldest first. Some
    /// may be gone since.
    unacked: VecDeque<RpcKey>,
    peers: Peers,
    sockets: Sockets,
    outgoing: Outgoing,
    pacer: Pacer,
    /// If the cutoffs follow it.
    traffic: Option<Box<Traffic>>,
    grants: Grants,
    control: ControlQueue,
    /// The last packet came from `control`.
    was_control: bool,
    finished: Finished,
    wheel: Wheel,
    askers: Askers,
    repairs: Repairs,
    last_tick_at: Instant,
    /// When RPCs that were due were last looked at.
    looked_at: Instant,
    /// RPCs due at this tick are left for the next call.
    due_left: bool,
    /// Messages that may have their pages now are left for the next call.
    waiters_left: bool,
    reaper: Reaper,
    /// RPCs whose wait for a link is over, and whose turn it is later.
    unparked: VecDeque<Unparked>,
    events: VecDeque<Event>,
    /// Peers whose link the network layer should find.
    unresolved: VecDeque<Ip>,
    /// For the next messages that come in packet by packet: their memory is used again.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare_messages: Vec<Box<MsgIn>>,
    next_generation: u64,
    /// Tells our DATA from that of an earlier life of this host.
    life: u16,
    stats: Stats,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    Taken,
    /// It changed nothing; a counter says why.
    Dropped,
    /// Nobody has the port it is for, and its sender should be told.
    PortUnreachable,
}

counters! {
    /// What the transport counted.
    pub struct Stats {
        /// Packets that came in.
        packets_in,
        /// Packets handed to the device.
        packets_out,
        /// DATA packets handed to the device.
        data_out,
        /// GRANT packets handed to the device.
        grants_out,
        /// RESEND packets handed to the device.
        resends_out,
        /// RESENDs for holes, before their sender counted as silent.
        repairs,
        /// BUSY packets handed to the device.
        busys_out,
        /// RPC_UNKNOWN packets handed to the device.
        unknowns_out,
        /// CUTOFFS packets handed to the device.
        cutoffs_out,
        /// NEED_ACK packets handed to the device.
        need_acks_out,
        /// ACK packets handed to the device.
        acks_out,
        /// FREEZE packets handed to the device.
        freezes_out,
        /// DATA packets among those that were retransmissions.
        retransmits_out,
        /// Requests sent.
        requests,
        /// Responses that arrived whole.
        responses,
        /// Requests that arrived whole.
        requests_in,
        /// Responses sent.
        responses_out,
        /// Client RPCs that ended with an error.
        failures,
        /// Client RPCs given up because the peer was silent.
        timeouts,
        /// Packets that are no Homa packets.
        malformed,
        /// DATA packets with an impossible length or place.
        bad_data,
        /// DATA packets of messages longer than all receive pages together.
        too_long,
        /// Packets for RPCs that do not exist.
        unknown_rpc,
        /// Packets for ports that are not open.
        unknown_port,
        /// Packets that make no sense in the RPC's state.
        out_of_place,
        /// Requests dropped as late copies of finished ones.
        late_requests,
        /// Finished RPCs forgotten early because the memory of them was full.
        finished_overflow,
        /// DATA packets, sent for the first time, that held nothing new.
        duplicates,
        /// DATA packets that another life of their sender sent than the rest of the message.
        other_life,
        /// Retransmitted DATA packets that held nothing new.
        retransmits_late,
        /// Retransmitted DATA packets that held something new.
        retransmits_used,
        /// DATA packets dropped because the message had too many holes.
        holes_overflow,
        /// Requests dropped because all RPC slots were taken.
        rpcs_full,
        /// Packets dropped because all peer slots were taken.
        peers_full,
        /// Control packets dropped because their queue was full.
        control_full,
        /// Control packets dropped because the peer's link was not known.
        control_no_link,
        /// Messages that waited for receive pages.
        page_waits,
        /// RESENDs not answered because their message has waited for receive pages for too long.
        page_waits_over,
        /// Bytes dropped while their message waited for receive pages.
        page_wait_bytes,
        /// RPC_UNKNOWN packets ignored because part of the response was here.
        late_unknowns,
        /// Peers found to have restarted.
        restarts,
        /// FREEZE packets that came in.
        freezes,
        /// Responses forgotten because nobody acknowledged them.
        unacked,
    }
}

impl Endpoint {
    /// `region` is the receive memory, of which whole bpages of 64 KiB are used.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a param is out of its range or the region holds no bpage.
    pub fn new(params: Params, region: Region, now: Instant) -> Result<Self, Error> {
        params.validate()?;
        let mut rng = Rng::new(params.seed);
        let pool = Pool::new(region.len(), params.rpcs_max as usize * 2);
        if pool.pages() == 0 {
            return Err(Error::Invalid);
        }
        let keyed = Keyed::new(rng.next_u64());
        // The finished memory goes by the peer's incarnation, which must not start over before.
        let peer_idle = params.peer_idle.max(params.finished_for);
        Ok(Self {
            pool,
            region,
            rpcs: Arena::new(params.rpcs_max as usize),
            servers: Table::new(keyed),
            server_count: 0,
            unacked: VecDeque::new(),
            peers: Peers::new(params.peers_max, peer_idle, keyed),
            sockets: Sockets::new(params.sockets_max, &mut rng),
            outgoing: Outgoing::new(params.pacer_fifo_thousandths),
            pacer: Pacer::new(params.link_mbps, params.nic_backlog_max),
            traffic: params.cutoffs_follow_traffic.then(|| {
                let (priorities, max_sched) = (params.num_priorities, params.max_sched_priority);
                Box::new(Traffic::new(params.unsched_bytes, priorities, max_sched))
            }),
            grants: Grants::new(&params),
            control: ControlQueue::new(params.control_max),
            was_control: false,
            finished: Finished::new(params.finished_max, params.finished_for),
            wheel: Wheel::new(),
            askers: Askers::default(),
            repairs: Repairs::new(params.rpcs_max),
            last_tick_at: now,
            looked_at: now,
            due_left: false,
            waiters_left: false,
            reaper: Reaper::default(),
            unparked: VecDeque::new(),
            events: VecDeque::new(),
            unresolved: VecDeque::new(),
            spare_messages: Vec::new(),
            next_generation: rng.next_u64(),
            life: (rng.next_u64() as u16).max(1),
            stats: Stats::default(),
            params,
        })
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Receive memory, from which messages are read.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// RPCs that are here, both roles: those alive, and those whose turn to give back what they
    /// hold has not come, see [`Self::close`].
    pub fn rpc_count(&self) -> usize {
        self.rpcs.len()
    }

    /// Finished RPCs remembered; looks at all of their table.
    pub fn finished_count(&self, now: Instant) -> usize {
        self.finished.count(now)
    }

    /// Pages of the receive memory that no message uses.
    pub fn free_pages(&self) -> u32 {
        self.pool.free_pages()
    }

    /// Nothing waits to be sent, and nobody's answer is awaited.
    pub fn is_quiet(&self) -> bool {
        let is_done = self.reaper.is_done() && self.unparked.is_empty();
        is_done && self.outgoing.is_empty() && self.control.is_empty() && self.wheel.is_empty()
    }

    /// How messages to `ip` are cut.
    #[inline(always)]
    fn cut_for(&self, ip: Ip) -> Cut {
        /// An IPv6 header is so much longer than an IPv4 one.
        const V6_EXTRA: u32 = 20;
        let payload_max = u32::from(self.params.packet_max) - DATA_LEN as u32;
        Cut {
            payload_max: payload_max - if ip.is_v4() { 0 } else { V6_EXTRA },
            unsched: self.params.unsched_bytes,
        }
    }

    /// The client RPC that `id` names.
    #[inline(always)]
    fn find_client(&self, id: RpcId) -> Option<RpcKey> {
        let slot = (id.0 >> 1) as u32 & ((1 << SLOT_BITS) - 1);
        let (key, rpc) = self.rpcs.at(slot)?;
        (rpc.id == id && !self.is_over(rpc)).then_some(key)
    }

    /// The server RPC that a client's socket knows as `id`'s other side.
    #[inline(always)]
    fn find_server(&self, id: RpcId, peer: Key<Peer>, peer_port: u16) -> Option<RpcKey> {
        let hash = self.server_hash(id, self.peers.get(peer));
        self.find_hashed(hash, |rpc| {
            rpc.id == id && rpc.peer == peer && rpc.peer_port == peer_port
        })
    }

    /// The server RPC filed under `hash` that `is_it` accepts.
    #[inline(always)]
    fn find_hashed(&self, hash: u64, is_it: impl Fn(&Rpc) -> bool) -> Option<RpcKey> {
        let rpcs = &self.rpcs;
        self.servers.find(hash, |slot| {
            let (key, rpc) = rpcs.at(slot)?;
            (is_it(rpc) && !self.is_over(rpc)).then_some(key)
        })
    }

    /// Acks do not tell the client's port, so it does not count here.
    #[inline(always)]
    fn server_hash(&self, id: RpcId, peer: &Peer) -> u64 {
        self.servers.hash(peer.place, id.0)
    }

    fn queue_control(&mut self, rpc: RpcKey, body: Body) {
        let Some(rpc) = self.rpcs.get(rpc) else {
            return;
        };
        let control = Control {
            peer: rpc.peer,
            common: rpc.common(),
            body,
        };
        self.queue(control);
    }

    fn queue(&mut self, control: Control) {
        if !self.control.push(control) {
            self.stats.control_full += 1;
        }
    }

    /// Files a message that was just given to us. `goes_at_once`: it is one packet long, and its
    /// peer's link is up.
    #[inline(always)]
    fn file_new(&mut self, key: RpcKey, goes_at_once: bool) {
        match goes_at_once {
            true => self.outgoing.file_short(key),
            false => self.file_out(key),
        }
    }

    /// Sees to it that the bytes an RPC may send get sent: at once, or when its peer's link is up.
    #[inline(never)]
    fn file_out(&mut self, key: RpcKey) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        let peer = rpc.peer;
        let Some(out) = rpc.msg_out_mut() else { return };
        if out.is_parked {
            return; // Its turn will come.
        }
        if !self.peers.get(peer).link.is_up() {
            out.is_parked = true;
            return self.park(peer, key);
        }
        if out.is_sendable() {
            if out.is_one_packet() {
                self.outgoing.file_short(key);
            } else {
                self.outgoing.file(key, out.len - out.sent, out.birth);
            }
        }
        if out.owes() && !out.retransmit_filed {
            out.retransmit_filed = true;
            self.outgoing.file_retransmit(key);
        }
    }

    #[inline(always)]
    fn file_timer(&mut self, now: Instant, key: RpcKey, ticks: u32) {
        if self.wheel.is_empty() {
            // Idle time is no silence: the next tick is a whole one away.
            self.last_tick_at = now;
        }
        self.wheel.file_in(key.index(), ticks);
    }

    /// Ends an RPC whose message out, if there still is one, is not wanted any more.
    fn end(&mut self, now: Instant, key: RpcKey) {
        self.end_with(now, key, Error::Canceled);
    }

    /// Ends an RPC: it is in no list any more, and what it held is given back. Whoever waits for
    /// the bytes of its message out is told `error`.
    fn end_with(&mut self, now: Instant, key: RpcKey, error: Error) {
        let Some(rpc) = self.rpcs.leave(key) else {
            return;
        };
        let peer = self.peers.get_mut(rpc.peer);
        peer.on_rpc_over(now);
        if !rpc.id.is_client() {
            self.server_count -= 1;
            self.servers.remove(key.index());
            if rpc.state == State::InService
                && let Some(socket) = self.sockets.get_mut(rpc.socket)
            {
                socket.in_service -= 1;
            }
            if rpc.was_handed_over() && !mutant::is_on(Mutant::FinishedForgotten) {
                let (port, life) = (rpc.peer_port, rpc.incarnation);
                let name = finished_name(rpc.id, rpc.hash, port, life, peer.place);
                self.stats.finished_overflow += u64::from(self.finished.insert(now, name));
            }
        }
        if rpc.has_out() && !rpc.out.is_one_packet() {
            self.outgoing.unfile(key);
        }
        let socket = rpc.socket;
        let request = (rpc.state == State::Requested).then_some(rpc.run);
        let (message, (sent, notify)) = (rpc.message.take(), rpc.out.end());
        if let Some(message) = message {
            // First it waits for pages no more: those of the request may come free.
            self.drop_in(now, (key, socket), &message);
            self.spare(message);
        }
        if let Some(run) = request {
            self.release_of(now, socket, run);
        }
        self.tell_released(notify, Err(error));
        self.release_sent(now, sent);
    }

    /// Lets go of the run that a message out was sent from, if it was.
    #[inline]
    fn release_sent(&mut self, now: Instant, run: Option<RunKey>) {
        if let Some(run) = run {
            if mutant::is_on(Mutant::PageGivenBackTwice) {
                self.release(now, run);
            }
            self.release(now, run);
        }
    }

    #[inline]
    fn tell_released(&mut self, notify: Notify, result: Result<(), Error>) {
        match notify {
            Notify::Never => {}
            Notify::Transmitted(tag) | Notify::Delivered(tag) => {
                self.events.push_back(Event::Released { tag, result });
            }
        }
    }

    /// Keeps the memory of a message that is over for one to come.
    #[cold]
    fn spare(&mut self, message: Box<MsgIn>) {
        /// More are seldom on their way at once, and each is 3 kB at most, with all its holes.
        const SPARES_MAX: usize = 64;
        if self.spare_messages.len() < SPARES_MAX {
            self.spare_messages.push(message);
        }
    }

    /// Gives back what an incoming message held.
    fn drop_in(&mut self, now: Instant, (key, socket): (RpcKey, SocketKey), message: &MsgIn) {
        if let Some(grantee) = message.grantee {
            self.grants.on_gone(grantee);
        }
        match message.place {
            Place::Run(run) | Place::First(run) => self.release_of(now, socket, run),
            Place::Waiting if mutant::is_on(Mutant::WaiterLeftBehind) => {}
            Place::Waiting => match self.sockets.lent_mut(socket) {
                None => self.pool.stop_waiting(waiter(key, message)),
                Some(lent) => lent.stop_waiting(waiter(key, message)),
            },
        }
    }
}

/// What a server RPC of one life of its client is remembered by when it is over.
///
/// `hash` as in [`Endpoint::server_hash`], `place` as in [`Peer::place`](crate::homa::peer::Peer).
#[inline]
fn finished_name(id: RpcId, hash: u64, port: u16, incarnation: u16, place: u64) -> Name {
    // No other life uses ids that were drawn, and a late packet of an earlier one must find them.
    let incarnation = if is_drawn(id) { 0 } else { incarnation };
    let life = u64::from(port) << 32 | u64::from(incarnation);
    Name {
        hash: hash ^ life.wrapping_mul(MIX),
        place: place.wrapping_add(id_count(id)),
    }
}

/// Whether an id's count began at a number drawn by chance, as ours does, and not at 2, as that of
/// the Linux module.
#[inline]
fn is_drawn(id: RpcId) -> bool {
    id.0 >> (2 * SLOT_BITS) != 0
}

/// What goes up by one from each RPC of a client to the next: the Linux module counts ids up by
/// two, ours have their count above the slot.
#[inline]
fn id_count(id: RpcId) -> u64 {
    match is_drawn(id) {
        true => id.0 >> (SLOT_BITS + 1),
        false => id.0 >> 1,
    }
}

fn waiter(rpc: RpcKey, message: &MsgIn) -> Waiter {
    Waiter {
        len: message.len,
        birth: message.birth,
        rpc,
        share: message.share,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_adverse;
