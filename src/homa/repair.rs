//! When a hole in a message is asked for, long before its sender counts as silent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::homa::event::RpcKey;
use crate::time::{Duration, Instant};

/// A hole younger than this may still be filled by a packet that was overtaken. Decision 17.
const PATIENCE_MIN: Duration = Duration::micros(500);

/// How late the packets of a peer come that were overtaken: a moving mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reorder {
    /// In units of [`UNIT_NANOS`]: each peer has one of these.
    mean_units: u16,
}

const UNIT_NANOS: u64 = 32;

impl Reorder {
    /// Longer ones count as this: a process that stood still saw no reordering. Four times it is
    /// the time after which a silent sender is asked anyway.
    const EXTENT_MAX: Duration = Duration::micros(1_250);

    /// A hole was filled, `extent` after later bytes had come, by the packet that was overtaken.
    pub fn on_late(&mut self, extent: Duration) {
        let extent = (extent.min(Self::EXTENT_MAX).as_nanos() / UNIT_NANOS) as u16;
        // One part in eight, as TCP smooths its round-trip time. Source: RFC 6298, 2.3.
        self.mean_units = self.mean_units - self.mean_units / 8 + extent / 8;
    }

    /// A hole was filled by a retransmission: its packet was lost, and not late.
    pub fn on_lost(&mut self) {
        self.on_late(Duration::ZERO);
    }

    /// How old a hole must be to be asked for.
    pub fn patience(self) -> Duration {
        PATIENCE_MIN.max(Duration::nanos(u64::from(self.mean_units) * UNIT_NANOS).times(4))
    }
}

/// RPCs whose messages have holes, by when to look at them.
#[derive(Debug)]
pub struct Repairs {
    due: BinaryHeap<Reverse<(Instant, RpcKey)>>,
    capacity: usize,
}

impl Repairs {
    /// For at most so many RPCs.
    pub fn new(capacity: u32) -> Self {
        Self {
            due: BinaryHeap::new(),
            capacity: capacity as usize,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Files an RPC; the caller does so once until it is polled. False if there is no room: then
    /// its holes are asked for when its sender is silent.
    pub fn file(&mut self, at: Instant, rpc: RpcKey) -> bool {
        let has_room = self.due.len() < self.capacity;
        if has_room {
            self.due.push(Reverse((at, rpc)));
        }
        has_room
    }

    /// When the next is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next that is due; it is no longer filed, and may have ended.
    pub fn poll(&mut self, now: Instant) -> Option<RpcKey> {
        let Reverse((at, rpc)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        Some(rpc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 17: 500 us or more, and four times the extent once that is more.
    #[test]
    fn patience_follows_how_late_packets_come() {
        let mut reorder = Reorder::default();
        assert_eq!(reorder.patience(), Duration::micros(500));
        (0..100).for_each(|_| reorder.on_late(Duration::micros(100)));
        assert_eq!(reorder.patience(), Duration::micros(500));
        (0..100).for_each(|_| reorder.on_late(Duration::micros(1_000)));
        let patience = reorder.patience().as_micros();
        assert!((3_990..=4_000).contains(&patience), "{patience}");
        // Losses are no reordering: (7/8)^20 of 4 ms is 277 us.
        (0..20).for_each(|_| reorder.on_lost());
        assert_eq!(reorder.patience(), Duration::micros(500));
    }

    #[test]
    fn a_pause_of_ours_is_no_reordering() {
        let mut reorder = Reorder::default();
        (0..100).for_each(|_| reorder.on_late(Duration::secs(1)));
        assert!(reorder.patience() <= Duration::millis(5));
    }

    #[test]
    fn the_first_due_is_first_and_none_before_its_time() {
        let rpc = |index| RpcKey::from_parts(index, 1);
        let mut repairs = Repairs::new(3);
        for (at, index) in [(30, 3), (10, 1), (20, 2)] {
            assert!(repairs.file(Instant(at), rpc(index)));
        }
        assert!(!repairs.file(Instant(5), rpc(4)));
        assert_eq!(repairs.next_at(), Some(Instant(10)));
        assert_eq!(repairs.poll(Instant(9)), None);
        let due: Vec<_> = std::iter::from_fn(|| repairs.poll(Instant(20))).collect();
        assert_eq!(due, [rpc(1), rpc(2)]);
        assert_eq!(repairs.poll(Instant(30)), Some(rpc(3)));
        assert!(repairs.is_empty());
    }
}
