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
