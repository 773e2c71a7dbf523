//! Messages as they go out: cuts, fields, priorities, acks. Rules OUT-01 to OUT-14, TM-05.

use super::*;

fn call(rig: &mut Rig, len: u32) -> u64 {
    let (socket, now) = (rig.socket, rig.now);
    let called = rig
        .homa
        .send_request(now, socket, PEER, zeros(len), 1, Notify::Never);
    called.unwrap().1.0
}

/// Rules OUT-01, OUT-10: 3,000 B in packets of 1,424 B.
#[test]
fn a_message_is_cut_into_full_packets_that_all_tell_its_length() {
    let mut rig = Rig::new();
    call(&mut rig, 3000);
    let sent = rig.data_sent();
    let parts: Vec<_> = sent.iter().map(|(_, data)| data.offset).collect();
    assert_eq!(parts, [0, 1424, 2848]);
    for (priority, data) in &sent {
        assert_eq!((data.message_length, data.incoming), (3000, 3000));
        assert!(!data.retransmit);
        assert_eq!(*priority, 6, "the peer told no cutoffs so far");
    }
}

/// Rule OUT-02.
#[test]
fn a_message_of_no_or_too_many_bytes_is_refused_and_nothing_kept() {
    let mut rig = Rig::new();
    let message = {
        rig.request(PEER, 8, &[1; 1000]);
        rig.serve().unwrap()
    };
    let empty = Payload::Received {
        run: message.run,
        start: 0,
        len: 0,
    };
    let beyond = Payload::Received {
        run: message.run,
        start: 1,
        len: 1000,
    };
    for (payload, error) in [
        (empty, Error::Invalid),
        (beyond, Error::Invalid),
        (zeros(1_000_001), Error::MessageTooLong),
    ] {
        let refused = rig
            .homa
            .send_request(rig.now, rig.socket, PEER, payload, 1, Notify::Never);
        assert_eq!(refused.map(|_| ()), Err(error));
    }
    let refused = rig
        .homa
        .send_response(rig.now, message.rpc, zeros(1_000_001), Notify::Never);
    assert_eq!(refused, Err(Error::MessageTooLong));
    assert_eq!((rig.sent(), rig.homa.rpc_count()), (vec![], 1));
    assert!(rig.homa.release(rig.now, message.run) && rig.homa.free_pages() == 16);
}

/// Rule OUT-07: the newest first, one in each packet, each once.
#[test]
fn a_saved_ack_rides_in_each_data_packet_while_there_are_some() {
    let mut rig = Rig::new();
    let ids: Vec<u64> = (0..2).map(|_| rig.call(10).1).collect();
    for &id in &ids {
        rig.response(PEER, id, 30, 0..30);
        assert_eq!(rig.outcome(), Some(Ok(30)));
    }
    call(&mut rig, 4000);
    let acks: Vec<_> = rig.data_sent().iter().map(|(_, data)| data.ack).collect();
    let ack = |id| {
        Some(Ack {
            client_id: RpcId(id),
            server_port: PEER.port,
        })
    };
    assert_eq!(acks, [ack(ids[1]), ack(ids[0]), None]);
    // In a message of one packet too, which goes another way.
    let (_, last) = rig.call(10);
    rig.response(PEER, last, 30, 0..30);
    call(&mut rig, 10);
    assert_eq!(rig.data_sent()[0].1.ack, ack(last));
}

/// Rule OUT-10: what was granted goes out at the grant's priority.
#[test]
fn granted_bytes_have_the_priority_of_their_grant() {
    let mut rig = Rig::new();
    let id = call(&mut rig, 42_000);
    assert!(rig.data_sent().iter().all(|(priority, _)| *priority == 6));
    let grant = wire::Grant {
        offset: 42_000,
        priority: 2,
    };
    rig.hear(PEER, id ^ 1, &Packet::Grant(grant));
    let sent = rig.data_sent();
    let parts: Vec<_> = sent
        .iter()
        .map(|(level, data)| (*level, data.offset))
        .collect();
    assert_eq!(parts, [(2, 40_000), (2, 41_424)]);
    assert!(sent.iter().all(|(_, data)| data.incoming == 40_000));
}

/// Rule OUT-08: ids and ports by role.
#[test]
fn packets_name_the_rpc_as_their_sender_knows_it() {
    let mut rig = Rig::new();
    let id = call(&mut rig, 10);
    rig.request(PEER, 8, b"x");
    rig.answer(10);
    let mut headers: Vec<_> = rig
        .packets()
        .iter()
        .map(|(_, bytes)| wire::parse(bytes).unwrap().0)
        .collect();
    headers.sort_by_key(|common| common.id);
    let common = |id| Common {
        sport: PORT,
        dport: PEER.port,
        id: RpcId(id),
    };
    assert_eq!(headers, [common(9), common(id)]);
    assert!(id.is_multiple_of(2));
}

/// Rule TM-05: what is not sent yet is ours to send; nobody is silent. There is no link.
#[test]
fn a_peer_is_not_silent_while_we_have_yet_to_send() {
    let mut rig = Rig::new();
    call(&mut rig, 10);
    for _ in 0..300 {
        rig.now += rig.homa.params().tick;
        rig.homa.handle_timeout(rig.now);
    }
    assert_eq!((rig.homa.stats().timeouts, rig.homa.rpc_count()), (0, 1));
    assert_eq!(rig.sent().len(), 1, "and no RESEND");
    rig.pass(100);
    assert_eq!((rig.homa.stats().timeouts, rig.homa.rpc_count()), (1, 0));
}

/// Rule TM-01: not while bytes are unsent, for want of a grant.
#[test]
fn no_ack_is_asked_for_before_the_whole_response_is_out() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(41_000);
    rig.sent();
    assert!(ticks_of("NEED_ACK", &rig.pass(50)).is_empty());
    let grant = wire::Grant {
        offset: 41_000,
        priority: 0,
    };
    rig.hear(PEER, 8, &Packet::Grant(grant));
    assert_eq!(rig.sent(), [Out::Data(9, 40_000..41_000)]);
    assert_eq!(ticks_of("NEED_ACK", &rig.pass(3)), [2, 3]);
}

/// Rule PE-07, adapted: 16 acks wait; the 17th makes them go out, five to a packet.
#[test]
fn acks_that_nothing_carries_go_out_by_themselves() {
    let mut rig = Rig::new();
    let mut named = 0;
    for n in 1..=17 {
        let (_, id) = rig.call(10);
        // The call took one ack along.
        named += u32::from(n > 1);
        rig.response(PEER, id, 30, 0..30);
        rig.outcome();
    }
    assert_eq!((named, rig.sent()), (16, vec![]));
    let ids: Vec<u64> = {
        let (socket, now) = (rig.socket, rig.now);
        let calls = (0..18).map(|_| {
            let called = rig
                .homa
                .send_request(now, socket, PEER, zeros(10), 1, Notify::Never);
            called.unwrap().1.0
        });
        calls.collect()
    };
    rig.sent();
    for &id in &ids {
        rig.response(PEER, id, 30, 0..30);
        rig.outcome();
    }
    let mut acked = 0;
    for (_, bytes) in rig.packets() {
        let Packet::Ack(acks) = wire::parse(&bytes).unwrap().1 else {
            panic!("only ACKs are to be sent");
        };
        acked += 1 + acks.0.len();
    }
    assert!((17..=18).contains(&acked), "{acked}");
}

/// What an endpoint sends in a scene in which each type of packet occurs, into memory full of
/// `fill`.
fn scene(fill: u8) -> Vec<Vec<u8>> {
    let mut rig = Rig::new();
    let mut packets = Vec::new();
    let mut drain = |rig: &mut Rig| {
        rig.resolve();
        loop {
            let mut room = [fill; 1600];
            let Some(sent) = rig.homa.poll_transmit(rig.now, &mut room) else {
                return;
            };
            packets.push(room[..usize::from(sent.len.get())].to_vec());
        }
    };
    let (socket, resend) = (rig.socket, RESEND_ALL);
    let called = rig
        .homa
        .send_request(rig.now, socket, PEER, zeros(3_000), 1, Notify::Never);
    let id = called.unwrap().1.0;
    drain(&mut rig);
    rig.hear(PEER, id ^ 1, &resend); // DATA again.
    rig.hear(PEER, 900, &resend); // UNKNOWN
    rig.request(PEER, 2, b"x");
    let taken = rig.serve().unwrap();
    rig.hear(PEER, 2, &resend); // BUSY
    let unaware = Data {
        cutoff_version: 0,
        incoming: 1_400,
        ..data(100_000, 0)
    };
    rig.hear(PEER, 4, &Packet::Data(unaware, &[0; 1_400])); // CUTOFFS
    let second = Data {
        incoming: 1,
        ..data(100_000, 1_400)
    };
    rig.hear(PEER, 4, &Packet::Data(second, &[0; 1_400])); // GRANT
    rig.reply(taken.rpc, 10); // NEED_ACK
    rig.response(PEER, id, 10, 0..10);
    rig.hear(PEER, id ^ 1, &Packet::NeedAck); // ACK, with a saved one
    rig.hear(PEER, 901, &Packet::NeedAck);
    drain(&mut rig);
    for _ in 0..10 {
        rig.now += Duration::millis(1);
        rig.homa.handle_timeout(rig.now); // RESEND
        drain(&mut rig);
    }
    packets
}

const RESEND_ALL: Packet<'static> = Packet::Resend(Resend {
    offset: 0,
    length: None,
    priority: 7,
});

/// Field case C018.
#[test]
fn no_byte_that_lay_in_the_frame_before_leaves_with_it() {
    let (packets, others) = (scene(0xa5), scene(0));
    assert_eq!(packets, others);
    let names = packets.iter().map(|packet| wire::parse(packet).unwrap().1);
    let names: std::collections::BTreeSet<_> = names.map(|packet| packet.name()).collect();
    let all = [
        "ACK",
        "BUSY",
        "CUTOFFS",
        "DATA",
        "GRANT",
        "NEED_ACK",
        "RESEND",
        "RPC_UNKNOWN",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), all);
}
