//! A tap in the switch: keeps every frame that was sent, and can take some out.

use crate::sim::Watch;
use crate::time::Instant;
use crate::wire::homa::{Common, Packet, parse};

/// Ethernet and IPv4, as our stack writes them.
const HEADERS_LEN: usize = 34;

/// Which frames are taken out: of those that carry a packet of this type from this host, `count`
/// after the first `skip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// The host's place in [`World::hosts`](crate::sim::World::hosts).
    pub from: usize,
    /// The type, as [`Packet::name`] has it; empty for all frames.
    pub kind: &'static str,
    pub skip: u32,
    pub count: u32,
}

/// A frame that a host sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    pub at: Instant,
    pub from: usize,
    pub frame: Vec<u8>,
    /// The tap took it out.
    pub is_lost: bool,
}

/// All frames so far.
#[derive(Debug, Default)]
pub struct Tap {
    /// Each with how many frames it was asked about.
    drops: Vec<(Drops, u32)>,
    pub frames: Vec<Tapped>,
}

impl Tap {
    pub fn new(drops: &[Drops]) -> Self {
        Self {
            drops: drops.iter().map(|&drops| (drops, 0)).collect(),
            frames: Vec::new(),
        }
    }
}

impl Watch for Tap {
    fn takes_out(&mut self, at: Instant, from: usize, frame: &[u8]) -> bool {
        let packet = homa_packet(frame);
        let kind = packet.map_or("", |(_, packet)| packet.name());
        let mut is_lost = false;
        for (drops, seen) in &mut self.drops {
            if drops.from == from && (drops.kind.is_empty() || drops.kind == kind) {
                let place = *seen;
                *seen = seen.saturating_add(1);
                is_lost |= drops.skip <= place && place - drops.skip < drops.count;
            }
        }
        self.frames.push(Tapped {
            at,
            from,
            frame: frame.to_vec(),
            is_lost,
        });
        is_lost
    }
}

/// The Homa packet in a frame, if there is one.
pub(super) fn homa_packet(frame: &[u8]) -> Option<(Common, Packet<'_>)> {
    let is_homa = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&146);
    let packet = frame.get(HEADERS_LEN..).filter(|_| is_homa)?;
    parse(packet).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_out_by_sender_and_place() {
        let rule = |from, skip, count| Drops {
            from,
            kind: "",
            skip,
            count,
        };
        let mut tap = Tap::new(&[rule(0, 1, 2), rule(0, 4, 1), rule(1, 0, u32::MAX)]);
        let lost: Vec<bool> = (0..6)
            .map(|_| tap.takes_out(Instant(0), 0, &[0; 60]))
            .collect();
        assert_eq!(lost, [false, true, true, false, true, false]);
        assert!(tap.takes_out(Instant(0), 1, &[0; 60]) && !tap.takes_out(Instant(0), 2, &[0; 60]));
        assert_eq!(tap.frames.len(), 8);
    }
}
