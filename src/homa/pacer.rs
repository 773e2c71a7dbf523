//! How much of what we handed to the NIC it has still to send, by the speed of its link.
//!
//! Long messages wait while that is more than a little, so that a short message that comes next
//! finds a short queue. The NIC is not asked: that would cost more than it tells.

use crate::time::{Duration, Instant, Rate};

/// An estimate of the NIC's queue, and the limit it is kept to.
#[derive(Debug)]
pub struct Pacer {
    /// `None`: not known, or nobody wants it to count, so that nothing has to wait.
    link: Option<Rate>,
    /// What is known of it.
    known: Option<Rate>,
    backlog_max: Duration,
    /// When the link will have sent all it was given.
    idle_at: Instant,
}

impl Pacer {
    /// `link_mbps` 0: the speed is not known.
    pub fn new(link_mbps: u32, backlog_max: Duration) -> Self {
        let known = (link_mbps > 0).then(|| Rate::mbps(link_mbps.into()));
        Self {
            link: known,
            known,
            backlog_max,
            idle_at: Instant(0),
        }
    }

    /// Whether long messages wait for the NIC's queue. What was handed to it before counts anew.
    pub fn set_on(&mut self, is_on: bool) {
        self.link = self.known.filter(|_| is_on);
    }

    /// Whether the queue is estimated at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.link.is_some()
    }

    /// A frame that takes `wire_bytes` of the link's time was handed to the NIC.
    pub fn on_transmit(&mut self, now: Instant, wire_bytes: u32) {
        if let Some(link) = self.link {
            self.idle_at = self.idle_at.max(now) + link.time_for(wire_bytes);
        }
    }

    /// From when on a frame of a long message may be handed to the NIC.
    pub fn ready_at(&self) -> Instant {
        Instant(self.idle_at.0.saturating_sub(self.backlog_max.0))
    }

    /// Whether one may be now.
    #[inline]
    pub fn is_ready(&self, now: Instant) -> bool {
        self.link.is_none() || now >= self.ready_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule PA-01. 1,500 B at 10 Gb/s take 1.2 us, so with a 2 us backlog the third frame must
    /// wait.
    #[test]
    fn pacer_holds_back_once_the_nic_backlog_is_full() {
        let mut pacer = Pacer::new(10_000, Duration::micros(2));
        pacer.on_transmit(Instant(0), 1500);
        assert!(pacer.is_ready(Instant(0)));
        pacer.on_transmit(Instant(0), 1500);
        assert_eq!(pacer.ready_at(), Instant(400));
        assert!(!pacer.is_ready(Instant(399)) && pacer.is_ready(Instant(400)));
    }

    /// What was not sent while there was nothing to send is no credit.
    #[test]
    fn an_idle_link_saves_nothing_up() {
        let mut pacer = Pacer::new(10_000, Duration::micros(2));
        for _ in 0..2 {
            pacer.on_transmit(Instant(1_000_000), 1500);
        }
        assert_eq!(pacer.ready_at(), Instant(1_000_400));
    }

    #[test]
    fn a_pacer_that_is_off_holds_nothing_back() {
        let mut pacer = Pacer::new(10_000, Duration::micros(2));
        pacer.set_on(false);
        (0..1000).for_each(|_| pacer.on_transmit(Instant(0), 1500));
        assert!(pacer.is_ready(Instant(0)));
        pacer.set_on(true);
        (0..2).for_each(|_| pacer.on_transmit(Instant(0), 1500));
        assert!(!pacer.is_ready(Instant(0)));
    }

    #[test]
    fn a_link_of_unknown_speed_is_never_waited_for() {
        let mut pacer = Pacer::new(0, Duration::micros(2));
        (0..1000).for_each(|_| pacer.on_transmit(Instant(0), 1500));
        assert!(pacer.is_ready(Instant(0)) && !pacer.is_on());
    }
}
