//! Message channels: what stands before each message of a stream socket, and alone in the answers.
//!
//! A channel is a pair of sockets that send each other messages in order, each of them as a Homa
//! request. All numbers are big-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 6 | magic: tells channel messages from datagrams, with which they share the ports |
//! | 6 | 1 | version: 1 |
//! | 7 | 1 | kind |
//! | 8 | 8 | channel, a number drawn by who opened it |
//! | 16 | 8 | sequence: the message's own, or in an answer that of the message it answers |
//! | 24 | 8 | credit: all messages before this sequence were popped |
//! | 32 | 8 | credit: bytes popped so far |
//!
//! Source: ours; nobody else speaks this.

/// Bytes of the header.
pub const HEADER_LEN: usize = 40;

/// No text and no number in use begins like this.
const MAGIC: [u8; 6] = [0x8d, b'C', b'H', b'A', b'N', 0x0d];

const VERSION: u8 = 1;

/// What every channel message tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub channel: u64,
    pub sequence: u64,
    pub credit: Credit,
}

/// What the sender of this has popped, since the channel began. It only grows, so that a late or
/// doubled one does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// All messages before this sequence.
    pub sequence: u64,
    pub bytes: u64,
}

/// What a message is for. The first seven are requests; of them `Data` to `Fin` are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks a listening socket for a channel.
    Open = 1,
    /// A message's bytes follow.
    Data,
    /// The first bytes of the next message follow, as header and bytes together would be longer
    /// than Homa's longest message. They come first, since a receiver short of pages may have none
    /// for them once it has the others.
    Head,
    /// The other bytes follow.
    Body,
    /// Nothing comes after this.
    Fin,
    /// Tells the credit, or asks for a sign of life.
    Note,
    /// The channel is gone.
    Reset,
    /// An answer: it arrived, and all before it.
    Ack,
    /// An answer: not now, send it again later.
    Again,
    /// An answer to `Open`: nobody listens.
    Refused,
}

/// Why bytes are no channel message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Something else than a channel message, as datagrams are.
    Stranger,
    /// Shorter than the header, or of no kind that we know.
    Odd,
    /// A version that we do not speak.
    Version,
}

/// Whether a message that begins with these bytes is a channel's.
#[inline]
pub fn is_channel(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Open,
        Self::Data,
        Self::Head,
        Self::Body,
        Self::Fin,
        Self::Note,
        Self::Reset,
        Self::Ack,
        Self::Again,
        Self::Refused,
    ];
}

impl Header {
    /// Reads a header at the start of a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if !is_channel(bytes) {
            return Err(Malformed::Stranger);
        }
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::Odd)?;
        if bytes[6] != VERSION {
            return Err(Malformed::Version);
        }
        let kind = Kind::ALL.into_iter().find(|&kind| kind as u8 == bytes[7]);
        Ok(Self {
            kind: kind.ok_or(Malformed::Odd)?,
            channel: be64(bytes, 8),
            sequence: be64(bytes, 16),
            credit: Credit {
                sequence: be64(bytes, 24),
                bytes: be64(bytes, 32),
            },
        })
    }

    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..6].copy_from_slice(&MAGIC);
        out[6] = VERSION;
        out[7] = self.kind as u8;
        let numbers = [
            self.channel,
            self.sequence,
            self.credit.sequence,
            self.credit.bytes,
        ];
        for (field, number) in out[8..].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        out
    }
}

fn be64(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind) -> Header {
        Header {
            kind,
            channel: 0x0102_0304_0506_0708,
            sequence: u64::MAX,
            credit: Credit {
                sequence: 3,
                bytes: 1 << 40,
            },
        }
    }

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let bytes = header(kind).emit();
            assert_eq!(usize::from(bytes[7]), at + 1);
            assert_eq!(Header::parse(&bytes), Ok(header(kind)));
            let longer = [&bytes[..], b"payload"].concat();
            assert_eq!(Header::parse(&longer), Ok(header(kind)));
        }
    }

    #[test]
    fn every_shorter_length_is_refused() {
        let bytes = header(Kind::Data).emit();
        for len in 0..MAGIC.len() {
            assert_eq!(Header::parse(&bytes[..len]), Err(Malformed::Stranger));
        }
        for len in MAGIC.len()..HEADER_LEN {
            assert_eq!(Header::parse(&bytes[..len]), Err(Malformed::Odd));
        }
    }

    #[test]
    fn other_magics_versions_and_kinds_are_told_apart() {
        let with = |at: usize, byte: u8| {
            let mut bytes = header(Kind::Note).emit();
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        for at in 0..MAGIC.len() {
            assert_eq!(with(at, 0), Err(Malformed::Stranger));
        }
        assert_eq!(with(6, 0), Err(Malformed::Version));
        assert_eq!(with(6, 2), Err(Malformed::Version));
        for kind in [0, 11, 255] {
            assert_eq!(with(7, kind), Err(Malformed::Odd));
        }
    }

    /// The layout that the table above tells.
    #[test]
    fn the_bytes_lie_where_the_table_says() {
        let bytes = header(Kind::Open).emit();
        assert_eq!(&bytes[..8], b"\x8dCHAN\r\x01\x01");
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [255; 8]);
        assert_eq!(bytes[24..32], [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(bytes[32..40], [0, 0, 1, 0, 0, 0, 0, 0]);
    }
}
