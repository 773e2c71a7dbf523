//! READ and WRITE.

use super::{Malformed, USER_HEAD_MAX, front_mut, le16, le32, le64, put16, put32, put64};

/// A copy of a request to read or write.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 8 | sequence within the slot, from 1; all copies of a request have the same |
/// | 40 | 2 | slot |
/// | 42 | 2 | bytes of the application's header, which follows at 64 |
/// | 44 | 4 | WRITE: bytes of data; READ: bytes wanted |
/// | 48 | 4 | WRITE: where data begins, a multiple of 8; READ: 0 |
/// | 52 | 4 | reserved for a check of the data: 0 |
/// | 56 | 2 | which copy this is, from 1 |
/// | 58 | 2 | segments of the data, to know only |
/// | 60 | 4 | ms that the client waits for it, 0 for ever |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoRequest {
    pub sequence: u64,
    pub slot: u16,
    pub user_len: u16,
    pub data_len: u32,
    pub attempt: u16,
    pub segments: u16,
    pub timeout_ms: u32,
}

/// The answer to one copy.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 8 | sequence |
/// | 40 | 2 | slot |
/// | 42 | 1 | outcome |
/// | 43 | 1 | bit 0: told again, the request ran before |
/// | 44 | 4 | status |
/// | 48 | 4 | READ: bytes of data; only if the status is 0 |
/// | 52 | 4 | where data begins: 64 if there is any |
/// | 56 | 4 | reserved for a check of the data: 0 |
/// | 60 | 4 | requests of the session that the server has not answered |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoResponse {
    pub sequence: u64,
    pub slot: u16,
    pub outcome: Outcome,
    pub is_replayed: bool,
    /// 0, or a negative errno: the handler's if it ran, else the server's.
    pub status: i32,
    pub data_len: u32,
    pub queued: u32,
}

/// What became of a request, or of this copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler ran; the status is its own.
    Executed,
    /// It did not run and never will.
    NotExecuted,
    /// A later request of the slot was here already.
    Stale,
    /// This copy was turned away. Another one may have run.
    Refused,
}

impl Outcome {
    const fn from_wire(outcome: u8) -> Option<Self> {
        Some(match outcome {
            0 => Self::Executed,
            1 => Self::NotExecuted,
            3 => Self::Stale,
            4 => Self::Refused,
            _ => return None,
        })
    }

    pub(super) const fn to_wire(self) -> u8 {
        match self {
            Self::Executed => 0,
            Self::NotExecuted => 1,
            Self::Stale => 3,
            Self::Refused => 4,
        }
    }
}

impl IoRequest {
    pub const LEN: usize = 64;

    /// Where the data of a WRITE begins whose application's header has that many bytes.
    pub const fn data_offset(user_len: u16) -> usize {
        (Self::LEN + user_len as usize).next_multiple_of(8)
    }

    pub(super) fn parse(
        header: &[u8; Self::LEN],
        message_len: u32,
        is_write: bool,
    ) -> Result<Self, Malformed> {
        let request = Self {
            sequence: le64(header, 32),
            slot: le16(header, 40),
            user_len: le16(header, 42),
            data_len: le32(header, 44),
            attempt: le16(header, 56),
            segments: le16(header, 58),
            timeout_ms: le32(header, 60),
        };
        // In 64 bits no sum of these overflows.
        let head_len = Self::LEN as u64 + u64::from(request.user_len);
        let (data_off, len) = (u64::from(le32(header, 48)), u64::from(message_len));
        let fits = match is_write {
            true => {
                data_off == Self::data_offset(request.user_len) as u64
                    && len == data_off + u64::from(request.data_len)
            }
            false => data_off == 0 && len == head_len,
        };
        if fits && head_len <= USER_HEAD_MAX as u64 {
            Ok(request)
        } else {
            Err(Malformed::Field)
        }
    }

    pub(super) fn emit(&self, header: &mut [u8], is_write: bool) {
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put64(header, 32, self.sequence);
        put16(header, 40, self.slot);
        put16(header, 42, self.user_len);
        put32(header, 44, self.data_len);
        if is_write {
            put32(header, 48, Self::data_offset(self.user_len) as u32);
        }
        put16(header, 56, self.attempt);
        put16(header, 58, self.segments);
        put32(header, 60, self.timeout_ms);
    }
}

impl IoResponse {
    pub const LEN: usize = 64;

    pub(super) fn parse(header: &[u8; Self::LEN], message_len: u32) -> Result<Self, Malformed> {
        let response = Self {
            sequence: le64(header, 32),
            slot: le16(header, 40),
            outcome: Outcome::from_wire(header[42]).ok_or(Malformed::Field)?,
            is_replayed: header[43] & 1 != 0,
            status: le32(header, 44) as i32,
            data_len: le32(header, 48),
            queued: le32(header, 60),
        };
        let has_data = response.data_len > 0;
        let data_off = if has_data { Self::LEN as u32 } else { 0 };
        let fits = le32(header, 52) == data_off
            && u64::from(message_len) == Self::LEN as u64 + u64::from(response.data_len)
            && !(has_data && (response.status != 0 || response.outcome != Outcome::Executed));
        if fits && response.status <= 0 {
            Ok(response)
        } else {
            Err(Malformed::Field)
        }
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put64(header, 32, self.sequence);
        put16(header, 40, self.slot);
        header[42] = self.outcome.to_wire();
        header[43] = u8::from(self.is_replayed);
        put32(header, 44, self.status as u32);
        put32(header, 48, self.data_len);
        if self.data_len > 0 {
            put32(header, 52, Self::LEN as u32);
        }
        put32(header, 60, self.queued);
    }
}
