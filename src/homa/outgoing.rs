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
/// older one if two are equal.
#[derive(Debug, Default)]
pub struct Outgoing {
    retransmits: VecDeque<RpcKey>,
    /// The first of the short ones, nobody's if there is none: mostly it is the only one.
    next_short: RpcKey,
    later_short: VecDeque<RpcKey>,
    heap: Vec<Entry>,
    /// Where in the heap each slot stands.
    places: Vec<u32>,
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

impl Outgoing {
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
        self.places[rpc.index() as usize] = ABSENT;
        self.heap.swap_remove(place as usize);
        if (place as usize) < self.heap.len() {
            self.places[self.heap[place as usize].rpc.index() as usize] = place;
            self.rise(place as usize);
            self.sink(place as usize);
        }
    }

    /// Whose turn it is. Short ones and retransmissions are no longer filed; a long one stays, with
    /// what it has left to be told by [`Self::file`] or [`Self::unfile`].
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Turn> {
        if let Some(rpc) = self.retransmits.pop_front() {
            return Some(Turn::Retransmit(rpc));
        }
        if self.next_short != RpcKey::default() {
            let next = match self.later_short.is_empty() {
                true => RpcKey::default(),
                false => self.later_short.pop_front().unwrap_or_default(),
            };
            return Some(Turn::Short(std::mem::replace(&mut self.next_short, next)));
        }
        self.heap.first().map(|entry| Turn::Long(entry.rpc))
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
        let has_short = self.next_short != RpcKey::default();
        self.retransmits.is_empty() && !has_short && self.heap.is_empty()
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
        let mut outgoing = Outgoing::default();
        outgoing.file(rpc(0), 5000, Instant(1));
        outgoing.file(rpc(1), 3000, Instant(9));
        outgoing.file(rpc(2), 3000, Instant(2));
        assert_eq!(outgoing.poll(), Some(Turn::Long(rpc(2))));
        outgoing.unfile(rpc(2));
        outgoing.file(rpc(0), 100, Instant(1));
        assert_eq!(outgoing.poll(), Some(Turn::Long(rpc(0))));
    }

    #[test]
    fn retransmissions_and_short_messages_go_before_long_ones() {
        let mut outgoing = Outgoing::default();
        outgoing.file(rpc(0), 10, Instant(0));
        outgoing.file_short(rpc(1));
        outgoing.file_retransmit(rpc(2));
        assert_eq!(outgoing.poll(), Some(Turn::Retransmit(rpc(2))));
        assert_eq!(outgoing.poll(), Some(Turn::Short(rpc(1))));
        assert_eq!(outgoing.poll(), Some(Turn::Long(rpc(0))));
    }

    #[test]
    fn a_stale_key_takes_nobody_else_out() {
        let mut outgoing = Outgoing::default();
        outgoing.file(rpc(0), 10, Instant(0));
        outgoing.unfile(Key::from_parts(0, 9));
        outgoing.unfile(rpc(77));
        assert_eq!(outgoing.poll(), Some(Turn::Long(rpc(0))));
        outgoing.unfile(rpc(0));
        outgoing.unfile(rpc(0));
        assert!(outgoing.is_empty());
    }

    #[test]
    fn the_order_holds_over_any_filing_and_unfiling() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut outgoing = Outgoing::default();
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
                assert_eq!(outgoing.poll(), first, "seed {seed} step {step}");
            }
        }
    }
}
