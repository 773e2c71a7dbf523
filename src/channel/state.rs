//! One channel, as one of its two sides sees it.

use std::collections::VecDeque;

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{RpcKey, SocketKey};
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::channel::{Header, Kind};

use super::Params;
use super::event::ChannelKey;
use super::receiver::Receiver;
use super::sender::Sender;

/// One channel.
#[derive(Debug)]
pub struct Channel {
    pub name: Name,
    pub state: State,
    pub owner: Owner,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Who waits for messages.
    pub pops: VecDeque<Pop>,
    /// The user has closed it: what still comes is dropped.
    pub is_closing: bool,
    /// When the peer was last heard.
    pub heard_at: Instant,
    pub note: Option<Note>,
    /// The last note that told a credit did not arrive.
    pub is_credit_lost: bool,
    /// When the next should go out.
    pub note_due: Option<Instant>,
    /// A last word on its way.
    pub reset: Option<Key<Flight>>,
    /// When it will be looked at.
    pub due: Option<Instant>,
}

/// What a channel is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub peer: Addr,
    pub socket: SocketKey,
    pub id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// We asked for it.
    Opening(Opening),
    Open,
    Dead(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The user's, of connect.
    pub tag: u64,
    pub until: Instant,
    /// The question on its way; without one it is asked at `retry_at`.
    pub flight: Option<Key<Flight>>,
    pub retry_at: Instant,
    pub attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    User,
    /// It waits to be accepted.
    Backlog,
    /// It goes when its last word is out.
    Nobody,
}

/// A credit or a question on its way.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub flight: Key<Flight>,
    pub since: Instant,
    pub tells_credit: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Pop {
    pub tag: u64,
    pub len_max: u32,
}

/// An RPC of ours.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub channel: ChannelKey,
    pub what: What,
    pub rpc: RpcKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Open,
    /// The numbered message of that sequence.
    Message(u64),
    Note,
    Reset,
}

impl Channel {
    pub fn new(name: Name, state: State, owner: Owner, lived: Instant) -> Self {
        Self {
            name,
            state,
            owner,
            sender: Sender::new(),
            receiver: Receiver::default(),
            pops: VecDeque::new(),
            is_closing: false,
            heard_at: lived,
            note: None,
            is_credit_lost: false,
            note_due: None,
            reset: None,
            due: None,
        }
    }

    /// The header of a message sent now.
    pub fn header(&mut self, kind: Kind, sequence: u64) -> Header {
        Header {
            kind,
            channel: self.name.id,
            sequence,
            credit: self.receiver.tell_credit(),
        }
    }

    /// Whether close has nothing more to wait for.
    pub fn is_settled(&self) -> bool {
        let is_silent = match self.state {
            State::Dead(_) => true,
            State::Opening(_) => false,
            State::Open => self.sender.is_settled(),
        };
        is_silent && self.reset.is_none()
    }

    /// When it wants to be looked at.
    pub fn due_at(&self, params: &Params) -> Option<Instant> {
        match self.state {
            State::Dead(_) => None,
            State::Opening(Opening {
                flight: Some(_),
                until,
                ..
            }) => Some(until),
            State::Opening(opening) => Some(opening.retry_at.min(opening.until)),
            State::Open => {
                // While messages are under way these tell whether the peer lives.
                let idle = self.sender.is_idle().then_some(self.heard_at);
                let note = match (self.note, self.note_due) {
                    (Some(note), _) => Some(note.since + params.keepalive_idle),
                    (None, Some(due)) => Some(due),
                    (None, None) => idle.map(|heard_at| heard_at + params.keepalive_idle),
                };
                let sender = self.sender.due_at(params.timeout);
                sender.into_iter().chain(note).min()
            }
        }
    }
}
