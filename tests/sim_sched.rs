//! Who sends, who is granted, who gets pages: hosts on one switch under load, turned by the loop
//! that runs on a NIC.

use demihoma::addr::Addr;
use demihoma::homa::Params;
use demihoma::sim::{
    Crossing, Echo, Faults, Garbage, Requester, RequesterParams, Role, Sizes, World,
};
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::{Common, Data, Packet, Placement, RpcId};

const PORT: u16 = 99;
/// 64 MiB, as by default.
const PAGES: usize = 1024;
/// Of each host's link. Source: `sim::World`.
const LINK_MBPS: u64 = 25_000;

fn client(to: u8, rpcs: u64, outstanding: u64, sizes: Sizes, number: u64) -> Role {
    Role::Client(Requester::new(RequesterParams {
        to: Addr::new(World::<Role>::ip_of(to), PORT),
        rpcs,
        outstanding,
        sizes,
        first_number: number,
        seed: number,
    }))
}

fn server() -> Role {
    Role::Server(Echo::new(PORT, Duration::ZERO))
}

/// Runs until all clients are done, and tells how long that took.
fn finish(world: &mut World<Role>, limit: Duration) -> Duration {
    let start = world.now;
    let is_done = |world: &World<Role>| {
        world.hosts.iter().all(|host| match &host.app {
            Role::Client(client) => client.is_done(),
            Role::Server(_) => true,
        })
    };
    while !is_done(world) {
        assert!(
            world.step() && world.now < start + limit,
            "stuck at {:?}",
            world.now
        );
    }
    for host in &world.hosts {
        if let Role::Client(client) = &host.app {
            assert_eq!(client.failed, []);
        }
    }
    world.now - start
}

fn sum(world: &World<Role>, count: impl Fn(&demihoma::homa::Stats) -> u64) -> u64 {
    let stats = world
        .hosts
        .iter()
        .map(|host| host.poller.endpoint().stats());
    stats.map(count).sum()
}

/// Field case C042. 32 hosts send 1 MB each to one at once, and have it sent back: 32 MB, in frames
/// that take 1,538 B of the link for 1,424 B of payload, need 11.06 ms.
#[test]
fn thirty_two_senders_of_a_megabyte_to_one_fill_its_link() {
    let mut apps = vec![server()];
    apps.extend((0..32).map(|n| client(1, 1, 1, Sizes::Fixed(1_000_000), 1 + n)));
    let mut world = World::new(5, &Params::default(), PAGES, apps);
    let took = finish(&mut world, Duration::secs(1));
    // Both directions are in use at once but at the ends, so that all is over when either has
    // carried its 32 MB, and the last response, which is 1 MB more.
    let least = Duration(33_000_000 * 1_538 / 1_424 * 8_000 / LINK_MBPS);
    println!("{took:?}, at least {least:?}");
    assert!(
        took.0 * 90 <= least.0 * 100,
        "{took:?} is over {least:?} by more than a tenth"
    );
    assert_eq!(sum(&world, |stats| stats.timeouts), 0);
}

/// 64 strangers announce 1 MB each with one packet, again and again. Whoever is served is not
/// slowed down, as what they sent takes a page or two.
#[test]
fn first_packets_of_a_megabyte_leave_room_for_others() {
    let run = |is_flooded: bool| {
        let apps = vec![client(2, 100, 4, Sizes::Uniform(1, 1_000_000), 1), server()];
        let mut world = World::new(6, &Params::default(), 64, apps);
        let to = (world_mac(2), World::<Role>::ip_of(2));
        let strangers: Vec<_> = (100..164).map(World::<Role>::ip_of).collect();
        let garbage = Garbage::new(6, to, ([2, 6, 6, 6, 6, 6], strangers.clone()), vec![PORT]);
        for (n, &from) in strangers.iter().enumerate().filter(|_| is_flooded) {
            let data = Data {
                message_length: 1_000_000,
                incoming: 1_000_000,
                ack: None,
                cutoff_version: 1,
                retransmit: false,
                empty_reply: false,
                life: 0,
                offset: 0,
                placement: Placement::InSequence,
            };
            let common = Common {
                sport: 7,
                dport: PORT,
                id: RpcId(2 * n as u64),
            };
            world.inject(
                1,
                garbage.carry(from, &common, &Packet::Data(data, &[1; 1400])),
            );
        }
        let took = finish(&mut world, Duration::secs(10));
        (took, sum(&world, |stats| stats.page_waits))
    };
    let (alone, waits_alone) = run(false);
    let (flooded, waits) = run(true);
    println!("alone {alone:?}, flooded {flooded:?}, waits {waits_alone}, {waits}");
    assert!(
        flooded.0 * 10 <= alone.0 * 11,
        "{flooded:?} instead of {alone:?}"
    );
}

fn world_mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Decision 17. Every fifth frame is up to 200 us late, and none is lost: of a thousand packets at
/// most one is asked for in vain.
#[test]
fn reordering_up_to_200_us_draws_hardly_any_resends() {
    for seed in 1..=3 {
        println!("seed {seed}");
        let apps = vec![
            client(2, 200, 4, Sizes::Uniform(10_000, 1_000_000), 1),
            server(),
        ];
        let mut world = World::new(seed, &Params::default(), PAGES, apps);
        world.faults = Faults {
            late_per_mille: 200,
            late_max: Duration::micros(200),
            ..Faults::NONE
        };
        finish(&mut world, Duration::secs(10));
        let (data, resends) = (
            sum(&world, |stats| stats.data_out),
            sum(&world, |stats| stats.resends_out),
        );
        assert!(
            data > 100_000 && resends * 1_000 <= data,
            "{resends} of {data}"
        );
    }
}

/// Decision 17. The 20th packet of each request is lost once: by how much later than without that
/// is the RPC over?
#[test]
fn a_lost_packet_is_repaired_within_a_millisecond() {
    let run = |loses: fn(&Crossing) -> bool| {
        let mut took = Vec::new();
        let apps = vec![client(2, 100, 1, Sizes::Fixed(100_000), 1), server()];
        let mut world = World::new(7, &Params::default(), PAGES, apps);
        world.loses = loses;
        for finished in 1..=100 {
            let start = world.now;
            while world.hosts[0].app.client().finished < finished {
                assert!(world.step());
            }
            took.push((world.now - start).as_micros());
        }
        took.sort_unstable();
        (took, sum(&world, |stats| stats.repairs))
    };
    let (well, _) = run(|_| false);
    let (lossy, repairs) = run(|crossing| match crossing.packet() {
        Some((common, Packet::Data(data, _))) => {
            common.id.is_client() && data.offset == 20 * 1424 && !data.retransmit
        }
        Some(_) | None => false,
    });
    println!("p99 {} us, without loss {} us", lossy[98], well[98]);
    assert_eq!(repairs, 100);
    assert!(lossy[98] < well[98] + 1_000);
}

/// Field case C035, rules GR-29 and PA-01: a request of 1 MB, which is sent back, among an endless
/// stream of 60 kB ones from nine hosts. 5 % of 25 Gb/s alone carry it in 6.4 ms each way.
#[test]
fn the_longest_message_does_not_starve() {
    let run = |thousandths: u16| {
        let mut apps = vec![server()];
        let stream = |n: u64| client(1, u64::MAX, 16, Sizes::Fixed(60_000), 1 + (n << 40));
        apps.extend((0..9).map(stream));
        apps.push(client(1, 1, 1, Sizes::Fixed(1_000_000), 1 << 60));
        let params = Params {
            grant_fifo_thousandths: thousandths,
            pacer_fifo_thousandths: thousandths,
            ..Params::default()
        };
        let mut world = World::new(8, &params, PAGES, apps);
        let end = Instant(0) + Duration::millis(60);
        while !world.hosts[10].app.client().is_done() && world.now < end {
            assert!(world.step());
        }
        assert_eq!(world.hosts[10].app.client().failed, []);
        world.now
    };
    let (without, with) = (run(0), run(50));
    println!("{with:?} with its share, {without:?} without");
    assert!(with < Instant(0) + Duration::millis(20));
    assert!(without.0 > with.0 * 2, "there was nothing to starve of");
}

/// Decision 26. Pages for two long messages, which eight clients with messages of all sizes want.
#[test]
fn nobody_starves_for_pages() {
    let mut apps = vec![server()];
    apps.extend((0..4).map(|n| client(1, 300, 8, Sizes::Uniform(1, 60_000), 1 + n * 1_000)));
    apps.extend((0..4).map(|n| client(1, 20, 2, Sizes::Fixed(1_000_000), 1 + (n + 10) * 1_000)));
    let mut world = World::new(9, &Params::default(), 40, apps);
    let took = finish(&mut world, Duration::secs(5));
    let waits = sum(&world, |stats| stats.page_waits);
    println!("{took:?}, {waits} waits");
    assert!(waits > 0, "there was room for all");
}

/// Rule PA-01. Paced by its own link's speed a host sends as much as ever, and a short request
/// beside a stream of long ones is over sooner than without, as the NIC's queue is short.
#[test]
fn pacing_costs_no_speed_and_keeps_the_nics_queue_short() {
    let run = |link_mbps: u32| {
        let params = Params {
            link_mbps,
            ..Params::default()
        };
        let apps = vec![client(2, 200, 8, Sizes::Fixed(500_000), 1), server()];
        let mut world = World::new(10, &params, PAGES, apps);
        finish(&mut world, Duration::secs(1))
    };
    let (unpaced, paced) = (run(0), run(LINK_MBPS as u32));
    println!("{unpaced:?} unpaced, {paced:?} paced");
    assert!(
        paced.0 * 100 <= unpaced.0 * 103,
        "{paced:?} instead of {unpaced:?}"
    );
    // At half the speed it takes twice as long.
    let half = run(LINK_MBPS as u32 / 2);
    assert!(
        half.0 > unpaced.0 * 18 / 10,
        "{half:?} instead of twice {unpaced:?}"
    );
}
