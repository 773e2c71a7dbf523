//! Message channels: connections for stream sockets, as a value over the transport.
//!
//! A channel has two sides. Each message of a side is one Homa request, numbered, and its answer
//! says that it arrived, and all before it; so no RPC stays open while nothing goes on. Homa sends
//! short messages first, so the receiver puts them in order. Each answer, and now and then a note,
//! tells how much was popped: a side may be ahead of that by 32 messages and 256 KiB.
//!
//! | part | decides |
//! |---|---|
//! | `sender` | what may be sent, what must be sent again, when to give up |
//! | `receiver` | what is next, what is kept that came early, what credit to tell |
//! | `state` | where a channel stands, and when to look at it |
//! | `port` | who listens |
//! | `app`, `input`, `answers` | join them: the user's calls, requests of peers, ends of our own |
//! | `output`, `ticks` | likewise: what goes out, what time brings |
//!
//! Whatever fails is tried again under the same number until [`Params::timeout`], and what came
//! twice is dropped: a message arrives once, or the channel ends with an error.
//!
//! What came early must not keep the pages that the message before it waits for: when room is
//! short all of it is given up, and sent again one by one.

mod answers;
mod app;
mod event;
mod input;
mod output;
mod params;
mod port;
mod receiver;
mod sender;
mod state;
mod ticks;

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Payload, RpcKey, SocketKey};
use crate::keyed::Keyed;
use crate::mem::Buffers;
use crate::rng::Rng;
use crate::slots::{Key, Slots};
use crate::time::Instant;

pub use event::{ChannelKey, Event, Piece, Stats};
pub use params::Params;

use port::Ports;
use sender::Push;
use state::{Channel, Flight, Name, Owner, State};

/// Messages that a side may send beyond those that were popped.
pub const CREDIT_MESSAGES: u64 = 32;

/// Bytes likewise. A longer message is sent when all before it were popped.
pub const CREDIT_BYTES: u64 = 256 << 10;

/// Memory for messages that are a header only: a block for each of 65,536 RPCs.
const HEADER_BYTES: usize = 16 << 20;

/// Marks the tags of our RPCs. Bits 53 to 63 are left to others, bits 0 to 51 name the flight.
const TAG: u64 = 1 << 52;
const FLIGHT_BITS: u32 = 20;

/// All channels of one runtime.
#[derive(Debug)]
pub struct Channels {
    params: Params,
    rng: Rng,
    /// For copies of what is pushed, each behind its header.
    buffers: Buffers,
    /// Apart, so that answers find memory when pushes took all other.
    headers: Buffers,
    channels: Slots<Channel>,
    by_name: HashMap<Name, ChannelKey, Keyed>,
    ports: Ports,
    flights: Slots<Flight>,
    /// Each channel that waits for time, by its slot, once.
    due: BTreeSet<(Instant, u32)>,
    events: VecDeque<Event>,
    /// Messages kept that came early, all channels together.
    early_count: usize,
    /// For the answers of one request: their memory is used again.
    answers: Vec<(RpcKey, u64)>,
    /// Time as the loop lived it: pauses of the whole process are short in it.
    lived: Instant,
    turned_at: Instant,
    stats: Stats,
}

impl Channels {
    /// `buffers` is where the copies of pushed bytes come from.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a param is out of its range.
    pub fn new(params: Params, buffers: Buffers, now: Instant) -> Result<Self, Error> {
        params.validate()?;
        let mut rng = Rng::new(params.seed);
        Ok(Self {
            by_name: HashMap::with_hasher(Keyed::new(rng.next_u64())),
            rng,
            buffers,
            headers: Buffers::new(HEADER_BYTES),
            channels: Slots::new(params.channels_max as usize),
            ports: Ports::default(),
            flights: Slots::new(1 << FLIGHT_BITS),
            due: BTreeSet::new(),
            events: VecDeque::new(),
            early_count: 0,
            answers: Vec::new(),
            lived: Instant(0),
            turned_at: now,
            stats: Stats::default(),
            params,
        })
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Channels alive.
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    pub fn peer(&self, channel: ChannelKey) -> Option<Addr> {
        Some(self.channels.get(channel)?.name.peer)
    }

    /// The port it is on.
    pub fn socket(&self, channel: ChannelKey) -> Option<SocketKey> {
        Some(self.channels.get(channel)?.name.socket)
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether a request's tag is one of ours.
    pub const fn is_tag(tag: u64) -> bool {
        tag >> 52 == 1
    }

    fn tag(flight: Key<Flight>) -> u64 {
        TAG | u64::from(flight.generation()) << FLIGHT_BITS | u64::from(flight.index())
    }

    fn flight(tag: u64) -> Key<Flight> {
        let index = tag & ((1 << FLIGHT_BITS) - 1);
        Key::from_parts(index as u32, (tag >> FLIGHT_BITS) as u32)
    }

    /// The peer of a channel spoke.
    fn on_heard(&mut self, key: ChannelKey) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.heard_at = self.lived;
        }
    }

    /// Sees to it that the channel is looked at when it wants to be.
    fn file(&mut self, key: ChannelKey) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        let Some(at) = channel.due_at(&self.params) else {
            return;
        };
        // Later is soon enough: then it is filed anew.
        if channel.due.is_none_or(|due| at < due) {
            if let Some(due) = channel.due.replace(at) {
                self.due.remove(&(due, key.index()));
            }
            self.due.insert((at, key.index()));
        }
    }

    /// Ends a channel for both its users, ours being told `error`. Who has not been told of the
    /// channel is spared the error.
    fn kill(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey, error: Error) {
        let Some(channel) = self.channels.get_mut(key) else {
            return;
        };
        match channel.state {
            State::Dead(_) => return,
            State::Opening(opening) => {
                let tag = opening.tag;
                self.events.push_back(Event::NotConnected { tag, error });
                self.remove(now, homa, key);
                return;
            }
            State::Open => {}
        }
        match error {
            Error::ConnectionReset => self.stats.resets += 1,
            _ => self.stats.timeouts += 1,
        }
        channel.state = State::Dead(error);
        match channel.owner {
            Owner::User => {
                for tag in self.silence(now, homa, key) {
                    self.events.push_back(Event::Failed { tag, error });
                }
                self.serve(now, homa, key);
            }
            Owner::Backlog | Owner::Nobody => self.remove(now, homa, key),
        }
    }

    /// Ends whatever is under way for a channel, in both directions; gives the pushes that have no
    /// result yet. What can be popped stays.
    fn silence(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) -> Vec<u64> {
        let Some(channel) = self.channels.get_mut(key) else {
            return Vec::new();
        };
        let (mut flights, mut tags, unsent) = channel.sender.end();
        flights.extend(channel.note.take().map(|note| note.flight));
        if let Some(due) = channel.due.take() {
            self.due.remove(&(due, key.index()));
        }
        while let Some((_, arrival)) = channel.receiver.drop_early() {
            self.early_count -= 1;
            homa.release(now, arrival.run);
            homa.forget(now, arrival.rpc);
        }
        self.by_name.remove(&channel.name);
        for push in unsent {
            tags.push(push.tag);
            release(now, homa, &push);
        }
        self.forget(now, homa, flights);
        tags
    }

    fn forget(&mut self, now: Instant, homa: &mut Endpoint, flights: Vec<Key<Flight>>) {
        for flight in flights {
            if let Some(flight) = self.flights.remove(flight) {
                homa.forget(now, flight.rpc);
            }
        }
    }

    /// Takes a channel out, with all it has. Nobody is told anything.
    fn remove(&mut self, now: Instant, homa: &mut Endpoint, key: ChannelKey) {
        self.silence(now, homa, key);
        let Some(mut channel) = self.channels.remove(key) else {
            return;
        };
        channel.receiver.discard(now, homa);
        let opening = match channel.state {
            State::Opening(opening) => opening.flight,
            State::Open | State::Dead(_) => None,
        };
        let flights = opening.into_iter().chain(channel.reset).collect();
        self.forget(now, homa, flights);
        if let Some(listener) = self.ports.listener(channel.name.socket) {
            listener.opened.retain(|&opened| opened != key);
        }
        self.ports.leave(now, homa, channel.name.socket);
    }
}

/// Keeps the bytes of a push beyond the call that brought it.
fn retain(homa: &mut Endpoint, push: &Push) {
    if let Payload::Received { run, .. } = push.payload {
        homa.retain(run);
    }
}

/// Undoes [`retain`].
fn release(now: Instant, homa: &mut Endpoint, push: &Push) {
    if let Payload::Received { run, .. } = push.payload {
        homa.release(now, run);
    }
}
