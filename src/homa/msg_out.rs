//! A message on its way out: how far it is, how far it may go, and what is owed again.

use std::mem;
use std::ops::Range;

use arrayvec::ArrayVec;

use crate::homa::event::{Notify, Payload, RunKey};
use crate::homa::mutant::{self, Mutant};
use crate::time::Instant;

/// Ranges owed again that are kept apart; one more is dropped, and asked for again.
const OWED_MAX: usize = 8;

/// The sender's view of one message.
#[derive(Debug, Default)]
pub struct MsgOut {
    pub payload: Payload,
    pub len: u32,
    /// Bytes `0..sent` have been handed to the device at least once.
    pub sent: u32,
    /// Bytes `0..granted` may be sent.
    pub granted: u32,
    pub birth: Instant,
    pub notify: Notify,
    /// Of the last grant.
    pub sched_priority: u8,
    /// True while the RPC waits in the order of retransmissions.
    pub retransmit_filed: bool,
    /// True while the RPC waits for its peer's link.
    pub is_parked: bool,
    is_one_packet: bool,
    cut: Cut,
    /// Made for the first message in this place that loses a packet, and kept for the next: so the
    /// others stay small, and losses allocate nothing once all is warm.
    owed: Option<Box<Owed>>,
}

/// What must go out again.
#[derive(Debug, Default)]
struct Owed {
    ranges: ArrayVec<Range<u32>, OWED_MAX>,
    priority: u8,
    /// From when on the bytes in `resent` count.
    interval_tick: u32,
    resent: u32,
}

/// How a message is cut into packets.
///
/// The Linux module drops a packet that overlaps received bytes only in part, so a message keeps
/// one cut for life: every `payload_max` bytes, and anew at the end of the unscheduled bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub payload_max: u32,
    pub unsched: u32,
}

impl Cut {
    /// Where the packet that holds byte `offset` starts.
    pub const fn start(self, offset: u32) -> u32 {
        let base = if offset < self.unsched {
            0
        } else {
            self.unsched
        };
        base + (offset - base) / self.payload_max * self.payload_max
    }

    /// Where the packet that starts at `start` ends, in a message of `len` bytes.
    pub const fn end(self, start: u32, len: u32) -> u32 {
        let border = if start < self.unsched && self.unsched < len {
            self.unsched
        } else {
            len
        };
        let end = start + self.payload_max;
        if end < border { end } else { border }
    }
}

impl MsgOut {
    /// Begins a message in place of one that is over, see [`Self::end`].
    #[inline]
    pub fn begin(&mut self, payload: Payload, len: u32, cut: Cut, birth: Instant, notify: Notify) {
        debug_assert!(matches!(self.payload, Payload::Gone));
        // What is gone needs no end, so none is looked for.
        mem::forget(mem::replace(&mut self.payload, payload));
        self.len = len;
        self.sent = 0;
        self.granted = match mutant::is_on(Mutant::GrantOverrun) {
            true => len,
            false => len.min(cut.unsched),
        };
        self.birth = birth;
        self.notify = notify;
        self.sched_priority = 0;
        self.retransmit_filed = false;
        self.is_parked = false;
        self.cut = cut;
        self.is_one_packet = cut.end(0, len) == len;
    }

    /// Nothing of it will go out any more. Its bytes are let go, but for a run, which is the
    /// caller's to release; and who waits for them is the caller's to tell.
    #[inline(always)]
    pub fn end(&mut self) -> (Option<RunKey>, Notify) {
        let run = match self.payload {
            Payload::Received { run, .. } => Some(run),
            Payload::Buffer(_) | Payload::EmptyReply | Payload::Gone => None,
        };
        self.payload = Payload::Gone;
        if let Some(owed) = &mut self.owed {
            **owed = Owed::default();
        }
        (run, mem::take(&mut self.notify))
    }

    #[inline]
    pub fn is_one_packet(&self) -> bool {
        self.is_one_packet
    }

    pub fn unsched(&self) -> u32 {
        self.len.min(self.cut.unsched)
    }

    /// Bytes that may be sent and were not yet.
    pub fn is_sendable(&self) -> bool {
        self.sent < self.granted
    }

    pub fn is_sent(&self) -> bool {
        self.sent == self.len
    }

    /// The next packet's bytes. One that starts below the grant goes out whole.
    pub fn next_packet(&self) -> Option<Range<u32>> {
        self.is_sendable()
            .then(|| self.sent..self.cut.end(self.sent, self.len))
    }

    /// Raises the grant; true if that made bytes sendable that were not.
    pub fn grant(&mut self, offset: u32, priority: u8) -> bool {
        self.sched_priority = priority;
        let was_sendable = self.is_sendable();
        self.granted = self.granted.max(offset.min(self.len));
        self.is_sendable() && !was_sendable
    }

    /// Notes that `asked` must go out again, whole packets of it, as far as it was sent.
    ///
    /// However often it is asked, no more than the message's length goes out again in `interval`
    /// ticks, so that a small request cannot draw an endless reply. True if something is owed now.
    pub fn owe(&mut self, asked: Range<u32>, priority: u8, tick: u32, interval: u32) -> bool {
        let end = asked.end.min(self.sent);
        if asked.start >= end {
            return self.owes();
        }
        let (start, last) = (self.cut.start(asked.start), self.cut.start(end - 1));
        let range = start..self.cut.end(last, self.len);
        let whole = self.len.next_multiple_of(self.cut.payload_max) + self.cut.payload_max;
        let owed = self.owed.get_or_insert_default();
        if tick.wrapping_sub(owed.interval_tick) >= interval {
            (owed.interval_tick, owed.resent) = (tick, 0);
        }
        let covers = |owed: &Range<u32>| owed.start <= range.start && range.end <= owed.end;
        let (known, len) = (owed.ranges.iter().any(covers), range.end - range.start);
        if !known && owed.resent + len <= whole && owed.ranges.try_push(range).is_ok() {
            owed.resent += len;
            owed.priority = priority;
        }
        !owed.ranges.is_empty()
    }

    /// The next packet that is owed again, with its priority and the end of the range it is from.
    pub fn next_owed(&mut self) -> Option<(Range<u32>, u8, u32)> {
        let owed = self.owed.as_mut()?;
        let first = owed.ranges.first_mut()?;
        let (packet, end) = (first.start..self.cut.end(first.start, self.len), first.end);
        first.start = packet.end;
        if first.start >= first.end {
            owed.ranges.remove(0);
        }
        Some((packet, owed.priority, end))
    }

    #[inline]
    pub fn owes(&self) -> bool {
        self.owed
            .as_ref()
            .is_some_and(|owed| !owed.ranges.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Buffers;

    fn message(len: u32, payload_max: u32, unsched: u32) -> MsgOut {
        let payload = Payload::Buffer(Buffers::new(1 << 21).alloc(len as usize).unwrap());
        let cut = Cut {
            payload_max,
            unsched,
        };
        let mut message = MsgOut::default();
        message.begin(payload, len, cut, Instant(0), Notify::Never);
        message
    }

    fn send(message: &mut MsgOut) -> Vec<Range<u32>> {
        std::iter::from_fn(|| {
            let packet = message.next_packet()?;
            message.sent = packet.end;
            Some(packet)
        })
        .collect()
    }

    fn owed(message: &mut MsgOut) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| {
            message
                .next_owed()
                .map(|(packet, _, _)| (packet.start, packet.end))
        })
        .collect()
    }

    /// As the Linux module cuts 50,000 B: ... 38448 (1424), 39872 (128), 40000 (1424) ...
    #[test]
    fn the_cut_starts_anew_where_the_unscheduled_bytes_end() {
        let mut message = message(50_000, 1424, 40_000);
        let packets = send(&mut message);
        assert_eq!(packets.last(), Some(&(39_872..40_000)));
        message.grant(45_000, 2);
        // Rule OUT-11: the packet that contains the limit is finished.
        let packets = send(&mut message);
        assert_eq!(
            packets,
            [
                40_000..41_424,
                41_424..42_848,
                42_848..44_272,
                44_272..45_696
            ]
        );
    }

    /// Rule OUT-16, for packets of 1400 B: 7000-9999 are in 7000, 8400 and 9800.
    #[test]
    fn whole_packets_are_owed_again() {
        let mut message = message(20_000, 1400, 20_000);
        send(&mut message);
        assert!(message.owe(7000..10_000, 7, 0, 5));
        assert_eq!(
            owed(&mut message),
            [(7000, 8400), (8400, 9800), (9800, 11_200)]
        );
        assert!(message.owe(4199..4201, 7, 0, 5));
        assert_eq!(owed(&mut message), [(2800, 4200), (4200, 5600)]);
        assert!(!message.owe(30_000..40_000, 7, 0, 5) && !message.owe(5..5, 7, 0, 5));
    }

    /// Rule IN-49: asked 100-2099, sent to 1400: only packet 0.
    #[test]
    fn what_was_not_sent_is_not_sent_again() {
        let mut message = message(20_000, 1400, 1400);
        send(&mut message);
        assert!(message.owe(100..2100, 7, 0, 5));
        assert_eq!(owed(&mut message), [(0, 1400)]);
    }

    /// Asking a hundred times in one interval draws the message about once.
    #[test]
    fn asking_often_draws_no_more_than_the_message() {
        let mut message = message(14_000, 1400, 14_000);
        send(&mut message);
        let mut drawn = 0;
        for _ in 0..100 {
            message.owe(0..u32::MAX, 7, 3, 5);
            drawn += owed(&mut message).len();
        }
        assert_eq!(drawn, 10);
        message.owe(0..u32::MAX, 7, 8, 5);
        assert_eq!(owed(&mut message).len(), 10);
    }

    #[test]
    fn a_lower_grant_changes_the_priority_only() {
        let mut message = message(50_000, 1424, 40_000);
        assert!(!message.grant(30_000, 3));
        assert_eq!((message.granted, message.sched_priority), (40_000, 3));
        send(&mut message);
        assert!(message.grant(u32::MAX, 1));
        assert_eq!(message.granted, 50_000);
    }
}
