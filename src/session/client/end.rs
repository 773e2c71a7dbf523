//! What happens when all paths, or the session itself, are gone.

use crate::homa::Endpoint;
use crate::session::client::request::Stage;
use crate::session::client::{Client, Errand, State};
use crate::session::event::{ClientEvent, Outcome};
use crate::session::status;
use crate::time::{Duration, Instant};
use crate::wire::session::{Close, Request};

/// How long the session waits for the answer to its farewell.
const FAREWELL: Duration = Duration::millis(500);

impl Client {
    /// Closes the session: requests under way have so long to end and permits to be given back; new
    /// ones are not taken, and those who wait for permits wait no longer.
    ///
    /// [`ClientEvent::Closed`] tells the rest; after it the session is to be turned until
    /// [`Self::is_closed`], so that the server hears of it.
    pub fn close(&mut self, now: Instant, timeout: Duration) {
        let lived = self.clock.live(now);
        match self.state {
            State::Opening { .. } | State::Open => {}
            State::Closing { .. } | State::Parting { .. } | State::Closed => return,
        }
        self.state = State::Closing {
            until: lived + timeout,
        };
        for tag in self.permits.take_waiting() {
            self.events
                .push_back(ClientEvent::Permit { tag, permit: None });
        }
        self.due_by(lived);
    }

    /// How long after the loss of its path a copy of a WRITE may still begin: a lease and what the
    /// transport takes to give up, and a tenth more. Nothing for those who do not want to wait.
    pub(super) fn fence(&self) -> Duration {
        let lease = self.server.map_or(Duration::ZERO, |server| server.lease);
        let limit = lease + self.params.peer_timeout;
        match self.params.ghost_fence {
            true => Duration(limit.0 + limit.0 / 10),
            false => Duration::ZERO,
        }
    }

    /// Requests wait for a path no longer.
    ///
    /// A WRITE of which a copy may still be on its way is held until none can begin any more: past
    /// its lease the server refuses what comes over a path.
    pub(super) fn fail_queued(&mut self) {
        let (lived, fence) = (self.clock.lived(), self.fence());
        for slot in self.requests.find(|request| request.is_open()) {
            let request = self.requests.get(slot);
            if matches!(request.stage, Stage::Sent(_)) {
                continue;
            }
            let until = request.lost_at + fence;
            if request.was_sent && request.is_write && lived < until {
                self.due_by(until);
                continue;
            }
            let outcome = match request.was_sent {
                true => Outcome::Unknown,
                false => Outcome::NotExecuted,
            };
            self.complete(slot, (status::ABORTED, outcome), false, None);
        }
    }

    /// Ends what has not ended, says farewell to the server, and tells the user that all is over.
    pub(super) fn part_all(&mut self, now: Instant, homa: &mut Endpoint) {
        let was_closing = matches!(self.state, State::Closing { .. });
        let mut unknown = 0;
        for slot in self.requests.find(|request| request.is_open()) {
            let request = self.requests.get(slot);
            let outcome = match request.was_sent {
                true => Outcome::Unknown,
                false => Outcome::NotExecuted,
            };
            unknown += usize::from(request.was_sent || request.was_sent_before);
            if let Stage::Sent(copied) = request.stage {
                homa.forget(now, copied.rpc);
                self.settle(copied, slot);
            }
            self.complete(slot, (status::CANCELED, outcome), false, None);
        }
        self.queue.clear();
        let held = self.permits.held_count();
        self.permits = crate::session::permits::Permits::new(0, 0);
        if was_closing {
            self.events.push_back(ClientEvent::Closed { held, unknown });
        }
        let until = self.clock.lived() + FAREWELL;
        self.state = State::Parting { until };
        self.due_by(until);
        if !self.say_goodbye(now, homa) {
            self.finish(now, homa);
        }
    }

    /// Tells the server that the session is over; false if there is no way to.
    fn say_goodbye(&mut self, now: Instant, homa: &mut Endpoint) -> bool {
        let Some(view) = self.views.first() else {
            return false;
        };
        let Some((key, path)) = self.paths.at(view.path.into()) else {
            return false;
        };
        let to = path.address.destination;
        let Some(common) = self.common_of(key) else {
            return false;
        };
        let close = Request::SessionClose(Close::default());
        let message = (&close, common, &[][..]);
        self.call_admin(now, homa, to, Errand::Farewell, message)
            .is_some()
    }

    /// Nothing more is to be done: all RPCs end with the socket.
    pub(super) fn finish(&mut self, now: Instant, homa: &mut Endpoint) {
        if matches!(self.state, State::Parting { .. }) {
            self.state = State::Closed;
            self.views.clear();
            self.paths = crate::slots::Slots::new(0);
            homa.close(now, self.socket);
        }
    }
}
