//! Two hosts on a bad link, turned by the loop that runs on a NIC.

use demihoma::addr::Addr;
use demihoma::homa::Params;
use demihoma::sim::{Echo, Faults, Requester, RequesterParams, Role, Sizes, World};
use demihoma::time::{Duration, Instant};

/// 64 MiB, as by default.
const PAGES: usize = 1024;
const PORT: u16 = 99;

struct Pair {
    world: World<Role>,
    rpcs: u64,
}

impl Pair {
    fn new(seed: u64, rpcs: u64, outstanding: u64, sizes: Sizes, service: Duration) -> Self {
        let to = Addr::new(World::<Role>::ip_of(2), PORT);
        let params = RequesterParams {
            to,
            rpcs,
            outstanding,
            sizes,
            first_number: 1,
            seed,
        };
        let apps = vec![
            Role::Client(Requester::new(params)),
            Role::Server(Echo::new(PORT, service)),
        ];
        Self {
            world: World::new(seed, &Params::default(), PAGES, apps),
            rpcs,
        }
    }

    fn client(&self) -> &Requester {
        self.world.hosts[0].app.client()
    }

    fn server(&self) -> &Echo {
        self.world.hosts[1].app.server()
    }

    /// Runs until every RPC has its outcome.
    fn run(&mut self, limit: Duration) {
        let end = Instant(0) + limit;
        while !self.client().is_done() {
            assert!(
                self.world.step() && self.world.now < end,
                "stuck: {}",
                self.state()
            );
        }
    }

    fn state(&self) -> String {
        let stats: Vec<_> = self
            .world
            .hosts
            .iter()
            .map(|host| host.poller.endpoint())
            .collect();
        format!("at {:?}: {stats:#?}", self.world.now)
    }

    /// Each handler ran once, and nothing is left but the memory of it, which ends in time too.
    fn check_end(&mut self) {
        assert_eq!(
            (self.client().finished, &self.client().failed),
            (self.rpcs, &vec![])
        );
        // Messages too short for a number are all number 0.
        let runs = &self.server().runs;
        assert!(
            runs.iter().all(|(&number, &runs)| number == 0 || runs == 1),
            "one ran twice"
        );
        assert_eq!(
            runs.values().map(|&runs| u64::from(runs)).sum::<u64>(),
            self.rpcs
        );
        self.world.faults = Faults::NONE;
        let seconds = Duration::secs(1);
        self.world.run_until(self.world.now + seconds);
        for host in &self.world.hosts {
            let homa = host.poller.endpoint();
            assert_eq!(homa.rpc_count(), 0, "RPCs are left: {}", self.state());
            assert_eq!(homa.free_pages(), PAGES as u32, "pages are left");
            assert!(homa.is_quiet(), "something is still to be sent");
        }
        assert!(
            self.world.hosts[1]
                .poller
                .endpoint()
                .finished_count(self.world.now)
                > 0
        );
        self.world.run_until(self.world.now + Duration::secs(10));
        assert_eq!(
            self.world.hosts[1]
                .poller
                .endpoint()
                .finished_count(self.world.now),
            0
        );
    }
}

#[test]
fn a_small_rpc_takes_two_data_packets_and_little_else() {
    let mut pair = Pair::new(1, 100, 1, Sizes::Fixed(64), Duration::ZERO);
    pair.run(Duration::secs(1));
    let stats = [0, 1].map(|host| *pair.world.hosts[host].poller.endpoint().stats());
    assert_eq!((stats[0].data_out, stats[1].data_out), (100, 100));
    assert_eq!((stats[0].retransmits_out, stats[1].retransmits_out), (0, 0));
    // Acks ride on the next request.
    assert_eq!((stats[0].acks_out, stats[1].need_acks_out), (0, 0));
    pair.check_end();
}

#[test]
fn messages_of_every_size_cross_a_good_link_without_a_resend() {
    for len in [
        1, 100, 1424, 1425, 10_000, 40_000, 40_001, 100_000, 999_999, 1_000_000,
    ] {
        let mut pair = Pair::new(2, 3, 1, Sizes::Fixed(len), Duration::ZERO);
        pair.run(Duration::secs(1));
        for host in &pair.world.hosts {
            assert_eq!(host.poller.endpoint().stats().resends_out, 0, "{len} B");
        }
        pair.check_end();
    }
}

#[test]
fn a_handler_slower_than_the_timeout_is_waited_for() {
    let mut pair = Pair::new(3, 3, 1, Sizes::Fixed(100), Duration::millis(500));
    pair.run(Duration::secs(3));
    assert!(pair.world.hosts[1].poller.endpoint().stats().busys_out > 0);
    pair.check_end();
}

/// Sizes as W3, one in a hundred of 100 kB to 1 MB, 5 % loss, 5 % duplicates, reordering.
#[test]
fn ten_thousand_rpcs_survive_loss_duplicates_and_reordering_on_each_of_twenty_seeds() {
    for seed in 1..=20 {
        println!("seed {seed}");
        let mut pair = Pair::new(seed, 10_000, 16, Sizes::W3WithLong, Duration::ZERO);
        pair.world.faults = Faults {
            loss_per_mille: 50,
            duplicate_per_mille: 50,
            late_per_mille: 100,
            late_max: Duration::micros(500),
            ..Faults::NONE
        };
        pair.run(Duration::secs(600));
        pair.check_end();
    }
}
