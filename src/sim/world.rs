//! Hosts on one switch, and the order in which things happen.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt::Debug;
use std::rc::Rc;

use arrayvec::ArrayVec;

use crate::addr::Ip;
use crate::device::Device;
use crate::homa;
use crate::mem::Region;
use crate::net::{self, Interface};
use crate::rng::Rng;
use crate::runtime::Poller;
use crate::sim::faults::Copied;
use crate::sim::tap::homa_packet;
use crate::sim::{App, Faults, Nic};
use crate::time::{Duration, Instant, Rate};
use crate::wire::homa::{Common, Packet};

/// Speed of each host's link.
const LINK_MBPS: u32 = 25_000;

/// Bytes that a frame takes on the wire besides its own: preamble 8, check 4, gap 12.
const WIRE_EXTRA: u32 = 24;

/// A frame on its way from one host to another, both by their places in [`World::hosts`].
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    pub now: Instant,
    pub from: usize,
    pub to: usize,
    pub frame: &'a [u8],
}

/// Sees each frame as it leaves, and what will become of it.
pub trait Watch: Debug {
    /// A host sent a frame. True if it gets lost here, whomever it is for.
    fn takes_out(&mut self, _now: Instant, _from: usize, _frame: &[u8]) -> bool {
        false
    }

    /// `copies` that will arrive at a host, of which there are none if it is lost.
    fn on_frame(&mut self, _crossing: &Crossing, _copies: &[Copied]) {}
}

/// One computer: a NIC, the stack over it, an application.
#[derive(Debug)]
pub struct Host<A> {
    pub poller: Poller<Nic>,
    pub app: A,
    /// When it will be woken next, so that it is filed once.
    wake_at: Option<Instant>,
    /// When its link has sent all it was given.
    link_idle_at: Instant,
    /// Until then its loop does not turn, whatever arrives.
    frozen_until: Option<Instant>,
}

/// All hosts, the switch between them, and the time.
#[derive(Debug)]
pub struct World<A> {
    pub now: Instant,
    pub hosts: Vec<Host<A>>,
    pub faults: Faults,
    /// Says of each frame whether it gets lost: a link that is down, a way that is cut.
    pub loses: fn(&Crossing) -> bool,
    /// Ways that are cut, from one host to another.
    pub cuts: BTreeSet<(usize, usize)>,
    /// The same in one network only.
    pub network_cuts: BTreeSet<(usize, usize, u8)>,
    pub watch: Option<Rc<RefCell<dyn Watch>>>,
    params: homa::Params,
    pages: usize,
    networks: u8,
    rng: Rng,
    rate: Rate,
    delay: Duration,
    queue: BinaryHeap<Reverse<Entry>>,
    /// Makes entries of one moment keep their order.
    sequence: u64,
    /// Frames that crossed the switch.
    pub frames: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    sequence: u64,
    host: usize,
    what: What,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Frame(Vec<u8>),
    CorruptFrame,
    /// The host wants to be woken.
    Wake,
}

impl<A: App> Host<A> {
    /// A computer that has just been switched on.
    fn start(
        now: Instant,
        number: u8,
        homa: homa::Params,
        (pages, networks): (usize, u8),
        app: A,
    ) -> Self {
        const MTU: u16 = 1500;
        let interface = |network| Interface {
            ip: World::<A>::ip_in(network, number),
            prefix: 24,
        };
        let net = net::Params {
            addresses: (0..networks).map(interface).collect(),
            seed: homa.seed,
            ..net::Params::default()
        };
        let region = Region::owned(pages * homa::BPAGE_LEN as usize).expect("memory");
        let nic = Nic::new(number, MTU, LINK_MBPS);
        Self {
            poller: Poller::new(nic, net, homa, region, now).expect("valid params"),
            app,
            wake_at: None,
            link_idle_at: now,
            frozen_until: None,
        }
    }
}

impl Crossing<'_> {
    /// The network it belongs to: the third byte of the address that it goes to or asks for.
    pub fn network(&self) -> Option<u8> {
        const ARP: [u8; 2] = [0x08, 0x06];
        let place = if self.frame.get(12..14)? == ARP {
            40
        } else {
            32
        };
        self.frame.get(place).copied()
    }

    /// The Homa packet in the frame, if there is one.
    pub fn packet(&self) -> Option<(Common, Packet<'_>)> {
        homa_packet(self.frame)
    }
}

impl<A: App> World<A> {
    /// Hosts 10.0.0.1, 10.0.0.2, ... with one application each.
    ///
    /// # Panics
    /// If the params are invalid, or there are more than 250 applications.
    pub fn new(seed: u64, params: &homa::Params, pages: usize, apps: Vec<A>) -> Self {
        Self::with_networks(seed, params, (pages, 1), apps)
    }

    /// As [`Self::new`], with hosts that have an address in each of several networks: 10.0.0.1,
    /// 10.0.1.1 and so on. All of them are on one link, so that one poller serves them.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn with_networks(
        seed: u64,
        params: &homa::Params,
        (pages, networks): (usize, u8),
        apps: Vec<A>,
    ) -> Self {
        assert!(apps.len() <= 250, "hosts are numbered by one byte");
        let mut rng = Rng::new(seed);
        let hosts = apps.into_iter().enumerate();
        let hosts = hosts.map(|(number, app)| {
            let homa = homa::Params {
                seed: rng.next_u64(),
                ..params.clone()
            };
            Host::start(Instant(0), number as u8 + 1, homa, (pages, networks), app)
        });
        let hosts = hosts.collect();
        let mut world = Self {
            now: Instant(0),
            hosts,
            faults: Faults::NONE,
            loses: |_| false,
            cuts: BTreeSet::new(),
            network_cuts: BTreeSet::new(),
            watch: None,
            params: params.clone(),
            pages,
            networks,
            rng,
            rate: Rate::mbps(LINK_MBPS.into()),
            delay: Duration::micros(2),
            queue: BinaryHeap::new(),
            sequence: 0,
            frames: 0,
        };
        (0..world.hosts.len()).for_each(|host| world.turn(host));
        world
    }

    /// The address of the host of that number, from 1.
    pub const fn ip_of(number: u8) -> Ip {
        Self::ip_in(0, number)
    }

    /// Its address in a network, from 0.
    pub const fn ip_in(network: u8, number: u8) -> Ip {
        Ip::v4(10, 0, network, number)
    }

    /// A host's computer fails and starts anew, with nothing of what it knew: only its addresses
    /// and what is on its way to it are as before. `seed` is that of its new life.
    pub fn restart(&mut self, number: usize, seed: u64, app: A) {
        let homa = homa::Params {
            seed,
            ..self.params.clone()
        };
        let size = (self.pages, self.networks);
        self.hosts[number] = Host::start(self.now, number as u8 + 1, homa, size, app);
        self.turn(number);
    }

    /// A host's loop stands still until then, while its NIC receives.
    pub fn freeze(&mut self, number: usize, until: Instant) {
        self.hosts[number].frozen_until = Some(until);
        self.file(until, number, What::Wake);
    }

    /// A frame from nowhere arrives at a host as soon as may be.
    pub fn inject(&mut self, number: usize, frame: Vec<u8>) {
        self.file(self.now, number, What::Frame(frame));
    }

    /// Lets the next thing happen; false if nothing ever will.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(entry)) = self.queue.pop() else {
            return false;
        };
        self.now = self.now.max(entry.at);
        let host = &mut self.hosts[entry.host];
        match entry.what {
            What::Frame(frame) => host.poller.device_mut().deliver(frame),
            What::CorruptFrame => host.poller.device_mut().deliver_corrupt(),
            What::Wake if host.frozen_until == Some(entry.at) => host.frozen_until = None,
            What::Wake if host.wake_at == Some(entry.at) => host.wake_at = None,
            What::Wake => return true,
        }
        if host.frozen_until.is_some() {
            return true;
        }
        self.turn(entry.host);
        true
    }

    /// Lets things happen until `end`, or until nothing more would.
    pub fn run_until(&mut self, end: Instant) {
        while self
            .queue
            .peek()
            .is_some_and(|Reverse(entry)| entry.at <= end)
        {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// Turns a host's loop until it has nothing to do at this moment, and carries its frames off.
    pub fn turn(&mut self, number: usize) {
        loop {
            let host = &mut self.hosts[number];
            let app = &mut host.app;
            app.act(self.now, host.poller.homa());
            host.poller
                .turn_with(self.now, |homa, event| app.on_event(self.now, homa, event));
            host.poller.endpoint().check();
            let mut busy = host.poller.device().has_received();
            while let Some(frame) = self.hosts[number].poller.device_mut().take_sent() {
                busy = true;
                self.carry(number, frame);
            }
            if !busy {
                break;
            }
        }
        self.file_wake(number);
    }

    fn file_wake(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        let wants = [host.poller.poll_timeout(), host.app.wake_at()];
        let Some(at) = wants.into_iter().flatten().min() else {
            return;
        };
        let at = at.max(Instant(self.now.0 + 1));
        if host.wake_at.is_none_or(|filed| at < filed) {
            host.wake_at = Some(at);
            self.file(at, number, What::Wake);
        }
    }

    /// The switch: a frame goes to the host whose MAC it bears, or to all others.
    fn carry(&mut self, from: usize, frame: Vec<u8>) {
        let host = &mut self.hosts[from];
        let start = host.link_idle_at.max(self.now);
        host.link_idle_at = start + self.rate.time_for(frame.len() as u32 + WIRE_EXTRA);
        let at = host.link_idle_at + self.delay;
        self.frames += 1;
        if let Some(watch) = &self.watch
            && watch.borrow_mut().takes_out(self.now, from, &frame)
        {
            return;
        }
        for to in 0..self.hosts.len() {
            let mac = self.hosts[to].poller.device().caps().mac;
            let is_for = frame[0] & 1 == 1 || frame.starts_with(&mac);
            let crossing = Crossing {
                now: self.now,
                from,
                to,
                frame: &frame,
            };
            if to == from || !is_for {
                continue;
            }
            let is_cut = |network| self.network_cuts.contains(&(from, to, network));
            let is_lost = self.cuts.contains(&(from, to))
                || crossing.network().is_some_and(is_cut)
                || (self.loses)(&crossing);
            let copies: ArrayVec<Copied, 2> = match is_lost {
                true => ArrayVec::new(),
                false => self.faults.copies(&mut self.rng).collect(),
            };
            if let Some(watch) = &self.watch {
                watch.borrow_mut().on_frame(&crossing, &copies);
            }
            for copy in copies {
                let what = match copy.is_corrupt {
                    true => What::CorruptFrame,
                    false => What::Frame(frame.clone()),
                };
                self.file(at + copy.delay, to, what);
            }
        }
    }

    fn file(&mut self, at: Instant, host: usize, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse(Entry {
            at,
            sequence: self.sequence,
            host,
            what,
        }));
    }
}
