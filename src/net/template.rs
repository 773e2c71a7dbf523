//! The headers before a packet, made once per peer.

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

use std::net::Ipv4Addr;

use crate::addr::Ip;
use crate::device::TxMeta;

pub(super) const ETHERNET_LEN: usize = 14;
pub(super) const IPV4_LEN: usize = 20;

/// Bytes of all headers before the packet.
pub(super) const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_LEN;

/// Source: RFC 1700; what Linux sends.
const HOP_LIMIT: u8 = 64;

/// Ethernet and IPv4 headers in which just length, priority and checksum are missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    bytes: [u8; HEADERS_LEN],
    /// One's complement sum of the IPv4 header as it lies here.
    sum: u16,
}

impl Template {
    pub(super) fn new(link: ([u8; 6], [u8; 6]), ip: (Ipv4Addr, Ipv4Addr), protocol: u8) -> Self {
        let mut bytes = [0; HEADERS_LEN];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
        frame.set_src_addr(EthernetAddress(link.0));
        frame.set_dst_addr(EthernetAddress(link.1));
        frame.set_ethertype(EthernetProtocol::Ipv4);
        let mut header = Ipv4Packet::new_unchecked(frame.payload_mut());
        header.set_version(4);
        header.set_header_len(IPV4_LEN as u8);
        header.set_dont_frag(true);
        header.set_hop_limit(HOP_LIMIT);
        header.set_next_header(IpProtocol::from(protocol));
        header.set_src_addr(ip.0);
        header.set_dst_addr(ip.1);
        let words = bytes[ETHERNET_LEN..].chunks_exact(2);
        let sum = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = fold(sum.sum());
        Self { bytes, sum }
    }

    /// Where frames with these headers go.
    #[inline]
    pub(super) fn mac(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.bytes;
        [a, b, c, d, e, f]
    }

    pub(super) fn set_mac(&mut self, mac: [u8; 6]) {
        self.bytes[..6].copy_from_slice(&mac);
    }

    /// Whether packets with these headers go to this peer at this link address.
    #[inline]
    pub(super) fn is_for(&self, peer: Ip, mac: [u8; 6]) -> bool {
        let [.., a, b, c, d] = self.bytes;
        Ip::v4(a, b, c, d) == peer && self.mac() == mac
    }

    /// Writes the headers of a packet of this length.
    #[inline]
    pub(super) fn write(&self, out: &mut [u8; HEADERS_LEN], packet_len: u16, priority: u8) {
        const TOS_AT: usize = ETHERNET_LEN + 1;
        const TOTAL_AT: usize = ETHERNET_LEN + 2;
        const CHECKSUM_AT: usize = ETHERNET_LEN + 10;

        let tos = (priority & 7) << 5;
        let total = IPV4_LEN as u16 + packet_len;
        // The type of service is the low byte of the header's first word.
        let checksum = !fold(u32::from(self.sum) + u32::from(tos) + u32::from(total));
        *out = self.bytes;
        out[TOS_AT] = tos;
        out[TOTAL_AT..TOTAL_AT + 2].copy_from_slice(&total.to_be_bytes());
        out[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// What a device needs to know of frames with these headers.
    #[inline]
    pub(super) const fn tx_meta(priority: u8) -> TxMeta {
        TxMeta {
            l2_len: ETHERNET_LEN as u8,
            l3_len: IPV4_LEN as u8,
            priority,
        }
    }
}

#[inline]
const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All priorities, and lengths around every carry of the sum.
    #[test]
    fn the_checksum_is_right_for_every_length_and_priority() {
        let (from, to) = (
            Ipv4Addr::new(255, 255, 255, 254),
            Ipv4Addr::new(10, 0, 0, 1),
        );
        let template = Template::new(([2; 6], [4; 6]), (from, to), 146);
        let mut out = [0xee; HEADERS_LEN];
        for len in 0..=u16::MAX - 20 {
            template.write(&mut out, len, len as u8 & 7);
            let header = Ipv4Packet::new_unchecked(&out[ETHERNET_LEN..]);
            assert!(header.verify_checksum(), "{len}");
            assert_eq!(header.total_len(), len + 20);
            assert_eq!(header.dscp() << 2 | header.ecn(), (len as u8 & 7) << 5);
        }
    }
}
