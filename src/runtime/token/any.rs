//! Waiting for any of many tokens without looking at all of them.
//!
//! The caller passes an array, and usually passes it again with the one token replaced that we
//! gave back. So each token remembers where it was seen: walking the results, oldest first, we
//! look whether the array has the token there. Only a result whose place is not known makes us
//! read the array. Short arrays are simply read anew by each call that needs it.

use crate::error::Error;

use super::{NONE, QToken, Tokens};

/// Arrays up to this length are read anew rather than remembered.
const WINDOW: usize = 64;

/// So many tokens are checked per empty turn: few, beside what that turn costs.
const CHECKED_PER_TURN: usize = 4;

/// What is remembered of the array that the last call passed.
#[derive(Debug, Default)]
pub(super) struct Array {
    /// Its address: merely a name, since the bytes are the caller's.
    address: usize,
    len: usize,
    /// Which array: it goes up when another one is passed.
    epoch: u32,
    /// All its tokens were told their places once.
    is_learnt: bool,
    /// The place last given back, which the caller probably fills with another token.
    last: usize,
    /// Where the next window to check begins.
    cursor: usize,
}

/// How far one call has looked.
#[derive(Debug, Default)]
pub struct Search {
    has_begun: bool,
    /// The slot of the newest result already looked at, and the number of its token.
    seen: Option<(u32, QToken)>,
    /// Tokens of the array found to be alive in this call.
    checked: usize,
    has_reread: bool,
}

impl<P: Copy + Default, R: Copy + Default> Tokens<P, R> {
    /// Of the tokens passed, the one whose result is oldest: its place and the result.
    pub fn take_any(&mut self, qts: &[QToken], search: &mut Search) -> Option<(usize, R)> {
        if !search.has_begun {
            search.has_begun = true;
            self.meet_array(qts);
        }
        let mut index = match search.seen {
            None => self.oldest,
            Some((slot, qt)) => self.newer_than(slot, qt),
        };
        while let Some(key) = self.slots.key_at(index) {
            let qt = self.token(key);
            if let Some(place) = self.locate(qt, qts, search) {
                self.array.last = place;
                return self.take_done(key).map(|result| (place, result));
            }
            search.seen = Some((index, qt));
            index = self.newer_than(index, qt);
        }
        None
    }

    /// To be called when nothing passed is ready: finds tokens that are not alive, a few of them
    /// per call. True if there is reason to look for results once more.
    pub fn check_any(&mut self, qts: &[QToken], search: &mut Search) -> Result<bool, Error> {
        let has_strays = self.oldest != NONE;
        if has_strays && qts.len() > WINDOW && !search.has_reread {
            // A result that was not in the array once may have been put there since.
            search.has_reread = true;
            self.learn(qts, 0);
            search.seen = None;
            return Ok(true);
        }
        let left = qts.len() - search.checked.min(qts.len());
        for _ in 0..left.min(CHECKED_PER_TURN) {
            if self.array.cursor >= qts.len() {
                self.array.cursor = 0;
            }
            if !self.learn_one(qts, self.array.cursor) {
                return Err(Error::Invalid);
            }
            self.array.cursor += 1;
            search.checked += 1;
        }
        Ok(false)
    }

    /// The slot of the result after that of `qt`, or of the oldest if `qt` was consumed meanwhile.
    fn newer_than(&self, slot: u32, qt: QToken) -> u32 {
        let key = self.slots.key_at(slot).filter(|&key| self.token(key) == qt);
        match key.and_then(|key| self.slots.get(key)) {
            Some(token) if token.is_done => token.newer,
            Some(_) | None => self.oldest,
        }
    }

    /// Takes note of what probably changed since the last call.
    fn meet_array(&mut self, qts: &[QToken]) {
        let address = qts.as_ptr().addr();
        let array = &mut self.array;
        if array.address != address || qts.len() <= WINDOW {
            let epoch = array.epoch.wrapping_add(1);
            *array = Array {
                address,
                len: qts.len(),
                // `NONE` stands for a token that was never looked for.
                epoch: if epoch == NONE { 0 } else { epoch },
                cursor: array.cursor,
                ..Array::default()
            };
            return;
        }
        let (last, known_len) = (array.last, array.len);
        array.len = qts.len();
        self.learn_one(qts, last);
        if self.array.is_learnt && known_len < qts.len() {
            self.learn(qts, known_len);
        }
    }

    /// Where in the array a token is.
    fn locate(&mut self, qt: QToken, qts: &[QToken], search: &Search) -> Option<usize> {
        let epoch = self.array.epoch;
        if let Some(place) = self.remembered(qt, qts) {
            return Some(place);
        }
        if self.slots.get(self.key(qt)?)?.stray_in == epoch {
            return None;
        }
        if !self.array.is_learnt {
            self.array.is_learnt = true;
            self.learn(qts, 0);
        } else if qts.len() > WINDOW && !search.has_reread {
            let place = qts
                .iter()
                .position(|&other| other == qt)
                .unwrap_or(qts.len());
            self.learn_one(qts, place);
        }
        let place = self.remembered(qt, qts);
        if place.is_none() {
            let key = self.key(qt)?;
            self.slots.get_mut(key)?.stray_in = epoch;
        }
        place
    }

    fn remembered(&self, qt: QToken, qts: &[QToken]) -> Option<usize> {
        let place = self.slots.get(self.key(qt)?)?.position as usize;
        (qts.get(place) == Some(&qt)).then_some(place)
    }

    /// Tells the tokens from `first` on their places.
    fn learn(&mut self, qts: &[QToken], first: usize) {
        for place in first..qts.len() {
            self.learn_one(qts, place);
        }
    }

    /// Tells the token at `place` its place; false if there is none, or it is not alive.
    fn learn_one(&mut self, qts: &[QToken], place: usize) -> bool {
        let key = qts.get(place).and_then(|&qt| self.key(qt));
        let Some(token) = key.and_then(|key| self.slots.get_mut(key)) else {
            return false;
        };
        token.position = place as u32; // An array of 2^32 tokens has more than there are.
        true
    }
}
