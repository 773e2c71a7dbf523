//! Messages in the application's own region.

use super::*;

#[test]
fn messages_of_all_lengths_go_there_and_back() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    for len in [1, 1432, 1433, 65_536, 65_537, 150_000, 1_000_000] {
        let bytes = pattern(len);
        let id = send(&mut world.client, client, &bytes, 1).unwrap();
        let request = world.server_receive(server);
        let (_, parts) = request.result.clone().unwrap();
        assert_eq!(parts.len(), len.div_ceil(1 << 16));
        let whole = &parts[..parts.len() - 1];
        assert!(whole.iter().all(|part| part % (1 << 16) == 0));
        let got = consume(&mut world.server, server, &request);
        assert!(got == bytes, "{len}");
        reply(&mut world.server, server, &request, &got).unwrap();
        let response = world.client_receive(client, &by_id(id));
        assert!(
            consume(&mut world.client, client, &response) == bytes,
            "{len}"
        );
    }
    for (os, qd) in [(&mut world.client, client), (&mut world.server, server)] {
        assert_eq!(os.homa_info(qd).unwrap().free_bytes, 64 << 16);
    }
}

/// Rule PL-02.
#[test]
fn a_region_is_refused_with_a_reason_and_told_as_far_as_it_is_used() {
    let mut world = World::new();
    let os = &mut world.client;
    let qd = os.homa_socket(V4, libc::SOCK_DGRAM, 146).unwrap();
    assert_eq!(os.homa_region(qd), Ok(None));
    assert_eq!(os.homa_receive(qd, &ANY_REQUEST), Err(Error::NoMemory));
    let small = Region::owned(SMALLEST - 1).unwrap();
    assert_eq!(os.homa_lend(qd, small), Err(Error::Invalid));
    assert!(last_error(os, qd).contains("too small"));
    let region = Region::owned(SMALLEST).unwrap();
    let start = region.address(0);
    assert_eq!(os.homa_lend(qd, region), Ok(()));
    assert_eq!(os.homa_region(qd), Ok(Some((start, 31 << 16))));
    let other = Region::owned(SMALLEST).unwrap();
    assert_eq!(os.homa_lend(qd, other), Err(Error::Invalid));
    assert!(last_error(os, qd).contains("already"));
    assert_eq!(os.homa_region(qd), Ok(Some((start, 31 << 16))));
}

/// Rule PL-15.
#[test]
fn wrong_offsets_are_refused_and_change_nothing() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    send(&mut world.client, client, &pattern(200_000), 1).unwrap();
    let request = world.server_receive(server);
    let (_, parts) = request.result.clone().unwrap();
    let os = &mut world.server;
    let free = os.homa_info(server).unwrap().free_bytes;
    let foreign = parts.iter().max().unwrap() + (1 << 16);
    for wrong in [
        vec![foreign],
        vec![parts[0], parts[0]],
        vec![parts[0], parts[1], foreign],
        vec![parts[0] + 64],
    ] {
        assert_eq!(
            os.homa_give_back(server, &wrong),
            Err(Error::Invalid),
            "{wrong:?}"
        );
        assert!(last_error(os, server).contains("offset"));
        assert_eq!(os.homa_info(server).unwrap().free_bytes, free);
    }
    assert_eq!(os.homa_give_back(server, &parts), Ok(()));
    assert_eq!(
        os.homa_give_back(server, &parts),
        Err(Error::Invalid),
        "stale"
    );
    reply(os, server, &request, b"ok").unwrap();
}

/// The application keeps what it gets: its senders stall, and lose nothing.
#[test]
fn exhaustion_stalls_senders_until_pages_come_back() {
    let mut world = World::new();
    let client = homa(&mut world.client, 64 << 16);
    let server = homa(&mut world.server, SMALLEST);
    world.server.homa_bind(server, server_addr(), V4).unwrap();
    let bytes = pattern(1_000_000);
    let ids = [0, 1, 2].map(|n| send(&mut world.client, client, &bytes, n).unwrap());
    let first = world.server_receive(server);
    world.live(Duration::millis(300));
    let os = &mut world.server;
    assert_eq!(os.homa_receive(server, &ANY_REQUEST), Err(Error::Exhausted));
    let waiting = rpcs(os, server);
    assert!(
        waiting.iter().any(|rpc| rpc.state.is_waiting),
        "{waiting:?}"
    );
    // The sender was told that we live, so nothing failed meanwhile.
    assert!(
        rpcs(&mut world.client, client)
            .iter()
            .all(|rpc| !rpc.is_ready)
    );
    let mut request = first;
    for n in 0..3 {
        assert!(consume(&mut world.server, server, &request) == bytes);
        reply(&mut world.server, server, &request, b"ok").unwrap();
        if n < 2 {
            request = world.server_receive(server);
        }
    }
    for id in ids {
        let response = world.client_receive(client, &by_id(id));
        assert_eq!(consume(&mut world.client, client, &response), b"ok");
    }
}

/// What gets lost is asked for again, and lies where it belongs, whatever pages those are.
#[test]
fn lost_packets_are_repaired_in_pages_that_are_anywhere() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    let mut rng = crate::rng::Rng::new(11);
    let mut kept = VecDeque::new();
    for n in 0..60_u64 {
        let bytes = pattern(1 + (rng.next_u64() % 200_000) as usize);
        world.losing.set((rng.next_u64() % 4) as u32);
        let id = send(&mut world.client, client, &bytes, n).unwrap();
        let request = world.server_receive(server);
        // Kept for a while, so that the next one's pages are not the first ones again.
        reply(&mut world.server, server, &request, &bytes).unwrap();
        kept.push_back((request, bytes.clone()));
        world.losing.set((rng.next_u64() % 4) as u32);
        let response = world.client_receive(client, &by_id(id));
        assert!(consume(&mut world.client, client, &response) == bytes);
        if kept.len() > 3 {
            let place = rng.next_u64() as usize % kept.len();
            let (request, bytes) = kept.remove(place).unwrap();
            assert!(consume(&mut world.server, server, &request) == bytes);
        }
    }
    assert!(world.client.poller.homa().stats().retransmits_out > 20);
}

/// What close and shutdown leave behind is the application's: not a byte is written there.
#[test]
fn a_region_is_not_touched_after_close() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    send(&mut world.client, client, &pattern(500_000), 1).unwrap();
    for _ in 0..30 {
        world.turn();
    }
    assert!(rpcs(&mut world.server, server)[0].state.rx_received > 0);
    world.server.homa_close(server).unwrap();
    // The region went with the socket: a write there would end this process.
    world.live(Duration::millis(5));
    let failed = world.client_receive(client, &ANY_RESPONSE);
    assert!(failed.result.is_err(), "{failed:?}");
}

/// The runtime's own memory is no matter to sockets that have theirs, nor the other way round.
#[test]
fn a_hoarder_of_its_own_region_starves_nobody_else() {
    let mut world = World::new();
    let (client, server) = pair(&mut world);
    for _ in 0..64 {
        send(&mut world.client, client, &pattern(65_536), 1).unwrap();
    }
    world.live(Duration::millis(20));
    while world.server.homa_receive(server, &ANY_REQUEST).is_ok() {}
    assert!(
        rpcs(&mut world.server, server)
            .iter()
            .any(|rpc| rpc.state.is_waiting)
    );
    let (from, to) = (datagram(&mut world.client), datagram(&mut world.server));
    let addr = Addr::new(ip(2), 9);
    world.server.bind(to, addr).unwrap();
    let sga = world.client.sga_of(&pattern(100_000)).unwrap();
    world.client.pushto(from, &sga.view(), addr).unwrap();
    let sga = world.server_pop(to);
    assert!(bytes_of(&mut world.server, &sga) == pattern(100_000));
}

/// As above, with both ends in one process, whose packets to itself never touch a NIC.
#[test]
fn exhaustion_stalls_a_sender_in_the_same_process() {
    let mut world = World::new();
    let os = &mut world.client;
    let (client, server) = (homa(os, 64 << 16), homa(os, SMALLEST));
    let here = Addr::new(ip(1), 60);
    os.homa_bind(server, here, V4).unwrap();
    let fill = |out: &mut [u8]| out.fill(7);
    for _ in 0..3 {
        os.homa_send(client, (here, V4), 1_000_000, fill, 0)
            .unwrap();
    }
    let mut request = world.client_receive(server, &ANY_REQUEST);
    world.live(Duration::millis(300));
    let calls = rpcs(&mut world.client, client);
    assert!(calls.iter().all(|rpc| rpc.error == 0), "{calls:?}");
    for n in 0..3 {
        consume(&mut world.client, server, &request);
        reply(&mut world.client, server, &request, b"ok").unwrap();
        let response = world.client_receive(client, &ANY_RESPONSE);
        consume(&mut world.client, client, &response);
        if n < 2 {
            request = world.client_receive(server, &ANY_REQUEST);
        }
    }
}
