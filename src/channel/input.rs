//! What peers ask: channels, their messages, and notes.

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Message, RpcKey, SocketKey};
use crate::time::Instant;
use crate::wire::channel::{Credit, HEADER_LEN, Header, Kind, Malformed};

use super::Channels;
use super::event::ChannelKey;
use super::receiver::{Admission, Arrival};
use super::state::{Channel, Name, Owner, State};

/// A request of a peer.
#[derive(Clone, Copy)]
struct Asked {
    rpc: RpcKey,
    name: Name,
    header: Header,
}

impl Asked {
    /// An answer that needs no channel.
    fn answer(&self, kind: Kind) -> Header {
        Header {
            kind,
            credit: Credit::default(),
            ..self.header
        }
    }
}

impl Channels {
    /// Takes a request to one of the ports; it may be no channel's.
    pub fn handle_request(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        socket: SocketKey,
        rpc: RpcKey,
    ) {
        let Some(message) = homa.take(rpc) else {
            return; // The client gave it up.
        };
        let header = match read_header(homa, &message) {
            Ok(header) => header,
            Err(malformed) => {
                match malformed {
                    Malformed::Stranger => self.stats.strangers += 1,
                    Malformed::Odd | Malformed::Version => self.stats.malformed += 1,
                }
                return self.drop_request(now, homa, &message);
            }
        };
        let name = Name {
            peer: message.peer,
            socket,
            id: header.channel,
        };
        let asked = Asked { rpc, name, header };
        match header.kind {
            Kind::Data | Kind::Body | Kind::Head | Kind::Fin => {
                self.on_numbered(now, homa, asked, &message);
            }
            Kind::Open => {
                homa.release(now, message.run);
                self.on_open(now, homa, asked);
            }
            Kind::Note => {
                homa.release(now, message.run);
                self.on_note(now, homa, asked);
            }
            Kind::Reset => {
                homa.release(now, message.run);
                self.answer(now, homa, rpc, &asked.answer(Kind::Ack));
                if let Some(key) = self.find(&name) {
                    self.kill(now, homa, key, Error::ConnectionReset);
                }
            }
            Kind::Ack | Kind::Again | Kind::Refused => {
                self.stats.malformed += 1;
                self.drop_request(now, homa, &message);
            }
        }
    }

    fn find(&self, name: &Name) -> Option<ChannelKey> {
        self.by_name.get(name).copied()
    }

    /// Its client hears nothing, and gives up in the end.
    fn drop_request(&mut self, now: Instant, homa: &mut Endpoint, message: &Message) {
        homa.release(now, message.run);
        homa.forget(now, message.rpc);
    }

    fn on_open(&mut self, now: Instant, homa: &mut Endpoint, asked: Asked) {
        let is_known = self.find(&asked.name).is_some();
        let is_full = self.channels.is_full();
        let kind = match self.ports.listener(asked.name.socket) {
            _ if is_known => Kind::Ack, // Our first answer got lost.
            None => {
                self.stats.refused += 1;
                Kind::Refused
            }
            Some(listener) if is_full || listener.opened.len() >= listener.backlog => {
                self.stats.backlog_full += 1;
                Kind::Again
            }
            Some(listener) => {
                let channel = Channel::new(asked.name, State::Open, Owner::Backlog, self.lived);
                if let Some(key) = self.channels.insert(channel) {
                    listener.opened.push_back(key);
                    self.by_name.insert(asked.name, key);
                    self.ports.join(asked.name.socket);
                    self.stats.opened += 1;
                    self.file(key);
                }
                Kind::Ack
            }
        };
        self.answer(now, homa, asked.rpc, &asked.answer(kind));
        self.meet(asked.name.socket);
    }

    fn on_note(&mut self, now: Instant, homa: &mut Endpoint, asked: Asked) {
        let Some(key) = self.find(&asked.name) else {
            return self.refuse_unknown(now, homa, asked);
        };
        self.on_word(key, asked.header.credit);
        self.answer_from(now, homa, key, asked.rpc, Kind::Ack, asked.header.sequence);
        self.pump(now, homa, key);
        self.file(key);
    }

    fn on_numbered(&mut self, now: Instant, homa: &mut Endpoint, asked: Asked, message: &Message) {
        let Some(key) = self.find(&asked.name) else {
            homa.release(now, message.run);
            return self.refuse_unknown(now, homa, asked);
        };
        self.on_word(key, asked.header.credit);
        let (sequence, rpc) = (asked.header.sequence, asked.rpc);
        let arrival = Arrival {
            kind: asked.header.kind,
            rpc,
            run: message.run,
            offset: message.offset + HEADER_LEN as u32,
            len: message.len - HEADER_LEN as u32, // The header was read.
        };
        let Some(channel) = self.channels.get(key) else {
            return;
        };
        match channel.receiver.admit(sequence, arrival.kind, arrival.len) {
            Admission::Take => self.take_in_order(now, homa, key, sequence, arrival),
            Admission::Early => self.keep_early(now, homa, key, sequence, arrival),
            Admission::Duplicate => {
                self.stats.duplicates += 1;
                homa.release(now, message.run);
                self.answer_from(now, homa, key, rpc, Kind::Ack, sequence);
            }
            Admission::Malformed => {
                self.stats.malformed += 1;
                self.drop_request(now, homa, message);
            }
            Admission::OverCredit => {
                self.stats.over_credit += 1;
                self.drop_request(now, homa, message);
            }
        }
        self.pump(now, homa, key);
        self.file(key);
    }

    /// The peer speaks for a channel, which is open then if it was not.
    fn on_word(&mut self, key: ChannelKey, credit: Credit) {
        self.on_heard(key);
        self.on_opened(key);
        if let Some(channel) = self.channels.get_mut(key) {
            channel.sender.on_credit(credit);
        }
    }

    /// Takes the next message and those after it that came early, and answers them all.
    fn take_in_order(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        sequence: u64,
        arrival: Arrival,
    ) {
        let mut answers = std::mem::take(&mut self.answers);
        let mut next = Some((sequence, arrival));
        let mut is_sound = true;
        while let Some((sequence, arrival)) = next
            && let Some(channel) = self.channels.get_mut(key)
        {
            answers.push((arrival.rpc, sequence));
            self.stats.messages_in += 1;
            is_sound = channel.receiver.take(now, homa, arrival).is_ok();
            next = channel.receiver.take_early();
            self.early_count -= usize::from(next.is_some());
            if !is_sound && let Some((_, arrival)) = next.take() {
                homa.release(now, arrival.run);
                homa.forget(now, arrival.rpc);
            }
        }
        self.serve(now, homa, key);
        let kind = if is_sound { Kind::Ack } else { Kind::Reset };
        for (rpc, sequence) in answers.drain(..) {
            self.answer_from(now, homa, key, rpc, kind, sequence);
        }
        self.answers = answers;
        let Some(channel) = self.channels.get(key) else {
            return;
        };
        if !is_sound {
            self.stats.malformed += 1;
            self.kill(now, homa, key, Error::ConnectionReset);
        } else if channel.is_closing && channel.receiver.is_over() {
            self.settle(now, homa, key);
        }
    }

    fn keep_early(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        sequence: u64,
        arrival: Arrival,
    ) {
        self.stats.early += 1;
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        self.early_count += 1;
        if let Some(replaced) = channel.receiver.keep(sequence, arrival) {
            // Its client gave that RPC up and sent the message by another.
            self.early_count -= 1;
            homa.release(now, replaced.run);
            homa.forget(now, replaced.rpc);
        }
        if homa.is_short_of_room() {
            self.drop_early(now, homa);
        }
    }

    /// Room is short: gives up what came early, as it may be in the way of what comes before it.
    #[cold]
    pub(super) fn drop_early(&mut self, now: Instant, homa: &mut Endpoint) {
        let keys: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.receiver.early_count() > 0)
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            while let Some(channel) = self.channels.get_mut(key)
                && let Some((sequence, arrival)) = channel.receiver.drop_early()
            {
                self.early_count -= 1;
                self.stats.early_dropped += 1;
                homa.release(now, arrival.run);
                self.answer_from(now, homa, key, arrival.rpc, Kind::Again, sequence);
            }
        }
    }

    /// Answers for a channel, with its credit.
    fn answer_from(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        rpc: RpcKey,
        kind: Kind,
        sequence: u64,
    ) {
        match self.channels.get_mut(key) {
            Some(channel) => {
                let header = channel.header(kind, sequence);
                self.answer(now, homa, rpc, &header);
            }
            None => homa.forget(now, rpc),
        }
    }

    fn refuse_unknown(&mut self, now: Instant, homa: &mut Endpoint, asked: Asked) {
        self.stats.no_channel += 1;
        self.answer(now, homa, asked.rpc, &asked.answer(Kind::Reset));
    }

    /// Answers a request to somebody who has nothing to do with channels, if it is a channel's.
    /// True if it was.
    pub fn refuse(&mut self, now: Instant, homa: &mut Endpoint, message: &Message) -> bool {
        let Ok(header) = read_header(homa, message) else {
            return false;
        };
        let name = Name {
            peer: Addr::default(),
            socket: SocketKey::default(),
            id: header.channel,
        };
        let rpc = message.rpc;
        let asked = Asked { rpc, name, header };
        homa.release(now, message.run);
        self.stats.refused += 1;
        self.answer(now, homa, rpc, &asked.answer(Kind::Refused));
        true
    }
}

/// The header at the start of a message.
pub(super) fn read_header(homa: &Endpoint, message: &Message) -> Result<Header, Malformed> {
    let mut bytes = [0; HEADER_LEN];
    let len = HEADER_LEN.min(message.len as usize);
    homa.region()
        .read(message.offset as usize, &mut bytes[..len]);
    Header::parse(&bytes[..len])
}
