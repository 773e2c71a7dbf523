//! Which bytes of an incoming message are there, and which are missing.

use std::ops::Range;

use crate::homa::mutant::{self, Mutant};
use crate::time::{Duration, Instant};

/// Holes that one message may have at once; a packet that would make one more is dropped, and
/// comes again by RESEND. A message of 1,000,000 B at 10 % loss has about 30.
pub const HOLES_MAX: usize = 64;

/// The bytes `0..end` less the holes in them have arrived.
#[derive(Debug, Default)]
pub struct Gaps {
    end: u32,
    /// In order, none empty, none touching another.
    holes: Vec<Hole>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    pub range: Range<u32>,
    /// When later bytes were first seen.
    pub since: Instant,
    /// When it was last asked for.
    pub asked_at: Option<Instant>,
}

/// No room for another hole; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyHoles;

impl Hole {
    /// When it should be asked for: once it is older than `patience`, then every `interval`.
    pub fn due_at(&self, patience: Duration, interval: Duration) -> Instant {
        match self.asked_at {
            None => self.since + patience,
            Some(asked_at) => asked_at + interval,
        }
    }
}

impl Gaps {
    /// Nothing arrived; the memory for holes is kept.
    pub fn clear(&mut self) {
        self.end = 0;
        self.holes.clear();
    }

    /// One past the highest byte that arrived.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The missing stretches below [`Self::end`], lowest first.
    pub fn holes(&self) -> &[Hole] {
        &self.holes
    }

    /// As [`Self::holes`], to note when they are asked for.
    pub fn holes_mut(&mut self) -> &mut [Hole] {
        &mut self.holes
    }

    /// Notes that `range` came, and shows `fresh` each part of it that was not there before. Tells
    /// since when the oldest of the holes was there that it filled or made smaller.
    ///
    /// Deviation: HomaModule drops a packet that overlaps received bytes in part; we use the rest.
    #[inline]
    pub fn insert(
        &mut self,
        now: Instant,
        range: Range<u32>,
        mut fresh: impl FnMut(Range<u32>),
    ) -> Result<Option<Instant>, TooManyHoles> {
        if range.start == self.end {
            self.end = range.end;
            fresh(range);
            return Ok(None);
        }
        self.insert_out_of_order(now, range, &mut fresh)
    }

    fn insert_out_of_order(
        &mut self,
        now: Instant,
        range: Range<u32>,
        fresh: &mut dyn FnMut(Range<u32>),
    ) -> Result<Option<Instant>, TooManyHoles> {
        let mut oldest = None;
        if range.is_empty() {
            return Ok(oldest);
        }
        if range.start > self.end {
            if self.holes.len() == HOLES_MAX {
                return Err(TooManyHoles);
            }
            let wrong = u32::from(mutant::is_on(Mutant::GapOffByOne));
            if self.holes.capacity() == 0 {
                self.holes.reserve_exact(HOLES_MAX); // It never grows, and is kept.
            }
            self.holes.push(Hole {
                range: self.end + wrong..range.start,
                since: now,
                asked_at: None,
            });
        } else {
            oldest = self.fill(&range, fresh)?;
        }
        if range.end > self.end {
            let start = self.end.max(range.start);
            self.end = range.end;
            fresh(start..range.end);
        }
        Ok(oldest)
    }

    /// Takes `range` out of the holes. Tells the age of the oldest.
    fn fill(
        &mut self,
        range: &Range<u32>,
        fresh: &mut dyn FnMut(Range<u32>),
    ) -> Result<Option<Instant>, TooManyHoles> {
        let mut oldest: Option<Instant> = None;
        let first = self
            .holes
            .partition_point(|hole| hole.range.end <= range.start);
        let mut at = first;
        while let Some(hole) = self
            .holes
            .get(at)
            .filter(|hole| hole.range.start < range.end)
        {
            let (hole, since, asked_at) = (hole.range.clone(), hole.since, hole.asked_at);
            let keeps_left = hole.start < range.start;
            let keeps_right = range.end < hole.end;
            match (keeps_left, keeps_right) {
                (true, true) if self.holes.len() == HOLES_MAX => return Err(TooManyHoles),
                (true, true) => {
                    self.holes[at].range.end = range.start;
                    let right = Hole {
                        range: range.end..hole.end,
                        since,
                        asked_at,
                    };
                    self.holes.insert(at + 1, right);
                    at += 2;
                }
                (true, false) => {
                    self.holes[at].range.end = range.start;
                    at += 1;
                }
                (false, true) => {
                    self.holes[at].range.start = range.end;
                    at += 1;
                }
                (false, false) => {
                    self.holes.remove(at);
                }
            }
            oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            fresh(hole.start.max(range.start)..hole.end.min(range.end));
        }
        Ok(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn holes(gaps: &Gaps) -> Vec<(u32, u32)> {
        gaps.holes()
            .iter()
            .map(|hole| (hole.range.start, hole.range.end))
            .collect()
    }

    fn insert(gaps: &mut Gaps, at: u64, range: Range<u32>) -> Vec<(u32, u32)> {
        let mut fresh = Vec::new();
        gaps.insert(Instant(at), range, |part| {
            fresh.push((part.start, part.end))
        })
        .unwrap();
        fresh
    }

    /// Rule IN-09: packets at 1400 and 4200 leave holes 0-1399 and 2800-4199, each with its time.
    #[test]
    fn bytes_out_of_order_leave_holes_that_know_their_age() {
        let mut gaps = Gaps::default();
        assert_eq!(insert(&mut gaps, 1, 1400..2800), [(1400, 2800)]);
        assert_eq!(insert(&mut gaps, 2, 4200..5600), [(4200, 5600)]);
        assert_eq!(holes(&gaps), [(0, 1400), (2800, 4200)]);
        assert_eq!(
            (gaps.holes()[0].since, gaps.holes()[1].since),
            (Instant(1), Instant(2))
        );
        assert_eq!(gaps.end(), 5600);
    }

    /// Rule IN-10: a hole is filled, shrunk at either end, or split into two of the same age.
    #[test]
    fn a_hole_shrinks_splits_and_goes() {
        let mut gaps = Gaps::default();
        insert(&mut gaps, 7, 1000..2000);
        insert(&mut gaps, 8, 400..600);
        assert_eq!(holes(&gaps), [(0, 400), (600, 1000)]);
        assert!(gaps.holes().iter().all(|hole| hole.since == Instant(7)));
        insert(&mut gaps, 8, 0..100);
        insert(&mut gaps, 8, 900..1000);
        assert_eq!(holes(&gaps), [(100, 400), (600, 900)]);
        insert(&mut gaps, 8, 100..400);
        assert_eq!(holes(&gaps), [(600, 900)]);
    }

    /// Packets at 1400 (at 1) and 4200 (at 2) leave two holes; who fills both learns of the older.
    #[test]
    fn who_fills_a_hole_learns_since_when_it_was_there() {
        let mut gaps = Gaps::default();
        let mut at = |now, range| gaps.insert(Instant(now), range, |_| ());
        assert_eq!(at(1, 1400..2800), Ok(None));
        assert_eq!(at(2, 4200..5600), Ok(None));
        assert_eq!(at(3, 5600..5700), Ok(None));
        assert_eq!(at(4, 3000..3100), Ok(Some(Instant(2))));
        assert_eq!(at(5, 0..5000), Ok(Some(Instant(1))));
        assert_eq!(at(6, 0..100), Ok(None));
    }

    #[test]
    fn a_hole_is_due_when_it_is_old_enough_and_then_at_intervals() {
        let (patience, interval) = (Duration(5), Duration(50));
        let mut gaps = Gaps::default();
        insert(&mut gaps, 100, 1000..2000);
        assert_eq!(gaps.holes()[0].due_at(patience, interval), Instant(105));
        gaps.holes_mut()[0].asked_at = Some(Instant(106));
        insert(&mut gaps, 110, 300..400);
        let due: Vec<_> = gaps
            .holes()
            .iter()
            .map(|hole| hole.due_at(patience, interval))
            .collect();
        assert_eq!(due, [Instant(156), Instant(156)]);
    }

    #[test]
    fn only_the_new_part_of_an_overlap_counts() {
        let mut gaps = Gaps::default();
        insert(&mut gaps, 0, 0..1000);
        insert(&mut gaps, 0, 2000..3000);
        assert_eq!(insert(&mut gaps, 0, 500..2500), [(1000, 2000)]);
        assert_eq!(insert(&mut gaps, 0, 2500..3500), [(3000, 3500)]);
        assert_eq!(insert(&mut gaps, 0, 0..3500), []);
        assert!(gaps.holes().is_empty());
    }

    /// Rule IN-14: with no room for a hole or a split, all is as before.
    #[test]
    fn one_hole_too_many_changes_nothing() {
        let mut gaps = Gaps::default();
        for i in 0..HOLES_MAX as u32 {
            insert(&mut gaps, 0, i * 20 + 10..i * 20 + 20);
        }
        let before = (holes(&gaps), gaps.end());
        let mut never = |_| panic!("nothing is new");
        assert_eq!(
            gaps.insert(Instant(0), 9000..9001, &mut never),
            Err(TooManyHoles)
        );
        assert_eq!(gaps.insert(Instant(0), 3..5, &mut never), Err(TooManyHoles));
        assert_eq!((holes(&gaps), gaps.end()), before);
    }

    /// All orders of odd pieces with overlaps: each byte is fresh exactly once.
    #[test]
    fn each_byte_is_new_exactly_once_whatever_the_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut gaps = Gaps::default();
            let mut seen = [0u8; 300];
            while gaps.end() < 300 || !gaps.holes().is_empty() {
                let start = rng.below(300) as u32;
                let end = (start + 1 + rng.below(40) as u32).min(300);
                let _ = gaps.insert(Instant(0), start..end, |part| {
                    part.for_each(|byte| seen[byte as usize] += 1);
                });
            }
            assert!(seen.iter().all(|&count| count == 1), "seed {seed}");
        }
    }
}
