//! What the chaos simulator found, each in as few packets as it takes.

use super::*;

/// An id as our own hosts make them: a number drawn by chance, counted up, above the slot.
const fn drawn(count: u64) -> u64 {
    (0x1234_5678_0000 + count) << (SLOT_BITS + 1)
}

/// A first packet that is held back for 150 ms knows nothing of our cutoffs, as one of a new life
/// would not. It must not void what is remembered of this one.
#[test]
fn a_late_first_packet_is_no_restart_and_runs_nothing_again() {
    let mut hand = Hand::linked(4, |_| ());
    let first = hand.request(drawn(1), 0).unwrap();
    assert!(hand.homa.take(first).is_some());
    hand.homa.abort(hand.now, first, Error::Canceled);
    let (in_service, _) = hand.taken(drawn(2));
    hand.now += Duration::millis(150);
    assert!(hand.request(drawn(1), 0).is_none());
    let late = hand.homa.stats();
    assert_eq!((late.restarts, late.late_requests), (0, 1));
    assert!(hand.homa.in_service(in_service));
}

#[test]
fn a_new_life_is_known_by_its_ids_at_once_and_late_packets_of_the_old_one_end_nothing() {
    let mut hand = Hand::linked(4, |_| ());
    hand.request(drawn(1), 0).unwrap();
    let (old, _) = hand.taken(drawn(2));
    let life = 1 << 40;
    let new = hand.request(drawn(life), 0).unwrap();
    assert_eq!(hand.homa.stats().restarts, 1);
    assert!(!hand.homa.in_service(old));
    hand.now += Duration::millis(150);
    // What ran in the old life does not run again, and the new one goes on.
    assert!(hand.request(drawn(2), VERSION).is_none());
    assert!(hand.request(drawn(3), 0).is_some());
    assert_eq!(hand.homa.stats().restarts, 1);
    assert!(hand.homa.take(new).is_some());
}

#[test]
fn a_late_response_is_no_restart_of_its_server() {
    let mut hand = Hand::linked(4, |_| ());
    let (in_service, _) = hand.taken(drawn(1));
    let (_, id) = hand.send(hand.buffer(100), Notify::Never);
    hand.sent();
    let response = |version| Data {
        cutoff_version: version,
        ..data(100, 0)
    };
    let _ = hand.data(id.0 | 1, response(VERSION), 100);
    hand.now += Duration::millis(150);
    let _ = hand.data(id.0 | 1, response(0), 100);
    assert_eq!(hand.homa.stats().restarts, 0);
    assert!(hand.homa.in_service(in_service));
}

/// One lost answer after a long pause must not cost the RPC: 40 ticks of pause, then every five.
#[test]
fn a_peer_that_was_busy_and_falls_silent_is_asked_often_again() {
    let mut hand = Hand::linked(4, |_| ());
    let (_, id) = hand.send(hand.buffer(100), Notify::Never);
    hand.sent();
    for _ in 0..5 {
        let _ = hand.packet(id.0 | 1, &Packet::Busy);
    }
    let asked: Vec<_> = (1..=99)
        .filter(|_| {
            hand.live(1);
            hand.sent().contains(&"RESEND")
        })
        .collect();
    assert_eq!(asked, (40..=95).step_by(5).collect::<Vec<_>>());
}

/// Two long responses, but grants for one only: the server of the other hears that we live, or it
/// would give its response up.
#[test]
fn the_server_of_a_response_that_waits_for_grants_hears_of_us() {
    let mut hand = Hand::linked(64, |params| {
        params.max_incoming_bytes = 1000;
        params.window_bytes = 1000;
        params.grant_fifo_thousandths = 0;
    });
    let ids = [(); 2].map(|()| hand.send(hand.buffer(100), Notify::Never).1);
    hand.sent();
    for id in ids {
        for offset in [0, 1000] {
            let part = Data {
                incoming: 2000,
                ..data(500_000, offset)
            };
            let _ = hand.data(id.0 | 1, part, 1000);
        }
    }
    let mut busys = 0;
    for tick in 0..300 {
        if tick % 50 == 0 {
            // The one with grants makes no progress, but its server is there.
            let _ = hand.packet(ids[0].0 | 1, &Packet::Busy);
        }
        hand.live(1);
        busys += hand.sent().iter().filter(|&&name| name == "BUSY").count();
    }
    assert!((8..=12).contains(&busys), "{busys}");
}

/// Three of four slots may serve. Nobody acknowledges, but one client says that it has no room
/// yet, or asks for what it lacks.
#[test]
fn a_response_that_its_client_still_wants_is_not_given_up_for_a_newcomer() {
    wanted_by(&Packet::Busy);
    wanted_by(&RESEND);
}

fn wanted_by(sign: &Packet<'_>) {
    let mut hand = Hand::linked(4, |params| params.rpcs_max = 4);
    for id in [2, 4, 6] {
        let (rpc, _) = hand.taken(id);
        let replied = hand
            .homa
            .send_response(hand.now, rpc, Payload::EmptyReply, Notify::Never);
        replied.unwrap();
    }
    hand.sent();
    hand.live(20);
    // The first that would go: timers of one tick come last in, first out.
    let _ = hand.packet(6, sign);
    hand.sent();
    assert!(hand.request(8, VERSION).is_some());
    let find = |hand: &mut Hand, id| hand.homa.server_rpc(RpcId(id), Addr::new(PEER, THEIR_PORT));
    assert_eq!(
        [3, 5, 7].map(|id| find(&mut hand, id).is_some()),
        [true, false, true]
    );
    // Once it is silent for long, it goes like the others.
    hand.live(100);
    assert!(hand.request(10, VERSION).is_some() && hand.request(12, VERSION).is_some());
    assert!(find(&mut hand, 7).is_none());
}

/// Two hosts whose calls fill all slots would tell each other to wait for ever.
#[test]
fn calls_leave_a_slot_to_those_who_ask_us() {
    let mut hand = Hand::linked(4, |params| params.rpcs_max = 4);
    for _ in 0..3 {
        hand.send(hand.buffer(100), Notify::Never);
    }
    let (to, payload) = (Addr::new(PEER, THEIR_PORT), hand.buffer(100));
    let fourth = hand
        .homa
        .send_request(hand.now, hand.socket, to, payload, 5, Notify::Never);
    assert_eq!(fourth, Err(Error::Exhausted));
    assert!(hand.request(2, VERSION).is_some());
    // Who serves nobody needs none.
    hand.homa.set_server(hand.socket, false);
    hand.homa.close(hand.now, hand.socket);
    hand.socket = hand.homa.open(0).unwrap();
    for _ in 0..4 {
        hand.send(hand.buffer(100), Notify::Never);
    }
}

/// A late packet of a request reaches a server that restarted; its client, with half the response
/// of the old life, asks for the rest again and again. Only DATA, GRANT and BUSY end a silence, or
/// each would go on because it hears the other, and neither would ask for what the server lacks.
#[test]
fn a_client_that_asks_for_a_response_does_not_stand_for_the_bytes_of_its_request() {
    let mut hand = Hand::linked(4, |_| ());
    let _ = hand.data(2, data(3000, 0), 1000);
    let mut asked = Vec::new();
    for tick in 1..=100 {
        let _ = hand.packet(2, &RESEND);
        hand.live(1);
        if hand.sent().contains(&"RESEND") {
            asked.push(tick);
        }
    }
    assert_eq!(asked.first(), Some(&5));
    assert_eq!(hand.homa.rpc_count(), 0);
}
