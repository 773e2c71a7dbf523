use super::*;

/// A connection: the client's queue, the server's, and the listening one.
struct Pair {
    near: QDesc,
    far: QDesc,
    listener: QDesc,
}

fn stream(os: &mut Os) -> QDesc {
    os.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
}

fn listening(os: &mut Os, backlog: i32) -> QDesc {
    let qd = stream(os);
    os.bind(qd, server_addr()).unwrap();
    os.listen(qd, backlog).unwrap();
    qd
}

impl World {
    fn connect(&mut self) -> Pair {
        let listener = listening(&mut self.server, 8);
        let near = stream(&mut self.client);
        let far = self.join(near, listener);
        Pair {
            near,
            far,
            listener,
        }
    }

    /// Connects one more to a listener.
    fn join(&mut self, near: QDesc, listener: QDesc) -> QDesc {
        let connect = self.client.connect(near, server_addr()).unwrap();
        let accept = self.server.accept(listener).unwrap();
        assert_eq!(self.client_done(connect), OperationResult::Connect);
        match self.server_done(accept) {
            OperationResult::Accept { qd, peer } => {
                let port = self.client.getsockname(near).unwrap().port;
                assert_eq!(peer, Addr::new(ip(1), port));
                qd
            }
            other => panic!("{other:?} is no connection"),
        }
    }

    fn client_write(&mut self, qd: QDesc, bytes: &[u8]) {
        let qt = write(&mut self.client, qd, bytes);
        assert_eq!(self.client_done(qt), OperationResult::Push);
    }

    fn server_write(&mut self, qd: QDesc, bytes: &[u8]) {
        let qt = write(&mut self.server, qd, bytes);
        assert_eq!(self.server_done(qt), OperationResult::Push);
    }

    fn server_read(&mut self, qd: QDesc) -> Vec<u8> {
        let sga = self.server_pop(qd);
        assert_eq!(sga.peer, None);
        let bytes = bytes_or_end(&mut self.server, &sga);
        self.server.sgafree(sga.handle.into()).unwrap();
        bytes
    }

    fn client_read(&mut self, qd: QDesc) -> Vec<u8> {
        let sga = self.client_pop(qd);
        let bytes = bytes_or_end(&mut self.client, &sga);
        self.client.sgafree(sga.handle.into()).unwrap();
        bytes
    }

    /// Closes what is left, so that the end of the world has nothing to linger for.
    fn hang_up(&mut self, pair: &Pair) {
        hang_up(&mut self.client, pair.near);
        hang_up(&mut self.server, pair.far);
        hang_up(&mut self.server, pair.listener);
    }
}

fn hang_up(os: &mut Os, qd: QDesc) {
    os.set_linger(qd, Some(Duration::ZERO)).unwrap();
    os.close(qd).unwrap();
}

/// A push whose buffer is freed at once, as echo programs do.
fn write(os: &mut Os, qd: QDesc, bytes: &[u8]) -> QToken {
    let sga = os.sga_of(bytes).unwrap();
    let qt = os.push(qd, &sga.view()).unwrap();
    os.sgafree(sga.handle.into()).unwrap();
    qt
}

fn bytes_or_end(os: &mut Os, sga: &Sga) -> Vec<u8> {
    match sga.len {
        0 => Vec::new(),
        _ => bytes_of(os, sga),
    }
}

fn at_once(os: &mut Os, qt: QToken) -> Result<OperationResult, Error> {
    os.wait(qt, Some(Duration::ZERO)).map(|done| done.result)
}

#[test]
fn a_connection_carries_messages_both_ways_and_ends() {
    let mut world = World::new();
    let pair = world.connect();
    assert_eq!(world.client.getpeername(pair.near), Ok(server_addr()));
    assert_eq!(world.server.getsockname(pair.far), Ok(server_addr()));
    world.client_write(pair.near, b"ping");
    assert_eq!(world.server_read(pair.far), b"ping");
    world.server_write(pair.far, &pattern(100_000));
    assert_eq!(world.client_read(pair.near), pattern(100_000));
    world
        .client
        .set_linger(pair.near, Some(Duration::secs(1)))
        .unwrap();
    // The server's loop must turn for the client's close to be confirmed.
    world
        .client
        .desk
        .begin_close(world.client.poller.homa(), pair.near)
        .unwrap();
    assert_eq!(world.server_read(pair.far), b"");
    assert_eq!(world.server_read(pair.far), b"");
    let before = world.clock.0.get();
    world.server.close(pair.far).unwrap();
    assert_eq!(
        world.clock.0.get(),
        before,
        "its peer has closed: nothing to wait for"
    );
    world.live(Duration::micros(100));
    let before = world.clock.0.get();
    world.client.close(pair.near).unwrap();
    assert_eq!(world.clock.0.get(), before, "all is confirmed");
    world.server.close(pair.listener).unwrap();
    world.live(Duration::millis(200));
    for os in [&mut world.client, &mut world.server] {
        assert_eq!(os.desk.channels.len(), 0);
        assert!(os.desk.tokens.is_empty());
        assert_eq!(os.poller.homa().rpc_count(), 0);
        assert_eq!(os.poller.homa().free_pages(), 256);
    }
}

#[test]
fn messages_keep_their_order_and_their_bounds_whatever_their_length() {
    let mut world = World::new();
    let pair = world.connect();
    let lens = [1_000_000, 1, 5_000, 3, 999_961, 70_000, 999_960, 2, 40];
    let pushes: Vec<_> = lens
        .iter()
        .map(|&len| write(&mut world.client, pair.near, &pattern(len)))
        .collect();
    for len in lens {
        assert!(world.server_read(pair.far) == pattern(len), "{len}");
    }
    for qt in pushes {
        assert_eq!(world.client_done(qt), OperationResult::Push);
    }
    world.hang_up(&pair);
}

#[test]
fn a_pop_with_a_size_leaves_the_rest_to_the_next() {
    let mut world = World::new();
    let pair = world.connect();
    world.client_write(pair.near, &pattern(1_000));
    world.client_write(pair.near, b"next");
    let mut bytes = Vec::new();
    for len in [300, 300, 300, 100] {
        let qt = world.server.pop(pair.far, Some(300)).unwrap();
        let sga = popped(world.server_done(qt));
        assert_eq!(sga.len, len);
        bytes.extend(bytes_of(&mut world.server, &sga));
        world.server.sgafree(sga.handle.into()).unwrap();
    }
    assert_eq!(bytes, pattern(1_000));
    assert_eq!(world.server_read(pair.far), b"next");
    world.hang_up(&pair);
}

/// The part that goes back begins within a message, and behind its header.
#[test]
fn a_popped_part_can_be_pushed_on_by_copy_and_by_reference() {
    let mut world = World::new();
    let pair = world.connect();
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.client.bind(near, Addr::new(ip(1), 70)).unwrap();
    world.client_write(pair.near, &pattern(20_000));
    let qt = world.server.pop(pair.far, Some(5_000)).unwrap();
    let first = popped(world.server_done(qt));
    let second = world.server_pop(pair.far);
    let part = SgaView {
        ptr: second.ptr.wrapping_add(1_000),
        len: 9_000,
        ..second.view()
    };
    let back = world.server.push(pair.far, &part).unwrap();
    let beside = world
        .server
        .pushto(far, &part, Addr::new(ip(1), 70))
        .unwrap();
    for sga in [first, second] {
        world.server.sgafree(sga.handle.into()).unwrap();
    }
    assert!(world.client_read(pair.near) == pattern(20_000)[6_000..15_000]);
    let sga = world.client_pop(near);
    assert!(bytes_of(&mut world.client, &sga) == pattern(20_000)[6_000..15_000]);
    world.client.sgafree(sga.handle.into()).unwrap();
    for qt in [back, beside] {
        assert_eq!(world.server_done(qt), OperationResult::Push);
    }
    world.live(Duration::millis(20));
    assert_eq!(world.server.poller.homa().free_pages(), 256);
    world.hang_up(&pair);
}

/// 32 messages may wait to be popped; then pushes wait, and each pop lets some go on.
#[test]
fn pushes_wait_while_the_peer_pops_nothing() {
    let mut world = World::new();
    let pair = world.connect();
    let pushes: Vec<_> = (0..100)
        .map(|n: u8| write(&mut world.client, pair.near, &[n]))
        .collect();
    world.live(Duration::millis(20));
    let done = |world: &mut World| {
        let os = &mut world.client;
        pushes
            .iter()
            .filter(|&&qt| os.desk.tokens.pending(qt).is_none())
            .count()
    };
    assert_eq!(done(&mut world), 32);
    for n in 0..16 {
        assert_eq!(world.server_read(pair.far), [n]);
    }
    world.live(Duration::millis(20));
    assert_eq!(done(&mut world), 48);
    for n in 16..100 {
        assert_eq!(world.server_read(pair.far), [n]);
    }
    for &qt in &pushes {
        assert_eq!(world.client_done(qt), OperationResult::Push);
    }
    let (client, server) = (
        world.client.desk.channels.stats(),
        world.server.desk.channels.stats(),
    );
    assert_eq!(
        (client.messages_out, client.retries, server.over_credit),
        (100, 0, 0)
    );
    world.hang_up(&pair);
}

/// The bytes are free as soon as the push completes, which for all of 200,000 B is once they went
/// out: the first transmission of some of it gets lost.
#[test]
fn pushed_bytes_are_the_applications_again() {
    let mut world = World::new();
    let pair = world.connect();
    for len in [100, 200_000] {
        let bytes = pattern(len);
        let mut sga = world.client.sga_of(&bytes).unwrap();
        let qt = world.client.push(pair.near, &sga.view()).unwrap();
        world.losing.set(1);
        assert_eq!(world.client_done(qt), OperationResult::Push);
        world
            .client
            .desk
            .sgas
            .fill(sga.handle.into(), &vec![0xee; len])
            .unwrap();
        assert!(world.server_read(pair.far) == bytes);
        world.client.sgafree(sga.handle.into()).unwrap();
        sga = world.client.sga_of(b"x").unwrap();
        world.client.sgafree(sga.handle.into()).unwrap();
    }
    world.hang_up(&pair);
}

#[test]
fn each_call_refuses_what_makes_no_sense() {
    let mut world = World::new();
    let pair = world.connect();
    let (os, to) = (&mut world.server, Addr::new(ip(1), 5));
    let (fresh, dgram) = (stream(os), datagram(os));
    assert_eq!(os.listen(fresh, 0), Err(Error::Invalid));
    assert_eq!(os.listen(fresh, 1), Err(Error::NoDestination));
    assert_eq!(os.listen(pair.listener, 1), Err(Error::AddressInUse));
    assert_eq!(os.listen(pair.far, 1), Err(Error::AddressInUse));
    assert_eq!(os.listen(dgram, 1), Err(Error::NotSupported));
    assert_eq!(os.listen(QDesc(9), 1), Err(Error::BadDescriptor));
    for qd in [fresh, dgram, pair.far] {
        assert_eq!(os.accept(qd), Err(Error::Invalid));
    }
    assert_eq!(os.connect(pair.listener, to), Err(Error::Listening));
    assert_eq!(os.connect(pair.far, to), Err(Error::AlreadyConnected));
    assert_eq!(os.connect(dgram, to), Err(Error::NotSupported));
    let sga = os.sga_of(b"x").unwrap();
    for qd in [fresh, pair.listener] {
        assert_eq!(os.push(qd, &sga.view()), Err(Error::NotConnected));
        assert_eq!(os.pop(qd, None), Err(Error::NotConnected));
        assert_eq!(os.getpeername(qd), Err(Error::NotConnected));
    }
    assert_eq!(
        os.pushto(pair.far, &sga.view(), to),
        Err(Error::NotSupported)
    );
    assert_eq!(
        os.bind(fresh, Addr::new(ip(2), 0)),
        Err(Error::NotSupported)
    );
    assert_eq!(
        os.bind(fresh, Addr::new(Ip::UNSPECIFIED_V4, 5)),
        Err(Error::NotSupported)
    );
    assert_eq!(os.bind(fresh, server_addr()), Err(Error::AddressInUse));
    assert_eq!(
        os.bind(fresh, Addr::new(ip(9), 5)),
        Err(Error::AddressNotAvailable)
    );
    os.bind(fresh, Addr::new(ip(2), 5)).unwrap();
    assert_eq!(os.bind(fresh, Addr::new(ip(2), 6)), Err(Error::Invalid));
    assert_eq!(
        os.bind(dgram, Addr::new(ip(2), 5)),
        Err(Error::AddressInUse)
    );
    let connecting = os.connect(fresh, to).unwrap();
    assert_eq!(os.connect(fresh, to), Err(Error::Connecting));
    assert_eq!(os.push(fresh, &sga.view()), Err(Error::NotConnected));
    os.close(fresh).unwrap();
    assert_eq!(
        at_once(os, connecting),
        Ok(OperationResult::Failed(Error::Canceled))
    );
    world.hang_up(&pair);
}

#[test]
fn a_refused_connect_may_be_tried_again() {
    let mut world = World::new();
    let near = stream(&mut world.client);
    let refused = OperationResult::Failed(Error::ConnectionRefused);
    let nowhere = world
        .client
        .connect(near, Addr::new(Ip::UNSPECIFIED_V4, 0))
        .unwrap();
    assert_eq!(world.client_done(nowhere), refused);
    let closed = world.client.connect(near, server_addr()).unwrap();
    assert_eq!(world.client_done(closed), refused);
    let bound = stream(&mut world.server);
    world.server.bind(bound, server_addr()).unwrap();
    let not_yet = world.client.connect(near, server_addr()).unwrap();
    assert_eq!(world.client_done(not_yet), refused);
    world.server.listen(bound, 1).unwrap();
    let far = world.join(near, bound);
    world.hang_up(&Pair {
        near,
        far,
        listener: bound,
    });
}

#[test]
fn connect_waits_while_the_backlog_is_full() {
    let mut world = World::new();
    let listener = listening(&mut world.server, 2);
    let nears: Vec<_> = (0..4).map(|_| stream(&mut world.client)).collect();
    let connects: Vec<_> = nears
        .iter()
        .map(|&qd| world.client.connect(qd, server_addr()).unwrap())
        .collect();
    world.live(Duration::millis(300));
    let pending = |world: &World, n: usize| world.client.desk.tokens.pending(connects[n]).is_some();
    assert_eq!(
        [0, 1, 2, 3].map(|n| pending(&world, n)),
        [false, false, true, true]
    );
    for _ in 0..4 {
        let accept = world.server.accept(listener).unwrap();
        let accepted = world.server_done(accept);
        assert!(
            matches!(accepted, OperationResult::Accept { .. }),
            "{accepted:?}"
        );
    }
    for qt in connects {
        assert_eq!(world.client_done(qt), OperationResult::Connect);
    }
}

/// Accepts that wait are canceled, who was not accepted is reset, who was goes on, and the port is
/// taken until the last of them is closed.
#[test]
fn a_listener_closes_before_its_connections() {
    let mut world = World::new();
    let pair = world.connect();
    let extra = stream(&mut world.client);
    let connect = world.client.connect(extra, server_addr()).unwrap();
    assert_eq!(world.client_done(connect), OperationResult::Connect);
    let pop = world.client.pop(extra, None).unwrap();
    world.server.close(pair.listener).unwrap();
    let reset = OperationResult::Failed(Error::ConnectionReset);
    assert_eq!(world.client_done(pop), reset);
    let late = stream(&mut world.client);
    let connect = world.client.connect(late, server_addr()).unwrap();
    assert_eq!(
        world.client_done(connect),
        OperationResult::Failed(Error::ConnectionRefused)
    );
    world.client_write(pair.near, b"still here");
    assert_eq!(world.server_read(pair.far), b"still here");
    let again = stream(&mut world.server);
    assert_eq!(
        world.server.bind(again, server_addr()),
        Err(Error::AddressInUse)
    );
    world
        .server
        .set_linger(pair.far, Some(Duration::ZERO))
        .unwrap();
    world.server.close(pair.far).unwrap();
    world.server.bind(again, server_addr()).unwrap();
}

#[test]
fn close_cancels_what_waits_and_nothing_else() {
    let mut world = World::new();
    let pair = world.connect();
    let accept = world.server.accept(pair.listener).unwrap();
    let pops = [(); 2].map(|()| world.server.pop(pair.far, None).unwrap());
    let canceled = Ok(OperationResult::Failed(Error::Canceled));
    world.server.close(pair.listener).unwrap();
    assert_eq!(at_once(&mut world.server, accept), canceled);
    assert_eq!(
        world.server.wait(pops[0], Some(Duration::ZERO)),
        Err(Error::WaitTimedOut)
    );
    world
        .server
        .set_linger(pair.far, Some(Duration::ZERO))
        .unwrap();
    world.server.close(pair.far).unwrap();
    for pop in pops {
        assert_eq!(at_once(&mut world.server, pop), canceled);
    }
    assert_eq!(world.server.close(pair.far), Err(Error::BadDescriptor));
}

/// The server ends without a word, and its next life knows nothing.
#[test]
fn operations_on_a_dead_connection_fail_with_what_killed_it() {
    let mut world = World::new();
    let pair = world.connect();
    world.server_write(pair.far, b"last words");
    world.live(Duration::millis(1));
    world
        .server
        .set_linger(pair.far, Some(Duration::ZERO))
        .unwrap();
    world
        .server
        .desk
        .end_close(world.server.poller.homa(), pair.far);
    let push = write(&mut world.client, pair.near, b"anybody there?");
    assert_eq!(world.client_done(push), OperationResult::Push);
    world.live(Duration::millis(10));
    // What came before can still be popped.
    assert_eq!(world.client_read(pair.near), b"last words");
    let reset = Ok(OperationResult::Failed(Error::ConnectionReset));
    let pop = world.client.pop(pair.near, None).unwrap();
    assert_eq!(at_once(&mut world.client, pop), reset);
    let push = write(&mut world.client, pair.near, b"and now?");
    assert_eq!(at_once(&mut world.client, push), reset);
    assert_eq!(world.client.getpeername(pair.near), Ok(server_addr()));
    world.client.close(pair.near).unwrap();
}

#[test]
fn close_waits_until_all_that_was_pushed_is_confirmed() {
    let mut world = World::new();
    let pair = world.connect();
    let push = write(&mut world.client, pair.near, &pattern(500_000));
    world
        .client
        .desk
        .begin_close(world.client.poller.homa(), pair.near)
        .unwrap();
    world.live(Duration::millis(5));
    let World { client, .. } = &mut world;
    assert!(client.desk.is_settled(client.poller.homa(), pair.near));
    assert_eq!(world.client_done(push), OperationResult::Push);
    assert!(world.server_read(pair.far) == pattern(500_000));
    assert_eq!(world.server_read(pair.far), b"");
}

#[test]
fn streams_and_datagrams_share_the_ports_and_are_told_apart() {
    let mut world = World::new();
    let pair = world.connect();
    let far = datagram(&mut world.server);
    let to = Addr::new(ip(2), 7001);
    world.server.bind(far, to).unwrap();
    // A connect to a datagram socket is refused, whether somebody waits there or not.
    let near = stream(&mut world.client);
    for pops in 0..2 {
        let waiting: Vec<_> = (0..pops)
            .map(|_| world.server.pop(far, None).unwrap())
            .collect();
        let connect = world.client.connect(near, to).unwrap();
        if pops == 0 {
            world.live(Duration::millis(1));
            let pop = world.server.pop(far, None).unwrap();
            assert_eq!(at_once(&mut world.server, pop), Err(Error::WaitTimedOut));
        }
        let refused = OperationResult::Failed(Error::ConnectionRefused);
        assert_eq!(world.client_done(connect), refused);
        for qt in waiting {
            assert_eq!(at_once(&mut world.server, qt), Err(Error::WaitTimedOut));
        }
    }
    // A datagram to a stream socket is dropped.
    let near = datagram(&mut world.client);
    world.client_push(near, b"hello", server_addr());
    world.live(Duration::millis(150));
    assert_eq!(world.server.desk.channels.stats().strangers, 1);
    assert_eq!(world.client.stats().datagrams_failed, 1);
    world.client_write(pair.near, b"undisturbed");
    assert_eq!(world.server_read(pair.far), b"undisturbed");
    world.hang_up(&pair);
}

#[test]
fn a_runtime_can_connect_to_itself() {
    let mut world = World::new();
    let pair = world.connect();
    let near = stream(&mut world.server);
    let connect = world.server.connect(near, server_addr()).unwrap();
    let accept = world.server.accept(pair.listener).unwrap();
    assert_eq!(world.server_done(connect), OperationResult::Connect);
    let OperationResult::Accept { qd: far, .. } = world.server_done(accept) else {
        panic!("no connection");
    };
    world.server_write(near, b"to myself");
    assert_eq!(world.server_read(far), b"to myself");
    world.server.close(near).unwrap();
    assert_eq!(world.server_read(far), b"");
    world.hang_up(&pair);
}

/// Each of them has a message on its way at the same time: 25 MB, and there are 16 MiB of pages,
/// of which requests have three quarters, and one peer a quarter.
#[test]
fn a_thousand_connections_at_once_are_apart() {
    const COUNT: u16 = 1_000;
    const LEN: usize = 25_000;
    let mut world = World::new();
    let listener = listening(&mut world.server, 8);
    let pairs: Vec<_> = (0..COUNT)
        .map(|_| {
            let near = stream(&mut world.client);
            (near, world.join(near, listener))
        })
        .collect();
    let message = |n: usize| [&n.to_be_bytes()[..], &pattern(LEN)].concat();
    for (n, &(near, _)) in pairs.iter().enumerate() {
        write(&mut world.client, near, &message(n));
    }
    for (n, &(near, far)) in pairs.iter().enumerate() {
        assert!(world.server_read(far) == message(n), "{n}");
        write(&mut world.server, far, &[n as u8, 7]);
        assert_eq!(world.client_read(near), [n as u8, 7]);
    }
    assert_eq!(world.client.desk.channels.len(), usize::from(COUNT));
    for &(near, far) in pairs.iter().rev() {
        world
            .client
            .desk
            .begin_close(world.client.poller.homa(), near)
            .unwrap();
        assert_eq!(world.server_read(far), b"");
        world.server.close(far).unwrap();
        world.client.close(near).unwrap();
    }
    assert!(world.client.desk.channels.is_empty() && world.server.desk.channels.is_empty());
}
