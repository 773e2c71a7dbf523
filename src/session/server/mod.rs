//! A server of sessions.
//!
//! It stands on a socket of the transport's, as a client does. Requests are told as
//! [`ServerEvent::Request`], and ended by [`Server::respond`], now or later. The filter of
//! duplicates (`session::slots`) sees to it that each WRITE is told once, whatever the paths do.
//!
//! | part | does |
//! |---|---|
//! | `open` | opens paths and sessions, and ends them |
//! | `io` | requests, their copies, and their answers |
//! | `time` | acts when something is due: leases, sessions without paths |

mod io;
mod open;
mod time;

use std::collections::{HashMap, VecDeque};

use crate::addr::Ip;
use crate::counters;
use crate::error::Error;
use crate::homa::{self, Endpoint, Message, Notify, Payload, RpcKey, SocketKey};
use crate::keyed::Keyed;
use crate::mem::{Buf, Buffers};
use crate::rng::Rng;
use crate::session::client::draw;
use crate::session::clock::Clock;
use crate::session::event::ServerEvent;
use crate::session::name::Name;
use crate::session::params::ServerParams;
use crate::session::slots::SlotTable;
use crate::session::status;
use crate::slots::{Key, Slots};
use crate::time::{Duration, Instant};
use crate::wire::session::{
    self as wire, Common, HEAD_MAX, IoRequest, IoResponse, Kind, Malformed, Request, Response,
};

pub use io::Op;

pub type SessionKey = Key<Session>;
pub type OpKey = Key<Op>;

/// Send memory for answers without data. Source: 16 bytes for each of 2^20 requests under way.
const HEADS_BYTES: usize = 16 << 20;

/// Most requests under way, of all sessions: more than they have slots.
const OPS_MAX: usize = u32::MAX as usize;

/// A server.
#[derive(Debug)]
pub struct Server {
    params: ServerParams,
    rng: Rng,
    clock: Clock,
    socket: SocketKey,
    /// This life's name.
    uuid: u128,
    sessions: Slots<Session>,
    by_uuid: HashMap<u128, SessionKey, Keyed>,
    by_name: HashMap<Name, SessionKey, Keyed>,
    ops: Slots<Op>,
    /// READs for whose data there is no memory yet.
    stalled: VecDeque<(SessionKey, OpKey)>,
    heads: Buffers,
    reads: Buffers,
    /// Receive pages promised to sessions.
    promised_pages: u64,
    /// No paths are opened; and whether clients are told not to come back.
    paused: Option<bool>,
    /// All is over when the last session is.
    is_closing: bool,
    /// Nothing is due before.
    due_at: Instant,
    events: VecDeque<ServerEvent>,
    stats: Stats,
}

/// A session, as its server has it.
#[derive(Debug)]
pub struct Session {
    /// The client's name for it.
    uuid: u128,
    /// Ours.
    id: u64,
    name: Name,
    consent: Consent,
    /// Its place is its number, from 1.
    paths: Vec<Option<Path>>,
    /// Paths that carry.
    paths_up: u32,
    /// When it is given up for want of a path, if it has none. Here and below in time lived.
    linger_until: Option<Instant>,
    /// Nothing new is taken; it is gone when the last handler has ended.
    is_draining: bool,
    slots: SlotTable<io::Waiter, Buf>,
    io_max: u32,
    user_max: u32,
    beat: Duration,
    missed_max: u16,
    lease: Duration,
    promised_pages: u64,
}

/// Whether the application wants a session.
#[derive(Debug)]
enum Consent {
    /// No path was ready yet.
    NotAsked,
    /// It was asked; these wait for what it says.
    Asked(Vec<(RpcKey, Common)>),
    Given,
}

#[derive(Debug)]
struct Path {
    uuid: u128,
    /// The client's end.
    ip: Ip,
    epoch: u32,
    /// Its session was made by this attempt.
    is_new: bool,
    /// It carries; before, it was only accepted.
    is_up: bool,
    /// Until then it must be ready, if it is not.
    ready_by: Instant,
    /// When it was last heard, in time lived and in time passed.
    heard_lived: Instant,
    heard_at: Instant,
}

counters! {
    /// What a server counted.
    pub struct Stats {
        /// Requests that ran.
        requests,
        /// READs that ran again, as their data was not kept.
        reruns,
        /// Requests answered again.
        replays,
        /// Copies that came while their request ran.
        duplicates_running,
        /// Copies of requests that were over long ago.
        stale,
        /// Copies of requests that had been fenced.
        fenced,
        /// Copies turned away.
        refused,
        /// Sequences that clients skipped.
        sequence_gaps,
        /// Requests that came before the one ahead of them in their slot had ended.
        slot_overlaps,
        /// Messages that made no sense.
        malformed,
        /// Statuses of handlers that were no status.
        bad_statuses,
        /// Answers for which there was no memory.
        reply_stalls,
        /// READs that waited for memory.
        read_stalls,
        /// Replies that were to be kept and could not.
        replies_lost,
        /// Paths opened.
        paths_opened,
        /// Paths dropped as nothing was heard over them.
        leases_expired,
        /// Sessions made.
        sessions_made,
        /// Sessions that are gone.
        sessions_gone,
    }
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// As [`ServerParams::validate`] and [`Endpoint::open`].
    pub fn open(now: Instant, homa: &mut Endpoint, params: ServerParams) -> Result<Self, Error> {
        params.validate()?;
        let socket = homa.open(params.port)?;
        homa.set_server(socket, true);
        let mut rng = Rng::new(params.seed);
        let keyed = Keyed::new(rng.next_u64());
        Ok(Self {
            uuid: draw(&mut rng),
            rng,
            clock: Clock::new(now),
            socket,
            // Those that are going leave room for those that come.
            sessions: Slots::new(params.sessions_max + open::DRAINING_MAX),
            by_uuid: HashMap::with_hasher(keyed),
            by_name: HashMap::with_hasher(keyed),
            ops: Slots::new(OPS_MAX),
            stalled: VecDeque::new(),
            heads: Buffers::new(HEADS_BYTES),
            reads: Buffers::new(params.read_bytes),
            promised_pages: 0,
            paused: None,
            is_closing: false,
            due_at: Instant(u64::MAX),
            events: VecDeque::new(),
            stats: Stats::default(),
            params,
        })
    }

    /// The socket whose events are for [`Self::handle_event`].
    pub fn socket(&self) -> SocketKey {
        self.socket
    }

    /// This life's name.
    pub fn uuid(&self) -> u128 {
        self.uuid
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// When [`Self::poll`] is needed even if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.due_at < Instant(u64::MAX)).then(|| self.clock.wake_at(self.due_at))
    }

    /// Sessions that exist, those that are going included.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Requests that were told and not answered.
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// Paths of all sessions that carry.
    pub fn paths_up(&self) -> u32 {
        self.sessions
            .iter()
            .map(|(_, session)| session.paths_up)
            .sum()
    }

    /// The name that a session's client gave it.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if it has no path, or is gone.
    pub fn session_name(&self, session: SessionKey) -> Result<&str, Error> {
        let session = self
            .sessions
            .get(session)
            .filter(|session| session.paths_up > 0);
        session
            .map(|session| session.name.as_str())
            .ok_or(Error::NotConnected)
    }

    /// Slots of a session.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if it is gone.
    pub fn queue_depth(&self, session: SessionKey) -> Result<u32, Error> {
        let session = self.sessions.get(session).ok_or(Error::NotConnected)?;
        Ok(session.slots.len())
    }

    /// Tells what happened at [`Self::socket`].
    pub fn handle_event(&mut self, now: Instant, homa: &mut Endpoint, event: homa::Event) {
        self.clock.live(now);
        match event {
            homa::Event::Request { rpc, .. } => {
                if let Some(message) = homa.take(rpc) {
                    self.on_message(now, homa, message);
                }
            }
            // It calls nobody, and wants to be told of no bytes.
            homa::Event::Response { .. }
            | homa::Event::Failed { .. }
            | homa::Event::Released { .. } => {}
        }
    }

    fn on_message(&mut self, now: Instant, homa: &mut Endpoint, message: Message) {
        let mut head = [0; HEAD_MAX];
        let head = &mut head[..HEAD_MAX.min(message.len as usize)];
        homa.region().read(message.offset as usize, head);
        let keeps = match wire::parse_request(head, message.len) {
            Ok((common, Request::PathOpen(open))) => {
                self.on_open(now, homa, &message, common, &open);
                false
            }
            Ok((common, Request::PathReady(list))) => {
                self.on_ready(now, homa, &message, common, list);
                false
            }
            Ok((common, Request::SlotResolve(list))) => {
                self.on_resolve(now, homa, &message, common, list);
                false
            }
            Ok((common, Request::Heartbeat(beat))) => {
                self.on_beat(now, homa, &message, common, beat);
                false
            }
            Ok((common, Request::PathClose(_))) => {
                self.on_path_close(now, homa, &message, common);
                false
            }
            Ok((common, Request::SessionClose(_))) => {
                self.on_session_close(now, homa, &message, common);
                false
            }
            Ok((common, Request::Read(io))) => {
                self.on_io(now, homa, io::Waiter::new(message, common, io, Kind::Read))
            }
            Ok((common, Request::Write(io))) => {
                self.on_io(now, homa, io::Waiter::new(message, common, io, Kind::Write))
            }
            Err(malformed) => {
                self.on_malformed(now, homa, &message, malformed);
                false
            }
        };
        if !keeps {
            homa.release(now, message.run);
        }
    }

    /// Stories 12 and 13: nothing of what it says was looked at any further.
    fn on_malformed(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        malformed: Malformed,
    ) {
        self.stats.malformed += 1;
        let status = match malformed {
            Malformed::Version => status::VERSION,
            Malformed::Short
            | Malformed::Magic
            | Malformed::Type
            | Malformed::HeaderLen
            | Malformed::Checksum
            | Malformed::Field => status::PROTOCOL,
        };
        let answer = answer_to(&IoRequest::default(), wire::Outcome::Refused, status);
        let common = Common::default();
        self.reply(
            now,
            homa,
            message.rpc,
            (&Response::Read(answer), common, &[]),
        );
    }

    /// Answers an RPC. Without memory for it the RPC ends: the client finds out in time, and asks
    /// again.
    fn reply(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        rpc: RpcKey,
        (response, common, tail): (&Response, Common, &[u8]),
    ) {
        let mut head = [0; HEAD_MAX];
        let head_len = response.emit(&common, &mut head);
        let message = self.heads.alloc(head_len + tail.len()).and_then(|mut buf| {
            let out = buf.make_mut()?;
            out[..head_len].copy_from_slice(&head[..head_len]);
            out[head_len..].copy_from_slice(tail);
            Some(buf)
        });
        let sent = match message {
            Some(buf) => homa.send_response(now, rpc, Payload::Buffer(buf), Notify::Never),
            None => Err(Error::Exhausted),
        };
        if sent.is_err() {
            self.stats.reply_stalls += 1;
            homa.forget(now, rpc);
        }
    }

    /// The session that a message names.
    fn find(&self, common: Common) -> Option<SessionKey> {
        let (key, session) = self.sessions.at((common.session as u16).into())?;
        (session.id == common.session).then_some(key)
    }

    /// Something is due at that moment of the time lived.
    fn due_by(&mut self, at: Instant) {
        self.due_at = self.due_at.min(at);
    }
}

impl Session {
    /// The path that a message came over; an error for one that is not known, or not any more.
    fn path_of(&mut self, common: Common, ip: Ip) -> Result<&mut Path, i32> {
        let place = usize::from(common.path).wrapping_sub(1);
        let path = self.paths.get_mut(place).and_then(Option::as_mut);
        let path = path.filter(|path| path.ip == ip);
        match path {
            Some(path) if path.epoch == common.epoch => Ok(path),
            Some(_) => Err(status::STALE),
            None => Err(status::NOT_CONNECTED),
        }
    }
}

/// An answer to a copy, without data.
fn answer_to(io: &IoRequest, outcome: wire::Outcome, status: i32) -> IoResponse {
    IoResponse {
        sequence: io.sequence,
        slot: io.slot,
        outcome,
        is_replayed: false,
        status,
        data_len: 0,
        queued: 0,
    }
}
