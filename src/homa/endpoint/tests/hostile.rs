//! What bent packets and small lies lead to: a counter goes up, and no more. Decisions 16, 20.

use super::*;

/// Case C014, and decision 20 in the first two.
#[test]
fn data_outside_its_message_is_dropped_and_counted() {
    let mut rig = Rig::new();
    let bytes = [1; 1400];
    let cases = [
        (data(0, 0), 0),
        (data(0, 0), 1),
        (data(10_000, 0), 0),
        (data(10_000, 0xffff_fff0), 1400),
        (data(10_000, 9000), 1400),
        (data(10_000, 10_000), 1),
        (data(10_000, 2_000_000), 1),
        (data(1_000_001, 0), 1400),
        (data(u32::MAX, u32::MAX - 1), 1),
    ];
    for (data, len) in cases {
        let is_taken = rig.hear(PEER, 8, &Packet::Data(data, &bytes[..len]));
        assert!(!is_taken, "{data:?}");
    }
    assert_eq!(rig.homa.stats().bad_data, 9);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 16));
}

#[test]
fn a_message_keeps_the_length_that_its_first_packet_told() {
    let mut rig = Rig::new();
    rig.hear(PEER, 8, &Packet::Data(data(2000, 0), &[1; 1000]));
    let other = Packet::Data(data(2001, 1000), &[1; 1001]);
    assert!(!rig.hear(PEER, 8, &other));
    assert_eq!((rig.homa.stats().bad_data, rig.announced()), (1, 0));
}

/// Case C016: every type cut to every length, and every type there is not.
#[test]
fn short_packets_and_unknown_types_are_malformed() {
    let mut rig = Rig::new();
    let meta = Meta {
        from: PEER.ip,
        to: OURS,
    };
    let (mut malformed, mut bytes) = (0, [0; 100]);
    let lens = [56, 33, 37, 28, 28, 62, 28, 28, 80]; // From DATA, 0x10, to ACK, 0x18.
    for kind in 0..=255u8 {
        bytes[11] = kind;
        let needs = lens.get(usize::from(kind).wrapping_sub(0x10)).copied();
        for len in 0..needs.unwrap_or(100) {
            let _ = rig
                .homa
                .handle_packet(rig.now, meta, &bytes[..len], &mut Endpoint::keep_event);
            malformed += 1;
            assert_eq!(rig.homa.stats().malformed, malformed, "{kind:#x} {len}");
        }
    }
    assert_eq!((rig.homa.rpc_count(), rig.sent()), (0, vec![]));
}

/// Case C015, rule IN-59. The five that are there end their RPCs; what lies behind them is no ack.
#[test]
fn an_ack_that_claims_more_than_five_names_five() {
    let mut rig = Rig::new();
    for id in (8..20).step_by(2) {
        rig.request(PEER, id, b"x");
        rig.answer(10);
    }
    rig.sent();
    let common = Common {
        sport: PEER.port,
        dport: PORT,
        id: RpcId(100),
    };
    let mut bytes = [0; 200];
    let acks = wire::Acks((8..18).step_by(2).map(ack).collect());
    wire::emit(&common, &Packet::Ack(acks), &mut bytes);
    bytes[28..30].copy_from_slice(&u16::to_be_bytes(0xffff));
    bytes[80..88].copy_from_slice(&u64::to_be_bytes(18));
    bytes[88..90].copy_from_slice(&PORT.to_be_bytes());
    let meta = Meta {
        from: PEER.ip,
        to: OURS,
    };
    let verdict = rig
        .homa
        .handle_packet(rig.now, meta, &bytes, &mut Endpoint::keep_event);
    assert_eq!((verdict, rig.homa.rpc_count()), (Verdict::Taken, 1));
}

/// Case C011's other side, and the bound on amplification: a hundred RESENDs of 37 B draw the
/// 14,240 B of the response twice at most in one interval of five ticks, and after it again.
#[test]
fn asking_often_draws_the_message_about_once_an_interval() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(14_240);
    assert_eq!(rig.sent().len(), 10);
    for interval in 0..3 {
        let mut drawn = 0;
        for n in 0..100 {
            let length = Some([1, 1424, 2000, 14_240, u32::MAX - 1][n % 5]);
            let offset = [0, 1424, 5000, 14_000][n % 4];
            let resend = Resend {
                offset,
                length,
                priority: 7,
            };
            rig.hear(PEER, 8, &Packet::Resend(resend));
            if n % 10 == 0 {
                let outs = rig.sent();
                drawn += outs.iter().filter(|out| out.is("DATA")).count();
            }
        }
        drawn += rig.sent().len();
        assert!((1..=11).contains(&drawn), "{drawn} in interval {interval}");
        rig.pass(1);
        drawn = rig.sent().len();
        assert_eq!(drawn, 0);
        rig.pass(4);
    }
}

/// 0 means "none yet" in DATA: with it our server would take us for one that restarted, and
/// forget which of our requests it ran.
#[test]
fn cutoffs_of_version_0_are_not_believed() {
    let mut rig = Rig::new();
    rig.call(10);
    let version = |version| {
        Packet::Cutoffs(wire::Cutoffs {
            unsched_cutoffs: [1_000_000; 8],
            version,
        })
    };
    assert!(rig.hear(PEER, 9, &version(3)));
    assert!(!rig.hear(PEER, 9, &version(0)));
    let peer = rig.homa.peers.find(PEER.ip).unwrap();
    assert_eq!(rig.homa.peers.get(peer).cutoffs.version, 3);
}

/// Two hostile packets come for each one that we can send, and each wants an answer.
#[test]
fn answers_to_strangers_do_not_keep_our_own_data_from_going_out() {
    let mut rig = Rig::new();
    let called = rig
        .homa
        .send_request(rig.now, rig.socket, PEER, zeros(40_000), 5, Notify::Never);
    assert!(called.is_ok());
    rig.resolve();
    let (mut room, mut data_sent) = ([0; 1600], 0);
    for id in 0..60 {
        for n in 0..32 {
            rig.hear(
                Addr::new(Ip::v4(10, 0, 0, 9), 1),
                id * 64 + n * 2 + 1,
                &Packet::NeedAck,
            );
        }
        for _ in 0..16 {
            let sent = rig.homa.poll_transmit(rig.now, &mut room);
            let (_, packet) = wire::parse(&room[..usize::from(sent.unwrap().len.get())]).unwrap();
            data_sent += usize::from(matches!(packet, Packet::Data(..)));
        }
    }
    assert_eq!(data_sent, 29); // All 40,000 B of it.
}
