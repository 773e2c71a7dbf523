//! Troubles that users of other Homa and kernel-bypass stacks had in the field, in whole worlds.
//!
//! Those that chance finds too are left to `sim_chaos`: grants that stall or drift, acks that get
//! lost, aborts at any moment, pools that are too small.

use demihoma::addr::{Addr, Ip};
use demihoma::error::Error;
use demihoma::homa::Params;
use demihoma::sim::{Crossing, Echo, Requester, RequesterParams, Role, Sizes, World};
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::Packet;

const PAGES: usize = 256;
const PORT: u16 = 99;

fn client(server: u8, rpcs: u64, len: u32, first_number: u64) -> Role {
    Role::Client(Requester::new(RequesterParams {
        to: Addr::new(Ip::v4(10, 0, 0, server), PORT),
        rpcs,
        outstanding: rpcs,
        sizes: Sizes::Fixed(len),
        first_number,
        seed: 5,
    }))
}

fn server() -> Role {
    Role::Server(Echo::new(PORT, Duration::ZERO))
}

/// All of the RPC in the client's first slot, and of the others each DATA packet of the server's
/// that was not asked for again.
fn loses_first_rpc_and_first_responses(crossing: &Crossing) -> bool {
    match crossing.packet() {
        Some((common, _)) if common.id.0 >> 1 & 0xf_ffff == 0 => true,
        Some((_, Packet::Data(data, _))) => crossing.from == 1 && !data.retransmit,
        Some(_) | None => false,
    }
}

/// Case C003: asking for the one must not keep the others from being asked for.
#[test]
fn an_rpc_that_nothing_helps_holds_up_no_other() {
    let apps = vec![client(2, 10, 5000, 1), server()];
    let mut world = World::new(3, &Params::default(), PAGES, apps);
    world.loses = loses_first_rpc_and_first_responses;
    // Three intervals of five ticks after the first five.
    world.run_until(Instant(0) + Duration::millis(20));
    assert_eq!(world.hosts[0].app.client().finished, 9);
    world.run_until(Instant(0) + Duration::millis(110));
    assert_eq!(
        world.hosts[0].app.client().failed,
        [(1, Error::PeerTimedOut)]
    );
}

/// Case C042: 20 x 100,000 B at once. Each takes 32 us of the link, all of them 640 us.
#[test]
fn an_incast_costs_neither_an_rpc_nor_a_resend() {
    const CLIENTS: u64 = 20;
    let clients = (0..CLIENTS).map(|number| client(21, 1, 100_000, 1 + number));
    let apps = clients.chain([server()]).collect();
    let mut world = World::new(3, &Params::default(), PAGES, apps);
    world.run_until(Instant(0) + Duration::millis(4));
    for host in &world.hosts[..CLIENTS as usize] {
        let client = host.app.client();
        assert_eq!((client.finished, client.failed.len()), (1, 0));
        assert_eq!(host.poller.endpoint().stats().resends_out, 0);
    }
    let stats = world.hosts[CLIENTS as usize].poller.endpoint().stats();
    assert_eq!((stats.resends_out, stats.page_waits), (0, 0));
    // 60,000 B beyond the unscheduled ones: at most a grant for each packet.
    assert!(
        stats.grants_out <= CLIENTS * 60_000_u64.div_ceil(1424),
        "{stats:?}"
    );
}

/// Case C039: a host that has 1 MB messages to send without end still hears and answers: each of
/// 200 short RPCs, one after the other, is over in much less than 5 ms.
#[test]
fn a_host_whose_link_is_full_still_hears_and_answers() {
    let streams = (0..2).map(|number| client(4, 40, 1_000_000, 1 + 1_000 * number));
    let pings = Role::Client(Requester::new(RequesterParams {
        to: Addr::new(Ip::v4(10, 0, 0, 4), PORT),
        rpcs: 200,
        outstanding: 1,
        sizes: Sizes::Fixed(100),
        first_number: 1,
        seed: 6,
    }));
    let params = Params {
        link_mbps: 25_000,
        ..Params::default()
    };
    let apps = streams.chain([pings, server()]).collect();
    let mut world = World::new(3, &params, 2 * PAGES, apps);
    // At least 80 MB at 25 Gb/s take 25 ms.
    let (mut last, mut slowest) = ((0, world.now), Duration::ZERO);
    while !world.hosts[2].app.client().is_done() {
        assert!(world.step());
        let finished = world.hosts[2].app.client().finished;
        if finished > last.0 {
            slowest = slowest.max(world.now - last.1);
            last = (finished, world.now);
        }
    }
    let streams = world.hosts[..2].iter().map(|host| host.app.client());
    assert!(
        streams.into_iter().all(|stream| !stream.is_done()),
        "no load"
    );
    assert!(slowest < Duration::millis(1), "{slowest:?}");
}

/// Case C063: a host starts and stops a hundred times while two others flood its port. What comes
/// before it is ready, or is for an earlier life, harms nothing, and each RPC has its outcome.
#[test]
fn a_host_may_start_and_stop_under_load() {
    let flood = |number| {
        Role::Client(Requester::new(RequesterParams {
            to: Addr::new(Ip::v4(10, 0, 0, 3), PORT),
            rpcs: 20_000,
            outstanding: 64,
            sizes: Sizes::Uniform(1, 10_000),
            first_number: number,
            seed: number,
        }))
    };
    let apps = vec![flood(1), flood(100_001), server()];
    let mut world = World::new(4, &Params::default(), PAGES, apps);
    for seed in 0..100 {
        world.run_until(world.now + Duration::micros(700));
        world.restart(2, 1_000 + seed, server());
    }
    let is_done = |world: &World<Role>| {
        let clients = world.hosts[..2].iter().map(|host| host.app.client());
        clients.into_iter().all(Requester::is_done)
    };
    while !is_done(&world) {
        assert!(world.step(), "somebody waits for ever");
        assert!(world.now < Instant(0) + Duration::secs(60));
    }
    for host in &world.hosts[..2] {
        let client = host.app.client();
        assert_eq!(client.finished + client.failed.len() as u64, 20_000);
        assert!(client.finished > 10_000, "{}", client.finished);
    }
    world.run_until(world.now + Duration::secs(6));
    for host in &world.hosts {
        let homa = host.poller.endpoint();
        assert_eq!((homa.rpc_count(), homa.free_pages()), (0, PAGES as u32));
    }
}
