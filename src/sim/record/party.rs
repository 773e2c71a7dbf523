//! Who speaks in a scenario: a client that asks and a server that answers, in the form of the
//! captures of the Linux module.

use std::collections::VecDeque;

use super::Scenario;
use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Event, Message, Notify, Payload, RpcKey, SocketKey};
use crate::mem::Buffers;
use crate::sim::App;
use crate::time::{Duration, Instant};

/// When the first request goes out: both hosts have started by then.
pub(super) const BEGIN: Instant = Instant(Duration::millis(1).as_nanos());

/// One of the two.
#[derive(Debug)]
pub(super) enum Party {
    Client(Client),
    Server(Server),
}

#[derive(Debug)]
pub(super) struct Client {
    scenario: Scenario,
    to: Addr,
    socket: Option<SocketKey>,
    buffers: Buffers,
    started: u32,
    /// RPCs begun and not done, by their tags.
    open: Vec<(u64, RpcKey)>,
    /// When the next one may begin.
    next_at: Instant,
    /// Responses not looked at.
    unseen: Vec<(u64, Message)>,
    is_away: bool,
    pub(super) ends: Vec<Result<(), Error>>,
}

#[derive(Debug)]
pub(super) struct Server {
    scenario: Scenario,
    port: u16,
    socket: Option<SocketKey>,
    /// It has gone, though its host lives.
    is_closed: bool,
    buffers: Buffers,
    serving: VecDeque<(Instant, Message)>,
}

impl Client {
    pub(super) fn new(scenario: Scenario, to: Addr) -> Self {
        Self {
            scenario,
            to,
            socket: None,
            buffers: Buffers::new(64 << 20),
            started: 0,
            open: Vec::new(),
            next_at: BEGIN,
            unseen: Vec::new(),
            is_away: scenario.is_away,
            ends: Vec::new(),
        }
    }

    /// Goes without a word.
    pub(super) fn close(&mut self, now: Instant, homa: &mut Endpoint) {
        self.started = self.scenario.rpcs;
        if let Some(socket) = self.socket {
            homa.close(now, socket);
        }
    }

    pub(super) fn abort(&mut self, now: Instant, homa: &mut Endpoint) {
        for &(_, rpc) in &self.open {
            homa.abort(now, rpc, Error::Canceled);
        }
    }

    /// Looks at what came while it was away.
    pub(super) fn come_back(&mut self, now: Instant, homa: &mut Endpoint) {
        self.is_away = false;
        for (tag, message) in std::mem::take(&mut self.unseen) {
            self.finish(now, homa, tag, &message);
        }
    }

    fn ask(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        let lens = [self.scenario.request_bytes, self.scenario.response_bytes];
        let mut buf = self.buffers.alloc(lens[0] as usize).expect("send buffers");
        let bytes = buf.make_mut().expect("a new buffer has one view");
        fill(bytes, 7, 0);
        let head = lens.map(u32::to_le_bytes).concat();
        let head_len = head.len().min(bytes.len());
        bytes[..head_len].copy_from_slice(&head[..head_len]);
        let payload = Payload::Buffer(buf);
        let tag = u64::from(self.started);
        let asked = homa.send_request(now, socket, self.to, payload, tag, Notify::Never);
        self.open
            .push((tag, asked.expect("there is room for it").0));
        self.started += 1;
        self.next_at = now + self.scenario.pause;
    }

    fn finish(&mut self, now: Instant, homa: &mut Endpoint, tag: u64, message: &Message) {
        let bytes = read(homa, message);
        let mut expected = vec![0; self.scenario.response_bytes as usize];
        fill(&mut expected, 5, 1);
        assert!(bytes == expected, "the response has wrong bytes");
        homa.release(now, message.run);
        self.end(tag, Ok(()));
    }

    fn end(&mut self, tag: u64, end: Result<(), Error>) {
        self.open.retain(|&(open, _)| open != tag);
        self.ends.push(end);
    }
}

impl Server {
    pub(super) fn new(scenario: Scenario, port: u16) -> Self {
        Self {
            scenario,
            port,
            socket: None,
            is_closed: !scenario.has_server,
            buffers: Buffers::new(64 << 20),
            serving: VecDeque::new(),
        }
    }

    pub(super) fn close(&mut self, now: Instant, homa: &mut Endpoint) {
        self.is_closed = true;
        if let Some(socket) = self.socket {
            homa.close(now, socket);
        }
        for (_, message) in self.serving.drain(..) {
            homa.release(now, message.run);
        }
    }

    fn answer(&mut self, now: Instant, homa: &mut Endpoint, message: Message) {
        let len = self.scenario.response_bytes as usize;
        let mut buf = self.buffers.alloc(len).expect("send buffers");
        fill(buf.make_mut().expect("a new buffer has one view"), 5, 1);
        let replied = homa.send_response(now, message.rpc, Payload::Buffer(buf), Notify::Never);
        assert_eq!(replied, Ok(()), "a reply to a request in service");
        homa.release(now, message.run);
    }
}

impl App for Party {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Client(client) => {
                let socket = *client
                    .socket
                    .get_or_insert_with(|| homa.open(0).expect("an automatic port"));
                let outstanding = client.scenario.outstanding as usize;
                while client.open.len() < outstanding
                    && client.started < client.scenario.rpcs
                    && now >= client.next_at
                {
                    client.ask(now, homa, socket);
                }
            }
            Self::Server(server) => {
                if server.socket.is_none() && !server.is_closed {
                    let socket = homa.open(server.port).expect("the port is free");
                    homa.set_server(socket, true);
                    server.socket = Some(socket);
                }
                while server.serving.front().is_some_and(|&(end, _)| end <= now) {
                    if let Some((_, message)) = server.serving.pop_front() {
                        server.answer(now, homa, message);
                    }
                }
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match (&mut *self, event) {
            (Self::Client(client), Event::Response { tag, message, .. }) => match client.is_away {
                true => client.unseen.push((tag, message)),
                false => client.finish(now, homa, tag, &message),
            },
            (Self::Client(client), Event::Failed { tag, error, .. }) => client.end(tag, Err(error)),
            (Self::Server(server), Event::Request { rpc, .. }) => {
                // A client may take a request back with a packet of the same burst.
                if let Some(message) = homa.take(rpc) {
                    let end = now + server.scenario.service;
                    server.serving.push_back((end, message));
                }
            }
            (_, event) => panic!("{event:?} is news to this party"),
        }
        self.act(now, homa);
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Client(client) => {
                let has_more = client.started < client.scenario.rpcs
                    && client.open.len() < client.scenario.outstanding as usize;
                has_more.then_some(client.next_at)
            }
            Self::Server(server) => server.serving.front().map(|&(end, _)| end),
        }
    }
}

/// Byte i is `factor` * i + `plus`, modulo 256.
fn fill(bytes: &mut [u8], factor: usize, plus: usize) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at * factor + plus) as u8;
    }
}

fn read(homa: &Endpoint, message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.len as usize];
    homa.region().read(message.offset as usize, &mut bytes);
    bytes
}
