//! ARP frames: found out and written.

use std::net::Ipv4Addr;

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
};

use super::template::ETHERNET_LEN;

/// Bytes of an ARP frame: 42, padded to the least that Ethernet carries, as not every NIC pads.
pub(super) const FRAME_LEN: usize = 60;

pub(super) const BROADCAST: [u8; 6] = [0xff; 6];

/// One ARP message, for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arp {
    pub(super) is_reply: bool,
    pub(super) sender_mac: [u8; 6],
    pub(super) sender_ip: Ipv4Addr,
    pub(super) target_mac: [u8; 6],
    pub(super) target_ip: Ipv4Addr,
}

impl Arp {
    /// Who has `target`? Or, asked for our own address, an announcement of it.
    pub(super) fn request(mac: [u8; 6], ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self {
            is_reply: false,
            sender_mac: mac,
            sender_ip: ip,
            target_mac: [0; 6],
            target_ip,
        }
    }

    /// The answer to `self`, a request for an address that `mac` has.
    pub(super) fn answer(&self, mac: [u8; 6]) -> Self {
        Self {
            is_reply: true,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Finds out what the payload of an Ethernet frame says; `None` if it makes no sense.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let packet = ArpPacket::new_checked(bytes).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let is_reply = match operation {
            ArpOperation::Request => false,
            ArpOperation::Reply => true,
            ArpOperation::Unknown(_) => return None,
        };
        is_station(source_hardware_addr.0).then_some(Self {
            is_reply,
            sender_mac: source_hardware_addr.0,
            sender_ip: source_protocol_addr,
            target_mac: target_hardware_addr.0,
            target_ip: target_protocol_addr,
        })
    }

    /// Writes the whole frame to the start of `out`.
    pub(super) fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..FRAME_LEN];
        out.fill(0);
        let to = if self.is_reply {
            self.target_mac
        } else {
            BROADCAST
        };
        let operation = if self.is_reply {
            ArpOperation::Reply
        } else {
            ArpOperation::Request
        };
        let mut frame = EthernetFrame::new_unchecked(&mut *out);
        frame.set_src_addr(EthernetAddress(self.sender_mac));
        frame.set_dst_addr(EthernetAddress(to));
        frame.set_ethertype(EthernetProtocol::Arp);
        let arp = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.sender_mac),
            source_protocol_addr: self.sender_ip,
            target_hardware_addr: EthernetAddress(self.target_mac),
            target_protocol_addr: self.target_ip,
        };
        arp.emit(&mut ArpPacket::new_unchecked(&mut out[ETHERNET_LEN..]));
    }
}

/// Whether a single NIC may have this link address.
pub(super) fn is_station(mac: [u8; 6]) -> bool {
    EthernetAddress(mac).is_unicast() && mac != [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_answer_survive_the_wire() {
        let (ours, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let request = Arp::request([2; 6], ours, theirs);
        let mut frame = [0xee; FRAME_LEN];
        request.emit(&mut frame);
        assert_eq!((&frame[..6], &frame[12..14]), (&BROADCAST[..], &[8, 6][..]));
        assert_eq!(Arp::parse(&frame[14..]), Some(request));
        let answer = request.answer([4; 6]);
        answer.emit(&mut frame);
        assert_eq!(&frame[..6], &[2; 6]);
        assert_eq!(Arp::parse(&frame[14..]), Some(answer));
        assert_eq!((answer.sender_ip, answer.target_ip), (theirs, ours));
    }

    #[test]
    fn what_is_cut_or_odd_is_no_arp() {
        let mut frame = [0; FRAME_LEN];
        Arp::request([2; 6], Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST).emit(&mut frame);
        let arp = &mut frame[14..42];
        for end in 0..arp.len() {
            assert_eq!(Arp::parse(&arp[..end]), None);
        }
        // Hardware type, protocol type, both lengths, operation, a multicast sender.
        for (at, value) in [(1, 6), (2, 9), (4, 7), (5, 5), (7, 3), (8, 1)] {
            let kept = std::mem::replace(&mut arp[at], value);
            assert_eq!(Arp::parse(arp), None, "byte {at}");
            arp[at] = kept;
        }
        assert!(Arp::parse(arp).is_some());
    }
}
