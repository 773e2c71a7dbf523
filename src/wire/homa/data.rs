//! DATA: part of a message.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 28 | 4 | message length |
//! | 32 | 4 | incoming |
//! | 36 | 10 | ack: client id (0: none), server port |
//! | 46 | 2 | version of the receiver's cutoffs that the sender uses |
//! | 48 | 1 | retransmit |
//! | 49 | 1 | 1: empty reply (padding to the Linux module) |
//! | 50 | 2 | life of the sender (padding to the Linux module) |
//! | 52 | 4 | segment offset: the payload's place, or all ones: see the sequence |
//! | 56 | | payload, to the end of the IP packet |

use super::{
    COMMON_LEN, Common, MAX_MESSAGE_LEN, Malformed, RpcId, be16, be32, be64, front, kind, put16,
    put32, put64, take,
};

/// Bytes before the payload of a DATA packet.
pub const DATA_LEN: usize = 56;

const BODY_LEN: usize = DATA_LEN - COMMON_LEN;

/// TCP data offset: 14 words, the high nibble's.
const DOFF: u8 = 0xe0;

/// Segment offset that refers to the sequence.
const IN_SEQUENCE: u32 = u32::MAX;

/// The header of a DATA packet, the common part aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Bytes of the whole message.
    pub message_length: u32,
    /// How many of the message's bytes will come without a further grant.
    pub incoming: u32,
    /// An RPC that the sender has the whole response of.
    pub ack: Option<Ack>,
    /// Which of the receiver's CUTOFFS the sender goes by; 0 before the first.
    pub cutoff_version: u16,
    pub retransmit: bool,
    /// The one byte of payload stands for none at all.
    ///
    /// Homa has no empty messages. The Linux module sends 0 and ignores it.
    pub empty_reply: bool,
    /// A number that the sender drew when it started, so that bytes of another life of its are not
    /// taken for the rest of a message.
    ///
    /// 0: none. The Linux module sends 0 and ignores it.
    pub life: u16,
    /// Where in the message the payload belongs.
    pub offset: u32,
    pub placement: Placement,
}

/// Which field says where the payload belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The TCP sequence number, which a segmenting NIC keeps right.
    InSequence,
    /// The segment offset. Retransmissions, and segments that Linux cut in software, have it; their
    /// sequence may be stale.
    Explicit,
}

/// Tells a server that it may forget an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    pub client_id: RpcId,
    pub server_port: u16,
}

impl Data {
    #[inline]
    pub(super) fn parse<'a>(
        header: &[u8; COMMON_LEN],
        body: &'a [u8],
    ) -> Result<(Self, &'a [u8]), Malformed> {
        let fields = take::<BODY_LEN>(body)?;
        let (offset, placement) = match be32(fields, 24) {
            IN_SEQUENCE => (be32(header, 4), Placement::InSequence),
            offset => (offset, Placement::Explicit),
        };
        let ack = Ack {
            client_id: RpcId(be64(fields, 8)),
            server_port: be16(fields, 16),
        };
        let data = Self {
            message_length: be32(fields, 0),
            incoming: be32(fields, 4),
            ack: (ack.client_id.0 != 0).then_some(ack),
            cutoff_version: be16(fields, 18),
            retransmit: fields[20] != 0,
            empty_reply: fields[21] == 1,
            life: be16(fields, 22),
            offset,
            placement,
        };
        Ok((data, &body[BODY_LEN..]))
    }

    /// Writes the header, [`DATA_LEN`] bytes, to the start of `out`. The payload follows it and is
    /// the caller's to write; so is the checksum, left 0 here.
    #[inline]
    pub fn emit(&self, common: &Common, out: &mut [u8]) {
        let out: &mut [u8; DATA_LEN] = front(out);
        common.emit(kind::DATA, DOFF, self.offset, front(out));
        let segment_offset = match self.placement {
            Placement::InSequence => IN_SEQUENCE,
            Placement::Explicit => self.offset,
        };
        let (ack_id, ack_port) = match self.ack {
            Some(ack) => (ack.client_id.0, ack.server_port),
            None => (0, 0),
        };
        put32(out, 28, self.message_length);
        put32(out, 32, self.incoming);
        put64(out, 36, ack_id);
        put16(out, 44, ack_port);
        put16(out, 46, self.cutoff_version);
        out[48] = u8::from(self.retransmit);
        out[49] = u8::from(self.empty_reply);
        put16(out, 50, self.life);
        put32(out, 52, segment_offset);
    }

    /// Whether a payload of this length makes sense: some bytes, all of them inside a message of a
    /// length that Homa allows.
    #[inline]
    pub fn fits(&self, payload_len: usize) -> bool {
        let end = u64::from(self.offset).checked_add(payload_len as u64);
        payload_len > 0
            && self.message_length <= MAX_MESSAGE_LEN
            && end.is_some_and(|end| end <= u64::from(self.message_length))
    }
}
