//! Ethernet, IPv4, ARP and ICMP: what lies between the NIC and the transport.
//!
//! Frames go in, Homa's packets come out; Homa's packets go in, frames come out. Neighbours are
//! asked for, remembered and asked again here. No clock, no socket, no thread.
//!
//! IPv4 so far. Addresses are 128 bits throughout, and where a frame begins in a slot is told and
//! not assumed, so that IPv6 and its neighbour discovery can stand beside IPv4 and ARP.

mod arp;
mod headers;
mod icmp;
mod neighbor;
mod outbox;
mod route;
mod stack;
#[cfg(test)]
mod tests;

use crate::addr::{Addr, Ip, LinkId, Meta};
use crate::counters;
use crate::error::Error;
use crate::time::Duration;

pub use icmp::Unreachable;
pub use route::Interface;
pub use stack::Stack;

/// What a [`Stack`] is told at its start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The number of the device, 0 to 3, where a runtime has several.
    pub leg: u8,
    /// The number of the first of our addresses, unless other devices have that one.
    pub first_own: u8,
    /// The NIC's own address.
    pub mac: [u8; 6],
    /// Ours, 1 to 16. A peer is spoken to from the first one whose network it is in.
    pub addresses: Vec<Interface>,
    /// Where packets for other networks go.
    pub gateway: Option<Ip>,
    /// Largest IP packet, bytes. Default 1,500. Source: RFC 894.
    pub mtu: u16,
    /// IP protocol of our packets. Default 146. Source: HomaModule homa_wire.h `IPPROTO_HOMA`.
    pub ip_protocol: u8,
    /// Most peers remembered. Default 8,192.
    pub neighbors_max: usize,
    /// ARP requests made before a peer counts as unreachable. Default 3.
    pub arp_tries: u32,
    /// Wait after the first ARP request; it doubles with each further one. Default 20 ms.
    pub arp_delay: Duration,
    /// A peer that we send to and did not hear for so long is asked for its address anew.
    /// Default 30 s. Source: RFC 4861 REACHABLE_TIME.
    pub reachable: Duration,
    /// Whether a peer's link address is learnt from its packets. Default true: a server then
    /// answers without an ARP request.
    pub learn: bool,
    /// Whether to tell all neighbours our addresses at the start, so that those who knew an
    /// earlier owner's link address learn of ours. Default true. Source: RFC 5227 section 3.
    pub announce: bool,
    /// Makes hash tables unpredictable for those who choose their keys.
    pub seed: u64,
}

/// What a received frame held for those above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress<'f> {
    Homa {
        meta: Meta,
        packet: &'f [u8],
    },
    /// A packet of ours could not be delivered.
    Unreachable {
        /// Who says so: the destination itself, or a router on the way.
        from: Ip,
        /// Where the packet should have gone.
        to: Addr,
        /// Our port.
        sport: u16,
        /// The packet's RPC id, if enough of it came back.
        id: Option<u64>,
        reason: Unreachable,
    },
}

/// What became of a peer. Told once to each peer that [`Stack::link`] had no answer for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its link address is known.
    Up { peer: Ip, link: LinkId },
    /// It did not answer, or the gateway did not.
    Failed { peer: Ip, error: Error },
    /// Long unused, and its place was needed: the link is void; ask again before the next packet.
    Gone { peer: Ip, link: LinkId },
}

counters! {
    /// How often what happened to frames.
    pub struct Stats {
        /// Homa packets passed up
        homa_received,
        /// ARP messages received
        arp_received,
        /// Pings answered
        pings_answered,
        /// ICMP messages received about packets of ours
        unreachable_received,
        /// ARP and ICMP frames sent
        sent,
        /// Packets whose senders were told that nobody here takes them
        refused,
        /// Frames dropped that are shorter than their headers say
        truncated,
        /// Frames dropped that are for somebody else
        not_ours,
        /// Frames dropped whose source nobody can have, or we have
        bad_source,
        /// Frames dropped that are neither IPv4 nor ARP
        other_ethertype,
        /// IP packets dropped that are neither Homa nor ICMP
        other_protocol,
        /// IP packets dropped whose header makes no sense
        bad_header,
        /// Packets dropped whose checksum is wrong
        bad_checksum,
        /// IP packets dropped that are fragments
        fragments,
        /// IP packets dropped that have options
        options,
        /// ARP messages dropped that make no sense
        bad_arp,
        /// ARP messages from others who claim an address of ours
        address_conflicts,
        /// ICMP messages of no use, or that quote no packet of ours
        icmp_ignored,
        /// ARP and ICMP frames not sent, as too many waited
        queue_full,
        /// ICMP messages not sent, as there were too many in short time
        rate_limited,
        /// Packets not sent, as their link was void
        stale_links,
    }
}

counters! {
    /// How often what happened to neighbours.
    pub struct NeighborStats {
        /// Neighbours learnt from their packets
        learnt,
        /// Neighbours whose link address changed
        moved,
        /// Neighbours asked again, as they were silent or seemed to have moved
        probes,
        /// Neighbours that did not answer
        failed,
        /// Neighbours given up for others
        evicted,
        /// Neighbours not taken, as the table was full
        table_full,
        /// ARP requests not sent, as too many waited
        requests_dropped,
    }
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

impl Stats {
    #[cold]
    fn count(&mut self, odd: Odd) {
        *match odd {
            Odd::Truncated => &mut self.truncated,
            Odd::NotOurs => &mut self.not_ours,
            Odd::BadSource => &mut self.bad_source,
            Odd::OtherEthertype => &mut self.other_ethertype,
            Odd::OtherProtocol => &mut self.other_protocol,
            Odd::BadHeader => &mut self.bad_header,
            Odd::BadChecksum => &mut self.bad_checksum,
            Odd::Fragment => &mut self.fragments,
            Odd::Options => &mut self.options,
            Odd::BadArp => &mut self.bad_arp,
            Odd::AddressConflict => &mut self.address_conflicts,
            Odd::IcmpIgnored => &mut self.icmp_ignored,
            Odd::QueueFull => &mut self.queue_full,
        } += 1;
    }
}

impl Default for Params {
    /// All but `mac` and `addresses`, which nobody can guess.
    fn default() -> Self {
        Self {
            leg: 0,
            first_own: 0,
            mac: [0; 6],
            addresses: Vec::new(),
            gateway: None,
            mtu: 1500,
            ip_protocol: 146,
            neighbors_max: 8192,
            arp_tries: 3,
            arp_delay: Duration::millis(20),
            reachable: Duration::secs(30),
            learn: true,
            announce: true,
            seed: 0,
        }
    }
}

impl Params {
    /// Smallest MTU. Source: RFC 791: every host must take datagrams of 576 bytes.
    pub const MTU_MIN: u16 = 576;

    /// Most addresses of our own that a [`LinkId`] can name.
    pub const ADDRESSES_LIMIT: usize = LinkId::LOOPBACKS as usize;

    /// Most neighbours that a [`LinkId`] can name; the last ones name our own addresses.
    pub const NEIGHBORS_LIMIT: usize = LinkId::INDEXES - LinkId::LOOPBACKS as usize;

    /// Tells what is wrong, and what would be right.
    pub fn validate(&self) -> Result<(), &'static str> {
        const ICMP: u8 = 1;
        let wrong = [
            (usize::from(self.leg) >= LinkId::LEGS, "leg: must be 0 to 3"),
            (
                !arp::is_station(self.mac),
                "mac: must be a NIC's own address, neither zero nor multicast",
            ),
            (
                self.addresses.is_empty()
                    || usize::from(self.first_own) + self.addresses.len() > Self::ADDRESSES_LIMIT,
                "addresses: must be 1 to 16, over all devices, such as 10.0.0.1/24",
            ),
            (
                !self.addresses.iter().all(Interface::is_valid),
                "addresses: each must be an IPv4 host's, with a prefix of 0 to 32 bits",
            ),
            (
                self.gateway
                    .is_some_and(|gateway| !self.is_neighbor(gateway)),
                "gateway: must be another host in the network of one of our addresses",
            ),
            (self.mtu < Self::MTU_MIN, "mtu: must be 576 or more"),
            (
                matches!(self.ip_protocol, 0 | ICMP),
                "ip_protocol: must be neither 0 nor ICMP's 1",
            ),
            (
                !(1..=Self::NEIGHBORS_LIMIT).contains(&self.neighbors_max),
                "neighbors_max: must be 1 to 16,368",
            ),
            (
                !(1..=16).contains(&self.arp_tries),
                "arp_tries: must be 1 to 16",
            ),
            (
                !(Duration::millis(1)..=Duration::secs(10)).contains(&self.arp_delay),
                "arp_delay: must be 1 ms to 10 s",
            ),
            (
                self.reachable < Duration::secs(1),
                "reachable: must be 1 s or more",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some(&(_, why)) => Err(why),
            None => Ok(()),
        }
    }

    fn is_neighbor(&self, ip: Ip) -> bool {
        let own = self.addresses.iter().any(|own| own.ip == ip);
        !own && self.addresses.iter().any(|own| own.reaches(ip))
    }
}
