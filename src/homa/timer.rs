//! When each RPC must next be looked at, in ticks.

/// No slot.
const NONE: u32 = u32::MAX;

/// Ticks that a lap of the wheel takes; later entries stay for further laps.
const BUCKETS: usize = 256;

/// A timing wheel in which each slot is filed at most once.
///
/// Ticks are counted by the owner, so they measure time lived rather than time passed. An entry
/// belongs to the slot and not to its tenant: whoever lives there when it is due looks what to do.
#[derive(Debug)]
pub struct Wheel {
    tick: u32,
    heads: Box<[u32; BUCKETS]>,
    entries: Vec<Entry>,
    filed_count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: u32,
    next: u32,
    /// The entry before this one; the slot itself if it is the first; `NONE` if not filed.
    previous: u32,
}

impl Wheel {
    pub fn new() -> Self {
        Self {
            tick: 0,
            heads: Box::new([NONE; BUCKETS]),
            entries: Vec::new(),
            filed_count: 0,
        }
    }

    /// The tick it is now.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Nothing is filed, so that no tick needs to be counted.
    pub fn is_empty(&self) -> bool {
        self.filed_count == 0
    }

    /// Whether `slot` will be due one day.
    pub fn is_filed(&self, slot: u32) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|entry| entry.previous != NONE)
    }

    /// Files `slot` in `ticks` from now, at least one; sooner if it is filed for sooner already.
    #[inline(always)]
    pub fn file_in(&mut self, slot: u32, ticks: u32) {
        let ticks = ticks.max(1);
        if slot as usize >= self.entries.len() {
            let unfiled = Entry {
                due: 0,
                next: NONE,
                previous: NONE,
            };
            self.entries.resize(slot as usize + 1, unfiled);
        }
        let entry = self.entries[slot as usize];
        if entry.previous != NONE {
            if entry.due.wrapping_sub(self.tick) <= ticks {
                return;
            }
            self.unfile(slot);
        }
        let due = self.tick.wrapping_add(ticks);
        let head = &mut self.heads[due as usize % BUCKETS];
        let next = std::mem::replace(head, slot);
        if next != NONE {
            self.entries[next as usize].previous = slot;
        }
        self.entries[slot as usize] = Entry {
            due,
            next,
            previous: slot,
        };
        self.filed_count += 1;
    }

    /// Goes to the next tick. Only once [`Self::poll_due`] has nothing left for this one.
    pub fn advance(&mut self) {
        self.tick = self.tick.wrapping_add(1);
    }

    /// A slot that is due at this tick; it is no longer filed.
    pub fn poll_due(&mut self) -> Option<u32> {
        let mut slot = self.heads[self.tick as usize % BUCKETS];
        while slot != NONE {
            let entry = self.entries[slot as usize];
            if entry.due == self.tick {
                self.unfile(slot);
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    fn unfile(&mut self, slot: u32) {
        let entry = self.entries[slot as usize];
        if entry.previous == slot {
            self.heads[entry.due as usize % BUCKETS] = entry.next;
        } else {
            self.entries[entry.previous as usize].next = entry.next;
        }
        if entry.next != NONE {
            let previous = if entry.previous == slot {
                entry.next
            } else {
                entry.previous
            };
            self.entries[entry.next as usize].previous = previous;
        }
        self.entries[slot as usize].previous = NONE;
        self.filed_count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn due(wheel: &mut Wheel) -> Vec<u32> {
        let mut slots: Vec<_> = std::iter::from_fn(|| wheel.poll_due()).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn a_slot_is_due_once_at_its_tick() {
        let mut wheel = Wheel::new();
        wheel.file_in(3, 2);
        wheel.file_in(1, 2);
        assert_eq!(due(&mut wheel), []);
        wheel.advance();
        assert_eq!(due(&mut wheel), []);
        wheel.advance();
        assert_eq!(due(&mut wheel), [1, 3]);
        assert!(wheel.is_empty());
    }

    #[test]
    fn the_sooner_of_two_ticks_counts() {
        let mut wheel = Wheel::new();
        wheel.file_in(0, 5);
        wheel.file_in(0, 1);
        wheel.file_in(0, 9);
        wheel.advance();
        assert_eq!(due(&mut wheel), [0]);
        assert!(wheel.is_empty());
    }

    /// 300 ticks are more than one lap of 256.
    #[test]
    fn an_entry_waits_for_its_own_lap() {
        let mut wheel = Wheel::new();
        wheel.file_in(0, 300);
        wheel.file_in(1, 300 - 256);
        for tick in 1..=300 {
            wheel.advance();
            let expected: &[u32] = match tick {
                44 => &[1],
                300 => &[0],
                _ => &[],
            };
            assert_eq!(due(&mut wheel), expected, "tick {tick}");
        }
    }

    /// Against a plain table of due ticks, over random filings.
    #[test]
    fn it_agrees_with_a_plain_table() {
        let mut rng = Rng::new(5);
        let mut wheel = Wheel::new();
        let mut table = [None::<u32>; 40];
        for tick in 1..3000 {
            for _ in 0..rng.below(4) {
                let (slot, ticks) = (rng.below(40), 1 + rng.below(400) as u32);
                let at = wheel.tick() + ticks;
                let entry = &mut table[slot as usize];
                *entry = Some(entry.map_or(at, |filed| filed.min(at)));
                wheel.file_in(slot as u32, ticks);
            }
            wheel.advance();
            let expected: Vec<u32> = (0..40)
                .filter(|&slot| table[slot as usize] == Some(tick))
                .collect();
            expected
                .iter()
                .for_each(|&slot| table[slot as usize] = None);
            assert_eq!(due(&mut wheel), expected, "tick {tick}");
        }
    }
}
