//! What is known of each host we talk to.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::num::NonZeroU64;

use arrayvec::ArrayVec;

use crate::addr::{Ip, LinkId};
use crate::homa::event::RpcKey;
use crate::homa::repair::Reorder;
use crate::keyed::Keyed;
use crate::slots::{Key, Slots};
use crate::time::{Duration, Instant};
use crate::wire::homa::{Ack, Cutoffs, MAX_MESSAGE_LEN, RpcId};

/// Acks that may wait for a packet that carries them. Source: decision "16 saved acks": with the
/// Linux module's 5, ACK packets cost 18 cycles per RPC at 8 outstanding.
pub const SAVED_ACKS_MAX: usize = 16;

/// Peers looked at, at most, to find one that may be forgotten.
const SWEEP_MAX: usize = 64;

/// One host.
#[derive(Debug)]
pub struct Peer {
    pub ip: Ip,
    pub link: Link,
    /// Its unscheduled cutoffs and their version, which is 0 until it told us.
    pub cutoffs: Cutoffs,
    /// Since when it has used our cutoffs.
    pub uses_ours_since: Option<Instant>,
    /// Goes up when the peer restarts; what belongs to an earlier one is void.
    pub incarnation: u32,
    /// Where the counts of its ids began in this life and in the one before, as far as we know.
    lives: [Option<NonZeroU64>; 2],
    /// The newest of its requests by their ids, which clients count up: later ones are surely
    /// new, and all others must be looked for among the finished.
    pub newest_request: RpcId,
    /// A secret number of its own: where its names start in the memory of finished RPCs.
    pub place: u64,
    /// RPCs that wait for the link.
    pub parked: Vec<RpcKey>,
    /// RPCs alive with this peer.
    pub rpc_count: u32,
    /// There ever was one. If not, anybody may have written the address into a packet, and the
    /// peer is the first to be forgotten.
    had_rpcs: bool,
    pub used_at: Instant,
    acks: ArrayVec<Ack, SAVED_ACKS_MAX>,
    cutoffs_sent_tick: Option<u32>,
    resend_tick: u32,
    resends: u8,
    /// How late its packets come that were overtaken.
    pub reorder: Reorder,
}

/// What a packet that knows nothing of our cutoffs says about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Nothing: it is of a time when the sender did not know them yet.
    Late,
    /// It has restarted.
    New,
    /// It has, if it used them for long before.
    Unclear,
}

/// Our ids are counted up from a number that is drawn for each life. Those that a host uses before
/// it knows our cutoffs are as near to each other; by chance one of 2^22 lives is taken for the
/// one before it, which does no harm, as their ids differ.
const LIFE_IDS: u64 = 1 << 20;

/// How to reach a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Unknown,
    /// The network layer was asked.
    Asked,
    Up(LinkId),
}

impl Link {
    #[inline]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up(_))
    }
}

/// All peers, by address.
#[derive(Debug)]
pub struct Peers {
    slots: Slots<Peer>,
    by_ip: HashMap<Ip, Key<Peer>, Keyed>,
    last: Option<(Ip, Key<Peer>)>,
    idle_min: Duration,
    /// Where the search for an idle peer goes on.
    sweep: u32,
}

impl Peer {
    fn new(ip: Ip, place: u64, now: Instant) -> Self {
        // Until it tells us, all unscheduled bytes go one level below the top.
        // Source: HomaModule homa_peer.c `homa_peer_alloc`.
        let unsched_cutoffs = [0, 0, 0, 0, 0, 0, MAX_MESSAGE_LEN, 0];
        Self {
            ip,
            link: Link::Unknown,
            cutoffs: Cutoffs {
                unsched_cutoffs,
                version: 0,
            },
            uses_ours_since: None,
            incarnation: 0,
            lives: [None; 2],
            newest_request: RpcId(0),
            place,
            parked: Vec::new(),
            rpc_count: 0,
            had_rpcs: false,
            used_at: now,
            acks: ArrayVec::new(),
            cutoffs_sent_tick: None,
            resend_tick: 0,
            resends: 0,
            reorder: Reorder::default(),
        }
    }

    /// The priority of the unscheduled bytes of a message: the highest whose cutoff is not below
    /// its length. No higher than `top`: the peer may know more levels than we have.
    #[inline]
    pub fn unsched_priority(&self, message_len: u32, top: u8) -> u8 {
        let cutoffs = &self.cutoffs.unsched_cutoffs;
        let level = cutoffs.iter().rposition(|&cutoff| cutoff >= message_len);
        (level.unwrap_or(0) as u8).min(top)
    }

    /// Saves an ack for the next packet; gives it back if there is no room.
    #[inline]
    pub fn save_ack(&mut self, ack: Ack) -> Result<(), Ack> {
        self.acks.try_push(ack).map_err(|error| error.element())
    }

    /// The ack saved last.
    #[inline]
    pub fn take_ack(&mut self) -> Option<Ack> {
        self.acks.pop()
    }

    pub fn has_acks(&self) -> bool {
        !self.acks.is_empty()
    }

    /// An RPC with it begins.
    #[inline]
    pub fn on_rpc(&mut self, now: Instant) {
        self.rpc_count += 1;
        self.had_rpcs = true;
        self.used_at = now;
    }

    /// An RPC with it is over.
    #[inline]
    pub fn on_rpc_over(&mut self, now: Instant) {
        self.rpc_count -= 1;
        self.used_at = now;
    }

    /// Whether CUTOFFS may be sent now: once a tick.
    pub fn may_send_cutoffs(&mut self, tick: u32) -> bool {
        self.cutoffs_sent_tick.replace(tick) != Some(tick)
    }

    /// Whether one more RESEND may be sent in this tick.
    pub fn may_resend(&mut self, tick: u32, per_tick_max: u8) -> bool {
        if self.resend_tick != tick {
            (self.resend_tick, self.resends) = (tick, 0);
        }
        if self.resends == per_tick_max {
            return false;
        }
        self.resends += 1;
        true
    }

    /// What it means that a request with this count in its id knows nothing of our cutoffs.
    pub fn sign_of(&self, count: u64) -> Sign {
        let mut lives = self.lives.iter().flatten().peekable();
        match lives.peek().is_none() {
            true => Sign::Unclear,
            false if lives.any(|life| life.get().abs_diff(count) < LIFE_IDS) => Sign::Late,
            false => Sign::New,
        }
    }

    /// Notes where the counts of its ids begin: of a new life, or of the first we see.
    pub fn on_life(&mut self, count: u64, is_new: bool) {
        if is_new || self.lives[0].is_none() {
            self.lives = [NonZeroU64::new(count), self.lives[0]];
        }
    }

    /// Notes the version of our cutoffs that a DATA packet names, theirs and ours. True if the peer
    /// restarted: for one, it had used our version for `restart_after` or longer, and now knows of
    /// none.
    pub fn on_version(
        &mut self,
        now: Instant,
        (theirs, ours): (u16, u16),
        sign: Sign,
        restart_after: Duration,
    ) -> bool {
        if theirs == ours {
            self.uses_ours_since.get_or_insert(now);
            return false;
        }
        let used_for = self.uses_ours_since.map(|since| now.since(since));
        let restarted = match sign {
            Sign::Late => false,
            Sign::New => true,
            Sign::Unclear => theirs == 0 && used_for.is_some_and(|span| span >= restart_after),
        };
        if restarted {
            self.uses_ours_since = None;
            self.incarnation = self.incarnation.wrapping_add(1);
            self.acks.clear();
        }
        restarted
    }

    /// Whether it may be forgotten. A server whose saved ack is lost with it asks by NEED_ACK; one
    /// that does not is gone, and must not be kept for it.
    fn is_idle(&self, now: Instant, idle_min: Duration) -> bool {
        self.rpc_count == 0 && (!self.had_rpcs || now.since(self.used_at) >= idle_min)
    }
}

impl Peers {
    pub fn new(peers_max: u32, idle_min: Duration, keyed: Keyed) -> Self {
        Self {
            slots: Slots::new(peers_max as usize),
            by_ip: HashMap::with_hasher(keyed),
            last: None,
            idle_min,
            sweep: 0,
        }
    }

    #[inline(always)]
    pub fn find(&mut self, ip: Ip) -> Option<Key<Peer>> {
        if let Some((last_ip, key)) = self.last
            && last_ip == ip
        {
            return Some(key);
        }
        let key = *self.by_ip.get(&ip)?;
        self.last = Some((ip, key));
        Some(key)
    }

    /// The peer at `ip`, made known if it was not; `None` if the table is full of busy ones.
    #[inline(always)]
    pub fn find_or_add(&mut self, now: Instant, ip: Ip) -> Option<Key<Peer>> {
        if let Some(key) = self.find(ip) {
            return Some(key);
        }
        if self.slots.is_full() {
            self.forget_one(now)?;
        }
        let place = self.by_ip.hasher().hash_one(ip);
        let key = self.slots.insert(Peer::new(ip, place, now))?;
        self.by_ip.insert(ip, key);
        self.last = Some((ip, key));
        Some(key)
    }

    #[inline]
    pub fn get(&self, key: Key<Peer>) -> &Peer {
        self.slots
            .get(key)
            .expect("a peer with RPCs is not forgotten")
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key<Peer>) -> &mut Peer {
        self.slots
            .get_mut(key)
            .expect("a peer with RPCs is not forgotten")
    }

    /// The peer, unless it was forgotten since: for packets that keep no peer alive.
    pub fn try_get_mut(&mut self, key: Key<Peer>) -> Option<&mut Peer> {
        self.slots.get_mut(key)
    }

    pub fn keys(&self) -> Vec<Key<Peer>> {
        self.slots.iter().map(|(key, _)| key).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().map(|(_, peer)| peer)
    }

    /// Forgets a peer that is idle, the next in turn.
    fn forget_one(&mut self, now: Instant) -> Option<()> {
        for _ in 0..SWEEP_MAX.min(self.slots.capacity()) {
            let index = self.sweep;
            self.sweep = (self.sweep + 1) % self.slots.capacity() as u32;
            let Some(key) = self.slots.key_at(index) else {
                continue;
            };
            let peer = self.get(key);
            let ip = peer.ip;
            if peer.is_idle(now, self.idle_min) {
                self.by_ip.remove(&ip);
                self.last = None;
                self.slots.remove(key);
                return Some(());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::secs(10);

    fn peers(peers_max: u32) -> Peers {
        Peers::new(peers_max, IDLE, Keyed::new(3))
    }

    fn ip(last: u8) -> Ip {
        Ip::v4(10, 0, 0, last)
    }

    /// Rules PE-01, PE-09: one level below the top until told, then the inclusive cutoffs.
    #[test]
    fn unscheduled_priority_follows_the_peers_cutoffs() {
        let mut peer = Peer::new(ip(1), 0, Instant(0));
        assert_eq!(
            (
                peer.unsched_priority(1, 7),
                peer.unsched_priority(MAX_MESSAGE_LEN, 7)
            ),
            (6, 6)
        );
        peer.cutoffs.unsched_cutoffs = [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200];
        assert_eq!(
            [200, 15_001].map(|len| peer.unsched_priority(len, 5)),
            [5, 4]
        );
        let priorities = [200, 201, 2_800, 15_001].map(|len| peer.unsched_priority(len, 7));
        assert_eq!(priorities, [7, 6, 6, 4]);
    }

    /// Rule PE-08: the newest ack goes first.
    #[test]
    fn acks_wait_up_to_a_limit_and_the_newest_goes_first() {
        let ack = |id| Ack {
            client_id: RpcId(id),
            server_port: 9,
        };
        let mut peer = Peer::new(ip(1), 0, Instant(0));
        (0..16).for_each(|id| peer.save_ack(ack(id)).unwrap());
        assert_eq!(peer.save_ack(ack(16)), Err(ack(16)));
        assert_eq!(peer.take_ack(), Some(ack(15)));
    }

    #[test]
    fn a_full_table_forgets_an_idle_peer_but_never_a_busy_one() {
        let mut peers = peers(2);
        let busy = peers.find_or_add(Instant(0), ip(1)).unwrap();
        peers.get_mut(busy).on_rpc(Instant(0));
        let idle = peers.find_or_add(Instant(0), ip(2)).unwrap();
        peers.get_mut(idle).on_rpc(Instant(0));
        peers.get_mut(idle).rpc_count = 0;
        let ack = Ack {
            client_id: RpcId(2),
            server_port: 9,
        };
        peers.get_mut(idle).save_ack(ack).unwrap();
        assert!(peers.find_or_add(Instant(IDLE.0 - 1), ip(3)).is_none());
        assert!(peers.find_or_add(Instant(IDLE.0), ip(3)).is_some());
        assert!(peers.try_get_mut(idle).is_none());
        assert_eq!((peers.find(ip(1)), peers.find(ip(2))), (Some(busy), None));
    }

    #[test]
    fn invented_addresses_keep_no_real_peer_out() {
        let mut peers = peers(2);
        let real = peers.find_or_add(Instant(0), ip(1)).unwrap();
        peers.get_mut(real).on_rpc(Instant(0));
        peers.get_mut(real).rpc_count = 0;
        for last in 2..100 {
            assert!(peers.find_or_add(Instant(1), ip(last)).is_some());
        }
        assert_eq!(peers.find(ip(1)), Some(real));
    }

    #[test]
    fn a_peer_that_forgets_our_cutoffs_after_long_use_has_restarted() {
        let after = Duration::millis(100);
        let mut peer = Peer::new(ip(1), 0, Instant(0));
        assert!(!peer.on_version(Instant(0), (0, 1), Sign::Unclear, after));
        assert!(!peer.on_version(Instant(5), (1, 1), Sign::Unclear, after));
        assert!(!peer.on_version(Instant(after.0 + 4), (0, 1), Sign::Unclear, after));
        assert!(peer.on_version(Instant(after.0 + 5), (0, 1), Sign::Unclear, after));
        assert_eq!(peer.incarnation, 1);
        assert!(!peer.on_version(Instant(after.0 + 6), (0, 1), Sign::Unclear, after));
    }

    #[test]
    fn resends_to_one_peer_are_few_in_a_tick() {
        let mut peer = Peer::new(ip(1), 0, Instant(0));
        let sent = (0..20).filter(|_| peer.may_resend(4, 8)).count();
        assert_eq!(sent, 8);
        assert!(peer.may_resend(5, 8));
    }
}
