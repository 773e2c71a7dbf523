//! Whose bytes go out next: shortest remaining processing time first.

use std::collections::VecDeque;

use crate::homa::event::RpcKey;
use crate::time::Instant;

/// Not in the heap.
const ABSENT: u32 = u32::MAX;

/// RPCs with bytes that may be sent.
///
/// Retransmissions go first, as somebody waits for them; then messages of one packet in the order
/// they were made, which spares them the heap; then the message with the fewest bytes left, the
/// older one if two are equal. A small share of the bytes of these is the oldest one's, so that it
/// does not starve.
#[derive(Debug)]
pub struct Outgoing {
    retransmits: VecDeque<RpcKey>,
    /// The first of the short ones, nobody's if there is none: mostly it is the only one.
    next_short: RpcKey,
    later_short: VecDeque<RpcKey>,
    heap: Vec<Entry>,
    /// Where in the heap each slot stands.
    places: Vec<u32>,
    /// The oldest in the heap, if somebody looked.
    oldest: Option<(Instant, RpcKey)>,
    fifo_thousandths: u32,
    /// What the oldest has coming, in thousandths of a byte.
    owed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    left: u32,
    birth: Instant,
    rpc: RpcKey,
}

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Retransmit(RpcKey),
    Short(RpcKey),
    Long(RpcKey),
}

/// So many thousandths of a byte make the oldest's turn: a packet of Ethernet's usual length.
const TURN: u64 = 1_500_000;

/// The share of the oldest is at most half. Source: HomaModule `pacer_fifo_fraction`.
const FIFO_MAX: u16 = 500;

impl Outgoing {
    /// `fifo_thousandths` of the bytes of long messages are the oldest's.
    pub fn new(fifo_thousandths: u16) -> Self {
        Self {
            retransmits: VecDeque::new(),
            next_short: RpcKey::default(),
            later_short: VecDeque::new(),
            heap: Vec::new(),
            places: Vec::new(),
            oldest: None,
            fifo_thousandths: fifo_thousandths.min(FIFO_MAX).into(),
            owed: 0,
        }
    }

    /// Files an RPC that owes retransmissions. The caller files it once until its turn comes.
    pub fn file_retransmit(&mut self, rpc: RpcKey) {
        self.retransmits.push_back(rpc);
    }

    /// Files a message of one packet. The caller files it once until its turn comes.
    #[inline(always)]
    pub fn file_short(&mut self, rpc: RpcKey) {
        if self.next_short == RpcKey::default() {
            self.next_short = rpc;
        } else {
            self.later_short.push_back(rpc);
        }
    }

    /// Files a longer message with `left` bytes to go, or moves it if it is filed.
    pub fn file(&mut self, rpc: RpcKey, left: u32, birth: Instant) {
        let entry = Entry { left, birth, rpc };
        let slot = rpc.index() as usize;
        if slot >= self.places.len() {
            self.places.resize(slot + 1, ABSENT);
        }
        match self.places[slot] {
            ABSENT => {
                let this = (birth, rpc);
                self.oldest = self.oldest.map(|oldest| oldest.min(this));
                self.heap.push(entry);
                self.rise(self.heap.len() - 1);
            }
            place => {
                self.heap[place as usize] = entry;
                self.rise(place as usize);
                self.sink(self.places[slot] as usize);
            }
        }
    }

    /// Takes a message out of the order; nothing if it is not in it.
    pub fn unfile(&mut self, rpc: RpcKey) {
        let Some(&place) = self.places.get(rpc.index() as usize) else {
            return;
        };
        if place == ABSENT || self.heap[place as usize].rpc != rpc {
            return;
        }
        if self.oldest.is_some_and(|(_, oldest)| oldest == rpc) {
            self.oldest = None;
        }
        self.places[rpc.index() as usize] = ABSENT;
        self.heap.swap_remove(place as usize);
        if (place as usize) < self.heap.len() {
            self.places[self.heap[place as usize].rpc.index() as usize] = place;
            self.rise(place as usize);
            self.sink(place as usize);
        }
    }

    /// Whose turn it is. Short ones and retransmissions are no longer filed; a long one stays, with
    /// what it has left to be told by [`Self::file`] or [`Self::unfile`]. There is no turn for long
    /// ones unless `long_may` go.
    #[inline(always)]
    pub fn poll(&mut self, long_may: impl FnOnce() -> bool) -> Option<Turn> {
        if !self.retransmits.is_empty()
            && let Some(rpc) = self.retransmits.pop_front()
        {
            return Some(Turn::Retransmit(rpc));
        }
        if self.next_short != RpcKey::default() {
            let next = match self.later_short.is_empty() {
                true => RpcKey::default(),
                false => self.later_short.pop_front().unwrap_or_default(),
            };
            return Some(Turn::Short(std::mem::replace(&mut self.next_short, next)));
        }
        let first = self.heap.first()?.rpc;
        if !long_may() {
            return None;
        }
        Some(Turn::Long(match self.owed >= TURN {
            true => self.oldest(),
            false => first,
        }))
    }

    /// The message of one packet that is all there is, if it is; it is filed no more.
    #[inline(always)]
    pub fn poll_lone(&mut self) -> Option<RpcKey> {
        let is_lone = self.next_short != RpcKey::default()
            && self.later_short.is_empty()
            && self.retransmits.is_empty();
        // Long ones go after all short ones.
        is_lone.then(|| std::mem::take(&mut self.next_short))
    }

    /// A long message sent so many bytes. Of all that is sent while several wait a share is the
    /// oldest's, and what it sends in its turn counts against that.
    pub fn on_long(&mut self, rpc: RpcKey, bytes: u32) {
        if self.fifo_thousandths == 0 {
            return;
        }
        let was_owed = self.owed >= TURN;
        if self.heap.len() > 1 {
            self.owed += u64::from(bytes) * u64::from(self.fifo_thousandths);
        }
        if was_owed && self.oldest.is_some_and(|(_, oldest)| oldest == rpc) {
            self.owed = self.owed.saturating_sub(u64::from(bytes) * 1_000);
        }
    }

    /// Whether something waits that nothing holds back but the device.
    #[inline]
    pub fn has_prompt(&self) -> bool {
        self.next_short != RpcKey::default() || !self.retransmits.is_empty()
    }

    /// Whether a long message waits for its turn.
    pub fn has_long(&self) -> bool {
        !self.heap.is_empty()
    }

    /// The oldest in the heap, which is not empty. It is searched for when the last one is done,
    /// which is once a message, or less.
    #[cold]
    fn oldest(&mut self) -> RpcKey {
        let all = self.heap.iter().map(|entry| (entry.birth, entry.rpc));
        let oldest = self.oldest.or_else(|| all.min());
        self.oldest = oldest;
        oldest.map_or(self.heap[0].rpc, |(_, rpc)| rpc)
    }

    /// Whether a message's turn to send new bytes will come.
    pub fn contains(&self, rpc: RpcKey) -> bool {
        let place = self.places.get(rpc.index() as usize);
        let entry = place.and_then(|&place| self.heap.get(place as usize));
        entry.is_some_and(|entry| entry.rpc == rpc)
            || self.next_short == rpc
            || self.later_short.contains(&rpc)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        // While there is a later short one there is a next.
        !self.has_prompt() && self.heap.is_empty()
    }

    /// # Panics
    /// If the order is none, or a place is wrong.
    pub fn check(&self) {
        for (at, entry) in self.heap.iter().enumerate() {
            assert!(at == 0 || self.heap[(at - 1) / 2] <= *entry, "out of order");
            assert_eq!(self.places[entry.rpc.index() as usize], at as u32, "place");
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] <= self.heap[at] {
                break;
            }
            self.heap.swap(parent, at);
            self.places[self.heap[at].rpc.index() as usize] = at as u32;
            at = parent;
        }
        self.places[self.heap[at].rpc.index() as usize] = at as u32;
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(mut child) = self.heap.get(left).map(|_| left) else {
                break;
            };
            if self
                .heap
                .get(left + 1)
                .is_some_and(|right| *right < self.heap[left])
            {
                child = left + 1;
            }
            if self.heap[at] <= self.heap[child] {
                break;
            }
            self.heap.swap(at, child);
            self.places[self.heap[at].rpc.index() as usize] = at as u32;
            at = child;
        }
        self.places[self.heap[at].rpc.index() as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::slots::Key;

    fn rpc(index: u32) -> RpcKey {
        Key::from_parts(index, 1)
    }

    #[test]
    fn fewest_bytes_left_goes_first_and_the_older_of_two_equals() {
        let mut outgoing = Outgoing::new(0);
        outgoing.file(rpc(0), 5000, Instant(1));
        outgoing.file(rpc(1), 3000, Instant(9));
        outgoing.file(rpc(2), 3000, Instant(2));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Long(rpc(2))));
        outgoing.unfile(rpc(2));
        outgoing.file(rpc(0), 100, Instant(1));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Long(rpc(0))));
    }

    #[test]
    fn retransmissions_and_short_messages_go_before_long_ones() {
        let mut outgoing = Outgoing::new(0);
        outgoing.file(rpc(0), 10, Instant(0));
        outgoing.file_short(rpc(1));
        outgoing.file_retransmit(rpc(2));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Retransmit(rpc(2))));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Short(rpc(1))));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Long(rpc(0))));
    }

    /// Rule PA-01. Of 100 packets of 1,500 B at 50 thousandths five are the oldest's, which has the
    /// most bytes left; with two at 500 every second.
    #[test]
    fn a_share_of_the_bytes_is_the_oldests() {
        for (thousandths, expected) in [(0, 0), (50, 5), (500, 50), (900, 50)] {
            let mut outgoing = Outgoing::new(thousandths);
            outgoing.file(rpc(0), 900_000, Instant(1));
            outgoing.file(rpc(1), 500_000, Instant(2));
            outgoing.file(rpc(2), 400_000, Instant(3));
            let mut turns = [0_u32; 3];
            for _ in 0..105 {
                let Some(Turn::Long(next)) = outgoing.poll(|| true) else {
                    panic!("they all have bytes left");
                };
                turns[next.index() as usize] += 1;
                outgoing.on_long(next, 1500);
            }
            assert!(turns[0].abs_diff(expected) <= 3, "{thousandths}: {turns:?}");
            assert_eq!(turns[1], 0);
        }
    }

    /// Who is done is the oldest no longer; who comes back may be.
    #[test]
    fn the_oldest_is_the_oldest_of_those_that_are_filed() {
        let mut outgoing = Outgoing::new(500);
        (0..4).for_each(|index| outgoing.file(rpc(index), 1000 - index, Instant(index.into())));
        for (gone, oldest) in [(0, 1), (1, 2)] {
            outgoing.unfile(rpc(gone));
            assert_eq!(outgoing.oldest(), rpc(oldest));
        }
        outgoing.file(rpc(1), 5000, Instant(1));
        assert_eq!(outgoing.oldest(), rpc(1));
        outgoing.file(rpc(0), 1, Instant(9));
        assert_eq!(outgoing.oldest(), rpc(1));
    }

    /// Rule OUT-12: short ones and retransmissions pass when the NIC's queue is full.
    #[test]
    fn only_long_messages_can_be_held_back() {
        let mut outgoing = Outgoing::new(50);
        outgoing.file(rpc(0), 5000, Instant(0));
        outgoing.file_short(rpc(1));
        outgoing.file_retransmit(rpc(2));
        assert_eq!(outgoing.poll(|| false), Some(Turn::Retransmit(rpc(2))));
        assert_eq!(outgoing.poll(|| false), Some(Turn::Short(rpc(1))));
        assert_eq!(outgoing.poll(|| false), None);
        assert_eq!(outgoing.poll(|| true), Some(Turn::Long(rpc(0))));
    }

    #[test]
    fn a_stale_key_takes_nobody_else_out() {
        let mut outgoing = Outgoing::new(0);
        outgoing.file(rpc(0), 10, Instant(0));
        outgoing.unfile(Key::from_parts(0, 9));
        outgoing.unfile(rpc(77));
        assert_eq!(outgoing.poll(|| true), Some(Turn::Long(rpc(0))));
        outgoing.unfile(rpc(0));
        outgoing.unfile(rpc(0));
        assert!(outgoing.is_empty());
    }

    #[test]
    fn the_order_holds_over_any_filing_and_unfiling() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut outgoing = Outgoing::new(0);
            let mut table = [None; 30];
            for step in 0..400 {
                let index = rng.below(30) as u32;
                if rng.one_in_thousand(300) {
                    outgoing.unfile(rpc(index));
                    table[index as usize] = None;
                } else {
                    let (left, birth) = (rng.below(50) as u32, Instant(rng.below(5)));
                    outgoing.file(rpc(index), left, birth);
                    table[index as usize] = Some((left, birth, index));
                }
                let first = table
                    .iter()
                    .flatten()
                    .min()
                    .map(|&(_, _, i)| Turn::Long(rpc(i)));
                assert_eq!(outgoing.poll(|| true), first, "seed {seed} step {step}");
            }
        }
    }
}
