//! A bounded slab whose handles know their generation, so that a stale one is found out.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZero;

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
    next_generation: NonZero<u32>,
    capacity: usize,
}

/// A value and whose it is, side by side so that one look finds both.
struct Tenant<T> {
    /// Never zero, so that an empty slot needs no mark of its own.
    generation: NonZero<u32>,
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
            next_generation: NonZero::<u32>::MIN,
            capacity,
        }
    }

    /// Puts a value in; `None`, and the value is dropped, if all slots are taken.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<Key<T>> {
        if self.is_full() {
            return None;
        }
        if self.values.len() == self.values.capacity() {
            self.grow();
        }
        let generation = self.next_generation;
        let index = self.values.insert(Tenant { generation, value });
        // Zero is skipped so that a key of all zeroes is never valid.
        self.next_generation = generation.checked_add(1).unwrap_or(NonZero::<u32>::MIN);
        Some(Key::from_parts(index as u32, generation.get()))
    }

    /// Makes room for twice as many, but never for more than there may be.
    #[cold]
    fn grow(&mut self) {
        let len = self.values.len();
        self.values
            .reserve_exact(len.max(4).min(self.capacity - len));
    }

    #[inline]
    pub fn get(&self, key: Key<T>) -> Option<&T> {
        match self.values.get(key.index as usize) {
            Some(tenant) if tenant.generation.get() == key.generation => Some(&tenant.value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        match self.values.get_mut(key.index as usize) {
            Some(tenant) if tenant.generation.get() == key.generation => Some(&mut tenant.value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub fn contains(&self, key: Key<T>) -> bool {
        self.get(key).is_some()
    }

    /// Takes a value out; its key, and every copy of it, is stale from now on.
    #[inline]
    pub fn remove(&mut self, key: Key<T>) -> Option<T> {
        self.get(key)?;
        Some(self.values.try_remove(key.index as usize)?.value)
    }

    /// The key of whoever lives in slot `index` now.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key<T>> {
        self.at(index).map(|(key, _)| key)
    }

    /// Whoever lives in slot `index` now, with its key.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Key<T>, &T)> {
        let tenant = self.values.get(index as usize)?;
        Some((
            Key::from_parts(index, tenant.generation.get()),
            &tenant.value,
        ))
    }

    /// All values in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.values.iter().map(|(index, tenant)| {
            let key = Key::from_parts(index as u32, tenant.generation.get());
            (key, &tenant.value)
        })
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

impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (u64::from(self.index) << 32 | u64::from(self.generation)).hash(state);
    }
}

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

/// Nobody's key.
impl<T> Default for Key<T> {
    fn default() -> Self {
        Self::from_parts(0, 0)
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
    fn the_slot_freed_last_is_used_first() {
        let mut slots = Slots::new(4);
        let keys: Vec<_> = (0..4).map(|n| slots.insert(n).unwrap()).collect();
        for n in [1, 3, 0] {
            assert_eq!(slots.remove(keys[n]), Some(n));
        }
        let indexes: Vec<_> = (0..3).map(|n| slots.insert(n).unwrap().index()).collect();
        assert_eq!(indexes, [0, 3, 1]);
        let values: Vec<_> = slots.iter().map(|(key, &n)| (key.index(), n)).collect();
        assert_eq!(values, [(0, 0), (1, 2), (2, 2), (3, 1)]);
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
