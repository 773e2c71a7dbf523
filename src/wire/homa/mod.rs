//! Homa's packets, as the Linux module HomaModule sends and takes them.
//!
//! All numbers are big-endian, all fields packed. The first 20 bytes lie over a TCP header, so that
//! NICs can segment and hash Homa as if it were TCP:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | source port |
//! | 2 | 2 | destination port |
//! | 4 | 4 | sequence: in DATA the message offset of the first byte, or stale; else 0 |
//! | 8 | 3 | ack: 0 |
//! | 11 | 1 | type |
//! | 12 | 1 | TCP data offset: 0xe0 in DATA, 0x50 in all others |
//! | 13 | 1 | TCP flags: SYN and RST, which no TCP would take for a connection |
//! | 14 | 2 | window: 0 |
//! | 16 | 2 | checksum, over a pseudo header that says TCP |
//! | 18 | 2 | urgent: 0xb97d marks Homa inside TCP |
//! | 20 | 8 | id of the RPC, as the sender knows it |
//!
//! A receiver looks at the ports, the type and the id only, and at the sequence where DATA says so:
//! with checksum or segmentation offload the rest may hold anything.
//!
//! Source: HomaModule homa_wire.h at 9edb958, and captures of it.

mod checksum;
mod control;
mod data;
#[cfg(test)]
mod tests;

use std::fmt;

pub use checksum::{checksum_is_valid, set_checksum};
pub use control::{Acks, Cutoffs, Grant, Resend};
pub use data::{Ack, DATA_LEN, Data, Placement};

/// Bytes of the header that all packets begin with. Those without a body are just this.
pub const COMMON_LEN: usize = 28;

/// Longest message, bytes. Source: HomaModule homa.h `HOMA_MAX_MESSAGE_LENGTH`.
pub const MAX_MESSAGE_LEN: u32 = 1_000_000;

/// Most acknowledgements in one ACK packet. Source: homa_wire.h `HOMA_MAX_ACKS_PER_PKT`.
pub const ACKS_MAX: usize = 5;

/// An RPC's number, as one of its two sides knows it: even at the client, one more at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcId(pub u64);

/// What every packet tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    pub sport: u16,
    /// 0 in FREEZE.
    pub dport: u16,
    /// As the packet's sender knows it; 0 in FREEZE.
    pub id: RpcId,
}

/// A packet's type and what that type tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Part of a message, with its bytes.
    Data(Data, &'a [u8]),
    /// More bytes may be sent.
    Grant(Grant),
    /// Bytes are missing.
    Resend(Resend),
    /// The sender knows nothing of this RPC.
    Unknown,
    /// The sender is alive, but has nothing to send yet.
    Busy,
    /// Which priorities the sender wants unscheduled bytes to have.
    Cutoffs(Cutoffs),
    /// Asks the receiver to freeze its trace, for debugging.
    Freeze,
    /// A server asks whether its response has arrived.
    NeedAck,
    /// The RPC in the common header is done, and so are these.
    Ack(Acks),
}

/// Why bytes are no Homa packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its type needs.
    Short,
    /// No type that we know.
    Type,
}

/// The type byte of each packet.
mod kind {
    pub(super) const DATA: u8 = 0x10;
    pub(super) const GRANT: u8 = 0x11;
    pub(super) const RESEND: u8 = 0x12;
    pub(super) const UNKNOWN: u8 = 0x13;
    pub(super) const BUSY: u8 = 0x14;
    pub(super) const CUTOFFS: u8 = 0x15;
    pub(super) const FREEZE: u8 = 0x16;
    pub(super) const NEED_ACK: u8 = 0x17;
    pub(super) const ACK: u8 = 0x18;
}

/// TCP data offset of packets without payload: five words, the high nibble's.
const CONTROL_DOFF: u8 = 0x50;

/// Finds out what `packet` is: a Homa packet as the IP header cut it, so without link padding.
///
/// Only structure is checked. What the numbers say may still be nonsense; see [`Data::fits`].
/// Longer packets than the type needs are taken, as the Linux module does.
#[inline]
pub fn parse(packet: &[u8]) -> Result<(Common, Packet<'_>), Malformed> {
    let (header, body) = packet
        .split_first_chunk::<COMMON_LEN>()
        .ok_or(Malformed::Short)?;
    let common = Common::parse(header);
    let packet = match header[11] {
        kind::DATA => {
            let (data, payload) = Data::parse(header, body)?;
            Packet::Data(data, payload)
        }
        kind::GRANT => Packet::Grant(Grant::parse(body)?),
        kind::RESEND => Packet::Resend(Resend::parse(body)?),
        kind::UNKNOWN => Packet::Unknown,
        kind::BUSY => Packet::Busy,
        kind::CUTOFFS => Packet::Cutoffs(Cutoffs::parse(body)?),
        kind::FREEZE => Packet::Freeze,
        kind::NEED_ACK => Packet::NeedAck,
        kind::ACK => Packet::Ack(Acks::parse(body)?),
        _ => return Err(Malformed::Type),
    };
    Ok((common, packet))
}

/// As [`parse`], for DATA only: what most packets are need not pass through [`Packet`], which is as
/// large as the largest of them. `None` for anything else, malformed or not.
#[inline]
pub fn parse_data(packet: &[u8]) -> Option<(Common, Data, &[u8])> {
    let (header, body) = packet.split_first_chunk::<COMMON_LEN>()?;
    if header[11] != kind::DATA {
        return None;
    }
    let (data, payload) = Data::parse(header, body).ok()?;
    Some((Common::parse(header), data, payload))
}

/// Writes a whole packet of any type to the start of `out`, and tells its length.
///
/// The checksum is left 0; see [`set_checksum`]. Panics if `out` is too short. DATA is better
/// written by [`Data::emit`], which lets the caller put the payload in place.
pub fn emit(common: &Common, packet: &Packet<'_>, out: &mut [u8]) -> usize {
    match packet {
        Packet::Data(data, payload) => {
            data.emit(common, out);
            out[DATA_LEN..DATA_LEN + payload.len()].copy_from_slice(payload);
            DATA_LEN + payload.len()
        }
        Packet::Grant(grant) => grant.emit(common, out),
        Packet::Resend(resend) => resend.emit(common, out),
        Packet::Unknown => emit_bare(common, kind::UNKNOWN, out),
        Packet::Busy => emit_bare(common, kind::BUSY, out),
        Packet::Cutoffs(cutoffs) => cutoffs.emit(common, out),
        Packet::Freeze => emit_bare(common, kind::FREEZE, out),
        Packet::NeedAck => emit_bare(common, kind::NEED_ACK, out),
        Packet::Ack(acks) => acks.emit(common, out),
    }
}

fn emit_bare(common: &Common, kind: u8, out: &mut [u8]) -> usize {
    common.emit(kind, CONTROL_DOFF, 0, front(out));
    COMMON_LEN
}

impl RpcId {
    #[inline]
    pub const fn is_client(self) -> bool {
        self.0 & 1 == 0
    }

    /// The same RPC's id as the other side knows it.
    #[inline]
    pub const fn peer_side(self) -> Self {
        Self(self.0 ^ 1)
    }
}

impl Common {
    #[inline]
    fn parse(header: &[u8; COMMON_LEN]) -> Self {
        Self {
            sport: be16(header, 0),
            dport: be16(header, 2),
            id: RpcId(be64(header, 20)),
        }
    }

    #[inline]
    fn emit(&self, kind: u8, doff: u8, sequence: u32, out: &mut [u8; COMMON_LEN]) {
        /// SYN and RST.
        const FLAGS: u8 = 0x06;
        /// Source: HomaModule homa_wire.h `HOMA_TCP_URGENT`.
        const URGENT: u16 = 0xb97d;

        *out = [0; COMMON_LEN];
        put16(out, 0, self.sport);
        put16(out, 2, self.dport);
        put32(out, 4, sequence);
        out[11] = kind;
        out[12] = doff;
        out[13] = FLAGS;
        put16(out, 18, URGENT);
        put64(out, 20, self.id.0);
    }
}

impl Packet<'_> {
    /// The type's name, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Data(..) => "DATA",
            Self::Grant(_) => "GRANT",
            Self::Resend(_) => "RESEND",
            Self::Unknown => "RPC_UNKNOWN",
            Self::Busy => "BUSY",
            Self::Cutoffs(_) => "CUTOFFS",
            Self::Freeze => "FREEZE",
            Self::NeedAck => "NEED_ACK",
            Self::Ack(_) => "ACK",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "packet shorter than its type needs",
            Self::Type => "unknown packet type",
        })
    }
}

impl std::error::Error for Malformed {}

/// The first `N` bytes of a slot that our own code sized.
#[inline]
fn front<const N: usize>(out: &mut [u8]) -> &mut [u8; N] {
    out.first_chunk_mut().expect("a slot holds any header")
}

/// The first `N` bytes of what was received, if there are that many.
#[inline]
fn take<const N: usize>(body: &[u8]) -> Result<&[u8; N], Malformed> {
    body.first_chunk().ok_or(Malformed::Short)
}

// Offsets are constants and lengths are types, so the compiler drops the bounds checks below.

#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

#[inline(always)]
fn put16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline(always)]
fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[inline(always)]
fn put64<const N: usize>(bytes: &mut [u8; N], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
