use super::*;

#[test]
fn a_buffer_is_freed_once() {
    let mut world = World::new();
    let os = &mut world.client;
    let sga = os.sgaalloc(100).unwrap();
    let handle = sga.handle.into();
    os.sgafree(handle).unwrap();
    assert_eq!(os.sgafree(handle), Err(Error::Invalid));
    let next = os.sgaalloc(100).unwrap();
    assert_eq!(
        os.sgafree(handle),
        Err(Error::Invalid),
        "stale, though its slot is taken again"
    );
    assert_eq!(
        world.server.sgafree(next.handle.into()),
        Err(Error::Invalid),
        "a stranger's"
    );
    assert_eq!(world.client.sgafree(0), Err(Error::Invalid));
    assert_eq!(
        world.client.sgafree(next.ptr.addr() as u64),
        Err(Error::Invalid)
    );
}

#[test]
fn sizes_from_one_to_a_million_are_given() {
    let os = &mut World::new().client;
    assert_eq!(os.sgaalloc(0), Err(Error::Invalid));
    assert_eq!(os.sgaalloc(1).unwrap().len, 1);
    assert_eq!(os.sgaalloc(1_000_000).unwrap().len, 1_000_000);
    assert_eq!(os.sgaalloc(1_000_001), Err(Error::MessageTooLong));
    assert_eq!(os.sgaalloc(usize::MAX), Err(Error::MessageTooLong));
}

#[test]
fn no_memory_left_is_an_error() {
    let mut world = World::with(Params {
        send_bytes: 1 << 20,
        ..Params::default()
    });
    let held = world.client.sgaalloc(1_000_000).unwrap();
    assert_eq!(world.client.sgaalloc(1), Err(Error::NoMemory));
    world.client.sgafree(held.handle.into()).unwrap();
    world.client.sgaalloc(1).unwrap();
}

#[test]
fn a_push_without_memory_for_a_copy_waits_for_its_turn_and_does_not_fail() {
    let mut world = World::with(Params {
        send_bytes: 256,
        ..Params::default()
    });
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let sga = world.client.sga_of(b"the only block").unwrap();
    let push = world
        .client
        .pushto(near, &sga.view(), server_addr())
        .unwrap();
    let got = world.server_pop(far);
    assert_eq!(bytes_of(&mut world.server, &got), b"the only block");
    world.server.sgafree(got.handle.into()).unwrap();
    assert_eq!(world.client_done(push), OperationResult::Push);
}

#[test]
fn a_view_must_lie_within_its_buffer_and_may_be_shrunk() {
    let mut world = World::new();
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let sga = world.client.sga_of(b"0123456789").unwrap();
    let view = |skip: isize, len| SgaView {
        handle: sga.handle.into(),
        ptr: sga.ptr.wrapping_offset(skip),
        len,
    };
    let to = server_addr();
    for bad in [
        view(0, 0),
        view(0, 11),
        view(-1, 2),
        view(10, 1),
        view(11, 0),
        view(1, 10),
    ] {
        assert_eq!(
            world.client.pushto(near, &bad, to),
            Err(Error::Invalid),
            "{bad:?}"
        );
    }
    let long = view(0, 1_000_001);
    assert_eq!(
        world.client.pushto(near, &long, to),
        Err(Error::MessageTooLong)
    );
    world.client.pushto(near, &view(2, 3), to).unwrap();
    let got = world.server_pop(far);
    assert_eq!(bytes_of(&mut world.server, &got), b"234");
    let back = SgaView {
        ptr: got.ptr.wrapping_add(1),
        len: 2,
        ..got.view()
    };
    world.server.pushto(far, &back, got.peer.unwrap()).unwrap();
    let echo = world.client_pop(near);
    assert_eq!(bytes_of(&mut world.client, &echo), b"34");
}

#[test]
fn info_is_for_messages_only() {
    let os = &mut World::new().client;
    let sga = os.sgaalloc(1).unwrap();
    assert_eq!(os.info(sga.handle.into()), Err(Error::Invalid));
    assert_eq!(os.info(0), Err(Error::Invalid));
}
