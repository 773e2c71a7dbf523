//! One of the devices that a runtime speaks through, and the network layer over it.

use crate::addr::Sent;
use crate::device::{Checksums, Device, NET_ROOM};
use crate::error::Error;
use crate::homa::{Endpoint, Event, Verdict};
use crate::net::{self, Ingress, Stack, Unreachable};
use crate::time::Instant;
use crate::wire::homa::RpcId;

/// A device and the network layer over it.
#[derive(Debug)]
pub struct Leg<D> {
    pub(super) device: D,
    pub(super) net: Stack,
    /// Packets lost here because the device took none.
    stuck: u64,
}

impl<D: Device> Leg<D> {
    /// Joins the two. The MAC and the MTU are the device's, unless `params` have a smaller MTU.
    pub(super) fn new(device: D, params: net::Params) -> Result<Self, Error> {
        let caps = device.caps();
        let net = Stack::new(net::Params {
            mac: caps.mac,
            mtu: params.mtu.min(caps.mtu),
            ..params
        })?;
        Ok(Self {
            device,
            net,
            stuck: 0,
        })
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    pub fn net(&self) -> &Stack {
        &self.net
    }

    /// Packets that were lost because the device took none: where there are several devices, one
    /// that hangs must not hold back the others.
    pub fn stuck(&self) -> u64 {
        self.stuck
    }

    /// Takes what the device received, and tells how many frames there were.
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        homa: &mut Endpoint,
        now: Instant,
        app: &mut impl FnMut(&mut Endpoint, Event),
    ) -> usize {
        let net = &mut self.net;
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

    /// Tells the transport what became of the ways to its peers.
    #[inline]
    pub(super) fn tell_links(&mut self, homa: &mut Endpoint, now: Instant) {
        if self.net.has_events() {
            self.tell_all_links(homa, now);
        }
    }

    #[cold]
    fn tell_all_links(&mut self, homa: &mut Endpoint, now: Instant) {
        while let Some(event) = self.net.poll_event() {
            match event {
                net::Event::Up { peer, link } => homa.handle_peer_up(peer, link),
                net::Event::Failed { peer, error } => homa.handle_peer_failed(now, peer, error),
                net::Event::Gone { peer, .. } => homa.handle_peer_lost(peer),
            }
        }
    }

    /// Sends frames of the network layer's own.
    #[inline]
    pub(super) fn transmit_own(&mut self, now: Instant) {
        if self.net.has_output() {
            self.transmit_all_own(now);
        }
    }

    #[cold]
    fn transmit_all_own(&mut self, now: Instant) {
        while self.device.tx_room() > 0
            && let Some((frame, meta)) = self.net.poll_transmit(now, self.device.tx_slot())
        {
            self.device.tx_commit(frame, meta);
        }
    }

    /// Sends the packet that lies in the next slot.
    #[inline(always)]
    pub(super) fn commit(&mut self, sent: &Sent) {
        if let Some((frame, meta)) = self.net.seal(self.device.tx_slot(), sent) {
            self.device.tx_commit(frame, meta);
        }
    }

    /// Sends a packet that lies elsewhere.
    pub(super) fn send(&mut self, packet: &[u8], sent: &Sent) {
        if self.device.tx_room() == 0 {
            self.stuck += 1;
            return;
        }
        self.device.tx_slot()[NET_ROOM..NET_ROOM + packet.len()].copy_from_slice(packet);
        self.commit(sent);
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
        Unreachable::TooLong => Error::MessageTooLong,
    }
}
