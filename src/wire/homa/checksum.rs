//! The checksum in Homa's header, computed as if the packet were TCP.
//!
//! Needed where Homa travels as TCP, and to compare with captures. The Linux module does not look
//! at it in native packets, so ours carry 0.

use super::COMMON_LEN;
use crate::addr::Ip;

/// Where the checksum lies in the common header.
const CHECKSUM_AT: usize = 16;

/// The pseudo header's protocol, whatever the IP header says.
const TCP: u64 = 6;

/// Fills in the checksum of a whole packet, payload included.
///
/// Panics if the packet is shorter than the common header.
pub fn set_checksum(packet: &mut [u8], from: Ip, to: Ip) {
    packet[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    let checksum = !sum(packet, from, to);
    packet[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether the checksum is the one that [`set_checksum`] would fill in.
pub fn checksum_is_valid(packet: &[u8], from: Ip, to: Ip) -> bool {
    packet.len() >= COMMON_LEN && sum(packet, from, to) == 0xffff
}

/// One's complement sum of the pseudo header and the packet.
fn sum(packet: &[u8], from: Ip, to: Ip) -> u16 {
    let words = packet.chunks(2).map(|word| match *word {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [last] => u64::from(last) << 8,
        _ => 0,
    });
    let total =
        words.sum::<u64>() + address_sum(from) + address_sum(to) + TCP + packet.len() as u64;
    fold(total)
}

/// An IPv4 address counts as its 32 bits, without the prefix that maps it into IPv6.
fn address_sum(ip: Ip) -> u64 {
    fold128(ip.as_v4().map_or(ip.0, |v4| u128::from(v4.to_bits())))
}

fn fold128(number: u128) -> u64 {
    (0..8).map(|i| (number >> (16 * i)) as u64 & 0xffff).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
