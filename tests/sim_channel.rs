//! Message channels between hosts that exist only in memory, in virtual time.

use demihoma::addr::Addr;
use demihoma::channel;
use demihoma::error::Error;
use demihoma::homa::Params;
use demihoma::sim::{Faults, Part, Sizes, Talker, TalkerParams, World};
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;

/// 64 MiB, the default.
const PAGES: usize = 1024;

/// Two messages of 1,000,000 B and a page: the least that may be configured.
const PAGES_MIN: usize = 33;

const LOSSY: Faults = Faults {
    loss_per_mille: 20,
    duplicate_per_mille: 20,
    late_per_mille: 100,
    late_max: Duration::micros(300),
    held_per_mille: 1,
    held_max: Duration::millis(300),
    ..Faults::NONE
};

/// So many channels with so many messages each way.
fn params(messages: u64, sizes: Sizes) -> TalkerParams {
    TalkerParams {
        part: Part::Listen { port: PORT },
        messages,
        sizes,
        pop_max: u32::MAX,
        think: Duration::ZERO,
        channel: channel::Params::default(),
    }
}

/// Host 0 listens, all others connect so many channels each.
fn world(seed: u64, pages: usize, clients: u8, count: u32, params: &TalkerParams) -> World<Talker> {
    let to = Addr::new(World::<Talker>::ip_of(1), PORT);
    let talker = |number: u8| {
        let part = match number {
            0 => Part::Listen { port: PORT },
            _ => Part::Connect { to, count },
        };
        let channel = channel::Params {
            seed: seed << 8 | u64::from(number),
            ..params.channel.clone()
        };
        Talker::new(TalkerParams {
            part,
            channel,
            ..params.clone()
        })
    };
    let apps = (0..=clients).map(talker).collect();
    World::new(seed, &Params::default(), pages, apps)
}

/// Lets things happen until all have hung up, but not longer than `span`.
fn run(world: &mut World<Talker>, span: Duration) {
    let end = world.now + span;
    while world.now < end && !world.hosts.iter().all(|host| host.app.is_done()) {
        world.step();
    }
    for host in &world.hosts {
        let app = &host.app;
        assert!(
            app.is_done(),
            "at {:?}: {:?}\n{:?}",
            world.now,
            app.talks,
            app.channels
        );
    }
}

/// All that was sent arrived, and nothing is left of it.
fn check(world: &mut World<Talker>, messages: u64) {
    let end = world.now + Duration::secs(6);
    world.run_until(end);
    let hosts = world.hosts.iter();
    for (number, host) in hosts.enumerate() {
        let app = &host.app;
        assert_eq!(app.failures(), [], "host {number}");
        assert_eq!(app.refused, [], "host {number}");
        assert!(app.talks.values().all(|talk| talk.received == messages));
        assert!(app.channels.is_empty(), "host {number}: {:?}", app.channels);
        let homa = host.poller.endpoint();
        assert_eq!(homa.rpc_count(), 0, "host {number}");
        assert_eq!(homa.free_pages() as usize, homa.region().len() / 65_536);
    }
}

#[test]
fn all_messages_arrive_in_order_both_ways_at_once() {
    let params = params(100, Sizes::W3WithLong);
    let mut world = world(1, PAGES, 2, 5, &params);
    run(&mut world, Duration::secs(20));
    check(&mut world, 100);
    let server = world.hosts[0].app.channels.stats();
    assert_eq!(server.opened, 10);
    assert_eq!((server.duplicates, server.retries), (0, 0));
    assert!(
        server.early > 0,
        "short messages overtook long ones: {server:?}"
    );
}

#[test]
fn loss_duplicates_and_reordering_change_nothing() {
    for seed in 0..10 {
        let params = params(60, Sizes::W3WithLong);
        let mut world = world(seed, PAGES, 2, 4, &params);
        world.faults = LOSSY;
        run(&mut world, Duration::secs(200));
        world.faults = Faults::NONE;
        check(&mut world, 60);
    }
}

/// The longest message does not fit one RPC together with its header.
#[test]
fn messages_around_the_longest_arrive_whole() {
    for len in [999_960, 999_961, 999_999, 1_000_000] {
        let params = params(3, Sizes::Fixed(len));
        let mut world = world(7, PAGES_MIN, 1, 1, &params);
        world.faults = LOSSY;
        run(&mut world, Duration::secs(60));
        world.faults = Faults::NONE;
        check(&mut world, 3);
    }
}

#[test]
fn what_a_pop_leaves_is_for_the_next() {
    let params = TalkerParams {
        pop_max: 700,
        ..params(40, Sizes::Uniform(1, 5_000))
    };
    let mut world = world(3, PAGES, 1, 3, &params);
    run(&mut world, Duration::secs(20));
    check(&mut world, 40);
}

/// Both sides send long messages and short ones, and have hardly room for two of the long ones.
#[test]
fn a_full_pool_is_no_deadlock() {
    for seed in 0..6 {
        let params = params(12, Sizes::Uniform(1, 1_000_000));
        let mut world = world(seed, PAGES_MIN, 2, 3, &params);
        if seed % 2 == 1 {
            world.faults = LOSSY;
        }
        run(&mut world, Duration::secs(300));
        world.faults = Faults::NONE;
        check(&mut world, 12);
    }
}

/// Messages of 60,000 B, four of which a channel may have under way: 40 channels want 160 pages
/// and there are 33, so what came early is often in the way of what comes before it.
#[test]
fn what_came_early_makes_room_when_it_is_short() {
    let params = params(20, Sizes::Uniform(1, 60_000));
    let mut world = world(5, PAGES_MIN, 4, 10, &params);
    world.faults = LOSSY;
    run(&mut world, Duration::secs(300));
    world.faults = Faults::NONE;
    check(&mut world, 20);
    let stats = world.hosts.iter().map(|host| host.app.channels.stats());
    let dropped: u64 = stats.map(|stats| stats.early_dropped).sum();
    assert!(dropped > 0, "the test should be harder");
}

/// The server's loop stands still for 10 s, in which its clients hear nothing at all.
#[test]
fn a_peer_that_computes_for_ten_seconds_is_not_lost() {
    let params = params(200, Sizes::Uniform(1, 20_000));
    let mut world = world(11, PAGES, 2, 3, &params);
    world.run_until(Instant(0) + Duration::micros(500));
    let received = world.hosts[0].app.received();
    assert!(
        received > 0 && received < 1_200,
        "{received}: it is under way"
    );
    world.freeze(0, world.now + Duration::secs(10));
    run(&mut world, Duration::secs(60));
    check(&mut world, 200);
}

/// Each reader waits for 3 ms after each message, so that its peer has all credit used up.
#[test]
fn slow_readers_hold_back_their_peers() {
    let params = TalkerParams {
        think: Duration::millis(3),
        ..params(100, Sizes::Fixed(20_000))
    };
    let mut world = world(13, PAGES, 1, 2, &params);
    world.run_until(Instant(0) + Duration::millis(100));
    for host in &world.hosts {
        let used = PAGES as u32 - host.poller.endpoint().free_pages();
        // Two channels with 256 KiB each, in pages of three messages, and what was popped.
        assert!(used <= 10, "{used} pages");
    }
    run(&mut world, Duration::secs(20));
    check(&mut world, 100);
    let stats = world.hosts[0].app.channels.stats();
    assert_eq!((stats.retries, stats.over_credit), (0, 0));
}

/// In 90 s each side asks 18 times at most, and at least every other time the answer to its own
/// question comes too late to spare it the next.
#[test]
fn an_idle_channel_costs_a_sign_of_life_now_and_then() {
    let params = TalkerParams {
        think: Duration::secs(100),
        ..params(2, Sizes::Fixed(100))
    };
    let mut world = world(19, PAGES, 1, 1, &params);
    world.run_until(Instant(0) + Duration::secs(3));
    let (frames, notes) = (world.frames, notes_out(&world));
    world.run_until(Instant(0) + Duration::secs(93));
    let notes = notes_out(&world) - notes;
    assert!((17..=40).contains(&notes), "{notes}");
    // A note is a request, a response, and an acknowledgement that was perhaps asked for; ARP.
    let frames = world.frames - frames;
    assert!(frames <= 5 * notes, "{frames} for {notes} notes");
    for host in &world.hosts {
        assert_eq!(host.poller.endpoint().rpc_count(), 0);
        assert_eq!(host.app.channels.len(), 1);
        assert_eq!(host.app.failures(), []);
    }
}

fn notes_out(world: &World<Talker>) -> u64 {
    let stats = world.hosts.iter().map(|host| host.app.channels.stats());
    stats.map(|stats| stats.notes_out).sum()
}

/// After 15 s without a word there are three signs of life that were asked for in vain.
#[test]
fn an_idle_channel_to_a_dead_host_times_out() {
    let params = TalkerParams {
        think: Duration::secs(1_000),
        ..params(2, Sizes::Fixed(100))
    };
    let mut world = world(23, PAGES, 1, 1, &params);
    world.run_until(Instant(0) + Duration::secs(1));
    world.cuts.extend([(0, 1), (1, 0)]);
    world.run_until(Instant(0) + Duration::secs(14));
    assert_eq!(world.hosts[1].app.failures(), []);
    assert_eq!(world.hosts[1].app.channels.stats().timeouts, 0);
    world.run_until(Instant(0) + Duration::secs(18));
    for host in &world.hosts {
        assert_eq!(host.app.channels.stats().timeouts, 1);
    }
}

#[test]
fn a_message_to_a_dead_host_is_tried_for_half_a_minute() {
    let params = params(10_000, Sizes::Fixed(5_000));
    let mut world = world(29, PAGES, 1, 2, &params);
    let start = Instant(0) + Duration::millis(1);
    world.run_until(start);
    world.cuts.extend([(0, 1), (1, 0)]);
    world.run_until(start + Duration::secs(29));
    for host in &world.hosts {
        assert_eq!(host.app.failures(), []);
    }
    world.run_until(start + Duration::secs(31));
    for host in &world.hosts {
        assert_eq!(host.app.failures(), [Error::PeerTimedOut; 2]);
        assert!(host.app.channels.is_empty());
    }
}

/// The host is back at once, and knows nothing of its channels.
#[test]
fn channels_to_a_host_that_restarted_are_reset() {
    let params = params(10_000, Sizes::Uniform(1, 30_000));
    let mut world = world(31, PAGES, 2, 2, &params);
    let start = Instant(0) + Duration::millis(1);
    world.run_until(start);
    world.restart(0, 99, Talker::new(params.clone()));
    world.run_until(start + Duration::secs(2));
    for client in [1, 2] {
        let app = &world.hosts[client].app;
        assert_eq!(app.failures(), [Error::ConnectionReset; 2]);
        assert!(app.is_done() && app.channels.is_empty());
    }
}

/// It is idle, so the first sign of life tells; and its port is closed this time.
#[test]
fn an_idle_channel_to_a_closed_port_is_reset() {
    let idle = TalkerParams {
        think: Duration::secs(1_000),
        ..params(2, Sizes::Fixed(100))
    };
    let mut world = world(37, PAGES, 1, 1, &idle);
    world.run_until(Instant(0) + Duration::secs(1));
    let elsewhere = TalkerParams {
        part: Part::Listen { port: PORT + 1 },
        ..idle
    };
    world.restart(0, 99, Talker::new(elsewhere));
    world.run_until(Instant(0) + Duration::secs(8));
    assert_eq!(world.hosts[1].app.channels.stats().resets, 1);
}

#[test]
fn nobody_listens_where_nobody_listens() {
    let params = params(1, Sizes::Fixed(100));
    let to = Addr::new(World::<Talker>::ip_of(1), PORT + 1);
    let nowhere = Addr::new(World::<Talker>::ip_of(77), PORT);
    let client = |to| {
        Talker::new(TalkerParams {
            part: Part::Connect { to, count: 3 },
            ..params.clone()
        })
    };
    let apps = vec![Talker::new(params.clone()), client(to), client(nowhere)];
    let mut world = World::new(41, &Params::default(), PAGES, apps);
    world.run_until(Instant(0) + Duration::millis(50));
    assert_eq!(world.hosts[1].app.refused, [Error::ConnectionRefused; 3]);
    world.run_until(Instant(0) + Duration::secs(2));
    assert_eq!(world.hosts[2].app.refused, [Error::HostUnreachable; 3]);
}

#[test]
fn connect_to_a_silent_host_gives_up_in_time() {
    let mut params = params(1, Sizes::Fixed(100));
    params.channel.connect_timeout = Duration::secs(3);
    let mut world = world(43, PAGES, 1, 2, &params);
    // It answers ARP, and no more.
    world.loses = |crossing| crossing.packet().is_some();
    world.run_until(Instant(0) + Duration::millis(2_900));
    assert_eq!(world.hosts[1].app.refused, []);
    world.run_until(Instant(0) + Duration::millis(3_300));
    assert_eq!(world.hosts[1].app.refused, [Error::PeerTimedOut; 2]);
    assert_eq!(world.hosts[1].poller.endpoint().rpc_count(), 0);
}
