//! The last things that happened in a run, for whoever must find out why it failed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use arrayvec::ArrayVec;

use crate::sim::{Copied, Crossing};
use crate::time::Instant;
use crate::wire::homa::{DATA_LEN, Packet};

/// Lines kept.
const LINES_MAX: usize = 120;

/// Bytes kept of a frame: more than the headers of any packet without payload.
const HEAD_MAX: usize = 160;

/// Ethernet and IPv4.
const HEADERS_LEN: usize = 34;

/// A log that many may write to.
pub type SharedLog = Rc<RefCell<Log>>;

/// A bounded list of what happened, the oldest first.
#[derive(Debug, Default)]
pub struct Log {
    lines: VecDeque<(Instant, Line)>,
    /// Lines that are not kept any more.
    dropped: u64,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are frames, and must not cost an allocation each"
)]
enum Line {
    Note(String),
    Frame {
        from: usize,
        to: usize,
        len: usize,
        head: ArrayVec<u8, HEAD_MAX>,
        copies: ArrayVec<Copied, 2>,
    },
}

impl Log {
    pub fn note(&mut self, now: Instant, text: String) {
        self.push(now, Line::Note(text));
    }

    pub fn frame(&mut self, crossing: &Crossing, copies: &[Copied]) {
        let frame = crossing.frame;
        let line = Line::Frame {
            from: crossing.from,
            to: crossing.to,
            len: frame.len(),
            head: frame.iter().copied().take(HEAD_MAX).collect(),
            copies: copies.iter().copied().collect(),
        };
        self.push(crossing.now, line);
    }

    fn push(&mut self, now: Instant, line: Line) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back((now, line));
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "   ... {} earlier lines", self.dropped)?;
        for (now, line) in &self.lines {
            let micros = now.0 / 1000;
            write!(f, "{:>6}.{:06} s  ", micros / 1_000_000, micros % 1_000_000)?;
            match line {
                Line::Note(text) => writeln!(f, "{text}")?,
                Line::Frame {
                    from,
                    to,
                    len,
                    head,
                    copies,
                } => {
                    let crossing = Crossing {
                        now: *now,
                        from: *from,
                        to: *to,
                        frame: head,
                    };
                    write!(f, "{} > {}  ", from + 1, to + 1)?;
                    write_packet(f, &crossing, *len)?;
                    write_fate(f, copies)?;
                }
            }
        }
        Ok(())
    }
}

fn write_packet(f: &mut fmt::Formatter<'_>, crossing: &Crossing, len: usize) -> fmt::Result {
    let Some((common, packet)) = crossing.packet() else {
        return write!(f, "no Homa packet, {len} B");
    };
    write!(f, "{:x} ", common.id.0)?;
    match packet {
        Packet::Data(data, _) => {
            let end = data.offset as usize + len.saturating_sub(HEADERS_LEN + DATA_LEN);
            let again = if data.retransmit { " again" } else { "" };
            let (length, incoming) = (data.message_length, data.incoming);
            write!(f, "DATA{again} {}..{end} of {length}", data.offset)?;
            write!(f, ", incoming {incoming}, version {}", data.cutoff_version)?;
            match data.ack {
                Some(ack) => write!(f, ", ack {:x}", ack.client_id.0),
                None => Ok(()),
            }
        }
        other => write!(f, "{other:?}"),
    }
}

fn write_fate(f: &mut fmt::Formatter<'_>, copies: &[Copied]) -> fmt::Result {
    if copies.is_empty() {
        return writeln!(f, "  (lost)");
    }
    if copies.len() > 1 {
        write!(f, "  (twice)")?;
    }
    for copy in copies {
        if copy.is_corrupt {
            write!(f, "  (corrupt)")?;
        } else if copy.delay.0 > 0 {
            write!(f, "  ({:?} late)", copy.delay)?;
        }
    }
    writeln!(f)
}
