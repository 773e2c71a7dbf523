//! An application that asks, answers, asks in turn before it answers, aborts, forgets, closes and
//! holds on to bytes, as chance has it.

use std::collections::{BTreeMap, BTreeSet};

use crate::addr::{Addr, Ip};
use crate::error::Error;
use crate::homa::{Endpoint, Event, Message, Notify, Payload, RpcKey, RunKey, SocketKey};
use crate::mem::Buffers;
use crate::rng::Rng;
use crate::sim::App;
use crate::sim::chaos::ledger::{Content, Reply, SharedLedger, Target};
use crate::sim::chaos::shape::Habits;
use crate::time::{Duration, Instant};

const PORT: u16 = 99;

/// Nobody has it.
const CLOSED_PORT: u16 = 5;

/// Tags of notices start here, so that none is the number of an RPC.
const NOTICES: u64 = 1 << 32;

/// The application of one host, in one life of it.
#[derive(Debug)]
pub struct Member {
    host: usize,
    habits: Habits,
    rng: Rng,
    ledger: SharedLedger,
    socket: Option<SocketKey>,
    buffers: Buffers,
    /// RPCs that it has still to start of its own accord.
    left: u64,
    /// No new RPCs, and what is held is let go.
    is_ending: bool,
    /// Requests of ours that are not done, by their numbers.
    open: BTreeMap<u64, RpcKey>,
    serving: Vec<Service>,
    /// Answered once the RPC of that number is done.
    nested: BTreeMap<u64, Service>,
    held: Vec<RunKey>,
    /// Requests that were taken: none may be told of again.
    taken: BTreeSet<RpcKey>,
    /// Notices that must still come.
    notices: BTreeSet<u64>,
    next_notice: u64,
    next_act_at: Instant,
}

/// A request in service.
#[derive(Debug)]
struct Service {
    number: u64,
    message: Message,
    /// When the handler answers; in a nested call, how long it waits.
    ends_at: Instant,
    /// It is a handler's own call, whose handler makes no further one.
    asks: bool,
}

impl Member {
    pub fn new(host: usize, habits: Habits, left: u64, seed: u64, ledger: SharedLedger) -> Self {
        Self {
            host,
            habits,
            rng: Rng::new(seed),
            ledger,
            socket: None,
            buffers: Buffers::new(1 << 30),
            left,
            is_ending: false,
            open: BTreeMap::new(),
            serving: Vec::new(),
            nested: BTreeMap::new(),
            held: Vec::new(),
            taken: BTreeSet::new(),
            notices: BTreeSet::new(),
            next_notice: NOTICES,
            next_act_at: Instant(0),
        }
    }

    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// # Panics
    /// If anything is still awaited or held.
    pub fn check_end(&self) {
        let host = self.host + 1;
        assert!(
            self.open.is_empty(),
            "host {host}: {:?} are open",
            self.open
        );
        let held = (self.serving.len(), self.nested.len(), self.held.len());
        assert_eq!(held, (0, 0, 0), "host {host} holds requests or bytes");
        let notices = &self.notices;
        assert!(
            notices.is_empty(),
            "host {host} was not told of {notices:?}"
        );
        assert_eq!(self.buffers.used_bytes(), 0, "host {host}'s send buffers");
    }

    fn len(&mut self) -> u32 {
        let longest = [1, 100, 1424, 3000, 20_000, 50_000, 200_000, 1_000_000];
        let longest: u32 = longest[self.rng.below(longest.len() as u64) as usize];
        1 + self.rng.below(longest.min(self.habits.len_max).into()) as u32
    }

    /// New bytes, or some of a message that is held.
    fn payload(&mut self, held: Option<&Service>) -> (Payload, Content) {
        if let Some(Service {
            number, message, ..
        }) = held
            && self.rng.one_in_thousand(500)
        {
            let start = self.rng.below(message.len.into()) as u32;
            let start = if self.rng.one_in_thousand(500) {
                0
            } else {
                start
            };
            let (run, len) = (message.run, message.len - start);
            let content = self.ledger.borrow().request(*number).part(start, len);
            return (Payload::Received { run, start, len }, content);
        }
        let (tag, start, len) = (self.rng.next_u64(), 0, self.len());
        let content = Content { tag, start, len };
        let mut buf = self.buffers.alloc(len as usize).expect("send buffers");
        content.fill(buf.make_mut().expect("a new buffer has one view"));
        (Payload::Buffer(buf), content)
    }

    fn notify(&mut self) -> Notify {
        self.next_notice += 1;
        match self.rng.below(3) {
            0 => Notify::Never,
            1 => Notify::Transmitted(self.next_notice),
            _ => Notify::Delivered(self.next_notice),
        }
    }

    fn expect_notice(&mut self, notify: Notify) {
        match notify {
            Notify::Never => {}
            Notify::Transmitted(tag) | Notify::Delivered(tag) => {
                self.notices.insert(tag);
            }
        }
    }

    /// Mostly another host, now and then itself or nobody.
    fn target(&mut self) -> (Target, Addr) {
        let hosts = u64::from(self.habits.hosts);
        let host = match self.rng.below(20) {
            0 => self.host,
            _ => (self.host + 1 + self.rng.below(hosts - 1) as usize) % hosts as usize,
        };
        let last = host as u8 + 1;
        match self.rng.below(50) {
            0 => (Target::ClosedPort(host), addr(last, CLOSED_PORT)),
            1 => (Target::Nobody, addr(200, PORT)),
            _ => (Target::Server(host), addr(last, PORT)),
        }
    }

    /// Asks somebody; `None` if there is no slot for one more RPC.
    fn ask(&mut self, now: Instant, homa: &mut Endpoint, held: Option<&Service>) -> Option<u64> {
        let socket = self.socket?;
        let ((target, to), (payload, content)) = (self.target(), self.payload(held));
        let (notify, number) = (self.notify(), self.ledger.borrow().next_number());
        match homa.send_request(now, socket, to, payload, number, notify) {
            Ok((rpc, id)) => {
                self.expect_notice(notify);
                self.open.insert(number, rpc);
                let mut ledger = self.ledger.borrow_mut();
                ledger.on_start(now, self.host, target, id, content);
                Some(number)
            }
            Err(Error::Exhausted) => None,
            Err(error) => panic!("host {}: {error:?}", self.host + 1),
        }
    }

    fn answer(&mut self, now: Instant, homa: &mut Endpoint, service: &Service) {
        let (number, rpc) = (service.number, service.message.rpc);
        let (payload, reply) = match self.rng.below(8) {
            0 => (Payload::EmptyReply, Reply::Empty),
            _ => {
                let (payload, content) = self.payload(Some(service));
                (payload, Reply::Bytes(content))
            }
        };
        let notify = self.notify();
        self.ledger
            .borrow_mut()
            .on_reply(now, self.host, number, reply);
        // It may be gone meanwhile, which is told as a notice.
        let sent = homa.send_response(now, rpc, payload, notify);
        assert_eq!(sent, Ok(()), "host {}", self.host + 1);
        self.expect_notice(notify);
        self.let_go(now, homa, service.message.run);
    }

    /// Lets a message's bytes go, or holds them for a while.
    fn let_go(&mut self, now: Instant, homa: &mut Endpoint, run: RunKey) {
        if !self.is_ending && self.rng.one_in_thousand(50) {
            self.held.push(run);
        } else {
            assert!(homa.release(now, run), "bytes that were held are gone");
        }
    }

    /// Goes on with the requests whose time has come.
    fn serve(&mut self, now: Instant, homa: &mut Endpoint) {
        let is_ending = self.is_ending;
        let due = self
            .serving
            .extract_if(.., |service| is_ending || service.ends_at <= now);
        for mut service in due.collect::<Vec<_>>() {
            let child = match service.asks && !is_ending {
                true => self.ask(now, homa, Some(&service)),
                false => None,
            };
            match child {
                Some(child) => {
                    service.ends_at = now + self.habits.patience;
                    self.nested.insert(child, service);
                }
                None => self.answer(now, homa, &service),
            }
        }
        // A handler that waited long enough answers without what it asked for.
        let late = |(&child, service): (&u64, &Service)| {
            (is_ending || service.ends_at <= now).then_some(child)
        };
        let late: Vec<_> = self.nested.iter().filter_map(late).collect();
        for child in late {
            self.abort(now, homa, child);
            if let Some(service) = self.nested.remove(&child) {
                self.answer(now, homa, &service);
            }
        }
    }

    fn abort(&mut self, now: Instant, homa: &mut Endpoint, number: u64) {
        if let Some(&rpc) = self.open.get(&number) {
            self.ledger.borrow_mut().on_abort(number);
            homa.abort(now, rpc, Error::Canceled);
        }
    }

    fn misbehave(&mut self, now: Instant, homa: &mut Endpoint) {
        let at = |rng: &mut Rng, len: usize| rng.below(len as u64) as usize;
        match self.rng.below(8) {
            0 if !self.open.is_empty() => {
                let at = at(&mut self.rng, self.open.len());
                let (&number, &rpc) = self.open.iter().nth(at).expect("within");
                if self.rng.one_in_thousand(500) || self.nested.contains_key(&number) {
                    self.abort(now, homa, number);
                } else {
                    homa.forget(now, rpc);
                    self.open.remove(&number);
                    self.ledger.borrow_mut().on_forgotten(now, number);
                }
            }
            1 if !self.serving.is_empty() => {
                let at = at(&mut self.rng, self.serving.len());
                let service = self.serving.swap_remove(at);
                self.ledger
                    .borrow_mut()
                    .on_server_forgot(now, service.number);
                homa.forget(now, service.message.rpc);
                self.let_go(now, homa, service.message.run);
            }
            2 if self.rng.one_in_thousand(30) => self.close(now, homa),
            _ => {}
        }
    }

    /// All RPCs of the socket end; its client RPCs will not be told of.
    fn close(&mut self, now: Instant, homa: &mut Endpoint) {
        if let Some(socket) = self.socket.take() {
            homa.close(now, socket);
            self.open.clear();
            self.serving
                .extend(std::mem::take(&mut self.nested).into_values());
            self.ledger.borrow_mut().on_close(now, self.host);
        }
    }

    fn release_some(&mut self, now: Instant, homa: &mut Endpoint) {
        let is_some = self.is_ending || self.rng.one_in_thousand(200);
        let count = if is_some { self.held.len() } else { 0 };
        for run in self.held.drain(..count) {
            assert!(homa.release(now, run), "bytes that were held are gone");
        }
    }

    fn on_request(&mut self, now: Instant, homa: &mut Endpoint, rpc: RpcKey) {
        let Some(message) = homa.take(rpc) else {
            // Its client took it back with a packet of the same burst.
            assert!(
                !self.taken.contains(&rpc),
                "a request was told of twice: {rpc:?}"
            );
            return;
        };
        self.taken.insert(rpc);
        let number = self
            .ledger
            .borrow_mut()
            .on_request(now, self.host, homa, &message);
        let service = Duration(self.rng.below(self.habits.service_max.0 + 1));
        self.serving.push(Service {
            number,
            message,
            ends_at: now + service,
            asks: self.habits.nests && self.rng.one_in_thousand(300),
        });
    }

    /// A call is over, with a response or an error.
    fn on_over(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        number: u64,
        outcome: Result<Message, Error>,
    ) {
        let is_open = self.open.remove(&number).is_some();
        match outcome {
            Ok(message) => {
                if is_open {
                    let mut ledger = self.ledger.borrow_mut();
                    ledger.on_response(now, number, homa, &message);
                }
                self.let_go(now, homa, message.run);
            }
            Err(error) if is_open => self.ledger.borrow_mut().on_failure(now, number, error),
            Err(_) => {}
        }
        if let Some(service) = self.nested.remove(&number) {
            self.answer(now, homa, &service);
        }
    }
}

impl App for Member {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        if self.socket.is_none() {
            let socket = homa.open(PORT).expect("the port is free");
            homa.set_server(socket, true);
            self.socket = Some(socket);
        }
        self.serve(now, homa);
        if homa.stats().unacked > 0 {
            self.ledger.borrow_mut().on_give_up(self.host);
        }
        if self.is_ending {
            self.release_some(now, homa);
        } else if now >= self.next_act_at {
            let pause = Duration(1 + self.rng.below(self.habits.pause_max.0));
            self.next_act_at = now + pause;
            if self.left > 0 && self.ask(now, homa, None).is_some() {
                self.left -= 1;
            }
            self.release_some(now, homa);
            if self.habits.aborts {
                self.misbehave(now, homa);
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Request { rpc, .. } => self.on_request(now, homa, rpc),
            Event::Response { tag, message, .. } => self.on_over(now, homa, tag, Ok(message)),
            Event::Failed { tag, error, .. } => self.on_over(now, homa, tag, Err(error)),
            Event::Released { tag, .. } => {
                assert!(self.notices.remove(&tag), "notice {tag} came twice");
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let services = self.serving.iter().chain(self.nested.values());
        let next = services.map(|service| service.ends_at);
        let act = (!self.is_ending).then_some(self.next_act_at);
        next.chain(act).min()
    }
}

fn addr(last: u8, port: u16) -> Addr {
    Addr::new(Ip::v4(10, 0, 0, last), port)
}
