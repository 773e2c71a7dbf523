//! The one place where device, network layer and transport meet.

use crate::addr::{Ip, Meta, Sent};
use crate::device::{Checksums, Device, NET_ROOM, RX_BURST, TX_BURST};
use crate::error::Error;
use crate::homa::{self, Endpoint, Event, RpcKey, Verdict};
use crate::mem::Region;
use crate::net::{self, Ingress, Stack, Unreachable};
use crate::time::Instant;
use crate::wire::homa::RpcId;

/// Turns in a row with a full receive burst after which timers act all the same. That many bursts
/// are more than any receive ring holds, so what waited at first is drained by then.
const FULL_TURNS_MAX: u32 = 256;

/// Packets to ourselves in one turn, at most.
const LOOPED_MAX: usize = TX_BURST;

/// A device, the network layer and the transport over it, turned by one thread.
#[derive(Debug)]
pub struct Poller<D> {
    device: D,
    net: Stack,
    homa: Endpoint,
    /// Receive bursts in a row that came back full.
    full_turns: u32,
    /// The last packet to ourselves, and which of our addresses it goes to.
    looped: Vec<u8>,
}

impl<D: Device> Poller<D> {
    /// Puts the three together. The MAC and the MTU are the device's, unless `net` has a smaller
    /// MTU; the length of Homa packets follows from it.
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
        const IPV4_LEN: u16 = 20;
        let caps = device.caps();
        let mtu = net.mtu.min(caps.mtu);
        let net = Stack::new(net::Params {
            mac: caps.mac,
            mtu,
            ..net
        })?;
        let packet_max = mtu - IPV4_LEN;
        let homa = Endpoint::new(homa::Params { packet_max, ..homa }, region, now)?;
        let looped = vec![0; usize::from(packet_max)];
        Ok(Self {
            device,
            net,
            homa,
            full_turns: 0,
            looped,
        })
    }

    /// One turn of the loop: receive, timers, send. `app` sees what happened as it happens, and
    /// what it sends goes out in the same turn. Tells how many frames came in.
    #[inline]
    pub fn turn_with(&mut self, now: Instant, mut app: impl FnMut(&mut Endpoint, Event)) -> usize {
        let received = self.receive(now, &mut app);
        self.live(now, received);
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
        match (self.homa.poll_timeout(), self.net.poll_timeout()) {
            (Some(homa), Some(net)) => Some(homa.min(net)),
            (homa, net) => homa.or(net),
        }
    }

    /// The first of our addresses.
    pub fn local_ip(&self) -> Ip {
        self.net
            .own(0)
            .expect("the network layer has at least one address")
    }

    /// Whether `ip` is one of our addresses.
    pub fn is_own(&self, ip: Ip) -> bool {
        self.net.is_own(ip)
    }

    pub fn homa(&mut self) -> &mut Endpoint {
        &mut self.homa
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.homa
    }

    pub fn net(&self) -> &Stack {
        &self.net
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    #[inline]
    fn receive(&mut self, now: Instant, app: &mut impl FnMut(&mut Endpoint, Event)) -> usize {
        let (net, homa) = (&mut self.net, &mut self.homa);
        self.device.rx_burst(|frame, rx| {
            if let Some((meta, packet)) = net.ingress_known(now, frame, rx.checksums) {
                if homa.handle_packet(now, meta, packet, app) == Verdict::PortUnreachable {
                    net.port_unreachable(now, meta, packet);
                }
            } else {
                receive_other(net, homa, now, frame, rx.checksums);
            }
        })
    }

    /// What time brings. While received frames still wait, none passes: a peer is silent only if
    /// all that came from it has been looked at.
    #[inline]
    fn live(&mut self, now: Instant, received: usize) {
        if received == RX_BURST && self.full_turns < FULL_TURNS_MAX {
            self.full_turns += 1;
        } else {
            self.full_turns = 0;
            self.homa.handle_timeout(now);
            self.net.handle_timeout(now);
        }
        if self.homa.has_unresolved() {
            self.resolve(now);
        }
        if self.net.has_events() {
            self.join_links(now);
        }
    }

    /// Tells the transport what became of the ways to its peers.
    #[cold]
    fn join_links(&mut self, now: Instant) {
        while let Some(event) = self.net.poll_event() {
            match event {
                net::Event::Up { peer, link } => self.homa.handle_peer_up(peer, link),
                net::Event::Failed { peer, error } => {
                    self.homa.handle_peer_failed(now, peer, error);
                }
                net::Event::Gone { peer, .. } => self.homa.handle_peer_lost(peer),
            }
        }
    }

    /// Finds the way to peers that the transport has just heard of.
    #[cold]
    fn resolve(&mut self, now: Instant) {
        while let Some(ip) = self.homa.poll_unresolved() {
            match self.net.link(now, ip) {
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
        if self.net.has_output() {
            self.transmit_own(now);
        }
        if self.homa.has_output() && self.device.tx_room() > 0 {
            match self.homa.poll_lone() {
                Some(rpc) => self.transmit_lone(now, rpc),
                None => self.transmit_homa(now),
            }
        }
        self.device.flush();
    }

    /// Sends frames of the network layer's own.
    #[cold]
    fn transmit_own(&mut self, now: Instant) {
        while self.device.tx_room() > 0
            && let Some((frame, meta)) = self.net.poll_transmit(now, self.device.tx_slot())
        {
            self.device.tx_commit(frame, meta);
        }
    }

    /// Sends a message of one packet, the only thing there is to send.
    #[inline(never)]
    fn transmit_lone(&mut self, now: Instant, rpc: RpcKey) {
        let slot = self.device.tx_slot();
        if let Some(sent) = self.homa.transmit_lone(now, rpc, &mut slot[NET_ROOM..]) {
            if sent.link.as_loopback().is_some() {
                self.loop_back(now, sent);
            } else if let Some((frame, meta)) = self.net.seal(slot, &sent) {
                self.device.tx_commit(frame, meta);
            }
        }
    }

    #[inline(never)]
    fn transmit_homa(&mut self, now: Instant) {
        let mut looped = 0;
        for _ in 0..self.device.tx_room().min(TX_BURST) {
            let slot = self.device.tx_slot();
            let Some(sent) = self.homa.poll_transmit(now, &mut slot[NET_ROOM..]) else {
                return;
            };
            if sent.link.as_loopback().is_some() {
                self.loop_back(now, sent);
                looped += 1;
            } else if let Some((frame, meta)) = self.net.seal(slot, &sent) {
                self.device.tx_commit(frame, meta);
            }
            if looped == LOOPED_MAX || !self.homa.has_output() {
                return;
            }
        }
    }

    /// Hands the packet in the next slot, which is to one of our own addresses, back to the
    /// transport.
    #[cold]
    fn loop_back(&mut self, now: Instant, sent: Sent) {
        let packet = NET_ROOM..NET_ROOM + usize::from(sent.len.get());
        self.looped.clear();
        self.looped
            .extend_from_slice(&self.device.tx_slot()[packet]);
        if let Some(own) = sent.link.as_loopback() {
            self.deliver_looped(now, own);
        }
    }

    /// The transport takes the packet that is kept, sent to that one of our addresses.
    fn deliver_looped(&mut self, now: Instant, own: u8) {
        let Some(ip) = self.net.own(own) else { return };
        let meta = Meta { from: ip, to: ip };
        let homa = &mut self.homa;
        let verdict = homa.handle_packet(now, meta, &self.looped, &mut Endpoint::keep_event);
        if verdict == Verdict::PortUnreachable
            && let Ok((common, _)) = crate::wire::homa::parse(&self.looped)
        {
            let to = crate::addr::Addr::new(ip, common.dport);
            homa.handle_unreachable(now, to, common.sport, common.id, Error::NotConnected);
        }
    }
}

/// Takes a frame that is not like most; what happens by it waits to be told.
#[cold]
fn receive_other(
    net: &mut Stack,
    homa: &mut Endpoint,
    now: Instant,
    frame: &[u8],
    checksums: Checksums,
) {
    match net.ingress(now, frame, checksums) {
        Some(Ingress::Homa { meta, packet }) => {
            let verdict = homa.handle_packet(now, meta, packet, &mut Endpoint::keep_event);
            if verdict == Verdict::PortUnreachable {
                net.port_unreachable(now, meta, packet);
            }
        }
        Some(Ingress::Unreachable {
            to,
            sport,
            id: Some(id),
            reason,
            ..
        }) => homa.handle_unreachable(now, to, sport, RpcId(id), unreachable(reason)),
        Some(Ingress::Unreachable { id: None, .. }) | None => {}
    }
}

fn unreachable(reason: Unreachable) -> Error {
    match reason {
        Unreachable::Port => Error::NotConnected,
        Unreachable::Protocol => Error::ProtocolUnsupported,
        Unreachable::Host => Error::HostUnreachable,
    }
}
