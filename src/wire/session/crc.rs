//! CRC-32C, the check of each header. Source: RFC 3720 appendix B.4, polynomial 0x1edc6f41.

/// The polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes that are looked up at once: all headers are so many times some whole number long.
pub(super) const STRIDE: usize = 16;

/// Row `n` moves a byte on by `n` more bytes.
static TABLES: [[u32; 256]; STRIDE] = tables();

const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
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
    while row < STRIDE {
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

/// The check of bytes that come as pieces of [`STRIDE`].
pub(super) fn crc32c(pieces: impl Iterator<Item = u128>) -> u32 {
    let step = |crc: u32, piece: u128| {
        let mixed = piece ^ u128::from(crc);
        let of = |row: usize| TABLES[STRIDE - 1 - row][(mixed >> (8 * row)) as usize & 0xff];
        (0..STRIDE).fold(0, |sum, row| sum ^ of(row))
    };
    !pieces.fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        let (pieces, rest) = bytes.as_chunks();
        assert!(rest.is_empty());
        crc32c(pieces.iter().map(|&piece| u128::from_le_bytes(piece)))
    }

    /// Byte by byte, as the definition has it.
    fn slow(bytes: &[u8]) -> u32 {
        let step = |crc: u32, &byte: &u8| {
            let place = (crc ^ u32::from(byte)) & 0xff;
            (crc >> 8) ^ TABLES[0][place as usize]
        };
        !bytes.iter().fold(u32::MAX, step)
    }

    /// Source: RFC 3720 appendix B.4, and the usual check value of the catalogue of CRCs.
    #[test]
    fn the_known_values_come_out() {
        assert_eq!(slow(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn sixteen_bytes_at_once_are_the_same_as_one_by_one() {
        let bytes: Vec<u8> = (0..128).map(|n: u8| n.wrapping_mul(37)).collect();
        for len in (0..=128).step_by(16) {
            assert_eq!(crc(&bytes[..len]), slow(&bytes[..len]));
        }
    }
}
