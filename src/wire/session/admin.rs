//! Signs of life, and farewells.

use super::{front_mut, le32, le64, put32, put64};

/// "Are you there?", and "yes".
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 8 | the client's clock, ns; comes back |
/// | 40 | 4 | which heartbeat; comes back |
/// | 44 | 4 | requests that the sender has not ended |
/// | 48 | 4 | status, in the response |
/// | 52 | 12 | reserved: 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    pub at_ns: u64,
    pub count: u32,
    pub inflight: u32,
    pub status: i32,
}

/// "This path, or this session, is over."
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 4 | why; in the response: status |
/// | 36 | 12 | reserved: 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Close {
    pub status: i32,
}

impl Heartbeat {
    pub const LEN: usize = 64;

    pub(super) fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            at_ns: le64(header, 32),
            count: le32(header, 40),
            inflight: le32(header, 44),
            status: le32(header, 48) as i32,
        }
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put64(header, 32, self.at_ns);
        put32(header, 40, self.count);
        put32(header, 44, self.inflight);
        put32(header, 48, self.status as u32);
    }
}

impl Close {
    pub const LEN: usize = 48;

    pub(super) fn parse(header: &[u8; Self::LEN]) -> Self {
        Self {
            status: le32(header, 32) as i32,
        }
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        put32(front_mut::<{ Self::LEN }>(header), 32, self.status as u32);
    }
}
