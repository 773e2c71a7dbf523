//! The headers before a packet: read in one go, and written from a template made once per peer.
//!
//! Each packet passes here, so offsets are constants and lengths are types; smoltcp's views check
//! each field's bounds anew.

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

use std::net::Ipv4Addr;

use super::Odd;
use crate::addr::Ip;
use crate::device::{Checksums, TxMeta};

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
        let header = bytes.last_chunk().expect("the IPv4 header comes last");
        let sum = sum(header);
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

    /// Whether a frame that begins so comes back on the way that these headers lead: from their
    /// link and IP addresses to where they come from, without options.
    #[inline]
    pub(super) fn is_answered_by(&self, head: &[u8; HEADERS_LEN]) -> bool {
        const MAC: u64 = 0xffff_ffff_ffff;
        let differing = (le64(head, 0) ^ le64(&self.bytes, 6)) & MAC
            | (le64(head, 6) ^ le64(&self.bytes, 0)) & MAC
            // The ethertype, the version and the header's length.
            | (le64(head, 12) ^ le64(&self.bytes, 12)) & 0xff_ffff
            | le64(head, 26) ^ le64(&self.bytes, 26).rotate_left(32);
        differing == 0
    }

    /// Writes the headers of a packet of this length.
    #[inline(always)]
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

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ethernet {
    pub(super) to: [u8; 6],
    pub(super) from: [u8; 6],
    pub(super) ethertype: u16,
}

/// An IPv4 header and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ipv4<'f> {
    pub(super) from: Ip,
    pub(super) to: Ip,
    pub(super) protocol: u8,
    /// Without the frame's padding.
    pub(super) payload: &'f [u8],
}

impl Ethernet {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const ARP: u16 = 0x0806;

    #[inline]
    pub(super) fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Odd> {
        let (header, payload) = frame
            .split_first_chunk::<ETHERNET_LEN>()
            .ok_or(Odd::Truncated)?;
        let &[t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, high, low] = header;
        let header = Self {
            to: [t0, t1, t2, t3, t4, t5],
            from: [f0, f1, f2, f3, f4, f5],
            ethertype: u16::from_be_bytes([high, low]),
        };
        Ok((header, payload))
    }
}

impl<'f> Ipv4<'f> {
    /// Takes a whole packet without options, perhaps padded.
    #[inline]
    pub(super) fn parse(bytes: &'f [u8], checksums: Checksums) -> Result<Self, Odd> {
        const VERSION_AND_WORDS: u8 = 0x45;
        /// "More fragments" and the fragment's offset.
        const FRAGMENT: u16 = 0x3fff;

        let header = bytes.first_chunk::<IPV4_LEN>().ok_or(Odd::Truncated)?;
        match header[0] {
            VERSION_AND_WORDS => {}
            0x46..=0x4f => return Err(Odd::Options),
            _ => return Err(Odd::BadHeader),
        }
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let total = usize::from(word(2));
        if total < IPV4_LEN {
            return Err(Odd::BadHeader);
        }
        let payload = bytes.get(IPV4_LEN..total).ok_or(Odd::Truncated)?;
        let is_intact = match checksums {
            Checksums::Good => true,
            Checksums::Bad => false,
            Checksums::Unknown => sum(header) == 0xffff,
        };
        if !is_intact {
            return Err(Odd::BadChecksum);
        }
        if word(6) & FRAGMENT != 0 {
            return Err(Odd::Fragment);
        }
        let ip = |at: usize| Ip::v4(header[at], header[at + 1], header[at + 2], header[at + 3]);
        Ok(Self {
            from: ip(12),
            to: ip(16),
            protocol: header[9],
            payload,
        })
    }
}

/// The packet of an IPv4 frame whose header needs a look no closer than this: nothing is odd, and
/// it is of this protocol. `None` says only that a closer look is needed.
#[inline]
pub(super) fn plain_packet<'f>(
    frame: &'f [u8],
    head: &[u8; HEADERS_LEN],
    protocol: u8,
    checksums: Checksums,
) -> Option<&'f [u8]> {
    /// "More fragments", the fragment's offset, and the protocol.
    const FRAGMENT_AND_PROTOCOL: u32 = 0x3fff_00ff;

    let fields = u32::from_be_bytes([head[20], head[21], head[22], head[23]]);
    let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let is_plain = fields & FRAGMENT_AND_PROTOCOL == u32::from(protocol);
    let is_intact = match checksums {
        Checksums::Good => true,
        Checksums::Bad => false,
        Checksums::Unknown => is_intact(head),
    };
    if !is_plain || !is_intact {
        return None;
    }
    frame.get(HEADERS_LEN..ETHERNET_LEN + total)
}

/// Whether the IPv4 header's checksum is right. The sum may be taken in any byte order, and of
/// words of any length. Source: RFC 1071 section 2.
#[inline]
fn is_intact(head: &[u8; HEADERS_LEN]) -> bool {
    let low = |word: u64| word & 0xffff_ffff;
    let (a, b) = (le64(head, 14), le64(head, 22));
    // The last four bytes of the header are the upper half of the last word.
    let sum = low(a) + (a >> 32) + low(b) + (b >> 32) + (le64(head, 26) >> 32);
    let sum = low(sum) + (sum >> 32);
    fold((sum & 0xffff) as u32 + (sum >> 16) as u32) == 0xffff
}

/// Eight bytes at `at`.
#[inline]
fn le64(bytes: &[u8; HEADERS_LEN], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the headers go on so far"))
}

/// One's complement sum of an IPv4 header.
#[inline]
fn sum(header: &[u8; IPV4_LEN]) -> u16 {
    let words = (0..IPV4_LEN).step_by(2);
    fold(
        words
            .map(|at| u32::from(u16::from_be_bytes([header[at], header[at + 1]])))
            .sum(),
    )
}

#[inline]
const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of the other end, and one with any single bit of it wrong.
    #[test]
    fn a_frame_on_the_way_back_is_known_and_one_bit_makes_it_another() {
        let (near, far) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let ours = Template::new(([2; 6], [4; 6]), (near, far), 146);
        let theirs = Template::new(([4; 6], [2; 6]), (far, near), 146);
        let mut head = [0; HEADERS_LEN];
        theirs.write(&mut head, 5, 3);
        let mut frame = [0xee; HEADERS_LEN + 26];
        let mut known = |head: &[u8; HEADERS_LEN]| {
            frame[..HEADERS_LEN].copy_from_slice(head);
            let plain = plain_packet(&frame, head, 146, Checksums::Unknown);
            ours.is_answered_by(head) && plain == Some(&[0xee; 5])
        };
        assert!(known(&head));
        for bit in 0..HEADERS_LEN * 8 {
            let mut bent = head;
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!known(&bent), "bit {bit}");
        }
    }

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
            assert!(header.verify_checksum() && is_intact(&out), "{len}");
            assert_eq!(header.total_len(), len + 20);
            assert_eq!(header.dscp() << 2 | header.ecn(), (len as u8 & 7) << 5);
        }
    }
}
