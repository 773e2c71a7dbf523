//! A channel's outward side: what may be sent, what must be sent again, and when.

use std::collections::VecDeque;

use crate::homa::Payload;
use crate::mem::Buf;
use crate::slots::Key;
use crate::time::{Duration, Instant};
use crate::wire::channel::Credit;

use super::state::Flight;
use super::{CREDIT_BYTES, CREDIT_MESSAGES};

/// RPCs of one channel at once while nothing goes wrong: all that its credit allows.
const FLYING_MAX: u32 = CREDIT_MESSAGES as u32 + 2;

/// The first pause after something went wrong, which doubles each time.
const PAUSE_MIN: Duration = Duration::millis(1);
/// So often.
const PAUSE_DOUBLINGS_MAX: u32 = 6;

/// What goes to the peer, and what of it is not confirmed.
#[derive(Debug, Default)]
pub struct Sender {
    /// What was pushed and not sent.
    unsent: VecDeque<Push>,
    /// What was sent and not confirmed, by sequence.
    sent: VecDeque<Sent>,
    /// The sequence of the next message.
    next: u64,
    /// Bytes sent since the channel began.
    sent_bytes: u64,
    /// What the peer has popped, as it told.
    popped: Credit,
    fin: Fin,
    flying: u32,
    /// How many may fly: one only after something went wrong, as the peer may be short of room or
    /// away; twice as many with each that arrives.
    flying_max: u32,
    /// What went wrong in a row.
    attempts: u32,
    retry_at: Option<Instant>,
    /// When the oldest message that is not confirmed became the oldest.
    progress_at: Instant,
}

/// A message that waits to be sent, with a reference of ours on its bytes.
#[derive(Debug)]
pub struct Push {
    pub payload: Payload,
    pub len: u32,
    pub tag: u64,
}

/// A message that was sent at least once: header and bytes, our own copy.
#[derive(Debug)]
pub struct Sent {
    sequence: u64,
    buf: Buf,
    state: SentState,
    /// It was sent before.
    is_again: bool,
    /// The push whose bytes are free once all were handed to the device.
    tag: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentState {
    Flying(Key<Flight>),
    /// To be sent again.
    Lost,
    Confirmed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fin {
    #[default]
    No,
    /// It goes out after all else.
    Wanted,
    Sent,
}

/// The pause after something went wrong for that many times in a row.
pub fn pause(attempts: u32) -> Duration {
    PAUSE_MIN.times(1 << attempts.min(PAUSE_DOUBLINGS_MAX))
}

impl Sender {
    pub fn new() -> Self {
        Self {
            flying_max: FLYING_MAX,
            ..Self::default()
        }
    }

    pub fn push(&mut self, push: Push) {
        self.unsent.push_back(push);
    }

    /// The next push, if it may be sent now.
    pub fn next_push(&self, lived: Instant) -> Option<&Push> {
        let push = self.unsent.front()?;
        (self.may_fly(lived) && !self.has_lost() && self.has_credit(push.len)).then_some(push)
    }

    /// Takes out what [`Self::next_push`] gave.
    pub fn take_push(&mut self) -> Option<Push> {
        self.unsent.pop_front()
    }

    /// There was no memory for it: it stays the next.
    pub fn put_back(&mut self, push: Push) {
        self.unsent.push_front(push);
    }

    /// The last message goes out after all that was pushed.
    pub fn want_fin(&mut self) {
        if self.fin == Fin::No {
            self.fin = Fin::Wanted;
        }
    }

    /// Whether the last message may be sent now.
    pub fn may_send_fin(&self, lived: Instant) -> bool {
        self.fin == Fin::Wanted && self.unsent.is_empty() && !self.has_lost() && self.may_fly(lived)
    }

    /// The last message is among those added.
    pub fn on_fin(&mut self) {
        self.fin = Fin::Sent;
    }

    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Adds a message that is about to be sent for the first time; it counts as lost until then.
    pub fn add(&mut self, lived: Instant, buf: Buf, bytes: u32, tag: Option<u64>) {
        if self.sent.is_empty() {
            self.progress_at = lived;
        }
        self.sent.push_back(Sent {
            sequence: self.next,
            buf,
            state: SentState::Lost,
            is_again: false,
            tag,
        });
        self.next += 1;
        self.sent_bytes += u64::from(bytes);
    }

    /// The oldest message that is to be sent, first or again: its sequence, its bytes, and whether
    /// somebody waits for their being sent.
    pub fn next_lost(&self, lived: Instant) -> Option<(u64, Buf, bool)> {
        let mut sent = self.sent.iter();
        let at = sent.position(|sent| sent.state == SentState::Lost)?;
        // The oldest goes in any case: the peer may keep the others until it has that.
        if self.is_paused(lived) || (at > 0 && self.flying >= self.flying_max) {
            return None;
        }
        let lost = self.sent.get(at)?;
        Some((lost.sequence, lost.buf.clone(), lost.tag.is_some()))
    }

    /// An RPC carries a message now. Tells whether it is not the first.
    pub fn on_flight(&mut self, sequence: u64, flight: Key<Flight>) -> bool {
        let Some(sent) = self.get_mut(sequence) else {
            return false;
        };
        sent.state = SentState::Flying(flight);
        let is_again = std::mem::replace(&mut sent.is_again, true);
        self.flying += 1;
        is_again
    }

    /// All bytes of a message were handed to the device: the push that waits for that.
    pub fn on_transmitted(&mut self, sequence: u64) -> Option<u64> {
        self.get_mut(sequence)?.tag.take()
    }

    /// The peer has a message: the push that still waits for its bytes.
    pub fn on_confirmed(&mut self, lived: Instant, sequence: u64) -> Option<u64> {
        let sent = self.get_mut(sequence)?;
        let was_flying = matches!(sent.state, SentState::Flying(_));
        sent.state = SentState::Confirmed;
        let tag = sent.tag.take();
        self.flying -= u32::from(was_flying);
        self.flying_max = (self.flying_max * 2).min(FLYING_MAX);
        self.attempts = 0;
        self.retry_at = None;
        while self
            .sent
            .front()
            .is_some_and(|sent| sent.state == SentState::Confirmed)
        {
            self.sent.pop_front();
            self.progress_at = lived;
        }
        tag
    }

    /// An RPC failed, or the peer had no room: the message is to be sent again after a pause.
    pub fn on_lost(&mut self, lived: Instant, sequence: u64) {
        let Some(sent) = self.get_mut(sequence) else {
            return;
        };
        if matches!(sent.state, SentState::Flying(_)) {
            sent.state = SentState::Lost;
            self.flying -= 1;
        }
        self.flying_max = 1;
        self.retry_at = Some(lived + pause(self.attempts));
        self.attempts += 1;
    }

    /// Something of ours is used up: tries again soon.
    pub fn on_short(&mut self, lived: Instant) {
        self.retry_at = Some(lived + PAUSE_MIN);
    }

    /// The peer popped so much. What cannot be is not believed.
    pub fn on_credit(&mut self, credit: Credit) {
        if credit.sequence <= self.next && credit.bytes <= self.sent_bytes {
            self.popped.sequence = self.popped.sequence.max(credit.sequence);
            self.popped.bytes = self.popped.bytes.max(credit.bytes);
        }
    }

    /// Nothing is left that the peer has not confirmed.
    pub fn is_settled(&self) -> bool {
        self.sent.is_empty() && self.unsent.is_empty() && self.fin != Fin::Wanted
    }

    /// Nothing under way.
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// When it wants to be looked at: to send again, or to see that nothing was confirmed for
    /// `timeout`.
    pub fn due_at(&self, timeout: Duration) -> Option<Instant> {
        let over_at = (!self.is_idle()).then(|| self.progress_at + timeout);
        self.retry_at.into_iter().chain(over_at).min()
    }

    /// The pause is over.
    pub fn end_pause(&mut self, lived: Instant) {
        self.retry_at = self.retry_at.filter(|&at| at > lived);
    }

    /// Whether nothing was confirmed for `timeout` though something should have been.
    pub fn has_timed_out(&self, lived: Instant, timeout: Duration) -> bool {
        !self.is_idle() && lived.since(self.progress_at) >= timeout
    }

    /// Ends all: the flights under way, and what was pushed.
    pub fn end(&mut self) -> (Vec<Key<Flight>>, Vec<u64>, VecDeque<Push>) {
        let (mut flights, mut tags) = (Vec::new(), Vec::new());
        for sent in self.sent.drain(..) {
            tags.extend(sent.tag);
            if let SentState::Flying(flight) = sent.state {
                flights.push(flight);
            }
        }
        self.flying = 0;
        self.retry_at = None;
        self.fin = Fin::No;
        (flights, tags, std::mem::take(&mut self.unsent))
    }

    fn may_fly(&self, lived: Instant) -> bool {
        self.flying < self.flying_max && !self.is_paused(lived)
    }

    fn is_paused(&self, lived: Instant) -> bool {
        self.retry_at.is_some_and(|at| at > lived)
    }

    fn has_lost(&self) -> bool {
        self.sent.iter().any(|sent| sent.state == SentState::Lost)
    }

    /// A message longer than all credit travels alone.
    fn has_credit(&self, len: u32) -> bool {
        let messages = self.next - self.popped.sequence;
        let bytes = self.sent_bytes - self.popped.bytes;
        messages == 0 || (messages < CREDIT_MESSAGES && bytes + u64::from(len) <= CREDIT_BYTES)
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut Sent> {
        let first = self.sent.front()?.sequence;
        let at = usize::try_from(sequence.checked_sub(first)?).ok()?;
        self.sent.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Buffers;

    const NOW: Instant = Instant(1_000_000_000);

    fn push(len: u32) -> Push {
        Push {
            payload: Payload::Gone,
            len,
            tag: 0,
        }
    }

    /// Sends whatever may be sent, in RPCs with the number of their message; tells how many.
    fn send_all(sender: &mut Sender, lived: Instant) -> Vec<u64> {
        let buffers = Buffers::new(1 << 20);
        let mut sent = Vec::new();
        loop {
            if let Some((sequence, _, _)) = sender.next_lost(lived) {
                sender.on_flight(sequence, Key::from_parts(sequence as u32, 1));
                sent.push(sequence);
            } else if let Some(len) = sender.next_push(lived).map(|push| push.len) {
                sender.take_push();
                sender.add(lived, buffers.alloc(1).unwrap(), len, None);
            } else {
                return sent;
            }
        }
    }

    fn credit(sequence: u64, bytes: u64) -> Credit {
        Credit { sequence, bytes }
    }

    #[test]
    fn no_more_is_sent_than_the_peer_has_room_for() {
        let mut sender = Sender::new();
        (0..40).for_each(|_| sender.push(push(1)));
        assert_eq!(send_all(&mut sender, NOW).len(), 32);
        (0..32).for_each(|sequence| assert_eq!(sender.on_confirmed(NOW, sequence), None));
        assert!(
            send_all(&mut sender, NOW).is_empty(),
            "confirmed is not popped"
        );
        sender.on_credit(credit(3, 3));
        sender.on_credit(credit(2, 2));
        assert_eq!(send_all(&mut sender, NOW), [32, 33, 34]);
    }

    /// 256 KiB is 262,144 B: two of 131,072 B fit exactly.
    #[test]
    fn bytes_count_too_and_what_is_longer_than_all_credit_travels_alone() {
        let mut sender = Sender::new();
        for len in [131_072, 131_072, 1, 500_000, 1] {
            sender.push(push(len));
        }
        assert_eq!(send_all(&mut sender, NOW), [0, 1]);
        sender.on_credit(credit(1, 131_072));
        assert_eq!(send_all(&mut sender, NOW), [2]);
        sender.on_credit(credit(2, 262_144));
        assert!(send_all(&mut sender, NOW).is_empty());
        sender.on_credit(credit(3, 262_145));
        assert_eq!(send_all(&mut sender, NOW), [3]);
        sender.on_credit(credit(4, 762_145));
        assert_eq!(send_all(&mut sender, NOW), [4]);
    }

    #[test]
    fn credit_for_what_was_never_sent_is_not_believed() {
        let mut sender = Sender::new();
        (0..34).for_each(|_| sender.push(push(1)));
        send_all(&mut sender, NOW);
        sender.on_credit(credit(33, 1));
        sender.on_credit(credit(1, 33));
        sender.on_credit(credit(u64::MAX, u64::MAX));
        assert!(send_all(&mut sender, NOW).is_empty());
    }

    /// Pauses of 1 ms, 2 ms and so on; then the oldest alone, and with each that arrives twice as
    /// many as before.
    #[test]
    fn after_trouble_the_oldest_goes_first_and_alone() {
        let mut sender = Sender::new();
        (0..8).for_each(|_| sender.push(push(1)));
        assert_eq!(send_all(&mut sender, NOW).len(), 8);
        // Number 0 is lost while the others wait for it at the peer.
        sender.on_lost(NOW, 0);
        assert!(send_all(&mut sender, NOW).is_empty());
        let mut now = NOW + Duration::millis(1);
        assert_eq!(send_all(&mut sender, now), [0]);
        (0..8).for_each(|sequence| sender.on_lost(now, sequence));
        now += Duration::secs(1);
        assert_eq!(send_all(&mut sender, now), [0]);
        sender.on_confirmed(now, 0);
        assert_eq!(send_all(&mut sender, now), [1, 2]);
        sender.on_confirmed(now, 1);
        assert_eq!(send_all(&mut sender, now), [3, 4, 5]);
    }

    #[test]
    fn nothing_confirmed_for_long_is_the_end() {
        let (mut sender, timeout) = (Sender::new(), Duration::secs(30));
        assert_eq!(sender.due_at(timeout), None);
        sender.push(push(1));
        sender.push(push(1));
        send_all(&mut sender, NOW);
        assert_eq!(sender.due_at(timeout), Some(NOW + timeout));
        let later = NOW + Duration::secs(29);
        sender.on_confirmed(later, 0);
        assert!(!sender.has_timed_out(NOW + timeout, timeout));
        assert!(sender.has_timed_out(later + timeout, timeout));
    }
}
