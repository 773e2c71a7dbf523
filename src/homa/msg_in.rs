//! A message on its way in: what came, and what may still come.

use std::ops::Range;

use crate::homa::event::RunKey;
use crate::homa::gaps::{Gaps, Hole, TooManyHoles};
use crate::homa::grant::Grantee;
use crate::homa::share::Share;
use crate::slots::Key;
use crate::time::Instant;

/// The receiver's view of one message.
#[derive(Debug, Default)]
pub struct MsgIn {
    pub len: u32,
    /// Distinct bytes that arrived.
    pub received: u32,
    /// Bytes `0..granted` may come without a further grant.
    pub granted: u32,
    pub birth: Instant,
    pub place: Place,
    /// On whose account its bytes go.
    pub share: Share,
    /// Its entry in the order of grants, if it needs any.
    pub grantee: Option<Key<Grantee>>,
    pub empty_reply: bool,
    /// Which life of its sender it is from: the number in its packets, and the sender's incarnation
    /// by our count, which must do where there is no number.
    pub life: (u16, u16),
    /// The priority of a grant that waits for its sender's link.
    pub parked_grant: Option<u8>,
    /// From where on to ask again, if not all could be asked for at once.
    pub ask_from: u32,
    /// It is filed to have its holes looked at.
    pub repair_filed: bool,
    /// Since when the hole was there that was asked for last.
    pub repaired_since: Option<Instant>,
    gaps: Gaps,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    Run(RunKey),
    /// Only its first packet came, whose bytes have a run of their own: one packet is too little
    /// to take many pages for it.
    First(RunKey),
    /// No run was free; what comes meanwhile is dropped.
    #[default]
    Waiting,
}

impl MsgIn {
    /// Begins a message in place of one that is over.
    pub fn begin(&mut self, len: u32, granted: u32, birth: Instant, place: Place, share: Share) {
        self.len = len;
        self.received = 0;
        self.granted = granted.min(len);
        self.birth = birth;
        self.place = place;
        self.share = share;
        self.grantee = None;
        self.empty_reply = false;
        self.parked_grant = None;
        self.ask_from = 0;
        self.repair_filed = false;
        self.repaired_since = None;
        self.gaps.clear();
    }

    /// The run that has its bytes, or the first of them.
    pub fn run(&self) -> Option<RunKey> {
        match self.place {
            Place::Run(run) | Place::First(run) => Some(run),
            Place::Waiting => None,
        }
    }

    /// Notes that `range` came, and shows each new part of it to `fresh`. Tells as
    /// [`Gaps::insert`] the age of what it filled.
    #[inline]
    pub fn insert(
        &mut self,
        now: Instant,
        range: Range<u32>,
        mut fresh: impl FnMut(Range<u32>),
    ) -> Result<Option<Instant>, TooManyHoles> {
        let received = &mut self.received;
        self.gaps.insert(now, range, |part| {
            *received += part.end - part.start;
            fresh(part);
        })
    }

    /// Whether a packet with this life of its sender is part of it.
    pub fn is_of(&self, (number, incarnation): (u16, u16)) -> bool {
        self.life.0 == number && (number != 0 || self.life.1 == incarnation)
    }

    /// One past the highest byte that arrived.
    pub fn end(&self) -> u32 {
        self.gaps.end()
    }

    pub fn holes(&self) -> &[Hole] {
        self.gaps.holes()
    }

    pub fn holes_mut(&mut self) -> &mut [Hole] {
        self.gaps.holes_mut()
    }

    /// Forgets what came: there is no room for it.
    pub fn forget_bytes(&mut self) {
        (self.received, self.gaps) = (0, Gaps::default());
        self.place = Place::Waiting;
    }

    pub fn is_whole(&self) -> bool {
        self.received == self.len
    }

    /// All that may come has come, so that silence means nothing.
    pub fn has_all_granted(&self) -> bool {
        self.gaps.holes().is_empty() && self.gaps.end() >= self.granted
    }

    /// The stretches to ask for again: each hole, then what was granted past the last byte.
    ///
    /// Rules IN-05 to IN-08.
    pub fn missing(&self) -> impl Iterator<Item = Range<u32>> {
        let tail = self.gaps.end()..self.granted;
        let holes = self.gaps.holes().iter().map(|hole| hole.range.clone());
        holes.chain((!tail.is_empty()).then_some(tail))
    }

    /// # Panics
    /// If it is at odds with itself.
    pub fn check(&self) {
        assert!(
            self.granted <= self.len && self.gaps.end() <= self.len,
            "{self:?}"
        );
        let holes = self.gaps.holes().iter();
        let missing: u32 = holes.map(|hole| hole.range.end - hole.range.start).sum();
        assert_eq!(
            self.received,
            self.gaps.end() - missing,
            "neither here nor missing: {self:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32, granted: u32) -> MsgIn {
        let mut message = MsgIn::default();
        message.begin(len, granted, Instant(0), Place::Waiting, Share::Response);
        message
    }

    fn insert(message: &mut MsgIn, range: Range<u32>) {
        message.insert(Instant(0), range, |_| ()).unwrap();
    }

    /// Rule IN-05: the holes, and no tail if all that was granted past them came.
    #[test]
    fn each_hole_is_missing_and_the_tail_only_if_granted() {
        let mut message = message(10_000, 10_000);
        for range in [0..1000, 2000..4000, 6000..7000, 8000..10_000] {
            insert(&mut message, range);
        }
        let missing: Vec<_> = message.missing().collect();
        assert_eq!(missing, [1000..2000, 4000..6000, 7000..8000]);
        assert_eq!(message.received, 6000);
    }

    /// Rules IN-06, IN-07.
    #[test]
    fn the_tail_is_missing_as_far_as_it_was_granted() {
        let mut message = message(10_000, 3000);
        insert(&mut message, 0..1400);
        assert_eq!(
            message.missing().collect::<Vec<_>>(),
            std::slice::from_ref(&(1400..3000))
        );
        assert!(!message.has_all_granted());
        insert(&mut message, 1400..3000);
        assert_eq!(message.missing().count(), 0);
        assert!(message.has_all_granted() && !message.is_whole());
    }

    #[test]
    fn a_byte_counts_once() {
        let mut message = message(2000, 2000);
        insert(&mut message, 0..1000);
        insert(&mut message, 500..2000);
        insert(&mut message, 0..2000);
        assert!(message.is_whole());
        assert_eq!(message.received, 2000);
    }
}
