//! Waiting: the loop is turned until a token has its result, or the time is up.

use crate::device::Device;
use crate::error::Error;
use crate::runtime::{Clock, Deadline, QToken, Search};
use crate::time::{Duration, Instant};

use super::LibOSOver;
use super::desk::Done;
use super::result::QResult;

/// Waits in a row that may find their result without turning the loop: the others' frames and
/// timers must get their turn also while an application has plenty to do.
const UNTURNED_MAX: u32 = 32;

impl<D: Device, C: Clock> LibOSOver<D, C> {
    /// The result under `qt`, which is thereby consumed. With no timeout it waits for ever, with
    /// a zero one it turns the loop once. Errors: `WaitTimedOut`, and the token stays valid;
    /// `Invalid` for a token that was consumed or never was one; `Interrupted`.
    #[inline(always)]
    pub fn wait(&mut self, qt: QToken, timeout: Option<Duration>) -> Result<QResult, Error> {
        self.begin_wait();
        self.waker.check()?;
        let done = match self.take_or_turn(qt)? {
            (Some(done), _) => done,
            (None, now) => self.turn_for(qt, now, timeout)?,
        };
        Ok(self.desk.describe(qt, done))
    }

    /// The result under `qt`, if it is there after at most one turn; and the time of that turn.
    #[inline(always)]
    fn take_or_turn(&mut self, qt: QToken) -> Result<(Option<Done>, Instant), Error> {
        // With no results there is nothing to find yet, whatever the token is.
        if self.desk.tokens.has_results()
            && let done @ Some(_) = self.desk.tokens.take(qt)?
        {
            return Ok((done, self.desk.now));
        }
        let now = self.turn();
        Ok((self.desk.tokens.take(qt)?, now))
    }

    /// Turns the loop further, which it did first at `now`, until there is a result under `qt`.
    #[inline(never)]
    fn turn_for(
        &mut self,
        qt: QToken,
        mut now: Instant,
        timeout: Option<Duration>,
    ) -> Result<Done, Error> {
        let mut deadline = Deadline::new(timeout);
        loop {
            self.waker.check()?;
            if deadline.is_over(now) {
                return Err(Error::WaitTimedOut);
            }
            now = self.turn();
            if let Some(done) = self.desk.tokens.take(qt)? {
                return Ok(done);
            }
        }
    }

    /// Of the tokens passed, the one whose result is oldest: its place in `qts` and its result.
    /// Errors as for [`Self::wait`]; `Invalid` only if nothing passed is ready, and for more than
    /// 4 tokens not before the loop has turned a few times.
    pub fn wait_any(
        &mut self,
        qts: &[QToken],
        timeout: Option<Duration>,
    ) -> Result<(usize, QResult), Error> {
        self.begin_wait();
        let mut deadline = Deadline::new(timeout);
        let mut search = Search::default();
        let (mut has_turned, mut is_over) = (false, false);
        loop {
            self.waker.check()?;
            let mut look = true;
            while look {
                if let Some((place, done)) = self.desk.tokens.take_any(qts, &mut search) {
                    return Ok((place, self.desk.describe(qts[place], done)));
                }
                look = has_turned && self.desk.tokens.check_any(qts, &mut search)?;
            }
            if is_over {
                return Err(Error::WaitTimedOut);
            }
            is_over = deadline.is_over(self.turn());
            has_turned = true;
        }
    }

    /// Results of any tokens, oldest first, to `acceptor` until it says with `false` that it can
    /// take no more after this one. Errors: `WaitTimedOut`, `Interrupted`; what was accepted
    /// before is consumed all the same.
    pub fn wait_next_n(
        &mut self,
        mut acceptor: impl FnMut(QResult) -> bool,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        self.begin_wait();
        let mut deadline = Deadline::new(timeout);
        let mut is_over = false;
        loop {
            self.waker.check()?;
            while let Some((qt, done)) = self.desk.tokens.take_oldest() {
                if !acceptor(self.desk.describe(qt, done)) {
                    return Ok(());
                }
            }
            if is_over {
                return Err(Error::WaitTimedOut);
            }
            is_over = deadline.is_over(self.turn());
        }
    }

    #[inline]
    pub(super) fn begin_wait(&mut self) {
        self.unturned += 1;
        if self.unturned > UNTURNED_MAX {
            self.turn();
        }
    }
}
