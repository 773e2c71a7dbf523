//! Holes are asked for before their sender counts as silent. Decision 17.

use super::*;

const MICRO: u64 = 1_000;

impl Rig {
    /// Part of a request of `len` bytes, at a moment of its own.
    fn part_at(&mut self, micros: u64, id: u64, len: u32, offset: u32, retransmit: bool) {
        self.now = Instant(micros * MICRO);
        let data = Data {
            retransmit,
            ..data(len, offset)
        };
        self.hear(PEER, id, &Packet::Data(data, &[0; 1000]));
    }

    /// Wakes the endpoint whenever it wants until `end`, and gives what was sent when, in us.
    fn wake_until(&mut self, end_micros: u64) -> Vec<(u64, Out)> {
        let end = Instant(end_micros * MICRO);
        let mut outs = Vec::new();
        while let Some(at) = self.homa.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.homa.handle_timeout(self.now);
            let sent = self.sent().into_iter();
            outs.extend(sent.map(|out| (self.now.0 / MICRO, out)));
        }
        self.now = end;
        outs
    }
}

/// The packet at 1,000 is lost at 10 us: asked for 500 us later, again after 5 ms, and never once
/// it is there.
#[test]
fn a_hole_is_asked_for_after_half_a_millisecond_and_once_an_interval() {
    let mut rig = Rig::new();
    rig.part_at(0, 8, 20_000, 0, false);
    for n in 2..8 {
        rig.part_at(8 + n, 8, 20_000, n as u32 * 1000, false);
    }
    let asked = Out::Resend(9, 1000, Some(1000));
    assert_eq!(rig.wake_until(4_900), [(510, asked.clone())]);
    rig.part_at(5_000, 8, 20_000, 8000, false);
    assert_eq!(rig.wake_until(5_600), [(5_510, asked)]);
    rig.part_at(5_700, 8, 20_000, 1000, true);
    let silent: Vec<_> = rig.wake_until(16_000);
    assert!(
        silent
            .iter()
            .all(|(_, out)| *out == Out::Resend(9, 9000, Some(11_000)))
    );
    assert_eq!(rig.homa.stats().repairs, 2);
}

/// Without holes the endpoint wakes at its ticks only.
#[test]
fn packets_in_order_need_no_finer_clock() {
    let mut rig = Rig::new();
    rig.part_at(0, 8, 20_000, 0, false);
    let before = rig.homa.poll_timeout();
    rig.part_at(10, 8, 20_000, 1000, false);
    assert_eq!(
        (rig.homa.poll_timeout(), before),
        (before, Some(Instant(1_000 * MICRO)))
    );
    rig.part_at(20, 8, 20_000, 3000, false);
    assert_eq!(rig.homa.poll_timeout(), Some(Instant(520 * MICRO)));
}

/// Packets that are overtaken by 1 ms are asked for in vain at first: by copies of what was asked
/// for it shows that they were late, and patience grows beyond the millisecond.
#[test]
fn whoever_is_only_late_is_not_asked_for_long() {
    let mut rig = Rig::new();
    let mut late = Vec::new();
    for round in 0..40 {
        let (start, id) = (round * 10_000, 8 + 2 * round);
        rig.part_at(start, id, 4000, 1000, false);
        let asked = rig.wake_until(start + 1_000).len();
        rig.homa.check();
        if asked > 0 {
            // It is sent again, and is there before the first.
            rig.part_at(start + 1_000, id, 4000, 0, true);
        }
        rig.part_at(start + 1_001, id, 4000, 0, false);
        late.push(asked);
        for offset in [2000, 3000] {
            rig.part_at(start + 1_002, id, 4000, offset, false);
        }
        rig.wake_until(start + 9_000);
    }
    let (first, rest) = late.split_at(10);
    assert!(first.iter().sum::<usize>() > 0, "{late:?}");
    assert!(rest.iter().all(|&asked| asked == 0), "{late:?}");
}

/// Eleven holes at once: eight are asked for, the others in the next tick.
#[test]
fn repairs_count_as_other_resends_do() {
    let mut rig = Rig::new();
    for n in 0..12 {
        rig.part_at(0, 8, 40_000, n * 2000, false);
    }
    let asked = rig.wake_until(3_000);
    let at: Vec<u64> = asked.iter().map(|(at, _)| *at).collect();
    assert_eq!(at[..8], [500; 8]);
    assert_eq!(at.len(), 11);
    assert!(
        at[8..].iter().all(|at| (1_000..=1_600).contains(at)),
        "{at:?}"
    );
}
