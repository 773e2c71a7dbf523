use super::*;

/// A datagram socket on each side, the server's bound.
fn pair(world: &mut World) -> (QDesc, QDesc) {
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    (near, far)
}

#[test]
fn an_echo_server_that_pushes_what_it_popped_answers_in_the_same_rpc() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    for len in [1, 64, 4096, 4097, 100_000, 1_000_000] {
        let sent = pattern(len);
        let sga = world.client.sga_of(&sent).unwrap();
        let push = world
            .client
            .pushto(near, &sga.view(), server_addr())
            .unwrap();
        world.client.sgafree(sga.handle.into()).unwrap();
        let request = world.server_pop(far);
        let from = request.peer.unwrap();
        assert_eq!(from.ip, ip(1));
        let echo = world.server.pushto(far, &request.view(), from).unwrap();
        world.server.sgafree(request.handle.into()).unwrap();
        let response = world.client_pop(near);
        assert_eq!(response.peer, Some(server_addr()));
        assert_eq!(bytes_of(&mut world.client, &response), sent);
        world.client.sgafree(response.handle.into()).unwrap();
        assert_eq!(world.client_done(push), OperationResult::Push);
        assert_eq!(world.server_done(echo), OperationResult::Push);
    }
    assert_eq!(world.client.poller.homa().stats().requests, 6);
    assert_eq!(world.server.poller.homa().stats().requests, 0);
    assert_eq!(world.server.stats().empty_replies, 0);
}

#[test]
fn a_reply_from_another_buffer_answers_the_only_open_request() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"question", server_addr());
    let request = world.server_pop(far);
    world.server.sgafree(request.handle.into()).unwrap();
    world.server_push(far, b"answer", request.peer.unwrap());
    let response = world.client_pop(near);
    assert_eq!(bytes_of(&mut world.client, &response), b"answer");
    assert_eq!(world.server.poller.homa().stats().requests, 0);
}

#[test]
fn a_second_push_to_the_same_peer_is_a_datagram_of_its_own() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"question", server_addr());
    let from = world.server_pop(far).peer.unwrap();
    for answer in [b"one", b"two"] {
        world.server_push(far, answer, from);
        let got = world.client_pop(near);
        assert_eq!(bytes_of(&mut world.client, &got), answer);
    }
    assert_eq!(world.server.poller.homa().stats().requests, 1);
}

/// The grace is 10 ms from the free, and the sender gets no datagram out of it.
#[test]
fn a_datagram_nobody_replies_to_gets_an_empty_reply_once_its_grace_is_over() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"one way", server_addr());
    let sga = world.server_pop(far);
    world.live(Duration::millis(30));
    assert_eq!(
        world.server.stats().empty_replies,
        0,
        "the buffer is still held"
    );
    world.server.sgafree(sga.handle.into()).unwrap();
    world.live(Duration::millis(9));
    assert_eq!(world.server.stats().empty_replies, 0);
    let pop = world.client.pop(near, None).unwrap();
    world.live(Duration::millis(3));
    assert_eq!(world.server.stats().empty_replies, 1);
    assert_eq!(
        world.client.wait(pop, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    assert_eq!(world.client.poller.homa().stats().responses, 1);
}

#[test]
fn a_pause_of_the_application_uses_up_no_grace() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"question", server_addr());
    let request = world.server_pop(far);
    world.server.sgafree(request.handle.into()).unwrap();
    world.pause(Duration::millis(300));
    world.turn();
    world.server_push(far, b"answer", request.peer.unwrap());
    let response = world.client_pop(near);
    assert_eq!(bytes_of(&mut world.client, &response), b"answer");
    assert_eq!(world.server.stats().empty_replies, 0);
}

#[test]
fn new_datagrams_beyond_the_limit_wait_their_turn_in_order_and_replies_do_not() {
    let params = Params {
        datagram_outstanding_max: 4,
        ..Params::default()
    };
    let mut world = World::with(params);
    let (near, far) = pair(&mut world);
    let sga = world.client.sga_of(b"0").unwrap();
    let pushes: Vec<_> = (0..10u8)
        .map(|n| {
            let sga = world.client.sga_of(&[n]).unwrap();
            world
                .client
                .pushto(near, &sga.view(), server_addr())
                .unwrap()
        })
        .collect();
    world.client.sgafree(sga.handle.into()).unwrap();
    assert_eq!(world.client.stats().pushes_held, 6);
    world.live(Duration::millis(1));
    assert_eq!(
        world.client.wait(pushes[4], Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    assert_eq!(world.client_done(pushes[3]), OperationResult::Push);
    for n in 0..10u8 {
        let request = world.server_pop(far);
        assert_eq!(bytes_of(&mut world.server, &request), [n]);
        // The server's own limit is not touched by replies.
        let reply = world
            .server
            .pushto(far, &request.view(), request.peer.unwrap())
            .unwrap();
        world.server.sgafree(request.handle.into()).unwrap();
        assert_eq!(world.server_done(reply), OperationResult::Push);
    }
    assert_eq!(world.client_done(pushes[9]), OperationResult::Push);
    assert_eq!(world.server.stats().pushes_held, 0);
}

#[test]
fn a_completed_push_leaves_the_bytes_to_the_application_even_if_it_must_be_sent_again() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"hello, so that both know the way", server_addr());
    world.server_pop(far);
    let sga = world.client.sga_of(&[1; 3000]).unwrap();
    world.losing.set(3);
    let push = world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    assert_eq!(world.client_done(push), OperationResult::Push);
    world
        .client
        .desk
        .sgas
        .fill(sga.handle.into(), &[2; 3000])
        .unwrap();
    let got = world.server_pop(far);
    assert_eq!(bytes_of(&mut world.server, &got), [1; 3000]);
    assert!(world.client.poller.homa().stats().retransmits_out > 0);
}

#[test]
fn a_long_push_completes_when_the_peer_has_it_and_not_before() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let sga = world.client.sga_of(&pattern(30_000)).unwrap();
    let push = world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    world.client.sgafree(sga.handle.into()).unwrap();
    let got = world.server_pop(far);
    assert_eq!(bytes_of(&mut world.server, &got), pattern(30_000));
    assert_eq!(
        world.client.wait(push, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    world.server.sgafree(got.handle.into()).unwrap();
    assert_eq!(world.client_done(push), OperationResult::Push);
    assert_eq!(world.client.desk.buffers.used_bytes(), 0);
}

#[test]
fn a_datagram_that_fails_after_its_push_completed_is_only_counted() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    world.client_push(near, b"anybody there?", server_addr());
    let pop = world.client.pop(near, None).unwrap();
    world.live(Duration::millis(150));
    assert_eq!(world.client.stats().datagrams_failed, 1);
    assert_eq!(
        world.client.wait(pop, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    let datagram = world
        .client
        .desk
        .queues
        .get_mut(near)
        .unwrap()
        .datagram()
        .unwrap();
    assert_eq!(datagram.outstanding, 0);
}

#[test]
fn a_long_push_to_a_closed_port_fails() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let sga = world.client.sga_of(&pattern(30_000)).unwrap();
    let push = world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    let refused = OperationResult::Failed(Error::NotConnected);
    assert_eq!(world.client_done(push), refused);
}

#[test]
fn a_relay_passes_on_what_it_popped_and_the_answer_back() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let (front, back) = (datagram(&mut world.server), far);
    let front_addr = Addr::new(ip(2), 8000);
    world.server.bind(front, front_addr).unwrap();
    let sent = pattern(20_000);
    let sga = world.client.sga_of(&sent).unwrap();
    world.client.pushto(near, &sga.view(), front_addr).unwrap();
    let request = world.server_pop(front);
    world
        .server
        .pushto(front, &request.view(), server_addr())
        .unwrap();
    let relayed = world.server_pop(back);
    assert_eq!(bytes_of(&mut world.server, &relayed), sent);
    world
        .server
        .pushto(back, &relayed.view(), relayed.peer.unwrap())
        .unwrap();
    let answer = world.server_pop(front);
    assert_eq!(answer.peer, Some(server_addr()));
    world
        .server
        .pushto(front, &answer.view(), request.peer.unwrap())
        .unwrap();
    let response = world.client_pop(near);
    assert_eq!(bytes_of(&mut world.client, &response), sent);
}

#[test]
fn a_pop_with_a_size_cuts_the_rest_off() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.client_push(near, b"0123456789", server_addr());
    let pop = world.server.pop(far, Some(4)).unwrap();
    let got = popped(world.server_done(pop));
    assert_eq!(bytes_of(&mut world.server, &got), b"0123");
    assert_eq!(world.server.pop(far, Some(0)), Err(Error::Invalid));
}

#[test]
fn a_push_without_an_address_fails_by_its_token() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let sga = world.client.sga_of(b"where to?").unwrap();
    let push = world.client.push(near, &sga.view()).unwrap();
    assert_eq!(
        world.client_done(push),
        OperationResult::Failed(Error::NoDestination)
    );
}

/// ARP is tried for 20 + 40 + 80 ms.
#[test]
fn a_push_to_a_host_that_is_not_there_never_completes_as_sent() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let sga = world.client.sga_of(b"hello?").unwrap();
    let push = world
        .client
        .pushto(near, &sga.view(), Addr::new(ip(77), 7))
        .unwrap();
    world.live(Duration::millis(100));
    assert_eq!(
        world.client.wait(push, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    let failed = OperationResult::Failed(Error::HostUnreachable);
    assert_eq!(world.client_done(push), failed);
}

#[test]
fn a_push_off_link_without_a_gateway_fails_at_once() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let sga = world.client.sga_of(b"hello?").unwrap();
    let far_away = Addr::new(Ip::v4(192, 0, 2, 1), 7);
    let push = world.client.pushto(near, &sga.view(), far_away).unwrap();
    let done = world.client.wait(push, Some(Duration::ZERO)).unwrap();
    assert_eq!(done.result, OperationResult::Failed(Error::HostUnreachable));
}

#[test]
fn no_datagram_goes_to_port_zero_or_to_no_address() {
    let mut world = World::new();
    let near = datagram(&mut world.client);
    let view = world.client.sga_of(b"x").unwrap().view();
    for to in [Addr::new(ip(2), 0), Addr::new(Ip::UNSPECIFIED_V4, 7)] {
        assert_eq!(world.client.pushto(near, &view, to), Err(Error::Invalid));
    }
}

/// The second request, 20 ms after the first, finds the server; there is no third.
#[test]
fn pushes_to_a_host_whose_first_arp_request_got_lost_all_arrive() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    world.live(Duration::millis(1)); // What each announces about itself at the start.
    world.losing.set(1);
    for n in 0..3 {
        let sga = world.client.sga_of(&[n]).unwrap();
        let pushed = world.client.pushto(near, &sga.view(), server_addr());
        world.client.sgafree(sga.handle.into()).unwrap();
        pushed.unwrap();
    }
    for n in 0..3 {
        let got = world.server_pop(far);
        assert_eq!(bytes_of(&mut world.server, &got), [n]);
    }
    assert_eq!(world.losing.get(), 0);
    assert_eq!(world.client.poller.homa().stats().retransmits_out, 0);
}
