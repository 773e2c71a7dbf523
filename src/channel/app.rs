//! The user's side: ports, channels, messages.

use std::collections::VecDeque;

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Payload, SocketKey};
use crate::time::Instant;

use super::event::{ChannelKey, Event};
use super::port::Listener;
use super::sender::Push;
use super::state::{Channel, Name, Opening, Owner, Pop, State};
use super::{Channels, retain};

impl Channels {
    /// Opens a port, or an automatic one for 0. It is open until [`Self::leave`], and as long as
    /// there are channels on it.
    ///
    /// # Errors
    /// As `Endpoint::open`.
    pub fn open_port(&mut self, homa: &mut Endpoint, port: u16) -> Result<SocketKey, Error> {
        self.ports.open(homa, port)
    }

    /// Ends the caller's use of a port.
    pub fn leave(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        self.ports.leave(now, homa, socket);
    }

    /// Lets peers open channels on a port; so many of them may wait to be accepted.
    pub fn listen(&mut self, homa: &mut Endpoint, socket: SocketKey, backlog: usize) {
        if let Some(port) = self.ports.get_mut(socket) {
            port.listener = Some(Listener {
                backlog,
                opened: VecDeque::new(),
                accepts: VecDeque::new(),
            });
            homa.set_server(socket, true);
        }
    }

    /// Asks for the next channel that a peer opens: [`Event::Accepted`].
    pub fn accept(&mut self, socket: SocketKey, tag: u64) {
        if let Some(listener) = self.ports.listener(socket) {
            listener.accepts.push_back(tag);
            self.meet(socket);
        }
    }

    /// Ends listening. Channels that wait to be accepted are reset, and those who wait for one are
    /// not told anything.
    pub fn unlisten(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        let port = self.ports.get_mut(socket);
        let Some(listener) = port.and_then(|port| port.listener.take()) else {
            return;
        };
        for key in listener.opened {
            self.orphan(now, homa, key);
        }
    }

    /// Whether the peers of channels that nobody accepted have heard of it. Looks at all channels.
    pub fn is_unlistened(&self, socket: SocketKey) -> bool {
        let mut channels = self.channels.iter().map(|(_, channel)| channel);
        channels.all(|channel| channel.name.socket != socket || channel.owner != Owner::Nobody)
    }

    /// Forgets channels on a port whose peers still have to hear of their end.
    pub fn end_unlisten(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        let orphans: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.name.socket == socket && channel.owner == Owner::Nobody)
            .map(|(key, _)| key)
            .collect();
        orphans
            .into_iter()
            .for_each(|key| self.remove(now, homa, key));
    }

    /// Opens a channel: [`Event::Connected`], or [`Event::NotConnected`] and the key is stale.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if there are too many channels.
    pub fn connect(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        socket: SocketKey,
        to: Addr,
        tag: u64,
    ) -> Result<ChannelKey, Error> {
        let id = self.rng.next_u64();
        let name = Name {
            peer: to,
            socket,
            id,
        };
        let state = State::Opening(Opening {
            tag,
            until: self.lived + self.params.connect_timeout,
            flight: None,
            retry_at: self.lived,
            attempts: 0,
        });
        let channel = Channel::new(name, state, Owner::User, self.lived);
        let key = self.channels.insert(channel).ok_or(Error::Exhausted)?;
        self.by_name.insert(name, key);
        self.ports.join(socket);
        homa.set_server(socket, true);
        self.send_open(now, homa, key);
        self.file(key);
        Ok(key)
    }

    /// Whether messages may be pushed and popped.
    pub fn is_open(&self, key: ChannelKey) -> bool {
        let channel = self.channels.get(key);
        channel.is_some_and(|channel| !matches!(channel.state, State::Opening(_)))
    }

    /// Sends a message: [`Event::Pushed`] once its bytes are the user's again, in order. They are
    /// copied when they are sent.
    pub fn push(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        payload: Payload,
        tag: u64,
    ) {
        let len = match &payload {
            Payload::Buffer(buf) => buf.len() as u32, // The longest is 1 MiB.
            Payload::Received { len, .. } => *len,
            Payload::EmptyReply | Payload::Gone => 0,
        };
        let push = Push { payload, len, tag };
        let channel = self.channels.get_mut(key);
        let error = match channel.as_ref().map(|channel| channel.state) {
            Some(State::Open) if len > 0 => None,
            Some(State::Open) => Some(Error::Invalid),
            Some(State::Dead(error)) => Some(error),
            Some(State::Opening(_)) | None => Some(Error::NotConnected),
        };
        match (channel, error) {
            (Some(channel), None) => {
                retain(homa, &push);
                channel.sender.push(push);
                self.pump(now, homa, key);
                self.file(key);
            }
            (_, Some(error)) => self.events.push_back(Event::Failed { tag, error }),
            (None, None) => {}
        }
    }

    /// Asks for the next message, at most `len_max` bytes of it; the rest is left to the next pop.
    pub fn pop(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: ChannelKey,
        len_max: u32,
        tag: u64,
    ) {
        match self.channels.get_mut(key) {
            Some(channel) => {
                channel.pops.push_back(Pop { tag, len_max });
                self.serve(now, homa, key);
                self.tell_credit(now, homa, key);
            }
            None => {
                let error = Error::NotConnected;
                self.events.push_back(Event::Failed { tag, error });
            }
        }
    }

    /// Begins to close: pops are forgotten, what was pushed still goes to the peer, and after it
    /// the news of the end.
    pub fn begin_close(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        channel.is_closing = true;
        channel.pops.clear();
        channel.receiver.discard(now, homa);
        match channel.state {
            State::Dead(_) => {}
            State::Open if channel.receiver.is_over() => self.settle(now, homa, key),
            State::Open => {
                channel.sender.want_fin();
                self.pump(now, homa, key);
                self.file(key);
            }
            State::Opening(_) => self.send_reset(now, homa, key),
        }
    }

    /// Whether the peer has confirmed all, and close need not wait any longer.
    pub fn is_settled(&self, key: ChannelKey) -> bool {
        self.channels.get(key).is_none_or(Channel::is_settled)
    }

    /// Ends a channel, whether it is settled or not. Tags that were not told are never told.
    pub fn end_close(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        self.remove(now, homa, key);
    }

    /// Both sides have closed: the peer reads no more, so there is nothing to send or to tell.
    pub(super) fn settle(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let error = Error::ConnectionReset;
        if let Some(channel) = self.channels.get_mut(key) {
            channel.state = State::Dead(error);
        }
        for tag in self.silence(now, homa, key) {
            self.events.push_back(Event::Failed { tag, error });
        }
    }

    /// Gives opened channels to those who wait for one.
    pub(super) fn meet(&mut self, socket: SocketKey) {
        let Some(listener) = self.ports.listener(socket) else {
            return;
        };
        while let (Some(&key), Some(&tag)) = (listener.opened.front(), listener.accepts.front()) {
            listener.opened.pop_front();
            let Some(channel) = self.channels.get_mut(key) else {
                continue;
            };
            listener.accepts.pop_front();
            channel.owner = Owner::User;
            self.events.push_back(Event::Accepted {
                tag,
                channel: key,
                peer: channel.name.peer,
            });
        }
    }

    /// Gives what came to those who wait for it.
    pub(super) fn serve(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        if channel.is_closing {
            channel.receiver.discard(now, homa);
        }
        while let Some(&Pop { tag, len_max }) = channel.pops.front() {
            let event = match channel.receiver.pop(homa, len_max) {
                Some(piece) => Event::Popped { tag, piece },
                None if channel.receiver.is_over() => Event::Ended { tag },
                None => match channel.state {
                    State::Dead(error) => Event::Failed { tag, error },
                    State::Opening(_) | State::Open => return,
                },
            };
            channel.pops.pop_front();
            self.events.push_back(event);
        }
    }

    /// Resets a channel that nobody will accept.
    fn orphan(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.owner = Owner::Nobody;
            self.send_reset(now, homa, key);
        }
    }
}
