//! What each packet draws that is no DATA: an answer, silence, or DATA. Rules IN-28 to IN-58.

use super::*;

const EVERYTHING: Packet<'static> = Packet::Resend(Resend {
    offset: 0,
    length: None,
    priority: 7,
});

fn resend(range: std::ops::Range<u32>) -> Packet<'static> {
    Packet::Resend(Resend {
        offset: range.start,
        length: Some(range.end - range.start),
        priority: 5,
    })
}

fn grant(offset: u32, priority: u8) -> Packet<'static> {
    Packet::Grant(wire::Grant { offset, priority })
}

/// As the Linux module sends 20,000 B of which the first 2,000 need no grant.
fn sparing() -> Rig {
    let params = Params {
        unsched_bytes: 2000,
        ..Params::default()
    };
    Rig::with(params, 16)
}

/// Rule IN-28.
#[test]
fn a_request_in_service_answers_a_resend_with_busy() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.hear(PEER, 8, &EVERYTHING);
    assert_eq!(rig.sent(), [Out::Other(9, "BUSY")]);
    rig.serve().unwrap();
    rig.hear(PEER, 8, &EVERYTHING);
    assert_eq!(rig.sent(), [Out::Other(9, "BUSY")]);
}

/// Rule IN-46.
#[test]
fn a_request_that_is_here_in_part_answers_a_resend_with_busy() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &Packet::Data(data(2000, 0), &[0; 1000]));
    rig.hear(PEER, 8, &EVERYTHING);
    assert_eq!(rig.sent(), [Out::Other(9, "BUSY")]);
}

/// Rule IN-52: the response is there, but none of it went out so far.
#[test]
fn a_response_of_which_nothing_was_sent_answers_a_resend_with_busy() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(1000);
    rig.hear(PEER, 8, &EVERYTHING);
    assert_eq!(rig.sent(), [Out::Other(9, "BUSY"), Out::Data(9, 0..1000)]);
}

/// Rule IN-30.
#[test]
fn unknown_and_grant_for_nobody_draw_nothing() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    for packet in [Packet::Unknown, grant(1000, 0), Packet::Busy] {
        for id in [10, 11] {
            assert!(!rig.hear(PEER, id, &packet), "{}", packet.name());
        }
    }
    assert_eq!((rig.sent(), rig.homa.rpc_count()), (vec![], 1));
    assert_eq!(rig.homa.stats().unknown_rpc, 6);
}

/// Rule IN-31.
#[test]
fn cutoffs_count_whatever_rpc_they_name() {
    let mut rig = Rig::new();
    rig.call(10);
    let cutoffs = wire::Cutoffs {
        unsched_cutoffs: [0, 0, 0, 1_000_000, 0, 0, 0, 100],
        version: 6,
    };
    rig.hear(PEER, 999, &Packet::Cutoffs(cutoffs));
    for (len, priority) in [(100, 7), (101, 3)] {
        let (to, payload) = (PEER, zeros(len));
        let called = rig
            .homa
            .send_request(rig.now, rig.socket, to, payload, 1, Notify::Never);
        called.unwrap();
        let sent = rig.data_sent();
        assert_eq!((sent[0].0, sent[0].1.cutoff_version), (priority, 6));
    }
}

/// Rules IN-32, OUT-09: ports and id change sides.
#[test]
fn a_resend_for_nobody_draws_unknown() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &EVERYTHING);
    let packets = rig.packets();
    let (common, packet) = wire::parse(&packets[0].1).unwrap();
    assert_eq!((packets.len(), packet), (1, Packet::Unknown));
    let expected = Common {
        sport: PORT,
        dport: PEER.port,
        id: RpcId(9),
    };
    assert_eq!((common, packets[0].0), (expected, 7));
}

/// Rule IN-37.
#[test]
fn an_ack_that_rides_on_data_ends_its_rpc_and_the_data_counts() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(10);
    rig.sent();
    let riding = Data {
        ack: Some(ack(8)),
        ..data(1, 0)
    };
    assert!(rig.hear(PEER, 10, &Packet::Data(riding, b"y")));
    assert_eq!((rig.homa.rpc_count(), rig.announced()), (1, 1));
}

/// Rule IN-35.
#[test]
fn each_ack_packet_of_a_burst_counts() {
    let mut rig = Rig::new();
    for id in [8, 10, 12] {
        rig.request(PEER, id, b"x");
        rig.answer(10);
    }
    for id in [8, 10, 12] {
        rig.hear(PEER, id, &Packet::Ack(wire::Acks::default()));
    }
    assert_eq!(rig.homa.rpc_count(), 0);
}

/// Rule IN-43: one in a tick, however many packets are under wrong cutoffs; a known version none.
#[test]
fn wrong_cutoffs_are_told_once_in_a_tick() {
    let mut rig = Rig::new();
    let under = |rig: &mut Rig, id, cutoff_version| {
        let data = Data {
            cutoff_version,
            ..data(1, 0)
        };
        rig.hear(PEER, id, &Packet::Data(data, b"x"));
        rig.sent().iter().filter(|out| out.is("CUTOFFS")).count()
    };
    assert_eq!(under(&mut rig, 8, 3), 1);
    assert_eq!(under(&mut rig, 10, 4), 0);
    rig.pass(1);
    assert_eq!(under(&mut rig, 12, 4), 1);
    rig.pass(1);
    assert_eq!(under(&mut rig, 14, 1), 0);
}

/// Rule IN-45.
#[test]
fn a_grant_counts_where_something_is_to_be_sent_and_only_upward() {
    let mut rig = sparing();
    let (_, id) = rig.call(5000);
    rig.hear(PEER, id ^ 1, &grant(1000, 2));
    assert_eq!(rig.sent(), []);
    rig.hear(PEER, id ^ 1, &grant(3500, 2));
    // The first goes on where the unscheduled bytes ended; one that begins below goes out whole.
    assert_eq!(
        rig.sent(),
        [Out::Data(id, 2000..3424), Out::Data(id, 3424..4848)]
    );
    rig.hear(PEER, id ^ 1, &grant(u32::MAX, 1));
    assert_eq!(
        rig.data_sent()
            .iter()
            .map(|sent| sent.0)
            .collect::<Vec<_>>(),
        [1]
    );
    // A server has nothing to send before it answers.
    rig.request(PEER, 8, b"x");
    assert!(!rig.hear(PEER, 8, &grant(100, 0)));
    assert_eq!((rig.sent(), rig.homa.stats().out_of_place), (vec![], 1));
}

/// Rules IN-47, OUT-16: marked, at the priority asked for.
#[test]
fn a_resend_of_everything_draws_what_was_sent() {
    let mut rig = sparing();
    let (_, id) = rig.call(20_000);
    rig.hear(PEER, id ^ 1, &EVERYTHING);
    let sent = rig.data_sent();
    let parts: Vec<_> = sent.iter().map(|(_, data)| data.offset).collect();
    assert_eq!(parts, [0, 1424]);
    assert!(
        sent.iter()
            .all(|(priority, data)| *priority == 7 && data.retransmit)
    );
}

/// Rule OUT-17: a receiver that lost its state takes no more for granted than was asked for.
#[test]
fn a_retransmission_announces_the_end_of_what_was_asked_for() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(20_000);
    rig.hear(PEER, id ^ 1, &resend(1424..4272));
    let sent = rig.data_sent();
    let announced: Vec<_> = sent.iter().map(|(_, data)| data.incoming).collect();
    assert_eq!(announced, [4272, 4272]);
    assert!(sent.iter().all(|(priority, _)| *priority == 5));
}

/// Rule IN-50: it grants up to its end, and the packet that holds the end goes out whole.
#[test]
fn a_resend_past_the_grant_raises_it() {
    let mut rig = sparing();
    let (_, id) = rig.call(20_000);
    rig.hear(PEER, id ^ 1, &resend(2000..3500));
    let sent = rig.data_sent();
    let parts: Vec<_> = sent
        .iter()
        .map(|(_, data)| (data.offset, data.retransmit))
        .collect();
    assert_eq!(parts, [(2000, false), (3424, false)]);
    rig.hear(PEER, id ^ 1, &resend(4848..u32::MAX));
    assert_eq!(rig.sent().len(), 11, "15,152 B");
    rig.hear(PEER, id ^ 1, &grant(u32::MAX, 0));
    assert_eq!(rig.sent(), []);
}

/// Rules IN-51, OUT-13: nobody wants it any more.
#[test]
fn an_rpc_that_ends_while_it_resends_sends_no_more() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(20_000);
    rig.sent();
    rig.hear(PEER, 8, &EVERYTHING);
    rig.hear(PEER, 8, &Packet::Ack(wire::Acks::default()));
    assert_eq!((rig.sent(), rig.homa.rpc_count()), (vec![], 0));
}

/// Rule IN-53: as far as it was granted, marked, whole.
#[test]
fn an_unknown_draws_the_request_again_as_far_as_it_was_granted() {
    let mut rig = sparing();
    let (_, id) = rig.call(20_000);
    rig.hear(PEER, id ^ 1, &Packet::Unknown);
    let sent = rig.data_sent();
    let parts: Vec<_> = sent
        .iter()
        .map(|(_, data)| (data.offset, data.incoming))
        .collect();
    assert_eq!(parts, [(0, 2000), (1424, 2000)]);
    assert!(sent.iter().all(|(_, data)| data.retransmit));
}

/// Rule IN-54.
#[test]
fn an_unknown_ends_a_server_rpc_in_any_state() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &Packet::Data(data(2000, 0), &[0; 1000]));
    rig.request(PEER, 10, b"x");
    rig.answer(20_000);
    rig.request(PEER, 12, b"x");
    let message = rig.serve().unwrap();
    for id in [8, 10, 12] {
        rig.hear(PEER, id, &Packet::Unknown);
    }
    assert_eq!((rig.homa.rpc_count(), rig.sent()), (0, vec![]));
    rig.reply(message.rpc, 10);
    assert_eq!(rig.sent(), []);
    assert!(rig.homa.release(rig.now, message.run) && rig.homa.free_pages() == 16);
}

/// Rules IN-55, IN-57: what is here whole, and what was never heard of; saved acks ride along.
#[test]
fn a_need_ack_for_what_is_here_or_unknown_draws_an_ack() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    rig.response(PEER, id, 30, 0..30);
    assert_eq!(rig.outcome(), Some(Ok(30)));
    rig.hear(PEER, 999, &Packet::NeedAck);
    let packets = rig.packets();
    let (common, packet) = wire::parse(&packets[0].1).unwrap();
    let saved = Ack {
        client_id: RpcId(id),
        server_port: PEER.port,
    };
    assert_eq!((packets.len(), common.id), (1, RpcId(998)));
    assert_eq!(
        packet,
        Packet::Ack(wire::Acks([saved].into_iter().collect()))
    );
    rig.hear(PEER, id ^ 1, &Packet::NeedAck);
    assert_eq!(rig.sent(), [Out::Other(id, "ACK")]);
}

/// Rule IN-56.
#[test]
fn a_need_ack_for_what_is_missing_draws_a_resend() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(10);
    rig.pass(1);
    rig.hear(PEER, id ^ 1, &Packet::NeedAck);
    assert_eq!(rig.sent(), [Out::Resend(id, 0, None)]);
    rig.pass(1);
    rig.response(PEER, id, 3000, 0..1000);
    rig.hear(PEER, id ^ 1, &Packet::NeedAck);
    assert_eq!(rig.sent(), [Out::Resend(id, 1000, Some(2000))]);
}

/// Rules IN-05, OUT-08: both the RESEND and what it asks for have the highest priority.
#[test]
fn control_packets_have_the_highest_priority() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &Packet::Data(data(2000, 0), &[0; 1000]));
    rig.hear(PEER, 8, &EVERYTHING);
    rig.hear(PEER, 10, &EVERYTHING);
    rig.hear(PEER, 999, &Packet::NeedAck);
    let mut packets = rig.packets();
    for _ in 0..6 {
        rig.now += rig.homa.params().tick;
        rig.homa.handle_timeout(rig.now);
        packets.extend(rig.packets());
    }
    let mut names = Vec::new();
    for (priority, bytes) in packets {
        let (_, packet) = wire::parse(&bytes).unwrap();
        if let Packet::Resend(resend) = &packet {
            assert_eq!(resend.priority, 7);
        }
        assert_eq!(priority, 7, "{}", packet.name());
        names.push(packet.name());
    }
    assert_eq!(names, ["BUSY", "RPC_UNKNOWN", "ACK", "RESEND"]);
}
