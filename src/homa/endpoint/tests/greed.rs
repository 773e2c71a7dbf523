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
