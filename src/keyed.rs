//! A hasher with a secret, for tables whose keys come from the wire.

use std::hash::{BuildHasher, Hasher};

/// Makes hashers that a sender of packets cannot foresee.
#[derive(Clone, Copy, Debug)]
pub struct Keyed {
    secret: u64,
}

/// Folds each word with a 128-bit product, as wyhash does.
#[derive(Clone, Copy, Debug)]
pub struct KeyedHasher {
    state: u64,
    secret: u64,
}

impl Keyed {
    pub const fn new(seed: u64) -> Self {
        Self { secret: seed | 1 }
    }

    /// The hash of two words.
    #[inline]
    pub const fn hash2(self, a: u64, b: u64) -> u64 {
        fold(fold(a ^ self.secret, SPREAD) ^ b, self.secret ^ SPREAD)
    }
}

/// Any odd number with its ones well spread: the golden ratio's fraction.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.secret, secret: self.secret ^ SPREAD }
    }
}

impl Hasher for KeyedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.secret).wrapping_add(SPREAD);
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_secret_gives_another_order() {
        let (one, two) = (Keyed::new(2), Keyed::new(4));
        assert_eq!(one.hash_one(7u128), one.hash_one(7u128));
        assert_ne!(one.hash_one(7u128), two.hash_one(7u128));
        assert_ne!(one.hash2(7, 8), two.hash2(7, 8));
    }

    /// 4,096 neighbours in 4,096 buckets: a random function puts at most about 9 in one.
    #[test]
    fn neighbours_are_spread_over_the_buckets() {
        let keyed = Keyed::new(99);
        let mut buckets = vec![0; 4096];
        (0..4096).for_each(|n| buckets[(keyed.hash2(n * 2, 5) & 4095) as usize] += 1);
        assert!(buckets.iter().all(|&count| count < 12));
    }
}
