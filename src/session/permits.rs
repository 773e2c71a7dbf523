//! The client's permits: one per slot of the session. Who holds one can send a request, whose
//! memory was set aside; so pressure shows where permits are got, and nowhere else.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::error::Error;

/// Memory of the application's own in each permit begins at a multiple of this.
const PDU_ALIGN: usize = 64;

/// A permit that somebody holds: its slot, and which of the slot's holders. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Permit(pub NonZeroU64);

/// What a permit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Requests that must get through when all else is busy; a few permits are only for them.
    Admin,
    Io,
}

/// All permits of a session.
#[derive(Debug)]
pub struct Permits {
    slots: Vec<Slot>,
    /// Slots that nobody holds; the last one is taken first.
    free: Vec<u16>,
    /// So many of the free ones are not for [`Purpose::Io`].
    admin_reserve: usize,
    waiting: VecDeque<(Purpose, u64)>,
    pdus: Vec<u8>,
    pdu_len: usize,
    /// Where the first of them begins.
    pdu_start: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Held,
    /// Given back, but what became of its last request is not known yet.
    Quarantined,
}

impl Permits {
    /// `pdu_len` bytes of the application's own are part of each permit.
    pub fn new(slots: u16, pdu_len: usize) -> Self {
        let slot = Slot {
            generation: 1,
            place: Place::Free,
        };
        let pdus = vec![0; usize::from(slots) * stride(pdu_len) + PDU_ALIGN];
        Self {
            slots: vec![slot; usize::from(slots)],
            free: (0..slots).rev().collect(),
            admin_reserve: usize::from(slots / 8).min(8),
            waiting: VecDeque::new(),
            pdu_start: pdus.as_ptr().align_offset(PDU_ALIGN).min(PDU_ALIGN),
            pdus,
            pdu_len,
        }
    }

    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    pub fn held_count(&self) -> usize {
        self.count(Place::Held)
    }

    pub fn quarantined_count(&self) -> usize {
        self.count(Place::Quarantined)
    }

    fn count(&self, place: Place) -> usize {
        self.slots.iter().filter(|slot| slot.place == place).count()
    }

    /// A free permit.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if there is none, or others wait already.
    #[inline]
    pub fn get(&mut self, purpose: Purpose) -> Result<Permit, Error> {
        match self.waiting.is_empty() {
            true => self.take(purpose).ok_or(Error::Exhausted),
            false => Err(Error::Exhausted),
        }
    }

    /// Waits for a permit; [`Self::poll_granted`] brings `tag` back.
    pub fn wait(&mut self, purpose: Purpose, tag: u64) {
        self.waiting.push_back((purpose, tag));
    }

    /// The next of those who waited whose turn has come, in the order in which they came.
    pub fn poll_granted(&mut self) -> Option<(u64, Permit)> {
        let place = self
            .waiting
            .iter()
            .position(|&(purpose, _)| self.has(purpose))?;
        let (purpose, tag) = self.waiting.remove(place)?;
        Some((tag, self.take(purpose)?))
    }

    /// Those who waited in vain.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = u64> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(_, tag)| tag)
    }

    /// Gives a permit back. `is_clear`: its slot can be used again at once.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if it was given back before.
    #[inline]
    pub fn put(&mut self, permit: Permit, is_clear: bool) -> Result<(), Error> {
        let slot = self.slot_of(permit)?;
        let state = &mut self.slots[usize::from(slot)];
        state.generation = state.generation.wrapping_add(1).max(1);
        if is_clear {
            state.place = Place::Free;
            self.free.push(slot);
        } else {
            state.place = Place::Quarantined;
        }
        Ok(())
    }

    /// What became of a slot's last request is known now.
    pub fn clear(&mut self, slot: u16) {
        let state = &mut self.slots[usize::from(slot)];
        if state.place == Place::Quarantined {
            state.place = Place::Free;
            self.free.push(slot);
        }
    }

    /// The slot of a permit that is held.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] for a stale one.
    #[inline]
    pub fn slot_of(&self, permit: Permit) -> Result<u16, Error> {
        let (index, generation) = (permit.0.get() as u32, (permit.0.get() >> 32) as u32);
        match self.slots.get(index as usize) {
            Some(slot) if slot.generation == generation && slot.place == Place::Held => {
                Ok(index as u16)
            }
            Some(_) | None => Err(Error::BadDescriptor),
        }
    }

    /// The application's own memory in a permit.
    ///
    /// # Errors
    /// As [`Self::slot_of`].
    pub fn pdu(&mut self, permit: Permit) -> Result<&mut [u8], Error> {
        let slot = self.slot_of(permit)?;
        let start = self.pdu_start + usize::from(slot) * stride(self.pdu_len);
        Ok(&mut self.pdus[start..start + self.pdu_len])
    }

    /// The permit, which must be held, whose own memory begins `offset` bytes behind the first's.
    pub fn of_pdu(&self, offset: usize) -> Option<Permit> {
        let stride = stride(self.pdu_len);
        if stride == 0 || !offset.is_multiple_of(stride) {
            return None;
        }
        let slot = u16::try_from(offset / stride).ok()?;
        let state = self.slots.get(usize::from(slot))?;
        (state.place == Place::Held).then(|| name(slot, state.generation))
    }

    #[inline]
    fn has(&self, purpose: Purpose) -> bool {
        let reserve = match purpose {
            Purpose::Admin => 0,
            Purpose::Io => self.admin_reserve,
        };
        self.free.len() > reserve
    }

    #[inline]
    fn take(&mut self, purpose: Purpose) -> Option<Permit> {
        if !self.has(purpose) {
            return None;
        }
        let slot = self.free.pop()?;
        let state = &mut self.slots[usize::from(slot)];
        state.place = Place::Held;
        Some(name(slot, state.generation))
    }
}

const fn stride(pdu_len: usize) -> usize {
    pdu_len.next_multiple_of(PDU_ALIGN)
}

#[inline]
fn name(slot: u16, generation: u32) -> Permit {
    let number = u64::from(generation) << 32 | u64::from(slot);
    Permit(NonZeroU64::new(number).expect("a generation is never 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 64 permits 8 are for administration.
    #[test]
    fn io_leaves_the_last_permits_to_administration() {
        let mut permits = Permits::new(64, 0);
        for _ in 0..56 {
            permits.get(Purpose::Io).unwrap();
        }
        assert_eq!(permits.get(Purpose::Io), Err(Error::Exhausted));
        for _ in 0..8 {
            permits.get(Purpose::Admin).unwrap();
        }
        assert_eq!(permits.get(Purpose::Admin), Err(Error::Exhausted));
        assert_eq!((permits.free_count(), permits.held_count()), (0, 64));
    }

    #[test]
    fn a_permit_given_back_is_void_though_its_slot_is_used_again() {
        let mut permits = Permits::new(8, 0);
        let old = permits.get(Purpose::Io).unwrap();
        assert_eq!(permits.put(old, true), Ok(()));
        assert_eq!(permits.put(old, true), Err(Error::BadDescriptor));
        let new = permits.get(Purpose::Io).unwrap();
        assert_eq!(permits.slot_of(new), Ok(0));
        assert_eq!(permits.slot_of(old), Err(Error::BadDescriptor));
        let foreign = Permit(NonZeroU64::MAX);
        assert_eq!(permits.slot_of(foreign), Err(Error::BadDescriptor));
    }

    #[test]
    fn those_who_wait_are_served_in_their_order_and_before_newcomers() {
        let mut permits = Permits::new(8, 0);
        let held: Vec<_> = (0..7).map(|_| permits.get(Purpose::Io).unwrap()).collect();
        permits.wait(Purpose::Io, 1);
        permits.wait(Purpose::Io, 2);
        assert_eq!(permits.poll_granted(), None);
        permits.put(held[3], true).unwrap();
        assert_eq!(permits.get(Purpose::Io), Err(Error::Exhausted));
        assert_eq!(permits.poll_granted().map(|(tag, _)| tag), Some(1));
        assert_eq!(permits.poll_granted(), None);
        // The last free one is for administration, which need not wait behind the others.
        permits.wait(Purpose::Admin, 3);
        assert_eq!(permits.poll_granted().map(|(tag, _)| tag), Some(3));
        assert_eq!(permits.take_waiting().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_quarantined_slot_is_not_given_out() {
        let mut permits = Permits::new(1, 0);
        let permit = permits.get(Purpose::Io).unwrap();
        permits.put(permit, false).unwrap();
        assert_eq!(permits.get(Purpose::Io), Err(Error::Exhausted));
        assert_eq!(permits.quarantined_count(), 1);
        permits.clear(0);
        let permit = permits.get(Purpose::Io).unwrap();
        permits.clear(0);
        assert_eq!((permits.free_count(), permits.slot_of(permit)), (0, Ok(0)));
    }

    #[test]
    fn each_permit_has_memory_of_its_own_that_leads_back_to_it() {
        let mut permits = Permits::new(8, 100);
        let held: Vec<_> = (0..7).map(|_| permits.get(Purpose::Io).unwrap()).collect();
        let first = permits.pdu(held[0]).unwrap().as_ptr() as usize;
        for (nth, &permit) in held.iter().enumerate() {
            let pdu = permits.pdu(permit).unwrap();
            assert!(pdu.len() == 100 && pdu.iter().all(|&byte| byte == 0));
            pdu.fill(nth as u8 + 1);
            let offset = pdu.as_ptr() as usize - first;
            assert_eq!((offset % 64, permits.of_pdu(offset)), (0, Some(permit)));
            assert_eq!(permits.of_pdu(offset + 64), None);
        }
        assert_eq!(permits.of_pdu(7 * 128), None);
        assert_eq!(permits.of_pdu(8 * 128), None);
    }
}
