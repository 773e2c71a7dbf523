//! Frames in, packets out, and back.

use std::ops::Range;

use smoltcp::wire::{EthernetFrame, EthernetProtocol, Ipv4Packet};

use super::arp::{self, Arp};
use super::icmp::{self, Limiter, Message, Quote};
use super::neighbor::{Neighbors, Request, Word};
use super::outbox::Outbox;
use super::route::{Routes, is_host};
use super::template::{ETHERNET_LEN, HEADERS_LEN, IPV4_LEN, Template};
use super::{Event, Ingress, Params, Stats};
use crate::addr::{Ip, LinkId, Meta, Sent};
use crate::device::{Checksums, NET_ROOM, TxMeta};
use crate::error::Error;
use crate::time::Instant;

/// Where in a transmit slot our frames begin.
const FRAME_AT: usize = NET_ROOM - HEADERS_LEN;

/// The network layer of one NIC queue.
#[derive(Debug)]
pub struct Stack {
    mac: [u8; 6],
    mtu: u16,
    ip_protocol: u8,
    routes: Routes,
    neighbors: Neighbors,
    outbox: Outbox,
    icmp_limiter: Limiter,
    stats: Stats,
    /// The latest time we were told, for [`Self::seal`], which is not.
    now: Instant,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Truncated,
    NotOurs,
    BadSource,
    OtherEthertype,
    OtherProtocol,
    BadHeader,
    BadChecksum,
    Fragment,
    Options,
    BadArp,
    AddressConflict,
    IcmpIgnored,
    QueueFull,
}

impl Stack {
    /// Fails with [`Error::Invalid`] where [`Params::validate`] would tell what is wrong.
    pub fn new(params: Params) -> Result<Self, Error> {
        params.validate().map_err(|_| Error::Invalid)?;
        let mut outbox = Outbox::new(ETHERNET_LEN + usize::from(params.mtu));
        if params.announce {
            for ip in params.addresses.iter().filter_map(|own| own.ip.as_v4()) {
                outbox.push_arp(Arp::request(params.mac, ip, ip));
            }
        }
        Ok(Self {
            mac: params.mac,
            mtu: params.mtu,
            ip_protocol: params.ip_protocol,
            neighbors: Neighbors::new(&params),
            routes: Routes::new(params.addresses, params.gateway),
            outbox,
            icmp_limiter: Limiter::new(),
            stats: Stats::default(),
            now: Instant(0),
        })
    }

    /// Takes a received frame. What concerns the layers above comes back; ARP and pings are dealt
    /// with here; all else is counted and dropped.
    #[inline]
    pub fn ingress<'f>(
        &mut self,
        now: Instant,
        frame: &'f [u8],
        checksums: Checksums,
    ) -> Option<Ingress<'f>> {
        self.now = now;
        match self.receive(now, frame, checksums) {
            Ok(ingress) => ingress,
            Err(odd) => {
                self.count(odd);
                None
            }
        }
    }

    /// The way to a peer. `None` if its link address is not known yet: an event will tell.
    ///
    /// A link stays the peer's until [`Event::Gone`] says otherwise; one that is void sends
    /// nothing, see [`Self::seal`].
    pub fn link(&mut self, now: Instant, peer: Ip) -> Result<Option<LinkId>, Error> {
        self.now = now;
        let hop = self.routes.hop(peer)?;
        self.neighbors.link(now, peer, hop)
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.neighbors.poll_event()
    }

    /// Writes the next frame of our own, ARP or ICMP, into `slot`, and tells where it lies.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        slot: &mut [u8],
    ) -> Option<(Range<usize>, TxMeta)> {
        self.now = now;
        let len = if let Some(arp) = self.next_arp() {
            arp.emit(&mut slot[FRAME_AT..]);
            arp::FRAME_LEN
        } else {
            let frame = self.outbox.pop_icmp()?;
            slot[FRAME_AT..FRAME_AT + frame.len()].copy_from_slice(frame);
            frame.len()
        };
        self.stats.sent += 1;
        Some((FRAME_AT..FRAME_AT + len, Template::tx_meta(0)))
    }

    /// Puts the headers before the packet that lies at `slot[NET_ROOM..]`, and tells where the
    /// frame lies. `None` if the link is void: then the packet is lost, as any may be.
    #[inline]
    pub fn seal(&mut self, slot: &mut [u8], sent: &Sent) -> Option<(Range<usize>, TxMeta)> {
        let Some(template) = self.neighbors.use_link(self.now, sent.link) else {
            self.stats.stale_links += 1;
            return None;
        };
        let headers = slot[FRAME_AT..].first_chunk_mut();
        let headers = headers.expect("a slot has NET_ROOM and more");
        template.write(headers, sent.len, sent.priority);
        let frame = FRAME_AT..NET_ROOM + usize::from(sent.len);
        Some((frame, Template::tx_meta(sent.priority)))
    }

    /// Tells a packet's sender that nobody listens on its destination port.
    pub fn port_unreachable(&mut self, now: Instant, meta: &Meta, packet: &[u8]) {
        self.now = now;
        if !self.icmp_limiter.allows(now) {
            self.stats.rate_limited += 1;
            return;
        }
        // If the sender must be asked for first, its next try will get the answer.
        let hop = self.routes.hop(meta.from);
        let Some(headers) = hop
            .ok()
            .and_then(|hop| self.neighbors.template(now, meta.from, hop))
        else {
            return;
        };
        let (Some(from), Some(to)) = (meta.from.as_v4(), meta.to.as_v4()) else {
            return;
        };
        let reply = Template::new((self.mac, headers.mac()), (to, from), icmp::PROTOCOL);
        let quoted = Template::new((headers.mac(), self.mac), (from, to), self.ip_protocol);
        match self.outbox.push_icmp() {
            Some(out) => icmp::write_port_unreachable(&reply, &quoted, packet, out),
            None => self.count(Odd::QueueFull),
        }
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.neighbors.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.neighbors.handle_timeout(now);
    }

    /// Bytes of the largest Homa packet to this peer.
    pub fn payload_max(&self, peer: Ip) -> u16 {
        const IPV6_LEN: u16 = 40;
        self.mtu
            - if peer.is_v4() {
                IPV4_LEN as u16
            } else {
                IPV6_LEN
            }
    }

    /// Our address of that number, as [`LinkId::as_loopback`] tells it; the first is number 0.
    pub fn own(&self, number: u8) -> Option<Ip> {
        self.routes.own(number)
    }

    /// Whether this is an address of ours.
    pub fn is_own(&self, ip: Ip) -> bool {
        self.routes.is_own(ip)
    }

    pub fn stats(&self) -> Stats {
        Stats {
            neighbors: self.neighbors.stats,
            ..self.stats
        }
    }
}

/// The way in.
impl Stack {
    #[inline]
    fn receive<'f>(
        &mut self,
        now: Instant,
        bytes: &'f [u8],
        checksums: Checksums,
    ) -> Result<Option<Ingress<'f>>, Odd> {
        let frame = EthernetFrame::new_checked(bytes).map_err(|_| Odd::Truncated)?;
        let (from, to) = (frame.src_addr().0, frame.dst_addr().0);
        let is_for_us = to == self.mac;
        if !is_for_us && to != arp::BROADCAST {
            return Err(Odd::NotOurs);
        }
        if from == self.mac || !arp::is_station(from) {
            return Err(Odd::BadSource);
        }
        match frame.ethertype() {
            EthernetProtocol::Ipv4 if is_for_us => {
                self.receive_ipv4(now, from, frame.payload(), checksums)
            }
            EthernetProtocol::Ipv4 => Err(Odd::NotOurs),
            EthernetProtocol::Arp => self.receive_arp(now, frame.payload()).map(|()| None),
            EthernetProtocol::Ipv6 | EthernetProtocol::Unknown(_) => Err(Odd::OtherEthertype),
        }
    }

    #[inline]
    fn receive_ipv4<'f>(
        &mut self,
        now: Instant,
        mac: [u8; 6],
        bytes: &'f [u8],
        checksums: Checksums,
    ) -> Result<Option<Ingress<'f>>, Odd> {
        let packet = check_ipv4(bytes, checksums)?;
        let (from, to) = (Ip::from(packet.src_addr()), Ip::from(packet.dst_addr()));
        if !self.routes.is_own(to) {
            return Err(Odd::NotOurs);
        }
        if !self.neighbors.is_as_known(now, from, mac) {
            if !is_host(from) || self.routes.is_own(from) {
                return Err(Odd::BadSource);
            }
            let source = self.routes.source_for(from);
            let word = Word::Speech;
            self.neighbors.handle_word(now, (from, mac), source, word);
        }
        let payload = packet.payload();
        let protocol = u8::from(packet.next_header());
        if protocol == self.ip_protocol {
            self.stats.homa_received += 1;
            let meta = Meta { from, to };
            let packet = payload;
            return Ok(Some(Ingress::Homa { meta, packet }));
        }
        if protocol == icmp::PROTOCOL {
            return self.receive_icmp(Meta { from, to }, mac, payload);
        }
        Err(Odd::OtherProtocol)
    }

    fn receive_icmp(
        &mut self,
        meta: Meta,
        mac: [u8; 6],
        bytes: &[u8],
    ) -> Result<Option<Ingress<'static>>, Odd> {
        if !icmp::checksum_is_valid(bytes) {
            return Err(Odd::BadChecksum);
        }
        match icmp::parse(bytes).ok_or(Odd::IcmpIgnored)? {
            Message::Ping => self.answer_ping(meta, mac, bytes).map(|()| None),
            Message::Unreachable(quote) => self.understand(meta.from, &quote).map(Some),
        }
    }

    fn answer_ping(&mut self, meta: Meta, mac: [u8; 6], ping: &[u8]) -> Result<(), Odd> {
        let (Some(from), Some(to)) = (meta.from.as_v4(), meta.to.as_v4()) else {
            return Err(Odd::IcmpIgnored);
        };
        if IPV4_LEN + ping.len() > usize::from(self.mtu) {
            return Err(Odd::IcmpIgnored); // Merged on its way here; no frame of ours holds it.
        }
        let headers = Template::new((self.mac, mac), (to, from), icmp::PROTOCOL);
        let out = self.outbox.push_icmp().ok_or(Odd::QueueFull)?;
        icmp::write_pong(&headers, ping, out);
        self.stats.pings_answered += 1;
        Ok(())
    }

    /// A packet of ours could not be delivered; or somebody says so.
    fn understand(&mut self, from: Ip, quote: &Quote) -> Result<Ingress<'static>, Odd> {
        if !self.routes.is_own(quote.from.ip) || quote.protocol != self.ip_protocol {
            return Err(Odd::IcmpIgnored);
        }
        self.stats.unreachable_received += 1;
        Ok(Ingress::Unreachable {
            from,
            to: quote.to,
            sport: quote.from.port,
            id: quote.id,
            reason: quote.reason,
        })
    }

    fn receive_arp(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Odd> {
        let arp = Arp::parse(bytes).ok_or(Odd::BadArp)?;
        let (sender, target) = (Ip::from(arp.sender_ip), Ip::from(arp.target_ip));
        self.stats.arp_received += 1;
        if self.routes.is_own(sender) {
            return Err(Odd::AddressConflict);
        }
        let is_to_us = self.routes.is_own(target);
        // A sender outside our networks, or one that only probes for an address, is none to note.
        if let Some(source) = self.routes.source_for(sender) {
            let word = match (is_to_us, arp.is_reply) {
                (true, true) => Word::Answer,
                (true, false) => Word::Speech,
                (false, _) => Word::Rumor,
            };
            let place = (sender, arp.sender_mac);
            self.neighbors.handle_word(now, place, Some(source), word);
        }
        if is_to_us && !arp.is_reply && !self.outbox.push_arp(arp.answer(self.mac)) {
            return Err(Odd::QueueFull);
        }
        Ok(())
    }

    fn next_arp(&mut self) -> Option<Arp> {
        if let Some(arp) = self.outbox.pop_arp() {
            return Some(arp);
        }
        let Request { target, source } = self.neighbors.poll_request()?;
        Some(Arp::request(self.mac, source.as_v4()?, target.as_v4()?))
    }

    #[cold]
    fn count(&mut self, odd: Odd) {
        let stats = &mut self.stats;
        *match odd {
            Odd::Truncated => &mut stats.truncated,
            Odd::NotOurs => &mut stats.not_ours,
            Odd::BadSource => &mut stats.bad_source,
            Odd::OtherEthertype => &mut stats.other_ethertype,
            Odd::OtherProtocol => &mut stats.other_protocol,
            Odd::BadHeader => &mut stats.bad_header,
            Odd::BadChecksum => &mut stats.bad_checksum,
            Odd::Fragment => &mut stats.fragments,
            Odd::Options => &mut stats.options,
            Odd::BadArp => &mut stats.bad_arp,
            Odd::AddressConflict => &mut stats.address_conflicts,
            Odd::IcmpIgnored => &mut stats.icmp_ignored,
            Odd::QueueFull => &mut stats.queue_full,
        } += 1;
    }
}

/// An IPv4 packet without the frame's padding, if it is one that we take.
#[inline]
fn check_ipv4(bytes: &[u8], checksums: Checksums) -> Result<Ipv4Packet<&[u8]>, Odd> {
    let header = bytes.first_chunk::<IPV4_LEN>().ok_or(Odd::Truncated)?;
    match header[0] {
        0x45 => {}
        0x46..=0x4f => return Err(Odd::Options),
        _ => return Err(Odd::BadHeader),
    }
    let packet = Ipv4Packet::new_unchecked(bytes);
    let total = usize::from(packet.total_len());
    if total < IPV4_LEN {
        return Err(Odd::BadHeader);
    }
    if total > bytes.len() {
        return Err(Odd::Truncated);
    }
    let is_intact = match checksums {
        Checksums::Good => true,
        Checksums::Bad => false,
        Checksums::Unknown => packet.verify_checksum(),
    };
    if !is_intact {
        return Err(Odd::BadChecksum);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(Odd::Fragment);
    }
    Ok(packet)
}
