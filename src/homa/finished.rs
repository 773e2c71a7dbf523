//! The names of RPCs that must not run again.
//!
//! Once a server RPC is over nothing is left of it, so a late copy of its request would look like
//! a new one. HomaModule runs such a copy again; we remember.

use crate::time::{Duration, Instant};

/// Names in one bucket: what a cache line holds.
const WAYS: usize = 8;

/// Parts of the time a name is kept that are told apart, at least.
const STEPS_MIN: u64 = 1024;

/// Bits of an entry that hold its step; the others hold the tag.
const STEP_BITS: u32 = 16;

/// What a finished RPC is remembered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// A keyed hash of all that names the RPC, so that no sender can make two look the same. By
    /// chance one of 2^45 new RPCs is taken for a finished one.
    pub hash: u64,
    /// Counts up with the RPCs of one client, so that those that follow each other lie in lines
    /// that do, and no bucket is filled before the others. Starts at a secret place for each.
    pub place: u64,
}

/// A table of names, each kept for a while.
///
/// A bucket that is full of young names forgets its oldest.
#[derive(Debug)]
pub struct Finished {
    /// Tag and step in one word, 0 for none; [`WAYS`] words to a bucket.
    entries: Vec<u64>,
    bucket_mask: u64,
    /// A step is this power of two, in nanoseconds: a division costs as much as a cache miss.
    step_shift: u32,
    /// Steps that a name is kept.
    steps: u64,
}

impl Finished {
    /// Room for `capacity` names or a little more; memory is taken as it fills. They are kept for
    /// that time, or up to a thousandth longer.
    pub fn new(capacity: u32, kept_for: Duration) -> Self {
        let buckets = (capacity as usize).div_ceil(WAYS).next_power_of_two();
        let step_shift = (kept_for.as_nanos() / STEPS_MIN).max(1).ilog2();
        Self {
            entries: vec![0; buckets * WAYS],
            bucket_mask: buckets as u64 - 1,
            step_shift,
            steps: kept_for.as_nanos().div_ceil(1 << step_shift).max(1),
        }
    }

    /// Remembers an RPC. True if another was forgotten for it before its time.
    #[inline]
    pub fn insert(&mut self, now: Instant, name: Name) -> bool {
        let step = self.step(now);
        let start = self.bucket(name);
        let (steps, bucket) = (self.steps, &mut self.entries[start..start + WAYS]);
        let is_free = |entry: &u64| *entry == 0 || age(step, *entry) >= steps;
        if let Some(way) = bucket.iter().position(is_free) {
            bucket[way] = tag(name) | step;
            return false;
        }
        if let Some(oldest) = bucket.iter_mut().max_by_key(|entry| age(step, **entry)) {
            *oldest = tag(name) | step;
        }
        true
    }

    /// Whether the RPC is over.
    #[inline]
    pub fn contains(&self, now: Instant, name: Name) -> bool {
        let start = self.bucket(name);
        let bucket = &self.entries[start..start + WAYS];
        let tag = tag(name);
        bucket.iter().any(|&entry| {
            entry >> STEP_BITS == tag >> STEP_BITS && age(self.step(now), entry) < self.steps
        })
    }

    /// How many are remembered. Looks at all of the table.
    pub fn count(&self, now: Instant) -> usize {
        let step = self.step(now);
        self.entries
            .iter()
            .filter(|&&entry| entry != 0 && age(step, entry) < self.steps)
            .count()
    }

    #[inline]
    fn bucket(&self, name: Name) -> usize {
        (name.place & self.bucket_mask) as usize * WAYS
    }

    /// The time as an entry holds it. It comes around every 64 times that names are kept; a name
    /// so old that it looks young again does no harm, as it names an RPC that did end.
    #[inline]
    fn step(&self, now: Instant) -> u64 {
        (now.0 >> self.step_shift) & ((1 << STEP_BITS) - 1)
    }
}

/// The upper bits of the hash; not 0, so that no entry is.
#[inline]
fn tag(name: Name) -> u64 {
    name.hash & !((1 << STEP_BITS) - 1) | 1 << 63
}

#[inline]
fn age(step: u64, entry: u64) -> u64 {
    step.wrapping_sub(entry) & ((1 << STEP_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Keyed;

    /// A step more than names are kept.
    const OVER: Duration = Duration::millis(10_009);

    fn memory(capacity: u32) -> Finished {
        Finished::new(capacity, Duration::secs(10))
    }

    fn name(number: u64) -> Name {
        Name {
            hash: Keyed::new(1).hash2(number, 0),
            place: number,
        }
    }

    #[test]
    fn an_rpc_is_remembered_for_its_time() {
        let mut finished = memory(64);
        finished.insert(Instant(5), name(77));
        let end = Instant(5) + OVER;
        let late = Instant(5) + Duration::secs(10);
        assert!(finished.contains(late, name(77)));
        assert!(!finished.contains(Instant(6), name(78)));
        assert!(!finished.contains(end, name(77)));
        assert_eq!((finished.count(Instant(6)), finished.count(end)), (1, 0));
    }

    #[test]
    fn a_full_memory_forgets_the_oldest_and_says_so() {
        let mut finished = memory(64);
        let at = |number: u64| Instant(number * 10_000_000);
        assert!((0..64).all(|number| !finished.insert(at(number), name(number))));
        // Eight buckets of eight: each new name finds its bucket full.
        assert!((64..68).all(|number| finished.insert(at(number), name(number))));
        let kept: Vec<_> = (0..68)
            .filter(|&n| finished.contains(at(68), name(n)))
            .collect();
        assert_eq!(kept, (4..68).collect::<Vec<_>>());
    }

    #[test]
    fn a_name_whose_time_is_up_makes_room_unnoticed() {
        let mut finished = memory(8);
        assert!((0..8).all(|number| !finished.insert(Instant(0), name(number))));
        let later = Instant(0) + OVER;
        assert!((8..16).all(|number| !finished.insert(later, name(number))));
        assert!((8..16).all(|number| finished.contains(later, name(number))));
    }

    /// Four clients with 128 RPCs each, 512 of the 1,024 names that fit: wherever their places
    /// start, each puts one name into each of the 128 buckets.
    #[test]
    fn clients_do_not_crowd_each_other_out_of_a_table_with_room() {
        let mut finished = memory(1024);
        for (client, start) in [0u64, 40, 40, 127].into_iter().enumerate() {
            for number in 0..128 {
                let hash = Keyed::new(1).hash2(number, client as u64);
                let name = Name {
                    hash,
                    place: start + number,
                };
                assert!(!finished.insert(Instant(number), name));
            }
        }
        assert_eq!(finished.count(Instant(128)), 512);
    }
}
