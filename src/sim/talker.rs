//! Applications that talk over channels, both ways at once, and check every byte and its order.

use std::collections::{BTreeMap, BTreeSet};

use crate::addr::{Addr, Ip};
use crate::channel::{self, ChannelKey, Channels, Piece};
use crate::error::Error;
use crate::homa::{Endpoint, Event, Payload, SocketKey};
use crate::mem::Buffers;
use crate::rng::Rng;
use crate::sim::Sizes;
use crate::sim::app::{App, pattern};
use crate::time::{Duration, Instant};

/// Pushes of one channel that wait for their result.
const PUSHES_MAX: u64 = 4;

/// What a [`Talker`] does.
#[derive(Clone, Debug)]
pub struct TalkerParams {
    pub part: Part,
    /// Messages that each side of a channel sends.
    pub messages: u64,
    pub sizes: Sizes,
    /// The most that a pop takes.
    pub pop_max: u32,
    /// How long it waits after each pop.
    pub think: Duration,
    pub channel: channel::Params,
}

#[derive(Clone, Copy, Debug)]
pub enum Part {
    Listen {
        port: u16,
    },
    /// Opens so many channels, each from a port of its own.
    Connect {
        to: Addr,
        count: u32,
    },
}

/// Opens channels or accepts them, and sends and receives on each.
#[derive(Debug)]
pub struct Talker {
    params: TalkerParams,
    pub channels: Channels,
    buffers: Buffers,
    port: Option<SocketKey>,
    has_begun: bool,
    pub talks: BTreeMap<u64, Talk>,
    /// Connects that failed.
    pub refused: Vec<Error>,
    next_talk: u64,
    /// Channels with which there is something to do.
    ready: BTreeSet<u64>,
    /// Those that wait until then before they pop again.
    thinking: BTreeSet<(Instant, u64)>,
    /// Those whose end the peer has not confirmed yet.
    closing: BTreeSet<u64>,
}

/// One channel, and how far it is.
#[derive(Debug)]
pub struct Talk {
    channel: Option<ChannelKey>,
    port: Option<SocketKey>,
    peer: Ip,
    /// The client's port, which both sides know.
    salt: u64,
    /// So that both sides send other bytes.
    side: u64,
    pushed: u64,
    confirmed: u64,
    pub received: u64,
    /// Bytes of the next message that were popped.
    partial: u32,
    is_popping: bool,
    pop_at: Instant,
    /// The peer closed it.
    pub has_ended: bool,
    pub failed: Option<Error>,
    is_closing: bool,
    pub is_closed: bool,
}

/// What a tag of ours stands for.
const KINDS: u64 = 4;
const OPEN: u64 = 0;
const PUSH: u64 = 1;
const POP: u64 = 2;

impl Talker {
    pub fn new(params: TalkerParams) -> Self {
        let buffers = Buffers::new(256 << 20);
        let channels = Channels::new(params.channel.clone(), buffers.clone(), Instant(0));
        Self {
            channels: channels.expect("valid params"),
            params,
            buffers,
            port: None,
            has_begun: false,
            talks: BTreeMap::new(),
            refused: Vec::new(),
            next_talk: 0,
            ready: BTreeSet::new(),
            thinking: BTreeSet::new(),
            closing: BTreeSet::new(),
        }
    }

    /// Whether it has no channel that it still wants to do something with.
    pub fn is_done(&self) -> bool {
        let want = match self.params.part {
            Part::Listen { .. } => 0,
            Part::Connect { count, .. } => count as usize,
        };
        let talks = self.talks.values();
        self.talks.len() + self.refused.len() >= want
            && talks.into_iter().all(|talk| talk.is_closed)
    }

    /// Messages received, all channels together.
    pub fn received(&self) -> u64 {
        self.talks.values().map(|talk| talk.received).sum()
    }

    /// Channels that ended by an error.
    pub fn failures(&self) -> Vec<Error> {
        self.talks.values().filter_map(|talk| talk.failed).collect()
    }

    /// Of each channel that there was: the peer, the messages received, what went wrong.
    pub fn outcomes(&self) -> impl Iterator<Item = (Ip, u64, Option<Error>)> {
        let talks = self.talks.values();
        talks.map(|talk| (talk.peer, talk.received, talk.failed))
    }

    /// Send buffers that are in use.
    pub fn used_bytes(&self) -> usize {
        self.buffers.used_bytes()
    }

    fn begin(&mut self, now: Instant, homa: &mut Endpoint) {
        match self.params.part {
            Part::Listen { port } => {
                let port = self.channels.open_port(homa, port).expect("a free port");
                self.channels.listen(homa, port, 64);
                self.port = Some(port);
                self.accept();
            }
            Part::Connect { to, count } => {
                for _ in 0..count {
                    let port = self.channels.open_port(homa, 0).expect("a free port");
                    let salt = homa.port(port).expect("it is open").into();
                    let id = self.add(None, Some(port), to.ip, salt, 0);
                    let tag = id * KINDS + OPEN;
                    let key = self.channels.connect(now, homa, port, to, tag);
                    if let Some(talk) = self.talks.get_mut(&id) {
                        talk.channel = Some(key.expect("room for a channel"));
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        if let Some(port) = self.port {
            self.channels.accept(port, self.next_talk * KINDS + OPEN);
        }
    }

    fn add(
        &mut self,
        channel: Option<ChannelKey>,
        port: Option<SocketKey>,
        peer: Ip,
        salt: u64,
        side: u64,
    ) -> u64 {
        let id = self.next_talk;
        self.next_talk += 1;
        self.talks.insert(
            id,
            Talk {
                channel,
                port,
                peer,
                salt,
                side,
                pushed: 0,
                confirmed: 0,
                received: 0,
                partial: 0,
                is_popping: false,
                pop_at: Instant(0),
                has_ended: false,
                failed: None,
                is_closing: false,
                is_closed: false,
            },
        );
        id
    }

    /// Takes what the channels have to tell, and does what follows from it.
    fn go_on(&mut self, now: Instant, homa: &mut Endpoint) {
        self.ready.extend(&self.closing);
        loop {
            while let Some(event) = self.channels.poll_event() {
                self.on_channel(now, homa, event);
            }
            while let Some(&(at, id)) = self.thinking.first()
                && at <= now
            {
                self.thinking.pop_first();
                self.ready.insert(id);
            }
            while let Some(id) = self.ready.pop_first() {
                self.talk(now, homa, id);
            }
            if !self.channels.has_events() {
                return;
            }
        }
    }

    fn on_channel(&mut self, now: Instant, homa: &mut Endpoint, event: channel::Event) {
        use channel::Event;
        match event {
            Event::Connected { tag } => {
                self.ready.insert(tag / KINDS);
            }
            Event::NotConnected { tag, error } => {
                let talk = self.talks.remove(&(tag / KINDS)).expect("it was opened");
                self.channels.leave(now, homa, talk.port.expect("a port"));
                self.refused.push(error);
            }
            Event::Accepted { channel, peer, .. } => {
                let id = self.add(Some(channel), None, peer.ip, peer.port.into(), 1);
                self.ready.insert(id);
                self.accept();
            }
            Event::Pushed { tag } => {
                let talk = self.talks.get_mut(&(tag / KINDS)).expect("it pushed");
                talk.confirmed += 1;
                self.ready.insert(tag / KINDS);
            }
            Event::Popped { tag, piece } => self.on_popped(now, homa, tag / KINDS, piece),
            Event::Ended { tag } => {
                let talk = self.talks.get_mut(&(tag / KINDS)).expect("it pops");
                assert_eq!(talk.partial, 0, "half a message at the end");
                (talk.has_ended, talk.is_popping) = (true, false);
                self.ready.insert(tag / KINDS);
            }
            Event::Failed { tag, error } => {
                let talk = self.talks.get_mut(&(tag / KINDS)).expect("it talks");
                talk.failed = Some(error);
                self.ready.insert(tag / KINDS);
            }
        }
    }

    fn on_popped(&mut self, now: Instant, homa: &mut Endpoint, id: u64, piece: Piece) {
        let sizes = self.params.sizes;
        let talk = self.talks.get_mut(&id).expect("it pops");
        let number = number(talk.salt, 1 - talk.side, talk.received);
        let len = size(sizes, number);
        let mut bytes = vec![0; piece.len as usize];
        homa.region().read(piece.offset as usize, &mut bytes);
        assert!(homa.release(now, piece.run), "the bytes were held");
        let first = talk.partial as usize;
        assert!(first + bytes.len() <= len as usize, "too long");
        let is_right = |(at, byte): (usize, &u8)| *byte == pattern(number, first + at);
        assert!(
            bytes.iter().enumerate().all(is_right),
            "talk {id} of {number:#x}: other bytes"
        );
        talk.partial += piece.len;
        if talk.partial == len {
            (talk.partial, talk.received) = (0, talk.received + 1);
        }
        talk.is_popping = false;
        talk.pop_at = now + self.params.think;
        self.thinking.insert((talk.pop_at, id));
    }

    /// One channel's next step.
    fn talk(&mut self, now: Instant, homa: &mut Endpoint, id: u64) {
        let params = &self.params;
        let Some(talk) = self.talks.get_mut(&id).filter(|talk| !talk.is_closed) else {
            return;
        };
        let Some(key) = talk.channel else { return };
        let is_over = talk.failed.is_some() || talk.has_ended;
        let is_done = talk.received == params.messages && talk.confirmed == params.messages;
        // The one that connected hangs up first.
        if !talk.is_closing && (is_over || (is_done && talk.side == 0)) {
            talk.is_closing = true;
            self.closing.insert(id);
            self.channels.begin_close(now, homa, key);
        }
        if talk.is_closing {
            if self.channels.is_settled(key) {
                talk.is_closed = true;
                self.closing.remove(&id);
                self.channels.end_close(now, homa, key);
                if let Some(port) = talk.port {
                    self.channels.leave(now, homa, port);
                }
            }
            return;
        }
        if !self.channels.is_open(key) {
            return;
        }
        while talk.pushed < params.messages && talk.pushed - talk.confirmed < PUSHES_MAX {
            let number = number(talk.salt, talk.side, talk.pushed);
            let Some(mut buf) = self.buffers.alloc(size(params.sizes, number) as usize) else {
                self.thinking.insert((now + Duration::millis(1), id));
                break; // Others will give some back.
            };
            let bytes = buf.make_mut().expect("a new buffer has one view");
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = pattern(number, at);
            }
            talk.pushed += 1;
            let payload = Payload::Buffer(buf);
            self.channels
                .push(now, homa, key, payload, id * KINDS + PUSH);
        }
        if !talk.is_popping && talk.pop_at <= now {
            talk.is_popping = true;
            self.channels
                .pop(now, homa, key, params.pop_max, id * KINDS + POP);
        }
    }
}

impl App for Talker {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        if !self.has_begun {
            self.has_begun = true;
            self.begin(now, homa);
        }
        self.channels.handle_timeout(now, homa);
        self.go_on(now, homa);
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        let channels = &mut self.channels;
        match event {
            Event::Request { socket, rpc } => channels.handle_request(now, homa, socket, rpc),
            Event::Response { tag, message, .. } => {
                channels.handle_response(now, homa, tag, &message);
            }
            Event::Failed { tag, error, .. } => channels.handle_failure(now, homa, tag, error),
            Event::Released { tag, result } => channels.handle_released(tag, result),
        }
        self.go_on(now, homa);
    }

    fn wake_at(&self) -> Option<Instant> {
        let thinking = self.thinking.first().map(|&(at, _)| at);
        let channels = self.channels.poll_timeout();
        thinking.into_iter().chain(channels).min()
    }
}

/// A message's number: no two of a world are the same.
fn number(salt: u64, side: u64, index: u64) -> u64 {
    salt << 40 | side << 32 | index
}

/// Both sides know how long it is.
fn size(sizes: Sizes, number: u64) -> u32 {
    sizes.draw(&mut Rng::new(number))
}
