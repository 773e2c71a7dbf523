//! The messages of multipath sessions, each of which is one Homa message: a header, and behind it
//! what the application said.
//!
//! All numbers are little-endian. Every header begins with 32 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | magic: 0x5248 |
//! | 2 | 1 | major version: 1 |
//! | 3 | 1 | type; a response has the top bit set |
//! | 4 | 2 | flags: bit 1 not the first copy, bit 2 idempotent, bit 3 the reply is kept |
//! | 6 | 2 | bytes of the header, these included |
//! | 8 | 8 | session, 0 in a request to open one |
//! | 16 | 2 | path within the session |
//! | 18 | 2 | lane: 0 |
//! | 20 | 4 | epoch: which attempt to open the path this belongs to |
//! | 24 | 4 | CRC-32C of the header with this field 0 |
//! | 28 | 4 | reserved: 0, not looked at |
//!
//! A receiver looks at a message by its head, the first [`HEAD_MAX`] bytes: what lies behind it
//! (names, entries, data) is read later, from where the message is.

mod admin;
mod crc;
mod io;
mod open;
mod resolve;
#[cfg(test)]
mod tests;

use std::fmt;

pub use admin::{Close, Heartbeat};
pub use io::{IoRequest, IoResponse, Outcome};
pub use open::{OpenRequest, OpenResponse};
pub use resolve::{ENTRIES_MAX, Entry, Resolve, SlotState, Verdict};

use crc::{STRIDE, crc32c};

/// Bytes that all headers begin with.
pub const COMMON_LEN: usize = 32;

/// The longest header.
pub const HEAD_MAX: usize = 128;

/// Header and the application's own header together.
pub const USER_HEAD_MAX: usize = 4096;

const MAGIC: u16 = 0x5248;
const MAJOR: u8 = 1;

/// The bit of a type that says "response".
const RESPONSE: u8 = 0x80;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    PathOpen,
    PathReady,
    Heartbeat,
    PathClose,
    SessionClose,
    SlotResolve,
    Read,
    Write,
}

/// What every message tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    pub flags: Flags,
    /// 0 in a [`Kind::PathOpen`] request.
    pub session: u64,
    pub path: u16,
    pub epoch: u32,
}

/// Bits of [`Common`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Another copy was sent before.
    pub is_retry: bool,
    /// The request may run again in a server that has lost its memory.
    pub is_idempotent: bool,
    /// The server keeps the data of the reply, so that a READ never runs twice.
    pub keeps_reply: bool,
}

/// A request, without what follows its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    PathOpen(OpenRequest),
    PathReady(Resolve),
    Heartbeat(Heartbeat),
    PathClose(Close),
    SessionClose(Close),
    SlotResolve(Resolve),
    Read(IoRequest),
    Write(IoRequest),
}

/// A response, without what follows its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    PathOpen(OpenResponse),
    PathReady(Resolve),
    Heartbeat(Heartbeat),
    PathClose(Close),
    SessionClose(Close),
    SlotResolve(Resolve),
    Read(IoResponse),
    Write(IoResponse),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its header.
    Short,
    /// Not of this protocol.
    Magic,
    /// Another major version.
    Version,
    /// No type that we know, or a response in the place of a request.
    Type,
    /// The header's length is not that of its type.
    HeaderLen,
    /// The header was damaged.
    Checksum,
    /// Lengths and places that contradict each other.
    Field,
}

impl Kind {
    const fn from_wire(kind: u8) -> Option<Self> {
        Some(match kind {
            0x01 => Self::PathOpen,
            0x02 => Self::PathReady,
            0x03 => Self::Heartbeat,
            0x04 => Self::PathClose,
            0x05 => Self::SessionClose,
            0x06 => Self::SlotResolve,
            0x10 => Self::Read,
            0x11 => Self::Write,
            _ => return None,
        })
    }

    const fn to_wire(self) -> u8 {
        match self {
            Self::PathOpen => 0x01,
            Self::PathReady => 0x02,
            Self::Heartbeat => 0x03,
            Self::PathClose => 0x04,
            Self::SessionClose => 0x05,
            Self::SlotResolve => 0x06,
            Self::Read => 0x10,
            Self::Write => 0x11,
        }
    }

    /// Bytes of the header, in either direction.
    const fn header_len(self) -> usize {
        match self {
            Self::PathOpen => OpenRequest::LEN,
            Self::PathReady | Self::SlotResolve => Resolve::LEN,
            Self::Heartbeat => Heartbeat::LEN,
            Self::PathClose | Self::SessionClose => Close::LEN,
            Self::Read | Self::Write => IoRequest::LEN,
        }
    }
}

const _: () = assert!(OpenRequest::LEN == OpenResponse::LEN && OpenRequest::LEN == HEAD_MAX);
const _: () = assert!(IoRequest::LEN == IoResponse::LEN);

impl Flags {
    const RETRY: u16 = 1 << 1;
    const IDEMPOTENT: u16 = 1 << 2;
    const ONCE: u16 = 1 << 3;

    const fn from_wire(bits: u16) -> Self {
        Self {
            is_retry: bits & Self::RETRY != 0,
            is_idempotent: bits & Self::IDEMPOTENT != 0,
            keeps_reply: bits & Self::ONCE != 0,
        }
    }

    fn to_wire(self) -> u16 {
        let bit = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        bit(self.is_retry, Self::RETRY)
            | bit(self.is_idempotent, Self::IDEMPOTENT)
            | bit(self.keeps_reply, Self::ONCE)
    }
}

/// Finds out what request the message of `len` bytes is that begins with `head`: all of it, or its
/// first [`HEAD_MAX`] bytes.
///
/// What it says fits the message; whether it makes sense here is for the session to say.
pub fn parse_request(head: &[u8], len: u32) -> Result<(Common, Request), Malformed> {
    let (common, kind, header) = parse_header(head, 0)?;
    let request = match kind {
        Kind::PathOpen => Request::PathOpen(OpenRequest::parse(front(header), len)?),
        Kind::PathReady => Request::PathReady(Resolve::parse(front(header), len, Entry::ASKED)?),
        Kind::SlotResolve => {
            Request::SlotResolve(Resolve::parse(front(header), len, Entry::ASKED)?)
        }
        Kind::Heartbeat => Request::Heartbeat(Heartbeat::parse(front(header))),
        Kind::PathClose => Request::PathClose(Close::parse(front(header))),
        Kind::SessionClose => Request::SessionClose(Close::parse(front(header))),
        Kind::Read => Request::Read(IoRequest::parse(front(header), len, false)?),
        Kind::Write => Request::Write(IoRequest::parse(front(header), len, true)?),
    };
    Ok((common, request))
}

/// As [`parse_request`], for a response.
pub fn parse_response(head: &[u8], len: u32) -> Result<(Common, Response), Malformed> {
    let (common, kind, header) = parse_header(head, RESPONSE)?;
    let response = match kind {
        Kind::PathOpen => Response::PathOpen(OpenResponse::parse(front(header))?),
        Kind::PathReady => {
            Response::PathReady(Resolve::parse(front(header), len, Entry::ANSWERED)?)
        }
        Kind::SlotResolve => {
            Response::SlotResolve(Resolve::parse(front(header), len, Entry::ANSWERED)?)
        }
        Kind::Heartbeat => Response::Heartbeat(Heartbeat::parse(front(header))),
        Kind::PathClose => Response::PathClose(Close::parse(front(header))),
        Kind::SessionClose => Response::SessionClose(Close::parse(front(header))),
        Kind::Read => Response::Read(IoResponse::parse(front(header), len)?),
        Kind::Write => Response::Write(IoResponse::parse(front(header), len)?),
    };
    Ok((common, response))
}

/// Checks what all headers have in common; gives the header's own bytes, of its type's length.
fn parse_header(head: &[u8], direction: u8) -> Result<(Common, Kind, &[u8]), Malformed> {
    let start: &[u8; COMMON_LEN] = head.first_chunk().ok_or(Malformed::Short)?;
    if le16(start, 0) != MAGIC {
        return Err(Malformed::Magic);
    }
    if start[2] != MAJOR {
        return Err(Malformed::Version);
    }
    if start[3] & RESPONSE != direction {
        return Err(Malformed::Type);
    }
    let kind = Kind::from_wire(start[3] & !RESPONSE).ok_or(Malformed::Type)?;
    let header_len = kind.header_len();
    if usize::from(le16(start, 6)) != header_len {
        return Err(Malformed::HeaderLen);
    }
    let header = head.get(..header_len).ok_or(Malformed::Short)?;
    if le32(start, CRC_AT) != header_crc(header) {
        return Err(Malformed::Checksum);
    }
    let common = Common {
        flags: Flags::from_wire(le16(start, 4)),
        session: le64(start, 8),
        path: le16(start, 16),
        epoch: le32(start, 20),
    };
    Ok((common, kind, header))
}

/// Where the header's check lies.
const CRC_AT: usize = 24;

fn header_crc(header: &[u8]) -> u32 {
    /// The check itself counts as 0.
    const MASK: u128 = !(u32::MAX as u128).rotate_left(8 * (CRC_AT % STRIDE) as u32);

    let (pieces, _) = header.as_chunks();
    let pieces = pieces.iter().enumerate().map(|(nth, &piece)| {
        let mask = if nth == CRC_AT / STRIDE { MASK } else { !0 };
        u128::from_le_bytes(piece) & mask
    });
    crc32c(pieces)
}

const _: () = assert!(IoRequest::LEN.is_multiple_of(STRIDE) && HEAD_MAX.is_multiple_of(STRIDE));
const _: () = assert!(Close::LEN.is_multiple_of(STRIDE) && Resolve::LEN.is_multiple_of(STRIDE));

impl Request {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::PathOpen(_) => Kind::PathOpen,
            Self::PathReady(_) => Kind::PathReady,
            Self::Heartbeat(_) => Kind::Heartbeat,
            Self::PathClose(_) => Kind::PathClose,
            Self::SessionClose(_) => Kind::SessionClose,
            Self::SlotResolve(_) => Kind::SlotResolve,
            Self::Read(_) => Kind::Read,
            Self::Write(_) => Kind::Write,
        }
    }

    /// Writes the header to the start of `out`, and tells its length. What belongs behind it is
    /// the caller's to write. Panics if `out` is too short.
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let header = begin(common, self.kind(), 0, out);
        match self {
            Self::PathOpen(open) => open.emit(header),
            Self::PathReady(list) | Self::SlotResolve(list) => list.emit(header),
            Self::Heartbeat(beat) => beat.emit(header),
            Self::PathClose(close) | Self::SessionClose(close) => close.emit(header),
            Self::Read(io) => io.emit(header, false),
            Self::Write(io) => io.emit(header, true),
        }
        finish(header)
    }
}

impl Response {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::PathOpen(_) => Kind::PathOpen,
            Self::PathReady(_) => Kind::PathReady,
            Self::Heartbeat(_) => Kind::Heartbeat,
            Self::PathClose(_) => Kind::PathClose,
            Self::SessionClose(_) => Kind::SessionClose,
            Self::SlotResolve(_) => Kind::SlotResolve,
            Self::Read(_) => Kind::Read,
            Self::Write(_) => Kind::Write,
        }
    }

    /// As [`Request::emit`].
    pub fn emit(&self, common: &Common, out: &mut [u8]) -> usize {
        let header = begin(common, self.kind(), RESPONSE, out);
        match self {
            Self::PathOpen(open) => open.emit(header),
            Self::PathReady(list) | Self::SlotResolve(list) => list.emit(header),
            Self::Heartbeat(beat) => beat.emit(header),
            Self::PathClose(close) | Self::SessionClose(close) => close.emit(header),
            Self::Read(io) | Self::Write(io) => io.emit(header),
        }
        finish(header)
    }
}

/// Writes what all headers begin with; the rest of the header is zero.
fn begin<'o>(common: &Common, kind: Kind, direction: u8, out: &'o mut [u8]) -> &'o mut [u8] {
    let header = &mut out[..kind.header_len()];
    header.fill(0);
    let start: &mut [u8; COMMON_LEN] = front_mut(header);
    put16(start, 0, MAGIC);
    start[2] = MAJOR;
    start[3] = kind.to_wire() | direction;
    put16(start, 4, common.flags.to_wire());
    put16(start, 6, kind.header_len() as u16);
    put64(start, 8, common.session);
    put16(start, 16, common.path);
    put32(start, 20, common.epoch);
    header
}

fn finish(header: &mut [u8]) -> usize {
    let crc = header_crc(header);
    put32(front_mut::<COMMON_LEN>(header), CRC_AT, crc);
    header.len()
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "message shorter than its header",
            Self::Magic => "no session message",
            Self::Version => "another major version of the session protocol",
            Self::Type => "unknown message type",
            Self::HeaderLen => "header length that is not its type's",
            Self::Checksum => "damaged header",
            Self::Field => "lengths that contradict each other",
        })
    }
}

impl std::error::Error for Malformed {}

/// The first `N` bytes of a header whose length was checked.
fn front<const N: usize>(header: &[u8]) -> &[u8; N] {
    header
        .first_chunk()
        .expect("a header has its type's length")
}

fn front_mut<const N: usize>(header: &mut [u8]) -> &mut [u8; N] {
    header
        .first_chunk_mut()
        .expect("a header has its type's length")
}

fn le16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}

fn le64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

fn le128<const N: usize>(bytes: &[u8; N], at: usize) -> u128 {
    u128::from(le64(bytes, at)) | u128::from(le64(bytes, at + 8)) << 64
}

fn put16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64<const N: usize>(bytes: &mut [u8; N], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn put128<const N: usize>(bytes: &mut [u8; N], at: usize, value: u128) {
    bytes[at..at + 16].copy_from_slice(&value.to_le_bytes());
}
