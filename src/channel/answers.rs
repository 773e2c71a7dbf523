//! How our own RPCs end: answers, failures, bytes handed to the device.

use crate::error::Error;
use crate::homa::{Endpoint, Message};
use crate::time::Instant;
use crate::wire::channel::{Credit, Kind};

use super::Channels;
use super::event::{ChannelKey, Event};
use super::input::read_header;
use super::sender::pause;
use super::state::{Flight, Owner, State, What};

/// What an RPC led to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done(Credit),
    /// The peer lives, but not now.
    Again(Credit),
    /// The peer knows no such channel.
    Unknown,
    /// The answer is none of a channel.
    Strange,
    Failed(Error),
}

impl Channels {
    /// Takes the answer to a request with one of our tags.
    pub fn handle_response(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        tag: u64,
        message: &Message,
    ) {
        let header = read_header(homa, message);
        homa.release(now, message.run);
        let Some(flight) = self.flights.remove(Self::flight(tag)) else {
            return;
        };
        let id = self
            .channels
            .get(flight.channel)
            .map(|channel| channel.name.id);
        let outcome = match header {
            Ok(header) if Some(header.channel) == id => match header.kind {
                Kind::Ack => Outcome::Done(header.credit),
                Kind::Again => Outcome::Again(header.credit),
                Kind::Reset | Kind::Refused => Outcome::Unknown,
                _ => Outcome::Strange,
            },
            Ok(_) | Err(_) => Outcome::Strange,
        };
        self.stats.strangers += u64::from(outcome == Outcome::Strange);
        self.on_outcome(now, homa, flight, outcome);
    }

    /// A request with one of our tags failed.
    pub fn handle_failure(&mut self, now: Instant, homa: &mut Endpoint, tag: u64, error: Error) {
        let Some(flight) = self.flights.remove(Self::flight(tag)) else {
            return;
        };
        let outcome = match error {
            Error::NotConnected => Outcome::Unknown,
            error => Outcome::Failed(error),
        };
        self.on_outcome(now, homa, flight, outcome);
    }

    /// The bytes of a request with one of our tags were all sent, or never will be.
    pub fn handle_released(&mut self, tag: u64, result: Result<(), Error>) {
        if let Some(flight) = self.flights.get(Self::flight(tag))
            && let (What::Message(sequence), Ok(())) = (flight.what, result)
            && let Some(channel) = self.channels.get_mut(flight.channel)
            && let Some(tag) = channel.sender.on_transmitted(sequence)
        {
            self.events.push_back(Event::Pushed { tag });
        }
    }

    fn on_outcome(&mut self, now: Instant, homa: &mut Endpoint, flight: Flight, outcome: Outcome) {
        let key = flight.channel;
        match outcome {
            Outcome::Done(credit) | Outcome::Again(credit) => {
                self.on_heard(key);
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.sender.on_credit(credit);
                }
            }
            Outcome::Unknown | Outcome::Strange | Outcome::Failed(_) => {}
        }
        match flight.what {
            What::Open => self.on_open_over(now, homa, key, outcome),
            What::Message(sequence) => self.on_message_over(now, homa, key, sequence, outcome),
            What::Note => self.on_note_over(now, homa, key, outcome),
            What::Reset => self.on_reset_over(now, homa, key),
        }
        self.pump(now, homa, key);
        self.file(key);
    }

    /// The channel is open, if it was not.
    pub(super) fn on_opened(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key)
            && let State::Opening(opening) = channel.state
        {
            channel.state = State::Open;
            channel.heard_at = self.lived;
            self.stats.connected += 1;
            if let Some(flight) = opening.flight {
                // Its answer tells nothing new. The RPC goes its way.
                self.flights.remove(flight);
            }
            let tag = opening.tag;
            self.events.push_back(Event::Connected { tag });
        }
    }

    fn on_open_over(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Done(_) => self.on_opened(key),
            Outcome::Unknown | Outcome::Strange => {
                self.kill(now, homa, key, Error::ConnectionRefused);
            }
            Outcome::Failed(error @ (Error::HostUnreachable | Error::ProtocolUnsupported)) => {
                self.kill(now, homa, key, error)
            }
            Outcome::Again(_) | Outcome::Failed(_) => {
                let lived = self.lived;
                if let Some(channel) = self.channels.get_mut(key)
                    && let State::Opening(opening) = &mut channel.state
                {
                    opening.flight = None;
                    opening.retry_at = lived + pause(opening.attempts);
                    opening.attempts += 1;
                }
            }
        }
    }

    fn on_message_over(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        sequence: u64,
        outcome: Outcome,
    ) {
        let lived = self.lived;
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        match outcome {
            Outcome::Done(_) => {
                if let Some(tag) = channel.sender.on_confirmed(lived, sequence) {
                    self.events.push_back(Event::Pushed { tag });
                }
            }
            Outcome::Unknown => self.kill(now, homa, key, Error::ConnectionReset),
            Outcome::Again(_) | Outcome::Strange | Outcome::Failed(_) => {
                channel.sender.on_lost(lived, sequence);
            }
        }
    }

    /// A note was in vain, or lasts too long.
    pub(super) fn on_note_lost(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let (lived, params) = (self.lived, &self.params);
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        let note = channel.note.take();
        channel.is_credit_lost |= note.is_some_and(|note| note.tells_credit);
        let silence = lived.since(channel.heard_at);
        if channel.sender.is_idle() && silence >= params.silence_max() {
            self.kill(now, homa, key, Error::PeerTimedOut);
            return;
        }
        // The peer waits for credit perhaps; a sign of life is less urgent.
        let again = match channel.is_credit_lost {
            true => pause(u32::MAX),
            false => params.keepalive_idle,
        };
        channel.note_due = Some(lived + again);
    }

    fn on_note_over(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        outcome: Outcome,
    ) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        match outcome {
            Outcome::Done(_) | Outcome::Again(_) => {
                channel.note = None;
                channel.is_credit_lost = false;
                self.tell_credit(now, homa, key);
            }
            Outcome::Unknown => self.kill(now, homa, key, Error::ConnectionReset),
            Outcome::Strange | Outcome::Failed(_) => self.on_note_lost(now, homa, key),
        }
    }

    fn on_reset_over(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.reset = None;
            if channel.owner == Owner::Nobody {
                self.remove(now, homa, key);
            }
        }
    }
}
