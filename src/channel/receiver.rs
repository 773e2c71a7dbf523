//! A channel's inward side: puts messages in order, and keeps account of what was popped.

use std::collections::{BTreeMap, VecDeque};

use crate::homa::{Endpoint, RpcKey, RunKey};
use crate::time::Instant;
use crate::wire::channel::{Credit, HEADER_LEN, Kind};

use super::event::Piece;
use super::{CREDIT_BYTES, CREDIT_MESSAGES};

/// Numbered messages that need no credit: the head of a long one, and the last of all.
const FREE_MAX: u64 = 2;

/// What came from the peer and was not popped yet.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The sequence that must come next.
    next: u64,
    /// In order, to be popped.
    unread: VecDeque<Unread>,
    /// What came early, by sequence.
    early: BTreeMap<u64, Arrival>,
    early_bytes: u64,
    /// The first bytes of a long message, whose others are still to come.
    head: Option<Head>,
    /// Bytes that came in order, since the channel began.
    arrived_bytes: u64,
    /// The peer sends no more.
    is_over: bool,
    popped: Credit,
    /// The last credit that the peer was told.
    told: Credit,
}

/// A numbered message, whole and taken, and its bytes behind the header.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub kind: Kind,
    pub rpc: RpcKey,
    pub run: RunKey,
    /// Where in the region the bytes start.
    pub offset: u32,
    pub len: u32,
}

/// What to do with a numbered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is the next.
    Take,
    /// It must wait for those before it.
    Early,
    Duplicate,
    /// Its length does not fit its kind.
    Malformed,
    /// The peer had no credit for it.
    OverCredit,
}

/// The peer's messages make no sense together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

#[derive(Clone, Copy, Debug)]
struct Head {
    bytes: [u8; HEADER_LEN],
    len: u32,
}

#[derive(Debug)]
struct Unread {
    run: RunKey,
    offset: u32,
    len: u32,
    /// The sequence after it.
    end: u64,
}

impl Receiver {
    pub fn admit(&self, sequence: u64, kind: Kind, len: u32) -> Admission {
        let fits = match kind {
            Kind::Data | Kind::Body => len > 0,
            Kind::Head => len > 0 && len as usize <= HEADER_LEN,
            _ => len == 0,
        };
        if !fits {
            return Admission::Malformed;
        }
        if sequence < self.next {
            return Admission::Duplicate;
        }
        let ahead = sequence - self.popped.sequence;
        let waiting = self.arrived_bytes - self.popped.bytes + self.early_bytes;
        // A longer message travels alone, but for its head.
        let has_room = waiting + u64::from(len) <= CREDIT_BYTES || waiting <= HEADER_LEN as u64;
        if self.is_over || ahead >= CREDIT_MESSAGES + FREE_MAX || !has_room {
            return Admission::OverCredit;
        }
        match sequence == self.next {
            true => Admission::Take,
            false => Admission::Early,
        }
    }

    /// Takes the message that is next.
    pub fn take(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        arrival: Arrival,
    ) -> Result<(), Violation> {
        self.next += 1;
        self.arrived_bytes += u64::from(arrival.len);
        let mut unread = Unread {
            run: arrival.run,
            offset: arrival.offset,
            len: arrival.len,
            end: self.next,
        };
        match (arrival.kind, self.head.take()) {
            (_, _) if self.is_over => {}
            (Kind::Data, None) => {
                self.unread.push_back(unread);
                return Ok(());
            }
            (Kind::Head, None) => {
                self.head = Some(Head::read(homa, &arrival));
                homa.release(now, arrival.run);
                return Ok(());
            }
            (Kind::Body, Some(head)) => {
                head.write_before(homa, &mut unread);
                self.unread.push_back(unread);
                return Ok(());
            }
            (Kind::Fin, None) => {
                homa.release(now, arrival.run);
                self.is_over = true;
                return Ok(());
            }
            (_, _) => {}
        }
        homa.release(now, arrival.run);
        Err(Violation)
    }

    /// Keeps a message that came early; gives back the one with its sequence that was kept before.
    pub fn keep(&mut self, sequence: u64, arrival: Arrival) -> Option<Arrival> {
        self.early_bytes += u64::from(arrival.len);
        let replaced = self.early.insert(sequence, arrival);
        self.early_bytes -= replaced.map_or(0, |arrival| u64::from(arrival.len));
        replaced
    }

    /// The message kept that is now the next.
    pub fn take_early(&mut self) -> Option<(u64, Arrival)> {
        let arrival = self.early.remove(&self.next)?;
        self.early_bytes -= u64::from(arrival.len);
        Some((self.next, arrival))
    }

    /// Gives up the message kept that would come last.
    pub fn drop_early(&mut self) -> Option<(u64, Arrival)> {
        let (sequence, arrival) = self.early.pop_last()?;
        self.early_bytes -= u64::from(arrival.len);
        Some((sequence, arrival))
    }

    pub fn early_count(&self) -> usize {
        self.early.len()
    }

    /// The next bytes, at most `len_max` of them and none of a later message.
    pub fn pop(&mut self, homa: &mut Endpoint, len_max: u32) -> Option<Piece> {
        let first = self.unread.front_mut()?;
        let len = first.len.min(len_max);
        let piece = Piece {
            run: first.run,
            offset: first.offset,
            len,
        };
        self.popped.bytes += u64::from(len);
        if len < first.len {
            homa.retain(first.run);
            first.offset += len;
            first.len -= len;
        } else {
            self.popped.sequence = first.end;
            self.unread.pop_front();
        }
        Some(piece)
    }

    /// Lets go of all that was not popped, as if it had been.
    pub fn discard(&mut self, now: Instant, homa: &mut Endpoint) {
        for unread in self.unread.drain(..) {
            self.popped.bytes += u64::from(unread.len);
            self.popped.sequence = unread.end;
            homa.release(now, unread.run);
        }
    }

    /// The peer closed its side; there may still be something to pop.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The credit to be sent with whatever is sent now.
    pub fn tell_credit(&mut self) -> Credit {
        self.told = self.popped;
        self.popped
    }

    /// Whether the peer does not know all its credit.
    pub fn owes_credit(&self) -> bool {
        self.told != self.popped
    }

    /// Whether it lacks so much that it may have to wait.
    pub fn owes_much_credit(&self) -> bool {
        self.popped.sequence - self.told.sequence >= CREDIT_MESSAGES / 2
            || self.popped.bytes - self.told.bytes >= CREDIT_BYTES / 2
    }
}

impl Head {
    fn read(homa: &Endpoint, arrival: &Arrival) -> Self {
        let mut bytes = [0; HEADER_LEN];
        let part = &mut bytes[..arrival.len as usize];
        homa.region().read(arrival.offset as usize, part);
        Self {
            bytes,
            len: arrival.len,
        }
    }

    /// Puts it before the others, where their header was.
    fn write_before(&self, homa: &mut Endpoint, body: &mut Unread) {
        body.offset -= self.len;
        body.len += self.len;
        let bytes = &self.bytes[..self.len as usize];
        homa.overwrite(body.run, HEADER_LEN as u32 - self.len, bytes);
    }
}
