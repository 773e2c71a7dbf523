//! Opens paths, keeps them alive, and moves requests away from those that are lost.

use crate::addr::Ip;
use crate::error::Error;
use crate::homa::{Endpoint, RpcKey};
use crate::session::address::PathAddr;
use crate::session::client::request::Stage;
use crate::session::client::{Client, Errand, State, draw};
use crate::session::event::LinkEvent;
use crate::session::path::{PathEvent, PathState, Then, step};
use crate::session::policy::{PathSet, View};
use crate::session::status;
use crate::slots::Key;
use crate::time::{Duration, Instant};
use crate::wire::session::{Close, Common, HEAD_MAX, Heartbeat, OpenRequest, Request};

pub type PathKey = Key<Path>;

/// How long a path waits for the answer to its farewell.
const FAREWELL: Duration = Duration::millis(500);

/// Least wait before a path is opened again.
const RECONNECT_MIN: Duration = Duration::millis(20);

/// One way to the server.
#[derive(Debug)]
pub struct Path {
    pub(super) address: PathAddr,
    uuid: u128,
    pub(super) state: PathState,
    /// It is to be removed once it has parted.
    is_leaving: bool,
    /// Which attempt to open it this is.
    pub(super) epoch: u32,
    /// Attempts since it was up last.
    attempts: u32,
    /// The server's name for it; 0 before the server has accepted this attempt.
    pub(super) id: u16,
    /// The session's life in which this attempt began.
    pub(super) life: u32,
    /// The RPC that opens it, readies it, or says farewell.
    pub(super) call: Option<(RpcKey, u32)>,
    pub(super) beat: Option<Beat>,
    /// When the state's time is over, if it has one. Here and below in time lived.
    pub(super) due_at: Instant,
    pub(super) beat_due_at: Instant,
    /// Times that no heartbeat was needed, in a row.
    pub(super) beats_spared: u32,
    /// Heartbeats not answered since the server was heard last.
    pub(super) missed: u16,
    pub(super) sent_at: Instant,
    pub(super) heard_at: Instant,
    /// Requests given up by the transport though the server was heard, since that moment.
    pub(super) singles: (u32, Instant),
    pub(super) last_status: i32,
    was_up: bool,
}

/// A heartbeat that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    pub rpc: RpcKey,
    pub count: u32,
    pub sent_at: Instant,
}

/// What can be asked of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    pub key: PathKey,
    pub address: PathAddr,
    pub state: PathState,
    pub epoch: u32,
    /// Attempts since it was up last.
    pub attempts: u32,
    /// Why it was lost last.
    pub last_status: i32,
    pub inflight: u32,
    pub inflight_bytes: u64,
    pub latency_ns: Option<u64>,
}

impl Path {
    pub(super) fn is_closed(&self) -> bool {
        match self.state {
            PathState::Closed | PathState::Removed => true,
            PathState::Connecting
            | PathState::Connected
            | PathState::Reconnecting
            | PathState::Closing => false,
        }
    }
}

impl Client {
    /// All paths, in no order that means anything.
    pub fn paths(&self) -> impl Iterator<Item = PathInfo> {
        self.paths.iter().map(|(key, path)| {
            let place = key.index() as u8;
            let view = self.views.iter().find(|view| view.path == place);
            let view = view.copied().unwrap_or_default();
            PathInfo {
                key,
                address: path.address,
                state: path.state,
                epoch: path.epoch,
                attempts: path.attempts,
                last_status: path.last_status,
                inflight: view.inflight,
                inflight_bytes: view.inflight_bytes,
                latency_ns: view.latency_ns,
            }
        })
    }

    /// Adds a path; [`LinkEvent::PathUp`] or [`LinkEvent::PathFailed`] tells what became of it.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is one of that address, [`Error::TooManyPaths`],
    /// [`Error::Shutdown`] if the session closes.
    pub fn add_path(&mut self, address: PathAddr) -> Result<PathKey, Error> {
        self.check_open()?;
        self.start_path(address)
    }

    /// Takes a path away, after a farewell to the server.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`]; [`Error::Busy`] if it is the last one, unless `even_last`.
    pub fn remove_path(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        even_last: bool,
    ) -> Result<(), Error> {
        self.paths.get(key).ok_or(Error::NoSuchPath)?;
        let staying = self.paths.iter().filter(|(_, path)| !path.is_leaving);
        let staying = staying.count();
        if !even_last && staying <= 1 {
            return Err(Error::Busy);
        }
        self.apply(now, homa, key, PathEvent::Remove);
        Ok(())
    }

    /// Takes a path out of use; it is opened again when [`Self::reconnect_path`] says so.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`].
    pub fn disconnect_path(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
    ) -> Result<(), Error> {
        self.paths.get(key).ok_or(Error::NoSuchPath)?;
        self.apply(now, homa, key, PathEvent::Disconnect);
        Ok(())
    }

    /// Opens a path again, now, unless it is being opened already.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`], also for one that is being removed; [`Error::Shutdown`] if the
    /// session closes.
    pub fn reconnect_path(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
    ) -> Result<(), Error> {
        self.check_open()?;
        let path = self.paths.get(key).filter(|path| !path.is_leaving);
        path.ok_or(Error::NoSuchPath)?;
        self.apply(now, homa, key, PathEvent::Reconnect);
        Ok(())
    }

    /// The link under a local address has gone: paths that begin there are lost at once.
    pub fn handle_link_down(&mut self, now: Instant, homa: &mut Endpoint, local: Ip) {
        let begins_there = |path: &Path| path.address.source == Some(local);
        for key in self.path_keys() {
            if self.paths.get(key).is_some_and(begins_there) {
                self.lose(now, homa, key, status::LINK_DOWN, Duration::ZERO);
            }
        }
    }

    pub(super) fn path_keys(&self) -> Vec<PathKey> {
        self.paths.iter().map(|(key, _)| key).collect()
    }

    /// A new path, which is opened by the next turn.
    pub(super) fn start_path(&mut self, address: PathAddr) -> Result<PathKey, Error> {
        if self.paths.iter().any(|(_, path)| path.address == address) {
            return Err(Error::Exists);
        }
        let lived = self.clock.lived();
        let path = Path {
            address,
            uuid: draw(&mut self.rng),
            state: PathState::Reconnecting,
            is_leaving: false,
            epoch: 0,
            attempts: 0,
            id: 0,
            life: self.life,
            call: None,
            beat: None,
            due_at: lived,
            beat_due_at: lived,
            beats_spared: 0,
            missed: 0,
            sent_at: lived,
            heard_at: lived,
            singles: (0, lived),
            last_status: 0,
            was_up: false,
        };
        self.due_by(lived);
        self.paths.insert(path).ok_or(Error::TooManyPaths)
    }

    /// A path cannot be opened, or does not carry any more. It is tried again after its delay, or
    /// after `retry_after` if that is longer.
    pub(super) fn lose(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        status: i32,
        retry_after: Duration,
    ) {
        let retries = status::is_retryable(status);
        self.lose_with(now, homa, key, status, (retries, retry_after));
    }

    /// As [`Self::lose`], and says whether such a loss is to be tried again at all.
    pub(super) fn lose_with(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        status: i32,
        (retries, retry_after): (bool, Duration),
    ) {
        let lived = self.clock.lived();
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        if !matches!(path.state, PathState::Connecting | PathState::Connected) {
            return; // It is lost already.
        }
        path.last_status = status;
        if path.was_up && path.state == PathState::Connecting {
            self.stats.reconnects_failed += 1;
        }
        let left = self
            .params
            .reconnects_max
            .is_none_or(|max| path.attempts < max);
        let delay = self.params.reconnect_delay;
        let jitter = Duration(self.rng.below(delay.0 / 2 + 1));
        path.due_at = lived + (delay + jitter).max(RECONNECT_MIN).max(retry_after);
        if let State::Opening { status: first, .. } = &mut self.state
            && *first == 0
        {
            *first = status;
        }
        let retries = retries && left;
        self.apply(now, homa, key, PathEvent::Lost { retries });
    }

    /// Takes a path from one state to the next.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        event: PathEvent,
    ) {
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        let Some(step) = step(path.state, event) else {
            self.stats.bad_transitions += 1;
            return;
        };
        path.state = step.next;
        path.is_leaving |= event == PathEvent::Remove;
        if step.goes_down {
            self.take_down(now, homa, key);
        }
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        if step.then != Then::NoteRemoval
            && let Some((rpc, _)) = path.call.take()
        {
            homa.forget(now, rpc);
        }
        self.begin_state(now, homa, key, step.then);
    }

    fn begin_state(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey, then: Then) {
        let lived = self.clock.lived();
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        match then {
            Then::Nothing | Then::NoteRemoval => {}
            Then::SendOpen => self.send_open(now, homa, key),
            Then::SendReady => self.send_ready(now, homa, key),
            Then::GoUp => self.go_up(key),
            Then::Wait => {
                let due_at = path.due_at;
                self.due_by(due_at);
            }
            Then::StartOver => {
                path.attempts = 0;
                path.due_at = lived;
                self.due_by(lived);
            }
            Then::Fail => {
                let status = path.last_status;
                self.tell(LinkEvent::PathFailed { path: key, status });
                self.due_by(lived);
            }
            Then::SayFarewell => self.say_farewell(now, homa, key),
            Then::Unlink => {
                self.paths.remove(key);
                self.due_by(lived);
            }
        }
    }

    fn send_open(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        let lived = self.clock.lived();
        let (life, beat) = (self.server.and_then(|server| server.life), self.params.beat);
        // A depth and a length that were promised to the user must be had again.
        let (queue_depth, io_max, user_max) = match &self.server {
            Some(server) => (server.queue_depth, server.io_max, server.user_max),
            None => (self.params.queue_depth, self.params.io_max, 0),
        };
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        path.epoch += 1;
        path.attempts = path.attempts.saturating_add(1);
        path.id = 0;
        path.life = self.life;
        path.due_at = lived + self.params.connect_timeout;
        let due_at = path.due_at;
        let open = OpenRequest {
            session_uuid: self.uuid,
            path_uuid: path.uuid,
            expected_server: life.map_or(0, |life| life.uuid),
            resumed: life.map_or(0, |life| life.session),
            may_create: life.is_none(),
            queue_depth,
            io_max,
            user_max,
            beat_ms: beat.as_millis() as u32,
            missed_max: self.params.missed_max,
            name_len: self.params.name.as_str().len() as u16,
        };
        let common = Common {
            epoch: path.epoch,
            ..Common::default()
        };
        let name = self.params.name.clone();
        self.due_by(due_at);
        self.call_path(
            now,
            homa,
            key,
            &Request::PathOpen(open),
            common,
            name.as_str().as_bytes(),
        );
    }

    /// Sends a message about a path itself. If there is no room, its state's time runs out.
    pub(super) fn call_path(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        request: &Request,
        common: Common,
        tail: &[u8],
    ) {
        let Some(to) = self.paths.get(key).map(|path| path.address.destination) else {
            return;
        };
        let errand = Errand::Path(key.index());
        let call = self.call_admin(now, homa, to, errand, (request, common, tail));
        if let Some(path) = self.paths.get_mut(key) {
            path.call = call;
        }
    }

    /// Sends a message that is not a request of the user's. `None` if there is no room for it.
    pub(super) fn call_admin(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        to: Ip,
        errand: Errand,
        (request, common, tail): (&Request, Common, &[u8]),
    ) -> Option<(RpcKey, u32)> {
        let mut header = [0; HEAD_MAX];
        let head_len = request.emit(&common, &mut header);
        let mut message = self.buffers.alloc(head_len + tail.len())?;
        let out = message.make_mut()?;
        out[..head_len].copy_from_slice(&header[..head_len]);
        out[head_len..].copy_from_slice(tail);
        self.call(homa, now, to, errand, message).ok()
    }

    /// What each message over a path says.
    pub(super) fn common_of(&self, key: PathKey) -> Option<Common> {
        let path = self.paths.get(key)?;
        Some(Common {
            session: self.server?.life?.session,
            path: path.id,
            epoch: path.epoch,
            ..Common::default()
        })
    }

    fn go_up(&mut self, key: PathKey) {
        let lived = self.clock.lived();
        let beat_due_at = lived + self.params.beat;
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        path.attempts = 0;
        path.missed = 0;
        path.singles = (0, lived);
        (path.sent_at, path.heard_at) = (lived, lived);
        path.beat_due_at = beat_due_at;
        self.stats.reconnects += u64::from(std::mem::replace(&mut path.was_up, true));
        self.views.push(View {
            path: key.index() as u8,
            ..View::default()
        });
        self.is_stalled = false;
        self.tell(LinkEvent::PathUp(key));
        if self.down_since.take().is_some() {
            self.tell(LinkEvent::Reconnected);
        }
        self.due_by(beat_due_at.min(lived));
    }

    /// A path does not carry requests any more: they will be sent over others.
    fn take_down(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        let lived = self.clock.lived();
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        if let Some(beat) = path.beat.take() {
            homa.forget(now, beat.rpc);
        }
        let status = path.last_status;
        self.views.retain(|view| view.path != key.index() as u8);
        self.asking.path_lost(now, homa, key);
        let on_it = |stage: Stage| match stage {
            Stage::Sent(copied) => (copied.path == key).then_some(copied),
            Stage::Idle | Stage::Queued | Stage::Asking(_) | Stage::Quarantined => None,
        };
        for slot in self.requests.find(|request| on_it(request.stage).is_some()) {
            let request = self.requests.get_mut(slot);
            if let Some(copied) = on_it(request.stage) {
                homa.forget(now, copied.rpc);
            }
            request.lost_at = lived;
            request.tried = PathSet::default();
            self.stats.failovers += 1;
            self.requeue(slot);
        }
        self.tell(LinkEvent::PathDown { path: key, status });
        if self.views.is_empty() {
            self.down_since = Some(lived);
            self.tell(LinkEvent::Disconnected);
        }
        self.due_by(lived);
    }

    /// Tells the server that the path is over, if the server knows it.
    fn say_farewell(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        let due_at = self.clock.lived() + FAREWELL;
        let common = self.common_of(key).filter(|common| common.path != 0);
        let Some(common) = common else {
            return self.part(now, homa, key);
        };
        let request = Request::PathClose(Close::default());
        self.call_path(now, homa, key, &request, common, &[]);
        if let Some(path) = self.paths.get_mut(key) {
            path.due_at = due_at;
        }
        self.due_by(due_at);
    }

    /// Farewell was said, or nobody listens.
    pub(super) fn part(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        if let Some(path) = self.paths.get_mut(key) {
            path.id = 0;
            let removed = path.is_leaving;
            self.apply(now, homa, key, PathEvent::Parted { removed });
        }
    }

    /// Sends a heartbeat, or finds the path lost because too many were not answered.
    pub(super) fn beat(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        /// Beats spared in a row after which one is sent all the same, to measure.
        const SPARED_MAX: u32 = 10;
        let (lived, interval) = (self.clock.lived(), self.params.beat);
        let measures = self.picker.policy == crate::session::Policy::MinLatency;
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        path.beat_due_at = lived + interval;
        if let Some(beat) = path.beat.take() {
            homa.forget(now, beat.rpc);
            if self.miss(now, homa, key) {
                return;
            }
        }
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        // Both ways: a slow handler answers for long while the server hears nothing.
        let is_recent = |at: Instant| lived.since(at) < interval;
        let is_busy = is_recent(path.sent_at) && is_recent(path.heard_at);
        if is_busy && !(measures && path.beats_spared >= SPARED_MAX) {
            path.beats_spared += 1;
            return;
        }
        path.beats_spared = 0;
        path.sent_at = lived;
        let to = path.address.destination;
        let Some(common) = self.common_of(key) else {
            return;
        };
        let beat = Request::Heartbeat(Heartbeat {
            at_ns: lived.0,
            count: self.rpc_count,
            inflight: self.requests.open,
            status: 0,
        });
        let errand = Errand::Beat(key.index());
        let sent = self.call_admin(now, homa, to, errand, (&beat, common, &[]));
        self.stats.beats += 1;
        if let Some(path) = self.paths.get_mut(key) {
            path.beat = sent.map(|(rpc, count)| Beat {
                rpc,
                count,
                sent_at: lived,
            });
        }
    }

    /// A heartbeat was not answered; true if that was one too many.
    pub(super) fn miss(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) -> bool {
        let Some(path) = self.paths.get_mut(key) else {
            return true;
        };
        path.missed += 1;
        self.stats.beats_missed += 1;
        let is_lost = path.missed > self.params.missed_max;
        if is_lost {
            self.lose(now, homa, key, status::TIMED_OUT, Duration::ZERO);
        }
        is_lost
    }
}
