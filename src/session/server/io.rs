//! Requests, their copies, and their answers.

use std::ops::Range;

use crate::error::Error;
use crate::homa::{Endpoint, Message, Notify, Payload};
use crate::mem::Buf;
use crate::session::event::ServerEvent;
use crate::session::server::{OpKey, Server, SessionKey, answer_to};
use crate::session::slots::{Admission, Copied, Reply};
use crate::session::status;
use crate::time::Instant;
use crate::wire::session::{Common, IoRequest, IoResponse, Kind, Outcome, Response};

/// One copy of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    message: Message,
    common: Common,
    io: IoRequest,
    is_write: bool,
}

/// A request that was told to the application, and not answered yet.
#[derive(Debug)]
pub struct Op {
    session: SessionKey,
    waiter: Waiter,
    /// A READ's answer, header and all, once there is memory for it.
    reply: Option<Buf>,
}

impl Waiter {
    pub fn new(message: Message, common: Common, io: IoRequest, kind: Kind) -> Self {
        Self {
            message,
            common,
            io,
            is_write: kind == Kind::Write,
        }
    }
}

impl Op {
    pub fn session(&self) -> SessionKey {
        self.session
    }

    pub fn is_write(&self) -> bool {
        self.waiter.is_write
    }

    /// Which of the session's slots it has, and its number there.
    pub fn name(&self) -> (u16, u64) {
        (self.waiter.io.slot, self.waiter.io.sequence)
    }

    /// Where the application's header lies in the receive memory.
    pub fn user(&self) -> Range<usize> {
        let start = self.waiter.message.offset as usize + IoRequest::LEN;
        start..start + usize::from(self.waiter.io.user_len)
    }

    /// Where the data to be written lies in the receive memory.
    pub fn data(&self) -> Range<usize> {
        let io = &self.waiter.io;
        let start = self.waiter.message.offset as usize + IoRequest::data_offset(io.user_len);
        let len = if self.waiter.is_write { io.data_len } else { 0 };
        start..start + len as usize
    }

    /// Bytes to be written, or at most to be read.
    pub fn data_len(&self) -> u32 {
        self.waiter.io.data_len
    }
}

impl Server {
    /// A request that was told.
    pub fn op(&self, op: OpKey) -> Option<&Op> {
        self.ops.get(op)
    }

    /// Where a READ's data is to be written.
    pub fn read_buffer(&mut self, op: OpKey) -> Option<&mut [u8]> {
        let op = self.ops.get_mut(op)?;
        let reply = op.reply.as_mut()?.make_mut()?;
        Some(&mut reply[IoRequest::LEN..])
    }

    /// Ends a request: with 0, or a negative errno of the application's; of a READ with status 0
    /// the first `data_len` bytes of [`Self::read_buffer`] are the answer. A status that is none
    /// is told as invalid.
    ///
    /// # Errors
    /// [`Error::AlreadyAnswered`] if it was ended before, or is gone with its session.
    pub fn respond(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        op: OpKey,
        status: i32,
        data_len: u32,
    ) -> Result<(), Error> {
        let op = self.ops.remove(op).ok_or(Error::AlreadyAnswered)?;
        homa.release(now, op.waiter.message.run);
        let status = match status {
            0 | i32::MIN..=-1 => status,
            1..=i32::MAX => {
                self.stats.bad_statuses += 1;
                status::INVALID
            }
        };
        let data_len = match status {
            0 if !op.waiter.is_write => data_len.min(op.waiter.io.data_len),
            _ => 0,
        };
        let reply = self.reply_for(&op, status, data_len);
        let (slot, sequence) = op.name();
        let Some(session) = self.sessions.get_mut(op.session) else {
            return Ok(());
        };
        let ended = session.slots.on_ended(slot, sequence, status, reply);
        let Some(ended) = ended else { return Ok(()) };
        let queued = session.slots.running();
        let answer = IoResponse {
            data_len,
            queued,
            ..answer_to(&op.waiter.io, Outcome::Executed, status)
        };
        self.answer(now, homa, &ended.answer.who, answer, op.reply);
        for other in &ended.others {
            self.turn_away(now, homa, &other.who, status::ALREADY);
        }
        if let Some((_, next)) = ended.next {
            self.start(op.session, next.who);
        }
        self.start_stalled();
        self.finish_drained(op.session);
        Ok(())
    }

    /// How the request will be answered again.
    fn reply_for(&mut self, op: &Op, status: i32, data_len: u32) -> Reply<Buf> {
        if op.waiter.is_write || status != 0 {
            return Reply::Status;
        }
        if !op.waiter.common.flags.keeps_reply {
            return Reply::Rerun;
        }
        let len = IoRequest::LEN + data_len as usize;
        // What is kept must not take the memory that READs need to go on. It is a copy, as the
        // transport will hold the original.
        let has_room = self.reads.used_bytes() <= self.params.read_bytes / 2;
        let original = op.reply.as_ref().filter(|_| has_room);
        match original.and_then(|reply| self.reads.copy_of(&reply[..len])) {
            Some(reply) => Reply::Kept(reply),
            None => {
                self.stats.replies_lost += 1;
                Reply::Lost
            }
        }
    }

    /// A copy of a request has come; true if its message is kept.
    pub(super) fn on_io(&mut self, now: Instant, homa: &mut Endpoint, waiter: Waiter) -> bool {
        let io = waiter.io;
        let key = match self.check_io(now, &waiter) {
            Ok(key) => key,
            Err(status) => {
                self.turn_away(now, homa, &waiter, status);
                return false;
            }
        };
        let Some(session) = self.sessions.get_mut(key) else {
            return false;
        };
        let copy = Copied {
            who: waiter,
            attempt: io.attempt,
        };
        match session.slots.on_request(io.slot, io.sequence, copy) {
            Admission::Run { skips } => {
                self.stats.sequence_gaps += u64::from(skips);
                self.start(key, waiter);
                return true;
            }
            Admission::Rerun => {
                self.stats.reruns += 1;
                self.start(key, waiter);
                return true;
            }
            Admission::Waits { turned_away } => {
                self.stats.duplicates_running += 1;
                if let Some(other) = turned_away {
                    self.turn_away(now, homa, &other, status::ALREADY);
                }
            }
            Admission::Parked { turned_away } => {
                self.stats.slot_overlaps += 1;
                if let Some(other) = turned_away {
                    homa.release(now, other.message.run);
                    self.turn_away(now, homa, &other, status::ALREADY);
                }
                return true;
            }
            Admission::Replay { status, data } => {
                let data = data.cloned();
                self.replay(now, homa, &waiter, status, data);
            }
            Admission::NoData => self.replay(now, homa, &waiter, status::NO_DATA, None),
            Admission::Fenced => {
                self.stats.fenced += 1;
                self.dismiss(now, homa, &waiter, Outcome::NotExecuted, status::CANCELED);
            }
            Admission::Stale => {
                self.stats.stale += 1;
                self.dismiss(now, homa, &waiter, Outcome::Stale, status::STALE);
            }
            Admission::Busy => {
                self.stats.slot_overlaps += 1;
                self.turn_away(now, homa, &waiter, status::BUSY);
            }
            Admission::Odd => self.turn_away(now, homa, &waiter, status::PROTOCOL),
        }
        false
    }

    /// Whether a copy may be looked at: its path carries, and it is no longer than agreed.
    ///
    /// The lease counts time passed here, and not time lived: a copy that lay in the NIC while we
    /// slept must not begin when its client has long given it up.
    fn check_io(&mut self, now: Instant, waiter: &Waiter) -> Result<SessionKey, i32> {
        let lived = self.clock.lived();
        let key = self.find(waiter.common).ok_or(status::NOT_CONNECTED)?;
        let session = self.sessions.get_mut(key).ok_or(status::NOT_CONNECTED)?;
        if session.is_draining {
            return Err(status::NOT_CONNECTED);
        }
        let (lease, io_max, user_max) = (session.lease, session.io_max, session.user_max);
        let path = session
            .path_of(waiter.common, waiter.message.peer.ip)
            .map_err(|_| status::NOT_CONNECTED)?;
        if !path.is_up {
            return Err(status::NOT_CONNECTED);
        }
        if now.since(path.heard_at) > lease {
            self.stats.leases_expired += 1;
            self.drop_path(key, usize::from(waiter.common.path) - 1);
            return Err(status::NOT_CONNECTED);
        }
        path.heard_lived = lived;
        path.heard_at = now;
        if waiter.io.data_len > io_max || u32::from(waiter.io.user_len) > user_max {
            return Err(status::PROTOCOL);
        }
        Ok(key)
    }

    /// Tells the application of a request, as soon as there is memory for what it reads.
    fn start(&mut self, session: SessionKey, waiter: Waiter) {
        let op = Op {
            session,
            waiter,
            reply: None,
        };
        let key = self
            .ops
            .insert(op)
            .expect("fewer slots than ops, in all sessions together");
        self.stats.requests += 1;
        if waiter.is_write {
            self.events
                .push_back(ServerEvent::Request { session, op: key });
            return;
        }
        self.stalled.push_back((session, key));
        self.start_stalled();
        self.stats.read_stalls += u64::from(!self.stalled.is_empty());
    }

    /// READs that waited for memory, in their order.
    fn start_stalled(&mut self) {
        while let Some(&(session, key)) = self.stalled.front() {
            if let Some(op) = self.ops.get_mut(key) {
                let len = IoRequest::LEN + op.waiter.io.data_len as usize;
                let Some(reply) = self.reads.alloc(len) else {
                    return;
                };
                op.reply = Some(reply);
                self.events
                    .push_back(ServerEvent::Request { session, op: key });
            }
            self.stalled.pop_front();
        }
    }

    /// The data that was kept is told again, from a copy: its header is another one.
    fn replay(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        waiter: &Waiter,
        status: i32,
        data: Option<Buf>,
    ) {
        let copy = data.as_ref().and_then(|data| self.reads.copy_of(data));
        if data.is_some() && copy.is_none() {
            // Later there will be memory.
            self.turn_away(now, homa, waiter, status::BUSY);
            return;
        }
        self.stats.replays += 1;
        let data_len = copy.as_ref().map_or(0, |copy| copy.len() - IoRequest::LEN);
        let answer = IoResponse {
            is_replayed: true,
            data_len: data_len as u32,
            ..answer_to(&waiter.io, Outcome::Executed, status)
        };
        self.answer(now, homa, waiter, answer, copy);
    }

    pub(super) fn turn_away(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        waiter: &Waiter,
        status: i32,
    ) {
        self.stats.refused += 1;
        self.dismiss(now, homa, waiter, Outcome::Refused, status);
    }

    /// Answers a copy whose request does not run by it.
    fn dismiss(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        waiter: &Waiter,
        outcome: Outcome,
        status: i32,
    ) {
        let answer = answer_to(&waiter.io, outcome, status);
        self.answer(now, homa, waiter, answer, None);
    }

    /// The session is over: who waits for another request to end waits in vain.
    pub(super) fn turn_away_all(&mut self, now: Instant, homa: &mut Endpoint, key: SessionKey) {
        let mut waiters = Vec::new();
        if let Some(session) = self.sessions.get_mut(key) {
            session
                .slots
                .turn_away_all(|who, is_parked| waiters.push((who, is_parked)));
        }
        for (waiter, is_parked) in waiters {
            if is_parked {
                homa.release(now, waiter.message.run);
            }
            self.turn_away(now, homa, &waiter, status::NOT_CONNECTED);
        }
    }

    /// Answers a copy. `reply` has room for the header before its data.
    fn answer(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        waiter: &Waiter,
        answer: IoResponse,
        reply: Option<Buf>,
    ) {
        let response = match waiter.is_write {
            true => Response::Write(answer),
            false => Response::Read(answer),
        };
        let rpc = waiter.message.rpc;
        if answer.data_len == 0 {
            return self.reply(now, homa, rpc, (&response, waiter.common, &[]));
        }
        let len = IoRequest::LEN + answer.data_len as usize;
        let message = reply.and_then(|mut reply| {
            response.emit(&waiter.common, reply.make_mut()?);
            reply.view(0..len)
        });
        let sent = match message {
            Some(message) => homa.send_response(now, rpc, Payload::Buffer(message), Notify::Never),
            None => Err(Error::Exhausted),
        };
        if sent.is_err() {
            self.stats.reply_stalls += 1;
            homa.forget(now, rpc);
        }
    }
}
