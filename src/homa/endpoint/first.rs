//! The first packet of a long message: a stranger's single packet must not take many pages.
//!
//! Its bytes lie in a small run until the second packet comes, and are then moved to the message's
//! pages. Decision 19.

use std::ops::Range;

use crate::homa::event::{RpcKey, RunKey, SocketKey};
use crate::homa::msg_in::Place;
use crate::homa::pool::BPAGE_LEN;
use crate::homa::share::Share;
use crate::time::Instant;
use crate::wire::homa::{Data, Resend};

use super::receive::start_grants;
use super::{Body, Endpoint, Verdict, waiter};

/// The longest payload that is kept apart: that of a frame of 9,000 B. What comes in longer ones
/// was put together from several packets.
const FIRST_MAX: usize = 9_000;

impl Endpoint {
    /// Where the first `payload_len` bytes of a message go.
    pub(super) fn first_place(
        &mut self,
        now: Instant,
        (socket, share): (SocketKey, Share),
        len: u32,
        payload_len: usize,
    ) -> Place {
        if len <= BPAGE_LEN || payload_len == len as usize || payload_len > FIRST_MAX {
            return self
                .alloc_run_of(now, socket, len, share)
                .map_or(Place::Waiting, Place::Run);
        }
        let run = self.alloc_run_of(now, socket, payload_len as u32, share);
        run.map_or(Place::Waiting, Place::First)
    }

    /// Stores a packet of a message of which at most one was here, with its bytes in `run`.
    #[inline(never)]
    pub(super) fn store_beside(
        &mut self,
        now: Instant,
        key: RpcKey,
        run: RunKey,
        data: Data,
        payload: &[u8],
    ) -> Verdict {
        let range = data.offset..data.offset + payload.len() as u32;
        let Some(rpc) = self.rpcs.get(key) else {
            return Verdict::Dropped;
        };
        let socket = rpc.socket;
        let Some(kept_len) = self.run_len(socket, run) else {
            return Verdict::Dropped;
        };
        let rpc = self.rpcs.get_mut(key);
        let Some(message) = rpc.and_then(|rpc| rpc.message.as_mut()) else {
            return Verdict::Dropped;
        };
        if message.received > 0 {
            let kept = message.end() - kept_len..message.end();
            if kept.start <= range.start && range.end <= kept.end {
                self.stats.duplicates += 1;
                return Verdict::Dropped;
            }
            return self.take_pages(now, key, run, kept, (data, payload));
        }
        let is_late = range.start > 0;
        let inserted = message.insert(now, range, |_| ());
        debug_assert!(inserted.is_ok(), "one packet leaves at most one hole");
        let is_stuck = message.has_all_granted();
        self.write_run(socket, run, 0, payload);
        if is_late {
            self.on_gap(now, key, None, false);
        } else if is_stuck {
            self.ask_for_second(key, payload.len() as u32);
        }
        Verdict::Taken
    }

    /// The sender may send no more before a grant, which needs pages: one packet more will do.
    /// It is asked for by a RESEND, which counts as a grant. Rule IN-50.
    #[cold]
    fn ask_for_second(&mut self, key: RpcKey, payload_len: u32) {
        let rpc = self.rpcs.get_mut(key);
        let Some(message) = rpc.and_then(|rpc| rpc.message.as_mut()) else {
            return;
        };
        let (start, end) = (message.end(), message.end() + payload_len);
        message.granted = end.min(message.len);
        let resend = Resend {
            offset: start,
            length: Some(message.granted - start),
            priority: self.params.num_priorities - 1,
        };
        self.queue_control(key, Body::Resend(resend));
    }

    /// The second packet is here: the message gets its pages, or waits for them with nothing.
    #[inline(never)]
    fn take_pages(
        &mut self,
        now: Instant,
        key: RpcKey,
        first: RunKey,
        kept: Range<u32>,
        (data, payload): (Data, &[u8]),
    ) -> Verdict {
        let rpc = self.rpcs.get_mut(key);
        let Some(message) = rpc.and_then(|rpc| rpc.message.as_mut()) else {
            return Verdict::Dropped;
        };
        let (len, share) = (message.len, message.share);
        message.place = Place::Waiting; // Not yet in line for them.
        let Some(rpc) = self.rpcs.get(key) else {
            return Verdict::Dropped;
        };
        let socket = rpc.socket;
        let run = self.alloc_with_first(now, (socket, first), kept.start, (len, share));
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Verdict::Dropped;
        };
        let of = (key, rpc.peer);
        let Some(message) = rpc.message.as_mut() else {
            return Verdict::Dropped;
        };
        let Some(run) = run else {
            message.forget_bytes();
            let waiter = waiter(key, message);
            self.stats.page_wait_bytes += (kept.len() + payload.len()) as u64;
            self.start_waiting(now, (key, socket), waiter);
            // The first packet's bytes have gone, which may be the room that another waits for.
            self.serve_waiters_of(now, socket);
            return Verdict::Dropped;
        };
        message.place = Place::Run(run);
        start_grants(&mut self.grants, of, message, self.params.unsched_bytes);
        self.serve_waiters_of(now, socket);
        self.store(now, key, data, payload)
    }

    /// A run for the whole message, with what came first in its place, whose own run is given
    /// back in any case.
    fn alloc_with_first(
        &mut self,
        now: Instant,
        (socket, first): (SocketKey, RunKey),
        start: u32,
        (len, share): (u32, Share),
    ) -> Option<RunKey> {
        if self.sockets.lent(socket).is_some() {
            return self.alloc_lent_with_first((socket, first), start, (len, share));
        }
        // Who holds nothing else counts as holding nothing.
        self.pool.discharge(first);
        if let Some(run) = self.pool.alloc(len, share) {
            let (base, _) = self.pool.place(run)?;
            self.move_first(first, (base + start) as usize);
            self.pool.release(first);
            return Some(run);
        }
        // Its own page may be the one that lacks.
        let (base, first_len) = self.pool.place(first)?;
        let mut bytes = vec![0; first_len as usize];
        self.region.read(base as usize, &mut bytes);
        self.pool.release(first);
        let run = self.alloc_run(now, len, share)?;
        let (base, _) = self.pool.place(run)?;
        self.region.write((base + start) as usize, &bytes);
        Some(run)
    }

    /// Copies what came first to its place.
    fn move_first(&mut self, first: RunKey, to: usize) {
        const CHUNK: usize = 256;
        let Some((base, len)) = self.pool.place(first) else {
            return;
        };
        let (base, len) = (base as usize, len as usize);
        let mut bytes = [0; CHUNK];
        for done in (0..len).step_by(CHUNK) {
            let chunk = &mut bytes[..CHUNK.min(len - done)];
            self.region.read(base + done, chunk);
            self.region.write(to + done, chunk);
        }
    }
}
