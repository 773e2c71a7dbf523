//! Reads answers.

use crate::error::Error;
use crate::homa::{self, Endpoint, Message};
use crate::session::client::request::{Copied, Stage, Why};
use crate::session::client::{Client, Errand, PathKey, Server, ServerLife, State, resolve};
use crate::session::event::{Outcome, Received};
use crate::session::params::{DEPTH_MAX, USER_MAX, is_io_max, message_max};
use crate::session::path::{PathEvent, PathState};
use crate::session::permits::Permits;
use crate::session::status;
use crate::time::{Duration, Instant};
use crate::wire::session::{
    self as wire, Common, HEAD_MAX, IoRequest, IoResponse, OpenResponse, Response,
};

/// Data of requests whose latency tells something of the path.
const SMALL: u32 = 4096;

/// So many requests that were given up within [`SINGLES_SPAN`], though the server was heard, and
/// the path counts as lost.
const SINGLES_MAX: u32 = 3;
const SINGLES_SPAN: Duration = Duration::secs(1);

impl Client {
    /// Tells what happened to an RPC of [`Self::socket`].
    pub fn handle_event(&mut self, now: Instant, homa: &mut Endpoint, event: homa::Event) {
        self.clock.live(now);
        match event {
            homa::Event::Response { tag, message, .. } => {
                if !self.on_response(now, homa, tag, &message) {
                    homa.release(now, message.run);
                }
            }
            homa::Event::Failed { tag, error, .. } => self.on_failed(now, homa, tag, error),
            // It serves nobody, and wants to be told of no bytes.
            homa::Event::Request { .. } | homa::Event::Released { .. } => {}
        }
    }

    /// True if the message's bytes are the user's now.
    fn on_response(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        tag: u64,
        message: &Message,
    ) -> bool {
        let (errand, count) = Errand::of_tag(tag);
        let parsed = parse(homa, message);
        match errand {
            Errand::Io(slot) => return self.on_io(now, homa, (slot, count), parsed, message),
            Errand::Path(place) => {
                // Only of the attempt that is under way: numbers begin anew in another life.
                if let Ok((_, Response::PathReady(list))) = parsed
                    && self.path_called(place, count).is_some()
                {
                    for verdict in resolve::verdicts(homa, message, list.count) {
                        self.on_verdict(verdict);
                    }
                    self.grant();
                }
                self.on_path_answer(now, homa, (place, count), parsed);
            }
            Errand::Beat(place) => self.on_beat_answer(now, homa, (place, count), parsed),
            Errand::Resolve => {
                let verdicts = match parsed {
                    Ok((_, Response::SlotResolve(list))) => {
                        Ok((list.status, resolve::verdicts(homa, message, list.count)))
                    }
                    Ok(_) | Err(_) => Err(()),
                };
                self.on_resolved(now, homa, count, verdicts);
            }
            Errand::Farewell => self.finish(now, homa),
        }
        false
    }

    fn on_failed(&mut self, now: Instant, homa: &mut Endpoint, tag: u64, error: Error) {
        let status = -error.errno();
        let (errand, count) = Errand::of_tag(tag);
        match errand {
            Errand::Io(slot) => {
                if let Some(copied) = self.copy_under_way(slot, count) {
                    self.on_copy_failed(now, homa, slot, copied, error);
                }
            }
            Errand::Path(place) => {
                let Some(key) = self.path_called(place, count) else {
                    return;
                };
                match self.paths.get(key).map(|path| path.state) {
                    Some(PathState::Closing) => self.part(now, homa, key),
                    Some(_) | None => self.lose(now, homa, key, status, Duration::ZERO),
                }
            }
            Errand::Beat(place) => {
                let Some(key) = self.path_beating(place, count) else {
                    return;
                };
                if let Some(path) = self.paths.get_mut(key) {
                    path.beat = None;
                }
                if error == Error::PeerTimedOut {
                    self.miss(now, homa, key);
                } else {
                    self.lose(now, homa, key, status, Duration::ZERO);
                }
            }
            Errand::Resolve => {
                if let Some(key) = self.asking_failed(count)
                    && error != Error::PeerTimedOut
                {
                    self.lose(now, homa, key, status, Duration::ZERO);
                }
            }
            Errand::Farewell => self.finish(now, homa),
        }
    }

    /// The copy of a slot's request that is under way, if it has that number.
    fn copy_under_way(&mut self, slot: u16, count: u32) -> Option<Copied> {
        if slot < self.requests.len()
            && let Stage::Sent(copied) = self.requests.get(slot).stage
            && copied.count == count
        {
            return Some(copied);
        }
        self.stats.late_responses += 1;
        None
    }

    fn path_called(&self, place: u32, count: u32) -> Option<PathKey> {
        let (key, path) = self.paths.at(place)?;
        let (_, called) = path.call?;
        (called == count).then_some(key)
    }

    fn path_beating(&self, place: u32, count: u32) -> Option<PathKey> {
        let (key, path) = self.paths.at(place)?;
        (path.beat?.count == count).then_some(key)
    }

    /// The server was heard over a path.
    fn heard(&mut self, key: PathKey) {
        let lived = self.clock.lived();
        if let Some(path) = self.paths.get_mut(key) {
            path.missed = 0;
            path.heard_at = lived;
        }
    }

    fn on_io(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        (slot, count): (u16, u32),
        parsed: Result<(Common, Response), wire::Malformed>,
        message: &Message,
    ) -> bool {
        let Some(copied) = self.copy_under_way(slot, count) else {
            return false;
        };
        let request = self.requests.get(slot);
        let answer = match parsed {
            Ok((_, Response::Write(answer))) if request.is_write => Some(answer),
            Ok((_, Response::Read(answer))) if !request.is_write => Some(answer),
            // Who cannot read a message does not know of which type it was.
            Ok((_, Response::Read(answer))) if answer.outcome == wire::Outcome::Refused => {
                Some(answer)
            }
            Ok(_) | Err(_) => None,
        };
        let is_refused = |answer: &IoResponse| answer.outcome == wire::Outcome::Refused;
        let fits = |answer: &IoResponse| {
            (answer.slot, answer.sequence) == (slot, request.sequence)
                && answer.data_len <= request.data_len
                && !(request.is_write && answer.data_len > 0)
        };
        let Some(answer) = answer.filter(|answer| is_refused(answer) || fits(answer)) else {
            self.stats.bad_responses += 1;
            self.lose(now, homa, copied.path, status::PROTOCOL, Duration::ZERO);
            return false;
        };
        self.heard(copied.path);
        match answer.outcome {
            wire::Outcome::Executed => self.on_executed(slot, copied, &answer, message),
            wire::Outcome::NotExecuted => {
                self.settle(copied, slot);
                let told = (answer.status, Outcome::NotExecuted);
                self.complete(slot, told, answer.is_replayed, None);
                false
            }
            wire::Outcome::Stale => {
                self.stats.bad_responses += 1;
                self.settle(copied, slot);
                self.complete(slot, (status::PROTOCOL, Outcome::Unknown), false, None);
                false
            }
            wire::Outcome::Refused => {
                self.on_refused(now, homa, slot, copied, answer.status);
                false
            }
        }
    }

    fn on_executed(
        &mut self,
        slot: u16,
        copied: Copied,
        answer: &IoResponse,
        message: &Message,
    ) -> bool {
        let (lived, request) = (self.clock.lived(), self.requests.get(slot));
        if request.data_len <= SMALL {
            let latency = lived.since(request.sent_at);
            let place = copied.path.index() as u8;
            if let Some(view) = self.views.iter_mut().find(|view| view.path == place) {
                view.on_latency(latency.as_nanos());
            }
        }
        self.settle(copied, slot);
        let data = (answer.data_len > 0).then(|| Received {
            run: message.run,
            offset: message.offset + IoRequest::LEN as u32,
            len: answer.data_len,
        });
        let told = (answer.status, Outcome::Executed);
        self.complete(slot, told, answer.is_replayed, data);
        data.is_some()
    }

    /// One copy was turned away, which says nothing about others.
    fn on_refused(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        slot: u16,
        copied: Copied,
        status: i32,
    ) {
        self.stats.refused += 1;
        if matches!(
            status,
            status::NOT_CONNECTED | status::STALE | status::VERSION
        ) {
            self.lose(now, homa, copied.path, status, Duration::ZERO);
            return;
        }
        self.settle(copied, slot);
        let request = self.requests.get_mut(slot);
        request.tried.insert(copied.path.index() as u8);
        self.retry(slot);
    }

    /// Sends another copy over a path that was not tried yet, or else asks what became of those
    /// that were sent.
    fn retry(&mut self, slot: u16) {
        let tried = self.requests.get(slot).tried;
        if self.views.iter().any(|view| !tried.contains(view.path)) {
            self.stats.single_retries += 1;
            self.requeue(slot);
        } else {
            self.ask(slot, Why::Refused);
        }
    }

    /// The transport gave a copy up.
    fn on_copy_failed(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        slot: u16,
        copied: Copied,
        error: Error,
    ) {
        let (lived, sent_at) = (self.clock.lived(), self.requests.get(slot).sent_at);
        let is_alive =
            |path: &&mut super::Path| error == Error::PeerTimedOut && path.heard_at > sent_at;
        let Some(path) = self.paths.get_mut(copied.path).filter(is_alive) else {
            self.lose(now, homa, copied.path, -error.errno(), Duration::ZERO);
            return;
        };
        if lived.since(path.singles.1) > SINGLES_SPAN {
            path.singles = (0, lived);
        }
        path.singles.0 += 1;
        if path.singles.0 >= SINGLES_MAX {
            self.lose(now, homa, copied.path, status::TIMED_OUT, Duration::ZERO);
            return;
        }
        self.settle(copied, slot);
        self.stats.single_retries += 1;
        let request = self.requests.get_mut(slot);
        request.tried.insert(copied.path.index() as u8);
        let tried = request.tried;
        if self.views.iter().all(|view| tried.contains(view.path)) {
            // Another one would have been better, but there is none.
            self.requests.get_mut(slot).tried = Default::default();
        }
        self.requeue(slot);
    }

    fn on_beat_answer(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        (place, count): (u32, u32),
        parsed: Result<(Common, Response), wire::Malformed>,
    ) {
        let Some(key) = self.path_beating(place, count) else {
            return;
        };
        let lived = self.clock.lived();
        let beat = self.paths.get_mut(key).and_then(|path| path.beat.take());
        let status = match parsed {
            Ok((_, Response::Heartbeat(answer))) => answer.status,
            Ok(_) | Err(_) => status::PROTOCOL,
        };
        if status != 0 {
            self.stats.bad_responses += u64::from(status == status::PROTOCOL);
            self.lose(now, homa, key, status, Duration::ZERO);
            return;
        }
        self.heard(key);
        let view = self
            .views
            .iter_mut()
            .find(|view| u32::from(view.path) == place);
        if let (Some(view), Some(beat)) = (view, beat) {
            view.on_latency(lived.since(beat.sent_at).as_nanos());
        }
    }

    /// The answer to a message about a path itself.
    fn on_path_answer(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        (place, count): (u32, u32),
        parsed: Result<(Common, Response), wire::Malformed>,
    ) {
        let Some(key) = self.path_called(place, count) else {
            return;
        };
        let Some(path) = self.paths.get_mut(key) else {
            return;
        };
        path.call = None;
        match (path.state, parsed) {
            (PathState::Connecting, Ok((common, Response::PathOpen(open)))) => {
                self.on_opened(now, homa, key, common, &open);
            }
            (PathState::Connecting, Ok((_, Response::PathReady(list)))) => match list.status {
                0 => {
                    self.heard(key);
                    self.apply(now, homa, key, PathEvent::Ready);
                }
                status => self.lose(now, homa, key, status, Duration::ZERO),
            },
            (PathState::Closing, _) => self.part(now, homa, key),
            (_, Ok((_, Response::Read(answer)))) if answer.status < 0 => {
                self.lose(now, homa, key, answer.status, Duration::ZERO);
            }
            (_, Ok(_) | Err(_)) => {
                self.stats.bad_responses += 1;
                self.lose(now, homa, key, status::RESET, Duration::ZERO);
            }
        }
    }

    fn on_opened(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: PathKey,
        common: Common,
        open: &OpenResponse,
    ) {
        let is_wrong = |server: &Server| server.id != open.server_id;
        if self.server.as_ref().is_some_and(is_wrong) && open.server_id != 0 {
            self.lose(now, homa, key, status::NO_SUCH_SESSION, Duration::ZERO);
            return;
        }
        if open.status == status::STALE {
            self.on_stale(now, homa, key);
            return;
        }
        let retry_after = Duration::millis(open.retry_after_ms.into());
        if open.status != 0 {
            let retries = status::is_retryable(open.status) && !open.no_reconnect;
            self.lose_with(now, homa, key, open.status, (retries, retry_after));
            return;
        }
        let life = ServerLife {
            uuid: open.server_uuid,
            session: common.session,
        };
        let known = self.server.and_then(|server| server.life);
        if known.is_some_and(|known| known != life) || life.session == 0 || common.path == 0 {
            self.on_stale(now, homa, key);
            return;
        }
        if !self.bind(open, life) {
            self.lose_with(now, homa, key, status::INVALID, (false, retry_after));
            return;
        }
        if let Some(path) = self.paths.get_mut(key) {
            path.id = common.path;
        }
        self.apply(now, homa, key, PathEvent::Accepted);
    }

    /// Notes which server this is and what it grants; false if that is less than the user was
    /// promised. Story 7.
    fn bind(&mut self, open: &OpenResponse, life: ServerLife) -> bool {
        if let Some(server) = &mut self.server {
            let is_enough = open.queue_depth >= server.queue_depth
                && open.io_max >= server.io_max
                && open.user_max >= server.user_max;
            if is_enough {
                server.life = Some(life);
            }
            return is_enough;
        }
        let depth = open.queue_depth.min(DEPTH_MAX);
        if depth == 0 || !is_io_max(open.io_max) || open.user_max > USER_MAX {
            return false;
        }
        self.server = Some(Server {
            id: open.server_id,
            life: Some(life),
            queue_depth: depth,
            io_max: open.io_max,
            user_max: open.user_max,
            lease: Duration::millis(open.lease_ms.into()),
        });
        self.permits = Permits::new(depth as u16, self.params.pdu_len);
        self.requests = super::request::Requests::new(depth);
        self.buffers = super::time::buffers(depth, message_max(open.io_max));
        true
    }

    /// The server knows nothing of the session that this path was to belong to.
    fn on_stale(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        let is_old = self
            .paths
            .get(key)
            .is_some_and(|path| path.life != self.life);
        // If other paths are up, they will find out that the server has restarted.
        let is_bound = self.server.is_some_and(|server| server.life.is_some());
        let is_lost = !is_old && is_bound && self.views.is_empty();
        if is_lost {
            self.on_session_lost();
        }
        self.lose(now, homa, key, status::STALE, Duration::ZERO);
        let lived = self.clock.lived();
        if let Some(path) = self.paths.get_mut(key).filter(|_| is_old || is_lost) {
            // Once for each life: this attempt did not know of the new one.
            path.due_at = lived;
            self.due_by(lived);
        }
    }

    /// Whether opening the session has failed, and why.
    pub(super) fn opening_failed(&self) -> Option<i32> {
        let State::Opening { until, status } = self.state else {
            return None;
        };
        let is_hopeless = self.paths.iter().all(|(_, path)| path.is_closed());
        let is_over = self.clock.lived() >= until;
        (is_hopeless || is_over).then_some(if status == 0 {
            status::TIMED_OUT
        } else {
            status
        })
    }
}

/// Reads a message's header.
fn parse(homa: &Endpoint, message: &Message) -> Result<(Common, Response), wire::Malformed> {
    let mut head = [0; HEAD_MAX];
    let head = &mut head[..HEAD_MAX.min(message.len as usize)];
    homa.region().read(message.offset as usize, head);
    wire::parse_response(head, message.len)
}
