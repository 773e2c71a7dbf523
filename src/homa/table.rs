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

    /// The hash under which an RPC is filed: all that names it, with a secret.
    #[inline]
    pub fn hash(&self, ip: u128, port: u16, id: u64) -> u64 {
        let host = (ip >> 64) as u64 ^ (ip as u64).rotate_left(16) ^ u64::from(port) << 48;
        self.keyed.hash2(id, host)
    }

    pub fn insert(&mut self, hash: u64, slot: u32) {
        let bucket = self.bucket(hash);
        self.next[slot as usize] = std::mem::replace(&mut self.heads[bucket], slot);
    }

    /// The first slot filed under `hash` that `is_it` accepts; chains mix neighbours in.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut slot = self.heads[self.bucket(hash)];
        while slot != NONE {
            if is_it(slot) {
                return Some(slot);
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
            assert_eq!(table.find(9, |slot| slot == gone), Some(gone));
            table.remove(9, gone);
            assert_eq!(table.find(9, |slot| slot == gone), None);
        }
        assert_eq!(table.find(9, |_| true), None);
    }

    #[test]
    fn address_port_and_id_all_count() {
        let table = Table::new(4, Keyed::new(1));
        let hash = table.hash(5, 6, 7);
        assert_ne!(hash, table.hash(4, 6, 7));
        assert_ne!(hash, table.hash(5, 7, 7));
        assert_ne!(hash, table.hash(5, 6, 8));
    }
}
