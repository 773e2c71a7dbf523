//! Numbers given to the application that stand for a slot of ours.
//!
//! From the top: 11 bits that differ from runtime to runtime and from table to table, 32 bits of
//! generation, 21 bits of slot. The top 11 are neither all zero nor all one, so a number is never
//! 0 or `u64::MAX` and never looks like an address, and a stranger's is found out.

use std::num::NonZeroU64;

use crate::slots::Key;

const SLOT_BITS: u32 = 21;
const GENERATION_BITS: u32 = 32;
const SALT_SHIFT: u32 = SLOT_BITS + GENERATION_BITS;

/// Turns the keys of one table into numbers and back.
#[derive(Clone, Copy, Debug)]
pub struct Handles {
    salt: u64,
}

impl Handles {
    /// Slots a table with such numbers can have.
    pub const SLOTS_MAX: usize = 1 << SLOT_BITS;

    /// `chance` should differ from table to table.
    pub const fn new(chance: u64) -> Self {
        let salts = (1 << (u64::BITS - SALT_SHIFT)) - 2;
        Self {
            salt: 1 + chance % salts,
        }
    }

    #[inline]
    pub fn number<T>(self, key: Key<T>) -> NonZeroU64 {
        let (slot, generation) = (u64::from(key.index()), u64::from(key.generation()));
        NonZeroU64::new(self.salt << SALT_SHIFT | generation << SLOT_BITS | slot)
            .expect("the salt is not zero")
    }

    /// The slot that a number names.
    #[inline]
    pub const fn slot(number: u64) -> u32 {
        (number & ((1 << SLOT_BITS) - 1)) as u32
    }

    /// `None` if the number cannot be from this table; if it may be, the key may still be stale.
    #[inline]
    pub const fn key<T>(self, number: u64) -> Option<Key<T>> {
        if number >> SALT_SHIFT != self.salt {
            return None;
        }
        let generation = (number >> SLOT_BITS) as u32;
        Some(Key::from_parts(Self::slot(number), generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_back_to_its_key_and_a_strangers_does_not() {
        let (ours, theirs) = (Handles::new(0), Handles::new(1));
        let key: Key<u8> = Key::from_parts((1 << 21) - 1, u32::MAX);
        let number = ours.number(key).get();
        assert_eq!(ours.key(number), Some(key));
        assert_eq!(theirs.key::<u8>(number), None);
    }

    #[test]
    fn no_number_is_zero_or_all_ones_or_an_address() {
        for chance in 0..5000 {
            let handles = Handles::new(chance);
            let least = handles.number(Key::<u8>::from_parts(0, 0)).get();
            let most = handles
                .number(Key::<u8>::from_parts((1 << 21) - 1, u32::MAX))
                .get();
            assert!(least >= 1 << 53 && most < u64::MAX);
        }
        assert_eq!(Handles::new(3).key::<u8>(0), None);
        assert_eq!(Handles::new(3).key::<u8>(u64::MAX), None);
    }
}
