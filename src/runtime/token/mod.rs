//! Tokens: what an application holds for each operation it started.
//!
//! A token is consumed by exactly one successful wait. Results nobody asks for are kept. All costs
//! are flat in the number of pending operations: results lie in a list, oldest first, and a
//! token's number names its slot.

mod any;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::arena::Arena;
use crate::error::Error;
use crate::slots::Key;

use super::handle::Handles;

pub use any::Search;

/// Names one operation until its result is consumed; never 0 and never `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QToken(pub u64);

/// The operations under way, each with a `P`, and the results not yet consumed, each an `R`.
pub struct Tokens<P, R> {
    slots: Arena<Token<P, R>>,
    handles: Handles,
    /// The ends of the list of results.
    oldest: u32,
    newest: u32,
    array: any::Array,
}

#[derive(Default)]
struct Token<P, R> {
    is_done: bool,
    pending: P,
    /// Once it is done, like the next two.
    result: R,
    /// Slots of the neighbours in the list of results, or [`NONE`].
    older: u32,
    newer: u32,
    /// Where in the array given to the last `wait_any` it was seen, or [`NONE`].
    position: u32,
    /// The array in which it was looked for in vain.
    stray_in: u32,
}

const NONE: u32 = u32::MAX;

impl<P, R> Token<P, R> {
    #[inline]
    fn begin(&mut self) {
        self.is_done = false;
        self.position = NONE;
        self.stray_in = NONE;
    }
}

impl<P: Copy + Default, R: Copy + Default> Tokens<P, R> {
    /// At most `tokens_max` tokens at once. `chance` tells runtimes' tokens apart.
    ///
    /// # Panics
    /// If `tokens_max` is more than [`Handles::SLOTS_MAX`]; parameters are validated before.
    pub fn new(tokens_max: usize, chance: u64) -> Self {
        assert!(
            tokens_max <= Handles::SLOTS_MAX,
            "{tokens_max} tokens do not fit a token's number"
        );
        Self {
            slots: Arena::new(tokens_max),
            handles: Handles::new(chance),
            oldest: NONE,
            newest: NONE,
            array: any::Array::default(),
        }
    }

    /// A token for an operation that begins; `Exhausted` if there are too many.
    #[inline(always)]
    pub fn start(&mut self, pending: P) -> Result<QToken, Error> {
        let (key, token) = self.slots.enter().ok_or(Error::Exhausted)?;
        token.begin();
        token.pending = pending;
        Ok(self.token(key))
    }

    /// As [`Self::start`], for an operation that wants to know its token before it is sure to
    /// begin, and with something beside it for the caller.
    #[inline(always)]
    pub fn start_with<U>(
        &mut self,
        begin: impl FnOnce(QToken, &mut P) -> Result<U, Error>,
    ) -> Result<(QToken, U), Error> {
        let (key, token) = self.slots.enter().ok_or(Error::Exhausted)?;
        let qt = QToken(self.handles.number(key).get());
        token.begin();
        match begin(qt, &mut token.pending) {
            Ok(beside) => Ok((qt, beside)),
            Err(error) => {
                self.slots.leave(key);
                Err(error)
            }
        }
    }

    /// Whether [`Self::start`] would fail.
    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// What is pending under a token; `None` if it has its result, or is none of ours.
    pub fn pending(&self, qt: QToken) -> Option<&P> {
        let token = self.slots.get(self.key(qt)?)?;
        (!token.is_done).then_some(&token.pending)
    }

    /// Every operation under way, in the order of their slots.
    pub fn iter_pending(&self) -> impl Iterator<Item = (QToken, &P)> {
        let tokens = self.slots.iter().filter(|(_, token)| !token.is_done);
        tokens.map(|(key, token)| (self.token(key), &token.pending))
    }

    /// Ends an operation with the result that `end` writes, knowing what was pending. False, and
    /// nothing is written, if nothing is pending under this token.
    #[inline(always)]
    pub fn complete(&mut self, qt: QToken, end: impl FnOnce(&P, &mut R)) -> bool {
        let older = self.newest;
        let token = self.key(qt).and_then(|key| self.slots.get_mut(key));
        let Some(token) = token.filter(|token| !token.is_done) else {
            return false;
        };
        token.is_done = true;
        end(&token.pending, &mut token.result);
        token.older = older;
        token.newer = NONE;
        let slot = Handles::slot(qt.0);
        self.newest = slot;
        match self.slots.at_mut(older) {
            Some((_, older)) => older.newer = slot,
            None => self.oldest = slot,
        }
        true
    }

    /// Ends an operation as if it had never begun: for one that failed before its token was told.
    pub fn withdraw(&mut self, qt: QToken) {
        if self.pending(qt).is_some()
            && let Some(key) = self.key(qt)
        {
            self.slots.leave(key);
        }
    }

    /// The result under a token, which is thereby consumed; `Ok(None)` while it is pending.
    #[inline(always)]
    pub fn take(&mut self, qt: QToken) -> Result<Option<R>, Error> {
        let key = self.key(qt).ok_or(Error::Invalid)?;
        if !self.slots.get(key).ok_or(Error::Invalid)?.is_done {
            return Ok(None);
        }
        Ok(self.take_done(key))
    }

    /// The oldest result of all.
    #[inline]
    pub fn take_oldest(&mut self) -> Option<(QToken, R)> {
        let key = self.slots.key_at(self.oldest)?;
        let result = self.take_done(key)?;
        Some((self.token(key), result))
    }

    /// Whether there is a result that `is_it` accepts. Looks at all of them, oldest first.
    pub fn has_result(&self, is_it: impl Fn(&R) -> bool) -> bool {
        let mut slot = self.oldest;
        while let Some((_, token)) = self.slots.at(slot) {
            if is_it(&token.result) {
                return true;
            }
            slot = token.newer;
        }
        false
    }

    /// Whether a result waits for whoever asks.
    #[inline]
    pub fn has_results(&self) -> bool {
        self.oldest != NONE
    }

    /// Tokens alive: pending, or with a result that nobody consumed.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes a token with its result out of the list and the table.
    #[inline(always)]
    fn take_done(&mut self, key: Key<Token<P, R>>) -> Option<R> {
        let token = self.slots.leave(key)?;
        let (result, older, newer) = (token.result, token.older, token.newer);
        match self.slots.at_mut(older) {
            Some((_, older)) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.at_mut(newer) {
            Some((_, newer)) => newer.older = older,
            None => self.newest = older,
        }
        Some(result)
    }

    #[inline]
    fn token(&self, key: Key<Token<P, R>>) -> QToken {
        QToken(self.handles.number(key).get())
    }

    #[inline]
    fn key(&self, qt: QToken) -> Option<Key<Token<P, R>>> {
        self.handles.key(qt.0)
    }
}

impl From<u64> for QToken {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<QToken> for u64 {
    fn from(qt: QToken) -> Self {
        qt.0
    }
}

impl fmt::Debug for QToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QToken({:#x})", self.0)
    }
}

impl<P, R> fmt::Debug for Tokens<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Tokens({} of {})",
            self.slots.len(),
            self.slots.capacity()
        )
    }
}
