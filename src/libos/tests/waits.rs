use super::*;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// A bound datagram socket on the server, and `count` messages on their way to it.
fn with_messages(world: &mut World, count: u8) -> QDesc {
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    (0..count).for_each(|n| world.client_push(near, &[n], server_addr()));
    far
}

#[test]
fn a_token_is_waited_for_once_and_strangers_are_invalid() {
    let mut world = World::new();
    let far = with_messages(&mut world, 1);
    let pop = world.server.pop(far, None).unwrap();
    popped(world.server_done(pop));
    for qt in [pop, QToken(0), QToken(u64::MAX)] {
        assert_eq!(world.server.wait(qt, None), Err(Error::Invalid));
    }
}

#[test]
fn a_wait_that_times_out_leaves_the_token_valid() {
    let mut world = World::new();
    let far = with_messages(&mut world, 0);
    let pop = world.server.pop(far, None).unwrap();
    let before = world.clock.0.get();
    let waited = world.server.wait(pop, Some(Duration::millis(3)));
    assert_eq!(waited, Err(Error::WaitTimedOut));
    // It began with the first turn, 1 us in, and each turn takes 1 us.
    assert_eq!(world.clock.0.get() - before, 3_001_000);
    let near = datagram(&mut world.client);
    world.client_push(near, b"late", server_addr());
    popped(world.server_done(pop));
}

#[test]
fn next_n_gives_what_is_there_oldest_first_and_stops_when_full() {
    let mut world = World::new();
    let far = with_messages(&mut world, 4);
    let pops: Vec<_> = (0..5)
        .map(|_| world.server.pop(far, None).unwrap())
        .collect();
    world.live(Duration::millis(1));
    let mut got = Vec::new();
    let accept = |result: QResult| {
        got.push(result.qt);
        got.len() < 3
    };
    assert_eq!(world.server.wait_next_n(accept, NOW), Ok(()));
    assert_eq!(got, pops[..3]);
    let mut got = Vec::new();
    let accept = |result: QResult| {
        got.push(result.qt);
        true
    };
    assert_eq!(
        world.server.wait_next_n(accept, NOW),
        Err(Error::WaitTimedOut)
    );
    assert_eq!(got, [pops[3]]);
    assert_eq!(world.server.wait(pops[3], NOW), Err(Error::Invalid));
    assert_eq!(world.server.wait(pops[4], NOW), Err(Error::WaitTimedOut));
}

#[test]
fn any_of_a_thousand_finds_the_one_that_is_ready() {
    let mut world = World::new();
    let mut qds = Vec::new();
    for port in 1..=1000 {
        let qd = datagram(&mut world.server);
        world.server.bind(qd, Addr::new(ip(2), port)).unwrap();
        qds.push(qd);
    }
    let mut qts: Vec<_> = qds
        .iter()
        .map(|&qd| world.server.pop(qd, None).unwrap())
        .collect();
    let near = datagram(&mut world.client);
    for place in [73, 999, 0, 500, 73] {
        world.client_push(near, b"x", Addr::new(ip(2), place as u16 + 1));
        let (found, done) = world
            .server
            .wait_any(&qts, Some(Duration::millis(1)))
            .unwrap();
        assert_eq!((found, done.qt, done.qd), (place, qts[place], qds[place]));
        world
            .server
            .sgafree(popped(done.result).handle.into())
            .unwrap();
        qts[place] = world.server.pop(qds[place], None).unwrap();
    }
    assert_eq!(world.server.wait_any(&qts, NOW), Err(Error::WaitTimedOut));
    qts[5] = QToken(0);
    assert_eq!(
        world.server.wait_any(&qts, Some(Duration::millis(1))),
        Err(Error::Invalid)
    );
    assert_eq!(
        world.server.wait_any(&[], Some(Duration(10))),
        Err(Error::WaitTimedOut)
    );
}

#[test]
fn a_wake_interrupts_the_wait_and_loses_nothing() {
    let mut world = World::new();
    let far = with_messages(&mut world, 1);
    let pop = world.server.pop(far, None).unwrap();
    let waker = world.server.waker();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert_eq!(world.server.wait(pop, None), Err(Error::Interrupted));
    popped(world.server_done(pop));
}

#[test]
fn the_loop_is_turned_also_while_results_are_always_ready() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let sga = world.client.sga_of(b"x").unwrap();
    let before = world.clock.0.get();
    for _ in 0..330 {
        let qt = world.client.push(near, &sga.view()).unwrap();
        world.client.wait(qt, None).unwrap();
    }
    assert_eq!(world.clock.0.get() - before, 10_000);
}

#[test]
fn tokens_are_bounded_and_come_back() {
    let mut world = World::with(Params {
        tokens_max: 3,
        ..Params::default()
    });
    let far = with_messages(&mut world, 1);
    let pops: Vec<_> = (0..3)
        .map(|_| world.server.pop(far, None).unwrap())
        .collect();
    assert_eq!(world.server.pop(far, None), Err(Error::Exhausted));
    let sga = world.server.sga_of(b"x").unwrap();
    let pushed = world.server.pushto(far, &sga.view(), Addr::new(ip(1), 9));
    assert_eq!(pushed, Err(Error::Exhausted));
    popped(world.server_done(pops[0]));
    world.server.pop(far, None).unwrap();
}

/// Results are kept for whoever asks, in whatever order.
#[test]
fn a_result_nobody_waited_for_is_there_later() {
    let mut world = World::new();
    let far = with_messages(&mut world, 3);
    let pops: Vec<_> = (0..3)
        .map(|_| world.server.pop(far, None).unwrap())
        .collect();
    world.live(Duration::millis(50));
    for n in [2, 0, 1] {
        let got = popped(world.server.wait(pops[n], NOW).unwrap().result);
        assert_eq!(bytes_of(&mut world.server, &got), [n as u8]);
    }
}

#[test]
fn what_is_done_is_given_also_without_time_to_wait() {
    let mut world = World::new();
    let far = with_messages(&mut world, 3);
    let pops: Vec<_> = (0..3)
        .map(|_| world.server.pop(far, None).unwrap())
        .collect();
    world.live(Duration::millis(1));
    popped(world.server.wait(pops[2], NOW).unwrap().result);
    let (place, _) = world.server.wait_any(&pops[..2], NOW).unwrap();
    assert_eq!(place, 0);
    assert_eq!(world.server.wait_next_n(|_| false, NOW), Ok(()));
}

#[test]
fn a_bad_token_among_good_ones_uses_up_none_of_them() {
    let mut world = World::new();
    let far = with_messages(&mut world, 0);
    let good: Vec<_> = (0..3)
        .map(|_| world.server.pop(far, None).unwrap())
        .collect();
    for place in 0..=3 {
        let mut qts = good.clone();
        qts.insert(place, QToken(12_345));
        assert_eq!(world.server.wait_any(&qts, NOW), Err(Error::Invalid));
    }
    let near = datagram(&mut world.client);
    for qt in good {
        world.client_push(near, b"x", server_addr());
        popped(world.server_done(qt));
    }
}

/// The noisy socket, first in the array, always has a message more; the others get one each.
#[test]
fn a_noisy_socket_does_not_keep_quiet_ones_waiting() {
    const QUIET: usize = 9;
    let mut world = World::new();
    let at = |place: usize| Addr::new(ip(2), 100 + place as u16);
    let qds: Vec<_> = (0..=QUIET)
        .map(|place| {
            let qd = datagram(&mut world.server);
            world.server.bind(qd, at(place)).unwrap();
            qd
        })
        .collect();
    let mut qts: Vec<_> = qds
        .iter()
        .map(|&qd| world.server.pop(qd, None).unwrap())
        .collect();
    let near = datagram(&mut world.client);
    (0..300).for_each(|_| world.client_push(near, b"noise", at(0)));
    (1..=QUIET).for_each(|place| world.client_push(near, b"quiet", at(place)));
    world.live(Duration::millis(1));
    // All have completed a pop, the noisy one first and once, since it has one pop at a time.
    let mut order = Vec::new();
    while order.len() < 2 * QUIET {
        let (place, done) = world.server.wait_any(&qts, NOW).unwrap();
        let sga = popped(done.result);
        world.server.sgafree(sga.handle.into()).unwrap();
        qts[place] = world.server.pop(qds[place], None).unwrap();
        order.push(place);
    }
    let expected: Vec<_> = (0..=QUIET).collect();
    assert_eq!(order[..=QUIET], expected);
}
