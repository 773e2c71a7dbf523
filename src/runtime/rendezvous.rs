//! Where what came meets who waits for it, each side first come, first served.

use std::collections::VecDeque;

/// Things that came, and those who wait. Both can be there at once while something else holds
/// them apart, such as a full table; [`Self::meet`] then tries again.
#[derive(Debug)]
pub struct Rendezvous<T, W> {
    came: VecDeque<T>,
    waiting: VecDeque<W>,
}

impl<T, W> Rendezvous<T, W> {
    pub const fn new() -> Self {
        Self {
            came: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    #[inline]
    pub fn come(&mut self, thing: T) {
        self.came.push_back(thing);
    }

    #[inline]
    pub fn wait(&mut self, waiter: W) {
        self.waiting.push_back(waiter);
    }

    /// Whether anything came that nobody took.
    #[inline]
    pub fn has_come(&self) -> bool {
        !self.came.is_empty()
    }

    /// Whether the next thing that comes meets somebody at once.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.came.is_empty() && !self.waiting.is_empty()
    }

    /// The first thing, if there is also somebody who waits for it.
    #[inline]
    pub fn meet(&mut self) -> Option<T> {
        if self.waiting.is_empty() {
            return None;
        }
        self.came.pop_front()
    }

    /// Whoever waits longest, to be given what [`Self::meet`] gave.
    #[inline]
    pub fn first_waiting(&mut self) -> Option<W> {
        self.waiting.pop_front()
    }

    /// Everything that came and nobody took.
    pub fn drain_came(&mut self) -> impl Iterator<Item = T> {
        self.came.drain(..)
    }
}

impl<T, W> Default for Rendezvous<T, W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_meets_the_first_waiter() {
        let mut rendezvous = Rendezvous::new();
        rendezvous.come('a');
        assert_eq!(rendezvous.meet(), None);
        rendezvous.wait(1);
        rendezvous.wait(2);
        rendezvous.come('b');
        for pair in [('a', 1), ('b', 2)] {
            let thing = rendezvous.meet().unwrap();
            assert_eq!((thing, rendezvous.first_waiting().unwrap()), pair);
        }
        rendezvous.wait(3);
        assert_eq!(rendezvous.meet(), None);
    }
}
