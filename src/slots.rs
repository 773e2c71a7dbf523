//! A bounded slab whose handles know their generation, so that a stale one is found out.

use std::fmt;
use std::marker::PhantomData;

/// A handle into a [`Slots<T>`]: which slot, and which of its tenants.
pub struct Key<T> {
    index: u32,
    generation: u32,
    tenant: PhantomData<fn() -> T>,
}

/// At most `capacity` values, each under a [`Key`]. The slot freed last is used first.
pub struct Slots<T> {
    values: slab::Slab<Tenant<T>>,
    /// Of the next tenant, whichever slot it gets, so that no slot must remember its last one.
    next_generation: u32,
    capacity: usize,
}

/// A value and whose it is, side by side so that one look finds both.
struct Tenant<T> {
    generation: u32,
    value: T,
}

impl<T> Slots<T> {
    /// An empty table for `capacity` values. Memory is taken as it fills.
    pub fn new(capacity: usize) -> Self {
        assert!(
            u32::try_from(capacity).is_ok(),
            "a slot's number must fit 32 bits"
        );
        Self {
            values: slab::Slab::new(),
            next_generation: 1,
            capacity,
        }
    }

    /// Puts a value in; `None`, and the value is dropped, if all slots are taken.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<Key<T>> {
        self.insert_with(|_| value)
    }

    /// As [`Self::insert`], for a value that wants to know its own key.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(Key<T>) -> T) -> Option<Key<T>> {
        if self.is_full() {
            return None;
        }
        let generation = self.next_generation;
        // Zero is skipped so that a key of all zeroes is never valid.
        self.next_generation = generation.wrapping_add(1).max(1);
        let entry = self.values.vacant_entry();
        let key = Key::from_parts(entry.key() as u32, generation);
        entry.insert(Tenant {
            generation,
            value: make(key),
        });
        Some(key)
    }

    #[inline]
    pub fn get(&self, key: Key<T>) -> Option<&T> {
        let tenant = self.values.get(key.index as usize)?;
        (tenant.generation == key.generation).then_some(&tenant.value)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        let tenant = self.values.get_mut(key.index as usize)?;
        (tenant.generation == key.generation).then_some(&mut tenant.value)
    }

    pub fn contains(&self, key: Key<T>) -> bool {
        self.get(key).is_some()
    }

    /// Takes a value out; its key, and every copy of it, is stale from now on.
    #[inline]
    pub fn remove(&mut self, key: Key<T>) -> Option<T> {
        self.get(key)?;
        Some(self.values.remove(key.index as usize).value)
    }

    /// The key of whoever lives in slot `index` now.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key<T>> {
        let tenant = self.values.get(index as usize)?;
        Some(Key::from_parts(index, tenant.generation))
    }

    /// Whoever lives in slot `index` now, with its key.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Key<T>, &T)> {
        let tenant = self.values.get(index as usize)?;
        Some((Key::from_parts(index, tenant.generation), &tenant.value))
    }

    /// All values in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        let key =
            |index: usize, tenant: &Tenant<T>| Key::from_parts(index as u32, tenant.generation);
        self.values
            .iter()
            .map(move |(index, tenant)| (key(index, tenant), &tenant.value))
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.values.len() == self.capacity
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<T> Key<T> {
    /// Builds a key from what [`Self::index`] and [`Self::generation`] told; it may be stale.
    pub const fn from_parts(index: u32, generation: u32) -> Self {
        Self {
            index,
            generation,
            tenant: PhantomData,
        }
    }

    pub const fn index(self) -> u32 {
        self.index
    }

    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.index, self.generation).cmp(&(other.index, other.generation))
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({} of {})", self.len(), self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_even_when_its_slot_is_taken_again() {
        let mut slots = Slots::new(1);
        let old = slots.insert('a').unwrap();
        assert_eq!(slots.remove(old), Some('a'));
        let new = slots.insert('b').unwrap();
        assert_eq!(
            (new.index(), slots.get(old), slots.get(new)),
            (old.index(), None, Some(&'b'))
        );
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.key_at(0), Some(new));
    }

    #[test]
    fn a_full_table_refuses() {
        let mut slots = Slots::new(2);
        assert!(slots.insert(1).is_some() && slots.insert(2).is_some());
        assert!(slots.is_full() && slots.insert(3).is_none());
    }

    #[test]
    fn the_key_of_zeroes_and_one_far_outside_are_never_valid() {
        let mut slots = Slots::new(2);
        slots.insert(1).unwrap();
        assert!(slots.get(Key::from_parts(0, 0)).is_none());
        assert!(slots.get(Key::from_parts(u32::MAX, 1)).is_none());
    }
}
