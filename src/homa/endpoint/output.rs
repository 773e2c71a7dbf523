//! The network's side, outward: the next packet.

use crate::addr::{LinkId, Sent};
use crate::homa::control::{Body, Control};
use crate::homa::event::{Notify, Payload, RpcKey};
use crate::homa::grant::Decision;
use crate::homa::msg_out::MsgOut;
use crate::homa::outgoing::Turn;
use crate::homa::peer::{Link, Peer};
use crate::homa::pool::Pool;
use crate::mem::Region;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::{
    self as wire, ACKS_MAX, Ack, Acks, Common, Cutoffs, DATA_LEN, Data, Grant, Packet, Placement,
};

use super::Endpoint;

/// Messages passed over in one call, at most, as their RPCs have ended since they were filed.
const SKIPS_PER_CALL: usize = 256;

/// One packet of a message.
struct Piece {
    range: std::ops::Range<u32>,
    incoming: u32,
    ack: Option<Ack>,
    retransmit: bool,
}

/// Writes a DATA packet, header and payload, and tells its length.
#[inline(always)]
fn write_data(
    common: &Common,
    (cutoff_version, life): (u16, u16),
    out: &MsgOut,
    piece: Piece,
    pool: &Pool,
    region: &Region,
    room: &mut [u8],
) -> Option<u16> {
    let header = Data {
        message_length: out.len,
        incoming: piece.incoming,
        ack: piece.ack,
        cutoff_version,
        retransmit: piece.retransmit,
        empty_reply: matches!(out.payload, Payload::EmptyReply),
        life,
        offset: piece.range.start,
        placement: match piece.retransmit {
            true => Placement::Explicit,
            false => Placement::InSequence,
        },
    };
    header.emit(common, room);
    let (start, end) = (piece.range.start as usize, piece.range.end as usize);
    let payload = &mut room[DATA_LEN..DATA_LEN + end - start];
    match &out.payload {
        Payload::Buffer(buf) => payload.copy_from_slice(&buf[start..end]),
        Payload::Received {
            run, start: skip, ..
        } => {
            let (base, _) = pool.place(*run)?;
            region.read((base + skip) as usize + start, payload);
        }
        Payload::EmptyReply => payload.fill(0),
        Payload::Gone => return None,
    }
    Some((DATA_LEN + end - start) as u16)
}

impl Endpoint {
    /// Whether [`Self::poll_transmit`] may have a packet.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.control.is_empty() || self.grants.has_changed() || !self.outgoing.is_empty()
    }

    /// Writes the next packet, Homa header and payload, to the start of `room`, which must hold
    /// `Params::packet_max` bytes.
    ///
    /// Control packets go first, but never two in a row while there is something else; then
    /// grants, then data in the order of `outgoing`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<Sent> {
        let sent = self.poll_packet(now, room)?;
        self.stats.packets_out += 1;
        Some(sent)
    }

    /// The message of one packet that is the only thing to send, if there is one. It is filed no
    /// more, and [`Self::transmit_lone`] is to follow at once.
    #[inline(always)]
    pub fn poll_lone(&mut self) -> Option<RpcKey> {
        if !self.control.is_empty() || self.grants.has_changed() {
            return None;
        }
        self.outgoing.poll_lone()
    }

    /// As [`Self::poll_transmit`], of what [`Self::poll_lone`] told.
    #[inline(always)]
    pub fn transmit_lone(&mut self, now: Instant, rpc: RpcKey, room: &mut [u8]) -> Option<Sent> {
        self.was_control = false;
        let sent = self.emit_short(now, rpc, room)?;
        self.stats.packets_out += 1;
        Some(sent)
    }

    /// A DATA packet that goes to the NIC takes time there.
    #[cold]
    fn note_backlog(&mut self, now: Instant, len: u16, link: LinkId) {
        /// Bytes that a Homa packet takes of an Ethernet link besides its own: IPv4 20, header 14,
        /// check 4, preamble 8, gap 12.
        const WIRE_EXTRA: u32 = 58;
        if link.as_loopback().is_none() {
            self.pacer.on_transmit(now, u32::from(len) + WIRE_EXTRA);
        }
    }

    #[inline(always)]
    fn poll_packet(&mut self, now: Instant, room: &mut [u8]) -> Option<Sent> {
        if self.control.is_empty() {
            self.was_control = false;
            return self.poll_message(now, room);
        }
        self.poll_control(now, room)
    }

    /// The next packet while control packets wait. Strangers can make us answer without end, so
    /// messages get every other packet.
    #[cold]
    fn poll_control(&mut self, now: Instant, room: &mut [u8]) -> Option<Sent> {
        if std::mem::take(&mut self.was_control)
            && let sent @ Some(_) = self.poll_message(now, room)
        {
            return sent;
        }
        while let Some(control) = self.control.pop() {
            if let Some(sent) = self.emit_control(&control, room) {
                self.was_control = true;
                return Some(sent);
            }
        }
        self.poll_message(now, room)
    }

    /// The next grant, or else the next packet of a message of ours.
    #[inline(always)]
    fn poll_message(&mut self, now: Instant, room: &mut [u8]) -> Option<Sent> {
        while self.grants.has_changed()
            && let Some(decision) = self.grants.poll(now)
        {
            if let Some(sent) = self.emit_grant(now, decision, room) {
                return Some(sent);
            }
        }
        for _ in 0..SKIPS_PER_CALL {
            let sent = match self.outgoing.poll(|| self.pacer.is_ready(now))? {
                Turn::Retransmit(key) => self.emit_retransmit(now, key, room),
                Turn::Short(key) => self.emit_short(now, key, room),
                Turn::Long(key) => self.emit_long(now, key, room),
            };
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    /// Sends a message of one packet.
    #[inline(always)]
    fn emit_short(&mut self, now: Instant, key: RpcKey, room: &mut [u8]) -> Option<Sent> {
        let tick = self.wheel.tick();
        if self.has_ended(key) {
            return None;
        }
        let rpc = self.rpcs.get_mut(key)?;
        let peer = self.peers.get_mut(rpc.peer);
        let Link::Up(link) = peer.link else {
            return self.cannot_send(key);
        };
        if !rpc.has_out() || rpc.out.sent != 0 {
            return None; // It is over, or went out already.
        }
        let len = rpc.out.len;
        let piece = Piece {
            range: 0..len,
            incoming: len,
            ack: peer.take_ack(),
            retransmit: false,
        };
        let priority = peer.unsched_priority(len, self.params.num_priorities - 1);
        let (common, version) = (rpc.common(), (peer.cutoffs.version(), self.life));
        let out = &mut rpc.out;
        let len = write_data(&common, version, out, piece, &self.pool, &self.region, room)?;
        out.sent = out.len;
        self.on_sent(now, key, tick);
        if self.pacer.is_on() {
            self.note_backlog(now, len, link);
        }
        self.stats.data_out += 1;
        Sent::new(len, link, priority)
    }

    /// Sends the next packet of a longer message, and moves the message on.
    fn emit_long(&mut self, now: Instant, key: RpcKey, room: &mut [u8]) -> Option<Sent> {
        let tick = self.wheel.tick();
        let has_ended = self.has_ended(key);
        let Some(rpc) = self.rpcs.get_mut(key).filter(|_| !has_ended) else {
            self.outgoing.unfile(key);
            return None;
        };
        let (common, peer) = (rpc.common(), rpc.peer);
        let peer = self.peers.get_mut(peer);
        let packet = rpc
            .msg_out_mut()
            .and_then(|out| Some((out.next_packet()?, out)));
        let (Some((range, out)), Link::Up(link)) = (packet, peer.link) else {
            return self.cannot_send(key);
        };
        let (start, end, unsched) = (range.start, range.end, out.unsched());
        let priority = match range.start < unsched {
            true => peer.unsched_priority(out.len, self.params.num_priorities - 1),
            false => out.sched_priority,
        };
        let piece = Piece {
            range,
            incoming: unsched,
            ack: peer.take_ack(),
            retransmit: false,
        };
        let version = (peer.cutoffs.version(), self.life);
        let len = write_data(&common, version, out, piece, &self.pool, &self.region, room)?;
        out.sent = end;
        let (is_sendable, left, birth) = (out.is_sendable(), out.len - end, out.birth);
        self.outgoing.on_long(key, end - start);
        match is_sendable {
            true => self.outgoing.file(key, left, birth),
            false => self.outgoing.unfile(key),
        }
        if left == 0 {
            self.on_sent(now, key, tick);
        } else {
            rpc.heard_tick = tick;
        }
        if self.pacer.is_on() {
            self.note_backlog(now, len, link);
        }
        self.stats.data_out += 1;
        Sent::new(len, link, priority)
    }

    /// The last byte of a message went out.
    #[inline(always)]
    fn on_sent(&mut self, now: Instant, key: RpcKey, tick: u32) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        // The response's timer was filed in the tick in which it was given. Of a longer one, the
        // client may have been heard since, by a GRANT.
        let is_late = rpc.heard_tick != tick || !rpc.out.is_one_packet();
        rpc.heard_tick = tick;
        let (is_client, is_awaited) = (rpc.id.is_client(), rpc.out.notify != Notify::Never);
        if !is_client {
            rpc.sent_tick = tick;
            rpc.asked_tick = tick;
            if is_late {
                self.file_timer(now, key, self.params.request_ack_ticks);
            }
        }
        if is_awaited {
            self.tell_sent(key, is_client);
        }
    }

    /// Who waits for the bytes of a message is told that they went out, or soon will be that they
    /// arrived.
    #[cold]
    fn tell_sent(&mut self, key: RpcKey, is_client: bool) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        match rpc.out.notify {
            Notify::Never => {}
            notify @ Notify::Transmitted(_) => {
                rpc.out.notify = Notify::Never;
                self.tell_released(notify, Ok(()));
            }
            // The application waits for these bytes: ask for the ack at once.
            Notify::Delivered(_) if !is_client => self.queue_control(key, Body::NeedAck),
            Notify::Delivered(_) => {}
        }
    }

    /// A message that was filed has nothing to send, or its link was lost: then it is filed again
    /// once there is a new one.
    #[cold]
    fn cannot_send(&mut self, key: RpcKey) -> Option<Sent> {
        self.outgoing.unfile(key);
        self.file_out(key);
        None
    }

    #[inline(never)]
    fn emit_retransmit(&mut self, now: Instant, key: RpcKey, room: &mut [u8]) -> Option<Sent> {
        if self.has_ended(key) {
            return None;
        }
        let rpc = self.rpcs.get_mut(key)?;
        let (common, peer) = (rpc.common(), self.peers.get(rpc.peer));
        let out = rpc.msg_out_mut()?;
        out.retransmit_filed = false;
        let Link::Up(link) = peer.link else {
            return self.cannot_send(key);
        };
        let (range, priority, incoming) = out.next_owed()?;
        if out.owes() {
            out.retransmit_filed = true;
            self.outgoing.file_retransmit(key);
        }
        let piece = Piece {
            range,
            incoming,
            ack: None,
            retransmit: true,
        };
        let version = (peer.cutoffs.version(), self.life);
        let len = write_data(&common, version, out, piece, &self.pool, &self.region, room)?;
        self.stats.data_out += 1;
        self.stats.retransmits_out += 1;
        if self.pacer.is_on() {
            self.note_backlog(now, len, link);
        }
        Sent::new(len, link, priority)
    }

    #[inline(never)]
    fn emit_grant(&mut self, now: Instant, decision: Decision, room: &mut [u8]) -> Option<Sent> {
        let tick = self.wheel.tick();
        if self.has_ended(decision.rpc) {
            self.end(now, decision.rpc); // Others may have what it was granted.
            return None;
        }
        let rpc = self.rpcs.get_mut(decision.rpc)?;
        let (common, peer) = (rpc.common(), rpc.peer);
        rpc.heard_tick = tick;
        let message = rpc.message.as_mut()?;
        // The sender may have announced more than we counted.
        message.granted = message.granted.max(decision.offset);
        let Link::Up(link) = self.peers.get(peer).link else {
            self.park_grant(decision.rpc, decision.priority);
            return None;
        };
        let len = Grant {
            offset: decision.offset,
            priority: decision.priority,
        }
        .emit(&common, room);
        self.stats.grants_out += 1;
        Sent::new(len as u16, link, self.params.num_priorities - 1)
    }

    #[inline(never)]
    fn emit_control(&mut self, control: &Control, room: &mut [u8]) -> Option<Sent> {
        let link = self.link_for_control(control.peer)?;
        let stats = &mut self.stats;
        let packet = match control.body {
            Body::Grant(grant) => {
                stats.grants_out += 1;
                Packet::Grant(grant)
            }
            Body::Resend(resend) => {
                stats.resends_out += 1;
                Packet::Resend(resend)
            }
            Body::Unknown => {
                stats.unknowns_out += 1;
                Packet::Unknown
            }
            Body::Busy => {
                stats.busys_out += 1;
                Packet::Busy
            }
            Body::NeedAck => {
                stats.need_acks_out += 1;
                Packet::NeedAck
            }
            Body::Freeze => {
                stats.freezes_out += 1;
                Packet::Freeze
            }
            Body::Cutoffs => {
                stats.cutoffs_out += 1;
                Packet::Cutoffs(Cutoffs {
                    unsched_cutoffs: self.params.unsched_cutoffs,
                    version: self.params.cutoff_version,
                })
            }
            Body::Ack => {
                stats.acks_out += 1;
                let peer = self.peers.get_mut(control.peer);
                let mut acks = Acks::default();
                acks.0
                    .extend(std::iter::from_fn(|| peer.take_ack()).take(ACKS_MAX));
                self.peers.take_lists(control.peer);
                Packet::Ack(acks)
            }
        };
        let len = wire::emit(&control.common, &packet, room);
        Sent::new(len as u16, link, self.params.num_priorities - 1)
    }

    /// The link for a packet that may get lost: if it is not known, it is asked for, and the
    /// packet is dropped. Its peer may have been forgotten meanwhile.
    fn link_for_control(&mut self, key: Key<Peer>) -> Option<LinkId> {
        let peer = self.peers.try_get_mut(key)?;
        match peer.link {
            Link::Up(link) => return Some(link),
            Link::Asked => {}
            Link::Unknown => {
                peer.link = Link::Asked;
                self.unresolved.push_back(peer.ip);
            }
        }
        self.stats.control_no_link += 1;
        None
    }
}

impl MsgOut {
    /// A RESEND past the grant raises it. Rule IN-50. True if that made bytes sendable.
    pub(super) fn grant_by_resend(&mut self, end: u32, priority: u8) -> bool {
        end > self.granted && self.grant(end, priority)
    }
}
