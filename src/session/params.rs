//! What sessions are told at their start.

use crate::error::Error;
use crate::session::{Name, PATHS_MAX, PathAddr, Policy};
use crate::time::Duration;
use crate::wire::session::{IoRequest, USER_HEAD_MAX};

/// Most bytes of the application's header in a request.
pub const USER_MAX: u32 = (USER_HEAD_MAX - IoRequest::LEN) as u32;

/// Bytes of a message that are not for data. Source: RTRS keeps 4 KiB of each chunk for headers.
const HEADER_ALLOWANCE: u32 = 4096;

/// Bytes of a receive page.
const PAGE_LEN: u32 = 65_536;

/// Most pages of a message. Source: 16 pages would pass Homa's longest message, 1,000,000 bytes.
const CHUNK_PAGES_MAX: u32 = 15;

/// Send memory for so many of the longest READs must be there, whatever the size classes.
const READS_MIN: usize = 4;

/// Fewest slots of a session.
pub const DEPTH_MIN: u32 = 8;
/// Most slots of a session.
pub const DEPTH_MAX: u32 = 65_535;

/// A client's session.
#[derive(Clone, Debug)]
pub struct ClientParams {
    pub name: Name,
    /// The server's Homa port.
    pub port: u16,
    pub paths: Vec<PathAddr>,
    /// Paths that must be up for the session to be open. Default 1.
    pub paths_min: usize,
    /// Bytes of the application's own in each permit. Default 0.
    pub pdu_len: usize,
    /// Slots wanted; 0, the default, for what the server likes.
    pub queue_depth: u32,
    /// Bytes of data per request wanted; 0, the default, for what the server likes.
    pub io_max: u32,
    /// Most segments of a request's data. Default 128.
    pub segments_max: usize,
    /// Wait before a path is opened again; up to half of it is added by chance. Default 1 s.
    pub reconnect_delay: Duration,
    /// Attempts to open a path again after it was lost; `None`, the default, for ever.
    pub reconnects_max: Option<u32>,
    /// How long an attempt to open a path may take. Default 2 s.
    pub connect_timeout: Duration,
    /// Between heartbeats. Default 100 ms.
    pub beat: Duration,
    /// Heartbeats that may stay unanswered. Default 3.
    pub missed_max: u16,
    pub policy: Policy,
    /// Whether a WRITE that fails for want of paths is held until no copy of it can begin any
    /// more. Default true.
    pub ghost_fence: bool,
    /// How long requests wait for a path when there is none. Default 5 s; zero: they fail at once.
    pub fast_fail: Duration,
    /// How long a request may take; zero: for ever. Default 30 s.
    pub io_timeout: Duration,
    /// After which silence Homa gives an RPC up. Default 100 ms.
    pub peer_timeout: Duration,
    /// Names and jitter come from this.
    pub seed: u64,
}

/// A server of sessions.
#[derive(Clone, Debug)]
pub struct ServerParams {
    pub port: u16,
    /// The server's name for itself, the same in each of its lives.
    pub server_id: u128,
    /// Sessions at once, at most 65,000: their place is part of their number. Default 1,024.
    pub sessions_max: usize,
    /// Slots of a session that does not say. Default 512.
    pub queue_depth: u32,
    /// Bytes of data per request. Default 126,976.
    pub io_max: u32,
    /// How long a session without paths is kept. Default 60 s.
    pub linger: Duration,
    /// How much of the receive memory sessions may be promised, together. Default 100 %.
    pub overcommit_percent: u32,
    /// How long a path that was opened may take to be ready. Default 4 s.
    pub ready_timeout: Duration,
    /// Send memory for what READs read. Default 64 MiB.
    pub read_bytes: usize,
    /// This life's name comes from this: it must differ from life to life.
    pub seed: u64,
}

impl ClientParams {
    /// All but what nobody can guess.
    pub fn new(name: Name, port: u16, paths: Vec<PathAddr>) -> Self {
        Self {
            name,
            port,
            paths,
            paths_min: 1,
            pdu_len: 0,
            queue_depth: 0,
            io_max: 0,
            segments_max: 128,
            reconnect_delay: Duration::secs(1),
            reconnects_max: None,
            connect_timeout: Duration::secs(2),
            beat: Duration::millis(100),
            missed_max: 3,
            policy: Policy::default(),
            ghost_fence: true,
            fast_fail: Duration::secs(5),
            io_timeout: Duration::secs(30),
            peer_timeout: Duration::millis(100),
            seed: 1,
        }
    }

    /// # Errors
    /// [`Error::TooManyPaths`]; [`Error::Invalid`] for anything out of its range.
    pub fn validate(&self) -> Result<(), Error> {
        if self.paths.len() > PATHS_MAX {
            return Err(Error::TooManyPaths);
        }
        let is_distinct = |(nth, path)| !self.paths[..nth].contains(path);
        let ok = self.port != 0
            && (1..=self.paths.len()).contains(&self.paths_min)
            && self.paths.iter().enumerate().all(is_distinct)
            && self.pdu_len <= 4096
            && (self.queue_depth == 0 || is_depth(self.queue_depth))
            && (self.io_max == 0 || is_io_max(self.io_max))
            && (1..=1024).contains(&self.segments_max)
            && (20..=255_000).contains(&self.reconnect_delay.as_millis())
            && self.reconnects_max.is_none_or(|max| max <= 9999)
            && self.connect_timeout > Duration::ZERO
            && is_beat(self.beat)
            && (1..=100).contains(&self.missed_max);
        if ok { Ok(()) } else { Err(Error::Invalid) }
    }
}

impl ServerParams {
    /// All but what nobody can guess.
    pub fn new(port: u16, server_id: u128, seed: u64) -> Self {
        Self {
            port,
            server_id,
            sessions_max: 1024,
            queue_depth: 512,
            io_max: 126_976,
            linger: Duration::secs(60),
            overcommit_percent: 100,
            ready_timeout: Duration::secs(4),
            read_bytes: 64 << 20,
            seed,
        }
    }

    /// # Errors
    /// [`Error::Invalid`] for anything out of its range.
    pub fn validate(&self) -> Result<(), Error> {
        let ok = self.port != 0
            && self.server_id != 0
            && (1..=65_000).contains(&self.sessions_max)
            && is_depth(self.queue_depth)
            && is_io_max(self.io_max)
            && self.overcommit_percent >= 100
            && self.read_bytes >= READS_MIN * message_max(self.io_max)
            && self.ready_timeout > Duration::ZERO;
        if ok { Ok(()) } else { Err(Error::Invalid) }
    }
}

const fn is_depth(depth: u32) -> bool {
    DEPTH_MIN <= depth && depth <= DEPTH_MAX
}

/// Data and headers fill whole pages.
pub const fn is_io_max(io_max: u32) -> bool {
    let chunk = io_max.saturating_add(HEADER_ALLOWANCE);
    chunk >= PAGE_LEN && chunk.is_multiple_of(PAGE_LEN) && chunk <= CHUNK_PAGES_MAX * PAGE_LEN
}

/// Whether heartbeats may be so far apart.
pub const fn is_beat(beat: Duration) -> bool {
    let millis = beat.as_millis();
    10 <= millis && millis <= 60_000
}

/// Receive pages that the longest message with that much data takes.
pub const fn chunk_pages(io_max: u32) -> u32 {
    (io_max + HEADER_ALLOWANCE).div_ceil(PAGE_LEN)
}

/// Bytes of the longest message with that much data.
pub const fn message_max(io_max: u32) -> usize {
    (io_max + HEADER_ALLOWANCE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> ClientParams {
        let path = |text: &str| PathAddr::parse(text.as_bytes()).unwrap();
        let paths = vec![path("ip:10.0.0.2"), path("ip:10.0.1.2")];
        ClientParams::new(Name::new(b"disk").unwrap(), 99, paths)
    }

    #[test]
    fn data_comes_in_whole_pages_less_the_allowance() {
        let good = [61_440, 126_976, 258_048, 520_192, 978_944];
        assert!(good.into_iter().all(is_io_max));
        let bad = [0, 1, 65_536, 61_439, 978_944 + 65_536, u32::MAX];
        assert!(!bad.into_iter().any(is_io_max));
        assert_eq!([61_440, 126_976, 978_944].map(chunk_pages), [1, 2, 15]);
    }

    #[test]
    fn each_limit_is_kept() {
        assert_eq!(params().validate(), Ok(()));
        let refused = |change: fn(&mut ClientParams)| {
            let mut params = params();
            change(&mut params);
            params.validate() == Err(Error::Invalid)
        };
        assert!(refused(|p| p.port = 0));
        assert!(refused(|p| p.paths_min = 0));
        assert!(refused(|p| p.paths_min = 3));
        assert!(refused(|p| p.paths[1] = p.paths[0]));
        assert!(refused(|p| p.pdu_len = 4097));
        assert!(refused(|p| p.queue_depth = 7));
        assert!(refused(|p| p.queue_depth = 65_536));
        assert!(refused(|p| p.io_max = 100_000));
        assert!(refused(|p| p.segments_max = 0));
        assert!(refused(|p| p.segments_max = 1025));
        assert!(refused(|p| p.reconnect_delay = Duration::millis(19)));
        assert!(refused(|p| p.reconnects_max = Some(10_000)));
        assert!(refused(|p| p.beat = Duration::millis(9)));
        assert!(refused(|p| p.missed_max = 0));
        assert!(refused(|p| p.missed_max = 101));
        let mut many = params();
        many.paths = vec![many.paths[0]; 129];
        assert_eq!(many.validate(), Err(Error::TooManyPaths));
    }
}
