//! Pages that an application lent to one socket: each incoming message gets any of them, as a list.

use std::collections::{BTreeMap, BTreeSet};

use arrayvec::ArrayVec;

use super::{BPAGE_LEN, PATIENCE, PIECE_ALIGN, Partial, Run, requests_end, side};
use crate::arena::Arena;
use crate::error::Error;
use crate::homa::share::{Share, Shares};
use crate::homa::waiting::{Waiter, Waiting};
use crate::mem::Region;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::MAX_MESSAGE_LEN;

/// Parts of the longest message. Source: the seed's `HOMA_MAX_BPAGES`.
pub const PARTS_MAX: usize = MAX_MESSAGE_LEN.div_ceil(BPAGE_LEN) as usize;

/// Messages that the smallest region holds besides one page: while the application has one and
/// another comes in, short ones still find room.
const REGION_MESSAGES: usize = 2;

/// Offsets are 32 bits wide.
const REGION_MAX: usize = 1 << 32;

/// Where in the region the parts of one message are. All but the last are whole pages.
pub type Parts = ArrayVec<u32, PARTS_MAX>;

/// The pages of one region.
///
/// They are free; or messages that come in, or that nobody took, reach into them; or the
/// application has them until it gives them back. As in the runtime's own pool, requests have the
/// lower pages only, and what a message has beyond whole pages shares one with others of its kind.
#[derive(Debug, Default)]
pub struct LentPool {
    region: Option<Region>,
    /// For each page, how many parts lie in it, the application's too.
    users: Vec<u16>,
    /// Pages that nobody uses.
    free: BTreeSet<u32>,
    /// How many of them requests may have.
    free_low: u32,
    requests_end: u32,
    /// The pages that rests of responses and of requests are cut from; they are in use.
    partial: [Option<Partial>; 2],
    runs: Runs,
    /// What the application has, by offset.
    handed_over: BTreeMap<u32, Part>,
    shares: Shares,
    waiting: Waiting,
    /// A message that has waited long: pages are kept for it as they come free.
    reserved: Option<Waiter>,
}

/// Messages that the application does not have yet.
#[derive(Debug)]
struct Runs {
    runs: Arena<Run>,
    /// By the place of each run.
    parts: Vec<Parts>,
}

/// A part that the application has.
#[derive(Clone, Copy, Debug)]
struct Part {
    share: Share,
    charge: u32,
}

impl Default for Runs {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Runs {
    fn new(capacity: usize) -> Self {
        Self {
            runs: Arena::new(capacity),
            parts: Vec::new(),
        }
    }

    fn enter(&mut self, len: u32, share: Share, parts: Parts) -> Option<Key<Run>> {
        let (key, run) = self.runs.enter()?;
        (run.offset, run.len, run.holders, run.share) = (0, len, 1, share);
        let place = key.index() as usize;
        if place >= self.parts.len() {
            self.parts.resize_with(place + 1, Parts::new);
        }
        self.parts[place] = parts;
        Some(key)
    }

    fn get(&self, key: Key<Run>) -> Option<(&Run, &Parts)> {
        let run = self.runs.get(key)?;
        Some((run, &self.parts[key.index() as usize]))
    }

    fn leave(&mut self, key: Key<Run>) -> Option<(u32, Share, Parts)> {
        let run = self.runs.leave(key)?;
        let parts = std::mem::take(&mut self.parts[key.index() as usize]);
        Some((run.len, run.share, parts))
    }
}

impl LentPool {
    /// Takes a region to use, once and for all. What it has beyond whole pages is not used.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is one; [`Error::NoMemory`] if this one is too small for two
    /// messages of the greatest length and a page; [`Error::Invalid`] if offsets into it would not
    /// fit 32 bits.
    pub fn lend(&mut self, region: Region) -> Result<(), Error> {
        if self.region.is_some() {
            return Err(Error::Exists);
        }
        Self::check_len(region.len())?;
        let pages = (region.len() / BPAGE_LEN as usize) as u32;
        self.users = vec![0; pages as usize];
        self.free = (0..pages).collect();
        self.requests_end = requests_end(pages);
        self.free_low = self.requests_end;
        // The smallest part takes so much of a page.
        self.runs = Runs::new(pages as usize * (BPAGE_LEN / PIECE_ALIGN) as usize);
        self.shares = Shares::new(pages.saturating_mul(BPAGE_LEN));
        self.region = Some(region);
        Ok(())
    }

    /// Whether a region of that many bytes may be lent; errors as [`Self::lend`].
    pub fn check_len(len: usize) -> Result<(), Error> {
        if len < REGION_MESSAGES * MAX_MESSAGE_LEN as usize + BPAGE_LEN as usize {
            return Err(Error::NoMemory);
        }
        if len > REGION_MAX {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Bytes of the region that are used, whole pages.
    pub fn used_bytes(&self) -> usize {
        self.users.len() * BPAGE_LEN as usize
    }

    /// Bytes that messages could have now, the rests of shared pages included.
    pub fn free_bytes(&self) -> usize {
        let rest = |partial: &Partial| (BPAGE_LEN - partial.used) as usize;
        let rests: usize = self.partial.iter().flatten().map(rest).sum();
        self.free.len() * BPAGE_LEN as usize + rests
    }

    /// Room for a message of `len` bytes, one or more; `None`, and nothing is taken, if pages are
    /// short, kept for another, or beyond its share.
    pub fn alloc(&mut self, len: u32, share: Share) -> Option<Key<Run>> {
        let (whole, rest) = (len / BPAGE_LEN, len % BPAGE_LEN);
        let charge = charge(len);
        let cut = (rest > 0).then(|| self.cut(rest, share)).flatten();
        let new_pages = whole + u32::from(rest > 0 && cut.is_none());
        if len > MAX_MESSAGE_LEN
            || self.runs.runs.is_full()
            || new_pages > self.pages_for(share)
            || !self.shares.take(share, charge)
        {
            return None;
        }
        let mut parts = Parts::new();
        for _ in 0..whole {
            parts.push(self.take_page(share)? * BPAGE_LEN);
        }
        if rest > 0 {
            let offset = match cut {
                Some(offset) => offset,
                None => self.take_page(share)? * BPAGE_LEN,
            };
            self.note_cut(offset, rest, share, cut.is_none());
            parts.push(offset);
        }
        self.runs.enter(len, share, parts)
    }

    /// Where `rest` bytes go in the shared page, if they fit there.
    fn cut(&self, rest: u32, share: Share) -> Option<u32> {
        let partial = self.partial[side(share)]?;
        (rest <= BPAGE_LEN - partial.used).then_some(partial.page * BPAGE_LEN + partial.used)
    }

    /// `rest` bytes at `offset` are taken, of the shared page or of one that was free, which is
    /// shared next if it has more left.
    fn note_cut(&mut self, offset: u32, rest: u32, share: Share, is_new_page: bool) {
        let page = offset / BPAGE_LEN;
        // A page's length is a multiple of the alignment, so this does not pass its end.
        let used = (offset % BPAGE_LEN + rest).next_multiple_of(PIECE_ALIGN);
        let partial = &mut self.partial[side(share)];
        if !is_new_page {
            self.users[page as usize] += 1;
            *partial = Some(Partial { page, used });
        } else if partial.is_none_or(|partial| used < partial.used) {
            *partial = Some(Partial { page, used });
        }
    }

    /// How many free pages a message of that kind may take.
    ///
    /// A response need not respect what is kept for a request: that may be one of those for whose
    /// sake the other was called, and would then wait for itself.
    fn pages_for(&self, share: Share) -> u32 {
        let free = match share {
            Share::Request(_) => self.free_low,
            Share::Response => self.free.len() as u32,
        };
        match (share, self.reserved) {
            (_, None)
            | (
                Share::Response,
                Some(Waiter {
                    share: Share::Request(_),
                    ..
                }),
            ) => free,
            (_, Some(waiter)) => free.saturating_sub(waiter.len.div_ceil(BPAGE_LEN)),
        }
    }

    /// The lowest free page; for a response, of those that are no request's, if there is one.
    fn take_page(&mut self, share: Share) -> Option<u32> {
        let high = self.free.range(self.requests_end..).next().copied();
        let own = if share == Share::Response { high } else { None };
        let page = own.or_else(|| self.free.first().copied())?;
        debug_assert!(share == Share::Response || page < self.requests_end);
        self.free.remove(&page);
        self.free_low -= u32::from(page < self.requests_end);
        self.users[page as usize] = 1;
        Some(page)
    }

    /// One part less lies in the page of `offset`.
    fn leave_page(&mut self, offset: u32) {
        let page = offset / BPAGE_LEN;
        let users = &mut self.users[page as usize];
        *users -= 1;
        if *users == 0 {
            self.free.insert(page);
            self.free_low += u32::from(page < self.requests_end);
            let keep = |partial: Option<Partial>| partial.filter(|one| one.page != page);
            self.partial = self.partial.map(keep);
        }
    }

    /// A message's length; `None` if it is gone.
    pub fn len_of(&self, run: Key<Run>) -> Option<u32> {
        self.runs.get(run).map(|(run, _)| run.len)
    }

    /// Copies `bytes` to where a message has its byte `at`.
    pub fn write(&mut self, run: Key<Run>, at: u32, bytes: &[u8]) {
        let (Some(region), Some((run, parts))) = (&mut self.region, self.runs.get(run)) else {
            return;
        };
        debug_assert!(
            at as usize + bytes.len() <= run.len as usize,
            "past the end"
        );
        let mut rest = bytes;
        for (offset, len) in stretches(parts, at, bytes.len()) {
            let (here, behind) = rest.split_at(len);
            region.write(offset, here);
            rest = behind;
        }
    }

    /// Copies a message's bytes from `at` on to `out`.
    pub fn read(&self, run: Key<Run>, at: u32, out: &mut [u8]) {
        let (Some(region), Some((_, parts))) = (&self.region, self.runs.get(run)) else {
            return;
        };
        let mut done = 0;
        for (offset, len) in stretches(parts, at, out.len()) {
            region.read(offset, &mut out[done..done + len]);
            done += len;
        }
    }

    /// The message counts against nobody's share any more: it is about to be given back.
    pub fn discharge(&mut self, run: Key<Run>) {
        if let Some(run) = self.runs.runs.get_mut(run) {
            self.shares.give_back(run.share, charge(run.len));
            run.share = Share::Response;
        }
    }

    /// Gives back the pages of a message that nobody wants. False if it is gone.
    pub fn release(&mut self, run: Key<Run>) -> bool {
        let Some((len, share, parts)) = self.runs.leave(run) else {
            return false;
        };
        parts.iter().for_each(|&part| self.leave_page(part));
        self.settle(share, charge(len));
        true
    }

    /// A message is the application's from now on, part by part.
    pub fn hand_over(&mut self, run: Key<Run>) -> Option<Parts> {
        let (len, share, parts) = self.runs.leave(run)?;
        let mut left = len;
        for &part in &parts {
            let charge = charge(left.min(BPAGE_LEN));
            self.handed_over.insert(part, Part { share, charge });
            left = left.saturating_sub(BPAGE_LEN);
        }
        Some(parts)
    }

    /// Takes parts back from the application.
    ///
    /// # Errors
    /// [`Error::Invalid`], and none is taken, if it does not have one of them, or names one twice.
    pub fn take_back(&mut self, offsets: &[u32]) -> Result<(), Error> {
        for (at, offset) in offsets.iter().enumerate() {
            if !self.handed_over.contains_key(offset) || offsets[..at].contains(offset) {
                return Err(Error::Invalid);
            }
        }
        for offset in offsets {
            if let Some(Part { share, charge }) = self.handed_over.remove(offset) {
                self.leave_page(*offset);
                self.settle(share, charge);
            }
        }
        Ok(())
    }

    fn settle(&mut self, share: Share, charge: u32) {
        self.shares.give_back(share, charge);
        if let Share::Request(peer) = share {
            self.waiting.call_back(peer);
        }
    }

    /// Files an RPC until there is room for its message.
    pub fn wait(&mut self, waiter: Waiter) {
        self.waiting.insert(waiter);
    }

    pub fn stop_waiting(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
        self.reserved = self.reserved.filter(|reserved| *reserved != waiter);
    }

    /// Nobody waits any more: the socket is about to close.
    pub fn forget_waiters(&mut self) {
        (self.waiting, self.reserved) = (Waiting::default(), None);
    }

    /// The next waiting RPC whose message now fits, with its run: one that waited too long, or the
    /// smallest.
    pub fn poll_waiter(&mut self, now: Instant) -> Option<(Waiter, Key<Run>)> {
        // Anew each time: its share may have been used up since by what needed no page.
        self.reserved = None;
        let oldest = self.waiting.oldest(&self.shares, charge);
        if let Some(waiter) = oldest.filter(|waiter| now.since(waiter.birth) >= PATIENCE) {
            if let Some(run) = self.alloc(waiter.len, waiter.share) {
                return Some(self.stop_waiting_with(waiter, run));
            }
            self.reserved = Some(waiter);
        }
        let smallest = self.waiting.smallest(&self.shares, charge);
        smallest.into_iter().flatten().find_map(|waiter| {
            let run = self.alloc(waiter.len, waiter.share)?;
            Some(self.stop_waiting_with(waiter, run))
        })
    }

    fn stop_waiting_with(&mut self, waiter: Waiter, run: Key<Run>) -> (Waiter, Key<Run>) {
        self.stop_waiting(waiter);
        if let Share::Request(peer) = waiter.share {
            self.waiting.call_back(peer);
        }
        (waiter, run)
    }

    pub fn waiter_count(&self) -> usize {
        self.waiting.len()
    }

    /// `holders`: the run of each RPC that has one here.
    ///
    /// # Panics
    /// If two parts share bytes, a holder has none, or an account is wrong.
    pub fn check(&self, holders: &[Key<Run>]) {
        let is_there = |&run: &Key<Run>| self.runs.get(run).is_some();
        assert!(holders.iter().all(is_there), "a message without pages");
        let mut users = vec![0; self.users.len()];
        let mut spans = Vec::new();
        let mut held = 0;
        for (key, run) in self.runs.runs.iter() {
            let mut left = run.len;
            for &part in &self.runs.parts[key.index() as usize] {
                spans.push((part, left.min(BPAGE_LEN)));
                left -= left.min(BPAGE_LEN);
            }
            assert_eq!(left, 0, "bytes without a page");
            held += u64::from(charge(run.len)) * u64::from(run.share != Share::Response);
        }
        for (&offset, part) in &self.handed_over {
            spans.push((offset, part.charge));
            held += u64::from(part.charge) * u64::from(part.share != Share::Response);
        }
        spans.sort_unstable();
        let apart = |pair: &[(u32, u32)]| pair[0].0 + pair[0].1 <= pair[1].0;
        assert!(spans.windows(2).all(apart), "two parts share bytes");
        for (offset, _) in spans {
            users[(offset / BPAGE_LEN) as usize] += 1;
        }
        assert_eq!(users, self.users, "users of pages");
        let free = (0..).zip(&users).filter(|(_, users)| **users == 0);
        let free: BTreeSet<u32> = free.map(|(page, _)| page).collect();
        assert_eq!(free, self.free, "free pages");
        let free_low = free.range(..self.requests_end).count();
        assert_eq!(free_low, self.free_low as usize, "free pages of requests");
        assert_eq!(
            u64::from(self.shares.held()),
            held,
            "bytes that requests hold"
        );
    }
}

/// Where the `len` bytes from `at` on of a message lie, page by page: offset and length.
fn stretches(parts: &Parts, at: u32, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let (mut at, mut left) = (at, len);
    std::iter::from_fn(move || {
        let within = at % BPAGE_LEN;
        let stretch = left.min((BPAGE_LEN - within) as usize);
        let part = *parts
            .get((at / BPAGE_LEN) as usize)
            .filter(|_| stretch > 0)?;
        at += stretch as u32;
        left -= stretch;
        Some(((part + within) as usize, stretch))
    })
}

/// What a message of `len` bytes counts for against its share.
fn charge(len: u32) -> u32 {
    len.next_multiple_of(PIECE_ALIGN)
}

#[cfg(test)]
mod tests;
