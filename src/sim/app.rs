//! Applications for the simulator: one answers, one asks, and both check every byte.

use std::collections::{HashMap, VecDeque};

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Event, Message, Notify, Payload, SocketKey};
use crate::keyed::Keyed;
use crate::mem::Buffers;
use crate::rng::Rng;
use crate::sim::Sizes;
use crate::time::{Duration, Instant};

/// Bytes before the pattern: the RPC's own number.
const NUMBER_LEN: usize = 8;

/// What runs on a host.
pub trait App {
    /// Does what it wants of its own accord; called at each turn.
    fn act(&mut self, now: Instant, homa: &mut Endpoint);
    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event);
    /// When it wants to be called again even if nothing happens.
    fn wake_at(&self) -> Option<Instant>;
}

/// Answers each request with its own bytes, after checking them, and counts how often each ran.
#[derive(Debug)]
pub struct Echo {
    port: u16,
    socket: Option<SocketKey>,
    /// How long a handler takes.
    service: Duration,
    /// Requests in service, in the order of their end.
    serving: VecDeque<(Instant, Message)>,
    /// Requests that are not a [`Requester`]'s; they are echoed all the same.
    pub strange: u64,
    /// How often the handler ran for each number.
    pub runs: HashMap<u64, u32, Keyed>,
}

/// How a [`Requester`] asks.
#[derive(Clone, Debug)]
pub struct RequesterParams {
    pub to: Addr,
    /// RPCs to start, all in all.
    pub rpcs: u64,
    /// RPCs open at once.
    pub outstanding: u64,
    pub sizes: Sizes,
    /// Lets requesters of one world have numbers of their own.
    pub first_number: u64,
    pub seed: u64,
}

/// Sends requests and checks that each response is the request's own bytes.
#[derive(Debug)]
pub struct Requester {
    params: RequesterParams,
    rng: Rng,
    socket: Option<SocketKey>,
    buffers: Buffers,
    started: u64,
    open: HashMap<u64, u32, Keyed>,
    pub finished: u64,
    pub failed: Vec<(u64, Error)>,
}

impl Echo {
    pub fn new(port: u16, service: Duration) -> Self {
        let runs = HashMap::with_hasher(Keyed::new(1));
        Self {
            port,
            socket: None,
            service,
            serving: VecDeque::new(),
            strange: 0,
            runs,
        }
    }

    fn reply(&mut self, now: Instant, homa: &mut Endpoint, message: Message) {
        let payload = Payload::Received {
            run: message.run,
            start: 0,
            len: message.len,
        };
        let replied = homa.send_response(now, message.rpc, payload, Notify::Never);
        assert_eq!(replied, Ok(()), "a reply to a request in service");
        assert!(
            homa.release(now, message.run),
            "the request's bytes were still held"
        );
    }
}

impl App for Echo {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        if self.socket.is_none() {
            let socket = homa.open(self.port).expect("the port is free");
            homa.set_server(socket, true);
            self.socket = Some(socket);
        }
        while self.serving.front().is_some_and(|&(end, _)| end <= now) {
            if let Some((_, message)) = self.serving.pop_front() {
                self.reply(now, homa, message);
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        let Event::Request { rpc, .. } = event else {
            panic!("a server was told {event:?}");
        };
        let Some(message) = homa.take(rpc) else {
            // Its client took it back with a packet of the same burst.
            return;
        };
        match check(homa, &message) {
            Ok(number) => *self.runs.entry(number).or_default() += 1,
            Err(_) => self.strange += 1,
        }
        if self.service == Duration::ZERO {
            self.reply(now, homa, message);
        } else {
            self.serving.push_back((now + self.service, message));
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.serving.front().map(|&(end, _)| end)
    }
}

impl Requester {
    pub fn new(params: RequesterParams) -> Self {
        Self {
            rng: Rng::new(params.seed),
            params,
            socket: None,
            buffers: Buffers::new(256 << 20),
            started: 0,
            open: HashMap::with_hasher(Keyed::new(1)),
            finished: 0,
            failed: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.started == self.params.rpcs && self.open.is_empty()
    }

    fn start(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        let number = self.params.first_number + self.started;
        let len = self.params.sizes.draw(&mut self.rng);
        let mut buf = self.buffers.alloc(len as usize).expect("send buffers");
        fill(buf.make_mut().expect("a new buffer has one view"), number);
        let (to, payload) = (self.params.to, Payload::Buffer(buf));
        let sent = homa.send_request(now, socket, to, payload, number, Notify::Never);
        assert!(
            sent.is_ok(),
            "RPC {number} of {len} B was refused: {sent:?}"
        );
        self.started += 1;
        self.open.insert(number, len);
    }

    fn finish(&mut self, now: Instant, homa: &mut Endpoint, number: u64, message: &Message) {
        let len = self.open.remove(&number).expect("each RPC is done once");
        assert_eq!(message.len, len, "length of RPC {number}'s response");
        let echoed = if len < NUMBER_LEN as u32 { 0 } else { number };
        assert_eq!(check(homa, message), Ok(echoed));
        assert!(
            homa.release(now, message.run),
            "the response's bytes were held"
        );
        self.finished += 1;
    }

    fn fail(&mut self, number: u64, error: Error) {
        self.open.remove(&number).expect("each RPC is done once");
        self.failed.push((number, error));
    }
}

impl App for Requester {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self.socket.insert(homa.open(0).expect("an automatic port")),
        };
        let open_max = self.params.outstanding as usize;
        while self.open.len() < open_max && self.started < self.params.rpcs {
            self.start(now, homa, socket);
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Response { tag, message, .. } => self.finish(now, homa, tag, &message),
            Event::Failed { tag, error, .. } => self.fail(tag, error),
            Event::Request { .. } | Event::Released { .. } => {
                panic!("a client was told {event:?}")
            }
        }
        self.act(now, homa);
    }

    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

/// Writes an RPC's number, and after it bytes that follow from the number and their place.
fn fill(bytes: &mut [u8], number: u64) {
    let head = bytes.len().min(NUMBER_LEN);
    bytes[..head].copy_from_slice(&number.to_le_bytes()[..head]);
    for (at, byte) in bytes.iter_mut().enumerate().skip(NUMBER_LEN) {
        *byte = pattern(number, at);
    }
}

/// Checks a message against its own number, and tells that; or else the first byte that is wrong.
/// Shorter ones have number 0.
fn check(homa: &Endpoint, message: &Message) -> Result<u64, usize> {
    let mut bytes = vec![0; message.len as usize];
    homa.region().read(message.offset as usize, &mut bytes);
    let Some(head) = bytes.first_chunk::<NUMBER_LEN>() else {
        return Ok(0);
    };
    let number = u64::from_le_bytes(*head);
    let mut rest = bytes.iter().enumerate().skip(NUMBER_LEN);
    match rest.find(|&(at, &byte)| byte != pattern(number, at)) {
        Some((at, _)) => Err(at),
        None => Ok(number),
    }
}

fn pattern(number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31) as usize ^ at.wrapping_mul(7) ^ (at >> 8)) as u8
}
