//! A hasher whose secret comes from a seed, for tables whose keys come from the wire.
//!
//! Who does not know the seed cannot choose keys that collide. Tables that use it must not be
//! iterated where order matters: the order follows from the seed.

use std::hash::{BuildHasher, Hasher};

use crate::rng::Rng;

/// Makes the hashers of one table.
#[derive(Clone, Copy)]
pub struct Keyed {
    start: u64,
    factor: u64,
}

/// Folds each word in by a multiplication to 128 bits with a secret factor.
#[derive(Clone, Copy)]
pub struct KeyedHasher {
    state: u64,
    factor: u64,
}

impl Keyed {
    pub const fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            start: rng.next_u64(),
            factor: rng.next_u64() | 1,
        }
    }

    /// The hash of two words, for tables that hold no keys of their own.
    #[inline]
    pub const fn hash2(self, first: u64, second: u64) -> u64 {
        let state = fold(fold(self.start ^ first, self.factor) ^ second, self.factor);
        fold(state, self.factor.rotate_left(32))
    }
}

impl std::fmt::Debug for Keyed {
    /// The secret stays one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyed")
    }
}

impl std::fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyedHasher")
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher {
            state: self.start,
            factor: self.factor,
        }
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, self.factor);
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    /// Once more, so that the last word reaches all bits.
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.factor.rotate_left(32))
    }
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::addr::Ip;

    #[test]
    fn the_seed_decides_the_hash() {
        let ip = Ip::v4(10, 0, 0, 1);
        assert_eq!(Keyed::new(1).hash_one(ip), Keyed::new(1).hash_one(ip));
        assert_ne!(Keyed::new(1).hash_one(ip), Keyed::new(2).hash_one(ip));
    }

    /// A random function puts 65,536 keys into 1/e of 65,536 places not at all: 24,109, with a
    /// standard deviation of about 79.
    #[test]
    fn neighbouring_addresses_spread_over_low_and_high_bits() {
        let keyed = Keyed::new(7);
        let hash = |n: u32| keyed.hash_one(Ip::from(std::net::Ipv4Addr::from_bits(n)));
        for shift in [0, 24, 48] {
            let places: HashSet<u64> = (0..0x1_0000).map(|n| hash(n) >> shift & 0xffff).collect();
            let empty = 0x1_0000 - places.len();
            assert!((23_000..25_500).contains(&empty), "{empty} at {shift}");
        }
    }

    #[test]
    fn bytes_of_different_lengths_differ_though_padding_is_zero() {
        let keyed = Keyed::new(7);
        assert_ne!(keyed.hash_one([0u8; 3]), keyed.hash_one([0u8; 4]));
        assert_ne!(keyed.hash_one("ab"), keyed.hash_one("ab\0"));
    }
}
