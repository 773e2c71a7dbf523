//! What a run is made of: how many hosts, which faults, how large the tables, all from its seed.

use crate::homa;
use crate::rng::Rng;
use crate::sim;
use crate::sim::chaos::{Fault, Faults};
use crate::time::Duration;

/// The outline of a run, as it can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// At least 2.
    pub hosts: u8,
    /// RPCs that each host starts, besides those that its handlers need.
    pub rpcs: u64,
    pub faults: Faults,
}

/// All that follows from a seed and a shape.
#[derive(Clone, Debug)]
pub struct Setting {
    pub homa: homa::Params,
    /// Receive memory of each host.
    pub pages: usize,
    pub links: sim::Faults,
    /// How long RPCs are started and things go wrong.
    pub busy_for: Duration,
    pub habits: Habits,
}

/// What applications do.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub hosts: u8,
    /// Longest message.
    pub len_max: u32,
    /// Longest pause from one RPC to the next.
    pub pause_max: Duration,
    /// Longest time that a handler takes.
    pub service_max: Duration,
    /// How long a handler waits for another host before it answers all the same.
    pub patience: Duration,
    /// They abort, forget and close.
    pub aborts: bool,
    /// Handlers call other hosts.
    pub nests: bool,
}

impl Setting {
    /// After how long a response without an ack, or a message without pages, is given up.
    pub fn give_up(&self) -> Duration {
        self.homa
            .tick
            .times(self.homa.need_ack_give_up_ticks.into())
    }
}

impl Shape {
    /// A small one: 2 to 16 hosts, about 100 RPCs, each fault in half of all seeds.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ba9e);
        let hosts = 2 + rng.below(15) as u8;
        let rpcs = (40 + rng.below(120)) / u64::from(hosts);
        let has = |_: &Fault| rng.one_in_thousand(500);
        let faults = Fault::ALL.into_iter().filter(has).collect();
        Self {
            hosts,
            rpcs: rpcs.max(4),
            faults,
        }
    }

    /// What a run of this shape is like in detail.
    pub fn setting(&self, rng: &mut Rng) -> Setting {
        let is_tight = self.faults.has(Fault::Pool);
        let pages = match is_tight {
            true => [2, 4, 16, 20][rng.below(4) as usize],
            false => 256,
        };
        let busy_for = Duration::millis(50 + rng.below(350));
        let habits = Habits {
            hosts: self.hosts,
            len_max: homa::BPAGE_LEN.saturating_mul(pages as u32).min(1_000_000),
            pause_max: Duration(2 * busy_for.0 / self.rpcs.max(1) + 1),
            service_max: match self.faults.has(Fault::Slow) {
                true => Duration::millis(20 + rng.below(400)),
                false => Duration::micros(rng.below(300)),
            },
            patience: Duration::millis(50 + rng.below(400)),
            aborts: self.faults.has(Fault::Abort),
            nests: self.faults.has(Fault::Nested),
        };
        Setting {
            homa: self.params(rng),
            pages,
            links: self.links(rng),
            busy_for,
            habits,
        }
    }

    fn params(&self, rng: &mut Rng) -> homa::Params {
        let is_tight = self.faults.has(Fault::Pool);
        let mut one_of = |values: &[u32]| values[rng.below(values.len() as u64) as usize];
        homa::Params {
            rpcs_max: one_of(if is_tight { &[8, 24, 64] } else { &[256, 1024] }),
            peers_max: u32::from(self.hosts) + 4,
            sockets_max: 4,
            control_max: one_of(if is_tight { &[16, 64] } else { &[256, 4096] }),
            finished_max: 1 << 14,
            need_ack_give_up_ticks: one_of(&[300, 1000, 2000]),
            unsched_bytes: one_of(&[1, 2000, 40_000, 40_000]),
            window_bytes: one_of(&[0, 0, 10_000]),
            max_incoming_bytes: one_of(&[20_000, 100_000, 400_000, 400_000]),
            max_overcommit: one_of(&[1, 2, 8]) as u8,
            ..homa::Params::default()
        }
    }

    fn links(&self, rng: &mut Rng) -> sim::Faults {
        let has = |fault| u64::from(self.faults.has(fault));
        let mut per_mille = |fault, most: u64| (has(fault) * (1 + rng.below(most))) as u32;
        sim::Faults {
            loss_per_mille: per_mille(Fault::Loss, 80),
            duplicate_per_mille: per_mille(Fault::Duplicate, 100),
            late_per_mille: per_mille(Fault::Reorder, 300),
            late_max: Duration::micros(500),
            held_per_mille: per_mille(Fault::Delay, 20),
            held_max: Duration::secs(3),
            corrupt_per_mille: per_mille(Fault::Corrupt, 20),
        }
    }
}
