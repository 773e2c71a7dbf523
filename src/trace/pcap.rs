//! Captures in the classic pcap format, which tcpdump and Wireshark read.
//!
//! A file header of 24 bytes, then each frame after a header of 16: seconds, fraction, bytes kept,
//! bytes on the wire. Written little-endian with nanoseconds; read in all four variants.
//!
//! Source: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>.

use std::io::{self, Read, Write};

use crate::time::Instant;

/// Marks a file whose fractions of a second are microseconds.
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// Marks a file whose fractions of a second are nanoseconds.
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;

/// Most bytes kept of a frame. Source: what tcpdump writes by default, 256 KiB.
const FRAME_MAX: u32 = 262_144;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Takes frames out of a capture one by one.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    big_endian: bool,
    nanos_per_unit: u64,
    frame: Vec<u8>,
}

/// A frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Since 1970, where the capture's clock was right.
    pub at: Instant,
    /// What was kept of the frame, the Ethernet header first.
    pub frame: &'a [u8],
    /// Bytes the frame had on the wire.
    pub wire_len: u32,
}

/// Puts frames into a capture one by one.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    frame_max: usize,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header. Only captures of Ethernet frames are taken.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut header = [0; 24];
        input.read_exact(&mut header)?;
        let magic = number(&header, 0, false);
        let (big_endian, nanos_per_unit) = match (magic, magic.swap_bytes()) {
            (MAGIC_MICROS, _) => (false, 1_000),
            (MAGIC_NANOS, _) => (false, 1),
            (_, MAGIC_MICROS) => (true, 1_000),
            (_, MAGIC_NANOS) => (true, 1),
            _ => return Err(invalid("not a pcap file")),
        };
        // The upper bits may tell of a frame check sequence, which we do not expect.
        if number(&header, 20, big_endian) != ETHERNET {
            return Err(invalid("not a capture of Ethernet frames"));
        }
        Ok(Self {
            input,
            big_endian,
            nanos_per_unit,
            frame: Vec::new(),
        })
    }

    /// The next frame, or `None` at the end. A capture that ends within a frame is an error.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        let mut header = [0; 16];
        match self.input.read(&mut header)? {
            0 => return Ok(None),
            n => self.input.read_exact(&mut header[n..])?,
        }
        let [secs, fraction, kept, wire_len] =
            std::array::from_fn(|i| number(&header, 4 * i, self.big_endian));
        if kept > FRAME_MAX {
            return Err(invalid("a frame longer than 256 KiB"));
        }
        self.frame.resize(kept as usize, 0);
        self.input.read_exact(&mut self.frame)?;
        let nanos = u64::from(secs) * NANOS_PER_SEC + u64::from(fraction) * self.nanos_per_unit;
        Ok(Some(Record {
            at: Instant(nanos),
            frame: &self.frame,
            wire_len,
        }))
    }
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. Of each frame at most `frame_max` bytes will be kept.
    pub fn new(mut output: W, frame_max: u32) -> io::Result<Self> {
        let frame_max = frame_max.min(FRAME_MAX);
        // Version 2.4; the zeroes were once a time zone and its precision.
        let version = 2 | 4 << 16;
        for number in [MAGIC_NANOS, version, 0, 0, frame_max, ETHERNET] {
            output.write_all(&number.to_le_bytes())?;
        }
        let frame_max = frame_max as usize;
        Ok(Self { output, frame_max })
    }

    pub fn write(&mut self, at: Instant, frame: &[u8]) -> io::Result<()> {
        let kept = &frame[..frame.len().min(self.frame_max)];
        // Seconds in 32 bits last until 2106; then they wrap.
        let secs = (at.0 / NANOS_PER_SEC) as u32;
        let nanos = (at.0 % NANOS_PER_SEC) as u32;
        for number in [secs, nanos, kept.len() as u32, frame.len() as u32] {
            self.output.write_all(&number.to_le_bytes())?;
        }
        self.output.write_all(kept)
    }

    /// Gives the output back, which may still hold bytes of its own.
    pub fn into_inner(self) -> W {
        self.output
    }
}

fn number(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(frames: &[(u64, &[u8])], frame_max: u32) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), frame_max).unwrap();
        for &(at, frame) in frames {
            writer.write(Instant(at), frame).unwrap();
        }
        writer.into_inner()
    }

    #[test]
    fn frames_come_back_with_their_times() {
        let file = capture(&[(7, b"first"), (3_000_000_001, b"")], 100);
        let mut reader = Reader::new(&file[..]).unwrap();
        let first = reader.next_record().unwrap().unwrap();
        assert_eq!(
            (first.at, first.frame, first.wire_len),
            (Instant(7), &b"first"[..], 5)
        );
        let second = reader.next_record().unwrap().unwrap();
        assert_eq!((second.at, second.frame.len()), (Instant(3_000_000_001), 0));
        assert!(reader.next_record().unwrap().is_none());
    }

    #[test]
    fn a_long_frame_is_cut_but_its_length_is_told() {
        let file = capture(&[(0, &[9; 50])], 20);
        let mut reader = Reader::new(&file[..]).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.frame, record.wire_len), (&[9; 20][..], 50));
    }

    /// 2 s and 3 us, as a big-endian machine writes them.
    #[test]
    fn the_other_byte_order_and_microseconds_are_read_too() {
        let mut file = Vec::new();
        for number in [MAGIC_MICROS, 2 << 16 | 4, 0, 0, 65_535, 1, 2, 3, 1, 60] {
            file.extend(number.to_be_bytes());
        }
        file.push(b'x');
        let mut reader = Reader::new(&file[..]).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record.at, Instant(2_000_003_000));
        assert_eq!((record.frame, record.wire_len), (&b"x"[..], 60));
    }

    #[test]
    fn a_file_cut_anywhere_but_between_frames_is_an_error() {
        let file = capture(&[(1, b"abc")], 100);
        for end in 0..file.len() {
            let whole = match Reader::new(&file[..end]) {
                Ok(mut reader) => reader.next_record().is_ok_and(|record| record.is_none()),
                Err(_) => false,
            };
            assert_eq!(whole, end == 24, "cut at {end}");
        }
    }

    #[test]
    fn what_is_no_capture_of_ethernet_is_refused() {
        assert!(Reader::new(&[0; 24][..]).is_err());
        let mut file = capture(&[], 100);
        file[20] = 101; // Raw IP.
        assert!(Reader::new(&file[..]).is_err());
        let mut file = capture(&[(0, b"x")], 100);
        file[24 + 8..24 + 12].fill(0xff); // A frame of 4 GiB.
        assert!(Reader::new(&file[..]).unwrap().next_record().is_err());
    }
}
