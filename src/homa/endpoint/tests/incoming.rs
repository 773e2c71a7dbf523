//! Messages as they come in: what counts, what is told, what is counted. Rules IN-01 to IN-44.

use super::*;

/// No grants go out, so that only what a sender announces may come.
fn no_grants() -> Rig {
    let params = Params {
        max_incoming_bytes: 1,
        grant_fifo_thousandths: 0,
        ..Params::default()
    };
    Rig::with(params, 16)
}

fn announced(incoming: u32, offset: u32) -> Data {
    Data {
        incoming,
        ..data(5000, offset)
    }
}

/// Rules IN-01, IN-07: announced 3,000, received 1,400.
#[test]
fn what_the_first_packet_announced_is_asked_for_and_no_more() {
    let mut rig = no_grants();
    rig.hear(PEER, 8, &Packet::Data(announced(3000, 0), &[0; 1400]));
    assert_eq!(rig.pass(5)[4], [Out::Resend(9, 1400, Some(1600))]);
}

/// Rules IN-06, TM-02: the sender waits for us.
#[test]
fn nothing_is_asked_for_while_all_that_was_granted_is_here() {
    let mut rig = no_grants();
    rig.hear(PEER, 8, &Packet::Data(announced(1400, 0), &[0; 1400]));
    assert!(rig.pass(99).iter().all(Vec::is_empty));
    assert_eq!(rig.homa.rpc_count(), 1);
}

/// Rule IN-05: all past the last hole came, so only the hole is asked for.
#[test]
fn a_hole_is_asked_for_and_not_the_tail_that_is_here() {
    let mut rig = no_grants();
    rig.hear(PEER, 8, &Packet::Data(announced(3000, 0), &[0; 1000]));
    rig.hear(PEER, 8, &Packet::Data(announced(3000, 2000), &[0; 1000]));
    assert_eq!(rig.pass(4).concat(), [Out::Resend(9, 1000, Some(1000))]);
}

/// Rule IN-16.
#[test]
fn duplicates_are_counted_by_whose_they_are() {
    let mut rig = Rig::new();
    let again = |offset| Data {
        retransmit: true,
        ..data(3000, offset)
    };
    rig.hear(PEER, 8, &Packet::Data(data(3000, 0), &[0; 1000]));
    rig.hear(PEER, 8, &Packet::Data(data(3000, 0), &[0; 1000]));
    rig.hear(PEER, 8, &Packet::Data(again(0), &[0; 1000]));
    rig.hear(PEER, 8, &Packet::Data(again(0), &[0; 1000]));
    rig.hear(PEER, 8, &Packet::Data(again(1000), &[0; 1000]));
    let stats = rig.homa.stats();
    let counts = (
        stats.duplicates,
        stats.retransmits_late,
        stats.retransmits_used,
    );
    assert_eq!(counts, (1, 2, 1));
    let whole = Data {
        retransmit: true,
        ..data(1, 0)
    };
    rig.hear(PEER, 10, &Packet::Data(whole, b"x"));
    rig.hear(PEER, 10, &Packet::Data(whole, b"x"));
    let stats = rig.homa.stats();
    assert_eq!((stats.retransmits_late, stats.retransmits_used), (3, 2));
}

/// Rules IN-17, IN-44 (adapted: told when whole): the last byte comes before others.
#[test]
fn a_message_is_told_and_counted_once_with_its_last_byte() {
    let mut rig = Rig::new();
    for offset in [2000, 0, 2000] {
        rig.hear(PEER, 8, &Packet::Data(data(3000, offset), &[0; 1000]));
        assert_eq!((rig.announced(), rig.homa.stats().requests_in), (0, 0));
    }
    rig.hear(PEER, 8, &Packet::Data(data(3000, 1000), &[0; 1000]));
    assert_eq!((rig.announced(), rig.homa.stats().requests_in), (1, 1));
    rig.hear(PEER, 8, &Packet::Data(data(3000, 1000), &[0; 1000]));
    assert_eq!((rig.announced(), rig.homa.stats().requests_in), (0, 1));
}

/// Rules IN-04, IN-42, PL-12: one page, which is taken.
#[test]
fn without_pages_a_message_lives_and_its_bytes_are_counted() {
    let mut rig = Rig::with(Params::default(), 1);
    rig.request(PEER, 8, &[1; 1000]);
    let first = rig.serve().unwrap();
    let packet = Packet::Data(data(65_000, 0), &[0; 1000]);
    rig.hear(PEER, 10, &packet);
    rig.hear(PEER, 10, &packet);
    let stats = rig.homa.stats();
    assert_eq!((rig.homa.rpc_count(), stats.page_waits), (2, 1));
    assert_eq!(stats.page_wait_bytes, 2000);
    // Rules PL-16, PL-18: once there is room, all of it is asked for, at the next to highest level.
    rig.sent();
    assert!(rig.homa.release(rig.now, first.run));
    let packets = rig.packets();
    let resend = Packet::Resend(Resend {
        offset: 0,
        length: None,
        priority: 6,
    });
    assert_eq!(wire::parse(&packets[0].1).unwrap().1, resend);
}

/// Rule PL-18: without a level below the highest to spare.
#[test]
fn with_one_level_what_waited_is_asked_for_at_level_0() {
    let params = Params {
        num_priorities: 1,
        max_sched_priority: 0,
        ..Params::default()
    };
    let mut rig = Rig::with(params, 1);
    rig.request(PEER, 8, &[1; 1000]);
    let first = rig.serve().unwrap();
    rig.hear(PEER, 10, &Packet::Data(data(65_000, 0), &[0; 1000]));
    assert!(rig.homa.release(rig.now, first.run));
    let resends =
        rig.packets()
            .into_iter()
            .filter_map(|(_, bytes)| match wire::parse(&bytes).unwrap().1 {
                Packet::Resend(resend) => Some((resend.length, resend.priority)),
                _ => None,
            });
    assert_eq!(resends.collect::<Vec<_>>(), [(None, 0)]);
}

/// Rule IN-29: the server answers before it has the whole request.
#[test]
fn a_response_counts_though_the_request_was_not_sent_whole() {
    let params = Params {
        unsched_bytes: 2000,
        ..Params::default()
    };
    let mut rig = Rig::with(params, 16);
    let (_, id) = rig.call(20_000);
    rig.response(PEER, id, 2000, 0..1000);
    rig.response(PEER, id, 2000, 1000..2000);
    assert_eq!(rig.outcome(), Some(Ok(2000)));
    assert_eq!((rig.homa.rpc_count(), rig.sent()), (0, vec![]));
}

/// Rule IN-38: three packets of one burst, one GRANT that knows of all three.
#[test]
fn a_burst_draws_one_grant() {
    let params = Params {
        grant_fifo_thousandths: 0,
        ..Params::default()
    };
    let mut rig = Rig::with(params, 16);
    for offset in [0, 1000, 2000] {
        let data = Data {
            incoming: 10_000,
            ..data(1_000_000, offset)
        };
        rig.hear(PEER, 8, &Packet::Data(data, &[0; 1000]));
    }
    let packets = rig.packets();
    let grants: Vec<_> = packets
        .iter()
        .filter_map(|(_, bytes)| match wire::parse(bytes).unwrap().1 {
            Packet::Grant(grant) => Some(grant.offset),
            _ => None,
        })
        .collect();
    // Half of max_incoming for the only message, beyond what came.
    assert_eq!(grants, [200_000 + 3000]);
}

/// Rules RP-04, PL-21: three pages for two and a bit, all given back with the RPC.
#[test]
fn pages_are_taken_with_the_second_packet_and_given_back_with_the_rpc() {
    let mut rig = Rig::new();
    let len = 2 * 65_536 + 100;
    rig.hear(PEER, 8, &Packet::Data(data(len, 0), &[0; 1000]));
    assert_eq!(rig.homa.free_pages(), 15);
    rig.hear(PEER, 8, &Packet::Data(data(len, 1000), &[0; 1000]));
    assert_eq!(rig.homa.free_pages(), 13);
    rig.hear(PEER, 8, &Packet::Unknown);
    assert_eq!((rig.homa.free_pages(), rig.homa.rpc_count()), (16, 0));
}
