//! The same trouble for message channels: some hosts listen, the others connect to them, and both
//! sides talk.
//!
//! Every byte and its order are checked as it arrives. A channel may end with an error only if one
//! of its two hosts restarted, since all other trouble is over long before a channel gives up.

use std::collections::BTreeSet;

use crate::addr::Addr;
use crate::channel;
use crate::rng::Rng;
use crate::sim::chaos::Shape;
use crate::sim::chaos::shape::Setting;
use crate::sim::chaos::weather::{Act, Weather};
use crate::sim::{self, Part, Sizes, Talker, TalkerParams, World};
use crate::time::{Duration, Instant};

const PORT: u16 = 99;

/// A channel gives up after 30 s without progress, and its messages are tried for so long.
const PATIENCE: Duration = Duration::secs(90);

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TalkReport {
    pub channels: u64,
    /// Messages that arrived, in order.
    pub messages: u64,
    /// Channels that ended with an error, as seen by each side.
    pub failures: u64,
    pub retries: u64,
    /// Messages that came early and were given up, as room was short.
    pub early_dropped: u64,
    pub restarts: u64,
}

/// Lets a run happen.
///
/// # Panics
/// If anything is found wrong; the text begins with the seed.
pub fn run_talks(seed: u64, shape: Shape) -> TalkReport {
    Talks::new(seed, shape).run()
}

struct Talks {
    seed: u64,
    setting: Setting,
    params: TalkerParams,
    acts: Vec<(Instant, Act)>,
    rng: Rng,
    world: World<Talker>,
    /// Hosts that did.
    restarted: BTreeSet<usize>,
    report: TalkReport,
}

impl Talks {
    fn new(seed: u64, shape: Shape) -> Self {
        let mut rng = Rng::new(seed);
        let setting = shape.setting(&mut rng);
        let weather = Weather::draw(&shape, Instant(0) + setting.busy_for, &mut rng);
        let pops_parts = rng.one_in_thousand(200);
        let longest = match pops_parts {
            true => 10_000,
            false => [100, 3_000, 50_000, 1_000_000][rng.below(4) as usize],
        };
        let params = TalkerParams {
            part: Part::Listen { port: PORT },
            messages: 1 + rng.below(20),
            // With its header it must fit all pages together.
            sizes: Sizes::Uniform(1, setting.habits.len_max.min(longest) - 64),
            pop_max: if pops_parts { 1_000 } else { u32::MAX },
            think: Duration::micros(rng.below(1_000)),
            channel: channel::Params::default(),
        };
        let listeners = usize::from(shape.hosts / 2).max(1);
        let hosts = usize::from(shape.hosts);
        let talkers = (0..hosts).map(|host| talker(&params, host, listeners, &mut rng));
        let talkers = talkers.collect();
        let mut world = World::new(rng.next_u64(), &setting.homa, setting.pages, talkers);
        world.faults = setting.links;
        Self {
            seed,
            setting,
            params,
            acts: weather.acts,
            rng,
            world,
            restarted: BTreeSet::new(),
            report: TalkReport::default(),
        }
    }

    fn run(mut self) -> TalkReport {
        for (at, act) in std::mem::take(&mut self.acts) {
            self.world.run_until(at);
            match act {
                Act::Restart(host) => self.restart(host),
                act => act.apply(&mut self.world),
            }
        }
        self.world.run_until(Instant(0) + self.setting.busy_for);
        self.world.faults = sim::Faults::NONE;
        self.world.cuts.clear();
        self.settle();
        self.check_end();
        self.report
    }

    fn restart(&mut self, host: usize) {
        self.count(host);
        self.restarted.insert(host);
        self.report.restarts += 1;
        let listeners = (self.world.hosts.len() / 2).max(1);
        let talker = talker(&self.params, host, listeners, &mut self.rng);
        self.world.restart(host, self.rng.next_u64(), talker);
    }

    fn settle(&mut self) {
        let end = self.world.now + PATIENCE;
        while !self.world.hosts.iter().all(|host| host.app.is_done()) {
            let goes_on = self.world.step() && self.world.now < end;
            if !goes_on {
                let hosts = self.world.hosts.iter();
                let left: Vec<_> = hosts.filter(|host| !host.app.is_done()).collect();
                panic!("seed {}: no end: {left:#?}\n{:?}", self.seed, self.setting);
            }
        }
        let waits = self.setting.links.held_max + self.setting.give_up();
        // Signs of life find out about channels that only one side knows.
        let silence = Duration::secs(16);
        self.world.run_until(self.world.now + waits + silence);
    }

    /// Adds up what a host did in this life of it.
    fn count(&mut self, host: usize) {
        let app = &self.world.hosts[host].app;
        let stats = app.channels.stats();
        self.report.channels += stats.opened;
        self.report.messages += app.received();
        self.report.failures += app.failures().len() as u64;
        self.report.retries += stats.retries;
        self.report.early_dropped += stats.early_dropped;
    }

    fn check_end(&mut self) {
        let seed = self.seed;
        for number in 0..self.world.hosts.len() {
            self.count(number);
            let host = &self.world.hosts[number];
            let (app, homa) = (&host.app, host.poller.endpoint());
            for (peer, received, failed) in app.outcomes() {
                let is_excused = self.restarted.contains(&number)
                    || self.restarted.iter().any(|&host| ip(host) == peer);
                let is_whole = failed.is_none() && received == self.params.messages;
                assert!(
                    is_whole || is_excused,
                    "seed {seed}: host {number} had {received} messages of {peer}: {failed:?}"
                );
            }
            assert!(
                app.refused.is_empty() || !self.restarted.is_empty(),
                "seed {seed}: host {number} was refused: {:?}",
                app.refused
            );
            let left = app.channels.len();
            assert_eq!(left, 0, "seed {seed}: host {number}'s {:#?}", app.channels);
            assert_eq!(homa.rpc_count(), 0, "seed {seed}: host {number}'s RPCs");
            let pages = self.setting.pages as u32;
            assert_eq!(
                homa.free_pages(),
                pages,
                "seed {seed}: host {number}'s pages"
            );
            assert_eq!(app.used_bytes(), 0, "seed {seed}: host {number}'s buffers");
        }
    }
}

/// What a host does; the first ones listen.
fn talker(params: &TalkerParams, host: usize, listeners: usize, rng: &mut Rng) -> Talker {
    let part = match host < listeners {
        true => Part::Listen { port: PORT },
        false => Part::Connect {
            to: Addr::new(ip(rng.below(listeners as u64) as usize), PORT),
            count: 1 + rng.below(4) as u32,
        },
    };
    let channel = channel::Params {
        seed: rng.next_u64(),
        ..params.channel.clone()
    };
    Talker::new(TalkerParams {
        part,
        channel,
        ..params.clone()
    })
}

fn ip(host: usize) -> crate::addr::Ip {
    World::<Talker>::ip_of(host as u8 + 1)
}
