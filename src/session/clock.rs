//! Time lived, not time passed: a process that slept was no silent peer.

use crate::time::{Duration, Instant};

/// What one call adds at most; and so, how often one is needed while something is due.
const STEP: Duration = Duration::millis(10);

/// The time a session has lived through. All its deadlines are in this.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    lived: Instant,
    seen: Instant,
}

impl Clock {
    pub const fn new(now: Instant) -> Self {
        Self {
            lived: now,
            seen: now,
        }
    }

    /// Lives on, and tells the time lived.
    #[inline]
    pub fn live(&mut self, now: Instant) -> Instant {
        self.lived += now.since(self.seen).min(STEP);
        self.seen = self.seen.max(now);
        self.lived
    }

    #[inline]
    pub const fn lived(&self) -> Instant {
        self.lived
    }

    /// When, as others count, to look again at what is due then.
    pub fn wake_at(&self, due: Instant) -> Instant {
        self.seen + due.since(self.lived).min(STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_counts_as_one_step_and_small_ones_as_they_are() {
        let mut clock = Clock::new(Instant(5));
        assert_eq!(clock.live(Instant(8)), Instant(8));
        let slept = Instant(8) + Duration::secs(3);
        assert_eq!(clock.live(slept), Instant(8) + STEP);
        assert_eq!(clock.wake_at(Instant(9) + STEP), Instant(slept.0 + 1));
        assert_eq!(clock.wake_at(Instant(u64::MAX)), slept + STEP);
    }
}
