//! What a socket of the homa face has for its application.

use std::collections::{BTreeMap, VecDeque};

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Message, Parts, RpcKey};
use crate::time::Duration;

/// What makes a socket's calls wait, and what came for it.
#[derive(Debug)]
pub(in crate::libos) struct Mailbox {
    pub(super) family: i32,
    /// `None`: for ever. Zero for a socket that does not wait.
    pub(super) send_timeout: Option<Duration>,
    pub(super) receive_timeout: Option<Duration>,
    /// After that nothing works any more but close.
    pub(super) is_shut: bool,
    /// Whether it was bound, or made to take requests.
    pub(super) is_server: bool,
    /// What the last call that failed did not like.
    pub(super) last_error: Option<Refusal>,
    /// Requests that came whole, oldest first. Clients may have given up some since.
    requests: VecDeque<(u64, RpcKey)>,
    /// How calls ended, by the order in which they did.
    outcomes: BTreeMap<u64, Outcome>,
    /// All calls that the application was not told the outcome of, by id.
    calls: BTreeMap<u64, Call>,
    /// Numbers what comes.
    arrivals: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) rpc: RpcKey,
    pub(super) peer: Addr,
    pub(super) cookie: u64,
    /// Once it is over: where among the outcomes its own is.
    outcome: Option<u64>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) id: u64,
    pub(super) peer: Addr,
    pub(super) cookie: u64,
    pub(super) result: Result<Message, Error>,
}

/// What comes next for somebody who waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    Request(RpcKey),
    Outcome(Outcome),
}

/// Why a call failed, for programs and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: Error,
    /// Empty: what the error itself says is all there is to say.
    pub(super) text: &'static str,
}

/// What a receive waits for: the call with that id, any request, any call's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// 0: none in particular.
    pub id: u64,
    pub requests: bool,
    pub responses: bool,
    /// Else a look is all.
    pub waits: bool,
}

/// What a receive brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub id: u64,
    /// As given to the send; 0 for requests.
    pub cookie: u64,
    pub peer: Addr,
    /// The message's length and where in the region its parts are, which are the application's
    /// now; or why the call failed.
    pub result: Result<(u32, Parts), Error>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, text: "" }
    }
}

impl Mailbox {
    pub(super) fn new(family: i32, waits: bool) -> Self {
        let timeout = if waits { None } else { Some(Duration::ZERO) };
        Self {
            family,
            send_timeout: timeout,
            receive_timeout: timeout,
            is_shut: false,
            is_server: false,
            last_error: None,
            requests: VecDeque::new(),
            outcomes: BTreeMap::new(),
            calls: BTreeMap::new(),
            arrivals: 0,
        }
    }

    pub(super) fn call_count(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.iter().map(|(&id, call)| (id, call))
    }

    /// The RPCs of calls that are not over.
    pub(in crate::libos) fn pending(&self) -> impl Iterator<Item = RpcKey> {
        let pending = self.calls.values().filter(|call| call.outcome.is_none());
        pending.map(|call| call.rpc)
    }

    pub(super) fn outcome_of(&self, call: &Call) -> Option<&Outcome> {
        self.outcomes.get(&call.outcome?)
    }

    pub(super) fn call(&self, id: u64) -> Option<&Call> {
        self.calls.get(&id)
    }

    pub(super) fn on_called(&mut self, id: u64, rpc: RpcKey, peer: Addr, cookie: u64) {
        let call = Call {
            rpc,
            peer,
            cookie,
            outcome: None,
        };
        self.calls.insert(id, call);
    }

    pub(super) fn on_request(&mut self, rpc: RpcKey) {
        self.arrivals += 1;
        self.requests.push_back((self.arrivals, rpc));
    }

    /// A call is over, or over in another way than before. False if there is no such call.
    pub(super) fn on_outcome(&mut self, id: u64, result: Result<Message, Error>) -> bool {
        let Some(call) = self.calls.get_mut(&id) else {
            return false;
        };
        self.arrivals += u64::from(call.outcome.is_none());
        let at = *call.outcome.get_or_insert(self.arrivals);
        let outcome = Outcome {
            id,
            peer: call.peer,
            cookie: call.cookie,
            result,
        };
        self.outcomes.insert(at, outcome);
        true
    }

    /// Forgets a call, and gives what came of it.
    pub(super) fn forget(&mut self, id: u64) -> Option<Outcome> {
        self.outcomes.remove(&self.calls.remove(&id)?.outcome?)
    }

    /// What fits, the oldest first; it is taken out.
    pub(super) fn next(&mut self, homa: &Endpoint, wanted: &Wanted) -> Option<Arrival> {
        if self
            .call(wanted.id)
            .is_some_and(|call| call.outcome.is_some())
        {
            return self.forget(wanted.id).map(Arrival::Outcome);
        }
        let request = if wanted.requests {
            self.first_request(homa)
        } else {
            None
        };
        let outcome = if wanted.responses {
            self.outcomes.first_key_value()
        } else {
            None
        };
        match (request, outcome) {
            (Some((at, rpc)), outcome) if outcome.is_none_or(|(&other, _)| at < other) => {
                self.requests.pop_front();
                Some(Arrival::Request(rpc))
            }
            (_, Some((_, &Outcome { id, .. }))) => self.forget(id).map(Arrival::Outcome),
            (_, None) => None,
        }
    }

    /// The oldest request that is still there.
    fn first_request(&mut self, homa: &Endpoint) -> Option<(u64, RpcKey)> {
        while let Some(&(at, rpc)) = self.requests.front() {
            if homa.is_requested(rpc) {
                return Some((at, rpc));
            }
            self.requests.pop_front();
        }
        None
    }

    /// Whether anything came.
    pub(super) fn has_arrivals(&mut self, homa: &Endpoint) -> bool {
        !self.outcomes.is_empty() || self.first_request(homa).is_some()
    }

    /// From now on it has nothing, and gets nothing.
    pub(super) fn shut(&mut self) {
        self.is_shut = true;
        self.requests.clear();
        self.outcomes.clear();
        self.calls.clear();
    }
}
