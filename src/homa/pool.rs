//! Receive pages: each incoming message gets one run of adjacent bytes.

use std::collections::BTreeSet;

use crate::arena::Arena;
use crate::homa::event::RpcKey;
use crate::slots::Key;
use crate::time::Instant;

/// Bytes of a bpage. Source: the seed's `HOMA_BPAGE_SIZE`.
pub const BPAGE_LEN: u32 = 1 << 16;

/// Small messages start at multiples of this, so that none shares a cache line with another.
const PIECE_ALIGN: u32 = 64;

/// The bytes of one message, and how many hold them.
#[derive(Debug, Default)]
pub struct Run {
    offset: u32,
    len: u32,
    holders: u32,
}

/// The pages of one region.
///
/// A message shorter than a page is cut from the *partial* page; a longer one gets adjacent whole
/// pages, and what its last page has left becomes the partial page if that is the larger rest.
/// Long runs come from the low end and partial pages from the high end, so that small messages do
/// not break up the large stretches. The lowest (highest) free page is taken first, which keeps
/// the pages in use few and in the cache.
#[derive(Debug)]
pub struct Pool {
    /// For each page, how many runs reach into it.
    users: Vec<u16>,
    /// One bit for each page that no run reaches into.
    free: Vec<u64>,
    free_count: u32,
    partial: Option<Partial>,
    runs: Arena<Run>,
    /// RPCs that wait for pages: the smallest first, then the oldest.
    waiting: BTreeSet<Waiter>,
}

#[derive(Clone, Copy, Debug)]
struct Partial {
    page: u32,
    used: u32,
}

/// An RPC whose message found no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    pub len: u32,
    pub birth: Instant,
    pub rpc: RpcKey,
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
            partial: None,
            runs: Arena::new(runs_max),
            waiting: BTreeSet::new(),
        }
    }

    /// A run of `len` bytes, one or more, with one holder; `None` if no stretch is long enough.
    #[inline(always)]
    pub fn alloc(&mut self, len: u32) -> Option<Key<Run>> {
        if self.runs.is_full() {
            return None;
        }
        let offset = match self.cut_from_partial(len) {
            Some(offset) => offset,
            None => self.take_anew(len)?,
        };
        let (first, last) = pages_of(offset, len);
        self.add_user(first);
        for page in first + 1..=last {
            self.add_user(page);
        }
        let (key, run) = self.runs.enter()?;
        (run.offset, run.len, run.holders) = (offset, len, 1);
        Some(key)
    }

    /// Starts a partial page, or takes whole pages.
    #[cold]
    fn take_anew(&mut self, len: u32) -> Option<u32> {
        if len >= BPAGE_LEN {
            return self.take_pages(len);
        }
        let page = self.highest_free()?;
        self.partial = Some(Partial { page, used: 0 });
        self.cut_from_partial(len)
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

    /// One holder less; the bytes are free with the last. False if the run is gone.
    #[inline]
    pub fn release(&mut self, key: Key<Run>) -> bool {
        let Some(run) = self.runs.get_mut(key) else {
            return false;
        };
        run.holders -= 1;
        if run.holders == 0 {
            let (first, last) = pages_of(run.offset, run.len);
            self.runs.leave(key);
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
    }

    /// The next waiting RPC whose message now fits, with its run.
    pub fn poll_waiter(&mut self) -> Option<(Waiter, Key<Run>)> {
        let waiter = *self.waiting.first()?;
        let run = self.alloc(waiter.len)?;
        self.waiting.remove(&waiter);
        Some((waiter, run))
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn waiter_count(&self) -> usize {
        self.waiting.len()
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

    #[inline(always)]
    fn cut_from_partial(&mut self, len: u32) -> Option<u32> {
        let partial = self.partial.as_mut()?;
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

    /// Takes enough adjacent free pages, lowest first.
    fn take_pages(&mut self, len: u32) -> Option<u32> {
        let count = len.div_ceil(BPAGE_LEN);
        let first = self.lowest_stretch(count)?;
        let last = first + count - 1;
        if self
            .partial
            .is_some_and(|partial| (first..=last).contains(&partial.page))
        {
            self.partial = None;
        }
        let used = (len - (count - 1) * BPAGE_LEN)
            .next_multiple_of(PIECE_ALIGN)
            .min(BPAGE_LEN);
        if self.partial.is_none_or(|partial| used < partial.used) {
            self.partial = Some(Partial { page: last, used });
        }
        Some(first * BPAGE_LEN)
    }

    fn lowest_stretch(&self, count: u32) -> Option<u32> {
        if count > self.free_count {
            return None;
        }
        let (mut start, mut found) = (0, 0);
        for (word_index, &word) in self.free.iter().enumerate() {
            let base = word_index as u32 * 64;
            if word == 0 {
                found = 0;
                continue;
            }
            for bit in 0..64 {
                if word >> bit & 1 == 0 {
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

    fn highest_free(&self) -> Option<u32> {
        let (index, word) = self
            .free
            .iter()
            .enumerate()
            .rev()
            .find(|(_, word)| **word != 0)?;
        Some(index as u32 * 64 + 63 - word.leading_zeros())
    }

    #[inline]
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

/// The first and the last page of these bytes.
#[inline]
fn pages_of(offset: u32, len: u32) -> (u32, u32) {
    (offset / BPAGE_LEN, (offset + len - 1) / BPAGE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const PAGE: usize = BPAGE_LEN as usize;

    fn offset(pool: &Pool, run: Key<Run>) -> u32 {
        pool.place(run).unwrap().0
    }

    #[test]
    fn a_tail_below_a_full_page_is_left_out() {
        assert_eq!(Pool::new(3 * PAGE + 5000, 10).pages(), 3);
    }

    /// Rule PL-07, adapted: 150,000 B take three adjacent pages, the rest of the last is shared.
    #[test]
    fn a_long_message_is_adjacent_and_its_rest_serves_small_ones() {
        let mut pool = Pool::new(4 * PAGE, 10);
        let long = pool.alloc(150_000).unwrap();
        assert_eq!((offset(&pool, long), pool.free_pages()), (0, 1));
        let small = pool.alloc(1000).unwrap();
        // 150,000 is 2,343.75 lines of 64 B, so the next one starts at 150,016.
        assert_eq!((offset(&pool, small), pool.free_pages()), (150_016, 1));
        pool.release(long);
        assert_eq!(pool.free_pages(), 3);
        pool.release(small);
        assert_eq!(pool.free_pages(), 4);
    }

    /// Rules PL-08, PL-09: small messages share a page, and an empty one starts over.
    #[test]
    fn small_messages_share_a_page_that_starts_over_when_empty() {
        let mut pool = Pool::new(2 * PAGE, 10);
        let first = pool.alloc(2000).unwrap();
        let second = pool.alloc(2000).unwrap();
        assert_eq!(offset(&pool, second) - offset(&pool, first), 2048);
        pool.release(first);
        pool.release(second);
        let again = pool.alloc(100).unwrap();
        assert_eq!(offset(&pool, again), BPAGE_LEN);
    }

    #[test]
    fn whole_pages_share_nothing() {
        let mut pool = Pool::new(3 * PAGE, 10);
        let two = pool.alloc(2 * BPAGE_LEN).unwrap();
        assert_eq!((offset(&pool, two), pool.free_pages()), (0, 1));
        let small = pool.alloc(1).unwrap();
        assert_eq!(offset(&pool, small), 2 * BPAGE_LEN);
    }

    /// Rule PL-11: all or nothing.
    #[test]
    fn too_long_a_message_takes_nothing() {
        let mut pool = Pool::new(5 * PAGE, 10);
        assert!(pool.alloc(5 * BPAGE_LEN + 100).is_none());
        assert_eq!((pool.free_pages(), pool.runs.len()), (5, 0));
    }

    /// Rule PL-15: what is not held cannot be given back.
    #[test]
    fn bytes_are_free_with_their_last_holder_and_only_once() {
        let mut pool = Pool::new(PAGE, 10);
        let run = pool.alloc(10).unwrap();
        assert!(pool.retain(run) && pool.release(run));
        assert_eq!(pool.free_pages(), 0);
        assert!(pool.release(run) && !pool.release(run) && !pool.retain(run));
        assert_eq!(pool.free_pages(), 1);
    }

    /// Rule PL-16: the smallest waits least.
    #[test]
    fn waiters_are_served_smallest_first_as_pages_come_free() {
        let mut pool = Pool::new(2 * PAGE, 10);
        let all = pool.alloc(2 * BPAGE_LEN).unwrap();
        let waiter = |len, index| Waiter {
            len,
            birth: Instant(0),
            rpc: Key::from_parts(index, 1),
        };
        let (large, small) = (waiter(BPAGE_LEN + 1, 0), waiter(2000, 1));
        pool.wait(large);
        pool.wait(small);
        assert!(pool.poll_waiter().is_none());
        pool.release(all);
        let (first, run) = pool.poll_waiter().unwrap();
        assert_eq!(first, small);
        assert!(pool.poll_waiter().is_none() && pool.has_waiters());
        pool.release(run);
        assert_eq!(pool.poll_waiter().unwrap().0, large);
    }

    #[test]
    fn a_full_table_of_runs_refuses() {
        let mut pool = Pool::new(PAGE, 1);
        assert!(pool.alloc(1).is_some() && pool.alloc(1).is_none());
    }

    /// Any order of taking and giving back: runs never overlap, and all is free at the end.
    #[test]
    fn no_two_messages_share_a_byte() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut pool = Pool::new(40 * PAGE, 1000);
            let mut held: Vec<Key<Run>> = Vec::new();
            for _ in 0..500 {
                if rng.one_in_thousand(450) && !held.is_empty() {
                    let at = rng.below(held.len() as u64) as usize;
                    assert!(pool.release(held.swap_remove(at)));
                    continue;
                }
                let longest = [100, 5000, 70_000, 1_000_000][rng.below(4) as usize];
                held.extend(pool.alloc(1 + rng.below(longest) as u32));
                let mut spans: Vec<_> = held.iter().map(|&run| pool.place(run).unwrap()).collect();
                spans.sort_unstable();
                let apart = spans
                    .windows(2)
                    .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
                assert!(apart, "seed {seed}: {spans:?}");
            }
            held.into_iter().for_each(|run| assert!(pool.release(run)));
            assert_eq!(pool.free_pages(), 40, "seed {seed}");
        }
    }
}
