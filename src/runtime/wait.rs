//! What a wait needs besides the loop: a clock, an end, and manners while nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam::utils::CachePadded;

use crate::error::Error;
use crate::time::{Duration, Instant};

/// Where the loop takes the time from: read once a turn.
pub trait Clock {
    fn now(&mut self) -> Instant;
}

impl<F: FnMut() -> Instant> Clock for F {
    fn now(&mut self) -> Instant {
        self()
    }
}

/// When one wait is over. The time counts from its first turn, which a zero timeout has too.
#[derive(Debug)]
pub struct Deadline {
    /// `None`: never.
    timeout: Option<Duration>,
    over_at: Option<Instant>,
}

impl Deadline {
    #[inline]
    pub const fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            over_at: None,
        }
    }

    /// To be asked after each turn.
    #[inline]
    pub fn is_over(&mut self, now: Instant) -> bool {
        let Some(timeout) = self.timeout else {
            return false;
        };
        let over_at = Instant(now.0.saturating_add(timeout.0));
        now >= *self.over_at.get_or_insert(over_at)
    }
}

/// Lets others have the core when turn after turn brings nothing.
#[derive(Debug)]
pub struct Idleness {
    empty_turns: u32,
    /// Empty turns before each further one yields; 0: never yield.
    yield_after_turns: u32,
}

impl Idleness {
    pub const fn new(yield_after_turns: u32) -> Self {
        Self {
            empty_turns: 0,
            yield_after_turns,
        }
    }

    #[inline]
    pub fn on_turn(&mut self, frames: usize) {
        if frames > 0 {
            self.empty_turns = 0;
        } else if self.empty_turns < self.yield_after_turns {
            self.empty_turns += 1;
        } else if self.yield_after_turns > 0 {
            thread::yield_now();
        }
    }
}

/// Ends a wait from another thread or from a signal handler: it makes nothing but one store.
#[derive(Clone, Debug, Default)]
pub struct Waker {
    /// On a cache line of its own: the loop looks at it in each wait, others hardly ever write.
    is_asked: Arc<CachePadded<AtomicBool>>,
}

impl Waker {
    /// Makes the running wait, or else the next one, end with [`Error::Interrupted`].
    pub fn wake(&self) {
        self.is_asked.store(true, Ordering::Release);
    }

    /// Fails once for each time somebody woke us (or several did, before we looked).
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        if self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_timeout_is_over_after_one_turn_and_none_never() {
        assert!(Deadline::new(Some(Duration::ZERO)).is_over(Instant(5)));
        let mut deadline = Deadline::new(Some(Duration(10)));
        assert!(!deadline.is_over(Instant(5)) && !deadline.is_over(Instant(14)));
        assert!(deadline.is_over(Instant(15)));
        assert!(!Deadline::new(None).is_over(Instant(u64::MAX)));
    }

    #[test]
    fn a_timeout_of_ages_does_not_overflow() {
        let mut deadline = Deadline::new(Some(Duration(u64::MAX)));
        assert!(!deadline.is_over(Instant(5)) && !deadline.is_over(Instant(6)));
    }

    #[test]
    fn a_wake_is_seen_once_also_if_it_came_before_the_wait() {
        let waker = Waker::default();
        assert_eq!(waker.check(), Ok(()));
        let other = waker.clone();
        std::thread::spawn(move || other.wake()).join().unwrap();
        assert_eq!(
            (waker.check(), waker.check()),
            (Err(Error::Interrupted), Ok(()))
        );
    }
}
