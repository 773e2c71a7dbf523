//! Finds a server RPC by what its client calls it.

use crate::keyed::Keyed;

/// No slot.
const NONE: u32 = u32::MAX;

/// A hash table of slots, chained through the slots themselves, so that it never fills up.
///
/// It knows no RPCs: the caller hashes, and compares whom it is shown.
#[derive(Debug)]
pub struct Table {
    heads: Vec<u32>,
    next: Vec<u32>,
    keyed: Keyed,
}

impl Table {
    /// For slots below `slots_max`.
    pub fn new(slots_max: u32, keyed: Keyed) -> Self {
        let heads = (slots_max as usize * 2).next_power_of_two();
        Self {
            heads: vec![NONE; heads],
            next: vec![NONE; slots_max as usize],
            keyed,
        }
    }

    /// The hash under which an RPC is filed, with a secret: its id, and a number that stands for
    /// its peer.
    #[inline]
    pub fn hash(&self, peer: u64, id: u64) -> u64 {
        self.keyed.hash2(id, peer)
    }

    #[inline]
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let bucket = self.bucket(hash);
        self.next[slot as usize] = std::mem::replace(&mut self.heads[bucket], slot);
    }

    /// What `look` makes of the first slot filed under `hash` of which it makes something; chains
    /// mix neighbours in.
    #[inline]
    pub fn find<T>(&self, hash: u64, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        let mut slot = self.heads[self.bucket(hash)];
        while slot != NONE {
            let found = look(slot);
            if found.is_some() {
                return found;
            }
            slot = self.next[slot as usize];
        }
        None
    }

    /// Takes out a slot that was filed under `hash`.
    pub fn remove(&mut self, hash: u64, slot: u32) {
        let bucket = self.bucket(hash);
        let after = std::mem::replace(&mut self.next[slot as usize], NONE);
        if self.heads[bucket] == slot {
            self.heads[bucket] = after;
            return;
        }
        let mut at = self.heads[bucket];
        while at != NONE {
            if self.next[at as usize] == slot {
                self.next[at as usize] = after;
                return;
            }
            at = self.next[at as usize];
        }
        debug_assert!(false, "slot {slot} was not filed under this hash");
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule RP-03: RPCs that share a bucket do not hide each other.
    #[test]
    fn slots_of_one_bucket_are_found_and_removed_each_by_itself() {
        let mut table = Table::new(4, Keyed::new(1));
        (0..4).for_each(|slot| table.insert(9, slot));
        for gone in [2, 3, 0, 1] {
            let find = |table: &Table| table.find(9, |slot| (slot == gone).then_some(slot));
            assert_eq!(find(&table), Some(gone));
            table.remove(9, gone);
            assert_eq!(find(&table), None);
        }
        assert_eq!(table.find(9, Some), None);
    }

    #[test]
    fn peer_and_id_both_count() {
        let table = Table::new(4, Keyed::new(1));
        let hash = table.hash(5, 7);
        assert_ne!(hash, table.hash(4, 7));
        assert_ne!(hash, table.hash(5, 8));
        assert_ne!(hash, table.hash(7, 5));
    }
}
