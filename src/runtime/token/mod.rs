//! Tokens: what an application holds for each operation it started.
//!
//! A token is consumed by exactly one successful wait. Results nobody asks for are kept. All costs
//! are flat in the number of pending operations: results lie in a list, oldest first, and a
//! token's number names its slot.

mod any;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::error::Error;
use crate::slots::{Key, Slots};

use super::handle::Handles;

pub use any::Search;

/// Names one operation until its result is consumed; never 0 and never `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QToken(pub u64);

/// The operations under way, each with a `P`, and the results not yet consumed, each an `R`.
pub struct Tokens<P, R> {
    slots: Slots<Token<P, R>>,
    handles: Handles,
    /// The ends of the list of results.
    oldest: u32,
    newest: u32,
    array: any::Array,
}

struct Token<P, R> {
    state: State<P, R>,
    /// Where in the array given to the last `wait_any` it was seen, or [`NONE`].
    position: u32,
    /// The array in which it was looked for in vain.
    stray_in: u32,
}

enum State<P, R> {
    Pending(P),
    Done {
        result: R,
        /// Slots of the neighbours in the list of results, or [`NONE`].
        older: u32,
        newer: u32,
    },
}

const NONE: u32 = u32::MAX;

impl<P, R> Token<P, R> {
    #[inline]
    const fn new(pending: P) -> Self {
        Self {
            state: State::Pending(pending),
            position: NONE,
            stray_in: NONE,
        }
    }
}

impl<P, R> Tokens<P, R> {
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
            slots: Slots::new(tokens_max),
            handles: Handles::new(chance),
            oldest: NONE,
            newest: NONE,
            array: any::Array::default(),
        }
    }

    /// A token for an operation that begins; `Exhausted` if there are too many.
    #[inline]
    pub fn start(&mut self, pending: P) -> Result<QToken, Error> {
        let key = self.slots.insert(Token::new(pending));
        Ok(self.token(key.ok_or(Error::Exhausted)?))
    }

    /// As [`Self::start`], for an operation that wants to know its token before it is sure to
    /// begin, and with something beside it for the caller.
    #[inline]
    pub fn start_with<U>(
        &mut self,
        begin: impl FnOnce(QToken) -> Result<(P, U), Error>,
    ) -> Result<(QToken, U), Error> {
        let handles = self.handles;
        let made = self.slots.try_insert_with(|key| {
            let (pending, beside) = begin(QToken(handles.number(key).get()))?;
            Ok::<_, Error>((Token::new(pending), beside))
        });
        let (key, beside) = made.ok_or(Error::Exhausted)??;
        Ok((self.token(key), beside))
    }

    /// Whether [`Self::start`] would fail.
    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// What is pending under a token; `None` if it has its result, or is none of ours.
    pub fn pending(&self, qt: QToken) -> Option<&P> {
        match &self.slots.get(self.key(qt)?)?.state {
            State::Pending(pending) => Some(pending),
            State::Done { .. } => None,
        }
    }

    /// Every operation under way, in the order of their slots.
    pub fn iter_pending(&self) -> impl Iterator<Item = (QToken, &P)> {
        self.slots
            .iter()
            .filter_map(|(key, token)| match &token.state {
                State::Pending(pending) => Some((self.token(key), pending)),
                State::Done { .. } => None,
            })
    }

    /// Ends an operation with the result that `end` makes of what was pending. False, and `end`
    /// is not called, if nothing is pending under this token.
    #[inline]
    pub fn complete(&mut self, qt: QToken, end: impl FnOnce(&P) -> R) -> bool {
        let older = self.newest;
        let Some(key) = self.key(qt) else {
            return false;
        };
        let token = self.slots.get_mut(key);
        let Some(state) = token.map(|token| &mut token.state) else {
            return false;
        };
        let State::Pending(pending) = state else {
            return false;
        };
        *state = State::Done {
            result: end(pending),
            older,
            newer: NONE,
        };
        self.newest = key.index();
        match self.neighbours(older) {
            Some((_, newer)) => *newer = key.index(),
            None => self.oldest = key.index(),
        }
        true
    }

    /// Ends an operation as if it had never begun: for one that failed before its token was told.
    pub fn withdraw(&mut self, qt: QToken) {
        if self.pending(qt).is_some()
            && let Some(key) = self.key(qt)
        {
            self.slots.remove(key);
        }
    }

    /// The result under a token, which is thereby consumed; `Ok(None)` while it is pending.
    #[inline]
    pub fn take(&mut self, qt: QToken) -> Result<Option<R>, Error> {
        let key = self.key(qt).ok_or(Error::Invalid)?;
        match self.slots.get(key).ok_or(Error::Invalid)?.state {
            State::Pending(_) => Ok(None),
            State::Done { .. } => Ok(self.take_done(key)),
        }
    }

    /// The oldest result of all.
    #[inline]
    pub fn take_oldest(&mut self) -> Option<(QToken, R)> {
        let key = self.slots.key_at(self.oldest)?;
        let result = self.take_done(key)?;
        Some((self.token(key), result))
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
    #[inline]
    fn take_done(&mut self, key: Key<Token<P, R>>) -> Option<R> {
        let token = self.slots.remove(key)?;
        let State::Done {
            result,
            older,
            newer,
        } = token.state
        else {
            unreachable!("only tokens seen to be done are taken");
        };
        match self.neighbours(older) {
            Some((_, of_older)) => *of_older = newer,
            None => self.oldest = newer,
        }
        match self.neighbours(newer) {
            Some((of_newer, _)) => *of_newer = older,
            None => self.newest = older,
        }
        Some(result)
    }

    /// The links (older, newer) of the result in slot `index`.
    #[inline]
    fn neighbours(&mut self, index: u32) -> Option<(&mut u32, &mut u32)> {
        if index == NONE {
            return None;
        }
        let key = self.slots.key_at(index)?;
        match &mut self.slots.get_mut(key)?.state {
            State::Done { older, newer, .. } => Some((older, newer)),
            State::Pending(_) => None,
        }
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

impl fmt::Debug for QToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QToken({:#x})", self.0)
    }
}

impl<P, R> fmt::Debug for Tokens<P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({} of {})", self.len(), self.slots.capacity())
    }
}
