//! Who is where: each peer's link address, asked for, learnt, doubted, and its header template.
//!
//! A peer in one of our networks is asked by ARP; one behind the gateway waits for the gateway. A
//! link address is taken from traffic only where none is known. A differing one, or silence, makes
//! us ask again; until the answer the old one stays in use, so a [`LinkId`] never loses its way.

use std::collections::{HashMap, VecDeque};

use super::headers::{HEADERS_LEN, Template};
use super::route::Hop;
use super::{Event, NeighborStats, Params};
use crate::addr::{Ip, LinkId, Meta};
use crate::error::Error;
use crate::keyed::Keyed;
use crate::time::{Duration, Instant};

/// A peer unused for so long may be given up for another.
const IDLE: Duration = Duration::secs(10);

/// A peer is doubted at most this often, however many differing frames come.
const PROBE_INTERVAL: Duration = Duration::secs(1);

/// Peers looked at, at most, to find one that may be given up: for one of our own choice, and for
/// one that a frame brought, of which there may be millions.
const EVICT_STEPS: usize = 1024;
const EVICT_STEPS_LEARNING: usize = 8;

/// Most requests that wait to be sent. One that finds no room is made again in time.
const REQUESTS_MAX: usize = 1024;

/// Places of the memory for who was heard last.
const RECENT_LEN: usize = 256;

/// An ARP request that should go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) target: Ip,
    pub(super) source: Ip,
}

/// How a neighbour's link address came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It answered us.
    Answer,
    /// It spoke to us.
    Speech,
    /// It spoke to all.
    Rumor,
}

#[derive(Debug)]
pub(super) struct Neighbors {
    leg: u8,
    mac: [u8; 6],
    ip_protocol: u8,
    gateway: Option<Ip>,
    capacity: usize,
    arp_tries: u32,
    arp_delay: Duration,
    reachable: Duration,
    learn: bool,

    by_ip: HashMap<Ip, u16, Keyed>,
    /// What each packet needs, and what only changes need, under the same index.
    links: Vec<Link>,
    peers: Vec<Peer>,
    free: Vec<u16>,
    /// Who was heard last, by some bits of the address.
    recent: [u16; RECENT_LEN],
    /// Where the search for one to give up goes on.
    hand: usize,

    /// Those whose state is `Asking` or `Probing`.
    asking: Vec<u16>,
    wake_at: Option<Instant>,
    requests: VecDeque<Request>,
    events: VecDeque<Event>,
    pub(super) stats: NeighborStats,
}

#[derive(Debug)]
struct Link {
    template: Template,
    generation: u16,
    /// The template holds the peer's link address.
    is_up: bool,
    heard_at: Instant,
    used_at: Instant,
}

#[derive(Debug)]
struct Peer {
    ip: Ip,
    source: Ip,
    state: State,
    /// The gateway, for peers behind it.
    via: Option<u16>,
    /// Somebody waits for an event.
    is_wanted: bool,
    /// Somebody has the [`LinkId`].
    is_known_above: bool,
    probed_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Its link address is asked for.
    Asking(Tries),
    /// The gateway's link address is asked for.
    Behind,
    Up,
    /// Its link address is known, and in use, but doubted.
    Probing(Tries),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tries {
    made: u32,
    /// When the last one counts as lost.
    due_at: Instant,
}

impl Neighbors {
    pub(super) fn new(params: &Params) -> Self {
        let capacity = params.neighbors_max;
        Self {
            leg: params.leg,
            mac: params.mac,
            ip_protocol: params.ip_protocol,
            gateway: params.gateway,
            capacity,
            arp_tries: params.arp_tries,
            arp_delay: params.arp_delay,
            reachable: params.reachable,
            learn: params.learn,
            by_ip: HashMap::with_capacity_and_hasher(capacity, Keyed::new(params.seed)),
            links: Vec::with_capacity(capacity),
            peers: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            recent: [0; RECENT_LEN],
            hand: 0,
            asking: Vec::with_capacity(capacity),
            wake_at: None,
            requests: VecDeque::with_capacity(REQUESTS_MAX),
            events: VecDeque::new(),
            stats: NeighborStats::default(),
        }
    }

    /// The way to a peer, or `None` if an event will tell it.
    pub(super) fn link(
        &mut self,
        now: Instant,
        peer: Ip,
        hop: Hop,
    ) -> Result<Option<LinkId>, Error> {
        if let Hop::Own(own) = hop {
            return Ok(Some(LinkId::loopback(own)));
        }
        let Some(index) = self.find_or_ask(now, peer, hop)? else {
            return Ok(None);
        };
        let peer = &mut self.peers[usize::from(index)];
        if self.links[usize::from(index)].is_up {
            peer.is_known_above = true;
            return Ok(Some(self.id(index)));
        }
        peer.is_wanted = true;
        Ok(None)
    }

    /// The headers to a peer, if its link address is known; else it is asked for, once.
    pub(super) fn template(&mut self, now: Instant, peer: Ip, hop: Hop) -> Option<&Template> {
        let index = self.find_or_ask(now, peer, hop).ok()??;
        let link = &self.links[usize::from(index)];
        link.is_up.then_some(&link.template)
    }

    /// Notes that a packet came from `from`. True if that says nothing new, as nearly always.
    #[inline]
    pub(super) fn is_as_known(&mut self, now: Instant, from: Ip, mac: [u8; 6]) -> bool {
        let index = usize::from(self.recent[recent_place(from)]);
        match self.links.get_mut(index) {
            Some(link) if link.is_up && link.template.is_for(from, mac) => {
                link.heard_at = now;
                true
            }
            _ => false,
        }
    }

    /// The peer and our own address, if a frame that begins so comes from one heard lately.
    #[inline]
    pub(super) fn known(&mut self, now: Instant, head: &[u8; HEADERS_LEN]) -> Option<Meta> {
        let from = Ip::v4(head[26], head[27], head[28], head[29]);
        let index = usize::from(self.recent[recent_place(from)]);
        match self.links.get_mut(index) {
            Some(link) if link.is_up && link.template.is_answered_by(head) => {
                link.heard_at = now;
                let to = Ip::v4(head[30], head[31], head[32], head[33]);
                Some(Meta { from, to })
            }
            Some(_) | None => None,
        }
    }

    /// Takes in where a neighbour seems to be. `source` is our address in its network, and `None`
    /// for those behind the gateway, whose link address is not their own.
    pub(super) fn handle_word(
        &mut self,
        now: Instant,
        (from, mac): (Ip, [u8; 6]),
        source: Option<Ip>,
        word: Word,
    ) {
        let Some(&index) = self.by_ip.get(&from) else {
            if let (Some(source), true) = (source, self.learn && word != Word::Rumor) {
                self.learn(now, (from, mac), source);
            }
            return;
        };
        let i = usize::from(index);
        match self.peers[i].state {
            // The gateway decides; a peer behind it can have no link address of its own.
            State::Behind => {}
            State::Asking(_) => self.bring_up(now, index, mac),
            State::Probing(_) if word == Word::Answer => {
                self.stats.moved += u64::from(self.links[i].template.mac() != mac);
                self.bring_up(now, index, mac);
            }
            State::Up | State::Probing(_) if self.links[i].template.mac() == mac => {
                self.recent[recent_place(from)] = index;
                self.links[i].heard_at = now;
            }
            State::Up if self.peers[i].via.is_none() => self.probe(now, index),
            // What a router sends on may come from any of its link addresses.
            State::Up => self.links[i].heard_at = now,
            State::Probing(_) => {}
            State::Free => unreachable!("a free place has no address"),
        }
    }

    /// The headers to a peer; `None` if the link is void.
    #[inline(always)]
    pub(super) fn use_link(&mut self, now: Instant, id: LinkId) -> Option<&Template> {
        let index = id.index();
        let link = self.links.get_mut(usize::from(index))?;
        if link.generation != id.generation() || !link.is_up {
            return None;
        }
        link.used_at = now;
        if now.since(link.heard_at) > self.reachable {
            self.doubt(now, index);
        }
        Some(&self.links[usize::from(index)].template)
    }

    pub(super) fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    #[inline]
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Asks again, or gives up, where an answer is overdue.
    ///
    /// A wait begins when its request was made and not when it should have been: after a pause of
    /// the caller each request still gets its time to be answered.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.wake_at.is_none_or(|wake_at| wake_at > now) {
            return;
        }
        let mut n = 0;
        while let Some(&index) = self.asking.get(n) {
            match self.peers[usize::from(index)].state {
                State::Asking(tries) | State::Probing(tries) if tries.due_at > now => n += 1,
                State::Asking(tries) | State::Probing(tries) if tries.made < self.arp_tries => {
                    self.try_again(now, index, tries.made);
                    n += 1;
                }
                State::Asking(_) => self.fail(index),
                // Silent, but perhaps just to ARP: what is sent keeps going where it went.
                State::Probing(_) => self.settle(index),
                State::Free | State::Behind | State::Up => {
                    unreachable!("only those who ask are on the list")
                }
            }
        }
        self.set_wake_at();
    }
}

/// What happens to one peer.
impl Neighbors {
    /// A peer's place; `None` for our own addresses, which have none.
    fn find_or_ask(&mut self, now: Instant, peer: Ip, hop: Hop) -> Result<Option<u16>, Error> {
        if let Some(&index) = self.by_ip.get(&peer) {
            return Ok(Some(index));
        }
        let index = match hop {
            Hop::Own(_) => return Ok(None),
            Hop::Direct { source } => self.ask(now, peer, source)?,
            Hop::Gateway { gateway, source } => {
                let via = match self.by_ip.get(&gateway) {
                    Some(&index) => index,
                    None => self.ask(now, gateway, source)?,
                };
                self.put_behind(now, peer, source, via)?
            }
        };
        Ok(Some(index))
    }

    /// Takes in a neighbour and asks for its link address.
    fn ask(&mut self, now: Instant, ip: Ip, source: Ip) -> Result<u16, Error> {
        let state = State::Asking(self.first_try(now));
        let index = self.insert(now, (ip, source), state, EVICT_STEPS)?;
        self.start_asking(now, index);
        Ok(index)
    }

    /// Takes in a peer behind the gateway, which is known or being asked.
    fn put_behind(&mut self, now: Instant, ip: Ip, source: Ip, via: u16) -> Result<u16, Error> {
        let index = self.insert(now, (ip, source), State::Behind, EVICT_STEPS)?;
        self.peers[usize::from(index)].via = Some(via);
        if self.links[usize::from(via)].is_up {
            let mac = self.links[usize::from(via)].template.mac();
            self.bring_up(now, index, mac);
        }
        Ok(index)
    }

    fn learn(&mut self, now: Instant, (ip, mac): (Ip, [u8; 6]), source: Ip) {
        let state = State::Behind; // For the moment: its link address is at hand.
        if let Ok(index) = self.insert(now, (ip, source), state, EVICT_STEPS_LEARNING) {
            self.stats.learnt += 1;
            self.bring_up(now, index, mac);
        }
    }

    /// The link address of a peer is known. With the gateway's, so is that of all behind it.
    fn bring_up(&mut self, now: Instant, index: u16, mac: [u8; 6]) {
        let i = usize::from(index);
        self.settle(index);
        let ip = self.peers[i].ip;
        self.recent[recent_place(ip)] = index;
        let link = &mut self.links[i];
        link.template.set_mac(mac);
        link.is_up = true;
        link.heard_at = now;
        let link = self.id(index);
        let peer = &mut self.peers[i];
        if std::mem::take(&mut peer.is_wanted) {
            peer.is_known_above = true;
            self.events.push_back(Event::Up { peer: ip, link });
        }
        if self.gateway == Some(ip) {
            for other in 0..self.peers.len() {
                if self.peers[other].via == Some(index) {
                    self.bring_up(now, other as u16, mac);
                }
            }
        }
    }

    /// Nobody answered: the peer, and all that wait for it as their gateway, are unreachable.
    fn fail(&mut self, index: u16) {
        self.stats.failed += 1;
        if self.gateway == Some(self.peers[usize::from(index)].ip) {
            for other in 0..self.peers.len() {
                if self.peers[other].via == Some(index) {
                    self.give_up(other as u16);
                }
            }
        }
        self.give_up(index);
    }

    fn give_up(&mut self, index: u16) {
        let peer = &self.peers[usize::from(index)];
        if peer.is_wanted {
            let (peer, error) = (peer.ip, Error::HostUnreachable);
            self.events.push_back(Event::Failed { peer, error });
        }
        self.remove(index);
    }

    /// A peer, or the gateway before it, has been silent while we sent to it.
    #[cold]
    fn doubt(&mut self, now: Instant, index: u16) {
        let Some(via) = self.peers[usize::from(index)].via else {
            return self.probe(now, index);
        };
        if now.since(self.links[usize::from(via)].heard_at) > self.reachable {
            self.probe(now, via);
        }
        // The gateway was asked or is well; the peer itself is not ours to ask.
        self.links[usize::from(index)].heard_at = now;
    }

    /// Asks a known neighbour for its link address, unless it was just asked.
    fn probe(&mut self, now: Instant, index: u16) {
        let tries = self.first_try(now);
        let peer = &mut self.peers[usize::from(index)];
        let was_asked = peer
            .probed_at
            .is_some_and(|at| now.since(at) < PROBE_INTERVAL);
        if peer.state == State::Up && !was_asked {
            self.stats.probes += 1;
            peer.probed_at = Some(now);
            peer.state = State::Probing(tries);
            self.start_asking(now, index);
        }
    }

    fn first_try(&self, now: Instant) -> Tries {
        Tries {
            made: 1,
            due_at: now + self.arp_delay,
        }
    }

    fn try_again(&mut self, now: Instant, index: u16, made: u32) {
        let tries = Tries {
            made: made + 1,
            due_at: now + self.arp_delay.times(1 << made),
        };
        let peer = &mut self.peers[usize::from(index)];
        match &mut peer.state {
            State::Asking(before) | State::Probing(before) => *before = tries,
            State::Free | State::Behind | State::Up => {}
        }
        self.request(index);
    }

    fn request(&mut self, index: u16) {
        let peer = &self.peers[usize::from(index)];
        let (target, source) = (peer.ip, peer.source);
        if self.requests.len() < REQUESTS_MAX {
            self.requests.push_back(Request { target, source });
        } else {
            self.stats.requests_dropped += 1;
        }
    }

    fn start_asking(&mut self, now: Instant, index: u16) {
        self.request(index);
        self.asking.push(index);
        let due_at = now + self.arp_delay;
        self.wake_at = Some(self.wake_at.map_or(due_at, |wake_at| wake_at.min(due_at)));
    }

    /// Ends the asking, if there was any.
    fn settle(&mut self, index: u16) {
        self.peers[usize::from(index)].state = State::Up;
        if let Some(at) = self.asking.iter().position(|&other| other == index) {
            self.asking.swap_remove(at);
        }
        if self.asking.is_empty() {
            self.wake_at = None; // Otherwise one call too early does no harm.
        }
    }

    fn set_wake_at(&mut self) {
        let due =
            self.asking
                .iter()
                .filter_map(|&index| match self.peers[usize::from(index)].state {
                    State::Asking(tries) | State::Probing(tries) => Some(tries.due_at),
                    State::Free | State::Behind | State::Up => None,
                });
        self.wake_at = due.min();
    }
}

/// The table.
impl Neighbors {
    fn id(&self, index: u16) -> LinkId {
        let generation = self.links[usize::from(index)].generation;
        LinkId::new(self.leg, index, generation)
    }

    /// Makes room for a peer and takes it in, without a link address, in this state.
    fn insert(
        &mut self,
        now: Instant,
        (ip, source): (Ip, Ip),
        state: State,
        evict_steps: usize,
    ) -> Result<u16, Error> {
        // Each peer adds one event at most, so this bounds them by twice the capacity.
        let has_room = self.events.len() < self.capacity
            && (self.by_ip.len() < self.capacity || self.evict(now, evict_steps));
        if !has_room {
            self.stats.table_full += 1;
            return Err(Error::Exhausted);
        }
        let (Some(to), Some(from)) = (ip.as_v4(), source.as_v4()) else {
            return Err(Error::FamilyNotSupported);
        };
        let mut link = Link {
            template: Template::new((self.mac, [0; 6]), (from, to), self.ip_protocol),
            generation: 0,
            is_up: false,
            heard_at: now,
            used_at: now,
        };
        let peer = Peer {
            ip,
            source,
            state,
            via: None,
            is_wanted: false,
            is_known_above: false,
            probed_at: None,
        };
        let index = if let Some(index) = self.free.pop() {
            let i = usize::from(index);
            link.generation = self.links[i].generation;
            self.links[i] = link;
            self.peers[i] = peer;
            index
        } else {
            self.links.push(link);
            self.peers.push(peer);
            (self.links.len() - 1) as u16 // Below Params::NEIGHBORS_LIMIT.
        };
        self.by_ip.insert(ip, index);
        Ok(index)
    }

    fn remove(&mut self, index: u16) {
        let i = usize::from(index);
        self.settle(index);
        self.by_ip.remove(&self.peers[i].ip);
        self.peers[i].state = State::Free;
        self.peers[i].via = None;
        self.links[i].is_up = false;
        // Whoever still has the old link finds it void.
        self.links[i].generation = self.links[i].generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Gives up a peer that nobody has used for long, or that nobody but us knows of; looks at so
    /// many at most. The gateway stays: others depend on it.
    fn evict(&mut self, now: Instant, steps: usize) -> bool {
        for _ in 0..steps.min(self.peers.len()) {
            self.hand = (self.hand + 1) % self.peers.len();
            let (peer, link) = (&self.peers[self.hand], &self.links[self.hand]);
            let is_unused = now.since(link.used_at) > IDLE
                || (!peer.is_known_above && steps > EVICT_STEPS_LEARNING);
            if peer.state != State::Up || self.gateway == Some(peer.ip) || !is_unused {
                continue;
            }
            let index = self.hand as u16;
            if peer.is_known_above {
                let (peer, link) = (peer.ip, self.id(index));
                self.events.push_back(Event::Gone { peer, link });
            }
            self.stats.evicted += 1;
            self.remove(index);
            return true;
        }
        false
    }
}

/// The last byte differs between neighbours; the one before it where there are many.
#[inline]
fn recent_place(ip: Ip) -> usize {
    (ip.0 as u8 ^ ((ip.0 >> 8) as u8).rotate_left(4)).into()
}
