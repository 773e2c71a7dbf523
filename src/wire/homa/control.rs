//! Packets without payload. Those with nothing but a type have no struct of their own.

use arrayvec::ArrayVec;

use super::{
    ACKS_MAX, Ack, COMMON_LEN, CONTROL_DOFF, Common, Malformed, RpcId, be16, be32, be64, front,
    kind, put16, put32, put64, take,
};

/// "Send up to here."
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 28 | 4 | offset |
/// | 32 | 1 | priority |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// End of what may be sent, from the message's start; the byte at it may not.
    pub offset: u32,
    /// For all DATA of the message from now on.
    pub priority: u8,
}

/// "Send this again."
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 28 | 4 | offset |
/// | 32 | 4 | length, or all ones |
/// | 36 | 1 | priority |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend {
    pub offset: u32,
    /// `None` if nothing has arrived, so that the length is unknown: all that was sent.
    pub length: Option<u32>,
    pub priority: u8,
}

/// "Give your unscheduled bytes to me these priorities."
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 28 | 8 x 4 | cutoffs, of priority 0 first |
/// | 60 | 2 | version |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoffs {
    /// Longest message, in bytes, that may use each priority; the highest that fits is used.
    pub unsched_cutoffs: [u32; 8],
    /// Comes back in DATA. Never 0, which there means "none seen".
    pub version: u16,
}

/// "I have these responses, forget the RPCs."
///
/// The RPC in the common header is meant too, so an empty list is normal.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 28 | 2 | how many |
/// | 30 | 5 x 10 | client id, server port; unused ones may be stale |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acks(pub ArrayVec<Ack, ACKS_MAX>);

impl Grant {
    pub const LEN: usize = COMMON_LEN + 5;

    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let body = take::<{ Self::LEN - COMMON_LEN }>(body)?;
        let (offset, priority) = (be32(body, 0), body[4]);
        Ok(Self { offset, priority })
    }

    /// Writes the packet to the start of `out`, and tells its length.
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let out: &mut [u8; Self::LEN] = front(out);
        common.emit(kind::GRANT, CONTROL_DOFF, 0, front(out));
        put32(out, 28, self.offset);
        out[32] = self.priority;
        Self::LEN
    }
}

impl Resend {
    pub const LEN: usize = COMMON_LEN + 9;

    /// The length that stands for `None`.
    const EVERYTHING: u32 = u32::MAX;

    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let body = take::<{ Self::LEN - COMMON_LEN }>(body)?;
        let length = be32(body, 4);
        Ok(Self {
            offset: be32(body, 0),
            length: (length != Self::EVERYTHING).then_some(length),
            priority: body[8],
        })
    }

    /// Writes the packet to the start of `out`, and tells its length.
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let out: &mut [u8; Self::LEN] = front(out);
        common.emit(kind::RESEND, CONTROL_DOFF, 0, front(out));
        put32(out, 28, self.offset);
        put32(out, 32, self.length.unwrap_or(Self::EVERYTHING));
        out[36] = self.priority;
        Self::LEN
    }
}

impl Cutoffs {
    pub const LEN: usize = COMMON_LEN + 34;

    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let body = take::<{ Self::LEN - COMMON_LEN }>(body)?;
        Ok(Self {
            unsched_cutoffs: std::array::from_fn(|priority| be32(body, 4 * priority)),
            version: be16(body, 32),
        })
    }

    /// Writes the packet to the start of `out`, and tells its length.
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let out: &mut [u8; Self::LEN] = front(out);
        common.emit(kind::CUTOFFS, CONTROL_DOFF, 0, front(out));
        for (priority, &cutoff) in self.unsched_cutoffs.iter().enumerate() {
            put32(out, 28 + 4 * priority, cutoff);
        }
        put16(out, 60, self.version);
        Self::LEN
    }
}

impl Acks {
    /// However many it holds.
    pub const LEN: usize = COMMON_LEN + 2 + ACKS_MAX * 10;

    pub(super) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let body = take::<{ Self::LEN - COMMON_LEN }>(body)?;
        // Who claims more means at least those that are here. Rule IN-59.
        let count = usize::from(be16(body, 0)).min(ACKS_MAX);
        let ack = |i: usize| Ack {
            client_id: RpcId(be64(body, 2 + 10 * i)),
            server_port: be16(body, 10 + 10 * i),
        };
        Ok(Self((0..count).map(ack).collect()))
    }

    /// Writes the packet to the start of `out`, and tells its length.
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let out: &mut [u8; Self::LEN] = front(out);
        common.emit(kind::ACK, CONTROL_DOFF, 0, front(out));
        out[COMMON_LEN..].fill(0);
        put16(out, 28, self.0.len() as u16); // At most ACKS_MAX.
        for (i, ack) in self.0.iter().enumerate() {
            put64(out, 30 + 10 * i, ack.client_id.0);
            put16(out, 38 + 10 * i, ack.server_port);
        }
        Self::LEN
    }
}

// Source: HomaModule homa_wire.h, sizes of `homa_grant_hdr`, `homa_resend_hdr`, `homa_cutoffs_hdr`
// and `homa_ack_hdr`.
const _: () = assert!(Grant::LEN == 33 && Resend::LEN == 37);
const _: () = assert!(Cutoffs::LEN == 62 && Acks::LEN == 80);
