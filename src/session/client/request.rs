//! What is known of each slot's request.

use crate::homa::RpcKey;
use crate::mem::Buf;
use crate::session::client::PathKey;
use crate::session::policy::PathSet;
use crate::time::Instant;

/// No slot.
const NONE: u32 = u32::MAX;

/// What a user wants of a request, besides what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It may run again in a server that has lost its memory.
    pub is_idempotent: bool,
    /// A READ whose data the server keeps, so that it never runs twice.
    pub runs_once: bool,
}

/// A slot, and its request if there is one.
#[derive(Debug)]
pub(super) struct Request {
    pub stage: Stage,
    /// Of the slot's latest request that was sent.
    pub sequence: u64,
    /// The request has that sequence; else it was not sent yet in this life of the session.
    pub was_sent: bool,
    /// It was sent in an earlier life, where it may have run.
    pub was_sent_before: bool,
    pub tag: u64,
    pub is_write: bool,
    pub flags: Flags,
    /// Header and all.
    pub message: Option<Buf>,
    pub user_len: u16,
    pub data_len: u32,
    pub segments: u16,
    /// Copies that were sent.
    pub attempts: u16,
    /// Paths that it need not be sent over again, for now.
    pub tried: PathSet,
    /// When its latest copy went out, in time lived.
    pub sent_at: Instant,
    /// When it began, and with which it must end.
    pub due_at: Instant,
    /// Its time was up once, and it was sent again all the same.
    pub is_overdue: bool,
    /// When the path of its latest copy was lost.
    pub lost_at: Instant,
    /// It is in the list of those that are due, in the order of their beginning.
    pub is_listed: bool,
    before: u32,
    after: u32,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    /// It waits to be sent, or sent again.
    Queued,
    Sent(Copied),
    /// The server is asked what became of it.
    Asking(Why),
    /// The user was told that nobody knows; the slot waits until somebody does.
    Quarantined,
}

/// The copy that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub path: PathKey,
    pub rpc: RpcKey,
    pub count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Its copies were turned away.
    Refused,
    /// It took too long. Until then an answer is waited for.
    TimedOut { until: Instant },
}

/// All slots.
#[derive(Debug)]
pub(super) struct Requests {
    slots: Vec<Request>,
    first: u32,
    last: u32,
    /// Requests that have not ended.
    pub open: u32,
}

impl Requests {
    pub fn new(slots: u32) -> Self {
        let idle = |_| Request {
            stage: Stage::Idle,
            sequence: 0,
            was_sent: false,
            was_sent_before: false,
            tag: 0,
            is_write: false,
            flags: Flags::default(),
            message: None,
            user_len: 0,
            data_len: 0,
            segments: 0,
            attempts: 0,
            tried: PathSet::default(),
            sent_at: Instant(0),
            due_at: Instant(0),
            is_overdue: false,
            lost_at: Instant(0),
            is_listed: false,
            before: NONE,
            after: NONE,
        };
        Self {
            slots: (0..slots).map(idle).collect(),
            first: NONE,
            last: NONE,
            open: 0,
        }
    }

    pub fn len(&self) -> u16 {
        self.slots.len() as u16
    }

    #[inline]
    pub fn get(&self, slot: u16) -> &Request {
        &self.slots[usize::from(slot)]
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u16) -> &mut Request {
        &mut self.slots[usize::from(slot)]
    }

    /// The slots that satisfy a condition.
    pub fn find(&self, is_it: impl Fn(&Request) -> bool) -> Vec<u16> {
        let slots = (0..).zip(&self.slots);
        slots
            .filter(|(_, request)| is_it(request))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The request that is due first of those in the list.
    #[inline]
    pub fn eldest(&self) -> Option<u16> {
        (self.first != NONE).then_some(self.first as u16)
    }

    /// A request begins: it is the last to be due.
    #[inline]
    pub fn begin(&mut self, slot: u16) {
        self.open += 1;
        self.list(slot);
    }

    /// A request has ended for its user. Its bytes are not needed any more.
    #[inline]
    pub fn end(&mut self, slot: u16, stage: Stage) {
        let request = self.get_mut(slot);
        request.stage = stage;
        request.message = None;
        self.open -= 1;
        self.unlist(slot);
    }

    /// Puts a request at the end of the list of those that are due.
    #[inline]
    pub fn list(&mut self, slot: u16) {
        let last = std::mem::replace(&mut self.last, slot.into());
        let request = self.get_mut(slot);
        request.is_listed = true;
        (request.before, request.after) = (last, NONE);
        match last {
            NONE => self.first = slot.into(),
            last => self.slots[last as usize].after = slot.into(),
        }
    }

    /// Puts a request at the head of the list; others may have to wait for it.
    pub fn list_first(&mut self, slot: u16) {
        let first = std::mem::replace(&mut self.first, slot.into());
        let request = self.get_mut(slot);
        request.is_listed = true;
        (request.before, request.after) = (NONE, first);
        match first {
            NONE => self.last = slot.into(),
            first => self.slots[first as usize].before = slot.into(),
        }
    }

    /// Takes a request out of the list, if it is there.
    #[inline]
    pub fn unlist(&mut self, slot: u16) {
        let request = self.get_mut(slot);
        if !std::mem::replace(&mut request.is_listed, false) {
            return;
        }
        let (before, after) = (request.before, request.after);
        match before {
            NONE => self.first = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.slots[after as usize].before = before,
        }
    }
}

impl Request {
    /// It has not ended for its user.
    pub fn is_open(&self) -> bool {
        match self.stage {
            Stage::Idle | Stage::Quarantined => false,
            Stage::Queued | Stage::Sent(_) | Stage::Asking(_) => true,
        }
    }

    /// The server must be asked what became of it.
    pub fn is_asking(&self) -> bool {
        match self.stage {
            Stage::Asking(_) | Stage::Quarantined => true,
            Stage::Idle | Stage::Queued | Stage::Sent(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_in_the_order_in_which_they_began() {
        let mut requests = Requests::new(4);
        for slot in [2, 0, 3] {
            requests.get_mut(slot).stage = Stage::Queued;
            requests.begin(slot);
        }
        assert_eq!((requests.eldest(), requests.open), (Some(2), 3));
        requests.end(0, Stage::Idle);
        requests.unlist(2);
        assert_eq!(requests.eldest(), Some(3));
        requests.end(2, Stage::Quarantined);
        requests.begin(0);
        requests.end(3, Stage::Idle);
        assert_eq!(requests.eldest(), Some(0));
        requests.begin(1);
        requests.unlist(1);
        requests.list_first(1);
        assert_eq!(requests.eldest(), Some(1));
        requests.end(1, Stage::Idle);
        requests.end(0, Stage::Idle);
        assert_eq!((requests.eldest(), requests.open), (None, 0));
    }
}
