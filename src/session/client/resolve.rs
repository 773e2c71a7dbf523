//! Finds out what became of requests that nobody answered. Asking fences them, so that "it did not
//! run" stays true.

use crate::homa::{Endpoint, Message, RpcKey};
use crate::session::client::request::{Stage, Why};
use crate::session::client::{Client, Errand, PathKey};
use crate::session::event::Outcome;
use crate::session::policy::PathSet;
use crate::session::status;
use crate::time::{Duration, Instant};
use crate::wire::session::{ENTRIES_MAX, Entry, Request, Resolve, SlotState, Verdict};

/// Between two questions about a request that runs, at first and at last.
const DELAY_MIN: Duration = Duration::millis(1);
const DELAY_MAX: Duration = Duration::millis(100);

/// How long the user of a request that took too long waits for the server's word.
const PATIENCE: Duration = Duration::millis(500);

/// The question under way, and when to ask the next.
#[derive(Debug, Default)]
pub(super) struct Asking {
    rpc: Option<(RpcKey, u32, PathKey)>,
    /// Somebody wants to know something.
    is_wanted: bool,
    due_at: Instant,
    delay: Duration,
}

impl Asking {
    /// The way of the question is gone: it is asked again, another way.
    pub fn path_lost(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        if let Some((rpc, _, path)) = self.rpc
            && path == key
        {
            homa.forget(now, rpc);
            self.rpc = None;
        }
    }
}

impl Client {
    /// Asks the server what became of a request.
    pub(super) fn ask(&mut self, slot: u16, why: Why) {
        self.requests.get_mut(slot).stage = Stage::Asking(why);
        if let Why::TimedOut { until } = why {
            self.due_by(until);
        }
        self.ask_soon();
    }

    /// A request took too long: from now on the server's word about it is waited for.
    pub(super) fn ask_overdue(&mut self, slot: u16) {
        let until = self.clock.lived() + PATIENCE;
        self.ask(slot, Why::TimedOut { until });
    }

    pub(super) fn ask_soon(&mut self) {
        let lived = self.clock.lived();
        self.asking.is_wanted = true;
        self.asking.delay = DELAY_MIN;
        self.asking.due_at = lived;
        self.due_by(lived);
    }

    /// Sends the next question if it is due.
    pub(super) fn poll_asking(&mut self, now: Instant, homa: &mut Endpoint) {
        let lived = self.clock.lived();
        if !self.asking.is_wanted {
            return;
        }
        self.give_up_asking();
        if self.asking.rpc.is_some() || self.views.is_empty() {
            return;
        }
        if lived < self.asking.due_at {
            return self.due_by(self.asking.due_at);
        }
        let entries = self.unresolved();
        if entries.is_empty() {
            self.asking.is_wanted = false;
            return;
        }
        let Some(place) = self.picker.pick(&self.views, PathSet::default(), 0) else {
            return;
        };
        let place = u32::from(self.views[place].path);
        let Some((key, path)) = self.paths.at(place) else {
            return;
        };
        let to = path.address.destination;
        let Some(common) = self.common_of(key) else {
            return;
        };
        let list = Request::SlotResolve(Resolve {
            status: 0,
            count: (entries.len() / Entry::ASKED) as u32,
            pages: 0,
        });
        let sent = self.call_admin(now, homa, to, Errand::Resolve, (&list, common, &entries));
        self.asking.rpc = sent.map(|(rpc, count)| (rpc, count, key));
        self.asking.due_at = lived + self.asking.delay;
        self.due_by(self.asking.due_at);
    }

    /// Readies a path that the server has accepted, and asks what is not known.
    pub(super) fn send_ready(&mut self, now: Instant, homa: &mut Endpoint, key: PathKey) {
        let entries = self.unresolved();
        let list = Request::PathReady(Resolve {
            status: 0,
            count: (entries.len() / Entry::ASKED) as u32,
            pages: homa.free_pages(),
        });
        if let Some(common) = self.common_of(key) {
            self.call_path(now, homa, key, &list, common, &entries);
        }
    }

    /// The slots to ask about, as they are sent.
    fn unresolved(&self) -> Vec<u8> {
        let slots = self.requests.find(|request| request.is_asking());
        let slots = slots.into_iter().take(ENTRIES_MAX as usize);
        let emit = |slot: u16| {
            let mut out = [0; Entry::ASKED];
            let sequence = self.requests.get(slot).sequence;
            Entry { slot, sequence }.emit(&mut out);
            out
        };
        slots.flat_map(emit).collect()
    }

    /// Users have waited long enough for the server's word.
    fn give_up_asking(&mut self) {
        let lived = self.clock.lived();
        let is_over = |stage: Stage| match stage {
            Stage::Asking(Why::TimedOut { until }) => until <= lived,
            Stage::Asking(Why::Refused)
            | Stage::Idle
            | Stage::Queued
            | Stage::Sent(_)
            | Stage::Quarantined => false,
        };
        for slot in self.requests.find(|request| is_over(request.stage)) {
            self.complete(slot, (status::TIMED_OUT, Outcome::Unknown), false, None);
        }
    }

    /// A question was answered; an error if not in a way that makes sense.
    pub(super) fn on_resolved(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        count: u32,
        answer: Result<(i32, Vec<Verdict>), ()>,
    ) {
        let Some(key) = self.asking_failed(count) else {
            return;
        };
        match answer {
            Ok((0, verdicts)) => {
                verdicts
                    .into_iter()
                    .for_each(|verdict| self.on_verdict(verdict));
                self.grant();
            }
            Ok((status, _)) => self.lose(now, homa, key, status, Duration::ZERO),
            Err(()) => {
                self.stats.bad_responses += 1;
                self.lose(now, homa, key, status::PROTOCOL, Duration::ZERO);
            }
        }
    }

    /// The question of that number is over; tells its path. The next one comes later.
    pub(super) fn asking_failed(&mut self, count: u32) -> Option<PathKey> {
        let (_, _, key) = self.asking.rpc.filter(|&(_, asked, _)| asked == count)?;
        let lived = self.clock.lived();
        self.asking.rpc = None;
        self.asking.due_at = lived + self.asking.delay;
        self.asking.delay = Duration(self.asking.delay.0 * 2).min(DELAY_MAX);
        self.due_by(self.asking.due_at);
        Some(key)
    }

    /// The server's word about one request.
    pub(super) fn on_verdict(&mut self, verdict: Verdict) {
        let slot = verdict.slot;
        if slot >= self.requests.len() || self.requests.get(slot).sequence != verdict.sequence {
            return;
        }
        let why = match self.requests.get(slot).stage {
            Stage::Quarantined => {
                if verdict.state != SlotState::InProgress {
                    self.requests.get_mut(slot).stage = Stage::Idle;
                    self.permits.clear(slot);
                }
                return;
            }
            Stage::Asking(why) => why,
            Stage::Idle | Stage::Queued | Stage::Sent(_) => return,
        };
        match verdict.state {
            SlotState::NotExecuted => self.stats.resolved_not_executed += 1,
            SlotState::InProgress => self.stats.resolved_in_progress += 1,
            SlotState::Done { .. } | SlotState::DoneNoData => self.stats.resolved_done += 1,
            SlotState::Stale => self.stats.bad_responses += 1,
        }
        let told = match (verdict.state, why) {
            (SlotState::NotExecuted, Why::Refused) => (status::CANCELED, Outcome::NotExecuted),
            (SlotState::NotExecuted, Why::TimedOut { .. }) => {
                (status::TIMED_OUT, Outcome::NotExecuted)
            }
            // It cannot be waited for, but it can be asked about again.
            (SlotState::InProgress, Why::Refused) => return,
            (SlotState::InProgress, Why::TimedOut { .. }) => (status::TIMED_OUT, Outcome::Unknown),
            (SlotState::Done { status }, _) => (status, Outcome::Executed),
            (SlotState::DoneNoData, Why::Refused) => return self.read_again(slot),
            (SlotState::DoneNoData, Why::TimedOut { .. }) => {
                if !self.requests.get(slot).is_overdue {
                    return self.read_again(slot);
                }
                (status::TIMED_OUT, Outcome::Unknown)
            }
            (SlotState::Stale, _) => (status::PROTOCOL, Outcome::Unknown),
        };
        self.complete(slot, told, false, None);
    }

    /// A READ ran and its data was not kept: it is sent again. If its time was up, it has it again.
    fn read_again(&mut self, slot: u16) {
        let due_at = self.clock.lived() + self.params.io_timeout;
        let request = self.requests.get_mut(slot);
        request.tried = PathSet::default();
        if !request.is_listed && self.params.io_timeout > Duration::ZERO {
            request.is_overdue = true;
            request.due_at = due_at;
            self.requests.list(slot);
            self.due_by(due_at);
        }
        self.requeue(slot);
    }
}

/// The entries of an answer; none that make no sense.
pub(super) fn verdicts(homa: &Endpoint, message: &Message, count: u32) -> Vec<Verdict> {
    let entry = |nth: u32| {
        let mut bytes = [0; Entry::ANSWERED];
        let at = Resolve::message_len(nth, Entry::ANSWERED);
        homa.region().read(message.offset as usize + at, &mut bytes);
        Verdict::parse(&bytes).ok()
    };
    (0..count).filter_map(entry).collect()
}
