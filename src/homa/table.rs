//! Finds a server RPC by what its client calls it.

use crate::keyed::Keyed;

/// No slot.
const NONE: u32 = u32::MAX;

/// Heads of the smallest table: they fit a quarter of a core's first cache.
const HEADS_MIN: usize = 2048;

/// A hash table of slots, chained through the slots themselves, so that it never fills up.
///
/// It knows no RPCs: the caller hashes, and compares whom it is shown. It doubles when it holds
/// more than one slot per head, because one that is as large as it may ever become costs a cache
/// miss or two with each look.
#[derive(Debug)]
pub struct Table {
    heads: Vec<u32>,
    chained: Vec<Chained>,
    count: usize,
    keyed: Keyed,
}

/// A slot in its chain.
#[derive(Clone, Copy, Debug)]
struct Chained {
    /// The upper half of the hash, of which the head is a part.
    hash: u32,
    next: u32,
}

impl Table {
    pub fn new(keyed: Keyed) -> Self {
        Self {
            heads: vec![NONE; HEADS_MIN],
            chained: Vec::new(),
            count: 0,
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
        let (hash, index) = (upper(hash), slot as usize);
        if self.count == self.heads.len() || index >= self.chained.len() {
            self.make_room(index);
        }
        let head = self.head(hash);
        let next = std::mem::replace(&mut self.heads[head], slot);
        self.chained[index] = Chained { hash, next };
        self.count += 1;
    }

    /// What `look` makes of the first slot filed under `hash` of which it makes something; chains
    /// mix neighbours in.
    #[inline]
    pub fn find<T>(&self, hash: u64, look: impl Fn(u32) -> Option<T>) -> Option<T> {
        let mut slot = self.heads[self.head(upper(hash))];
        while slot != NONE {
            let found = look(slot);
            if found.is_some() {
                return found;
            }
            slot = self.chained[slot as usize].next;
        }
        None
    }

    /// Takes out a slot that was filed.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        let Chained { hash, next } = self.chained[slot as usize];
        let head = self.head(hash);
        self.count -= 1;
        if self.heads[head] == slot {
            self.heads[head] = next;
        } else {
            self.remove_further(self.heads[head], slot, next);
        }
    }

    /// Takes out a slot that others of its chain come before.
    #[cold]
    fn remove_further(&mut self, first: u32, slot: u32, next: u32) {
        let mut at = first;
        while at != NONE {
            let before = &mut self.chained[at as usize];
            if before.next == slot {
                before.next = next;
                return;
            }
            at = before.next;
        }
        debug_assert!(false, "slot {slot} was not filed");
    }

    /// Makes room for a slot of that number, and for one more. A table of 65,536 slots has
    /// doubled five times in its life.
    #[cold]
    fn make_room(&mut self, index: usize) {
        if index >= self.chained.len() {
            let nobody = Chained {
                hash: 0,
                next: NONE,
            };
            self.chained.resize(index + 1, nobody);
        }
        if self.count < self.heads.len() {
            return;
        }
        let old = std::mem::take(&mut self.heads);
        self.heads = vec![NONE; old.len() * 2];
        for mut slot in old {
            while slot != NONE {
                let Chained { hash, next } = self.chained[slot as usize];
                let head = self.head(hash);
                self.chained[slot as usize].next = std::mem::replace(&mut self.heads[head], slot);
                slot = next;
            }
        }
    }

    #[inline]
    fn head(&self, hash: u32) -> usize {
        hash as usize & (self.heads.len() - 1)
    }
}

#[inline]
const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule RP-03: RPCs that share a bucket do not hide each other.
    #[test]
    fn slots_of_one_bucket_are_found_and_removed_each_by_itself() {
        let mut table = Table::new(Keyed::new(1));
        (0..4).for_each(|slot| table.insert(9, slot));
        for gone in [2, 3, 0, 1] {
            let find = |table: &Table| table.find(9, |slot| (slot == gone).then_some(slot));
            assert_eq!(find(&table), Some(gone));
            table.remove(gone);
            assert_eq!(find(&table), None);
        }
        assert_eq!(table.find(9, Some), None);
    }

    #[test]
    fn a_table_that_grows_loses_none() {
        let mut table = Table::new(Keyed::new(1));
        let hash = |table: &Table, slot: u32| table.hash(7, slot.into());
        let slots = 5 * HEADS_MIN as u32;
        for slot in 0..slots {
            table.insert(hash(&table, slot), slot);
        }
        (0..slots).step_by(3).for_each(|slot| table.remove(slot));
        for slot in 0..slots {
            let found = table.find(hash(&table, slot), |at| (at == slot).then_some(at));
            assert_eq!(found.is_some(), slot % 3 != 0, "{slot}");
        }
    }

    #[test]
    fn peer_and_id_both_count() {
        let table = Table::new(Keyed::new(1));
        let hash = table.hash(5, 7);
        assert_ne!(hash, table.hash(4, 7));
        assert_ne!(hash, table.hash(5, 8));
        assert_ne!(hash, table.hash(7, 5));
    }
}
