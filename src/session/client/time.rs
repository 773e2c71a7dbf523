//! Acts when something is due.

use crate::homa::Endpoint;
use crate::mem::Buffers;
use crate::session::client::request::{Stage, Why};
use crate::session::client::{Client, State};
use crate::session::event::{ClientEvent, LinkEvent, Outcome};
use crate::session::path::{PathEvent, PathState};
use crate::session::status;
use crate::time::{Duration, Instant};

/// Send memory for messages that are not requests: lists of 4,096 slots are the longest.
pub(super) const ADMIN_BYTES: usize = 1 << 20;

/// Send memory for a session's requests, one per slot, of whatever size class.
pub(super) fn buffers(depth: u32, message_max: usize) -> Buffers {
    // Classes are steps of four at most.
    Buffers::new(ADMIN_BYTES + depth as usize * message_max * 4)
}

impl Client {
    /// Acts on what is due, and sends what waits. To be called at each turn.
    pub fn poll(&mut self, now: Instant, homa: &mut Endpoint) {
        let lived = self.clock.live(now);
        if lived < self.due_at && !self.can_send() {
            return;
        }
        self.due_at = Instant(u64::MAX);
        self.is_stalled = false;
        if self.state == State::Closed {
            return;
        }
        self.poll_paths(now, homa);
        self.poll_overdue(now, homa);
        self.poll_asking(now, homa);
        self.poll_down();
        self.flush(now, homa);
        self.poll_state(now, homa);
    }

    fn poll_paths(&mut self, now: Instant, homa: &mut Endpoint) {
        let lived = self.clock.lived();
        for key in self.path_keys() {
            let Some(path) = self.paths.get(key) else {
                continue;
            };
            let due_at = match path.state {
                PathState::Connected => path.beat_due_at,
                PathState::Connecting | PathState::Reconnecting | PathState::Closing => path.due_at,
                PathState::Closed | PathState::Removed => continue,
            };
            if due_at > lived {
                self.due_by(due_at);
                continue;
            }
            match path.state {
                PathState::Connected => self.beat(now, homa, key),
                PathState::Connecting => {
                    self.lose(now, homa, key, status::TIMED_OUT, Duration::ZERO);
                }
                PathState::Reconnecting => self.apply(now, homa, key, PathEvent::Due),
                PathState::Closing => self.part(now, homa, key),
                PathState::Closed | PathState::Removed => {}
            }
            if let Some(path) = self.paths.get(key) {
                let due_at = match path.state {
                    PathState::Connected => path.beat_due_at,
                    PathState::Connecting | PathState::Reconnecting | PathState::Closing => {
                        path.due_at
                    }
                    PathState::Closed | PathState::Removed => continue,
                };
                self.due_by(due_at);
            }
        }
    }

    /// Requests that took too long.
    fn poll_overdue(&mut self, now: Instant, homa: &mut Endpoint) {
        if self.params.io_timeout == Duration::ZERO {
            return;
        }
        let lived = self.clock.lived();
        while let Some(slot) = self.requests.eldest() {
            let due_at = self.requests.get(slot).due_at;
            if due_at > lived {
                return self.due_by(due_at);
            }
            self.requests.unlist(slot);
            self.on_overdue(now, homa, slot);
        }
    }

    fn on_overdue(&mut self, now: Instant, homa: &mut Endpoint, slot: u16) {
        let lived = self.clock.lived();
        match self.requests.get(slot).stage {
            Stage::Idle | Stage::Quarantined => return,
            Stage::Queued | Stage::Asking(_) => {}
            Stage::Sent(copied) => {
                homa.forget(now, copied.rpc);
                self.settle(copied, slot);
            }
        }
        let request = self.requests.get(slot);
        let fenced_by = request.lost_at + self.fence();
        if self.views.is_empty() && request.was_sent && request.is_write && lived < fenced_by {
            // A copy may still begin: the user is told when none can.
            self.requests.get_mut(slot).due_at = fenced_by;
            return self.requests.list_first(slot);
        }
        self.stats.io_timeouts += 1;
        if !self.requests.get(slot).was_sent {
            self.complete(slot, (status::TIMED_OUT, Outcome::NotExecuted), false, None);
        } else if self.views.is_empty() {
            self.complete(slot, (status::TIMED_OUT, Outcome::Unknown), false, None);
        } else {
            self.ask_overdue(slot);
        }
    }

    /// Requests that have waited for a path for too long.
    fn poll_down(&mut self) {
        let Some(since) = self.down_since else { return };
        let is_over = self.fails_fast() || self.has_failed();
        if is_over {
            self.fail_queued();
        } else {
            self.due_by(since + self.params.fast_fail);
        }
    }

    fn poll_state(&mut self, now: Instant, homa: &mut Endpoint) {
        let lived = self.clock.lived();
        match self.state {
            State::Opening { until, .. } => {
                if self.views.len() >= self.params.paths_min {
                    self.state = State::Open;
                    self.down_since = None;
                    self.events.push_back(ClientEvent::Opened { status: 0 });
                } else if let Some(status) = self.opening_failed() {
                    self.events.push_back(ClientEvent::Opened { status });
                    self.part_all(now, homa);
                } else {
                    self.due_by(until);
                }
            }
            State::Open => {}
            State::Closing { until } => {
                let is_idle = self.requests.open == 0 && self.permits.held_count() == 0;
                if is_idle || lived >= until {
                    self.part_all(now, homa);
                } else {
                    self.due_by(until);
                }
            }
            State::Parting { until } => {
                if lived >= until {
                    self.finish(now, homa);
                } else {
                    self.due_by(until);
                }
            }
            State::Closed => {}
        }
    }

    /// The server has lost its memory of the session: nobody knows what became of what was sent,
    /// and a new session begins with the next path.
    pub(super) fn on_session_lost(&mut self) {
        self.stats.sessions_lost += 1;
        self.tell(LinkEvent::SessionLost);
        self.uuid = super::draw(&mut self.rng);
        self.life += 1;
        if let Some(server) = &mut self.server {
            server.life = None;
        }
        for slot in self.requests.find(|request| request.was_sent) {
            self.lose_request(slot);
        }
        for slot in 0..self.requests.len() {
            let request = self.requests.get_mut(slot);
            request.sequence = 0;
            if request.stage == Stage::Quarantined {
                request.stage = Stage::Idle;
                self.permits.clear(slot);
            }
        }
        self.grant();
    }

    /// The server that knew what became of a request is gone.
    fn lose_request(&mut self, slot: u16) {
        let request = self.requests.get_mut(slot);
        if !request.is_open() {
            return;
        }
        let is_overdue = match request.stage {
            Stage::Asking(Why::TimedOut { .. }) => true,
            Stage::Asking(Why::Refused)
            | Stage::Idle
            | Stage::Queued
            | Stage::Sent(_)
            | Stage::Quarantined => false,
        };
        if request.flags.is_idempotent && !is_overdue {
            let is_queued = request.stage == Stage::Queued;
            request.was_sent = false;
            request.was_sent_before = true;
            request.tried = Default::default();
            if !is_queued {
                self.requeue(slot);
            }
            return;
        }
        let status = if is_overdue {
            status::TIMED_OUT
        } else {
            status::OWNER_DEAD
        };
        self.complete(slot, (status, Outcome::Unknown), false, None);
    }
}
