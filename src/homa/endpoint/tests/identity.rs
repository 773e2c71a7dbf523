//! Who an RPC belongs to, and that each request runs once. Decisions 9 to 14, 20, 22.

use super::*;

#[test]
fn ids_are_even_and_begin_anywhere() {
    let mut ids = Vec::new();
    for seed in 1..20 {
        let params = Params {
            seed,
            ..Params::default()
        };
        let mut rig = Rig::with(params, 16);
        ids.extend([rig.call(10).1, rig.call(10).1]);
    }
    assert!(ids.iter().all(|id| id % 2 == 0), "{ids:?}");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "no id comes twice");
}

#[test]
fn a_late_copy_of_a_request_that_was_acknowledged_does_not_run() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"once");
    rig.answer(10);
    rig.sent();
    rig.hear(PEER, 8, &Packet::Ack(wire::Acks::default()));
    assert_eq!(rig.homa.rpc_count(), 0);
    assert!(!rig.request(PEER, 8, b"once"));
    assert_eq!((rig.announced(), rig.homa.stats().late_requests), (0, 1));
    // RPC_UNKNOWN in answer to this would draw the whole request.
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    rig.hear(PEER, 8, &Packet::Resend(everything));
    assert_eq!(rig.sent(), []);
    // After 10 s and a hundredth nobody remembers.
    rig.now += Duration::millis(10_010);
    assert!(rig.request(PEER, 8, b"once"));
}

/// Case C012: whatever its stage, bytes that came count once.
#[test]
fn a_copy_of_a_request_changes_nothing_at_any_stage() {
    let mut rig = Rig::new();
    let bytes = [7; 1000];
    let part = |rig: &mut Rig, offset| rig.hear(PEER, 8, &Packet::Data(data(2000, offset), &bytes));
    part(&mut rig, 0);
    assert!(!part(&mut rig, 0));
    part(&mut rig, 1000);
    assert!(!part(&mut rig, 1000));
    let message = rig.serve().unwrap();
    assert_eq!((message.len, rig.announced()), (2000, 0));
    part(&mut rig, 0);
    rig.reply(message.rpc, 10);
    rig.sent();
    part(&mut rig, 0);
    assert_eq!((rig.announced(), rig.homa.rpc_count()), (0, 1));
    assert_eq!(rig.homa.stats().duplicates, 4);
}

#[test]
fn requests_of_one_id_from_two_ports_are_two() {
    let mut rig = Rig::new();
    let other = Addr::new(PEER.ip, PEER.port + 1);
    rig.request(PEER, 8, b"one");
    rig.request(other, 8, b"two");
    let peers = [rig.answer(10).peer, rig.answer(10).peer];
    assert_eq!(peers, [PEER, other]);
}

/// Case C052: the lowest bit tells whose number it is.
#[test]
fn a_number_means_one_rpc_as_client_and_another_as_server() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    rig.request(PEER, id, b"the same number");
    assert_eq!(rig.answer(20).id, RpcId(id | 1));
    rig.response(PEER, id, 30, 0..30);
    assert_eq!(rig.outcome(), Some(Ok(30)));
}

#[test]
fn only_its_destination_may_answer_a_request() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    let elsewhere = [
        Addr::new(PEER.ip, PEER.port + 1),
        Addr::new(Ip::v4(10, 0, 0, 3), PEER.port),
    ];
    for from in elsewhere {
        assert!(!rig.response(from, id, 30, 0..30));
        rig.hear(from, id ^ 1, &Packet::Busy);
        rig.hear(from, id ^ 1, &Packet::Unknown);
        rig.unreachable(from, PORT, id);
    }
    assert_eq!((rig.outcome(), rig.sent()), (None, vec![]));
    rig.response(PEER, id, 30, 0..30);
    assert_eq!(rig.outcome(), Some(Ok(30)));
}

/// The notice quotes a packet of ours: from our port, to the RPC's peer, with its id.
#[test]
fn an_unreachable_notice_ends_the_rpc_that_it_quotes_and_no_other() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    let (_, other) = rig.call(10);
    rig.unreachable(PEER, PORT + 1, id);
    rig.unreachable(PEER, PORT, id + (1 << 21));
    rig.unreachable(PEER, PORT, id | 1);
    assert_eq!(rig.outcome(), None);
    rig.unreachable(PEER, PORT, id);
    assert_eq!(rig.outcome(), Some(Err(Error::NotConnected)));
    assert_eq!(rig.homa.stats().unknown_rpc, 3);
    rig.response(PEER, other, 30, 0..30);
    assert_eq!(rig.outcome(), Some(Ok(30)));
}

/// It is older than the response, which needs the peer no more.
#[test]
fn an_unreachable_notice_takes_no_response_that_is_here() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    rig.response(PEER, id, 30, 0..30);
    rig.unreachable(PEER, PORT, id);
    assert_eq!(rig.outcome(), Some(Ok(30)));
}

/// A client that closed will neither take the response nor acknowledge it.
#[test]
fn an_unreachable_client_ends_its_server_rpc() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(10);
    rig.sent();
    rig.unreachable(Addr::new(PEER.ip, PEER.port + 1), PORT, 9);
    assert_eq!(rig.homa.rpc_count(), 1);
    rig.unreachable(PEER, PORT, 9);
    assert_eq!((rig.homa.rpc_count(), rig.sent()), (0, vec![]));
}

/// Even to a client whose RPC ran and is remembered: silence would cost it its whole timeout.
#[test]
fn a_port_that_closed_is_told_to_whoever_asks_for_more() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.serve().unwrap();
    rig.homa.close(rig.now, rig.socket);
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    assert_eq!(
        rig.verdict(PEER, 8, &Packet::Resend(everything)),
        Verdict::PortUnreachable
    );
    let packet = Packet::Data(data(1, 0), b"x");
    assert_eq!(rig.verdict(PEER, 10, &packet), Verdict::PortUnreachable);
    assert_eq!((rig.sent(), rig.homa.stats().unknown_port), (vec![], 2));
}

/// Case C050: what an ACK names in vain does not keep it from naming others.
#[test]
fn an_ack_frees_the_rpcs_of_its_sender_only() {
    let mut rig = Rig::new();
    for id in [8, 10] {
        rig.request(PEER, id, b"x");
        rig.answer(10);
    }
    rig.sent();
    let other_port = Ack {
        server_port: PORT + 1,
        ..ack(8)
    };
    let acks = wire::Acks([other_port, ack(77), ack(9), ack(8)].into_iter().collect());
    rig.hear(
        Addr::new(Ip::v4(10, 0, 0, 3), PEER.port),
        10,
        &Packet::Ack(acks.clone()),
    );
    assert_eq!(rig.homa.rpc_count(), 2);
    // Rule RP-06: nor do those of another port of ours.
    let only_other = wire::Acks([other_port].into_iter().collect());
    rig.hear(PEER, 900, &Packet::Ack(only_other));
    assert_eq!(rig.homa.rpc_count(), 2);
    rig.hear(PEER, 10, &Packet::Ack(acks));
    assert_eq!(rig.homa.rpc_count(), 0);
}

/// A client that begins anew with the ids it had: no copy of the old lives on. Decision 12.
#[test]
fn a_restarted_client_is_not_taken_for_its_earlier_self() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"done");
    rig.answer(10);
    rig.request(PEER, 10, b"served");
    let served = rig.serve().unwrap();
    rig.request(PEER, 12, b"answered");
    rig.answer(10);
    rig.sent();
    rig.now += Duration::millis(100);
    // The new life knows no cutoffs of ours; its first request is in two packets.
    for (id, offset) in [(8, 0), (8, 1000), (10, 0), (10, 1000), (12, 0), (12, 1000)] {
        let data = Data {
            cutoff_version: 0,
            ..data(2000, offset)
        };
        rig.hear(PEER, id, &Packet::Data(data, &[1; 1000]));
    }
    assert_eq!(rig.homa.stats().restarts, 1);
    rig.sent();
    // An answer to the old life must not reach the new one.
    rig.reply(served.rpc, 50);
    assert_eq!(rig.sent(), []);
    assert!(rig.homa.release(rig.now, served.run));
    for id in [8, 10, 12] {
        assert_eq!(rig.answer(30).id, RpcId(id | 1));
        assert_eq!(rig.sent(), [Out::Data(id | 1, 0..30)]);
    }
    assert_eq!((rig.announced(), rig.homa.rpc_count()), (0, 3));
}

/// Case C009.
#[test]
fn an_unknown_that_is_older_than_the_truth_costs_a_retransmission_at_most() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(2000);
    rig.hear(PEER, id ^ 1, &Packet::Unknown);
    let again = [Out::Data(id, 0..1424), Out::Data(id, 1424..2000)];
    assert_eq!(rig.sent(), again);
    rig.response(PEER, id, 3000, 0..1000);
    rig.hear(PEER, id ^ 1, &Packet::Unknown);
    assert_eq!((rig.sent(), rig.homa.stats().late_unknowns), (vec![], 1));
    rig.response(PEER, id, 3000, 1000..2000);
    rig.response(PEER, id, 3000, 2000..3000);
    rig.hear(PEER, id ^ 1, &Packet::Unknown);
    assert_eq!((rig.sent(), rig.outcome()), (vec![], Some(Ok(3000))));
    rig.hear(PEER, id ^ 1, &Packet::Unknown);
    assert_eq!((rig.sent(), rig.outcome()), (vec![], None));
}

/// The bytes 500..1000 came already, the others did not. Decision 22.
#[test]
fn what_is_new_in_a_packet_that_overlaps_is_used() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &Packet::Data(data(1500, 0), &[1; 1000]));
    rig.hear(PEER, 8, &Packet::Data(data(1500, 500), &[2; 1000]));
    let message = rig.serve().unwrap();
    let mut bytes = [0; 1500];
    rig.homa.region().read(message.offset as usize, &mut bytes);
    assert!(bytes[..1000].iter().all(|&byte| byte == 1));
    assert!(bytes[1000..].iter().all(|&byte| byte == 2));
}
