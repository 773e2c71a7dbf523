//! What goes out: numbered messages, notes, last words, answers.

use crate::error::Error;
use crate::homa::{Endpoint, MAX_MESSAGE_LEN, Notify, Payload, RpcKey};
use crate::mem::Buf;
use crate::slots::Key;
use crate::time::{Duration, Instant};
use crate::wire::channel::{HEADER_LEN, Header, Kind};

use super::event::ChannelKey;
use super::sender::{Push, pause};
use super::state::{Flight, Note, Owner, State, What};
use super::{Channels, release};

/// Bytes of the longest message that goes as one: with its header it is Homa's longest.
const WHOLE_MAX: u32 = MAX_MESSAGE_LEN - HEADER_LEN as u32;

/// A credit that is not urgent waits so long for a message to go along with.
const CREDIT_DELAY: Duration = Duration::millis(1);

impl Channels {
    /// Sends what may be sent: what was lost, what was pushed, and the last message.
    pub(super) fn pump(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let lived = self.lived;
        while let Some(channel) = self.channels.get_mut(key)
            && channel.state == State::Open
        {
            let sender = &mut channel.sender;
            sender.end_pause(lived);
            if let Some((sequence, buf, is_awaited)) = sender.next_lost(lived) {
                if !self.fly(now, homa, key, sequence, buf, is_awaited) {
                    return;
                }
            } else if sender.next_push(lived).is_some() {
                if !self.frame_next(now, homa, key) {
                    return;
                }
            } else if sender.may_send_fin(lived) {
                let sequence = sender.next_sequence();
                let header = channel.header(Kind::Fin, sequence);
                let Some(buf) = self.headers.copy_of(&header.emit()) else {
                    channel.sender.on_short(lived);
                    return;
                };
                channel.sender.add(lived, buf, 0, None);
                channel.sender.on_fin();
            } else {
                return;
            }
        }
    }

    /// Starts an RPC for a numbered message; false if there is no room for one.
    fn fly(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        sequence: u64,
        buf: Buf,
        is_awaited: bool,
    ) -> bool {
        let what = What::Message(sequence);
        let flight = self.launch(now, homa, key, what, buf, is_awaited);
        let Some(channel) = self.channels.get_mut(key) else {
            return false;
        };
        match flight {
            Some(flight) => match channel.sender.on_flight(sequence, flight) {
                true => self.stats.retries += 1,
                false => self.stats.messages_out += 1,
            },
            None => channel.sender.on_short(self.lived),
        }
        flight.is_some()
    }

    /// Copies the next push behind a header; false if there is no memory for that now.
    fn frame_next(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) -> bool {
        let Some(channel) = self.channels.get_mut(key) else {
            return false;
        };
        let (sequence, lived) = (channel.sender.next_sequence(), self.lived);
        let Some(push) = channel.sender.take_push() else {
            return false;
        };
        // So many of the first bytes go ahead, in a message of their own.
        let head_len = push.len.saturating_sub(WHOLE_MAX);
        let (head, rest) = match head_len {
            0 => (None, channel.header(Kind::Data, sequence)),
            _ => (
                Some(channel.header(Kind::Head, sequence)),
                channel.header(Kind::Body, sequence + 1),
            ),
        };
        let buffers = &self.buffers;
        let frame = |header: Header, start, len| {
            let mut buf = buffers.alloc(HEADER_LEN + len as usize)?;
            let (front, bytes) = buf.make_mut()?.split_at_mut(HEADER_LEN);
            front.copy_from_slice(&header.emit());
            copy(homa, &push, start, bytes);
            Some(buf)
        };
        let head = head.map(|header| frame(header, 0, head_len));
        let rest_len = push.len - head_len;
        let (Some(rest), None | Some(Some(_))) = (frame(rest, head_len, rest_len), &head) else {
            channel.sender.put_back(push);
            channel.sender.on_short(lived);
            return false;
        };
        if let Some(head) = head.flatten() {
            channel.sender.add(lived, head, head_len, None);
        }
        channel.sender.add(lived, rest, rest_len, Some(push.tag));
        release(now, homa, &push);
        true
    }

    /// Starts an RPC that carries `buf`.
    fn launch(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        what: What,
        buf: Buf,
        is_awaited: bool,
    ) -> Option<Key<Flight>> {
        let name = self.channels.get(key)?.name;
        let flight = self.flights.insert(Flight {
            channel: key,
            what,
            rpc: RpcKey::default(),
        })?;
        let tag = Self::tag(flight);
        let notify = match is_awaited {
            true => Notify::Transmitted(tag),
            false => Notify::Never,
        };
        let payload = Payload::Buffer(buf);
        match homa.send_request(now, name.socket, name.peer, payload, tag, notify) {
            Ok((rpc, _)) => {
                self.flights.get_mut(flight)?.rpc = rpc;
                Some(flight)
            }
            Err(_) => {
                self.flights.remove(flight);
                None
            }
        }
    }

    /// Starts an RPC that is a header only.
    fn launch_header(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        what: What,
        kind: Kind,
    ) -> Option<Key<Flight>> {
        let header = self.channels.get_mut(key)?.header(kind, 0);
        let buf = self.headers.copy_of(&header.emit())?;
        self.launch(now, homa, key, what, buf, false)
    }

    /// Asks for a channel.
    pub(super) fn send_open(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let flight = self.launch_header(now, homa, key, What::Open, Kind::Open);
        let lived = self.lived;
        if let Some(channel) = self.channels.get_mut(key)
            && let State::Opening(opening) = &mut channel.state
        {
            opening.flight = flight;
            if flight.is_none() {
                opening.retry_at = lived + pause(0);
            }
        }
    }

    /// Tells the credit now, or soon, if the peer should know.
    pub(super) fn tell_credit(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        if channel.state != State::Open || channel.note.is_some() {
            return; // After this note it is asked again.
        }
        if channel.receiver.owes_much_credit() {
            self.send_note(now, homa, key);
        } else if channel.receiver.owes_credit() {
            let at = self.lived + CREDIT_DELAY;
            channel.note_due = Some(channel.note_due.map_or(at, |due| due.min(at)));
        }
        self.file(key);
    }

    /// Tells the credit, and asks whether the peer lives.
    pub(super) fn send_note(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let lived = self.lived;
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        let tells_credit = channel.is_credit_lost || channel.receiver.owes_credit();
        let flight = self.launch_header(now, homa, key, What::Note, Kind::Note);
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        channel.note = flight.map(|flight| Note {
            flight,
            since: lived,
            tells_credit,
        });
        channel.note_due = match flight {
            Some(_) => None,
            None => {
                channel.is_credit_lost = tells_credit;
                Some(lived + pause(0))
            }
        };
        self.stats.notes_out += u64::from(flight.is_some());
    }

    /// Ends a channel and tells the peer, if it can be told.
    pub(super) fn send_reset(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        let before = std::mem::replace(&mut channel.state, State::Dead(Error::Canceled));
        if let State::Opening(opening) = before {
            self.forget(now, homa, opening.flight.into_iter().collect());
        }
        let tags = self.silence(now, homa, key);
        debug_assert!(tags.is_empty(), "who can push has a channel to close");
        let reset = self.launch_header(now, homa, key, What::Reset, Kind::Reset);
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        channel.reset = reset;
        if reset.is_none() && channel.owner == Owner::Nobody {
            self.remove(now, homa, key);
        }
    }

    /// Answers a request.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        rpc: RpcKey,
        header: &Header,
    ) {
        let payload = self.headers.copy_of(&header.emit()).map(Payload::Buffer);
        let sent = payload.map(|payload| homa.send_response(now, rpc, payload, Notify::Never));
        if sent != Some(Ok(())) {
            homa.forget(now, rpc); // The peer will try again.
        }
    }
}

/// Copies bytes of a push, from `start` on, to all of `out`.
fn copy(homa: &Endpoint, push: &Push, start: u32, out: &mut [u8]) {
    match push.payload {
        Payload::Buffer(ref buf) => out.copy_from_slice(&buf[start as usize..][..out.len()]),
        Payload::Received {
            run, start: first, ..
        } => {
            if let Some((offset, _)) = homa.place(run) {
                homa.region().read((offset + first + start) as usize, out);
            }
        }
        Payload::EmptyReply | Payload::Gone => {}
    }
}
