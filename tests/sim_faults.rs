//! What goes wrong with computers and wires, exact in virtual time: each RPC ends in the right
//! error at the right moment, or the next one works.

use demihoma::addr::{Addr, Ip};
use demihoma::error::Error;
use demihoma::homa::Params;
use demihoma::sim::{Crossing, Echo, Requester, RequesterParams, Role, Sizes, World};
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::Packet;

const PAGES: usize = 64;
const PORT: u16 = 99;
const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 2), PORT);

/// Hosts by their places: the client is 10.0.0.1, the server 10.0.0.2.
const CLIENT_HOST: usize = 0;
const SERVER_HOST: usize = 1;

/// More than a packet takes from host to host and back, less than a tick.
const ROUND: Duration = Duration::micros(500);

fn asks(to: Addr, rpcs: u64, len: u32) -> Role {
    Role::Client(Requester::new(RequesterParams {
        to,
        rpcs,
        outstanding: 1,
        sizes: Sizes::Fixed(len),
        first_number: 1,
        seed: 5,
    }))
}

fn answers(service: Duration) -> Role {
    Role::Server(Echo::new(PORT, service))
}

fn world(apps: Vec<Role>) -> World<Role> {
    World::new(7, &Params::default(), PAGES, apps)
}

fn is_homa(crossing: &Crossing) -> bool {
    crossing.packet().is_some()
}

fn is_data(crossing: &Crossing) -> bool {
    matches!(crossing.packet(), Some((_, Packet::Data(..))))
}

/// The server's bytes get lost until then, and its NEED_ACKs always.
fn says_nothing(crossing: &Crossing, until: Instant) -> bool {
    match crossing.packet() {
        Some((_, Packet::NeedAck)) => true,
        packet => crossing.from == SERVER_HOST && packet.is_some() && crossing.now < until,
    }
}

/// Runs until the client has no RPC left, and tells when that was and what failed.
fn run(world: &mut World<Role>) -> (Instant, Vec<Error>) {
    while !world.hosts[CLIENT_HOST].app.client().is_done() {
        assert!(world.step(), "nothing will ever happen: {world:#?}");
        assert!(world.now < Instant(0) + Duration::secs(60), "{world:#?}");
    }
    let failed = &world.hosts[CLIENT_HOST].app.client().failed;
    (world.now, failed.iter().map(|&(_, error)| error).collect())
}

/// Replaces the client's application, in the same life of its computer.
fn ask_anew(world: &mut World<Role>, rpcs: u64, len: u32) {
    world.hosts[CLIENT_HOST].app = asks(SERVER, rpcs, len);
    world.turn(CLIENT_HOST);
}

/// Nothing is left of any RPC once the last acks were asked for.
fn check_empty(world: &mut World<Role>) {
    world.run_until(world.now + Duration::secs(6));
    for host in &world.hosts {
        let homa = host.poller.endpoint();
        assert_eq!((homa.rpc_count(), homa.free_pages()), (0, PAGES as u32));
        assert!(homa.is_quiet());
    }
}

fn assert_at(at: Instant, from: Instant, to: Instant) {
    assert!(from <= at && at < to, "{at:?} is not in {from:?}..{to:?}");
}

fn ms(n: u64) -> Instant {
    Instant(0) + Duration::millis(n)
}

#[test]
fn a_closed_port_is_told_at_once() {
    let closed = Addr::new(SERVER.ip, PORT + 1);
    let mut world = world(vec![asks(closed, 1, 100), answers(Duration::ZERO)]);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::NotConnected]);
    assert_at(at, ms(0), ms(0) + ROUND);
    check_empty(&mut world);
}

/// Three tries wait 20, 40 and 80 ms: 140 ms in all.
#[test]
fn an_address_that_nobody_has_is_unreachable_after_three_arp_tries() {
    let nobody = Addr::new(Ip::v4(10, 0, 0, 77), PORT);
    let mut world = world(vec![asks(nobody, 1, 100), answers(Duration::ZERO)]);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::HostUnreachable]);
    assert_at(at, ms(140), ms(142));
    // The next RPC asks anew rather than remember the failure.
    ask_anew(&mut world, 1, 100);
    assert_eq!(run(&mut world).1, []);
    check_empty(&mut world);
}

#[test]
fn an_address_that_no_route_leads_to_is_unreachable_at_once() {
    let beyond = Addr::new(Ip::v4(192, 168, 0, 1), PORT);
    let mut world = world(vec![asks(beyond, 1, 100), answers(Duration::ZERO)]);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::HostUnreachable]);
    assert_at(at, ms(0), ms(1));
    check_empty(&mut world);
}

/// A host that answers ARP and no more. RESENDs go out after 5 silent ticks and then every 5; at
/// the hundredth the RPC is given up instead: 5, 10, ... 95 are 19.
#[test]
fn a_peer_that_is_silent_for_a_hundred_ticks_has_timed_out() {
    let mut world = world(vec![asks(SERVER, 1, 100), answers(Duration::ZERO)]);
    world.loses = |crossing| crossing.from == SERVER_HOST && is_homa(crossing);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::PeerTimedOut]);
    assert_at(at, ms(100), ms(102));
    let stats = *world.hosts[CLIENT_HOST].poller.endpoint().stats();
    assert_eq!((stats.resends_out, stats.timeouts), (19, 1));
    check_empty(&mut world);
}

/// Case C001: for lack of any byte, everything is asked for, once at tick 5.
#[test]
fn a_response_of_which_nothing_came_is_asked_for_after_five_ticks() {
    for (dark_ms, resends) in [(4, 1), (8, 2)] {
        let mut world = world(vec![asks(SERVER, 1, 3000), answers(Duration::ZERO)]);
        // NEED_ACKs would make it ask sooner, see the next test.
        world.loses = match dark_ms {
            4 => |crossing| says_nothing(crossing, ms(4)),
            _ => |crossing| says_nothing(crossing, ms(8)),
        };
        let (at, failed) = run(&mut world);
        assert_eq!(failed, []);
        let tick = ms(5 * resends);
        assert_at(at, tick, tick + Duration::millis(1) + ROUND);
        let stats = *world.hosts[CLIENT_HOST].poller.endpoint().stats();
        assert_eq!(stats.resends_out, resends, "dark for {dark_ms} ms");
        check_empty(&mut world);
    }
}

/// Case C002: a server that only ever asks for acks is no sign of life, but a reason to ask.
#[test]
fn a_server_that_asks_for_acks_is_asked_for_the_response_it_believes_delivered() {
    let mut world = world(vec![asks(SERVER, 1, 2000), answers(Duration::ZERO)]);
    world.loses =
        |crossing| crossing.from == SERVER_HOST && is_data(crossing) && crossing.now < ms(3);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    // NEED_ACKs come at ticks 2, 3, ...: sooner than the silence of 5.
    assert_at(at, ms(2), ms(5));
    check_empty(&mut world);

    world.loses = |crossing| crossing.from == SERVER_HOST && is_data(crossing);
    ask_anew(&mut world, 1, 2000);
    let start = world.now;
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::PeerTimedOut]);
    assert_at(
        at,
        start + Duration::millis(99),
        start + Duration::millis(102),
    );
}

/// Case C008: nothing of the request's first burst arrived.
#[test]
fn a_request_that_got_lost_whole_is_sent_again_and_runs_once() {
    let mut world = world(vec![asks(SERVER, 1, 20_000), answers(Duration::ZERO)]);
    world.loses = |crossing| is_data(crossing) && crossing.now < ms(1);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    assert_at(at, ms(5), ms(6) + ROUND);
    let stats = [CLIENT_HOST, SERVER_HOST].map(|host| *world.hosts[host].poller.endpoint().stats());
    assert_eq!((stats[0].resends_out, stats[1].unknowns_out), (1, 1));
    assert_eq!(world.hosts[SERVER_HOST].app.server().runs[&1], 1);
    check_empty(&mut world);
}

/// Case C007: BUSY keeps the client waiting, with ever longer pauses: 5, then 10, 20, 40, 40, ...
#[test]
fn a_busy_server_is_asked_ever_less_often() {
    let mut world = world(vec![asks(SERVER, 1, 100), answers(Duration::millis(500))]);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    assert_at(at, ms(500), ms(500) + ROUND);
    // At 5, 15, 35, 75, 115, 155, ... 475: three and then every 40.
    let stats = *world.hosts[CLIENT_HOST].poller.endpoint().stats();
    assert_eq!(stats.resends_out, 14);
    check_empty(&mut world);
}

#[test]
fn a_server_that_died_times_out_and_serves_again_once_it_is_back() {
    let mut world = world(vec![asks(SERVER, 3, 50_000), answers(Duration::millis(2))]);
    world.run_until(ms(1));
    world.loses = |crossing| crossing.from == SERVER_HOST || crossing.to == SERVER_HOST;
    let failed_at = loop {
        assert!(world.step());
        if !world.hosts[CLIENT_HOST].app.client().failed.is_empty() {
            break world.now;
        }
    };
    assert_at(failed_at, ms(100), ms(103));
    world.restart(SERVER_HOST, 77, answers(Duration::ZERO));
    world.loses = |_| false;
    let (_, failed) = run(&mut world);
    assert_eq!(failed, [Error::PeerTimedOut]);
    assert_eq!(world.hosts[CLIENT_HOST].app.client().finished, 2);
    check_empty(&mut world);
}

/// The RPC under way runs once more in the server's new life, as with the Linux module.
#[test]
fn an_rpc_survives_a_server_that_is_back_before_the_timeout() {
    let mut world = world(vec![
        asks(SERVER, 1, 50_000),
        answers(Duration::millis(200)),
    ]);
    world.run_until(ms(20));
    assert_eq!(world.hosts[SERVER_HOST].app.server().runs[&1], 1);
    world.restart(SERVER_HOST, 78, answers(Duration::ZERO));
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    assert_at(at, ms(20), ms(60));
    assert_eq!(world.hosts[SERVER_HOST].app.server().runs[&1], 1);
    check_empty(&mut world);
}

/// It answers that the port is closed, which is the truth.
#[test]
fn an_rpc_to_a_server_whose_application_is_not_back_yet_is_not_connected() {
    let mut world = world(vec![
        asks(SERVER, 1, 50_000),
        answers(Duration::millis(200)),
    ]);
    world.run_until(ms(20));
    let other_port = Role::Server(Echo::new(PORT + 1, Duration::ZERO));
    world.restart(SERVER_HOST, 79, other_port);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::NotConnected]);
    assert_at(at, ms(20), ms(60));
}

/// Whatever the client was in the midst of: a request half sent, one in service, a response on
/// its way, one not acknowledged.
#[test]
fn a_server_frees_what_a_dead_client_left_and_serves_others_meanwhile() {
    for die_at in [200, 400, 2_000, 10_300, 10_600, 12_000] {
        let other = Role::Client(Requester::new(RequesterParams {
            to: SERVER,
            rpcs: 100,
            outstanding: 2,
            sizes: Sizes::Fixed(5000),
            first_number: 1000,
            seed: 6,
        }));
        let service = Duration::millis(10);
        let mut world = world(vec![asks(SERVER, 1, 1_000_000), answers(service), other]);
        world.run_until(Instant(0) + Duration::micros(die_at));
        world.loses = |crossing| crossing.from == CLIENT_HOST || crossing.to == CLIENT_HOST;
        world.run_until(ms(700));
        let others = world.hosts[2].app.client();
        assert_eq!((others.finished, others.failed.len()), (100, 0), "{die_at}");
        world.run_until(ms(6_000));
        let server = world.hosts[SERVER_HOST].poller.endpoint();
        let left = (server.rpc_count(), server.free_pages());
        assert_eq!(left, (0, PAGES as u32), "died at {die_at} us");
        assert!(server.is_quiet());
    }
}

/// Decision 12. Each life draws where its ids begin, and is known by it.
#[test]
fn a_restarted_client_is_served_anew_and_its_old_calls_end() {
    let service = Duration::millis(30);
    let mut world = world(vec![asks(SERVER, 8, 5000), answers(service)]);
    world.run_until(ms(215)); // Seven are done, the eighth is in service.
    for life in 1..4 {
        world.restart(CLIENT_HOST, life, asks(SERVER, 8, 5000));
        let (_, failed) = run(&mut world);
        assert_eq!(failed, [], "life {life}");
        assert_eq!(world.hosts[CLIENT_HOST].app.client().finished, 8);
    }
    let server = world.hosts[SERVER_HOST].poller.endpoint();
    assert_eq!(server.stats().restarts, 3);
    // Eight in each of four lives, and none was taken for another.
    let runs: u32 = world.hosts[SERVER_HOST].app.server().runs.values().sum();
    assert_eq!(runs, 32);
    check_empty(&mut world);
}

/// A frame that cannot leave or arrive is no more than a lost one.
#[test]
fn after_a_second_without_link_the_next_rpc_works() {
    let mut world = world(vec![asks(SERVER, 1, 200_000), answers(Duration::ZERO)]);
    world.run_until(Instant(0) + Duration::micros(60));
    world.loses = |_| true;
    let (at, failed) = run(&mut world);
    assert_eq!(failed, [Error::PeerTimedOut]);
    assert_at(at, ms(99), ms(103));
    world.run_until(ms(1000));
    world.loses = |_| false;
    ask_anew(&mut world, 3, 200_000);
    let start = world.now;
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    assert_at(at, start, start + Duration::millis(20));
    check_empty(&mut world);
}

#[test]
fn a_gap_shorter_than_the_timeout_costs_no_rpc() {
    let mut world = world(vec![asks(SERVER, 50, 200_000), answers(Duration::ZERO)]);
    world.loses = |crossing| crossing.now > ms(2) && crossing.now < ms(90);
    let (at, failed) = run(&mut world);
    assert_eq!(failed, []);
    assert_at(at, ms(90), ms(130));
    check_empty(&mut world);
}

/// Either direction alone: the requests vanish, or all that the server says.
#[test]
fn a_way_that_is_cut_in_one_direction_times_out_and_heals() {
    let cuts: [fn(&Crossing) -> bool; 2] = [
        |crossing| crossing.to == SERVER_HOST && is_homa(crossing),
        |crossing| crossing.to == CLIENT_HOST && is_homa(crossing),
    ];
    for cut in cuts {
        let mut world = world(vec![asks(SERVER, 1, 20_000), answers(Duration::ZERO)]);
        world.loses = cut;
        let (at, failed) = run(&mut world);
        assert_eq!(failed, [Error::PeerTimedOut]);
        assert_at(at, ms(100), ms(102));
        world.loses = |_| false;
        ask_anew(&mut world, 1, 20_000);
        assert_eq!(run(&mut world).1, []);
        check_empty(&mut world);
    }
}

/// 300 ms are three timeouts, but who was away did not live them. Meanwhile 500 frames and more
/// came: 20 messages of 40,000 B are 29 packets each. Decision 36.
#[test]
fn who_was_away_for_300_ms_aborts_nothing() {
    for (away_host, outstanding) in [(CLIENT_HOST, 20), (SERVER_HOST, 20)] {
        let client = Role::Client(Requester::new(RequesterParams {
            to: SERVER,
            rpcs: 40,
            outstanding,
            sizes: Sizes::Fixed(40_000),
            first_number: 1,
            seed: 5,
        }));
        let params = Params {
            // Who stays must not give up meanwhile.
            timeout_ticks: if away_host == SERVER_HOST { 400 } else { 100 },
            ..Params::default()
        };
        let apps = vec![client, answers(Duration::micros(100))];
        let mut world = World::new(7, &params, PAGES, apps);
        world.run_until(Instant(0) + Duration::micros(200));
        world.freeze(away_host, ms(300));
        world.run_until(ms(299));
        let waiting = world.hosts[away_host].poller.device().waiting();
        assert!(waiting >= 500, "{waiting} frames wait");
        assert_eq!(run(&mut world).1, []);
        let stats = *world.hosts[CLIENT_HOST].poller.endpoint().stats();
        assert_eq!((stats.timeouts, stats.failures), (0, 0));
        check_empty(&mut world);
    }
}
