//! What time brings: what must be sent again, signs of life, and the end of silent peers.

use crate::error::Error;
use crate::homa::Endpoint;
use crate::time::{Duration, Instant};

use super::Channels;
use super::event::ChannelKey;
use super::state::State;

/// How often there is a look at the time.
const TICK: Duration = Duration::millis(1);

/// The most that one look can add to the time lived: what the loop did not live through was not
/// the peers' silence.
const STEP_MAX: Duration = Duration::millis(100);

impl Channels {
    /// When [`Self::handle_timeout`] should be called next; `None` if nothing waits for time.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.early_count > 0 {
            return Some(self.turned_at + TICK);
        }
        let &(at, _) = self.due.first()?;
        let left = at.since(self.lived).clamp(TICK, STEP_MAX);
        Some(self.turned_at + left)
    }

    /// Does what is due. To be called in each turn.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant, homa: &mut Endpoint) {
        if now.since(self.turned_at) >= TICK {
            self.tick(now, homa);
        }
    }

    #[cold]
    fn tick(&mut self, now: Instant, homa: &mut Endpoint) {
        self.lived += now.since(self.turned_at).min(STEP_MAX);
        self.turned_at = now;
        if self.early_count > 0 && homa.is_short_of_room() {
            self.drop_early(now, homa);
        }
        while let Some(&(at, slot)) = self.due.first()
            && at <= self.lived
        {
            self.due.pop_first();
            if let Some(key) = self.channels.key_at(slot) {
                self.look(now, homa, key);
                self.file(key);
            }
        }
    }

    fn look(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let lived = self.lived;
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        channel.due = None;
        match channel.state {
            State::Dead(_) => {}
            State::Opening(opening) if opening.until <= lived => {
                self.kill(now, homa, key, Error::PeerTimedOut);
            }
            State::Opening(opening) => {
                if opening.flight.is_none() && opening.retry_at <= lived {
                    self.send_open(now, homa, key);
                }
            }
            State::Open if channel.sender.has_timed_out(lived, self.params.timeout) => {
                self.kill(now, homa, key, Error::PeerTimedOut);
            }
            State::Open => {
                self.look_at_note(now, homa, key);
                self.pump(now, homa, key);
            }
        }
    }

    fn look_at_note(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let (lived, idle) = (self.lived, self.params.keepalive_idle);
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        match (channel.note, channel.note_due) {
            (Some(note), _) if note.since + idle <= lived => {
                self.forget(now, homa, vec![note.flight]);
                self.on_note_lost(now, homa, key);
            }
            (Some(_), _) => {}
            (None, Some(due)) if due > lived => {}
            (None, None) if !channel.sender.is_idle() || channel.heard_at + idle > lived => {}
            (None, _) => self.send_note(now, homa, key),
        }
    }
}
