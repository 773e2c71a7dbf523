//! When the peer is asked, how often, and when it is given up. Decisions 15, 16, 18.

use super::*;

/// At ticks 2 to 10, then every 50, and no more at 5,000.
#[test]
fn a_client_is_asked_for_its_ack_and_given_up_after_five_seconds() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    rig.answer(10);
    rig.sent();
    let sent = rig.pass(6000);
    let asked = ticks_of("NEED_ACK", &sent);
    let expected: Vec<usize> = (2..=10).chain((60..5000).step_by(50)).collect();
    assert_eq!(asked, expected);
    assert_eq!((rig.homa.rpc_count(), rig.homa.stats().unacked), (0, 1));
    // It is remembered all the same.
    assert!(!rig.request(PEER, 8, b"x"));
    assert!(rig.homa.is_quiet());
}

/// After BUSY the pauses are 10, 20, 40, 40: RESENDs at ticks 5, 15, 35, 75, 115, ...
#[test]
fn resends_to_a_busy_peer_become_rare() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(100);
    let mut asked = Vec::new();
    for tick in 1..=300 {
        if ticks_of("RESEND", &rig.pass(1)) == [1] {
            asked.push(tick);
            rig.hear(PEER, id ^ 1, &Packet::Busy);
        }
    }
    assert_eq!(asked, [5, 15, 35, 75, 115, 155, 195, 235, 275]);
    // Once it speaks again, silence means what it did.
    rig.response(PEER, id, 5000, 0..1000);
    assert_eq!(ticks_of("RESEND", &rig.pass(11)), [5, 10]);
}

/// Case C003: each stuck RPC gets its turn. 20 RPCs at 8 a tick need three ticks.
#[test]
fn at_most_eight_resends_go_to_a_peer_in_a_tick_and_all_rpcs_get_their_turn() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.call(100);
    }
    let sent = rig.pass(8);
    let counts: Vec<usize> = sent.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 0, 0, 0, 8, 8, 4, 0]);
    let mut ids: Vec<_> = sent
        .iter()
        .flatten()
        .map(|out| format!("{out:?}"))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    // For all their waiting, none outlives its hundred ticks.
    rig.pass(92);
    assert_eq!(rig.homa.stats().timeouts, 20);
}

/// One RPC that nobody answers, among 2,000 to slow handlers: these live, though each is asked for
/// every 250 ms only, and that one times out.
#[test]
fn silence_does_not_count_against_an_rpc_that_was_not_asked_for_while_its_peer_lives() {
    let mut rig = Rig::new();
    let (_, lost) = rig.call(100);
    for _ in 1..2_000 {
        rig.call(100);
    }
    for _ in 0..1_000 {
        for out in rig.pass(1).concat() {
            match out {
                Out::Resend(id, ..) if id != lost => assert!(rig.hear(PEER, id ^ 1, &Packet::Busy)),
                _ => {}
            }
        }
    }
    assert_eq!(rig.homa.stats().timeouts, 1);
    // And once the peer is dead, all of them do.
    rig.pass(200);
    assert_eq!(rig.homa.stats().timeouts, 2_000);
}

/// NEED_ACKs make a client ask at once, but no more than it may.
#[test]
fn need_acks_draw_no_more_resends_than_a_tick_allows() {
    let mut rig = Rig::new();
    let ids: Vec<u64> = (0..20).map(|_| rig.call(100).1).collect();
    rig.pass(1);
    for _ in 0..3 {
        for &id in &ids {
            rig.hear(PEER, id ^ 1, &Packet::NeedAck);
        }
    }
    assert_eq!(rig.sent().len(), 8);
}

/// DATA, GRANT and BUSY show that the server works on the RPC; nothing else does.
#[test]
fn only_data_grant_and_busy_end_the_silence() {
    let everything = Resend {
        offset: 0,
        length: None,
        priority: 7,
    };
    let cutoffs = wire::Cutoffs {
        unsched_cutoffs: [0; 8],
        version: 1,
    };
    let grant = wire::Grant {
        offset: 100,
        priority: 0,
    };
    let cases = [
        (Packet::NeedAck, 100),
        (Packet::Ack(wire::Acks::default()), 100),
        (Packet::Cutoffs(cutoffs), 100),
        (Packet::Freeze, 100),
        (Packet::Busy, 150),
        (Packet::Grant(grant), 150),
        (Packet::Data(data(2000, 0), &[0; 100]), 150),
    ];
    for (packet, expected) in cases {
        let mut rig = Rig::new();
        let (_, id) = rig.call(100);
        rig.pass(50);
        rig.hear(PEER, id ^ 1, &packet);
        let over_at = (51..).find(|_| {
            rig.pass(1);
            rig.homa.stats().timeouts == 1
        });
        assert_eq!(over_at, Some(expected), "{}", packet.name());
    }
    // What it draws goes out at once, so the silence counts from there.
    let mut rig = Rig::new();
    let (_, id) = rig.call(100);
    rig.hear(PEER, id ^ 1, &Packet::Resend(everything));
    assert_eq!(rig.sent(), [Out::Data(id, 0..100)]);
}

/// Case C005: the response shows that the server had the request, but not that it has it still.
#[test]
fn a_request_is_sent_again_even_after_the_response_began() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(3000);
    rig.response(PEER, id, 3000, 0..1000);
    let resend = Resend {
        offset: 100,
        length: Some(200),
        priority: 7,
    };
    rig.hear(PEER, id ^ 1, &Packet::Resend(resend));
    assert_eq!(rig.sent(), [Out::Data(id, 0..1424)]);
}

/// Case C011: each hole, and the tail as far as it was granted; never what came.
#[test]
fn each_missing_stretch_is_asked_for_once() {
    let mut rig = Rig::new();
    for offset in [0, 2000, 5000] {
        let data = Data {
            incoming: 8000,
            ..data(10_000, offset)
        };
        rig.hear(PEER, 8, &Packet::Data(data, &[0; 1000]));
    }
    rig.sent();
    let sent = rig.pass(6);
    let id = 9;
    let missing = [
        Out::Resend(id, 1000, Some(1000)),
        Out::Resend(id, 3000, Some(2000)),
        Out::Resend(id, 6000, Some(4000)),
    ];
    assert_eq!(sent[4], missing);
}

/// Each RESEND counts, not each RPC. A message with eleven holes and another with two: the second
/// has its turn before the rest of the first.
#[test]
fn each_resend_counts_and_whoever_waits_has_the_next_turn() {
    // With ticks so short the silence of five is over before a hole is old enough for repair.
    let tick = Duration::micros(50);
    let params = Params {
        tick,
        ..Params::default()
    };
    let mut rig = Rig::with(params, 16);
    for (id, count) in [(8, 12), (10, 3)] {
        for n in 0..count {
            let data = data(count * 2000 - 1000, n * 2000);
            rig.hear(PEER, id, &Packet::Data(data, &[0; 1000]));
        }
    }
    rig.sent();
    // Which of the two is looked at first is all the same.
    let sent = rig.pass(8);
    let counts: Vec<usize> = sent.iter().map(Vec::len).collect();
    assert_eq!(counts, [0, 0, 0, 0, 8, 5, 0, 0]);
    let mut asked: Vec<_> = sent.into_iter().flatten().collect();
    assert!(asked.iter().all(|out| out.is("RESEND")));
    asked.sort_unstable_by_key(|out| format!("{out:?}"));
    asked.dedup();
    assert_eq!(asked.len(), 11 + 2);
}

/// 200 RPCs are stuck at once, and what is asked for never comes: all the same each of them asks,
/// as the budget of eight a tick allows 40 in five ticks, when the first ones want to ask again.
#[test]
fn each_of_many_stuck_rpcs_asks_before_any_asks_twice() {
    let mut rig = Rig::new();
    for _ in 0..200 {
        rig.call(100);
    }
    let sent = rig.pass(4 + 200 / 8);
    let mut ids: Vec<_> = sent
        .iter()
        .flatten()
        .map(|out| format!("{out:?}"))
        .collect();
    assert_eq!(ids.len(), 200);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 200);
}

/// Cutoffs that follow the traffic: a thousand requests of 100 B and of 1,000 B, which have as
/// many bytes, and the next packet of a peer draws the new ones, with their version.
#[test]
fn peers_are_told_of_cutoffs_that_follow_the_traffic() {
    let follow = |cutoffs_follow_traffic| {
        let params = Params {
            cutoffs_follow_traffic,
            ..Params::default()
        };
        let mut rig = Rig::with(params, 16);
        let mut id = 8;
        for (len, count) in [(100, 1000), (1000, 100)] {
            for _ in 0..count {
                assert!(rig.request(PEER, id, &[0; 1000][..len]));
                rig.answer(10);
                rig.hear(PEER, id, &Packet::Ack(wire::Acks::default()));
                id += 2;
            }
        }
        rig.call(10);
        rig.pass(101);
        rig.request(PEER, id, b"x");
        let told: Vec<_> = rig
            .sent()
            .into_iter()
            .filter(|out| out.is("CUTOFFS"))
            .collect();
        let params = rig.homa.params();
        (told.len(), params.cutoff_version, params.unsched_cutoffs)
    };
    let (told, version, cutoffs) = follow(true);
    assert_eq!((told, version), (1, 2));
    assert!(cutoffs[7] < 200 && cutoffs[4] == 1_000_000, "{cutoffs:?}");
    assert_eq!(follow(false), (0, 1, Params::default().unsched_cutoffs));
}
