//! The server's filter of duplicates: what it knows of each slot of a session.
//!
//! A client has at most one request per slot under way, and numbers them from 1. So the last
//! number, and what became of it, are all that is needed to tell a new request from a copy: no
//! window, no acknowledgement, nothing that is thrown away too early. All paths of a session share
//! the table, and it lives as long as the session does.
//!
//! | a copy of request `n` comes | and the slot's last | then |
//! |---|---|---|
//! | `n` > last | is not running | it runs |
//! | `n` > last | is running | it is parked until that ends |
//! | `n` = last | is running | it waits for the same answer |
//! | `n` = last | has run | it is told the answer again |
//! | `n` = last | was fenced | it is told that it will never run |
//! | `n` < last | | it is stale |
//!
//! **The fence makes "it did not run" true for ever**: [`SlotTable::resolve`] takes the number of a
//! request that has not come as if it had, so that a late copy finds it used up.

use std::collections::VecDeque;

use crate::wire::session::SlotState;

/// Most copies of one request that wait for its answer.
const WAITERS_MAX: usize = 8;

/// What is known of all slots. `W` names a copy that waits; `K` holds the data of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotTable<W, K> {
    slots: Vec<Slot<W, K>>,
    running: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot<W, K> {
    /// The latest request that ran, runs or was fenced; 0 before the first.
    last: u64,
    state: State<W, K>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State<W, K> {
    Idle,
    Running {
        /// The latest copy.
        first: Copied<W>,
        more: VecDeque<Copied<W>>,
        /// A copy of the next request, which came too early.
        parked: Option<(u64, Copied<W>)>,
    },
    Done {
        status: i32,
        reply: Reply<K>,
    },
    Fenced,
}

/// One copy of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copied<W> {
    pub who: W,
    /// Which copy it is, from 1: only the latest can still be waited for.
    pub attempt: u16,
}

/// How a request that has run is answered again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply<K> {
    /// By its status alone.
    Status,
    /// By running it once more: a READ whose data was not to be kept.
    Rerun,
    /// By the data that was kept.
    Kept(K),
    /// Not at all: there was no memory to keep its data.
    Lost,
}

/// What to do with a copy that has come. Those named in it are to be turned away.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<'a, W, K> {
    /// Run it. `skips`: the client never sent the requests between.
    Run { skips: bool },
    /// Run it again: it is a READ.
    Rerun,
    /// It waits for the one that is running.
    Waits { turned_away: Option<W> },
    /// It runs when the one before it has ended.
    Parked { turned_away: Option<W> },
    /// It came too early, as another one did.
    Busy,
    /// It has run. The data is that of a READ that was to run only once.
    Replay { status: i32, data: Option<&'a K> },
    /// It has run, and what it read is gone.
    NoData,
    /// It will never run.
    Fenced,
    /// A later one was here.
    Stale,
    /// No such slot or sequence.
    Odd,
}

/// What to do when a handler has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<W> {
    /// Whom to tell.
    pub answer: Copied<W>,
    /// Whom to turn away: their client has sent a later copy, and waits for that.
    pub others: VecDeque<Copied<W>>,
    /// What runs now.
    pub next: Option<(u64, Copied<W>)>,
}

impl<W: Copy, K> SlotTable<W, K> {
    pub fn new(slots: u32) -> Self {
        let idle = || Slot {
            last: 0,
            state: State::Idle,
        };
        Self {
            slots: (0..slots).map(|_| idle()).collect(),
            running: 0,
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// How many requests run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// A copy of request `sequence` of a slot has come.
    pub fn on_request(&mut self, slot: u16, sequence: u64, copy: Copied<W>) -> Admission<'_, W, K> {
        let Some(slot) = self
            .slots
            .get_mut(usize::from(slot))
            .filter(|_| sequence > 0)
        else {
            return Admission::Odd;
        };
        if sequence < slot.last {
            return Admission::Stale;
        }
        let is_new = sequence > slot.last;
        let is_running = matches!(slot.state, State::Running { .. });
        if is_new && !is_running {
            let skips = sequence - slot.last > 1;
            slot.begin(sequence, copy);
            self.running += 1;
            return Admission::Run { skips };
        }
        if slot.must_rerun() {
            slot.begin(sequence, copy);
            self.running += 1;
            return Admission::Rerun;
        }
        match &mut slot.state {
            State::Running { parked, .. } if is_new => park(parked, sequence, copy),
            State::Running { first, more, .. } => wait(first, more, copy),
            State::Done { status, reply } => match reply {
                Reply::Kept(data) => Admission::Replay {
                    status: *status,
                    data: Some(data),
                },
                Reply::Lost => Admission::NoData,
                Reply::Status | Reply::Rerun => Admission::Replay {
                    status: *status,
                    data: None,
                },
            },
            // An idle slot's last is 0, and no sequence is.
            State::Fenced | State::Idle => Admission::Fenced,
        }
    }

    /// The handler of a slot's request has ended; `None` if no such request runs.
    pub fn on_ended(
        &mut self,
        slot: u16,
        sequence: u64,
        status: i32,
        reply: Reply<K>,
    ) -> Option<Ended<W>> {
        let slot = self.slots.get_mut(usize::from(slot))?;
        if slot.last != sequence || !matches!(slot.state, State::Running { .. }) {
            return None;
        }
        let done = State::Done { status, reply };
        let State::Running {
            first,
            more,
            parked,
        } = std::mem::replace(&mut slot.state, done)
        else {
            return None;
        };
        match parked {
            Some((next, copy)) => slot.begin(next, copy),
            None => self.running -= 1,
        }
        Some(Ended {
            answer: first,
            others: more,
            next: parked,
        })
    }

    /// Says what became of a request, and fences it if it has not come. `None` if there is no such
    /// slot or sequence.
    pub fn resolve(&mut self, slot: u16, sequence: u64) -> Option<SlotState> {
        let slot = self
            .slots
            .get_mut(usize::from(slot))
            .filter(|_| sequence > 0)?;
        if sequence < slot.last {
            return Some(SlotState::Stale);
        }
        Some(match &slot.state {
            State::Running { .. } => SlotState::InProgress,
            State::Idle | State::Done { .. } | State::Fenced if sequence > slot.last => {
                slot.last = sequence;
                slot.state = State::Fenced;
                SlotState::NotExecuted
            }
            State::Done {
                reply: Reply::Rerun | Reply::Kept(_),
                status: 0,
            } => SlotState::DoneNoData,
            State::Done { status, .. } => SlotState::Done { status: *status },
            State::Fenced | State::Idle => SlotState::NotExecuted,
        })
    }

    /// The session is over. Tells all who wait for it in vain; `true` for those that were parked.
    /// Who waits for the answer of a request that runs will have it.
    pub fn turn_away_all(&mut self, mut tell: impl FnMut(W, bool)) {
        for slot in &mut self.slots {
            if let State::Running { more, parked, .. } = &mut slot.state {
                more.drain(..).for_each(|copy| tell(copy.who, false));
                if let Some((_, copy)) = parked.take() {
                    tell(copy.who, true);
                }
            }
        }
    }
}

impl<W, K> Slot<W, K> {
    fn must_rerun(&self) -> bool {
        let reply = match &self.state {
            State::Done { reply, .. } => reply,
            State::Idle | State::Running { .. } | State::Fenced => return false,
        };
        matches!(reply, Reply::Rerun)
    }

    fn begin(&mut self, sequence: u64, first: Copied<W>) {
        self.last = sequence;
        self.state = State::Running {
            first,
            more: VecDeque::new(),
            parked: None,
        };
    }
}

/// One more copy of a request that runs. The latest is the one whose client still listens.
fn wait<'a, W: Copy, K>(
    first: &mut Copied<W>,
    more: &mut VecDeque<Copied<W>>,
    copy: Copied<W>,
) -> Admission<'a, W, K> {
    more.push_back(match copy.attempt >= first.attempt {
        true => std::mem::replace(first, copy),
        false => copy,
    });
    let turned_away = (more.len() >= WAITERS_MAX).then(|| more.pop_front());
    Admission::Waits {
        turned_away: turned_away.flatten().map(|copy| copy.who),
    }
}

/// A request that came before the one ahead of it has ended. There is room for one.
fn park<'a, W: Copy, K>(
    parked: &mut Option<(u64, Copied<W>)>,
    sequence: u64,
    copy: Copied<W>,
) -> Admission<'a, W, K> {
    match parked {
        Some((other, _)) if *other != sequence => Admission::Busy,
        Some((_, earlier)) if earlier.attempt > copy.attempt => Admission::Busy,
        Some(_) | None => Admission::Parked {
            turned_away: parked
                .replace((sequence, copy))
                .map(|(_, earlier)| earlier.who),
        },
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    type Table = SlotTable<u8, &'static str>;

    fn copy(who: u8) -> Copied<u8> {
        Copied {
            who,
            attempt: who.into(),
        }
    }

    fn ended(answer: u8, others: &[u8], next: Option<(u64, u8)>) -> Option<Ended<u8>> {
        Some(Ended {
            answer: copy(answer),
            others: others.iter().map(|&who| copy(who)).collect(),
            next: next.map(|(sequence, who)| (sequence, copy(who))),
        })
    }

    const WAITS: Admission<'_, u8, &'static str> = Admission::Waits { turned_away: None };

    #[test]
    fn a_copy_of_a_running_request_waits_and_the_latest_is_answered() {
        let mut table = Table::new(2);
        assert_eq!(
            table.on_request(1, 1, copy(1)),
            Admission::Run { skips: false }
        );
        assert_eq!(table.on_request(1, 1, copy(3)), WAITS);
        assert_eq!(table.on_request(1, 1, copy(2)), WAITS);
        assert_eq!(table.running(), 1);
        assert_eq!(
            table.on_ended(1, 1, -5, Reply::Status),
            ended(3, &[1, 2], None)
        );
        assert_eq!(table.on_ended(1, 1, -5, Reply::Status), None);
        let replay = Admission::Replay {
            status: -5,
            data: None,
        };
        assert_eq!(table.on_request(1, 1, copy(4)), replay);
        assert_eq!(table.running(), 0);
    }

    #[test]
    fn more_than_eight_copies_do_not_wait() {
        let mut table = Table::new(1);
        assert_eq!(
            table.on_request(0, 1, copy(1)),
            Admission::Run { skips: false }
        );
        for who in 2..=8 {
            assert_eq!(table.on_request(0, 1, copy(who)), WAITS);
        }
        for oldest in 1..4 {
            let turned_away = Some(oldest);
            assert_eq!(
                table.on_request(0, 1, copy(8 + oldest)),
                Admission::Waits { turned_away }
            );
        }
    }

    #[test]
    fn a_request_that_came_too_early_runs_next_and_a_second_one_does_not_wait() {
        let mut table = Table::new(1);
        assert_eq!(
            table.on_request(0, 1, copy(1)),
            Admission::Run { skips: false }
        );
        assert_eq!(
            table.on_request(0, 2, copy(2)),
            Admission::Parked { turned_away: None }
        );
        assert_eq!(table.on_request(0, 3, copy(9)), Admission::Busy);
        assert_eq!(
            table.on_request(0, 2, copy(3)),
            Admission::Parked {
                turned_away: Some(2)
            }
        );
        assert_eq!(table.on_request(0, 2, copy(1)), Admission::Busy);
        assert_eq!(table.resolve(0, 2), Some(SlotState::InProgress));
        assert_eq!(
            table.on_ended(0, 1, 0, Reply::Status),
            ended(1, &[], Some((2, 3)))
        );
        assert_eq!(table.on_request(0, 1, copy(1)), Admission::Stale);
        assert_eq!(table.running(), 1);
        assert_eq!(table.on_ended(0, 2, 0, Reply::Status), ended(3, &[], None));
    }

    #[test]
    fn a_fence_stands_for_ever_and_falls_with_the_next_request() {
        let mut table = Table::new(1);
        assert_eq!(table.resolve(0, 4), Some(SlotState::NotExecuted));
        assert_eq!(table.on_request(0, 4, copy(1)), Admission::Fenced);
        assert_eq!(table.resolve(0, 4), Some(SlotState::NotExecuted));
        assert_eq!(table.on_request(0, 3, copy(1)), Admission::Stale);
        assert_eq!(table.resolve(0, 3), Some(SlotState::Stale));
        assert_eq!(
            table.on_request(0, 6, copy(1)),
            Admission::Run { skips: true }
        );
        assert_eq!(table.resolve(0, 7), Some(SlotState::InProgress));
    }

    #[test]
    fn a_read_is_run_again_or_its_data_was_kept() {
        let mut table = Table::new(3);
        for (slot, reply) in [
            (0, Reply::Rerun),
            (1, Reply::Kept("data")),
            (2, Reply::Lost),
        ] {
            assert_eq!(
                table.on_request(slot, 1, copy(1)),
                Admission::Run { skips: false }
            );
            assert_eq!(table.on_ended(slot, 1, 0, reply), ended(1, &[], None));
        }
        assert_eq!(table.resolve(0, 1), Some(SlotState::DoneNoData));
        assert_eq!(table.on_request(0, 1, copy(2)), Admission::Rerun);
        assert_eq!(table.resolve(0, 1), Some(SlotState::InProgress));
        let kept = Admission::Replay {
            status: 0,
            data: Some(&"data"),
        };
        assert_eq!(table.on_request(1, 1, copy(2)), kept);
        assert_eq!(table.resolve(1, 1), Some(SlotState::DoneNoData));
        assert_eq!(table.on_request(2, 1, copy(2)), Admission::NoData);
    }

    #[test]
    fn numbers_at_either_end_are_numbers_like_others() {
        let mut table = Table::new(1);
        assert_eq!(table.on_request(0, 0, copy(1)), Admission::Odd);
        assert_eq!(table.on_request(1, 1, copy(1)), Admission::Odd);
        assert_eq!((table.resolve(0, 0), table.resolve(1, 1)), (None, None));
        assert_eq!(
            table.on_request(0, u64::MAX, copy(1)),
            Admission::Run { skips: true }
        );
        assert_eq!(table.on_request(0, u64::MAX - 1, copy(1)), Admission::Stale);
        assert_eq!(
            table.on_ended(0, u64::MAX, 0, Reply::Status),
            ended(1, &[], None)
        );
        assert_eq!(
            table.resolve(0, u64::MAX),
            Some(SlotState::Done { status: 0 })
        );
    }

    #[test]
    fn those_who_wait_in_vain_are_told_and_the_running_one_goes_on() {
        let mut table = Table::new(1);
        assert_eq!(
            table.on_request(0, 1, copy(1)),
            Admission::Run { skips: false }
        );
        assert_eq!(table.on_request(0, 1, copy(2)), WAITS);
        assert_eq!(
            table.on_request(0, 2, copy(3)),
            Admission::Parked { turned_away: None }
        );
        let mut told = Vec::new();
        table.turn_away_all(|who, is_parked| told.push((who, is_parked)));
        assert_eq!(told, [(1, false), (3, true)]);
        assert_eq!(table.on_ended(0, 1, 0, Reply::Status), ended(2, &[], None));
    }
}
