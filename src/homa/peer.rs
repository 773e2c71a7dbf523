//! What is known of each host we talk to.

use std::num::NonZero;

use arrayvec::ArrayVec;

use crate::addr::{Ip, LinkId};
use crate::arena::Arena;
use crate::homa::event::RpcKey;
use crate::homa::repair::Reorder;
use crate::homa::table::Table;
use crate::keyed::Keyed;
use crate::slots::Key;
use crate::time::{Duration, Instant};
use crate::wire::homa::{Ack, Cutoffs, MAX_MESSAGE_LEN, RpcId};

/// Acks that may wait for a packet that carries them. Source: decision "16 saved acks": with the
/// Linux module's 5, ACK packets cost 18 cycles per RPC at 8 outstanding.
pub const SAVED_ACKS_MAX: usize = 16;

/// Peers looked at, at most, to find one that may be forgotten.
const SWEEP_MAX: usize = 64;

/// Lists of acks and parked RPCs kept for the next peer that needs one.
const SPARES_MAX: usize = 64;

/// One host. There may be very many with which nothing goes on, so what only an active one needs
/// is kept elsewhere, and the rest is packed.
#[derive(Debug)]
pub struct Peer {
    pub ip: Ip,
    pub link: Link,
    /// Its unscheduled cutoffs and their version, which is 0 until it told us.
    pub cutoffs: Levels,
    /// Since when it has used our cutoffs, or [`NEVER`].
    pub uses_ours_since: Instant,
    /// Goes up when the peer restarts; what belongs to an earlier one is void.
    pub incarnation: u16,
    /// Where the counts of its ids began in this life and in the one before, as far as we know, in
    /// units of [`LIFE_UNIT`].
    lives: [Option<NonZero<u32>>; 2],
    /// The newest of its requests by their ids, which clients count up: later ones are surely
    /// new, and all others must be looked for among the finished.
    pub newest_request: RpcId,
    /// A secret number of its own: where its names start in the memory of finished RPCs.
    pub place: u64,
    /// RPCs alive with this peer.
    pub rpc_count: u32,
    /// When an RPC with it last began or ended. Nothing if there was none: then anybody may have
    /// written the address into a packet, and the peer is the first to be forgotten.
    used_at: Option<Coarse>,
    lists: Option<Box<Lists>>,
    /// When a packet last showed that it lives. Of this tick and the next two there are the lower
    /// bits: that one of long ago is taken for a present one now and then does no harm.
    heard_tick: Option<NonZero<u16>>,
    cutoffs_sent_tick: Option<NonZero<u8>>,
    resend_tick: u8,
    resends: u8,
    /// How late its packets come that were overtaken.
    pub reorder: Reorder,
}

/// A moment in units of about a millisecond, which wraps every 52 days.
#[derive(Clone, Copy, Debug)]
struct Coarse(NonZero<u32>);

/// No moment.
const NEVER: Instant = Instant(u64::MAX);

/// What waits for a packet to or from a peer.
#[derive(Debug, Default)]
struct Lists {
    acks: ArrayVec<Ack, SAVED_ACKS_MAX>,
    /// RPCs that wait for the link.
    parked: Vec<RpcKey>,
}

/// A peer's unscheduled cutoffs in three bytes each, as no message is longer than that.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// From level 1 on: what is above all others goes to level 0, whatever its own cutoff.
    cutoffs: [[u8; 3]; 7],
    /// In bytes, which need no alignment.
    version: [u8; 2],
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

/// Counts have 43 bits, of which the upper 32 are kept.
const LIFE_UNIT: u64 = 1 << 11;

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
    slots: Arena<Peer>,
    by_ip: Table,
    last: Option<(Ip, Key<Peer>)>,
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spares: Vec<Box<Lists>>,
    idle_min: Duration,
    /// Where the search for an idle peer goes on.
    sweep: u32,
}

impl Coarse {
    const SHIFT: u32 = 20;

    #[inline]
    fn from(now: Instant) -> Self {
        // Never zero, which the first millisecond and one in 52 days would be.
        Self(NonZero::new((now.0 >> Self::SHIFT) as u32).unwrap_or(NonZero::<u32>::MIN))
    }

    fn age(self, now: Instant) -> Duration {
        let units = Self::from(now).0.get().wrapping_sub(self.0.get());
        Duration(u64::from(units) << Self::SHIFT)
    }
}

impl From<Cutoffs> for Levels {
    fn from(told: Cutoffs) -> Self {
        let mut cutoffs = [[0; 3]; 7];
        for (packed, cutoff) in cutoffs.iter_mut().zip(&told.unsched_cutoffs[1..]) {
            let [_, high, middle, low] = (*cutoff).min(MAX_MESSAGE_LEN).to_be_bytes();
            *packed = [high, middle, low];
        }
        let version = told.version.to_be_bytes();
        Self { cutoffs, version }
    }
}

impl Levels {
    /// 0 until the peer told them.
    #[inline]
    pub fn version(&self) -> u16 {
        u16::from_be_bytes(self.version)
    }

    /// The highest level whose cutoff is not below the length.
    #[inline]
    fn level(&self, message_len: u32) -> u8 {
        let is_fit = |&[high, middle, low]: &[u8; 3]| {
            u32::from_be_bytes([0, high, middle, low]) >= message_len
        };
        self.cutoffs
            .iter()
            .rposition(is_fit)
            .map_or(0, |at| at as u8 + 1)
    }
}

impl Peer {
    fn new(ip: Ip, place: u64) -> Self {
        // Until it tells us, all unscheduled bytes go one level below the top.
        // Source: HomaModule homa_peer.c `homa_peer_alloc`.
        let unsched_cutoffs = [0, 0, 0, 0, 0, 0, MAX_MESSAGE_LEN, 0];
        Self {
            ip,
            link: Link::Unknown,
            cutoffs: Levels::from(Cutoffs {
                unsched_cutoffs,
                version: 0,
            }),
            uses_ours_since: NEVER,
            incarnation: 0,
            lives: [None; 2],
            newest_request: RpcId(0),
            place,
            rpc_count: 0,
            used_at: None,
            lists: None,
            heard_tick: None,
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
        self.cutoffs.level(message_len).min(top)
    }

    /// Saves an ack for the next packet; gives it back if there is no room, or no list, see
    /// [`Peers::give_lists`].
    #[inline]
    pub fn save_ack(&mut self, ack: Ack) -> Result<(), Ack> {
        match &mut self.lists {
            Some(lists) => lists.acks.try_push(ack).map_err(|error| error.element()),
            None => Err(ack),
        }
    }

    /// The ack saved last.
    #[inline]
    pub fn take_ack(&mut self) -> Option<Ack> {
        self.lists.as_mut()?.acks.pop()
    }

    pub fn has_acks(&self) -> bool {
        self.lists
            .as_ref()
            .is_some_and(|lists| !lists.acks.is_empty())
    }

    /// RPCs that wait for the link.
    pub fn parked(&self) -> &[RpcKey] {
        self.lists.as_ref().map_or(&[], |lists| &lists.parked)
    }

    /// Whether it uses our cutoffs.
    pub fn uses_ours(&self) -> bool {
        self.uses_ours_since != NEVER
    }

    /// An RPC with it begins.
    #[inline]
    pub fn on_rpc(&mut self, now: Instant) {
        self.rpc_count += 1;
        self.used_at = Some(Coarse::from(now));
    }

    /// An RPC with it is over.
    #[inline]
    pub fn on_rpc_over(&mut self, now: Instant) {
        self.rpc_count -= 1;
        self.used_at = Some(Coarse::from(now));
    }

    /// A packet shows that it lives.
    #[inline]
    pub fn on_heard(&mut self, tick: u32) {
        self.heard_tick = NonZero::new(tick as u16).or(Some(NonZero::<u16>::MIN));
    }

    /// Whether a packet showed so in the last `ticks`.
    pub fn was_heard(&self, tick: u32, ticks: u32) -> bool {
        let age = |heard: NonZero<u16>| (tick as u16).wrapping_sub(heard.get());
        self.heard_tick
            .is_some_and(|heard| u32::from(age(heard)) < ticks)
    }

    /// Whether CUTOFFS may be sent now: once a tick.
    pub fn may_send_cutoffs(&mut self, tick: u32) -> bool {
        let tick = NonZero::new((tick % 0xff) as u8 + 1);
        std::mem::replace(&mut self.cutoffs_sent_tick, tick) != tick
    }

    /// Whether one more RESEND may be sent in this tick.
    pub fn may_resend(&mut self, tick: u32, per_tick_max: u8) -> bool {
        let tick = tick as u8;
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
        let is_near = |life: &NonZero<u32>| {
            u64::from(life.get()).abs_diff(count / LIFE_UNIT) < LIFE_IDS / LIFE_UNIT
        };
        match lives.peek().is_none() {
            true => Sign::Unclear,
            false if lives.any(is_near) => Sign::Late,
            false => Sign::New,
        }
    }

    /// Notes where the counts of its ids begin: of a new life, or of the first we see.
    pub fn on_life(&mut self, count: u64, is_new: bool) {
        if is_new || self.lives[0].is_none() {
            self.lives = [NonZero::new((count / LIFE_UNIT) as u32), self.lives[0]];
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
            self.uses_ours_since = self.uses_ours_since.min(now);
            return false;
        }
        let restarted = match sign {
            Sign::Late => false,
            Sign::New => true,
            Sign::Unclear => {
                let used_for = now.since(self.uses_ours_since);
                theirs == 0 && self.uses_ours() && used_for >= restart_after
            }
        };
        if restarted {
            self.uses_ours_since = NEVER;
            self.incarnation = self.incarnation.wrapping_add(1);
            if let Some(lists) = &mut self.lists {
                lists.acks.clear();
            }
        }
        restarted
    }

    /// Whether it may be forgotten. A server whose saved ack is lost with it asks by NEED_ACK; one
    /// that does not is gone, and must not be kept for it.
    fn is_idle(&self, now: Instant, idle_min: Duration) -> bool {
        let is_old = |used_at: Coarse| used_at.age(now) >= idle_min;
        self.rpc_count == 0 && self.used_at.is_none_or(is_old)
    }
}

impl Default for Peer {
    /// Nobody's place.
    fn default() -> Self {
        Self::new(Ip::UNSPECIFIED_V4, 0)
    }
}

impl Peers {
    pub fn new(peers_max: u32, idle_min: Duration, keyed: Keyed) -> Self {
        Self {
            slots: Arena::new(peers_max as usize),
            by_ip: Table::new(keyed),
            last: None,
            spares: Vec::new(),
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
        let key = self.find_filed(self.hash(ip), ip)?;
        self.last = Some((ip, key));
        Some(key)
    }

    fn hash(&self, ip: Ip) -> u64 {
        self.by_ip.hash(ip.0 as u64, (ip.0 >> 64) as u64)
    }

    fn find_filed(&self, hash: u64, ip: Ip) -> Option<Key<Peer>> {
        self.by_ip.find(hash, |slot| {
            let (key, peer) = self.slots.at(slot)?;
            (peer.ip == ip).then_some(key)
        })
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
        let hash = self.hash(ip);
        let key = self.slots.insert(Peer::new(ip, hash))?;
        self.by_ip.insert(hash, key.index());
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

    /// Sees to it that a peer can save acks.
    #[cold]
    pub fn give_lists(&mut self, key: Key<Peer>) {
        if self.get(key).lists.is_none() {
            let lists = self.spares.pop().unwrap_or_default();
            self.get_mut(key).lists = Some(lists);
        }
    }

    /// Takes a peer's lists away again if there is nothing in them. Called where that is seldom:
    /// a peer that is active has them all the time.
    pub fn take_lists(&mut self, key: Key<Peer>) {
        let is_unused = |lists: &mut Box<Lists>| lists.acks.is_empty() && lists.parked.is_empty();
        let peer = self.slots.get_mut(key);
        if let Some(lists) = peer.and_then(|peer| peer.lists.take_if(is_unused))
            && self.spares.len() < SPARES_MAX
        {
            self.spares.push(lists);
        }
    }

    /// An RPC waits for the link from now on. Those for which `is_gone` must not add up.
    #[cold]
    pub fn park(&mut self, key: Key<Peer>, rpc: RpcKey, is_gone: impl Fn(RpcKey) -> bool) {
        self.give_lists(key);
        let Some(lists) = &mut self.get_mut(key).lists else {
            return;
        };
        if lists.parked.len() == lists.parked.capacity() {
            lists.parked.retain(|&parked| !is_gone(parked));
        }
        lists.parked.push(rpc);
    }

    /// The RPCs that waited for the link.
    pub fn take_parked(&mut self, key: Key<Peer>) -> Vec<RpcKey> {
        let lists = self.get_mut(key).lists.as_mut();
        let parked = lists.map_or_else(Vec::new, |lists| std::mem::take(&mut lists.parked));
        self.take_lists(key);
        parked
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
            if self.get(key).is_idle(now, self.idle_min) {
                self.by_ip.remove(key.index());
                self.last = None;
                if let Some(peer) = self.slots.leave(key) {
                    peer.lists = None;
                }
                return Some(());
            }
        }
        None
    }
}

/// What tests/memory.rs allows for an idle peer is this, 4 B of its slot and about 16 B in tables.
const _: () = assert!(size_of::<Peer>() <= 104);

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
        let mut peer = Peer::new(ip(1), 0);
        assert_eq!(
            (
                peer.unsched_priority(1, 7),
                peer.unsched_priority(MAX_MESSAGE_LEN, 7)
            ),
            (6, 6)
        );
        peer.cutoffs = Levels::from(Cutoffs {
            unsched_cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
            version: 1,
        });
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
        let mut peers = peers(1);
        let key = peers.find_or_add(Instant(0), ip(1)).unwrap();
        assert_eq!(peers.get_mut(key).save_ack(ack(0)), Err(ack(0)));
        peers.give_lists(key);
        let peer = peers.get_mut(key);
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
        peers.give_lists(idle);
        peers.get_mut(idle).save_ack(ack).unwrap();
        let (before, after) = (IDLE.0 - (3 << 20), IDLE.0 + (3 << 20));
        assert!(peers.find_or_add(Instant(before), ip(3)).is_none());
        assert!(peers.find_or_add(Instant(after), ip(3)).is_some());
        assert!(peers.try_get_mut(idle).is_none());
        assert_eq!((peers.find(ip(1)), peers.find(ip(2))), (Some(busy), None));
    }

    /// What an idle peer costs depends on it, see tests/memory.rs.
    #[test]
    fn lists_that_hold_nothing_are_for_the_next_peer() {
        let mut peers = peers(2);
        let [one, other] = [1, 2].map(|last| peers.find_or_add(Instant(0), ip(last)).unwrap());
        let ack = Ack {
            client_id: RpcId(2),
            server_port: 9,
        };
        peers.give_lists(one);
        peers.get_mut(one).save_ack(ack).unwrap();
        peers.take_lists(one);
        assert!(peers.spares.is_empty());
        assert_eq!(peers.get_mut(one).take_ack(), Some(ack));
        peers.take_lists(one);
        assert_eq!(peers.spares.len(), 1);
        peers.park(other, RpcKey::default(), |_| false);
        assert!(peers.spares.is_empty());
        assert_eq!(peers.take_parked(other), [RpcKey::default()]);
        assert_eq!(peers.spares.len(), 1);
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
        let mut peer = Peer::new(ip(1), 0);
        assert!(!peer.on_version(Instant(0), (0, 1), Sign::Unclear, after));
        assert!(!peer.on_version(Instant(5), (1, 1), Sign::Unclear, after));
        assert!(!peer.on_version(Instant(after.0 + 4), (0, 1), Sign::Unclear, after));
        assert!(peer.on_version(Instant(after.0 + 5), (0, 1), Sign::Unclear, after));
        assert_eq!(peer.incarnation, 1);
        assert!(!peer.on_version(Instant(after.0 + 6), (0, 1), Sign::Unclear, after));
    }

    #[test]
    fn resends_to_one_peer_are_few_in_a_tick() {
        let mut peer = Peer::new(ip(1), 0);
        let sent = (0..20).filter(|_| peer.may_resend(4, 8)).count();
        assert_eq!(sent, 8);
        assert!(peer.may_resend(5, 8));
    }
}
