//! Which incoming messages may send more, and how much.
//!
//! A few messages are *active*: those with the fewest bytes still to come. Each is granted up to a
//! window beyond what arrived, and all together no more than a fixed sum, so that the queue at our
//! link stays short. The others wait. Source: HomaModule homa_grant.c.

use std::collections::BTreeSet;

use arrayvec::ArrayVec;

use crate::homa::event::RpcKey;
use crate::homa::mutant::{self, Mutant};
use crate::homa::params::Params;
use crate::slots::{Key, Slots};
use crate::time::Instant;

/// Most messages that get grants at once. Source: HomaModule `HOMA_MAX_GRANTS` (8).
const ACTIVE_MAX: usize = 8;

/// A message that needs grants.
#[derive(Debug)]
pub struct Grantee {
    rpc: RpcKey,
    birth: Instant,
    len: u32,
    received: u32,
    granted: u32,
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
    waiting: BTreeSet<Rank>,
    /// Bytes granted and not yet arrived.
    incoming: u64,
    /// Something changed since [`Self::poll`] last found nothing to grant.
    changed: bool,
    active_max: usize,
    window: u32,
    incoming_max: u32,
    priority_max: u8,
}

impl Grantee {
    fn rank(&self, key: Key<Grantee>) -> Rank {
        (self.len - self.received, self.birth, key)
    }

    fn incoming(&self) -> u64 {
        self.granted.saturating_sub(self.received).into()
    }
}

impl Grants {
    pub fn new(params: &Params) -> Self {
        Self {
            grantees: Slots::new(params.rpcs_max as usize),
            active: ArrayVec::new(),
            waiting: BTreeSet::new(),
            incoming: 0,
            changed: false,
            active_max: usize::from(params.max_overcommit).min(ACTIVE_MAX),
            window: params.window_bytes,
            incoming_max: params.max_incoming_bytes,
            priority_max: params.max_sched_priority,
        }
    }

    /// A message whose unscheduled bytes are not all of it, of which `received` bytes are here.
    pub fn on_start(
        &mut self,
        rpc: RpcKey,
        birth: Instant,
        len: u32,
        received: u32,
        granted: u32,
    ) -> Option<Key<Grantee>> {
        let grantee = Grantee {
            rpc,
            birth,
            len,
            received,
            granted,
            is_active: false,
        };
        self.incoming += grantee.incoming();
        let key = self.grantees.insert(grantee)?;
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
            self.waiting.remove(&old_rank);
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
        self.changed = true;
        if !grantee.is_active {
            self.waiting.remove(&grantee.rank(key));
            return;
        }
        self.active.retain(|active| *active != key);
        if mutant::is_on(Mutant::NeedyForgotten) {
            return;
        }
        if let Some((_, _, best)) = self.waiting.pop_first() {
            self.activate(best);
        }
    }

    /// Whether there may be something to grant.
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The next grant to send, best rank first; it counts as sent.
    #[inline]
    pub fn poll(&mut self) -> Option<Decision> {
        if !self.changed {
            return None;
        }
        for rank in 0..self.active.len() {
            let room = u64::from(self.incoming_max).saturating_sub(self.incoming);
            if room == 0 {
                break;
            }
            let key = self.active[rank];
            let wanted = self.wanted(self.grantees.get(key).expect("active ones are live"));
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
        let filed = self.active.len() + self.waiting.len();
        assert_eq!(filed, self.grantees.len(), "messages that need grants");
        let is_full = self.active.len() == self.active_max;
        assert!(self.waiting.is_empty() || is_full, "a place is not taken");
        let room = self.incoming < self.incoming_max.into();
        for (key, grantee) in self.grantees.iter() {
            assert!(grantee.granted <= grantee.len, "past the end: {grantee:?}");
            let is_filed = match grantee.is_active {
                true => self.active.contains(&key),
                false => self.waiting.contains(&grantee.rank(key)),
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

    /// Makes a message active if there is room or it outranks one that is, else lets it wait.
    fn admit(&mut self, key: Key<Grantee>) {
        self.changed = true;
        if self.active.len() < self.active_max {
            self.activate(key);
            return;
        }
        let worst = *self
            .active
            .last()
            .expect("at least one message may be active");
        if self.rank(key) < self.rank(worst) {
            self.active.pop();
            self.grantees
                .get_mut(worst)
                .expect("active ones are live")
                .is_active = false;
            self.waiting.insert(self.rank(worst));
            self.activate(key);
        } else {
            self.waiting.insert(self.rank(key));
        }
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
        self.grantees
            .get(key)
            .expect("filed ones are live")
            .rank(key)
    }

    /// With levels to spare the low ones are used, so that new short messages find the link free.
    /// Rule GR-03.
    fn priority(&self, rank: usize) -> u8 {
        let top = (self.active.len() as u8 - 1).min(self.priority_max);
        top.saturating_sub(rank as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn rpc(index: u32) -> RpcKey {
        Key::from_parts(index, 1)
    }

    fn grants(change: impl FnOnce(&mut Params)) -> Grants {
        let mut params = Params {
            max_incoming_bytes: 10_000,
            ..Params::default()
        };
        change(&mut params);
        Grants::new(&params)
    }

    fn poll_all(grants: &mut Grants) -> Vec<(u32, u32, u8)> {
        std::iter::from_fn(|| grants.poll())
            .map(|grant| (grant.rpc.index(), grant.offset, grant.priority))
            .collect()
    }

    /// Rules GR-17, GR-18: received 100, window 1200, granted 300: 1300, and then nothing.
    #[test]
    fn a_grant_reaches_a_window_beyond_what_came() {
        let mut grants = grants(|params| params.window_bytes = 1200);
        grants.on_start(rpc(1), Instant(0), 20_000, 100, 300);
        assert_eq!(poll_all(&mut grants), [(1, 1300, 0)]);
        assert_eq!((grants.incoming(), poll_all(&mut grants)), (1200, vec![]));
    }

    /// Rule GR-19: 700 B left: not beyond the end.
    #[test]
    fn a_grant_ends_with_the_message() {
        let mut grants = grants(|params| params.window_bytes = 1200);
        grants.on_start(rpc(1), Instant(0), 20_000, 19_300, 19_300);
        assert_eq!(poll_all(&mut grants), [(1, 20_000, 0)]);
    }

    /// Rules GR-20, GR-22, GR-23: 7,000 of 10,000 in use, three want 1,200: 1200, 1200, 600.
    #[test]
    fn the_sum_of_all_grants_is_limited_best_rank_first() {
        let mut grants = grants(|params| params.window_bytes = 1200);
        grants.on_start(rpc(9), Instant(0), 7001, 0, 7000);
        for index in 1..=3 {
            grants.on_start(rpc(index), Instant(0), 3000 + index, 0, 0);
        }
        let granted: Vec<_> = poll_all(&mut grants).iter().map(|g| (g.0, g.1)).collect();
        assert_eq!(granted, [(1, 1200), (2, 1200), (3, 600)]);
        assert_eq!(grants.incoming(), 10_000);
    }

    /// Rules GR-02, GR-09, GR-11: one slot: the shorter displaces, the longer waits its turn.
    #[test]
    fn a_shorter_message_displaces_and_a_longer_waits() {
        let mut grants = grants(|params| params.max_overcommit = 1);
        let long = grants
            .on_start(rpc(1), Instant(0), 50_000, 0, 50_000)
            .unwrap();
        grants.on_gone(long);
        grants.on_start(rpc(2), Instant(1), 9_000, 0, 100).unwrap();
        let short = grants.on_start(rpc(3), Instant(2), 2_000, 0, 100).unwrap();
        grants.on_start(rpc(4), Instant(3), 9_500, 0, 100).unwrap();
        assert_eq!(poll_all(&mut grants), [(3, 2000, 0)]);
        grants.on_gone(short);
        assert_eq!(poll_all(&mut grants)[0].0, 2);
    }

    /// Rule GR-12: what came may lift a waiting message into the active ones.
    #[test]
    fn progress_of_a_waiting_message_can_activate_it() {
        let mut grants = grants(|params| params.max_overcommit = 1);
        grants.on_start(rpc(1), Instant(0), 5_000, 0, 100);
        let other = grants
            .on_start(rpc(2), Instant(0), 9_000, 0, 8_000)
            .unwrap();
        assert_eq!(poll_all(&mut grants)[0].0, 1);
        grants.on_data(other, 7_000);
        assert_eq!(poll_all(&mut grants), [(2, 9000, 0)]);
    }

    /// Rule GR-03: 6 levels: 4 active use 3 to 0; 7 active use 6 to 0.
    #[test]
    fn low_priorities_are_used_while_levels_are_to_spare() {
        for (count, top) in [(4, 3), (7, 6)] {
            let mut grants = grants(|params| {
                params.max_sched_priority = 6;
                params.max_incoming_bytes = 1_000_000;
            });
            for index in 0..count {
                grants.on_start(rpc(index), Instant(0), 50_000 + index, 0, 0);
            }
            let priorities: Vec<_> = poll_all(&mut grants).iter().map(|g| g.2).collect();
            let expected: Vec<_> = (0..count as u8).map(|rank| top - rank).collect();
            assert_eq!(priorities, expected);
        }
    }

    /// Field case C031: whatever happens, the sum is that of the parts, and within the limit.
    #[test]
    fn incoming_is_always_the_sum_of_its_parts() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut grants = grants(|params| params.max_incoming_bytes = 100_000);
            let mut live: Vec<(Key<Grantee>, u32, u32)> = Vec::new();
            for step in 0..600 {
                match rng.below(4) {
                    0 => {
                        let len = 2 + rng.below(300_000) as u32;
                        let granted = rng.below(u64::from(len.min(5000))) as u32;
                        let key =
                            grants.on_start(rpc(step), Instant(rng.below(9)), len, 0, granted);
                        live.push((key.unwrap(), len, 0));
                    }
                    1 if !live.is_empty() => {
                        let at = rng.below(live.len() as u64) as usize;
                        grants.on_gone(live.swap_remove(at).0);
                    }
                    _ if !live.is_empty() => {
                        let at = rng.below(live.len() as u64) as usize;
                        let (key, len, received) = &mut live[at];
                        *received += rng.below(u64::from(*len - *received) + 1) as u32;
                        grants.on_data(*key, *received);
                    }
                    _ => {}
                }
                let before = grants.incoming();
                let granted = std::iter::from_fn(|| grants.poll()).count();
                grants.check();
                assert!(
                    granted == 0 || grants.incoming() <= before.max(100_000),
                    "seed {seed}"
                );
            }
            live.into_iter().for_each(|(key, _, _)| grants.on_gone(key));
            assert_eq!(
                (grants.grantees.len(), grants.incoming()),
                (0, 0),
                "seed {seed}"
            );
        }
    }
}
