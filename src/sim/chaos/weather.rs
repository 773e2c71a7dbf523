//! What happens to hosts and ways, and when; and so which RPCs may fail.

use crate::rng::Rng;
use crate::sim::chaos::{Fault, Shape};
use crate::sim::{App, World};
use crate::time::{Duration, Instant};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Frames of the first host do not reach the second.
    Cut(usize, usize),
    Heal(usize, usize),
    /// No frame reaches the host or leaves it.
    LinkDown(usize),
    LinkUp(usize),
    /// Its loop stands still until then.
    Freeze(usize, Instant),
    Restart(usize),
}

impl Act {
    /// Lets it happen, unless it is a restart, of which only the caller knows what it needs.
    pub fn apply<A: App>(self, world: &mut World<A>) {
        let hosts = 0..world.hosts.len();
        match self {
            Self::Cut(from, to) => {
                world.cuts.insert((from, to));
            }
            Self::Heal(from, to) => {
                world.cuts.remove(&(from, to));
            }
            Self::LinkDown(host) => {
                let ways = hosts.flat_map(|other| [(host, other), (other, host)]);
                world.cuts.extend(ways);
            }
            Self::LinkUp(host) => world.cuts.retain(|way| way.0 != host && way.1 != host),
            Self::Freeze(host, until) => world.freeze(host, until),
            Self::Restart(_) => {}
        }
    }
}

/// A span in which a host, or the way between two, does not work as it should.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    hosts: (usize, usize),
    /// It stands still, so its own time does not pass: only to others it is silent.
    is_freeze: bool,
    start: Instant,
    end: Instant,
}

/// All that happens in a run, in order.
#[derive(Debug, Default)]
pub struct Weather {
    pub acts: Vec<(Instant, Act)>,
    troubles: Vec<Trouble>,
}

impl Weather {
    /// Draws what happens until `end`, when all is well again.
    pub fn draw(shape: &Shape, end: Instant, rng: &mut Rng) -> Self {
        let mut weather = Self::default();
        let hosts = u64::from(shape.hosts);
        let mut some = |weather: &mut Self, fault, draw: fn(&mut Self, Spell)| {
            let count = if shape.faults.has(fault) {
                1 + rng.below(3)
            } else {
                0
            };
            for _ in 0..count {
                let start = Instant(rng.below(end.0));
                let host = rng.below(hosts) as usize;
                let other = (host as u64 + 1 + rng.below(hosts - 1)) % hosts;
                let spell = Spell {
                    host,
                    other: other as usize,
                    start,
                    end,
                    rng: Rng::new(rng.next_u64()),
                };
                draw(weather, spell);
            }
        };
        some(&mut weather, Fault::Partition, Self::partition);
        some(&mut weather, Fault::OneWay, Self::one_way);
        some(&mut weather, Fault::Flap, Self::flap);
        some(&mut weather, Fault::Freeze, Self::freeze);
        some(&mut weather, Fault::Restart, Self::restart);
        weather.acts.sort_by_key(|&(at, _)| at);
        weather
    }

    /// For how long, from `start` to `end`, a host got no answers of another: the way there or back
    /// was cut, or the other stood still.
    pub fn silence(&self, host: usize, of: usize, span: (Instant, Instant)) -> Duration {
        let concerns = |trouble: &&Trouble| {
            let (a, b) = trouble.hosts;
            match (a == b, trouble.is_freeze) {
                (true, true) => a == of,
                (true, false) => a == host || a == of,
                (false, _) => (host, of) == (a, b) || (host, of) == (b, a),
            }
        };
        let clipped = |trouble: &Trouble| (trouble.start.max(span.0), trouble.end.min(span.1));
        let mut spells: Vec<_> = self.troubles.iter().filter(concerns).map(clipped).collect();
        spells.sort_unstable();
        let (mut sum, mut covered_to) = (Duration::ZERO, span.0);
        for (start, end) in spells {
            let start = start.max(covered_to);
            if start < end {
                sum = sum + end.since(start);
                covered_to = end;
            }
        }
        sum
    }

    /// Whether a host stood still at a time from `start` to `end`.
    pub fn stood_still(&self, host: usize, (start, end): (Instant, Instant)) -> bool {
        let freezes = self.troubles.iter().filter(|trouble| trouble.is_freeze);
        let mut its = freezes.filter(|trouble| trouble.hosts.0 == host);
        its.any(|trouble| trouble.start <= end && start <= trouble.end)
    }

    fn trouble(&mut self, hosts: (usize, usize), start: Instant, end: Instant) {
        self.troubles.push(Trouble {
            hosts,
            is_freeze: false,
            start,
            end,
        });
    }

    fn partition(&mut self, mut spell: Spell) {
        let (start, end, ways) = (spell.start, spell.until(20, 400), spell.ways());
        for (from, to) in [ways, (ways.1, ways.0)] {
            self.acts.push((start, Act::Cut(from, to)));
            self.acts.push((end, Act::Heal(from, to)));
        }
        self.trouble(ways, start, end);
    }

    fn one_way(&mut self, mut spell: Spell) {
        let (start, end, ways) = (spell.start, spell.until(20, 400), spell.ways());
        self.acts.push((start, Act::Cut(ways.0, ways.1)));
        self.acts.push((end, Act::Heal(ways.0, ways.1)));
        self.trouble(ways, start, end);
    }

    /// A link that comes and goes.
    fn flap(&mut self, mut spell: Spell) {
        let host = spell.host;
        for _ in 0..1 + spell.rng.below(6) {
            let (start, end) = (spell.start, spell.until(1, 30));
            self.acts.push((start, Act::LinkDown(host)));
            self.acts.push((end, Act::LinkUp(host)));
            self.trouble((host, host), start, end);
            spell.start = end;
            spell.start = spell.until(1, 20);
        }
    }

    fn freeze(&mut self, mut spell: Spell) {
        let (host, start, end) = (spell.host, spell.start, spell.until(50, 300));
        self.acts.push((start, Act::Freeze(host, end)));
        self.troubles.push(Trouble {
            hosts: (host, host),
            is_freeze: true,
            start,
            end,
        });
    }

    fn restart(&mut self, spell: Spell) {
        self.acts.push((spell.start, Act::Restart(spell.host)));
    }
}

/// Where and when one trouble begins.
struct Spell {
    host: usize,
    other: usize,
    start: Instant,
    /// Of all trouble.
    end: Instant,
    rng: Rng,
}

impl Spell {
    fn ways(&self) -> (usize, usize) {
        (self.host, self.other)
    }

    /// A time so many milliseconds after the start, but not after all trouble.
    fn until(&mut self, least: u64, most: u64) -> Instant {
        let span = Duration::micros(1000 * least + self.rng.below(1000 * (most - least)));
        (self.start + span).min(self.end)
    }
}
