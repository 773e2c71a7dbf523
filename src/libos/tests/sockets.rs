use super::*;

#[test]
fn socket_takes_what_is_supported_and_nothing_else() {
    let os = &mut World::new().client;
    let (v4, v6, dgram, stream) = (
        libc::AF_INET,
        libc::AF_INET6,
        libc::SOCK_DGRAM,
        libc::SOCK_STREAM,
    );
    for good in [
        (v4, dgram, 0),
        (v4, dgram, 17),
        (v4, dgram, 146),
        (v4, stream, 0),
        (v4, stream, 6),
        (v6, dgram, 0xfd),
    ] {
        os.socket(good.0, good.1, good.2).unwrap();
    }
    for bad in [
        (libc::AF_UNIX, dgram, 0),
        (v6, dgram, 0),
        (v4, dgram, 6),
        (v6, stream, 0),
        (v4, stream, 17),
        (v4, stream, 146),
        (v4, dgram | libc::SOCK_NONBLOCK, 0),
        (v4, libc::SOCK_RAW, 0),
    ] {
        assert_eq!(
            os.socket(bad.0, bad.1, bad.2),
            Err(Error::NotSupported),
            "{bad:?}"
        );
    }
}

#[test]
fn descriptors_start_at_500_and_the_lowest_free_one_is_next() {
    let os = &mut World::new().client;
    let qds: Vec<_> = (0..3).map(|_| datagram(os)).collect();
    assert_eq!(qds, [QDesc(500), QDesc(501), QDesc(502)]);
    os.close(qds[1]).unwrap();
    assert_eq!(os.close(qds[1]), Err(Error::BadDescriptor));
    assert_eq!(datagram(os), QDesc(501));
    assert_eq!(os.pop(QDesc(499), None), Err(Error::BadDescriptor));
    assert_eq!(os.pop(QDesc(503), None), Err(Error::BadDescriptor));
}

#[test]
fn bind_tells_a_port_in_use_first() {
    let os = &mut World::new().client;
    let (one, two) = (datagram(os), datagram(os));
    let at = |host, port| Addr::new(ip(host), port);
    os.bind(one, at(1, 80)).unwrap();
    assert_eq!(os.bind(two, at(1, 80)), Err(Error::AddressInUse));
    assert_eq!(os.bind(two, at(9, 80)), Err(Error::AddressInUse));
    assert_eq!(os.bind(two, at(9, 81)), Err(Error::AddressNotAvailable));
    assert_eq!(os.bind(one, at(1, 80)), Err(Error::AddressInUse));
    assert_eq!(os.bind(one, at(1, 81)), Err(Error::Invalid));
    os.bind(two, Addr::new(Ip::UNSPECIFIED_V4, 81)).unwrap();
    assert_eq!(os.getsockname(one), Ok(at(1, 80)));
    assert_eq!(os.getsockname(two), Ok(Addr::new(Ip::UNSPECIFIED_V4, 81)));
    os.close(one).unwrap();
    let three = datagram(os);
    os.bind(three, at(1, 80)).unwrap();
}

#[test]
fn a_port_is_automatic_if_none_is_asked_for() {
    let mut world = World::new();
    let os = &mut world.client;
    let (one, two) = (datagram(os), datagram(os));
    assert_eq!(os.getsockname(one), Ok(Addr::new(Ip::UNSPECIFIED_V4, 0)));
    assert_eq!(os.pop(one, None), Err(Error::NoDestination));
    let sga = os.sga_of(b"x").unwrap();
    os.pushto(one, &sga.view(), server_addr()).unwrap();
    let name = os.getsockname(one).unwrap();
    assert!(name.port >= 32_768);
    os.pop(one, None).unwrap();
    os.bind(two, Addr::new(ip(1), 0)).unwrap();
    assert!(os.getsockname(two).unwrap().port >= 32_768);
    // Having pushed does not keep it from being bound.
    os.bind(one, Addr::new(ip(1), 90)).unwrap();
    assert_eq!(os.getsockname(one), Ok(Addr::new(ip(1), 90)));
}

#[test]
fn close_ends_each_pending_operation_once_as_canceled() {
    let mut world = World::new();
    let (near, far) = (native(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    world.client.bind(near, Addr::new(ip(1), 70)).unwrap();
    let sga = world.client.sga_of(b"x").unwrap();
    let pop = world.client.pop(near, None).unwrap();
    let (call, _) = world
        .client
        .call(near, &sga.view(), server_addr(), 0)
        .unwrap();
    world.client.close(near).unwrap();
    for qt in [pop, call] {
        let done = world.client.wait(qt, Some(Duration::ZERO)).unwrap();
        assert_eq!(
            (done.qd, done.result),
            (near, OperationResult::Failed(Error::Canceled))
        );
        assert_eq!(
            world.client.wait(qt, Some(Duration::ZERO)),
            Err(Error::Invalid)
        );
    }
    world.live(Duration::millis(200));
    assert!(world.client.desk.tokens.is_empty());
    assert_eq!(world.client.poller.homa().rpc_count(), 0);
}

#[test]
fn a_close_with_a_token_completes_and_ends_what_was_pending() {
    let mut world = World::new();
    let far = datagram(&mut world.server);
    world.server.bind(far, server_addr()).unwrap();
    let pop = world.server.pop(far, None).unwrap();
    let close = world.server.async_close(far).unwrap();
    let canceled = OperationResult::Failed(Error::Canceled);
    assert_eq!(world.server_done(pop), canceled);
    let done = world.server.wait(close, Some(Duration::ZERO)).unwrap();
    assert_eq!((done.qd, done.result), (far, OperationResult::Close));
    assert_eq!(world.server.async_close(far), Err(Error::BadDescriptor));
    assert_eq!(world.server.close(far), Err(Error::BadDescriptor));
}

/// Nobody turns the server meanwhile, so the second datagram stays unconfirmed for all of 20 ms.
#[test]
fn close_lingers_for_what_was_pushed_and_not_longer_than_it_should() {
    let mut world = World::new();
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    world.client_push(near, b"confirmed", server_addr());
    let got = world.server_pop(far);
    world.server.sgafree(got.handle.into()).unwrap();
    world.live(Duration::millis(15));
    let before = world.clock.0.get();
    world
        .client
        .set_linger(near, Some(Duration::millis(20)))
        .unwrap();
    assert_eq!(world.client.linger(near), Ok(Duration::millis(20)));
    let sga = world.client.sga_of(b"and one more").unwrap();
    let push = world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    world.client.close(near).unwrap();
    let lingered = world.clock.0.get() - before;
    assert!((20_000_000..21_000_000).contains(&lingered), "{lingered}");
    // It went out while close lingered.
    assert_eq!(world.client_done(push), OperationResult::Push);
    let got = world.server_pop(far);
    assert_eq!(bytes_of(&mut world.server, &got), b"and one more");
}

#[test]
fn close_of_an_idle_socket_does_not_wait() {
    let mut world = World::new();
    let qd = datagram(&mut world.client);
    world.client.bind(qd, Addr::new(ip(1), 70)).unwrap();
    let before = world.clock.0.get();
    world.client.close(qd).unwrap();
    assert_eq!(world.clock.0.get(), before);
}

#[test]
fn the_end_of_the_runtime_sends_what_was_pushed() {
    let mut world = World::new();
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    // Once they know each other's link addresses, one of them can send while it turns alone.
    world.client_push(near, b"hello", server_addr());
    world.server_pop(far);
    let sga = world.client.sga_of(b"last words").unwrap();
    world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    world
        .client
        .set_linger(near, Some(Duration::millis(1)))
        .unwrap();
    let World {
        client, mut server, ..
    } = world;
    let pop = server.pop(far, None).unwrap();
    drop(client);
    let done = server.wait(pop, Some(Duration::millis(5))).unwrap();
    let got = popped(done.result);
    assert_eq!(bytes_of(&mut server, &got), b"last words");
    server.set_linger(far, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_closed_descriptors_messages_can_still_be_freed() {
    let mut world = World::new();
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    world.client_push(near, b"x", server_addr());
    let got = world.server_pop(far);
    world.server.set_linger(far, Some(Duration::ZERO)).unwrap();
    world.server.close(far).unwrap();
    assert_eq!(datagram(&mut world.server), far);
    world.server.sgafree(got.handle.into()).unwrap();
    assert_eq!(world.server.sgafree(got.handle.into()), Err(Error::Invalid));
}

#[test]
fn sockets_are_bounded() {
    let os = &mut World::new().client;
    let sockets_max = os.sockets_max;
    let qds: Vec<_> = (0..sockets_max).map(|_| datagram(os)).collect();
    assert_eq!(qds.len(), sockets_max);
    assert_eq!(
        os.socket(libc::AF_INET, libc::SOCK_DGRAM, 0),
        Err(Error::Exhausted)
    );
}

/// Without the ack the server could not know that its long response arrived, and its token would
/// fail after 5 s.
#[test]
fn a_client_that_leaves_acknowledges_what_it_got() {
    let mut world = World::new();
    let (near, far) = (native(&mut world.client), native(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let sga = world.client.sga_of(&pattern(50_000)).unwrap();
    let (call, _) = world
        .client
        .call(near, &sga.view(), server_addr(), 0)
        .unwrap();
    let request = world.server_pop(far);
    let info = world.server.info(request.handle.into()).unwrap();
    let reply = world
        .server
        .reply(far, info.id, info.peer, &request.view(), true)
        .unwrap();
    popped(world.client_done(call));
    let World {
        client, mut server, ..
    } = world;
    drop(client);
    let done = server
        .wait(reply.unwrap(), Some(Duration::millis(1)))
        .unwrap();
    assert_eq!(done.result, OperationResult::Push);
}
