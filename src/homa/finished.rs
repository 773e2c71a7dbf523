//! The ids of RPCs that must not run again.
//!
//! Once a server RPC is over nothing is left of it, so a late copy of its request would look like
//! a new one. HomaModule runs such a copy again; we remember.

use crate::time::{Duration, Instant};

/// No entry.
const NONE: u32 = u32::MAX;

/// Hashes of finished RPCs, each kept for a while.
///
/// The owner hashes with a secret, so a sender cannot make two RPCs look the same; by chance, one
/// of 2^64 / `entries` new RPCs would be taken for a finished one.
#[derive(Debug)]
pub struct Finished {
    /// A ring: the oldest at `head`.
    entries: Vec<Entry>,
    buckets: Vec<u32>,
    head: usize,
    len: usize,
    kept_for: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    hash: u64,
    at: Instant,
    /// The next older entry of the same bucket.
    older: u32,
}

impl Finished {
    /// Room for `capacity` RPCs; memory is taken as it fills.
    pub fn new(capacity: u32, kept_for: Duration) -> Self {
        let buckets = (capacity as usize).next_power_of_two();
        Self {
            entries: vec![Entry::default(); capacity as usize],
            // Zero means none here, so that untouched memory stays untouched.
            buckets: vec![0; buckets],
            head: 0,
            len: 0,
            kept_for,
        }
    }

    /// Remembers an RPC. True if a younger one than it should have been was forgotten for it.
    pub fn insert(&mut self, now: Instant, hash: u64) -> bool {
        self.forget_old(now);
        if self.entries.is_empty() {
            return true;
        }
        let overflow = self.len == self.entries.len();
        if overflow {
            self.forget_oldest();
        }
        let at = (self.head + self.len) % self.entries.len();
        let bucket = self.bucket(hash);
        let older = std::mem::replace(&mut self.buckets[bucket], at as u32 + 1);
        self.entries[at] = Entry {
            hash,
            at: now,
            older: older.checked_sub(1).unwrap_or(NONE),
        };
        self.len += 1;
        overflow
    }

    /// Whether the RPC is over.
    #[inline]
    pub fn contains(&self, now: Instant, hash: u64) -> bool {
        let mut at = match self.buckets[self.bucket(hash)] {
            0 => return false,
            at => at - 1,
        };
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.hash == hash {
                return now.since(entry.at) < self.kept_for;
            }
            at = entry.older;
        }
        false
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Forgets those whose time is up: a few at each call, more than come in.
    pub fn forget_old(&mut self, now: Instant) {
        for _ in 0..4 {
            if self.len == 0 || now.since(self.entries[self.head].at) < self.kept_for {
                return;
            }
            self.forget_oldest();
        }
    }

    /// When the oldest one's time is up.
    pub fn next_at(&self) -> Option<Instant> {
        (self.len > 0).then(|| self.entries[self.head].at + self.kept_for)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.head as u32;
        let bucket = self.bucket(self.entries[self.head].hash);
        // The oldest entry is the last of its chain.
        if self.buckets[bucket] == oldest + 1 {
            self.buckets[bucket] = 0;
        } else {
            let mut at = self.buckets[bucket] - 1;
            while self.entries[at as usize].older != oldest {
                at = self.entries[at as usize].older;
            }
            self.entries[at as usize].older = NONE;
        }
        self.head = (self.head + 1) % self.entries.len();
        self.len -= 1;
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(capacity: u32) -> Finished {
        Finished::new(capacity, Duration::secs(10))
    }

    #[test]
    fn an_rpc_is_remembered_for_its_time() {
        let mut finished = memory(8);
        finished.insert(Instant(5), 77);
        let end = Instant(5) + Duration::secs(10);
        assert!(finished.contains(Instant(end.0 - 1), 77));
        assert!(!finished.contains(end, 77) && !finished.contains(Instant(6), 78));
        finished.forget_old(end);
        assert_eq!(finished.len(), 0);
    }

    #[test]
    fn a_full_memory_forgets_the_oldest_and_says_so() {
        let mut finished = memory(3);
        assert!((0..3).all(|hash| !finished.insert(Instant(hash), hash)));
        assert!(finished.insert(Instant(3), 3));
        let kept: Vec<u64> = (0..4)
            .filter(|&hash| finished.contains(Instant(4), hash))
            .collect();
        assert_eq!(kept, [1, 2, 3]);
    }

    /// Hashes 1, 5, 9, ... share a bucket of four; they come and go in order.
    #[test]
    fn hashes_of_one_bucket_do_not_hide_each_other() {
        let mut finished = memory(4);
        for n in 0..100u64 {
            finished.insert(Instant(n), n * 4 + 1);
            for seen in 0..=n {
                let expected = n - seen < 4;
                assert_eq!(
                    finished.contains(Instant(n), seen * 4 + 1),
                    expected,
                    "{seen} at {n}"
                );
            }
        }
    }

    #[test]
    fn a_memory_of_nothing_remembers_nothing() {
        let mut finished = memory(0);
        assert!(finished.insert(Instant(0), 1));
        assert!(!finished.contains(Instant(0), 1));
    }
}
