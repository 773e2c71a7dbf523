//! Tables that somebody fills: others still get their share. Decisions 18, 19.

use super::*;

fn small() -> Params {
    Params {
        rpcs_max: 64,
        peers_max: 8,
        ..Params::default()
    }
}

/// The n-th stranger.
fn stranger(n: u8) -> Addr {
    Addr::new(Ip::v4(10, 0, 0, 100 + n), 7)
}

#[test]
fn requests_leave_a_quarter_of_the_slots_for_our_own_calls() {
    let mut rig = Rig::with(small(), 16);
    for id in 0..1000 {
        rig.hear(PEER, id * 2, &Packet::Data(data(2000, 0), &[0; 1000]));
    }
    assert_eq!(
        (rig.homa.rpc_count(), rig.homa.stats().rpcs_full),
        (48, 952)
    );
    for _ in 0..16 {
        rig.call(10);
    }
    // One that found no slot is told to wait, not that it is unknown.
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    rig.hear(PEER, 1998, &Packet::Resend(everything));
    assert_eq!(rig.sent(), [Out::Other(1999, "BUSY")]);
}

/// Decision 18: a client that was asked ten times and said nothing makes room, the oldest first;
/// but what it called stays remembered.
#[test]
fn responses_nobody_acknowledges_give_way_when_slots_are_short() {
    let mut rig = Rig::with(small(), 16);
    for id in 0..48 {
        rig.request(PEER, id * 2, b"x");
        rig.answer(10);
        rig.pass(1);
    }
    // The younger ones may still be acknowledged: only the older ones go, one for each request.
    for id in 48..60 {
        assert!(rig.request(PEER, id * 2, b"x"));
    }
    assert_eq!((rig.homa.rpc_count(), rig.homa.stats().unacked), (48, 12));
    assert!(!rig.request(PEER, 0, b"x"));
    assert_eq!(rig.homa.stats().late_requests, 1);
    // The fortieth was answered eight ticks ago; its client may ask for it.
    rig.sent();
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    rig.hear(PEER, 40 * 2, &Packet::Resend(everything));
    assert_eq!(rig.sent(), [Out::Data(81, 0..10)]);
}

/// A response that is a reference on a received message holds its pages.
#[test]
fn responses_nobody_acknowledges_give_way_when_pages_are_short() {
    let mut rig = Rig::with(Params::default(), 2);
    let bytes = vec![0; 1000];
    for offset in (0..100_000).step_by(1000) {
        rig.hear(PEER, 8, &Packet::Data(data(100_000, offset), &bytes));
    }
    let message = rig.serve().unwrap();
    let payload = Payload::Received {
        run: message.run,
        start: 0,
        len: 10,
    };
    let replied = rig
        .homa
        .send_response(rig.now, message.rpc, payload, Notify::Never);
    assert_eq!(replied, Ok(()));
    assert!(rig.homa.release(rig.now, message.run));
    rig.sent();
    rig.pass(20);
    assert_eq!(rig.homa.free_pages(), 0);
    rig.hear(PEER, 10, &Packet::Data(data(100_000, 0), &bytes));
    assert_eq!(
        (rig.homa.stats().unacked, rig.homa.stats().page_waits),
        (1, 0)
    );
}

/// Eight strangers who only ever wanted to know this or that are no reason to refuse a ninth.
#[test]
fn peers_without_an_rpc_give_way_to_others() {
    let mut rig = Rig::with(small(), 16);
    for n in 0..100 {
        rig.hear(stranger(n), 9, &Packet::NeedAck);
        rig.sent();
    }
    assert_eq!(rig.homa.stats().peers_full, 0);
    rig.call(10);
    assert!(rig.request(stranger(120), 8, b"x"));
    // Who has an RPC stays.
    for n in 0..100 {
        rig.hear(stranger(n), 9, &Packet::NeedAck);
    }
    assert_eq!(rig.homa.rpc_count(), 2);
}

/// The pool has one page, and the first message keeps it. Who waits for it and asks meanwhile
/// stays; who is silent for a hundred ticks is gone, though the ball was in our court.
#[test]
fn a_request_that_waits_for_pages_goes_if_its_client_is_silent() {
    let mut rig = Rig::with(Params::default(), 1);
    rig.hear(PEER, 8, &Packet::Data(data(60_000, 0), &[0; 1000]));
    for offset in (1000..60_000).step_by(1000) {
        rig.hear(PEER, 8, &Packet::Data(data(60_000, offset), &[0; 1000]));
    }
    assert!(rig.serve().is_some());
    for id in [10, 12] {
        rig.hear(PEER, id, &Packet::Data(data(60_000, 0), &[0; 1000]));
    }
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    for _ in 0..10 {
        rig.pass(40);
        rig.hear(PEER, 12, &Packet::Resend(everything));
        assert_eq!(rig.sent(), [Out::Other(13, "BUSY")]);
    }
    let rpcs = [8, 10, 12].map(|id| rig.homa.server_rpc(RpcId(id | 1), PEER).is_some());
    assert_eq!(rpcs, [true, false, true]);
}

/// The same for one that waits for a grant: eight others have all that may be granted at once.
#[test]
fn a_request_that_waits_for_grants_goes_if_its_client_is_silent() {
    let mut rig = Rig::with(Params::default(), 400);
    for id in 0..20 {
        let data = Data {
            incoming: 1000,
            ..data(1_000_000, 0)
        };
        rig.hear(PEER, id * 2, &Packet::Data(data, &[0; 1000]));
    }
    rig.pass(130);
    assert!(
        rig.homa.rpc_count() <= 8,
        "{} are left",
        rig.homa.rpc_count()
    );
    rig.pass(130);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 400));
}

/// Strangers announce 1 MB each with one packet: together they want the whole pool many times,
/// and get a page for what came. An honest request of 1 MB gets its pages at once.
#[test]
fn first_packets_of_long_messages_take_no_pages_from_others() {
    let mut rig = Rig::with(Params::default(), 64);
    for n in 0..64 {
        rig.hear(
            stranger(n),
            8,
            &Packet::Data(data(1_000_000, 0), &[0; 1000]),
        );
    }
    // 64 pieces of 1,000 B, at 1,024 B each.
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (64, 63));
    let bytes = [1; 1000];
    for offset in (0..1_000_000).step_by(1000) {
        assert!(rig.hear(PEER, 8, &Packet::Data(data(1_000_000, offset), &bytes)));
    }
    let message = rig.serve().expect("a whole request");
    assert_eq!((message.len, rig.homa.stats().page_waits), (1_000_000, 0));
    assert!(rig.homa.release(rig.now, message.run));
    rig.pass(110);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (1, 64));
}

/// Two packets draw a message's pages; but a peer has a quarter of them, and all requests three.
#[test]
fn strangers_with_long_messages_leave_a_quarter_of_the_pages_to_responses() {
    let mut rig = Rig::with(Params::default(), 64);
    let (_, id) = rig.call(10);
    for n in 0..64 {
        for offset in [0, 1000] {
            let data = data(1_000_000, offset);
            rig.hear(stranger(n), 8, &Packet::Data(data, &[0; 1000]));
        }
    }
    // The 2,000 B that came of each of the others were dropped.
    assert_eq!(
        (rig.homa.free_pages(), rig.homa.stats().page_waits),
        (16, 61)
    );
    for offset in (0..1_000_000).step_by(1000) {
        rig.response(PEER, id, 1_000_000, offset..offset + 1000);
    }
    assert_eq!(rig.outcome(), Some(Ok(1_000_000)));
    // Some of those that wait get the pages of the first, and are given up later.
    rig.pass(230);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 64));
}

/// The order of the first two packets, and copies of the first, change nothing.
#[test]
fn the_first_packet_is_kept_until_the_pages_are_there() {
    for first in [0, 1000, 99_000] {
        let mut rig = Rig::with(Params::default(), 16);
        let bytes = |offset: u32| [offset as u8 ^ (offset >> 8) as u8; 1000];
        let mut offsets: Vec<u32> = (0..100_000).step_by(1000).collect();
        offsets.retain(|&offset| offset != first);
        for offset in [first, first].into_iter().chain(offsets) {
            let taken = Packet::Data(data(100_000, offset), &bytes(offset));
            rig.hear(PEER, 8, &taken);
        }
        assert_eq!(rig.homa.stats().duplicates, 1);
        let message = rig.serve().expect("a whole request");
        let mut stored = vec![0; 100_000];
        rig.homa.region().read(message.offset as usize, &mut stored);
        for offset in (0..100_000).step_by(1000) {
            let part = &stored[offset as usize..][..1000];
            assert_eq!(part, bytes(offset), "first {first}, at {offset}");
        }
    }
}

/// A sender that may send one packet only is asked for the second by a RESEND, which raises what
/// it may send; with that come pages and grants.
#[test]
fn a_sender_of_one_unscheduled_packet_gets_pages_with_its_second() {
    let mut rig = Rig::with(Params::default(), 16);
    let short = |offset| Data {
        incoming: 1000,
        ..data(100_000, offset)
    };
    rig.hear(PEER, 8, &Packet::Data(short(0), &[0; 1000]));
    assert_eq!(rig.sent(), [Out::Resend(9, 1000, Some(1000))]);
    rig.hear(PEER, 8, &Packet::Data(short(1000), &[0; 1000]));
    let granted = rig.sent();
    assert!(!granted.is_empty() && granted.iter().all(|out| out.is("GRANT")));
}

/// A peer may have 16 pages, which one request of 1 MB takes: what it sends besides waits, even a
/// byte, and the requests of others do not.
#[test]
fn a_peer_that_holds_its_share_waits_and_others_do_not() {
    let mut rig = Rig::with(Params::default(), 64);
    for id in [8, 10] {
        for offset in [0, 1000] {
            let data = data(1_000_000, offset);
            rig.hear(PEER, id, &Packet::Data(data, &[0; 1000]));
        }
    }
    assert!(!rig.request(PEER, 12, b"x"));
    assert!(rig.request(stranger(1), 12, b"x"));
    assert_eq!(rig.homa.stats().page_waits, 2);
    assert_eq!(rig.homa.free_pages(), 47);
}

/// One message of 1 MB goes, and 200 small ones that waited for it get their pages, a few in each
/// call. Nothing has to arrive for the others to be served.
#[test]
fn pages_that_come_free_are_given_out_in_small_steps() {
    let mut rig = Rig::with(Params::default(), 16);
    let bytes = [0; 1000];
    for offset in (0..1_000_000).step_by(1000) {
        rig.hear(PEER, 8, &Packet::Data(data(1_000_000, offset), &bytes));
    }
    let held = rig.serve().expect("a whole request");
    // The last page of the 1 MB has 48,576 B left: room for 47 at 1,024 B each.
    for n in 0..247_u32 {
        let from = stranger((n % 100) as u8);
        assert_eq!(rig.request(from, 8 + 2 * u64::from(n), &bytes), n < 47);
    }
    assert_eq!((rig.homa.stats().page_waits, rig.sent().len()), (200, 0));
    assert!(rig.homa.release(rig.now, held.run));
    let mut steps = Vec::new();
    while steps.iter().sum::<usize>() < 200 {
        // Whoever waits for pages is asked for its bytes once it has them. Rule PL-18.
        steps.push(rig.sent().iter().filter(|out| out.is("RESEND")).count());
        let is_due = rig.homa.poll_timeout().is_some_and(|at| at <= rig.now);
        assert_eq!(is_due, steps.iter().sum::<usize>() < 200, "{steps:?}");
        rig.homa.handle_timeout(rig.now);
    }
    assert!(
        steps.iter().all(|&step| (1..=16).contains(&step)),
        "{steps:?}"
    );
    assert_eq!(rig.homa.stats().page_waits, 200);
}

/// There is nothing to fall behind with: what an RPC held of send and receive memory is free when
/// it ends, whichever way.
#[test]
fn what_an_rpc_held_is_free_the_moment_it_ends() {
    let buffers = crate::mem::Buffers::new(8 << 20);
    let payload = |len| Payload::Buffer(buffers.alloc(len).unwrap());
    let mut rig = Rig::with(Params::default(), 64);
    for abort in [false, true] {
        let called = rig.homa.send_request(
            rig.now,
            rig.socket,
            PEER,
            payload(1_000_000),
            5,
            Notify::Never,
        );
        let (key, id) = called.unwrap();
        rig.sent();
        for offset in (0..300_000).step_by(1000) {
            rig.response(PEER, id.0, 300_000, offset..offset + 1000);
            if abort && offset == 100_000 {
                rig.homa.abort(rig.now, key, Error::Canceled);
            }
        }
        assert_eq!(rig.outcome().unwrap().is_ok(), !abort);
        assert_eq!((buffers.used_bytes(), rig.homa.free_pages()), (0, 64));
    }
    for by_ack in [true, false] {
        let id = 8 + 2 * u64::from(by_ack);
        assert!(rig.request(PEER, id, b"x"));
        let request = rig.serve().unwrap();
        let response = payload(1_000_000);
        let replied = rig
            .homa
            .send_response(rig.now, request.rpc, response, Notify::Never);
        assert_eq!(replied, Ok(()));
        assert!(rig.homa.release(rig.now, request.run));
        rig.sent();
        match by_ack {
            true => rig.hear(PEER, id, &Packet::Ack(wire::Acks::default())),
            false => rig.hear(PEER, id, &Packet::Unknown),
        };
        assert_eq!((buffers.used_bytes(), rig.homa.rpc_count()), (0, 0));
    }
}
