//! Receive pages: each incoming message gets one run of adjacent bytes.

pub mod lent;

use std::ops::Range;

use crate::arena::Arena;
use crate::homa::share::{Share, Shares};
use crate::homa::waiting::{Waiter, Waiting};
use crate::slots::Key;
use crate::time::{Duration, Instant};
use crate::wire::homa::MAX_MESSAGE_LEN;

/// Bytes of a bpage. Source: the seed's `HOMA_BPAGE_SIZE`.
pub const BPAGE_LEN: u32 = 1 << 16;

/// Small messages start at multiples of this, so that none shares a cache line with another.
const PIECE_ALIGN: u32 = 64;

/// A message that waits longer than this for pages gets some reserved. Decision 26.
const PATIENCE: Duration = Duration::millis(1);

/// The bytes of one message, and how many hold them.
#[derive(Debug, Default)]
pub struct Run {
    offset: u32,
    len: u32,
    holders: u32,
    share: Share,
}

/// The pages of one region.
///
/// A message shorter than a page is cut from the *partial* page; a longer one gets adjacent whole
/// pages, and what its last page has left becomes the partial page if that is the larger rest.
/// Long runs come from the low end and partial pages from the high end, so that small messages do
/// not break up the large stretches. Requests have the lower pages only, so that there is always
/// room for the responses that their handlers wait for. The lowest (highest) free page is taken
/// first, which keeps the pages in use few and in the cache.
#[derive(Debug)]
pub struct Pool {
    /// For each page, how many runs reach into it.
    users: Vec<u16>,
    /// One bit for each page that no run reaches into.
    free: Vec<u64>,
    free_count: u32,
    /// The pages that small responses and small requests are cut from.
    partial: [Option<Partial>; 2],
    /// Requests lie below this page, if they fit there.
    requests_end: u32,
    runs: Arena<Run>,
    shares: Shares,
    waiting: Waiting,
    reserved: Option<Reservation>,
}

#[derive(Clone, Copy, Debug)]
struct Partial {
    page: u32,
    used: u32,
}

/// Pages that are kept free, as they become so, for a message that waited long.
#[derive(Clone, Debug)]
struct Reservation {
    waiter: Waiter,
    window: Range<u32>,
    chosen_at: Instant,
}

impl Pool {
    /// A pool over the first `region_len` bytes, whole pages of it; at most `runs_max` messages.
    pub fn new(region_len: usize, runs_max: usize) -> Self {
        // The last page of 4 GiB is left out so that every offset, one past the end too, fits.
        let pages = (region_len / BPAGE_LEN as usize).min(u16::MAX.into());
        let mut free = vec![u64::MAX; pages.div_ceil(64)];
        if let Some(last) = free.last_mut()
            && pages % 64 != 0
        {
            *last = (1 << (pages % 64)) - 1;
        }
        Self {
            users: vec![0; pages],
            free,
            free_count: pages as u32,
            partial: [None; 2],
            requests_end: requests_end(pages as u32),
            runs: Arena::new(runs_max),
            shares: Shares::new(pages as u32 * BPAGE_LEN),
            waiting: Waiting::default(),
            reserved: None,
        }
    }

    /// A run of `len` bytes, one or more, with one holder; `None` if no stretch is long enough, or
    /// its share is used up.
    #[inline(never)]
    pub fn alloc(&mut self, len: u32, share: Share) -> Option<Key<Run>> {
        self.alloc_inlined(len, share)
    }

    /// As [`Self::alloc`], for the place where most messages come through.
    #[inline(always)]
    pub fn alloc_inlined(&mut self, len: u32, share: Share) -> Option<Key<Run>> {
        let charge = charge(len);
        if self.runs.is_full() || !self.shares.take(share, charge) {
            return None;
        }
        let offset = match self.reserved {
            None => match self.cut_from_partial(len, share) {
                Some(offset) => Some(offset),
                None => self.take_anew(len, share, 0..0),
            },
            Some(_) => self.take_beside(len, share),
        };
        let Some(offset) = offset else {
            self.shares.give_back(share, charge);
            return None;
        };
        let (first, last) = pages_of(offset, len);
        self.add_user(first);
        for page in first + 1..=last {
            self.add_user(page);
        }
        let (key, run) = self.runs.enter()?;
        (run.offset, run.len, run.holders, run.share) = (offset, len, 1, share);
        Some(key)
    }

    /// Starts a partial page, or takes whole pages; none of those in `but`.
    #[cold]
    fn take_anew(&mut self, len: u32, share: Share, but: Range<u32>) -> Option<u32> {
        if len >= BPAGE_LEN {
            return self.take_pages(len, share, but);
        }
        let page = self.highest_free(self.area(1, share), but)?;
        // It may be the other kind's, all of whose pieces were given back.
        self.partial = self
            .partial
            .map(|partial| partial.filter(|one| one.page != page));
        self.partial[side(share)] = Some(Partial { page, used: 0 });
        self.cut_from_partial(len, share)
    }

    /// Where a message of so many pages may lie. Requests leave the upper pages to responses, and
    /// not only as many: a long response needs adjacent ones.
    fn area(&self, count: u32, share: Share) -> Range<u32> {
        match share {
            Share::Request(_) if count <= self.requests_end => 0..self.requests_end,
            Share::Request(_) | Share::Response => 0..self.pages(),
        }
    }

    /// Takes what lies beside the reserved window.
    ///
    /// A response need not respect the reservation of a request: the request may be one of those
    /// for whose sake the other was called, and would then wait for itself.
    #[cold]
    fn take_beside(&mut self, len: u32, share: Share) -> Option<u32> {
        let reserved = self.reserved.clone()?;
        let but = reserved.window;
        // No small message may keep a page of the window in use.
        let keep = |partial: Option<Partial>| partial.filter(|one| !but.contains(&one.page));
        self.partial = self.partial.map(keep);
        let offset = self
            .cut_from_partial(len, share)
            .or_else(|| self.take_anew(len, share, but));
        if offset.is_some() || share != Share::Response {
            return offset;
        }
        match reserved.waiter.share {
            Share::Response => None,
            Share::Request(_) => self.take_anew(len, share, 0..0),
        }
    }

    /// Where a run's bytes lie: offset in the region, length.
    #[inline(always)]
    pub fn place(&self, run: Key<Run>) -> Option<(u32, u32)> {
        self.runs.get(run).map(|run| (run.offset, run.len))
    }

    /// One more holder; false if the run is gone.
    pub fn retain(&mut self, run: Key<Run>) -> bool {
        let Some(run) = self.runs.get_mut(run) else {
            return false;
        };
        run.holders += 1;
        true
    }

    /// The run counts against nobody's share any more: it is about to be given back.
    pub fn discharge(&mut self, run: Key<Run>) {
        if let Some(run) = self.runs.get_mut(run) {
            self.shares.give_back(run.share, charge(run.len));
            run.share = Share::Response;
        }
    }

    /// One holder less; the bytes are free with the last. False if the run is gone.
    #[inline]
    pub fn release(&mut self, key: Key<Run>) -> bool {
        let Some(run) = self.runs.get_mut(key) else {
            return false;
        };
        run.holders -= 1;
        if run.holders == 0 {
            let (first, last) = pages_of(run.offset, run.len);
            let (share, len) = (run.share, run.len);
            self.runs.leave(key);
            if let Share::Request(peer) = share {
                self.shares.give_back(share, charge(len));
                if !self.waiting.is_empty() {
                    self.waiting.call_back(peer);
                }
            }
            self.remove_user(first);
            for page in first + 1..=last {
                self.remove_user(page);
            }
        }
        true
    }

    /// Files an RPC until there is room for its message.
    pub fn wait(&mut self, waiter: Waiter) {
        self.waiting.insert(waiter);
    }

    pub fn stop_waiting(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
        let is_its = |reserved: &Reservation| reserved.waiter == waiter;
        if self.reserved.as_ref().is_some_and(is_its) {
            self.reserved = None;
        }
    }

    /// The next waiting RPC whose message now fits, with its run: one that waited too long, or the
    /// smallest.
    pub fn poll_waiter(&mut self, now: Instant) -> Option<(Waiter, Key<Run>)> {
        self.reserve(now);
        if let Some(reserved) = self.reserved.take() {
            match self.alloc(reserved.waiter.len, reserved.waiter.share) {
                Some(run) => return Some(self.stop_waiting_with(reserved.waiter, run)),
                None => self.reserved = Some(reserved),
            }
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

    /// Reserves pages for the oldest waiter if it has waited too long. The window is chosen anew
    /// from time to time, as another may have become the better one.
    fn reserve(&mut self, now: Instant) {
        let is_fresh = |reserved: &Reservation| now.since(reserved.chosen_at) < PATIENCE;
        if self.reserved.as_ref().is_some_and(is_fresh) {
            return;
        }
        let oldest = self.waiting.oldest(&self.shares, charge);
        self.reserved = oldest
            .filter(|waiter| now.since(waiter.birth) >= PATIENCE)
            .map(|waiter| Reservation {
                waiter,
                window: self.best_window(waiter.len.div_ceil(BPAGE_LEN), waiter.share),
                chosen_at: now,
            });
    }

    /// The `count` adjacent pages of which the fewest are in use, the lowest of several.
    fn best_window(&self, count: u32, share: Share) -> Range<u32> {
        let in_use = |page: u32| u32::from(self.users[page as usize] > 0);
        let mut used: u32 = (0..count).map(in_use).sum();
        let mut best = (used, 0);
        for start in 1..=self.area(count, share).end - count {
            used = used + in_use(start + count - 1) - in_use(start - 1);
            best = best.min((used, start));
        }
        best.1..best.1 + count
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn waiter_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the peer whose message it is may hold `len` bytes more.
    pub fn admits_peer(&self, len: u32, share: Share) -> bool {
        match share {
            Share::Response => true,
            Share::Request(peer) => self.shares.admits_peer(peer, charge(len)),
        }
    }

    /// Bytes that requests hold, as they count against their share.
    pub fn held_by_requests(&self) -> u32 {
        self.shares.held()
    }

    /// What [`Self::held_by_requests`] must equal, counted anew: for checks.
    pub fn count_held_by_requests(&self) -> u32 {
        let requests = self.runs.iter().map(|(_, run)| run);
        let requests = requests.filter(|run| run.share != Share::Response);
        requests.map(|run| charge(run.len)).sum()
    }

    /// Pages that no message reaches into.
    pub fn free_pages(&self) -> u32 {
        self.free_count
    }

    pub fn pages(&self) -> u32 {
        self.users.len() as u32
    }

    /// The longest message that may ever fit, bytes.
    #[inline]
    pub fn len_max(&self) -> u32 {
        self.pages() * BPAGE_LEN
    }

    /// `holders`: a run for each holder that the caller knows of; there may be more.
    ///
    /// # Panics
    /// If a byte has two owners, a holder no bytes, or a page no account of who uses it.
    pub fn check(&self, holders: &mut [Key<Run>]) {
        holders.sort_unstable();
        for same in holders.chunk_by(|one, other| one == other) {
            let held = self.runs.get(same[0]).map_or(0, |run| run.holders);
            assert!(held as usize >= same.len(), "{} held {held}", same.len());
        }
        let mut spans: Vec<_> = self
            .runs
            .iter()
            .map(|(_, run)| (run.offset, run.len))
            .collect();
        spans.sort_unstable();
        let apart = |pair: &[(u32, u32)]| pair[0].0 + pair[0].1 <= pair[1].0;
        assert!(spans.windows(2).all(apart), "two runs share bytes");
        let mut users = vec![0; self.users.len()];
        for (offset, len) in spans {
            let (first, last) = pages_of(offset, len);
            (first..=last).for_each(|page| users[page as usize] += 1);
        }
        assert_eq!(users, self.users, "users of pages");
        let is_free = |page: usize| self.free[page / 64] >> (page % 64) & 1 == 1;
        let free = (0..users.len()).filter(|&page| is_free(page));
        assert!(
            free.clone().all(|page| users[page] == 0),
            "a page in use is free"
        );
        assert_eq!(free.count(), self.free_count as usize, "free pages");
    }

    #[inline(always)]
    fn cut_from_partial(&mut self, len: u32, share: Share) -> Option<u32> {
        let partial = self.partial[side(share)].as_mut()?;
        if self.users[partial.page as usize] == 0 {
            partial.used = 0;
        }
        if len > BPAGE_LEN - partial.used || len == BPAGE_LEN {
            return None;
        }
        let offset = partial.page * BPAGE_LEN + partial.used;
        // A page's length is a multiple of the alignment, so this does not pass its end.
        partial.used = (partial.used + len).next_multiple_of(PIECE_ALIGN);
        Some(offset)
    }

    /// Takes enough adjacent free pages, lowest first; for a response of those that are no
    /// request's, if there are enough.
    fn take_pages(&mut self, len: u32, share: Share, but: Range<u32>) -> Option<u32> {
        let count = len.div_ceil(BPAGE_LEN);
        let own = match share {
            Share::Response => self.requests_end..self.pages(),
            Share::Request(_) => 0..0,
        };
        let own = self.lowest_stretch(count, own, but.clone());
        let first = own.or_else(|| self.lowest_stretch(count, self.area(count, share), but))?;
        let last = first + count - 1;
        let keep = |partial: Option<Partial>| {
            partial.filter(|partial| !(first..=last).contains(&partial.page))
        };
        self.partial = self.partial.map(keep);
        let used = (len - (count - 1) * BPAGE_LEN)
            .next_multiple_of(PIECE_ALIGN)
            .min(BPAGE_LEN);
        let partial = &mut self.partial[side(share)];
        if partial.is_none_or(|partial| used < partial.used) {
            *partial = Some(Partial { page: last, used });
        }
        Some(first * BPAGE_LEN)
    }

    fn lowest_stretch(&self, count: u32, area: Range<u32>, but: Range<u32>) -> Option<u32> {
        if count > self.free_count {
            return None;
        }
        let may = |page: u32| area.contains(&page) && !but.contains(&page);
        let (mut start, mut found) = (0, 0);
        for (word_index, &word) in self.free.iter().enumerate() {
            let base = word_index as u32 * 64;
            if word == 0 {
                found = 0;
                continue;
            }
            for bit in 0..64 {
                if word >> bit & 1 == 0 || !may(base + bit) {
                    found = 0;
                    continue;
                }
                if found == 0 {
                    start = base + bit;
                }
                found += 1;
                if found == count {
                    return Some(start);
                }
            }
        }
        None
    }

    fn highest_free(&self, area: Range<u32>, but: Range<u32>) -> Option<u32> {
        for (index, &word) in self.free.iter().enumerate().rev() {
            let mut word = word;
            while word != 0 {
                let bit = 63 - word.leading_zeros();
                let page = index as u32 * 64 + bit;
                if area.contains(&page) && !but.contains(&page) {
                    return Some(page);
                }
                word ^= 1 << bit;
            }
        }
        None
    }

    #[inline(always)]
    fn add_user(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        if *users == 0 {
            self.free[page as usize / 64] &= !(1 << (page % 64));
            self.free_count -= 1;
        }
        *users += 1; // At most BPAGE_LEN / PIECE_ALIGN = 1,024 pieces, and one run that ends here.
    }

    #[inline]
    fn remove_user(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users -= 1;
        if *users == 0 {
            self.free[page as usize / 64] |= 1 << (page % 64);
            self.free_count += 1;
        }
    }
}

/// The first page that is for responses only: of a quarter of the pages, or of as many as the
/// longest message takes, which is more in a small pool.
fn requests_end(pages: u32) -> u32 {
    const LONGEST: u32 = MAX_MESSAGE_LEN.div_ceil(BPAGE_LEN);
    pages - (pages / 4).max(LONGEST.min(pages / 2))
}

/// Small requests and small responses share no page.
#[inline(always)]
fn side(share: Share) -> usize {
    match share {
        Share::Response => 0,
        Share::Request(_) => 1,
    }
}

/// What a message of `len` bytes counts for against its share.
fn charge(len: u32) -> u32 {
    if len < BPAGE_LEN {
        len.next_multiple_of(PIECE_ALIGN)
    } else {
        len.next_multiple_of(BPAGE_LEN)
    }
}

/// The first and the last page of these bytes.
#[inline]
fn pages_of(offset: u32, len: u32) -> (u32, u32) {
    (offset / BPAGE_LEN, (offset + len - 1) / BPAGE_LEN)
}

#[cfg(test)]
mod tests;
