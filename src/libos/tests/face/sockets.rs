//! Sockets, messages and their ends.

use super::*;

/// Rule AP-05.
#[test]
fn a_request_is_answered_and_the_cookie_comes_back() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let id = send(&mut world.client, client, b"how are you", 77).unwrap();
    assert_eq!(id % 2, 0);
    let request = world.server_receive(server);
    assert_eq!((request.id, request.cookie), (id | 1, 0));
    assert_eq!(request.peer.ip, ip(1));
    assert_eq!(consume(&mut world.server, server, &request), b"how are you");
    reply(&mut world.server, server, &request, b"fine").unwrap();
    let response = world.client_receive(client, &ANY_RESPONSE);
    assert_eq!((response.id, response.cookie), (id, 77));
    assert_eq!(response.peer, server_addr());
    assert_eq!(consume(&mut world.client, client, &response), b"fine");
    // The RPC is gone: nobody can wait for it any more.
    assert_eq!(
        world.client.homa_receive(client, &by_id(id)),
        Err(Error::Invalid)
    );
    world.live(Duration::millis(200));
    assert!(rpcs(&mut world.client, client).is_empty());
    assert!(rpcs(&mut world.server, server).is_empty());
}

#[test]
fn responses_come_in_any_order_and_each_can_be_waited_for() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let ids: Vec<_> = (0..10_u8)
        .map(|n| send(&mut world.client, client, &[n], n.into()).unwrap())
        .collect();
    let requests: Vec<_> = (0..10).map(|_| world.server_receive(server)).collect();
    for request in requests.iter().rev() {
        let bytes = consume(&mut world.server, server, request);
        reply(&mut world.server, server, request, &bytes).unwrap();
    }
    let third = world.client_receive(client, &by_id(ids[3]));
    assert_eq!((third.id, third.cookie), (ids[3], 3));
    // Any response: in the order in which they came, from the last request's on.
    for n in [9, 8, 7, 6, 5, 4, 2, 1, 0_u8] {
        let next = world.client_receive(client, &ANY_RESPONSE);
        assert_eq!(next.cookie, u64::from(n));
        assert_eq!(consume(&mut world.client, client, &next), [n]);
    }
    consume(&mut world.client, client, &third);
    let info = world.client.homa_info(client).unwrap();
    assert_eq!((info.free_bytes, info.region_bytes), (64 << 16, 64 << 16));
}

/// One socket asks and serves: flags choose, and with both the older comes first.
#[test]
fn flags_tell_requests_from_responses() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    world
        .client
        .homa_bind(client, Addr::new(ip(1), 55), V4)
        .unwrap();
    let id = send(&mut world.client, client, b"a", 5).unwrap();
    let request = world.server_receive(server);
    let fill = |out: &mut [u8]| out.fill(b'b');
    let back = Addr::new(ip(1), 55);
    world
        .server
        .homa_send(server, (back, V4), 1, fill, 6)
        .unwrap();
    world.live(Duration::millis(1));
    reply(&mut world.server, server, &request, b"c").unwrap();
    world.live(Duration::millis(1));
    let any = Wanted {
        responses: true,
        ..ANY_REQUEST
    };
    assert_eq!(world.client.homa_receive(client, &any).unwrap().cookie, 0);
    let response = world.client.homa_receive(client, &any).unwrap();
    assert_eq!((response.id, response.cookie), (id, 5));
    assert_eq!(
        world.client.homa_receive(client, &any),
        Err(Error::Exhausted)
    );
}

/// Rule AP-08: a failed call comes with its errno and its peer.
#[test]
fn a_failed_call_is_received_with_its_error_peer_and_cookie() {
    let mut world = World::new();
    let client = homa(&mut world.client, SMALLEST);
    let id = send(&mut world.client, client, b"anybody", 9).unwrap();
    let failed = world.client_receive(client, &by_id(id));
    let expected = Received {
        id,
        cookie: 9,
        peer: server_addr(),
        result: Err(Error::NotConnected),
    };
    assert_eq!(failed, expected);
}

/// A socket takes requests once it is bound or made a server, and not after that is taken back.
#[test]
fn only_a_server_gets_requests() {
    let mut world = World::new();
    let client = homa(&mut world.client, SMALLEST);
    let server = homa(&mut world.server, SMALLEST);
    let port = world.server.getsockname(server).unwrap().port;
    assert!(port >= 0x8000);
    let to = Addr::new(ip(2), port);
    let ask = |world: &mut World| {
        let fill = |out: &mut [u8]| out.fill(1);
        world
            .client
            .homa_send(client, (to, V4), 1, fill, 0)
            .unwrap();
        world.live(Duration::millis(2));
        world.server.homa_receive(server, &ANY_REQUEST).is_ok()
    };
    assert!(!ask(&mut world));
    world.server.homa_set_server(server, true).unwrap();
    assert!(ask(&mut world) && world.server.homa_is_server(server).unwrap());
    world.server.homa_set_server(server, false).unwrap();
    assert!(!ask(&mut world));
}

/// Rule SK-02.
#[test]
fn bind_takes_server_ports_and_a_failed_one_changes_nothing() {
    let mut world = World::new();
    let os = &mut world.server;
    let (one, two) = (homa(os, SMALLEST), homa(os, SMALLEST));
    let automatic = os.getsockname(one).unwrap().port;
    let at = |port| Addr::new(ip(2), port);
    assert_eq!(os.homa_bind(one, at(0), V4), Ok(()));
    assert_eq!(os.homa_is_server(one), Ok(false));
    assert_eq!(os.homa_bind(one, at(0x8000), V4), Err(Error::Invalid));
    assert!(last_error(os, one).contains("32768"));
    let stranger = Addr::new(ip(9), 80);
    assert_eq!(
        os.homa_bind(one, stranger, V4),
        Err(Error::AddressNotAvailable)
    );
    let family = libc::AF_INET6;
    assert_eq!(
        os.homa_bind(one, at(80), family),
        Err(Error::FamilyNotSupported)
    );
    assert_eq!(os.getsockname(one).unwrap().port, automatic);
    for port in [80, 80, 0x7fff] {
        assert_eq!(os.homa_bind(one, at(port), V4), Ok(()));
    }
    // The number that was left is free for another, the one that is held is not.
    assert_eq!(os.homa_bind(two, at(80), V4), Ok(()));
    assert_eq!(os.homa_bind(two, at(0x7fff), V4), Err(Error::AddressInUse));
    assert_eq!(os.getsockname(two).unwrap().port, 80);
    os.homa_shutdown(one).unwrap();
    assert_eq!(os.homa_bind(one, at(81), V4), Err(Error::Shutdown));
}

/// Rule SK-03.
#[test]
fn shutdown_ends_everything_and_twice_is_once() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let id = send(&mut world.client, client, b"a", 5).unwrap();
    world.live(Duration::millis(1));
    for _ in 0..2 {
        assert_eq!(world.client.homa_shutdown(client), Ok(()));
        for wanted in [ANY_REQUEST, ANY_RESPONSE, by_id(id)] {
            let received = world.client.homa_receive(client, &wanted);
            assert_eq!(received, Err(Error::Shutdown));
        }
        assert_eq!(
            send(&mut world.client, client, b"a", 5),
            Err(Error::Shutdown)
        );
        let aborted = world.client.homa_abort(client, 0, 0);
        assert_eq!(aborted, Err(Error::Shutdown));
        assert_eq!(
            world.client.homa_give_back(client, &[0]),
            Err(Error::Shutdown)
        );
    }
    let mut polled = [polled(client, libc::POLLIN)];
    assert_eq!(world.client.homa_poll(&mut polled, None), Ok(1));
    assert_eq!(polled[0].revents, libc::POLLIN | libc::POLLHUP);
    assert_eq!(world.client.poller.homa().rpc_count(), 0);
    assert_eq!(world.client.homa_close(client), Ok(()));
    assert_eq!(world.client.homa_close(client), Err(Error::BadDescriptor));
    // Its request is still the server's to answer, into the void.
    let request = world.server_receive(server);
    reply(&mut world.server, server, &request, b"late").unwrap();
}

/// Rule SK-04.
#[test]
fn without_send_memory_a_send_waits_or_says_so() {
    let params = Params {
        send_bytes: 2 << 20,
        ..Params::default()
    };
    let mut world = World::with(params);
    let client = homa(&mut world.client, SMALLEST);
    let os = &mut world.client;
    let waiting = [polled(client, libc::POLLOUT)];
    assert_eq!(
        os.homa_poll(&mut waiting.clone(), Some(Duration::ZERO)),
        Ok(1)
    );
    os.homa_set_timeout(client, Side::Send, Some(Duration::millis(3)))
        .unwrap();
    let long = vec![1; 1_000_000];
    let ids = [0, 1].map(|cookie| send(os, client, &long, cookie).unwrap());
    assert_eq!(
        os.homa_poll(&mut waiting.clone(), Some(Duration::ZERO)),
        Ok(0)
    );
    let before = world.clock.0.get();
    assert_eq!(send(os, client, &long, 2), Err(Error::Exhausted));
    assert!(world.clock.0.get() - before >= 3_000_000, "it waited");
    os.homa_set_timeout(client, Side::Send, Some(Duration::ZERO))
        .unwrap();
    assert_eq!(send(os, client, &long, 2), Err(Error::Exhausted));
    assert_eq!(rpcs(os, client).len(), 2, "a failed send leaves nothing");
    // Nobody is there, so in 100 ms the first two fail, and the third finds room meanwhile.
    os.homa_set_timeout(client, Side::Send, None).unwrap();
    let waker = os.waker();
    waker.wake();
    assert_eq!(send(os, client, &long, 2), Err(Error::Interrupted));
    let mut polled = waiting;
    world.server.turn();
    assert_eq!(world.client.homa_poll(&mut polled, None), Ok(1));
    assert!(send(&mut world.client, client, &long, 2).unwrap() > ids[1]);
}

/// Rule AP-01, AP-03: nothing is made of a send that is refused.
#[test]
fn bad_sends_and_replies_leave_no_trace() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let os = &mut world.client;
    let mut never = |_: &mut [u8]| panic!("nothing to fill");
    for (to, family, len, error) in [
        (server_addr(), libc::AF_INET6, 1, Error::FamilyNotSupported),
        (Addr::new(ip(2), 0), V4, 1, Error::Invalid),
        (Addr::new(Ip::UNSPECIFIED_V4, 7), V4, 1, Error::Invalid),
        (server_addr(), V4, 0, Error::Invalid),
        (server_addr(), V4, 1_000_001, Error::Invalid),
    ] {
        let sent = os.homa_send(client, (to, family), len, &mut never, 0);
        assert_eq!(sent, Err(error), "{to:?} {len}");
        assert!(!last_error(os, client).is_empty());
    }
    assert!(rpcs(os, client).is_empty());
    // An even id, an unknown one, too long, and once more than once.
    let id = send(os, client, b"a", 1).unwrap();
    let request = world.server_receive(server);
    let os = &mut world.server;
    assert_eq!(
        os.homa_reply(server, request.peer, id, 1, &mut never),
        Err(Error::Invalid)
    );
    assert_eq!(
        os.homa_reply(server, request.peer, 99, 1, &mut never),
        Ok(())
    );
    let long = os.homa_reply(server, request.peer, request.id, 1_000_001, &mut never);
    assert_eq!(long, Err(Error::Invalid));
    assert_eq!(reply(os, server, &request, b"b"), Ok(()));
    assert_eq!(reply(os, server, &request, b"b"), Err(Error::Invalid));
    assert!(last_error(os, server).contains("answered before"));
    world.client_receive(client, &by_id(id));
}

/// Rule RP-22.
#[test]
fn abort_ends_calls_and_leaves_requests_alone() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let mut ids: Vec<_> = (0..4)
        .map(|n| send(&mut world.client, client, &[n; 9], n.into()).unwrap())
        .collect();
    let request = world.server_receive(server);
    assert_eq!(request.id, ids[0] | 1);
    reply(&mut world.server, server, &request, b"done").unwrap();
    world.live(Duration::millis(2));
    let os = &mut world.client;
    assert_eq!(os.homa_abort(client, 2, 5), Err(Error::Invalid));
    assert_eq!(os.homa_abort(client, 0, -5), Err(Error::Invalid));
    // Without an error: forgotten.
    assert_eq!(os.homa_abort(client, ids[1], 0), Ok(()));
    assert_eq!(os.homa_receive(client, &by_id(ids[1])), Err(Error::Invalid));
    // All of them, the one whose response is here, too.
    assert_eq!(os.homa_abort(client, 0, libc::EPIPE), Ok(()));
    ids.remove(1);
    for id in ids {
        let failed = world.client_receive(client, &by_id(id));
        assert_eq!(failed.result, Err(Error::Aborted(libc::EPIPE)));
        assert_eq!(failed.peer, server_addr());
    }
    let info = world.client.homa_info(client).unwrap();
    assert_eq!((info.rpcs.len(), info.free_bytes), (0, 64 << 16));
    // A server's requests are no calls of its: they stay.
    assert_eq!(world.server.homa_abort(server, 0, libc::EPIPE), Ok(()));
    world.server_receive(server);
}

/// Rule RP-51.
#[test]
fn info_tells_each_rpc_and_the_last_error() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let id = send(&mut world.client, client, &[1; 100_000], 8).unwrap();
    let rpc = rpcs(&mut world.client, client)[0];
    assert_eq!((rpc.id, rpc.cookie, rpc.peer), (id, 8, server_addr()));
    let out = rpc.state;
    // Unscheduled bytes may go at once, the rest with grants.
    assert_eq!((out.tx_len, out.tx_granted), (100_000, 40_000));
    assert!(out.tx_sent <= 40_000 && !rpc.is_ready);
    let request = world.server_receive(server);
    assert!(rpcs(&mut world.server, server)[0].state.is_in_service);
    reply(&mut world.server, server, &request, &[2; 3000]).unwrap();
    world.live(Duration::millis(2));
    let rpc = rpcs(&mut world.client, client)[0];
    assert!(rpc.is_ready && rpc.error == 0);
    assert_eq!((rpc.state.rx_len, rpc.state.rx_received), (3000, 3000));
    send(&mut world.client, client, &[1], 9).unwrap();
    world.live(Duration::millis(2));
    let rpc = rpcs(&mut world.server, server);
    assert!(rpc.iter().any(|rpc| rpc.is_ready && rpc.state.is_requested));
    let info = world.server.homa_info(server).unwrap();
    assert_eq!(
        (info.port, info.family, info.last_error.as_str()),
        (7000, V4, "")
    );
}

/// Rule AP-09, and the two faces in one loop.
#[test]
fn poll_tells_what_is_ready_of_both_faces() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let demi = datagram(&mut world.server);
    world.server.bind(demi, Addr::new(ip(2), 9)).unwrap();
    let both = libc::POLLIN | libc::POLLOUT;
    let mut fds = [
        polled(server, both),
        polled(demi, libc::POLLIN),
        polled(QDesc(400), both),
    ];
    fds[2].fd = -1;
    let look = Some(Duration::ZERO);
    assert_eq!(world.server.homa_poll(&mut fds, look), Ok(1));
    assert_eq!(fds.map(|one| one.revents), [libc::POLLOUT, 0, 0]);
    send(&mut world.client, client, b"a", 1).unwrap();
    let sender = datagram(&mut world.client);
    world.client_push(sender, b"b", Addr::new(ip(2), 9));
    world.live(Duration::millis(1));
    assert_eq!(world.server.homa_poll(&mut fds, look), Ok(2));
    assert_eq!(fds.map(|one| one.revents), [both, libc::POLLIN, 0]);
    // A pop takes what came; its result is what can be waited for then.
    let qt = world.server.pop(demi, None).unwrap();
    assert_eq!(world.server.homa_poll(&mut fds, look), Ok(2));
    popped(world.server.wait(qt, look).unwrap().result);
    world.server_receive(server);
    assert_eq!(world.server.homa_poll(&mut fds, look), Ok(1));
    fds[2].fd = 4711;
    fds[0].events = 0;
    assert_eq!(world.server.homa_poll(&mut fds, look), Ok(1));
    assert_eq!(fds.map(|one| one.revents), [0, 0, libc::POLLNVAL]);
    fds[2].fd = -1;
    assert_eq!(
        world.server.homa_poll(&mut fds, Some(Duration::millis(2))),
        Ok(0)
    );
    world.server.waker().wake();
    assert_eq!(
        world.server.homa_poll(&mut fds, None),
        Err(Error::Interrupted)
    );
}

/// Rules DK-07, DK-08, for what is there so far: no queue has connections.
#[test]
fn no_queue_listens_accepts_or_connects() {
    let mut world = World::new();
    let os = &mut world.server;
    let bound = datagram(os);
    os.bind(bound, server_addr()).unwrap();
    for qd in [homa(os, SMALLEST), datagram(os), native(os), bound] {
        for _ in 0..2 {
            assert_eq!(os.listen(qd, 8), Err(Error::NotSupported));
            assert_eq!(os.listen(qd, i32::MAX), Err(Error::NotSupported));
            assert_eq!(os.listen(qd, 0), Err(Error::Invalid));
            assert_eq!(os.accept(qd), Err(Error::Invalid));
            assert_eq!(os.connect(qd, server_addr()), Err(Error::NotSupported));
        }
        os.close(qd).unwrap();
        assert_eq!(os.listen(qd, 8), Err(Error::BadDescriptor));
        assert_eq!(os.accept(qd), Err(Error::BadDescriptor));
        assert_eq!(os.connect(qd, server_addr()), Err(Error::BadDescriptor));
    }
}

#[test]
fn calls_of_one_face_refuse_descriptors_of_the_other() {
    let mut world = World::new();
    let os = &mut world.client;
    let (ours, theirs) = (homa(os, SMALLEST), native(os));
    let error = Err(Error::NotSupported);
    assert_eq!(os.pop(ours, None).map(|_| ()), error);
    assert_eq!(os.bind(ours, Addr::new(ip(1), 5)), error);
    assert_eq!(os.homa_bind(theirs, Addr::new(ip(1), 5), V4), error);
    assert_eq!(send(os, theirs, b"a", 0).map(|_| ()), error);
    assert_eq!(os.homa_shutdown(theirs), error);
    assert_eq!(os.homa_close(theirs), error);
    let socket = |os: &mut Os, domain, kind, protocol| os.homa_socket(domain, kind, protocol);
    assert_eq!(
        socket(os, libc::AF_UNIX, libc::SOCK_DGRAM, 146),
        Err(Error::FamilyNotSupported)
    );
    assert_eq!(
        socket(os, V4, libc::SOCK_STREAM, 146),
        Err(Error::NotSupported)
    );
    assert_eq!(
        socket(os, V4, libc::SOCK_DGRAM, 17),
        Err(Error::ProtocolUnsupported)
    );
    assert!(socket(os, V4, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 146).is_ok());
}
