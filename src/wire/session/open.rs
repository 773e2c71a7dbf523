//! The first message of each path.

use super::{HEAD_MAX, Malformed, front_mut, le16, le32, le64, le128, put16, put32, put64, put128};

/// "Let this be a path of that session."
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 16 | the client's session, by chance |
/// | 48 | 16 | the client's path, by chance |
/// | 64 | 16 | the server's life that the client knows, or 0 |
/// | 80 | 8 | session to go on with, or 0 |
/// | 88 | 2 | bit 0: the session may be made by this |
/// | 90 | 2 | lanes: 1 |
/// | 92 | 4 | slots wanted, 0 for what the server likes |
/// | 96 | 4 | bytes of data per request wanted, or 0 |
/// | 100 | 4 | bytes of the application's header wanted, or 0 |
/// | 104 | 4 | ms between heartbeats |
/// | 108 | 2 | heartbeats that may stay unanswered |
/// | 110 | 2 | bytes of the name, which follows at 128 |
/// | 112 | 4 | features: 0 |
/// | 116 | 12 | reserved: 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRequest {
    pub session_uuid: u128,
    pub path_uuid: u128,
    pub expected_server: u128,
    pub resumed: u64,
    pub may_create: bool,
    pub queue_depth: u32,
    pub io_max: u32,
    pub user_max: u32,
    pub beat_ms: u32,
    pub missed_max: u16,
    pub name_len: u16,
}

/// | offset | bytes | field |
/// |---|---|---|
/// | 32 | 4 | status |
/// | 36 | 4 | features: 0 |
/// | 40 | 16 | this life of the server |
/// | 56 | 4 | slots |
/// | 60 | 4 | most bytes of data per request |
/// | 64 | 4 | most bytes of the application's header |
/// | 68 | 4 | most segments, to know only |
/// | 72 | 4 | ms between heartbeats |
/// | 76 | 2 | heartbeats that may stay unanswered |
/// | 78 | 2 | bit 0: the session is new; 1: it goes on; 2: do not come back |
/// | 80 | 4 | ms of silence after which the server drops the path |
/// | 84 | 4 | ms that it keeps a session without paths |
/// | 88 | 4 | ms to wait before the next attempt |
/// | 92 | 2 | lanes: 1 |
/// | 94 | 1 | layout: 0 |
/// | 96 | 16 | the server, whichever its life |
/// | 112 | 16 | reserved: 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenResponse {
    pub status: i32,
    pub server_uuid: u128,
    pub queue_depth: u32,
    pub io_max: u32,
    pub user_max: u32,
    pub beat_ms: u32,
    pub missed_max: u16,
    pub is_new: bool,
    pub no_reconnect: bool,
    pub lease_ms: u32,
    pub linger_ms: u32,
    pub retry_after_ms: u32,
    pub server_id: u128,
}

impl OpenRequest {
    pub const LEN: usize = HEAD_MAX;

    pub(super) fn parse(header: &[u8; Self::LEN], message_len: u32) -> Result<Self, Malformed> {
        let request = Self {
            session_uuid: le128(header, 32),
            path_uuid: le128(header, 48),
            expected_server: le128(header, 64),
            resumed: le64(header, 80),
            may_create: le16(header, 88) & 1 != 0,
            queue_depth: le32(header, 92),
            io_max: le32(header, 96),
            user_max: le32(header, 100),
            beat_ms: le32(header, 104),
            missed_max: le16(header, 108),
            name_len: le16(header, 110),
        };
        let len = Self::LEN as u64 + u64::from(request.name_len);
        if u64::from(message_len) == len {
            Ok(request)
        } else {
            Err(Malformed::Field)
        }
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put128(header, 32, self.session_uuid);
        put128(header, 48, self.path_uuid);
        put128(header, 64, self.expected_server);
        put64(header, 80, self.resumed);
        put16(header, 88, u16::from(self.may_create));
        put16(header, 90, 1);
        put32(header, 92, self.queue_depth);
        put32(header, 96, self.io_max);
        put32(header, 100, self.user_max);
        put32(header, 104, self.beat_ms);
        put16(header, 108, self.missed_max);
        put16(header, 110, self.name_len);
    }
}

impl OpenResponse {
    pub const LEN: usize = HEAD_MAX;

    const NEW: u16 = 1;
    const RESUMED: u16 = 1 << 1;
    const NO_RECONNECT: u16 = 1 << 2;

    pub(super) fn parse(header: &[u8; Self::LEN]) -> Result<Self, Malformed> {
        let flags = le16(header, 78);
        let response = Self {
            status: le32(header, 32) as i32,
            server_uuid: le128(header, 40),
            queue_depth: le32(header, 56),
            io_max: le32(header, 60),
            user_max: le32(header, 64),
            beat_ms: le32(header, 72),
            missed_max: le16(header, 76),
            is_new: flags & Self::NEW != 0,
            no_reconnect: flags & Self::NO_RECONNECT != 0,
            lease_ms: le32(header, 80),
            linger_ms: le32(header, 84),
            retry_after_ms: le32(header, 88),
            server_id: le128(header, 96),
        };
        // Layout 0 is the only one there is.
        let is_either = response.is_new != (flags & Self::RESUMED != 0);
        if response.status > 0 || response.status == 0 && (header[94] != 0 || !is_either) {
            return Err(Malformed::Field);
        }
        Ok(response)
    }

    pub(super) fn emit(&self, header: &mut [u8]) {
        let header: &mut [u8; Self::LEN] = front_mut(header);
        put32(header, 32, self.status as u32);
        put128(header, 40, self.server_uuid);
        put32(header, 56, self.queue_depth);
        put32(header, 60, self.io_max);
        put32(header, 64, self.user_max);
        put32(header, 72, self.beat_ms);
        put16(header, 76, self.missed_max);
        let life = if self.is_new {
            Self::NEW
        } else {
            Self::RESUMED
        };
        let stay_away = if self.no_reconnect {
            Self::NO_RECONNECT
        } else {
            0
        };
        put16(header, 78, life | stay_away);
        put32(header, 80, self.lease_ms);
        put32(header, 84, self.linger_ms);
        put32(header, 88, self.retry_after_ms);
        put16(header, 92, 1);
        put128(header, 96, self.server_id);
    }
}
