//! A client's session: one server, several paths.
//!
//! It stands on a socket of the transport's and is turned with it: what happens to the socket's
//! RPCs is told by [`Client::handle_event`], time by [`Client::poll`], and
//! [`Client::poll_event`] tells what the user should know.
//!
//! | part | does |
//! |---|---|
//! | `request` | what is known of each slot's request |
//! | `send` | takes requests and sends copies of them |
//! | `paths` | opens paths, and moves requests away from those that are lost |
//! | `input` | reads answers |
//! | `resolve` | finds out what became of requests that nobody answered |
//! | `time` | acts when something is due |
//! | `end` | what happens when the server, or all paths, or the session itself is gone |

mod end;
mod input;
mod paths;
mod request;
mod resolve;
mod send;
mod time;

use std::collections::VecDeque;

use crate::addr::Addr;
use crate::counters;
use crate::error::Error;
use crate::homa::{Endpoint, Notify, Payload, RpcKey, SocketKey};
use crate::mem::{Buf, Buffers};
use crate::rng::Rng;
use crate::session::clock::Clock;
use crate::session::event::{ClientEvent, LinkEvent};
use crate::session::params::ClientParams;
use crate::session::permits::{Permit, Permits, Purpose};
use crate::session::policy::{PATHS_MAX, Picker, Policy, View};
use crate::slots::Slots;
use crate::time::{Duration, Instant};

pub use paths::{Path, PathInfo, PathKey};
pub use request::Flags;
pub use send::Gather;

use request::Requests;

/// A session, as its client has it.
#[derive(Debug)]
pub struct Client {
    params: ClientParams,
    rng: Rng,
    clock: Clock,
    socket: SocketKey,
    buffers: Buffers,
    state: State,
    /// The session's name for itself, drawn anew when the server has lost it.
    uuid: u128,
    /// Goes up when the server has lost the session.
    life: u32,
    /// The server, once it is known which.
    server: Option<Server>,
    paths: Slots<Path>,
    /// Of the paths that are up.
    views: Vec<View>,
    picker: Picker,
    permits: Permits,
    requests: Requests,
    /// Slots whose requests wait to be sent, or sent again.
    queue: VecDeque<u16>,
    /// Since when no path is up.
    down_since: Option<Instant>,
    /// The transport had no room for the queue's first; it is tried again when something is due.
    is_stalled: bool,
    asking: resolve::Asking,
    /// Of the latest RPC: tells those that are over from those under way.
    rpc_count: u32,
    /// Nothing is due before.
    due_at: Instant,
    events: VecDeque<ClientEvent>,
    stats: Stats,
}

/// How far the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening {
        until: Instant,
        status: i32,
    },
    /// It was opened; whether a path is up, `views` tells.
    Open,
    /// Requests end; no new ones come.
    Closing {
        until: Instant,
    },
    /// The server is told, if it listens.
    Parting {
        until: Instant,
    },
    Closed,
}

/// What the session knows of its server.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Its name for itself: another server is the wrong one for ever.
    id: u128,
    /// Its life and the session's number in it, unless that life is over.
    life: Option<ServerLife>,
    queue_depth: u32,
    io_max: u32,
    user_max: u32,
    lease: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerLife {
    uuid: u128,
    session: u64,
}

/// What can be asked of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    pub queue_depth: u32,
    pub io_max: u32,
    pub user_max: u32,
    pub segments_max: usize,
    pub paths: usize,
    pub paths_up: usize,
    /// This life of the server.
    pub server_uuid: u128,
}

counters! {
    /// What a client's session counted.
    pub struct Stats {
        /// READs that ended.
        reads,
        /// Bytes that they read.
        read_bytes,
        /// WRITEs that ended.
        writes,
        /// Bytes that they wrote.
        write_bytes,
        /// Requests sent again as their path was lost.
        failovers,
        /// Requests sent again though their path was not lost.
        single_retries,
        /// Answers that the server had given before.
        replays,
        /// Copies that the server turned away.
        refused,
        /// Answers to copies that were not waited for any more.
        late_responses,
        /// Answers that made no sense.
        bad_responses,
        /// Events that made no sense in a path's state.
        bad_transitions,
        /// Heartbeats sent.
        beats,
        /// Heartbeats that nobody answered.
        beats_missed,
        /// Paths that were up again after they were lost.
        reconnects,
        /// Attempts to open a path again that failed.
        reconnects_failed,
        /// Requests that had to wait as the transport had no room.
        stalls,
        /// Requests of which nobody knows what became.
        unknown_outcomes,
        /// Requests found not to have run, and fenced.
        resolved_not_executed,
        /// Requests found to be running.
        resolved_in_progress,
        /// Requests found to have run.
        resolved_done,
        /// Requests that took too long.
        io_timeouts,
        /// Times that the server had lost the session.
        sessions_lost,
    }
}

/// What an RPC of the session's is for; part of its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    /// A copy of the request of that slot.
    Io(u16),
    /// To open a path, to ready it or to say farewell.
    Path(u32),
    /// A heartbeat of that path.
    Beat(u32),
    Resolve,
    Farewell,
}

impl Errand {
    const SHIFT: u32 = 60;

    fn tag(self, count: u32) -> u64 {
        let (kind, place) = match self {
            Self::Io(slot) => (0, u64::from(slot)),
            Self::Path(place) => (1, u64::from(place)),
            Self::Beat(place) => (2, u64::from(place)),
            Self::Resolve => (3, 0),
            Self::Farewell => (4, 0),
        };
        kind << Self::SHIFT | place << 32 | u64::from(count)
    }

    fn of_tag(tag: u64) -> (Self, u32) {
        let place = (tag >> 32) as u16;
        let errand = match tag >> Self::SHIFT {
            0 => Self::Io(place),
            1 => Self::Path(place.into()),
            2 => Self::Beat(place.into()),
            3 => Self::Resolve,
            _ => Self::Farewell,
        };
        (errand, tag as u32)
    }
}

impl Client {
    /// Begins to open a session; [`ClientEvent::Opened`] tells how that ended.
    ///
    /// # Errors
    /// As [`ClientParams::validate`] and [`Endpoint::open`].
    pub fn open(now: Instant, homa: &mut Endpoint, params: ClientParams) -> Result<Self, Error> {
        params.validate()?;
        let socket = homa.open(0)?;
        let mut rng = Rng::new(params.seed);
        let clock = Clock::new(now);
        let mut client = Self {
            uuid: draw(&mut rng),
            rng,
            clock,
            socket,
            // Grows with the session's depth, once that is known.
            buffers: Buffers::new(time::ADMIN_BYTES),
            state: State::Opening {
                until: now + params.connect_timeout,
                status: 0,
            },
            life: 0,
            server: None,
            paths: Slots::new(PATHS_MAX),
            views: Vec::with_capacity(PATHS_MAX),
            picker: Picker::default(),
            permits: Permits::new(0, 0),
            requests: Requests::new(0),
            queue: VecDeque::new(),
            down_since: None,
            is_stalled: false,
            asking: resolve::Asking::default(),
            rpc_count: 0,
            due_at: now,
            events: VecDeque::new(),
            stats: Stats::default(),
            params,
        };
        client.picker.policy = client.params.policy;
        for path in client.params.paths.clone() {
            client.start_path(path)?;
        }
        Ok(client)
    }

    /// The socket whose events are for [`Self::handle_event`].
    pub fn socket(&self) -> SocketKey {
        self.socket
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// When [`Self::poll`] is needed even if nothing arrives; `None` once the session is closed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due_at = match self.can_send() {
            true => self.clock.lived() + Duration::nanos(1),
            false => self.due_at,
        };
        (self.state != State::Closed).then(|| self.clock.wake_at(due_at))
    }

    /// Nothing more comes of it, and it holds nothing.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Counts anew.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// # Errors
    /// [`Error::NoPath`] if no path is up.
    pub fn attrs(&self) -> Result<Attrs, Error> {
        let server = self.server.filter(|_| !self.views.is_empty());
        let server = server.ok_or(Error::NoPath)?;
        Ok(Attrs {
            queue_depth: server.queue_depth,
            io_max: server.io_max,
            user_max: server.user_max,
            segments_max: self.params.segments_max,
            paths: self.paths.len(),
            paths_up: self.views.len(),
            server_uuid: server.life.map_or(0, |life| life.uuid),
        })
    }

    pub fn set_policy(&mut self, policy: Policy) {
        self.picker.policy = policy;
    }

    /// `None`: for ever.
    pub fn set_reconnects_max(&mut self, reconnects_max: Option<u32>) {
        self.params.reconnects_max = reconnects_max;
    }

    /// A permit to send one request at a time.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if none is free, [`Error::NotConnected`] if the session is not open,
    /// [`Error::Shutdown`] if it closes.
    pub fn get_permit(&mut self, purpose: Purpose) -> Result<Permit, Error> {
        self.check_open()?;
        self.permits.get(purpose)
    }

    /// Waits for a permit; [`ClientEvent::Permit`] brings `tag` back.
    ///
    /// # Errors
    /// As [`Self::get_permit`], but that it waits.
    pub fn wait_permit(&mut self, purpose: Purpose, tag: u64) -> Result<(), Error> {
        self.check_open()?;
        self.permits.wait(purpose, tag);
        self.grant();
        Ok(())
    }

    /// Gives a permit back.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if it is void, [`Error::Busy`] while its request is under way.
    pub fn put_permit(&mut self, permit: Permit) -> Result<(), Error> {
        let slot = self.permits.slot_of(permit)?;
        let is_clear = match self.requests.get(slot).stage {
            request::Stage::Idle => true,
            request::Stage::Quarantined => false,
            request::Stage::Queued | request::Stage::Sent(_) | request::Stage::Asking(_) => {
                return Err(Error::Busy);
            }
        };
        self.permits.put(permit, is_clear)?;
        self.grant();
        if matches!(self.state, State::Closing { .. }) {
            self.due_by(self.clock.lived());
        }
        Ok(())
    }

    /// The application's own memory in a permit.
    ///
    /// # Errors
    /// [`Error::BadDescriptor`] if the permit is void.
    pub fn pdu(&mut self, permit: Permit) -> Result<&mut [u8], Error> {
        self.permits.pdu(permit)
    }

    /// The permit whose own memory begins `offset` bytes behind that of slot 0.
    pub fn permit_of_pdu(&self, offset: usize) -> Option<Permit> {
        self.permits.of_pdu(offset)
    }

    /// Permits that are free, held, and held back until what became of their request is known.
    pub fn permit_counts(&self) -> (usize, usize, usize) {
        let permits = &self.permits;
        (
            permits.free_count(),
            permits.held_count(),
            permits.quarantined_count(),
        )
    }

    fn check_open(&self) -> Result<(), Error> {
        match self.state {
            State::Opening { .. } => Err(Error::NotConnected),
            State::Open => Ok(()),
            State::Closing { .. } | State::Parting { .. } | State::Closed => Err(Error::Shutdown),
        }
    }

    /// Hands permits to those who wait.
    fn grant(&mut self) {
        while let Some((tag, permit)) = self.permits.poll_granted() {
            let permit = Some(permit);
            self.events.push_back(ClientEvent::Permit { tag, permit });
        }
    }

    /// Something waits to be sent, and nothing is known to be in its way.
    fn can_send(&self) -> bool {
        !self.queue.is_empty() && !self.views.is_empty() && !self.is_stalled
    }

    fn tell(&mut self, event: LinkEvent) {
        let is_told = match self.state {
            State::Open | State::Closing { .. } => true,
            State::Opening { .. } | State::Parting { .. } | State::Closed => false,
        };
        if is_told {
            self.events.push_back(ClientEvent::Link(event));
        }
    }

    /// Something is due at that moment of the time lived.
    fn due_by(&mut self, at: Instant) {
        self.due_at = self.due_at.min(at);
    }

    /// Sends an RPC; gives its key and its number.
    fn call(
        &mut self,
        homa: &mut Endpoint,
        now: Instant,
        to: crate::addr::Ip,
        errand: Errand,
        message: Buf,
    ) -> Result<(RpcKey, u32), Error> {
        self.rpc_count = self.rpc_count.wrapping_add(1);
        let (count, to) = (self.rpc_count, Addr::new(to, self.params.port));
        let tag = errand.tag(count);
        let payload = Payload::Buffer(message);
        let (rpc, _) = homa.send_request(now, self.socket, to, payload, tag, Notify::Never)?;
        Ok((rpc, count))
    }
}

/// A name nobody else has drawn; never 0.
pub(super) fn draw(rng: &mut Rng) -> u128 {
    (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_leads_back_to_its_errand() {
        let errands = [
            Errand::Io(u16::MAX),
            Errand::Path(127),
            Errand::Beat(0),
            Errand::Resolve,
            Errand::Farewell,
        ];
        for errand in errands {
            assert_eq!(Errand::of_tag(errand.tag(u32::MAX)), (errand, u32::MAX));
        }
    }
}
