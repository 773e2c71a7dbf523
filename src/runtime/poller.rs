//! The one place where devices, network layer and transport meet.

use crate::addr::{Ip, Meta, Sent};
use crate::device::{Device, NET_ROOM, RX_BURST, TX_BURST};
use crate::error::Error;
use crate::homa::{self, Endpoint, Event, RpcKey, Verdict};
use crate::mem::Region;
use crate::net::{self, Stack};
use crate::time::Instant;

use super::leg::Leg;

/// Turns in a row with a full receive burst after which timers act all the same. That many bursts
/// are more than any receive ring holds, so what waited at first is drained by then.
const FULL_TURNS_MAX: u32 = 256;

/// Packets to ourselves in one turn, at most.
const LOOPED_MAX: usize = TX_BURST;

/// One to four devices, the network layer over each, and the transport over all, turned by one
/// thread. A peer is reached by the device in whose network it is, or else by one that has a
/// gateway; the first of several.
#[derive(Debug)]
pub struct Poller<D> {
    first: Leg<D>,
    /// Mostly there is no other, and then nothing must be slower for it.
    others: Vec<Leg<D>>,
    homa: Endpoint,
    /// Turns in a row in which a receive burst came back full.
    full_turns: u32,
    /// A packet to ourselves, or one of which it is not known yet by which device it leaves.
    draft: Vec<u8>,
}

impl<D: Device> Poller<D> {
    /// Over one device. Its MAC and its MTU are the device's, unless `net` has a smaller MTU; the
    /// length of Homa packets follows from it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a param is out of its range.
    pub fn new(
        device: D,
        net: net::Params,
        homa: homa::Params,
        region: Region,
        now: Instant,
    ) -> Result<Self, Error> {
        Self::over(vec![(device, net)], homa, region, now)
    }

    /// Over several devices, at most four; the smallest MTU counts.
    ///
    /// # Errors
    /// As [`Self::new`]; [`Error::Invalid`] too for no devices or too many, or for an address that
    /// two of them have.
    pub fn over(
        devices: Vec<(D, net::Params)>,
        homa: homa::Params,
        region: Region,
        now: Instant,
    ) -> Result<Self, Error> {
        const IPV4_LEN: u16 = 20;
        let (mut packet_max, mut first_own) = (u16::MAX, 0);
        let mut legs = Vec::<Leg<D>>::new();
        for (device, params) in devices {
            let is_taken = |own: &net::Interface| legs.iter().any(|leg| leg.net.is_own(own.ip));
            if params.addresses.iter().any(is_taken) {
                return Err(Error::Invalid);
            }
            let (mtu, own_count) = (params.mtu.min(device.caps().mtu), params.addresses.len());
            let params = net::Params {
                leg: u8::try_from(legs.len()).map_err(|_| Error::Invalid)?,
                first_own,
                ..params
            };
            legs.push(Leg::new(device, params)?);
            // The network layer has checked that an IP header fits, and so many addresses.
            packet_max = packet_max.min(mtu - IPV4_LEN);
            first_own += own_count as u8;
        }
        let mut legs = legs.into_iter();
        let first = legs.next().ok_or(Error::Invalid)?;
        let homa = Endpoint::new(homa::Params { packet_max, ..homa }, region, now)?;
        Ok(Self {
            first,
            others: legs.collect(),
            homa,
            full_turns: 0,
            draft: vec![0; usize::from(packet_max)],
        })
    }

    /// One turn of the loop: receive, timers, send. `app` sees what happened as it happens, and
    /// what it sends goes out in the same turn. Tells how many frames came in.
    #[inline]
    pub fn turn_with(&mut self, now: Instant, mut app: impl FnMut(&mut Endpoint, Event)) -> usize {
        let mut received = self.first.receive(&mut self.homa, now, &mut app);
        let mut is_full = received == RX_BURST;
        if !self.others.is_empty() {
            is_full |= self.receive_others(now, &mut received);
        }
        self.live(now, is_full);
        if self.homa.has_events() {
            self.tell(&mut app);
        }
        self.transmit(now);
        received
    }

    /// Sends what can be sent, without a whole turn: right after the application gave something
    /// to send.
    #[inline]
    pub fn send(&mut self, now: Instant) {
        if self.homa.has_unresolved() {
            self.resolve(now);
        }
        self.transmit(now);
    }

    /// When a turn is needed even if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let net = self.legs().filter_map(|leg| leg.net.poll_timeout());
        net.chain(self.homa.poll_timeout()).min()
    }

    /// Whether more frames waited in the last turn than it took: what we wait for may be among
    /// them.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.full_turns > 0
    }

    /// The first of our addresses.
    pub fn local_ip(&self) -> Ip {
        self.own(0)
            .expect("the network layer has at least one address")
    }

    /// Whether `ip` is one of our addresses.
    pub fn is_own(&self, ip: Ip) -> bool {
        self.legs().any(|leg| leg.net.is_own(ip))
    }

    pub fn homa(&mut self) -> &mut Endpoint {
        &mut self.homa
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.homa
    }

    /// The devices, in the order they were given.
    pub fn legs(&self) -> impl Iterator<Item = &Leg<D>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub fn legs_mut(&mut self) -> impl Iterator<Item = &mut Leg<D>> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// The network layer of the first device.
    pub fn net(&self) -> &Stack {
        &self.first.net
    }

    /// The first device.
    pub fn device(&self) -> &D {
        &self.first.device
    }

    /// The first device.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.first.device
    }

    /// Our address of that number.
    fn own(&self, number: u8) -> Option<Ip> {
        self.legs().find_map(|leg| leg.net.own(number))
    }

    /// Takes what came to the other devices; what happens by it waits to be told. Adds the number
    /// of frames, and tells whether more may wait.
    #[inline(never)]
    fn receive_others(&mut self, now: Instant, received: &mut usize) -> bool {
        let mut is_full = false;
        for leg in &mut self.others {
            let count = leg.receive(&mut self.homa, now, &mut Endpoint::keep_event);
            *received += count;
            is_full |= count == RX_BURST;
        }
        is_full
    }

    /// What time brings. While received frames still wait, none passes: a peer is silent only if
    /// all that came from it has been looked at.
    #[inline]
    fn live(&mut self, now: Instant, is_full: bool) {
        if is_full && self.full_turns < FULL_TURNS_MAX {
            self.full_turns += 1;
            self.homa.catch_up(now);
        } else {
            self.full_turns = 0;
            self.homa.handle_timeout(now);
            self.first.net.handle_timeout(now);
            for leg in &mut self.others {
                leg.net.handle_timeout(now);
            }
        }
        if self.homa.has_unresolved() {
            self.resolve(now);
        }
        self.first.tell_links(&mut self.homa, now);
        for leg in &mut self.others {
            leg.tell_links(&mut self.homa, now);
        }
    }

    /// Finds the way to peers that the transport has just heard of.
    #[cold]
    fn resolve(&mut self, now: Instant) {
        while let Some(ip) = self.homa.poll_unresolved() {
            let legs = std::iter::once(&mut self.first).chain(&mut self.others);
            // One from which there is no way tells why, if all are so.
            let nearest = legs.min_by_key(|leg| leg.net.nearness(ip).unwrap_or(u8::MAX));
            let Some(leg) = nearest else { return };
            match leg.net.link(now, ip) {
                Ok(Some(link)) => self.homa.handle_peer_up(ip, link),
                Ok(None) => {}
                Err(error) => self.homa.handle_peer_failed(now, ip, error),
            }
        }
    }

    /// What happened otherwise than by a packet that made a message whole.
    #[cold]
    fn tell(&mut self, app: &mut impl FnMut(&mut Endpoint, Event)) {
        while let Some(event) = self.homa.poll_event() {
            app(&mut self.homa, event);
        }
    }

    /// Sends what waits, at most a burst of it.
    #[inline]
    fn transmit(&mut self, now: Instant) {
        self.first.transmit_own(now);
        if !self.others.is_empty() {
            self.transmit_others(now);
        } else if self.homa.has_output() && self.first.device.tx_room() > 0 {
            match self.homa.poll_lone() {
                Some(rpc) => self.transmit_lone(now, rpc),
                None => self.transmit_burst(now),
            }
        }
        self.first.device.flush();
    }

    /// Sends a message of one packet, the only thing there is to send.
    #[inline(never)]
    fn transmit_lone(&mut self, now: Instant, rpc: RpcKey) {
        let Leg { device, net, .. } = &mut self.first;
        let slot = device.tx_slot();
        if let Some(sent) = self.homa.transmit_lone(now, rpc, &mut slot[NET_ROOM..]) {
            if let Some(own) = sent.link.as_loopback() {
                self.loop_back(now, own, &sent);
            } else if let Some((frame, meta)) = net.seal(slot, &sent) {
                device.tx_commit(frame, meta);
            }
        }
    }

    #[inline(never)]
    fn transmit_burst(&mut self, now: Instant) {
        let mut looped = 0;
        for _ in 0..self.first.device.tx_room().min(TX_BURST) {
            let leg = &mut self.first;
            let slot = leg.device.tx_slot();
            let Some(sent) = self.homa.poll_transmit(now, &mut slot[NET_ROOM..]) else {
                return;
            };
            match sent.link.as_loopback() {
                None => leg.commit(&sent),
                Some(own) => {
                    self.loop_back(now, own, &sent);
                    looped += 1;
                }
            }
            if looped == LOOPED_MAX || !self.homa.has_output() {
                return;
            }
        }
    }

    /// Sends by whichever device leads to each peer, where there are several.
    #[inline(never)]
    fn transmit_others(&mut self, now: Instant) {
        for leg in &mut self.others {
            leg.transmit_own(now);
        }
        for _ in 0..TX_BURST {
            if !self.homa.has_output() {
                break;
            }
            let Some(sent) = self.homa.poll_transmit(now, &mut self.draft) else {
                break;
            };
            if let Some(own) = sent.link.as_loopback() {
                self.deliver_draft(now, own, &sent);
                continue;
            }
            let packet = &self.draft[..usize::from(sent.len.get())];
            let leg = match sent.link.leg() {
                0 => Some(&mut self.first),
                other => self.others.get_mut(other - 1),
            };
            if let Some(leg) = leg {
                leg.send(packet, &sent);
            }
        }
        self.others.iter_mut().for_each(|leg| leg.device.flush());
    }

    /// Hands the packet in the only device's next slot, which is to one of our own addresses, back
    /// to the transport.
    #[cold]
    fn loop_back(&mut self, now: Instant, own: u8, sent: &Sent) {
        let len = usize::from(sent.len.get());
        let slot = self.first.device.tx_slot();
        self.draft[..len].copy_from_slice(&slot[NET_ROOM..NET_ROOM + len]);
        self.deliver_draft(now, own, sent);
    }

    /// The transport takes the drafted packet, sent to that one of our addresses.
    fn deliver_draft(&mut self, now: Instant, own: u8, sent: &Sent) {
        let Some(ip) = self.own(own) else { return };
        let meta = Meta { from: ip, to: ip };
        let packet = &self.draft[..usize::from(sent.len.get())];
        let homa = &mut self.homa;
        let verdict = homa.handle_packet(now, meta, packet, &mut Endpoint::keep_event);
        if verdict == Verdict::PortUnreachable
            && let Ok((common, _)) = crate::wire::homa::parse(packet)
        {
            let to = crate::addr::Addr::new(ip, common.dport);
            homa.handle_unreachable(now, to, common.sport, common.id, Error::NotConnected);
        }
    }
}
