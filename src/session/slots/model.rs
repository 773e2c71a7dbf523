//! The filter of duplicates under every order of events there can be.
//!
//! A client sends a few requests, one after the other, through one slot (slots know nothing of each
//! other) over the worst of networks: what was sent once arrives any number of times, at any later
//! moment, in any order, or never; any copy may be turned away; the server may restart. All states
//! that can come of it are visited. The table is the real one; the client is as small as its rules.
//!
//! In each state: no request has run twice; who was told "executed" ran once, and who was told "not
//! executed" never; no two requests of the slot run at once. And from each state the client can get
//! to its end. Faults put into either side on purpose show that the search would find them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::keyed::Keyed;
use crate::session::slots::{Admission, Copied, Reply, SlotTable};
use crate::wire::session::SlotState;

const OPS_MAX: usize = 4;

/// What the client was told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    Executed,
    NotExecuted,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Idle,
    Waiting,
    Resolving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    Request { op: u8 },
    Resolve,
    Told(Told),
    Refused,
    NoSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sent {
    session: u8,
    sequence: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    mode: Mode,
    sequence: u64,
    client_session: u8,
    told: Vec<Told>,
    server_session: u8,
    table: SlotTable<u8, ()>,
    /// The requests that run: in a right table one at most.
    running: Vec<u8>,
    runs: [u8; OPS_MAX],
    sent: BTreeSet<Sent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server runs all that comes.
    NoFilter,
    /// A client that has waited enough says "not executed" without asking.
    NoFence,
    /// The server says "not executed" and does not remember it.
    ForgetsFence,
    /// The client takes one copy's refusal for an answer.
    RefusalIsFinal,
    /// The server runs the next request of a slot beside the one that runs.
    RunsBeside,
    /// A restarted server takes the session of its former life for its own.
    SessionSurvives,
    /// The client sends a request again to a server that may have run it in its former life.
    SendsToNextLife,
    /// Harmless for all this: the client uses a slot again though the outcome is not known.
    NoQuarantine,
}

struct Model {
    ops: usize,
    lives: u8,
    fault: Option<Fault>,
}

impl Model {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn start(&self) -> State {
        State {
            mode: Mode::Idle,
            sequence: 0,
            client_session: 1,
            told: Vec::new(),
            server_session: 1,
            table: SlotTable::new(1),
            running: Vec::new(),
            runs: [0; OPS_MAX],
            sent: BTreeSet::new(),
        }
    }

    /// All that may happen next.
    fn nexts(&self, state: &State) -> Vec<State> {
        let mut nexts = Vec::new();
        self.client_acts(state, &mut nexts);
        for &sent in &state.sent {
            let mut next = state.clone();
            match sent.what {
                What::Request { op } => {
                    nexts.push(state.with(sent.answered(What::Refused)));
                    self.request(&mut next, sent, op);
                }
                What::Resolve => self.resolve(&mut next, sent),
                What::Told(_) | What::Refused | What::NoSession => self.hear(&mut next, sent),
            }
            nexts.push(next);
        }
        for &op in &state.running {
            let mut next = state.clone();
            next.end(op);
            nexts.push(next);
        }
        if state.server_session < self.lives {
            let mut next = state.clone();
            next.table = SlotTable::new(1);
            next.running.clear();
            next.server_session += 1;
            nexts.push(next);
        }
        nexts
    }

    fn client_acts(&self, state: &State, nexts: &mut Vec<State>) {
        let mut next = state.clone();
        match state.mode {
            Mode::Idle if state.told.len() < self.ops => {
                next.sequence += 1;
                next.mode = Mode::Waiting;
                next.send(What::Request {
                    op: state.told.len() as u8,
                });
            }
            // It has waited long enough.
            Mode::Waiting => match self.fault {
                Some(Fault::NoFence) => next.finish(Told::NotExecuted),
                Some(Fault::NoQuarantine | Fault::RunsBeside) => next.finish(Told::Unknown),
                _ => next.ask(),
            },
            Mode::Idle | Mode::Resolving => return,
        }
        nexts.push(next);
    }

    fn knows(&self, state: &State, sent: Sent) -> bool {
        sent.session == state.server_session || self.has(Fault::SessionSurvives)
    }

    fn request(&self, state: &mut State, sent: Sent, op: u8) {
        if !self.knows(state, sent) {
            state.sent.insert(sent.answered(What::NoSession));
            return;
        }
        if self.has(Fault::NoFilter) {
            state.table = SlotTable::new(1);
            state.running.clear();
        }
        let copy = Copied {
            who: op,
            attempt: 1,
        };
        let admission = state.table.on_request(0, sent.sequence, copy);
        let told = match admission {
            Admission::Run { .. } => {
                state.run(op);
                return;
            }
            Admission::Parked { .. } if self.has(Fault::RunsBeside) => {
                state.run(op);
                return;
            }
            Admission::Waits { turned_away: None } | Admission::Parked { turned_away: None } => {
                return;
            }
            Admission::Waits { .. } | Admission::Parked { .. } | Admission::Busy => What::Refused,
            Admission::Replay { .. } => What::Told(Told::Executed),
            Admission::Fenced => What::Told(Told::NotExecuted),
            // To the client's ears a lost packet.
            Admission::Stale => return,
            Admission::Rerun | Admission::NoData | Admission::Odd => unreachable!(),
        };
        state.sent.insert(sent.answered(told));
    }

    fn resolve(&self, state: &mut State, sent: Sent) {
        if !self.knows(state, sent) {
            state.sent.insert(sent.answered(What::NoSession));
            return;
        }
        let before = self.has(Fault::ForgetsFence).then(|| state.table.clone());
        let told = match state.table.resolve(0, sent.sequence) {
            Some(SlotState::NotExecuted) => Told::NotExecuted,
            Some(SlotState::Done { .. }) => Told::Executed,
            Some(SlotState::InProgress | SlotState::Stale) => return,
            Some(SlotState::DoneNoData) | None => unreachable!(),
        };
        if let Some(table) = before {
            state.table = table;
        }
        state.sent.insert(sent.answered(What::Told(told)));
    }

    fn hear(&self, state: &mut State, sent: Sent) {
        let is_mine = (sent.session, sent.sequence) == (state.client_session, state.sequence);
        if state.mode == Mode::Idle || !is_mine {
            return;
        }
        match sent.what {
            What::Told(told) => state.finish(told),
            What::Refused if self.has(Fault::RefusalIsFinal) => state.finish(Told::NotExecuted),
            What::Refused => state.ask(),
            What::NoSession if state.client_session < state.server_session => {
                state.client_session = state.server_session;
                state.sequence = 0;
                if self.has(Fault::SendsToNextLife) {
                    state.sequence = 1;
                    state.mode = Mode::Waiting;
                    state.send(What::Request {
                        op: state.told.len() as u8,
                    });
                } else {
                    state.finish(Told::Unknown);
                }
            }
            What::NoSession | What::Request { .. } | What::Resolve => {}
        }
    }

    /// Visits all states; gives their number, and what was wrong first.
    fn explore(&self) -> (usize, Option<&'static str>) {
        let keyed = Keyed::new(1);
        let mut numbers: HashMap<State, usize, Keyed> = HashMap::with_hasher(keyed);
        let mut before: Vec<Vec<usize>> = vec![Vec::new()];
        let mut ends = Vec::new();
        numbers.insert(self.start(), 0);
        let mut queue = VecDeque::from([(0, self.start())]);
        while let Some((number, state)) = queue.pop_front() {
            if let Some(wrong) = state.wrong() {
                return (numbers.len(), Some(wrong));
            }
            if state.told.len() == self.ops {
                ends.push(number);
            }
            for next in self.nexts(&state) {
                let fresh = numbers.len();
                let next_number = *numbers.entry(next.clone()).or_insert(fresh);
                if next_number == fresh {
                    before.push(Vec::new());
                    queue.push_back((fresh, next));
                }
                before[next_number].push(number);
            }
        }
        let mut can_end = vec![false; numbers.len()];
        while let Some(number) = ends.pop() {
            if !std::mem::replace(&mut can_end[number], true) {
                ends.extend(&before[number]);
            }
        }
        let is_stuck = can_end.contains(&false);
        (
            numbers.len(),
            is_stuck.then_some("the client can get stuck"),
        )
    }
}

impl State {
    fn with(&self, sent: Sent) -> Self {
        let mut next = self.clone();
        next.sent.insert(sent);
        next
    }

    fn send(&mut self, what: What) {
        let (session, sequence) = (self.client_session, self.sequence);
        self.sent.insert(Sent {
            session,
            sequence,
            what,
        });
    }

    fn ask(&mut self) {
        self.mode = Mode::Resolving;
        self.send(What::Resolve);
    }

    fn finish(&mut self, told: Told) {
        self.told.push(told);
        self.mode = Mode::Idle;
    }

    fn run(&mut self, op: u8) {
        self.runs[usize::from(op)] += 1;
        self.running.push(op);
    }

    fn end(&mut self, op: u8) {
        self.running.retain(|&other| other != op);
        let sequence = u64::from(op) + 1;
        // In the server's second life sequences begin anew, so look for the one that runs.
        for sequence in (1..=sequence).rev() {
            let Some(ended) = self.table.on_ended(0, sequence, 0, Reply::Status) else {
                continue;
            };
            let session = self.server_session;
            let to_client = |what| Sent {
                session,
                sequence,
                what,
            };
            self.sent.insert(to_client(What::Told(Told::Executed)));
            if !ended.others.is_empty() {
                self.sent.insert(to_client(What::Refused));
            }
            if let Some((_, copy)) = ended.next
                && !self.running.contains(&copy.who)
            {
                self.run(copy.who);
            }
            return;
        }
    }

    fn wrong(&self) -> Option<&'static str> {
        if self.runs.iter().any(|&runs| runs > 1) {
            return Some("ran twice");
        }
        if self.running.len() > 1 {
            return Some("two ran at once");
        }
        let mut told = self.told.iter().zip(self.runs);
        told.find_map(|(told, runs)| match (told, runs) {
            (Told::Executed, 0) => Some("executed, but did not run"),
            (Told::NotExecuted, 1) => Some("not executed, but ran"),
            _ => None,
        })
    }
}

impl Sent {
    fn answered(self, what: What) -> Self {
        Self { what, ..self }
    }
}

fn explore(ops: usize, lives: u8, fault: Option<Fault>) -> (usize, Option<&'static str>) {
    Model { ops, lives, fault }.explore()
}

#[test]
fn whatever_the_network_does_no_request_runs_twice_and_all_are_told_the_truth() {
    let (states, wrong) = explore(3, 2, None);
    assert_eq!(wrong, None);
    assert!(
        states > 10_000,
        "only {states} states: the search has missed most"
    );
}

#[test]
fn each_fault_put_in_on_purpose_is_found() {
    let faults = [
        (Fault::NoFilter, "ran twice"),
        (Fault::NoFence, "not executed, but ran"),
        (Fault::ForgetsFence, "not executed, but ran"),
        (Fault::RefusalIsFinal, "not executed, but ran"),
        (Fault::RunsBeside, "two ran at once"),
        (Fault::SessionSurvives, "ran twice"),
        (Fault::SendsToNextLife, "ran twice"),
    ];
    for (fault, wrong) in faults {
        assert_eq!(explore(3, 2, Some(fault)).1, Some(wrong), "{fault:?}");
    }
}

/// The quarantine is there for definite outcomes, not for at most once.
#[test]
fn a_slot_used_again_at_once_breaks_no_promise_of_the_filter() {
    assert_eq!(explore(3, 2, Some(Fault::NoQuarantine)).1, None);
}
