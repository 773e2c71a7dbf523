//! Frames in, packets out, and back.

use std::ops::Range;

use super::arp::{self, Arp};
use super::headers::{ETHERNET_LEN, Ethernet, HEADERS_LEN, IPV4_LEN, Ipv4, Template, plain_packet};
use super::icmp::{self, Limiter, Message, Quote};
use super::neighbor::{Neighbors, Request, Word};
use super::outbox::Outbox;
use super::route::{Hop, Routes};
use super::{Event, Ingress, NeighborStats, Odd, Params, Stats};
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
    ports_limiter: Limiter,
    protocols_limiter: Limiter,
    stats: Stats,
    /// The latest time we were told, for [`Self::seal`], which is not.
    now: Instant,
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
            routes: Routes::new(params.first_own, params.addresses, params.gateway),
            outbox,
            ports_limiter: Limiter::new(Limiter::PORTS_BURST),
            protocols_limiter: Limiter::new(Limiter::PROTOCOLS_BURST),
            stats: Stats::default(),
            now: Instant(0),
        })
    }

    /// Takes a received frame if it is like nearly every frame: a Homa packet from a peer that was
    /// heard before, odd in no way. All others are for [`Self::ingress`].
    #[inline(always)]
    pub fn ingress_known<'f>(
        &mut self,
        now: Instant,
        frame: &'f [u8],
        checksums: Checksums,
    ) -> Option<(Meta, &'f [u8])> {
        let head = frame.first_chunk()?;
        let packet = plain_packet(frame, head, self.ip_protocol, checksums)?;
        let meta = self.neighbors.known(now, head)?;
        self.now = now;
        self.stats.homa_received += 1;
        Some((meta, packet))
    }

    /// Takes a received frame. What concerns the layers above comes back; ARP and pings are dealt
    /// with here; all else is counted and dropped.
    #[cold]
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
                self.stats.count(odd);
                None
            }
        }
    }

    /// How near a peer is, the nearest first; an error if there is no way to it.
    pub fn nearness(&self, peer: Ip) -> Result<u8, Error> {
        Ok(match self.routes.hop(peer)? {
            Hop::Own(_) => 0,
            Hop::Direct { .. } => 1,
            Hop::Gateway { .. } => 2,
        })
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

    /// Whether [`Self::poll_event`] has one.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.neighbors.has_events()
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
    #[inline(always)]
    pub fn seal(&mut self, slot: &mut [u8], sent: &Sent) -> Option<(Range<usize>, TxMeta)> {
        debug_assert!(usize::from(sent.len.get()) + IPV4_LEN <= usize::from(self.mtu));
        let Some(template) = self.neighbors.use_link(self.now, sent.link) else {
            self.stats.stale_links += 1;
            return None;
        };
        let headers = slot[FRAME_AT..].first_chunk_mut();
        let headers = headers.expect("a slot has NET_ROOM and more");
        template.write(headers, sent.len.get(), sent.priority);
        let frame = FRAME_AT..NET_ROOM + usize::from(sent.len.get());
        Some((frame, Template::tx_meta(sent.priority)))
    }

    /// Tells a packet's sender that nobody listens on its destination port.
    #[cold]
    pub fn port_unreachable(&mut self, now: Instant, meta: Meta, packet: &[u8]) {
        self.now = now;
        if !self.ports_limiter.allows(now) {
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
            Some(out) => {
                icmp::write_port_unreachable(&reply, &quoted, packet, out);
                self.stats.refused += 1;
            }
            None => self.stats.count(Odd::QueueFull),
        }
    }

    /// When [`Self::handle_timeout`] should be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.neighbors.poll_timeout()
    }

    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.neighbors.poll_timeout().is_some_and(|at| at <= now) {
            self.neighbors.handle_timeout(now);
        }
    }

    /// Whether [`Self::poll_transmit`] has a frame.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || self.neighbors.has_requests()
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

    /// Our address of that number, as [`LinkId::as_loopback`] tells it; the first is number
    /// [`Params::first_own`].
    pub fn own(&self, number: u8) -> Option<Ip> {
        self.routes.own(number)
    }

    /// Whether this is an address of ours.
    pub fn is_own(&self, ip: Ip) -> bool {
        self.routes.is_own(ip)
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    pub fn neighbor_stats(&self) -> NeighborStats {
        self.neighbors.stats
    }
}

/// The way in.
impl Stack {
    #[cold]
    fn receive<'f>(
        &mut self,
        now: Instant,
        frame: &'f [u8],
        checksums: Checksums,
    ) -> Result<Option<Ingress<'f>>, Odd> {
        let (header, payload) = Ethernet::parse(frame)?;
        if header.ethertype != Ethernet::IPV4 || header.to != self.mac {
            return self.receive_other(now, &header, payload).map(|()| None);
        }
        let packet = Ipv4::parse(payload, checksums)?;
        let meta = Meta {
            from: packet.from,
            to: packet.to,
        };
        if !self.routes.is_own(meta.to) {
            return Err(Odd::NotOurs);
        }
        if packet.protocol == icmp::PROTOCOL {
            return self.receive_icmp(meta, header.from, packet.payload);
        }
        if packet.protocol != self.ip_protocol {
            self.refuse_protocol(
                now,
                meta,
                header.from,
                (&payload[..IPV4_LEN], packet.payload),
            )?;
            return Err(Odd::OtherProtocol);
        }
        if !self.neighbors.is_as_known(now, meta.from, header.from) {
            self.note_sender(now, meta.from, header.from)?;
        }
        self.stats.homa_received += 1;
        let packet = packet.payload;
        Ok(Some(Ingress::Homa { meta, packet }))
    }

    /// Takes in what is not IPv4 sent to us alone, or refuses it.
    #[cold]
    fn receive_other(&mut self, now: Instant, header: &Ethernet, bytes: &[u8]) -> Result<(), Odd> {
        if header.to != self.mac && header.to != arp::BROADCAST {
            return Err(Odd::NotOurs);
        }
        self.check_station(header.from)?;
        match header.ethertype {
            Ethernet::ARP => self.receive_arp(now, bytes),
            Ethernet::IPV4 => Err(Odd::NotOurs),
            _ => Err(Odd::OtherEthertype),
        }
    }

    /// Takes in where a sender is that we do not know, or not there.
    #[cold]
    fn note_sender(&mut self, now: Instant, from: Ip, mac: [u8; 6]) -> Result<(), Odd> {
        self.check_sender(from, mac)?;
        let source = self.routes.source_for(from);
        self.neighbors
            .handle_word(now, (from, mac), source, Word::Speech);
        Ok(())
    }

    /// Whether a packet may come from there.
    fn check_sender(&self, from: Ip, mac: [u8; 6]) -> Result<(), Odd> {
        if !self.routes.is_host(from) || self.routes.is_own(from) {
            return Err(Odd::BadSource);
        }
        self.check_station(mac)
    }

    fn check_station(&self, mac: [u8; 6]) -> Result<(), Odd> {
        if mac == self.mac || !arp::is_station(mac) {
            return Err(Odd::BadSource);
        }
        Ok(())
    }

    #[cold]
    fn receive_icmp(
        &mut self,
        meta: Meta,
        mac: [u8; 6],
        bytes: &[u8],
    ) -> Result<Option<Ingress<'static>>, Odd> {
        self.check_sender(meta.from, mac)?;
        if !icmp::checksum_is_valid(bytes) {
            return Err(Odd::BadChecksum);
        }
        match icmp::parse(bytes).ok_or(Odd::IcmpIgnored)? {
            Message::Ping => self.answer_ping(meta, mac, bytes).map(|()| None),
            Message::Unreachable(quote) => self.understand(meta.from, &quote).map(Some),
        }
    }

    /// Tells a packet's sender that we do not speak its protocol, so that it need not wait for an
    /// answer. Source: RFC 1122, section 3.2.2.1. What it says of broadcasts and fragments cannot
    /// be: those are no longer here.
    #[cold]
    fn refuse_protocol(
        &mut self,
        now: Instant,
        meta: Meta,
        mac: [u8; 6],
        packet: (&[u8], &[u8]),
    ) -> Result<(), Odd> {
        self.check_sender(meta.from, mac)?;
        let (Some(from), Some(to)) = (meta.from.as_v4(), meta.to.as_v4()) else {
            return Ok(());
        };
        if !self.protocols_limiter.allows(now) {
            self.stats.rate_limited += 1;
            return Ok(());
        }
        let headers = Template::new((self.mac, mac), (to, from), icmp::PROTOCOL);
        let out = self.outbox.push_icmp().ok_or(Odd::QueueFull)?;
        icmp::write_protocol_unreachable(&headers, packet, out);
        self.stats.refused += 1;
        Ok(())
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
        let is_ours = self.routes.is_own(quote.from.ip) && quote.protocol == self.ip_protocol;
        // A router cannot know what only the destination knows.
        if !is_ours || quote.reason.is_its_own() && from != quote.to.ip {
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
}
