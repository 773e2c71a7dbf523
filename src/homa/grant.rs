//! Which incoming messages may send more, and how much.
//!
//! A few messages are *active*: those with the fewest bytes still to come, of as many peers as
//! may be. Each is granted up to a window beyond what arrived, and all together no more than a
//! fixed sum, so that the queue at our link stays short. The others wait; but a small share of the
//! link goes to the oldest, so that the longest message does not starve.
//! Source: HomaModule homa_grant.c.

use std::collections::BTreeSet;

use arrayvec::ArrayVec;

use crate::homa::event::RpcKey;
use crate::homa::mutant::{self, Mutant};
use crate::homa::params::Params;
use crate::slots::{Key, Slots};
use crate::time::{Duration, Instant, Rate};

/// Most messages that get grants at once. Source: HomaModule `HOMA_MAX_GRANTS` (8).
const ACTIVE_MAX: usize = 8;

/// Oldest messages looked at, at most, to find one for a grant out of order.
const OLDEST_LOOKS: usize = 16;

/// A message that needs grants.
#[derive(Debug)]
pub struct Grantee {
    rpc: RpcKey,
    /// The slot of the peer it comes from.
    peer: u32,
    birth: Instant,
    len: u32,
    received: u32,
    granted: u32,
    /// Up to where it was granted when it last got a grant out of order.
    fifo_from: Option<u32>,
    is_active: bool,
}

/// The order of messages: fewest bytes to come, then oldest.
type Rank = (u32, Instant, Key<Grantee>);

/// Let `rpc` send up to `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub rpc: RpcKey,
    pub offset: u32,
    pub priority: u8,
}

/// All messages that need grants.
#[derive(Debug)]
pub struct Grants {
    grantees: Slots<Grantee>,
    /// Best rank first.
    active: ArrayVec<Key<Grantee>, ACTIVE_MAX>,
    waiting: Waiting,
    /// All of them.
    by_age: BTreeSet<(Instant, Key<Grantee>)>,
    /// Bytes granted and not yet arrived.
    incoming: u64,
    /// Something changed since [`Self::poll`] last found nothing to grant.
    changed: bool,
    active_max: usize,
    window: u32,
    incoming_max: u32,
    priority_max: u8,
    fifo: Option<Fifo>,
}

/// Messages that are not active: each peer's by rank, and the first of each peer by rank.
#[derive(Debug, Default)]
struct Waiting {
    by_peer: BTreeSet<(u32, Rank)>,
    heads: BTreeSet<(Rank, u32)>,
}

/// Grants to the oldest message, whatever its rank.
#[derive(Debug)]
struct Fifo {
    chunk: u32,
    interval: Duration,
    priority: u8,
    next_at: Instant,
}

/// Compared with a newcomer, how fit an active message is to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    /// If the newcomer outranks it.
    IfOutranked,
    /// Its peer has so many active messages, at least two more than the newcomer's.
    Surplus(usize),
}

impl Grantee {
    fn rank(&self, key: Key<Grantee>) -> Rank {
        (self.len - self.received, self.birth, key)
    }

    fn incoming(&self) -> u64 {
        self.granted.saturating_sub(self.received).into()
    }

    /// Whether it made nothing of an earlier grant out of order: nothing beyond came. Rule GR-31.
    fn is_unresponsive(&self) -> bool {
        self.fifo_from.is_some_and(|from| self.received <= from)
    }
}

impl Waiting {
    fn head(&self, peer: u32) -> Option<Rank> {
        let first = (0, Instant(0), Key::from_parts(0, 0));
        let next = self.by_peer.range((peer, first)..).next();
        next.filter(|(of, _)| *of == peer).map(|(_, rank)| *rank)
    }

    fn insert(&mut self, peer: u32, rank: Rank) {
        let old = self.head(peer);
        self.by_peer.insert((peer, rank));
        self.set_head(peer, old);
    }

    fn remove(&mut self, peer: u32, rank: Rank) {
        let old = self.head(peer);
        self.by_peer.remove(&(peer, rank));
        self.set_head(peer, old);
    }

    fn set_head(&mut self, peer: u32, old: Option<Rank>) {
        let new = self.head(peer);
        if new == old {
            return;
        }
        if let Some(old) = old {
            self.heads.remove(&(old, peer));
        }
        if let Some(new) = new {
            self.heads.insert((new, peer));
        }
    }
}

impl Fifo {
    /// Of a link whose speed nobody knows. Source: HomaModule's `link_mbps`.
    const DEFAULT_LINK_MBPS: u32 = 25_000;

    /// The share is at most half. Source: HomaModule `grant_fifo_fraction`.
    const FRACTION_MAX: u16 = 500;

    /// Rule GR-30.
    fn new(params: &Params) -> Option<Self> {
        let fraction = params.grant_fifo_thousandths.min(Self::FRACTION_MAX);
        let chunk = params.fifo_grant_bytes;
        let link_mbps = match params.link_mbps {
            0 => Self::DEFAULT_LINK_MBPS,
            known => known,
        };
        let share = Rate::kbps(u64::from(link_mbps) * u64::from(fraction));
        (fraction > 0 && chunk > 0).then(|| Self {
            chunk,
            interval: share.time_for(chunk),
            priority: params.num_priorities.saturating_sub(2),
            next_at: Instant(0),
        })
    }
}

impl Grants {
    pub fn new(params: &Params) -> Self {
        Self {
            grantees: Slots::new(params.rpcs_max as usize),
            active: ArrayVec::new(),
            waiting: Waiting::default(),
            by_age: BTreeSet::new(),
            incoming: 0,
            changed: false,
            active_max: usize::from(params.max_overcommit).min(ACTIVE_MAX),
            window: params.window_bytes,
            incoming_max: params.max_incoming_bytes,
            priority_max: params.max_sched_priority,
            fifo: Fifo::new(params),
        }
    }

    /// A message from the peer in slot `peer` whose unscheduled bytes are not all of it, of which
    /// `received` bytes are here.
    pub fn on_start(
        &mut self,
        (rpc, peer): (RpcKey, u32),
        birth: Instant,
        len: u32,
        received: u32,
        granted: u32,
    ) -> Option<Key<Grantee>> {
        let grantee = Grantee {
            rpc,
            peer,
            birth,
            len,
            received,
            granted,
            fifo_from: None,
            is_active: false,
        };
        let incoming = grantee.incoming();
        let key = self.grantees.insert(grantee)?;
        self.incoming += incoming;
        self.by_age.insert((birth, key));
        self.admit(key);
        Some(key)
    }

    /// More of it arrived: `received` bytes now.
    pub fn on_data(&mut self, key: Key<Grantee>, received: u32) {
        let Some(grantee) = self.grantees.get_mut(key) else {
            return;
        };
        let (old_rank, old_incoming) = (grantee.rank(key), grantee.incoming());
        grantee.received = received;
        self.incoming = self.incoming - old_incoming + grantee.incoming();
        self.changed = true;
        if grantee.is_active {
            self.sort_active();
        } else {
            self.waiting.remove(grantee.peer, old_rank);
            self.admit(key);
        }
    }

    /// It is whole, or its RPC is gone.
    pub fn on_gone(&mut self, key: Key<Grantee>) {
        let Some(grantee) = self.grantees.remove(key) else {
            return;
        };
        if !mutant::is_on(Mutant::IncomingDrifts) {
            self.incoming -= grantee.incoming();
        }
        self.by_age.remove(&(grantee.birth, key));
        self.changed = true;
        if !grantee.is_active {
            self.waiting.remove(grantee.peer, grantee.rank(key));
            return;
        }
        self.active.retain(|active| *active != key);
        if mutant::is_on(Mutant::NeedyForgotten) {
            return;
        }
        if let Some(best) = self.best_waiting() {
            let (peer, rank) = (self.live(best).peer, self.rank(best));
            self.waiting.remove(peer, rank);
            self.activate(best);
        }
    }

    /// Whether there may be something to grant.
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The next grant to send, the oldest's if its time has come, then by rank; it counts as sent.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Decision> {
        if !self.changed {
            return None;
        }
        if let Some(decision) = self.poll_oldest(now) {
            return Some(decision);
        }
        for rank in 0..self.active.len() {
            let room = u64::from(self.incoming_max).saturating_sub(self.incoming);
            if room == 0 {
                break;
            }
            let key = self.active[rank];
            let wanted = self.wanted(self.live(key));
            let grantee = self.grantees.get_mut(key).expect("active ones are live");
            // Bytes that came without a grant make room, not debt: rule GR-16.
            let limit = grantee
                .granted
                .max(grantee.received)
                .saturating_add(room as u32);
            let offset = wanted.min(limit);
            if offset <= grantee.granted {
                continue;
            }
            let old_incoming = grantee.incoming();
            grantee.granted = offset;
            self.incoming = self.incoming - old_incoming + grantee.incoming();
            let rpc = grantee.rpc;
            return Some(Decision {
                rpc,
                offset,
                priority: self.priority(rank),
            });
        }
        self.changed = false;
        None
    }

    /// If it is time, a chunk for the oldest message that made something of its last one, even if
    /// it is not active and all that may be granted is. Rules GR-29, GR-31.
    fn poll_oldest(&mut self, now: Instant) -> Option<Decision> {
        let fifo = self.fifo.as_mut().filter(|fifo| fifo.next_at <= now)?;
        fifo.next_at = now + fifo.interval;
        let is_fit = |key: Key<Grantee>| {
            let grantee = self.grantees.get(key);
            grantee.is_some_and(|one| one.granted < one.len && !one.is_unresponsive())
        };
        let oldest = self.by_age.iter().take(OLDEST_LOOKS).map(|&(_, key)| key);
        let key = oldest.into_iter().find(|&key| is_fit(key))?;
        let grantee = self.grantees.get_mut(key)?;
        let (from, old_incoming) = (grantee.granted, grantee.incoming());
        let offset = from.saturating_add(fifo.chunk).min(grantee.len);
        (grantee.granted, grantee.fifo_from) = (offset, Some(from));
        self.incoming = self.incoming - old_incoming + grantee.incoming();
        Some(Decision {
            rpc: grantee.rpc,
            offset,
            priority: fifo.priority,
        })
    }

    #[cfg(test)]
    pub fn incoming(&self) -> u64 {
        self.incoming
    }

    /// Whose message it is.
    pub fn rpc_of(&self, key: Key<Grantee>) -> Option<RpcKey> {
        self.grantees.get(key).map(|grantee| grantee.rpc)
    }

    /// # Panics
    /// If the sum is not that of its parts, a message is lost, or one waits that need not.
    pub fn check(&self) {
        let parts = self.grantees.iter().map(|(_, grantee)| grantee.incoming());
        assert_eq!(self.incoming, parts.sum(), "sum of incoming bytes");
        let waiting = &self.waiting.by_peer;
        let filed = self.active.len() + waiting.len();
        assert_eq!(filed, self.grantees.len(), "messages that need grants");
        assert_eq!(self.by_age.len(), filed, "messages by age");
        let is_full = self.active.len() == self.active_max;
        assert!(waiting.is_empty() || is_full, "a place is not taken");
        let room = self.incoming < self.incoming_max.into();
        for (key, grantee) in self.grantees.iter() {
            assert!(grantee.granted <= grantee.len, "past the end: {grantee:?}");
            let is_filed = match grantee.is_active {
                true => self.active.contains(&key),
                false => waiting.contains(&(grantee.peer, grantee.rank(key))),
            };
            assert!(is_filed, "in no list: {grantee:?}");
            let is_needy = grantee.is_active && self.wanted(grantee) > grantee.granted;
            assert!(self.changed || !room || !is_needy, "forgotten: {grantee:?}");
        }
    }

    /// How far it should be granted, if the sum allows.
    fn wanted(&self, grantee: &Grantee) -> u32 {
        let window = match self.window {
            // Source: HomaModule `homa_grant_window`: rule GR-33.
            0 => self.incoming_max / (self.active.len() as u32 + 1),
            fixed => fixed,
        };
        let end = match mutant::is_on(Mutant::GrantPastEnd) {
            true => u32::MAX,
            false => grantee.len,
        };
        grantee.received.saturating_add(window).min(end)
    }

    /// Makes a message active if there is room, or one that is gives way; else lets it wait.
    fn admit(&mut self, key: Key<Grantee>) {
        self.changed = true;
        if self.active.len() < self.active_max {
            self.activate(key);
            return;
        }
        let Some(at) = self.victim(key) else {
            let (peer, rank) = (self.live(key).peer, self.rank(key));
            self.waiting.insert(peer, rank);
            return;
        };
        let victim = self.active.remove(at);
        if let Some(grantee) = self.grantees.get_mut(victim) {
            grantee.is_active = false;
        }
        let (peer, rank) = (self.live(victim).peer, self.rank(victim));
        self.waiting.insert(peer, rank);
        self.activate(key);
    }

    /// Which active message gives way to a newcomer: one of a peer with so many that there would
    /// still be as many as the newcomer's peer has, or else one that is outranked, as long as
    /// that spreads the active ones over peers no less. The lowest rank first.
    /// Rules GR-05 to GR-09.
    fn victim(&self, newcomer: Key<Grantee>) -> Option<usize> {
        let (peer, rank) = (self.live(newcomer).peer, self.rank(newcomer));
        let theirs_would_be = self.active_of(peer) + 1;
        let fitness = |key: Key<Grantee>| {
            let of = self.live(key).peer;
            let count = self.active_of(of);
            let outranked = rank < self.rank(key);
            match of != peer && count > theirs_would_be {
                true => Some(Victim::Surplus(count)),
                false if outranked && (of == peer || count == theirs_would_be) => {
                    Some(Victim::IfOutranked)
                }
                false => None,
            }
        };
        let active = self.active.iter().enumerate();
        let fit = active.filter_map(|(at, &key)| Some((fitness(key)?, self.rank(key), at)));
        fit.max().map(|(_, _, at)| at)
    }

    /// The waiting message to become active: of the peer with the fewest active ones, and of
    /// several such the best. Rule GR-11.
    fn best_waiting(&self) -> Option<Key<Grantee>> {
        // Of one peer more than can be active, one at least has none.
        let heads = self.waiting.heads.iter().take(ACTIVE_MAX + 1);
        let best = heads.min_by_key(|&&(rank, peer)| (self.active_of(peer), rank));
        best.map(|&((_, _, key), _)| key)
    }

    fn active_of(&self, peer: u32) -> usize {
        let active = self.active.iter();
        active.filter(|&&key| self.live(key).peer == peer).count()
    }

    fn live(&self, key: Key<Grantee>) -> &Grantee {
        self.grantees.get(key).expect("filed ones are live")
    }

    fn activate(&mut self, key: Key<Grantee>) {
        self.grantees
            .get_mut(key)
            .expect("the caller just found it")
            .is_active = true;
        self.active.push(key);
        self.sort_active();
    }

    fn sort_active(&mut self) {
        let grantees = &self.grantees;
        self.active.sort_unstable_by_key(|&key| {
            grantees.get(key).expect("active ones are live").rank(key)
        });
    }

    fn rank(&self, key: Key<Grantee>) -> Rank {
        self.live(key).rank(key)
    }

    /// With levels to spare the low ones are used, so that new short messages find the link free.
    /// Rule GR-03.
    fn priority(&self, rank: usize) -> u8 {
        let top = (self.active.len() as u8 - 1).min(self.priority_max);
        top.saturating_sub(rank as u8)
    }
}

#[cfg(test)]
mod tests;
