//! Hosts that are client and server at once, to each other and to themselves.

use demihoma::addr::Addr;
use demihoma::homa::{Endpoint, Event, Params};
use demihoma::sim::{App, Echo, Requester, RequesterParams, Sizes, World};
use demihoma::time::{Duration, Instant};

const PAGES: usize = 64;
const PORT: u16 = 99;

/// Asks and answers.
#[derive(Debug)]
struct Both {
    client: Requester,
    server: Echo,
}

impl Both {
    /// Asks the host of that number, 200 times, and answers whoever asks.
    fn new(to: u8, len: u32) -> Self {
        let params = RequesterParams {
            to: Addr::new(World::<Self>::ip_of(to), PORT),
            rpcs: 200,
            outstanding: 5,
            sizes: Sizes::Fixed(len),
            first_number: 1000 * u64::from(to),
            seed: 3,
        };
        Self {
            client: Requester::new(params),
            server: Echo::new(PORT, Duration::ZERO),
        }
    }
}

impl App for Both {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        self.server.act(now, homa);
        self.client.act(now, homa);
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Request { .. } => self.server.on_event(now, homa, event),
            Event::Response { .. } | Event::Failed { .. } | Event::Released { .. } => {
                self.client.on_event(now, homa, event);
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.server.wake_at()
    }
}

fn run(world: &mut World<Both>) {
    while !world.hosts.iter().all(|host| host.app.client.is_done()) {
        assert!(world.step(), "stuck: {world:#?}");
    }
    world.run_until(world.now + Duration::secs(6));
    for host in &world.hosts {
        assert_eq!(
            (host.app.client.finished, host.app.client.failed.len()),
            (200, 0)
        );
        assert!(host.app.server.runs.values().all(|&runs| runs == 1));
        let homa = host.poller.endpoint();
        assert_eq!((homa.rpc_count(), homa.free_pages()), (0, PAGES as u32));
    }
}

/// Decision 23: it never sees the wire. Most of it takes no time, for each turn hands over up to
/// 16 packets to ourselves; what is longer goes on in the next.
#[test]
fn an_rpc_to_an_address_of_ours_is_delivered_inside_the_turn() {
    for len in [8, 5000, 200_000] {
        let mut world = World::new(1, &Params::default(), PAGES, vec![Both::new(1, len)]);
        run(&mut world);
        // One frame says who has our address.
        assert_eq!(world.frames, 1, "{len} B");
    }
}

/// Case C052: with one seed both hosts give their RPCs the same ids.
#[test]
fn two_hosts_that_call_each_other_by_equal_ids_do_not_mix_them_up() {
    let apps = vec![Both::new(2, 5000), Both::new(1, 5000)];
    let mut world = World::new(1, &Params::default(), PAGES, apps);
    world.restart(0, 9, Both::new(2, 5000));
    world.restart(1, 9, Both::new(1, 5000));
    run(&mut world);
    for host in &world.hosts {
        assert_eq!(host.app.server.runs.len(), 200);
    }
}
