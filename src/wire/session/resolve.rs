//! What became of requests that nobody answered.

use super::{Malformed, Outcome, front_mut, le16, le32, le64, put16, put32, put64};

/// Most entries of one message. Source: 65,535 slots of 24 bytes would pass the longest message.
pub const ENTRIES_MAX: u32 = 4096;

/// A list of slots, asked about or answered. Asking fences: what has not begun by then never will.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 4 | status |
/// | 36 | 4 | entries, which follow at 48 |
/// | 40 | 4 | receive pages that the client has, to know only |
/// | 44 | 4 | bit 0: fence |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolve {
    pub status: i32,
    pub count: u32,
    pub pages: u32,
}

/// One request: of 16 bytes when asked, of 24 when answered.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 2 | slot |
/// | 2 | 1 | answered: state |
/// | 3 | 1 | answered: outcome |
/// | 4 | 4 | answered: status |
/// | 8 | 8 | sequence |
/// | 16 | 4 | answered: bytes of data |
/// | 20 | 4 | reserved: 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub slot: u16,
    pub sequence: u64,
}

/// What the server knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// It did not run, and from now on never will.
    NotExecuted,
    /// Its handler runs.
    InProgress,
    /// Its handler ended with this status.
    Done { status: i32 },
    /// A later one was here.
    Stale,
    /// A READ that ran and whose data is gone: ask for it again.
    DoneNoData,
}

/// An entry of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub slot: u16,
    pub sequence: u64,
    pub state: SlotState,
}

impl Resolve {
    pub const LEN: usize = 48;

    /// Bytes of a message with that many entries of `entry_len` bytes.
    pub const fn message_len(count: u32, entry_len: usize) -> usize {
        Self::LEN + count as usize * entry_len
    }

    pub(super) fn parse(
        header: &[u8; Self::LEN],
        message_len: u32,
        entry_len: usize,
    ) -> Result<Self, Malformed> {
        let list = Self {
            status: le32(header, 32) as i32,
            count: le32(header, 36),
            pages: le32(header, 40),
        };
        let fits = list.count <= ENTRIES_MAX
            && Self::message_len(list.count, entry_len) == message_len as usize;
        if fits {
            Ok(list)
        } else {
            Err(Malformed::Field)
        }
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        const FENCE: u32 = 1;
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put32(header, 32, self.status as u32);
        put32(header, 36, self.count);
        put32(header, 40, self.pages);
        put32(header, 44, FENCE);
    }
}

impl Entry {
    /// Bytes of an entry in a request.
    pub const ASKED: usize = 16;
    /// Bytes of an entry in a response.
    pub const ANSWERED: usize = 24;

    pub fn parse(bytes: &[u8; Self::ASKED]) -> Self {
        Self {
            slot: le16(bytes, 0),
            sequence: le64(bytes, 8),
        }
    }

    pub fn emit(&self, out: &mut [u8; Self::ASKED]) {
        out.fill(0);
        put16(out, 0, self.slot);
        put64(out, 8, self.sequence);
    }
}

impl Verdict {
    pub fn parse(bytes: &[u8; Entry::ANSWERED]) -> Result<Self, Malformed> {
        let status = le32(bytes, 4) as i32;
        let state = match bytes[2] {
            0 => SlotState::NotExecuted,
            1 => SlotState::InProgress,
            2 if status <= 0 => SlotState::Done { status },
            3 => SlotState::Stale,
            4 => SlotState::DoneNoData,
            _ => return Err(Malformed::Field),
        };
        Ok(Self {
            slot: le16(bytes, 0),
            sequence: le64(bytes, 8),
            state,
        })
    }

    pub fn emit(&self, out: &mut [u8; Entry::ANSWERED]) {
        let (state, outcome, status) = match self.state {
            SlotState::NotExecuted => (0, Outcome::NotExecuted, 0),
            SlotState::InProgress => (1, Outcome::Refused, 0),
            SlotState::Done { status } => (2, Outcome::Executed, status),
            SlotState::Stale => (3, Outcome::Stale, 0),
            SlotState::DoneNoData => (4, Outcome::Executed, 0),
        };
        out.fill(0);
        put16(out, 0, self.slot);
        out[2] = state;
        out[3] = outcome.to_wire();
        put32(out, 4, status as u32);
        put64(out, 8, self.sequence);
    }
}
