use super::*;

/// A native socket on each side, the server's bound.
fn pair(world: &mut World) -> (QDesc, QDesc) {
    let (near, far) = (native(&mut world.client), native(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    (near, far)
}

fn call(world: &mut World, near: QDesc, bytes: &[u8], cookie: u64) -> (QToken, u64) {
    let sga = world.client.sga_of(bytes).unwrap();
    let called = world
        .client
        .call(near, &sga.view(), server_addr(), cookie)
        .unwrap();
    world.client.sgafree(sga.handle.into()).unwrap();
    called
}

fn reply(world: &mut World, far: QDesc, request: &Sga, bytes: &[u8]) -> Result<(), Error> {
    let info = world.server.info(request.handle.into()).unwrap();
    let sga = world.server.sga_of(bytes).unwrap();
    let replied = world
        .server
        .reply(far, info.id, info.peer, &sga.view(), false);
    world.server.sgafree(sga.handle.into()).unwrap();
    replied.map(|qt| assert_eq!(qt, None))
}

#[test]
fn a_call_brings_the_response_with_its_id_and_cookie() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    for len in [1, 100, 5_000, 1_000_000] {
        let (qt, id) = call(&mut world, near, &pattern(len), 77);
        let request = world.server_pop(far);
        assert_eq!(bytes_of(&mut world.server, &request), pattern(len));
        let asked = world.server.info(request.handle.into()).unwrap();
        assert_eq!(
            (asked.kind, asked.id, asked.cookie),
            (MessageKind::Request, id | 1, 0)
        );
        reply(&mut world, far, &request, &pattern(len)).unwrap();
        world.server.sgafree(request.handle.into()).unwrap();
        let response = popped(world.client_done(qt));
        assert_eq!(bytes_of(&mut world.client, &response), pattern(len));
        let got = world.client.info(response.handle.into()).unwrap();
        assert_eq!(
            (got.kind, got.id, got.cookie),
            (MessageKind::Response, id, 77)
        );
        assert_eq!(
            (got.len as usize, got.peer, got.error),
            (len, server_addr(), 0)
        );
        world.client.sgafree(response.handle.into()).unwrap();
    }
    world.live(Duration::millis(20));
    assert_eq!(world.client.desk.buffers.used_bytes(), 0);
    assert_eq!(world.server.desk.buffers.used_bytes(), 0);
}

#[test]
fn a_reply_with_a_token_completes_and_a_second_one_is_invalid() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let (call, _) = call(&mut world, near, b"question", 0);
    let request = world.server_pop(far);
    let info = world.server.info(request.handle.into()).unwrap();
    let qt = world
        .server
        .reply(far, info.id, info.peer, &request.view(), true)
        .unwrap()
        .unwrap();
    let again = world
        .server
        .reply(far, info.id, info.peer, &request.view(), true);
    assert_eq!(again, Err(Error::Invalid));
    assert_eq!(world.server_done(qt), OperationResult::Push);
    popped(world.client_done(call));
}

#[test]
fn a_reply_to_a_client_that_went_away_succeeds() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    call(&mut world, near, b"question", 0);
    let request = world.server_pop(far);
    let sga = world.server.sga_of(b"answer").unwrap();
    let nobody = Addr::new(ip(1), 9);
    let qt = world
        .server
        .reply(far, 0x1235, nobody, &sga.view(), true)
        .unwrap()
        .unwrap();
    assert_eq!(world.server_done(qt), OperationResult::Push);
    // An even id is a client's own: nothing to reply to.
    assert_eq!(
        world.server.reply(far, 0x1234, nobody, &sga.view(), false),
        Err(Error::Invalid)
    );
    reply(&mut world, far, &request, b"answer").unwrap();
}

#[test]
fn an_unbound_native_socket_is_a_client_only() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    assert_eq!(world.client.pop(near, None), Err(Error::NoDestination));
    call(&mut world, near, b"question", 0);
    let request = world.server_pop(far);
    // The server calls back the port the call came from: nobody serves there.
    let sga = world.server.sga_of(b"and you?").unwrap();
    let back = request.peer.unwrap();
    let (qt, _) = world.server.call(far, &sga.view(), back, 0).unwrap();
    let refused = OperationResult::Failed(Error::NotConnected);
    assert_eq!(world.server_done(qt), refused);
}

#[test]
fn an_aborted_call_fails_with_the_errno_given_or_as_canceled() {
    let mut world = World::new();
    let (near, _) = pair(&mut world);
    let other = native(&mut world.client);
    let (one, id) = call(&mut world, near, b"one", 0);
    let (two, _) = call(&mut world, near, b"two", 0);
    let (three, _) = call(&mut world, other, b"three", 0);
    world.client.abort(near, id, 71).unwrap();
    assert_eq!(
        world.client_done(one),
        OperationResult::Failed(Error::Aborted(71))
    );
    assert_eq!(world.client.abort(near, id, 71), Err(Error::Invalid));
    world.client.abort(near, 0, 0).unwrap();
    assert_eq!(
        world.client_done(two),
        OperationResult::Failed(Error::Canceled)
    );
    assert_eq!(
        world.client.wait(three, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    assert_eq!(world.client.abort(near, 0, -1), Err(Error::Invalid));
}

#[test]
fn calls_of_another_socket_cannot_be_aborted() {
    let mut world = World::new();
    let (near, _) = pair(&mut world);
    let other = native(&mut world.client);
    let (qt, id) = call(&mut world, near, b"mine", 0);
    assert_eq!(world.client.abort(other, id, 0), Err(Error::Invalid));
    assert_eq!(
        world.client.wait(qt, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
}

#[test]
fn a_silent_server_ends_in_a_timeout() {
    let mut world = World::new();
    let (near, _) = pair(&mut world);
    world.losing.set(u32::MAX);
    let (qt, _) = call(&mut world, near, b"anybody?", 0);
    assert_eq!(
        world.client_done(qt),
        OperationResult::Failed(Error::PeerTimedOut)
    );
}

#[test]
fn requests_beyond_what_the_application_answers_wait_to_be_popped() {
    let params = Params {
        service_max: 2,
        ..Params::default()
    };
    let mut world = World::with(params);
    let (near, far) = pair(&mut world);
    for n in 0..3 {
        call(&mut world, near, &[n], 0);
    }
    let first = world.server_pop(far);
    world.server_pop(far);
    let third = world.server.pop(far, None).unwrap();
    world.live(Duration::millis(5));
    assert_eq!(
        world.server.wait(third, Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    reply(&mut world, far, &first, b"done").unwrap();
    let got = popped(world.server_done(third));
    assert_eq!(bytes_of(&mut world.server, &got), [2]);
}

#[test]
fn datagrams_and_calls_do_not_mix_on_one_socket() {
    let mut world = World::new();
    let (near, plain) = (native(&mut world.client), datagram(&mut world.client));
    let view = world.client.sga_of(b"x").unwrap().view();
    let to = server_addr();
    assert_eq!(
        world.client.pushto(near, &view, to),
        Err(Error::NotSupported)
    );
    assert_eq!(world.client.push(near, &view), Err(Error::NotSupported));
    assert_eq!(
        world.client.call(plain, &view, to, 0),
        Err(Error::NotSupported)
    );
    assert_eq!(
        world.client.reply(plain, 1, to, &view, false),
        Err(Error::NotSupported)
    );
    assert_eq!(world.client.abort(plain, 0, 0), Err(Error::NotSupported));
}

/// Field case C054. Each answer holds its memory until its client has it; what is acknowledged
/// must give it back in any turn, as the server receives nothing more.
#[test]
fn a_server_with_memory_for_ten_answers_sends_two_hundred_without_a_further_pop() {
    const ANSWERS: usize = 200;
    let mut world = World::with(Params {
        send_bytes: 10 * 8_192,
        ..Params::default()
    });
    let (near, far) = pair(&mut world);
    let asked: Vec<_> = (0..ANSWERS)
        .map(|_| {
            let (qt, _) = call(&mut world, near, b"?", 0);
            (qt, world.server_pop(far))
        })
        .collect();
    let mut waits = 0;
    for (_, request) in &asked {
        let info = world.server.info(request.handle.into()).unwrap();
        let sga = loop {
            match world.server.sga_of(&pattern(5_000)) {
                Ok(sga) => break sga,
                Err(error) => assert_eq!(error, Error::NoMemory),
            }
            waits += 1;
            assert!(waits < 100_000, "nothing gives its memory back");
            world.client.turn();
        };
        let (view, to) = (sga.view(), info.peer);
        let replied = world.server.reply(far, info.id, to, &view, false);
        assert_eq!(replied, Ok(None));
        world.server.sgafree(sga.handle.into()).unwrap();
        world.server.sgafree(request.handle.into()).unwrap();
    }
    assert!(waits > 0, "there was memory for all");
    for (qt, _) in asked {
        let response = popped(world.client_done(qt));
        assert_eq!(bytes_of(&mut world.client, &response), pattern(5_000));
        world.client.sgafree(response.handle.into()).unwrap();
    }
}
