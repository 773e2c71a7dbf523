//! Takes requests, and sends copies of them.

use crate::error::Error;
use crate::homa::Endpoint;
use crate::session::client::request::{Copied, Flags, Stage, Why};
use crate::session::client::{Client, Errand, State};
use crate::session::event::{ClientEvent, Completion, Outcome, Received};
use crate::session::permits::Permit;
use crate::session::policy::PathSet;
use crate::time::{Duration, Instant};
use crate::wire::session::{self as wire, Common, IoRequest};

/// Copies sent in one call, at most: a lost path's requests must not flood another one's NIC.
const COPIES_MAX: usize = 64;

/// How long to wait when the transport has no room for an RPC.
const STALL: Duration = Duration::millis(1);

/// A request's bytes, in the order in which they are sent.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// The application's own header.
    pub user: &'a [&'a [u8]],
    /// What is to be written.
    pub data: &'a [&'a [u8]],
}

impl Client {
    /// Writes: the bytes are copied, and are the user's again when this returns.
    /// [`ClientEvent::Completed`] brings `tag` back, once.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the permit is void; [`Error::Busy`] while an earlier request of
    /// its is not over; [`Error::MessageTooLong`]; [`Error::Invalid`] for an empty segment or too
    /// many of them; [`Error::PathsLost`] if there is no path and requests do not wait;
    /// [`Error::NotConnected`] if no path will come back by itself; [`Error::Shutdown`].
    pub fn write(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        permit: Permit,
        bytes: Gather<'_>,
        flags: Flags,
        tag: u64,
    ) -> Result<(), Error> {
        let data_len = total(bytes.data, self.params.segments_max)?;
        let segments = bytes.data.len() as u16;
        let slot = self.check(permit, bytes.user, data_len)?;
        let user_len = total(bytes.user, usize::MAX)? as u16;
        let data_at = IoRequest::data_offset(user_len);
        let mut message = self
            .buffers
            .alloc(data_at + data_len as usize)
            .ok_or(Error::Exhausted)?;
        let out = message.make_mut().ok_or(Error::Exhausted)?;
        gather(&mut out[IoRequest::LEN..data_at], bytes.user);
        gather(&mut out[data_at..], bytes.data);
        let request = self.requests.get_mut(slot);
        request.is_write = true;
        request.message = Some(message);
        (request.user_len, request.data_len) = (user_len, data_len);
        (request.segments, request.flags, request.tag) = (segments, flags, tag);
        self.begin(now, homa, slot);
        Ok(())
    }

    /// Reads up to `len` bytes, which [`ClientEvent::Completed`] brings with `tag`.
    ///
    /// # Errors
    /// As [`Self::write`].
    #[expect(
        clippy::too_many_arguments,
        reason = "each of them is part of what is asked"
    )]
    pub fn read(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        permit: Permit,
        user: &[&[u8]],
        len: u32,
        flags: Flags,
        tag: u64,
    ) -> Result<(), Error> {
        let slot = self.check(permit, user, len)?;
        let user_len = total(user, usize::MAX)? as u16;
        let mut message = self
            .buffers
            .alloc(IoRequest::LEN + usize::from(user_len))
            .ok_or(Error::Exhausted)?;
        let out = message.make_mut().ok_or(Error::Exhausted)?;
        gather(&mut out[IoRequest::LEN..], user);
        let request = self.requests.get_mut(slot);
        request.is_write = false;
        request.message = Some(message);
        (request.user_len, request.data_len) = (user_len, len);
        (request.segments, request.flags, request.tag) = (0, flags, tag);
        self.begin(now, homa, slot);
        Ok(())
    }

    /// Whether a request can be taken; the slot it will have.
    fn check(&self, permit: Permit, user: &[&[u8]], data_len: u32) -> Result<u16, Error> {
        self.check_open()?;
        let slot = self.permits.slot_of(permit)?;
        if self.requests.get(slot).stage != Stage::Idle {
            return Err(Error::Busy);
        }
        let server = self.server.as_ref().ok_or(Error::NotConnected)?;
        let user_len = total(user, usize::MAX)?;
        if user_len > server.user_max || data_len > server.io_max {
            return Err(Error::MessageTooLong);
        }
        if self.views.is_empty() {
            if self.has_failed() {
                return Err(Error::NotConnected);
            }
            if self.fails_fast() {
                return Err(Error::PathsLost);
            }
        }
        Ok(slot)
    }

    fn begin(&mut self, now: Instant, homa: &mut Endpoint, slot: u16) {
        let lived = self.clock.lived();
        let timeout = self.params.io_timeout;
        let request = self.requests.get_mut(slot);
        request.stage = Stage::Queued;
        request.was_sent = false;
        request.was_sent_before = false;
        request.attempts = 0;
        request.tried = PathSet::default();
        request.is_overdue = false;
        request.due_at = lived + timeout;
        self.requests.begin(slot);
        if timeout > Duration::ZERO {
            self.due_by(lived + timeout);
        }
        // Those that wait already come first.
        if !self.queue.is_empty() || !self.send(now, homa, slot) {
            self.queue.push_back(slot);
        }
    }

    /// Sends what waits to be sent, as far as there are paths.
    pub(super) fn flush(&mut self, now: Instant, homa: &mut Endpoint) {
        for _ in 0..self.queue.len().min(COPIES_MAX) {
            let Some(&slot) = self.queue.front() else {
                return;
            };
            let is_waiting = self.requests.get(slot).stage == Stage::Queued;
            if is_waiting && !self.send(now, homa, slot) {
                return;
            }
            self.queue.pop_front();
        }
    }

    /// Sends a copy of a request; false if it must wait.
    fn send(&mut self, now: Instant, homa: &mut Endpoint, slot: u16) -> bool {
        let tried = self.requests.get(slot).tried;
        let Some(place) = self.picker.pick(&self.views, tried, slot) else {
            let is_tried_out = !self.views.is_empty();
            if is_tried_out {
                self.ask(slot, Why::Refused);
            }
            return is_tried_out;
        };
        let view = self.views[place].path;
        let Some((path_key, path)) = self.paths.at(view.into()) else {
            return false;
        };
        let (to, id, epoch) = (path.address.destination, path.id, path.epoch);
        let Some(life) = self.server.and_then(|server| server.life) else {
            return false;
        };
        let common = Common {
            session: life.session,
            path: id,
            epoch,
            flags: wire::Flags::default(),
        };
        let Some(message) = self.emit(slot, common) else {
            return self.stall();
        };
        let Ok((rpc, count)) = self.call(homa, now, to, Errand::Io(slot), message) else {
            return self.stall();
        };
        let lived = self.clock.lived();
        let request = self.requests.get_mut(slot);
        request.sequence += u64::from(!request.was_sent);
        request.was_sent = true;
        request.attempts = request.attempts.saturating_add(1);
        request.sent_at = lived;
        request.stage = Stage::Sent(Copied {
            path: path_key,
            rpc,
            count,
        });
        let bytes = u64::from(request.data_len);
        let view = &mut self.views[place];
        view.inflight += 1;
        view.inflight_bytes += bytes;
        if let Some(path) = self.paths.get_mut(path_key) {
            path.sent_at = lived;
        }
        true
    }

    /// The transport has no room: later it will.
    fn stall(&mut self) -> bool {
        self.stats.stalls += 1;
        self.is_stalled = true;
        self.due_by(self.clock.lived() + STALL);
        false
    }

    /// Writes the header of the next copy of a request; gives a view of the message to be sent.
    /// `None` while the transport still holds the one before.
    fn emit(&mut self, slot: u16, common: Common) -> Option<crate::mem::Buf> {
        let timeout_ms = self.params.io_timeout.as_millis() as u32;
        let request = self.requests.get_mut(slot);
        let io = IoRequest {
            sequence: request.sequence + u64::from(!request.was_sent),
            slot,
            user_len: request.user_len,
            data_len: request.data_len,
            attempt: request.attempts.saturating_add(1),
            segments: request.segments,
            timeout_ms,
        };
        let flags = wire::Flags {
            is_retry: request.attempts > 0,
            is_idempotent: request.flags.is_idempotent,
            keeps_reply: request.flags.runs_once,
        };
        let wire = match request.is_write {
            true => wire::Request::Write(io),
            false => wire::Request::Read(io),
        };
        let message = request.message.as_mut()?;
        wire.emit(&Common { flags, ..common }, message.make_mut()?);
        Some(message.clone())
    }

    /// A copy that was under way is over, whatever became of it.
    pub(super) fn settle(&mut self, copied: Copied, slot: u16) {
        let bytes = u64::from(self.requests.get(slot).data_len);
        let place = copied.path.index() as u8;
        if let Some(view) = self.views.iter_mut().find(|view| view.path == place) {
            view.inflight = view.inflight.saturating_sub(1);
            view.inflight_bytes = view.inflight_bytes.saturating_sub(bytes);
        }
    }

    /// Queues a request, to be sent or sent again.
    pub(super) fn requeue(&mut self, slot: u16) {
        self.requests.get_mut(slot).stage = Stage::Queued;
        self.queue.push_back(slot);
    }

    /// Tells the user how a request ended. `stage` is what becomes of its slot.
    pub(super) fn complete(
        &mut self,
        slot: u16,
        (status, outcome): (i32, Outcome),
        is_replayed: bool,
        data: Option<Received>,
    ) {
        let request = self.requests.get(slot);
        let (tag, attempts) = (request.tag, request.attempts);
        let (is_write, data_len) = (request.is_write, request.data_len);
        // Of what was not sent, the server knows nothing.
        let stage = match outcome {
            Outcome::Unknown if request.was_sent => Stage::Quarantined,
            Outcome::Unknown | Outcome::Executed | Outcome::NotExecuted => Stage::Idle,
        };
        let outcome = match outcome {
            // Not in this life; but nobody knows of the one before.
            Outcome::NotExecuted if request.was_sent_before => Outcome::Unknown,
            Outcome::Executed | Outcome::NotExecuted | Outcome::Unknown => outcome,
        };
        let stats = &mut self.stats;
        if is_write {
            stats.writes += 1;
            stats.write_bytes += u64::from(data_len);
        } else {
            stats.reads += 1;
            stats.read_bytes += data.map_or(0, |data| u64::from(data.len));
        }
        stats.replays += u64::from(is_replayed);
        stats.unknown_outcomes += u64::from(outcome == Outcome::Unknown);
        self.requests.end(slot, stage);
        if stage == Stage::Quarantined {
            self.ask_soon();
        }
        let completion = Completion {
            status,
            outcome,
            is_replayed,
            attempts,
            data,
        };
        self.events
            .push_back(ClientEvent::Completed { tag, completion });
    }

    /// Requests fail at once, as there was no path for too long.
    pub(super) fn fails_fast(&self) -> bool {
        let lived = self.clock.lived();
        let limit = self.params.fast_fail;
        self.down_since
            .is_some_and(|since| lived.since(since) >= limit)
    }

    /// No path will come back by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Open && self.paths.iter().all(|(_, path)| path.is_closed())
    }
}

/// The sum of the segments' lengths.
fn total(segments: &[&[u8]], count_max: usize) -> Result<u32, Error> {
    if segments.len() > count_max || segments.iter().any(|segment| segment.is_empty()) {
        return Err(Error::Invalid);
    }
    let len: usize = segments.iter().map(|segment| segment.len()).sum();
    u32::try_from(len).map_err(|_| Error::MessageTooLong)
}

/// Writes the segments one after the other; what is left of `out` is zero.
fn gather(mut out: &mut [u8], segments: &[&[u8]]) {
    for segment in segments {
        let (head, rest) = out.split_at_mut(segment.len());
        head.copy_from_slice(segment);
        out = rest;
    }
    out.fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story 24.
    #[test]
    fn segments_of_any_shape_are_gathered_and_empty_ones_refused() {
        let (one, two): (&[u8], &[u8]) = (b"a", b"bcd");
        assert_eq!(total(&[one, two], 2), Ok(4));
        assert_eq!(total(&[], 2), Ok(0));
        assert_eq!(total(&[one, b"", two], 3), Err(Error::Invalid));
        assert_eq!(total(&[one, two, one], 2), Err(Error::Invalid));
        let mut out = [0xee; 6];
        gather(&mut out, &[one, two]);
        assert_eq!(&out, b"abcd\0\0");
    }
}
