//! What the fuzzers do with their bytes. `tests/fuzz_smoke.rs` does the same with bytes by chance
//! and with frames of the captures, since a coverage-guided fuzzer is not at hand everywhere.

pub mod calls;
pub mod frames;
pub mod packets;

use demihoma::addr::LinkId;
use demihoma::homa::{Endpoint, Params};
use demihoma::mem::{Buffers, Region};
use demihoma::time::{Duration, Instant};

/// Bytes that are read off one by one; when they are used up, zeroes.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        let first = self.0.split_off_first();
        first.copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// The next `len`, or what is left.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::from(self.u8());
        from.get(at.checked_rem(from.len())?).copied()
    }

    /// A length or an offset: mostly one at which something changes.
    pub fn len(&mut self) -> u32 {
        const LENS: [u32; 16] = [
            0,
            1,
            8,
            100,
            1_420,
            1_421,
            2_840,
            10_000,
            39_999,
            40_000,
            65_537,
            500_000,
            999_999,
            1_000_000,
            1_000_001,
            u32::MAX,
        ];
        let near = u32::from(self.u8() % 3);
        match self.u8() {
            at @ 0..=127 => LENS[usize::from(at) % LENS.len()].wrapping_add(near),
            _ => self.u16().into(),
        }
    }

    /// A span of time: up to 64 ms, mostly of about a tick.
    pub fn span(&mut self) -> Duration {
        Duration::micros(u64::from(self.u8()) * 250)
    }
}

/// Receive pages of each endpoint.
pub const PAGES: u32 = 32;

/// Tables so small that they are full now and then.
pub fn params(seed: u64) -> Params {
    Params {
        seed,
        rpcs_max: 32,
        peers_max: 8,
        sockets_max: 4,
        control_max: 64,
        finished_max: 256,
        ..Params::default()
    }
}

pub fn region() -> Region {
    Region::owned((PAGES as usize) << 16).expect("memory for a few pages")
}

pub fn endpoint(seed: u64) -> Endpoint {
    Endpoint::new(params(seed), region(), Instant(0)).expect("valid params")
}

/// A pool for payloads, the same for all runs of a thread.
pub fn buffers() -> Buffers {
    thread_local! {
        static BUFFERS: Buffers = Buffers::new(256 << 20);
    }
    BUFFERS.with(Buffers::clone)
}

/// Gives each peer that is asked for a link.
pub fn resolve(homa: &mut Endpoint) {
    while let Some(ip) = homa.poll_unresolved() {
        homa.handle_peer_up(ip, LinkId::new(0, 7, 0));
    }
}

/// Shows `sink` each packet that is to be sent now, of which there must be an end.
pub fn drain(homa: &mut Endpoint, now: Instant, mut sink: impl FnMut(&mut Endpoint, &[u8])) {
    /// Thirty messages of the longest have 21,000 packets.
    const PACKETS_MAX: usize = 50_000;
    let mut room = [0; 1600];
    for _ in 0..PACKETS_MAX {
        if !homa.has_output() {
            return;
        }
        if let Some(sent) = homa.poll_transmit(now, &mut room) {
            sink(homa, &room[..usize::from(sent.len.get())]);
        }
        resolve(homa);
    }
    panic!("packets without end");
}

/// Nothing may be left of what was, once all sockets are closed and all runs released. Tells how
/// many messages came in whole, so that tests know that something happened.
pub fn check_empty(homa: &Endpoint) -> u64 {
    homa.check();
    assert_eq!(homa.rpc_count(), 0, "RPCs left behind");
    assert_eq!(homa.free_pages(), PAGES, "pages left behind");
    homa.stats().requests_in + homa.stats().responses
}
