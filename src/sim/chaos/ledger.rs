//! What every RPC of a run asked, how often it ran, and how it ended: the judge of all hosts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::addr::Ip;
use crate::error::Error;
use crate::homa::{Endpoint, Message};
use crate::sim::app::pattern;
use crate::sim::chaos::log::SharedLog;
use crate::sim::chaos::weather::Weather;
use crate::sim::chaos::witness::Witness;
use crate::sim::chaos::{Fault, Faults, Report, Shape};
use crate::time::{Duration, Instant};
use crate::wire::homa::RpcId;

/// One that all hosts of a world write to.
pub type SharedLedger = Rc<RefCell<Ledger>>;

/// With so many RPCs at each host there are pages for all of them.
const RPCS_WITH_ROOM: u64 = 100;

/// After so long without a word from its server an RPC has timed out.
const TIMEOUT: Duration = Duration::millis(100);

/// A tick that was not whole, and the time that a frame waits for others before it.
const MARGIN: Duration = Duration::millis(3);

/// For so long of that at least a way must have been cut, or a host must have stood still. Before,
/// a busy server may have been heard 40 ms ago, and afterwards an answer takes 5 ms.
const SILENCE_MIN: Duration = Duration::millis(50);

/// The bytes of a message: a stretch of an endless pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Which pattern.
    pub tag: u64,
    /// Where in it the message starts.
    pub start: u32,
    pub len: u32,
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Bytes(Content),
    Empty,
}

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Server(usize),
    /// A host, but a port of its that nobody has.
    ClosedPort(usize),
    /// An address that no host has.
    Nobody,
}

/// How an RPC ended at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Response,
    Failed(Error),
    /// Its application wanted no outcome any more.
    Forgotten,
    /// Its client restarted.
    Died,
}

/// One RPC.
#[derive(Debug)]
struct Record {
    client: usize,
    id: RpcId,
    to: Target,
    request: Content,
    started_at: Instant,
    /// Of its server, when it was sent.
    server_life: u32,
    /// In which life of the server its handler ran.
    runs: Vec<u32>,
    replies: Vec<Reply>,
    /// Its server forgot it on purpose.
    server_forgot: bool,
    client_aborted: bool,
    ending: Option<Ending>,
}

/// All RPCs of a run.
#[derive(Debug)]
pub struct Ledger {
    records: Vec<Record>,
    /// By the client's host and the client's id.
    by_id: BTreeMap<(usize, RpcId), u64>,
    /// Which hosts forgot responses that nobody acknowledged.
    gave_up: Vec<bool>,
    /// How often each host has restarted.
    lives: Vec<u32>,
    faults: Faults,
    /// There are fewer pages than messages may need.
    is_short: bool,
    /// After so long a message without pages is given up.
    give_up: Duration,
    weather: Weather,
    log: SharedLog,
    witness: Rc<RefCell<Witness>>,
    open_count: u64,
    report: Report,
}

impl Content {
    pub fn fill(&self, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = pattern(self.tag, self.start as usize + at);
        }
    }

    /// A part of it, from `skip` on.
    pub fn part(&self, skip: u32, len: u32) -> Self {
        let (tag, start) = (self.tag, self.start + skip);
        Self { tag, start, len }
    }

    fn is_in(&self, homa: &Endpoint, message: &Message) -> bool {
        let mut bytes = vec![0; message.len as usize];
        homa.region().read(message.offset as usize, &mut bytes);
        let mut places = bytes.iter().enumerate();
        message.len == self.len
            && places.all(|(at, &byte)| byte == pattern(self.tag, self.start as usize + at))
    }
}

impl Reply {
    fn is_in(&self, homa: &Endpoint, message: &Message) -> bool {
        match self {
            Self::Empty => message.empty_reply && message.len == 1,
            Self::Bytes(content) => !message.empty_reply && content.is_in(homa, message),
        }
    }
}

impl Ledger {
    pub fn new(
        shape: Shape,
        give_up: Duration,
        weather: Weather,
        log: SharedLog,
        witness: Rc<RefCell<Witness>>,
    ) -> Self {
        let (hosts, faults) = (shape.hosts, shape.faults);
        Self {
            is_short: faults.has(Fault::Pool) || shape.rpcs > RPCS_WITH_ROOM,
            give_up,
            records: Vec::new(),
            by_id: BTreeMap::new(),
            gave_up: vec![false; hosts.into()],
            lives: vec![0; hosts.into()],
            faults,
            weather,
            log,
            witness,
            open_count: 0,
            report: Report::default(),
        }
    }

    /// What the next RPC will be called.
    pub fn next_number(&self) -> u64 {
        self.records.len() as u64
    }

    /// RPCs without an outcome.
    pub fn open_count(&self) -> u64 {
        self.open_count
    }

    /// Those RPCs, for a message.
    pub fn open(&self) -> String {
        let records = self.records.iter().enumerate();
        let open = records.filter(|(_, record)| record.ending.is_none());
        let lines = open
            .take(5)
            .map(|(number, record)| format!("RPC {number}: {record:?}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub fn report(&self) -> Report {
        self.report
    }

    pub fn note(&self, now: Instant, text: String) {
        self.log.borrow_mut().note(now, text);
    }

    pub fn on_start(
        &mut self,
        now: Instant,
        client: usize,
        to: Target,
        id: RpcId,
        request: Content,
    ) {
        let number = self.next_number();
        let (c, len) = (client + 1, request.len);
        self.note(
            now,
            format!("{c} starts RPC {number} ({:x}) to {to:?}, {len} B", id.0),
        );
        let server_life = match to {
            Target::Server(host) | Target::ClosedPort(host) => self.lives[host],
            Target::Nobody => 0,
        };
        self.records.push(Record {
            client,
            id,
            to,
            request,
            started_at: now,
            server_life,
            runs: Vec::new(),
            replies: Vec::new(),
            server_forgot: false,
            client_aborted: false,
            ending: None,
        });
        let before = self.by_id.insert((client, id), number);
        assert_eq!(before, None, "host {c} used the id {:x} twice", id.0);
        self.open_count += 1;
        self.report.started += 1;
    }

    /// A handler runs. Tells which RPC it is.
    pub fn on_request(
        &mut self,
        now: Instant,
        server: usize,
        homa: &Endpoint,
        message: &Message,
    ) -> u64 {
        let client = host_of(message.peer.ip);
        let number = self.by_id.get(&(client, message.id.peer_side())).copied();
        let Some(number) = number else {
            panic!(
                "host {} was told of a request nobody made: {message:?}",
                server + 1
            );
        };
        let s = server + 1;
        self.note(now, format!("{s} runs RPC {number} ({:x})", message.id.0));
        let life = self.lives[server];
        let record = &mut self.records[number as usize];
        assert_eq!(
            record.to,
            Target::Server(server),
            "RPC {number} ran at host {s}"
        );
        assert!(
            !record.runs.contains(&life),
            "RPC {number} ran twice in one life of host {s}"
        );
        record.runs.push(life);
        assert!(
            record.request.is_in(homa, message) && !message.empty_reply,
            "the bytes of request {number} are not as they were sent: {:?}",
            record.request
        );
        self.report.runs += 1;
        number
    }

    /// The bytes of a request.
    pub fn request(&self, number: u64) -> Content {
        self.records[number as usize].request
    }

    pub fn on_reply(&mut self, now: Instant, server: usize, number: u64, reply: Reply) {
        self.note(
            now,
            format!("{} answers RPC {number} with {reply:?}", server + 1),
        );
        self.records[number as usize].replies.push(reply);
    }

    pub fn on_response(&mut self, now: Instant, number: u64, homa: &Endpoint, message: &Message) {
        let replies = &self.records[number as usize].replies;
        assert!(
            replies.iter().any(|reply| reply.is_in(homa, message)),
            "the response of RPC {number}, {} B, is none of {replies:?}",
            message.len
        );
        self.end(now, number, Ending::Response);
        self.report.responses += 1;
    }

    pub fn on_failure(&mut self, now: Instant, number: u64, error: Error) {
        self.end(now, number, Ending::Failed(error));
        assert!(
            self.is_excused(now, number, error),
            "RPC {number} failed for no reason: {error:?}, {:?}, {:?}",
            self.records[number as usize],
            self.weather
        );
        self.report.failures += 1;
    }

    /// The client will ask for no outcome.
    pub fn on_forgotten(&mut self, now: Instant, number: u64) {
        self.end(now, number, Ending::Forgotten);
        self.report.forgotten += 1;
    }

    /// The client aborts, and will be told so.
    pub fn on_abort(&mut self, number: u64) {
        self.records[number as usize].client_aborted = true;
    }

    /// A host forgot responses that nobody acknowledged, for want of slots or of patience.
    pub fn on_give_up(&mut self, host: usize) {
        self.gave_up[host] = true;
    }

    pub fn on_server_forgot(&mut self, now: Instant, number: u64) {
        self.note(now, format!("the server forgets RPC {number}"));
        self.records[number as usize].server_forgot = true;
    }

    /// All RPCs of a host's socket end without a word.
    pub fn on_close(&mut self, now: Instant, host: usize) {
        self.note(now, format!("{} closes its socket", host + 1));
        for number in 0..self.records.len() {
            let record = &mut self.records[number];
            record.server_forgot |= record.to == Target::Server(host);
            if record.client == host && record.ending.is_none() {
                self.on_forgotten(now, number as u64);
            }
        }
        self.witness.borrow_mut().on_forgotten(host);
        self.report.closes += 1;
    }

    /// A host restarts: nobody will hear of its RPCs.
    pub fn on_restart(&mut self, now: Instant, host: usize) {
        self.note(now, format!("{} restarts", host + 1));
        self.lives[host] += 1;
        for number in 0..self.records.len() {
            let record = &self.records[number];
            if record.client == host && record.ending.is_none() {
                self.end(now, number as u64, Ending::Died);
            }
        }
        self.witness.borrow_mut().on_forgotten(host);
        self.report.restarts += 1;
    }

    fn end(&mut self, now: Instant, number: u64, ending: Ending) {
        self.note(now, format!("RPC {number} ends: {ending:?}"));
        let before = self.records[number as usize].ending.replace(ending);
        assert_eq!(before, None, "RPC {number} ended once more: {ending:?}");
        let record = &self.records[number as usize];
        self.witness.borrow_mut().on_over(record.client, record.id);
        self.open_count -= 1;
    }

    /// Whether a client heard nothing for as long as a timeout takes, for a reason: the server had
    /// nothing more to say, `is_over`; or it could not be heard; or it could not hear the client,
    /// and gave the RPC up, at once if it was short of slots. Of an RPC that ran it says nothing
    /// then, so that it does not run again.
    fn was_silent(&self, now: Instant, record: &Record, server: usize, is_over: bool) -> bool {
        let (client, witness) = (record.client, self.witness.borrow());
        // What comes just now may come too late.
        let before = Instant(now.0.saturating_sub(MARGIN.0));
        let heard_at = witness.answered_at(client, record.id, before);
        let since = heard_at.unwrap_or(record.started_at);
        let silence = |host, of, since| self.weather.silence(host, of, (since, now));
        let could_not_hear = silence(client, server, since) >= SILENCE_MIN;
        let unheard = silence(server, client, record.started_at);
        let is_short_of_slots = self.gave_up[server] && unheard > Duration::ZERO;
        let was_given_up = unheard >= SILENCE_MIN || is_short_of_slots;
        let is_silent = now.since(since) + MARGIN >= TIMEOUT;
        is_silent && (is_over || could_not_hear || was_given_up)
    }

    /// Whether all three times that a client asked for the way to a server just before, it had no
    /// answer; or it stood still, and who knows when it asked.
    fn had_no_way(&self, now: Instant, record: &Record, server: usize) -> bool {
        /// So long before it gives up.
        const ASKED: [Duration; 3] = [
            Duration::millis(140),
            Duration::millis(120),
            Duration::millis(80),
        ];
        let ago = |span: Duration| Instant(now.0.saturating_sub(span.0));
        let had_no_answer = |asked: Duration| {
            let around = (ago(asked + MARGIN), ago(asked) + MARGIN);
            self.weather.silence(record.client, server, around) > Duration::ZERO
        };
        let lately = (ago(ASKED[0].times(2)), now);
        self.weather.stood_still(record.client, lately) || ASKED.into_iter().all(had_no_answer)
    }

    /// Whether something happened that explains a failure.
    fn is_excused(&self, now: Instant, number: u64, error: Error) -> bool {
        let record = &self.records[number as usize];
        let is_lossy = [Fault::Loss, Fault::Delay, Fault::Corrupt];
        let is_lossy = is_lossy.into_iter().any(|fault| self.faults.has(fault));
        let server = match record.to {
            Target::Nobody => return error == Error::HostUnreachable || record.client_aborted,
            Target::ClosedPort(host) | Target::Server(host) => host,
        };
        let restarted = self.lives[server] != record.server_life;
        // What waits for pages for too long, the other side leaves alone.
        let waited = now.since(record.started_at) >= self.give_up;
        let waited_out = waited && self.is_short;
        match error {
            Error::Canceled => record.client_aborted,
            Error::NotConnected => record.to == Target::ClosedPort(server) || record.server_forgot,
            Error::HostUnreachable => restarted || is_lossy || self.had_no_way(now, record, server),
            Error::PeerTimedOut => {
                // What a new life says in the place of the old one counts for nothing.
                let is_over = record.server_forgot || waited_out;
                restarted || self.was_silent(now, record, server, is_over)
            }
            Error::NoMemory => waited_out,
            _ => false,
        }
    }
}

/// The place in the world of the host with that address.
pub fn host_of(ip: Ip) -> usize {
    (ip.0 as u8 as usize).wrapping_sub(1)
}
