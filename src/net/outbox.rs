//! Frames that the network layer itself wants to send, until the device has room for them.

use std::collections::VecDeque;

use super::arp::Arp;

/// Most ARP frames that wait.
const ARP_MAX: usize = 256;

/// Most ICMP frames that wait.
const ICMP_MAX: usize = 16;

/// Two bounded queues, made once. Full means that a frame is dropped: who needs it asks again.
#[derive(Debug)]
pub(super) struct Outbox {
    arp: VecDeque<Arp>,
    /// A ring: `icmp_count` frames from `icmp_first` on. The others keep their memory.
    icmp: Vec<Vec<u8>>,
    icmp_first: usize,
    icmp_count: usize,
}

impl Outbox {
    /// No ICMP frame may be longer than `frame_max`.
    pub(super) fn new(frame_max: usize) -> Self {
        Self {
            arp: VecDeque::with_capacity(ARP_MAX),
            icmp: (0..ICMP_MAX)
                .map(|_| Vec::with_capacity(frame_max))
                .collect(),
            icmp_first: 0,
            icmp_count: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.arp.len() + self.icmp_count == 0
    }

    /// Tells whether there was room.
    pub(super) fn push_arp(&mut self, arp: Arp) -> bool {
        let has_room = self.arp.len() < ARP_MAX;
        if has_room {
            self.arp.push_back(arp);
        }
        has_room
    }

    /// Hands out an empty buffer, to be filled with a frame; `None` if all are taken.
    pub(super) fn push_icmp(&mut self) -> Option<&mut Vec<u8>> {
        if self.icmp_count == ICMP_MAX {
            return None;
        }
        let next = (self.icmp_first + self.icmp_count) % ICMP_MAX;
        self.icmp_count += 1;
        self.icmp[next].clear();
        Some(&mut self.icmp[next])
    }

    pub(super) fn pop_arp(&mut self) -> Option<Arp> {
        self.arp.pop_front()
    }

    pub(super) fn pop_icmp(&mut self) -> Option<&[u8]> {
        if self.icmp_count == 0 {
            return None;
        }
        let first = self.icmp_first;
        self.icmp_first = (first + 1) % ICMP_MAX;
        self.icmp_count -= 1;
        Some(&self.icmp[first])
    }
}
