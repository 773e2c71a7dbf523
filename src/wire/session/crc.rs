//! CRC-32C, the check of each header. Source: RFC 3720 appendix B.4, polynomial 0x1edc6f41.

/// The polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Row `n` moves a byte on by `n` more bytes, so that eight bytes are looked up at once.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[row - 1][byte];
            tables[row][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        row += 1;
    }
    tables
}

/// A check under way: bytes may come piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc32c(u32);

impl Crc32c {
    pub(super) const fn new() -> Self {
        Self(u32::MAX)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let mixed = u64::from_le_bytes(*word) ^ u64::from(self.0);
            let of = |row: usize| TABLES[7 - row][(mixed >> (8 * row)) as usize & 0xff];
            self.0 = of(0) ^ of(1) ^ of(2) ^ of(3) ^ of(4) ^ of(5) ^ of(6) ^ of(7);
        }
        for &byte in rest {
            let place = (self.0 ^ u32::from(byte)) & 0xff;
            self.0 = (self.0 >> 8) ^ TABLES[0][place as usize];
        }
    }

    pub(super) const fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc32c::new();
        crc.add(bytes);
        crc.finish()
    }

    /// Source: RFC 3720 appendix B.4, and the usual check value of the catalogue of CRCs.
    #[test]
    fn the_known_values_come_out() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn pieces_of_any_length_give_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..100).map(|n: u8| n.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            let mut pieces = Crc32c::new();
            pieces.add(&bytes[..cut]);
            pieces.add(&bytes[cut..]);
            assert_eq!(pieces.finish(), crc(&bytes));
        }
    }
}
