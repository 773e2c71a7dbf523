//! Which lengths of messages use which priority, from the messages that come.
//!
//! The unscheduled bytes are shared out among the levels for them so that each level carries as
//! many: the shortest messages at the highest. Source: the Homa paper, SIGCOMM 2018, 3.4.

use crate::time::{Duration, Instant};
use crate::wire::homa::MAX_MESSAGE_LEN;

/// Each power of two has so many buckets, so that a bound is at most a quarter off.
const PER_OCTAVE: u32 = 4;

/// The last one ends at 2^20 B, and the one before below 1,000,000 B, the longest message.
const BUCKETS: usize = 18 * PER_OCTAVE as usize + 1;

/// New cutoffs at most so often: each makes every peer be told.
const INTERVAL: Duration = Duration::millis(100);

/// From fewer messages than this nothing is concluded.
const MESSAGES_MIN: u32 = 1_000;

/// Unscheduled bytes that came, by the length of their messages. The past counts ever less.
#[derive(Debug)]
pub struct Traffic {
    bytes: [u64; BUCKETS],
    messages: u32,
    decided_at: Instant,
    unsched_bytes: u32,
    /// The priorities for unscheduled bytes.
    lowest: u8,
    highest: u8,
}

impl Traffic {
    /// Of `num_priorities` those above `max_sched_priority` are for unscheduled bytes, or the
    /// highest if that leaves none.
    pub fn new(unsched_bytes: u32, num_priorities: u8, max_sched_priority: u8) -> Self {
        let highest = num_priorities - 1;
        Self {
            bytes: [0; BUCKETS],
            messages: 0,
            decided_at: Instant(0),
            unsched_bytes,
            lowest: (max_sched_priority + 1).min(highest),
            highest,
        }
    }

    /// A message began to come.
    pub fn on_message(&mut self, len: u32) {
        self.bytes[bucket(len)] += u64::from(len.min(self.unsched_bytes));
        self.messages += 1;
    }

    /// New cutoffs, if the traffic is no longer what `current` is good for.
    pub fn poll(&mut self, now: Instant, current: &[u32; 8]) -> Option<[u32; 8]> {
        if self.messages < MESSAGES_MIN || now.since(self.decided_at) < INTERVAL {
            return None;
        }
        self.decided_at = now;
        let cutoffs = self.balanced();
        self.messages = 0;
        self.bytes.iter_mut().for_each(|bytes| *bytes /= 2);
        // One bucket up or down is chance.
        let is_near = |(new, old): (&u32, &u32)| bucket(*new).abs_diff(bucket(*old)) <= 1;
        let is_same = cutoffs
            .iter()
            .zip(current)
            .all(|(new, old)| (*new == 0) == (*old == 0) && is_near((new, old)));
        (!is_same).then_some(cutoffs)
    }

    /// Cutoffs by which each level carries as many bytes, as far as whole buckets allow.
    fn balanced(&self) -> [u32; 8] {
        let total: u64 = self.bytes.iter().sum();
        let levels = u64::from(self.highest - self.lowest) + 1;
        let mut cutoffs = [0; 8];
        let (mut at, mut below, mut longest) = (0, 0, 0);
        for level in (self.lowest + 1..=self.highest).rev() {
            let wanted = total * (u64::from(self.highest - level) + 1) / levels;
            // At least one bucket, so that the cutoffs differ.
            loop {
                below += self.bytes[at];
                longest = bound(at);
                at += 1;
                if below >= wanted || at + usize::from(level - self.lowest) >= BUCKETS {
                    break;
                }
            }
            cutoffs[usize::from(level)] = longest;
        }
        debug_assert!(
            longest < MAX_MESSAGE_LEN,
            "buckets are left for the lowest level"
        );
        cutoffs[usize::from(self.lowest)] = MAX_MESSAGE_LEN;
        cutoffs
    }
}

/// The bucket of messages of that length.
fn bucket(len: u32) -> usize {
    (0..BUCKETS)
        .position(|at| len <= bound(at))
        .unwrap_or(BUCKETS - 1)
}

/// The longest length in a bucket: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ...
fn bound(at: usize) -> u32 {
    let at = at as u32 + 2 * PER_OCTAVE;
    let (octave, quarter) = (at / PER_OCTAVE, at % PER_OCTAVE);
    (1 << octave) + (quarter << octave) / PER_OCTAVE
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: [u32; 8] = [0, 0, 0, 0, MAX_MESSAGE_LEN, 15_000, 2_800, 200];

    fn traffic() -> Traffic {
        Traffic::new(40_000, 8, 3)
    }

    #[test]
    fn buckets_are_in_order_and_a_quarter_apart_at_most() {
        for at in 1..BUCKETS {
            assert!(bound(at) > bound(at - 1) && bound(at) * 4 <= bound(at - 1) * 5);
            assert_eq!(bucket(bound(at)), at);
            assert_eq!(bucket(bound(at - 1) + 1), at);
        }
        let last = [bound(BUCKETS - 2), bound(BUCKETS - 1)];
        assert!(last[0] < MAX_MESSAGE_LEN && MAX_MESSAGE_LEN <= last[1]);
    }

    /// Of four lengths each makes as many bytes: one for each of the four levels. The fourth is
    /// longer than its unscheduled bytes, of which alone it counts.
    #[test]
    fn each_level_carries_as_many_bytes() {
        let mut traffic = traffic();
        for (len, count) in [(100, 40_000), (1_000, 4_000), (10_000, 400), (500_000, 100)] {
            (0..count).for_each(|_| traffic.on_message(len));
        }
        let cutoffs = traffic.poll(Instant(INTERVAL.0), &DEFAULT).unwrap();
        assert_eq!(cutoffs, [0, 0, 0, 0, MAX_MESSAGE_LEN, 10_240, 1_024, 112]);
        // The same again is no news.
        for (len, count) in [(100, 40_000), (1_000, 4_000), (10_000, 400), (500_000, 100)] {
            (0..count).for_each(|_| traffic.on_message(len));
        }
        assert_eq!(traffic.poll(Instant(INTERVAL.0 * 2), &cutoffs), None);
    }

    #[test]
    fn little_or_recent_traffic_changes_nothing() {
        let mut traffic = traffic();
        (1..MESSAGES_MIN).for_each(|_| traffic.on_message(100));
        assert_eq!(traffic.poll(Instant(INTERVAL.0 * 9), &DEFAULT), None);
        traffic.on_message(100);
        assert_eq!(traffic.poll(Instant(INTERVAL.0 - 1), &DEFAULT), None);
        assert!(traffic.poll(Instant(INTERVAL.0), &DEFAULT).is_some());
    }

    /// Whatever comes, from one length only to all, and however many levels there are: cutoffs
    /// fall strictly, reach the longest message, and are zero below.
    #[test]
    fn cutoffs_are_always_valid() {
        for num_priorities in 1..=8 {
            for max_sched in 0..num_priorities {
                for len in [1, 200, 40_000, MAX_MESSAGE_LEN] {
                    let mut traffic = Traffic::new(40_000, num_priorities, max_sched);
                    (0..MESSAGES_MIN).for_each(|_| traffic.on_message(len));
                    let cutoffs = traffic.balanced();
                    let used: Vec<_> = cutoffs.into_iter().filter(|&bytes| bytes > 0).collect();
                    assert!(used.is_sorted_by(|a, b| a > b), "{cutoffs:?}");
                    assert_eq!(used[0], MAX_MESSAGE_LEN, "{cutoffs:?}");
                    let levels = (num_priorities - 1 - max_sched).max(1);
                    assert_eq!(used.len(), usize::from(levels), "{cutoffs:?}");
                    assert!(
                        cutoffs[usize::from(num_priorities)..]
                            .iter()
                            .all(|&bytes| bytes == 0)
                    );
                }
            }
        }
    }
}
