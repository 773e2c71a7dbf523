//! A bounded table whose values stay where they are, under the same keys as those of [`Slots`].
//!
//! Whoever takes a place writes it field by field, and whoever leaves takes out what it owns. A
//! value that is put together elsewhere and then moved here costs more than all else that is done
//! with it: the processor cannot read by wide loads what narrow stores wrote just before. Measured:
//! a seventh of all cycles of an RPC.
//!
//! [`Slots`]: crate::slots::Slots

use std::fmt;

use crate::slots::Key;

/// No place.
const NONE: u32 = u32::MAX;

/// At most `capacity` values, each under a [`Key`]. The place left last is taken first.
pub struct Arena<T> {
    places: Vec<Place<T>>,
    /// The first of the list of free places.
    free: u32,
    len: u32,
    capacity: u32,
    /// Of the next tenant, whichever place it gets, so that no place must remember its last one.
    next_generation: u32,
}

struct Place<T> {
    /// The generation of whoever is here. While nobody is, [`VACANT`] and the next free place: then
    /// it equals no key's generation, so that one comparison tells.
    tenant: u64,
    value: T,
}

/// No generation has so many bits.
const VACANT: u64 = 1 << 32;

impl<T> Place<T> {
    #[inline]
    fn is_of(&self, key: Key<T>) -> bool {
        self.tenant == u64::from(key.generation())
    }

    /// The key of whoever is here, at `index`.
    #[inline]
    fn key(&self, index: u32) -> Option<Key<T>> {
        (self.tenant < VACANT).then(|| Key::from_parts(index, self.tenant as u32))
    }
}

impl<T: Default> Arena<T> {
    /// An empty table for `capacity` values. Memory is taken as it fills.
    pub fn new(capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).expect("a place's number must fit 32 bits");
        Self {
            places: Vec::new(),
            free: NONE,
            len: 0,
            capacity,
            next_generation: 1,
        }
    }

    /// Takes a place. Its value is as its last tenant left it; the caller writes what counts.
    /// `None` if all are taken.
    #[inline(always)]
    pub fn enter(&mut self) -> Option<(Key<T>, &mut T)> {
        if self.free == NONE {
            self.grow()?;
        }
        let (index, generation) = (self.free, self.next_generation);
        let place = self.places.get_mut(index as usize)?;
        self.free = place.tenant as u32;
        place.tenant = u64::from(generation);
        self.len += 1;
        // Zero is skipped so that a key of all zeroes is never valid.
        self.next_generation = generation.wrapping_add(1).max(1);
        Some((Key::from_parts(index, generation), &mut place.value))
    }

    /// Puts a value in a place, for where it does not matter that it is moved there.
    pub fn insert(&mut self, value: T) -> Option<Key<T>> {
        let (key, place) = self.enter()?;
        *place = value;
        Some(key)
    }

    /// Makes one more place.
    #[cold]
    fn grow(&mut self) -> Option<()> {
        let index = self.places.len() as u32; // Not more than the capacity.
        if index == self.capacity {
            return None;
        }
        if self.places.len() == self.places.capacity() {
            // Twice as many, but never more than there may be.
            let left = (self.capacity - index) as usize;
            self.places
                .reserve_exact(self.places.len().max(4).min(left));
        }
        self.places.push(Place {
            tenant: VACANT | u64::from(NONE),
            value: T::default(),
        });
        self.free = index;
        Some(())
    }

    /// Leaves a place; its key, and every copy of it, is stale from now on. What the value owns
    /// is the caller's to take out.
    #[inline]
    pub fn leave(&mut self, key: Key<T>) -> Option<&mut T> {
        let place = self.places.get_mut(key.index() as usize)?;
        if !place.is_of(key) {
            return None;
        }
        place.tenant = VACANT | u64::from(self.free);
        self.free = key.index();
        self.len -= 1;
        Some(&mut place.value)
    }
}

impl<T> Arena<T> {
    #[inline]
    pub fn get(&self, key: Key<T>) -> Option<&T> {
        match self.places.get(key.index() as usize) {
            Some(place) if place.is_of(key) => Some(&place.value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        match self.places.get_mut(key.index() as usize) {
            Some(place) if place.is_of(key) => Some(&mut place.value),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub fn contains(&self, key: Key<T>) -> bool {
        self.get(key).is_some()
    }

    /// The key of whoever lives at `index` now.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key<T>> {
        self.at(index).map(|(key, _)| key)
    }

    /// Whoever lives at `index` now, with its key.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Key<T>, &T)> {
        let place = self.places.get(index as usize)?;
        Some((place.key(index)?, &place.value))
    }

    /// As [`Self::at`], to write.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Key<T>, &mut T)> {
        let place = self.places.get_mut(index as usize)?;
        Some((place.key(index)?, &mut place.value))
    }

    /// Places there are, taken or free.
    pub fn place_count(&self) -> u32 {
        self.places.len() as u32
    }

    /// All values in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        let places = (0..).zip(&self.places);
        places.filter_map(|(index, place)| Some((place.key(index)?, &place.value)))
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }
}

impl<T> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} of {})", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(arena: &mut Arena<char>, value: char) -> Option<Key<char>> {
        let (key, place) = arena.enter()?;
        *place = value;
        Some(key)
    }

    #[test]
    fn a_stale_key_finds_nothing_even_when_its_place_is_taken_again() {
        let mut arena = Arena::new(1);
        let old = enter(&mut arena, 'a').unwrap();
        assert_eq!(arena.leave(old), Some(&mut 'a'));
        assert!(arena.get(old).is_none() && arena.leave(old).is_none());
        let new = enter(&mut arena, 'b').unwrap();
        assert_eq!(
            (new.index(), arena.get(old), arena.get(new)),
            (old.index(), None, Some(&'b'))
        );
        assert!(arena.leave(old).is_none());
        assert_eq!(arena.key_at(0), Some(new));
    }

    #[test]
    fn the_place_left_last_is_taken_first() {
        let mut arena = Arena::new(4);
        let keys: Vec<_> = "abcd".chars().map(|c| enter(&mut arena, c)).collect();
        for n in [1, 3, 0] {
            assert!(arena.leave(keys[n].unwrap()).is_some());
        }
        let indexes: Vec<_> = "efg"
            .chars()
            .map(|c| enter(&mut arena, c).unwrap().index())
            .collect();
        assert_eq!(indexes, [0, 3, 1]);
        let values: String = arena.iter().map(|(_, c)| c).collect();
        assert_eq!(values, "egcf");
    }

    #[test]
    fn a_full_table_refuses() {
        let mut arena = Arena::new(2);
        assert!(enter(&mut arena, 'a').is_some() && enter(&mut arena, 'b').is_some());
        assert!(arena.is_full() && enter(&mut arena, 'c').is_none());
        assert_eq!(arena.len(), 2);
    }

    #[test]
    fn a_place_where_nobody_is_has_no_key() {
        let mut arena = Arena::new(2);
        let key = enter(&mut arena, 'a').unwrap();
        let nobody = Key::from_parts(0, 0);
        assert!(arena.get(nobody).is_none() && arena.leave(nobody).is_none());
        arena.leave(key).unwrap();
        assert!(arena.get(nobody).is_none() && arena.leave(nobody).is_none());
        assert!(arena.get_mut(nobody).is_none());
        assert!(arena.at(0).is_none());
        assert!(arena.get(Key::from_parts(u32::MAX, 1)).is_none());
    }
}
