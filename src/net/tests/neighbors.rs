//! Who is where: asked, learnt, doubted, forgotten.

use super::*;

#[test]
fn a_server_answers_without_asking_who_sent_the_request() {
    let (mut a, mut b) = (host(A, 1), host(B, 2));
    let frame = frame_for_a();
    receive(&mut a, START, &frame);
    assert_eq!(a.neighbor_stats().learnt, 1);
    let link = a.link(START, B).unwrap().unwrap();
    assert!(drain(&mut a, START).is_empty());
    let frame = seal(&mut a, link, PACKET, 0).unwrap();
    assert!(receive(&mut b, START, &frame).is_some());
}

#[test]
fn without_learning_the_sender_is_asked_for() {
    let mut a = Stack::new(Params {
        learn: false,
        ..params(A, 1)
    })
    .unwrap();
    receive(&mut a, START, &frame_for_a());
    assert_eq!(a.link(START, B), Ok(None));
    assert_eq!(drain(&mut a, START).len(), 1);
}

#[test]
fn several_who_wait_share_one_request_and_a_lost_one_is_made_again() {
    let (mut a, mut b) = (host(A, 1), host(B, 2));
    for _ in 0..3 {
        assert_eq!(a.link(START, B), Ok(None));
    }
    assert_eq!(drain(&mut a, START).len(), 1); // Lost.
    assert_eq!(a.poll_timeout(), Some(after(20)));
    a.handle_timeout(after(19));
    assert!(drain(&mut a, after(19)).is_empty());
    a.handle_timeout(after(20));
    let requests = drain(&mut a, after(20));
    assert_eq!(requests.len(), 1);
    receive(&mut b, after(20), &requests[0]);
    for answer in drain(&mut b, after(20)) {
        receive(&mut a, after(20), &answer);
    }
    let link = a.link(after(20), B).unwrap().unwrap();
    assert_eq!(a.poll_event(), Some(Event::Up { peer: B, link }));
    assert_eq!((a.poll_event(), a.poll_timeout()), (None, None));
}

#[test]
fn an_answer_before_the_request_resolves() {
    let mut a = host(A, 1);
    receive(&mut a, START, &answer_frame(B, 2, A, 1));
    assert!(a.link(START, B).unwrap().is_some());
    // And one that comes while the request still waits to be sent.
    let mut a = host(A, 1);
    assert_eq!(a.link(START, B), Ok(None));
    receive(&mut a, START, &answer_frame(B, 2, A, 1));
    assert!(matches!(a.poll_event(), Some(Event::Up { peer: B, .. })));
}

/// Tries at 0, 20 and 60 ms; the last is given 80 ms.
#[test]
fn three_unanswered_requests_make_a_peer_unreachable() {
    let mut a = host(A, 1);
    assert_eq!(a.link(START, B), Ok(None));
    let mut requests_at = Vec::new();
    for millis in 0..140 {
        a.handle_timeout(after(millis));
        requests_at.extend(drain(&mut a, after(millis)).iter().map(|_| millis));
        assert_eq!(a.poll_event(), None);
    }
    assert_eq!(requests_at, [0, 20, 60]);
    a.handle_timeout(after(140));
    let error = Error::HostUnreachable;
    assert_eq!(a.poll_event(), Some(Event::Failed { peer: B, error }));
    assert_eq!((a.poll_event(), a.poll_timeout()), (None, None));
    // The next one who wants the peer asks anew.
    assert_eq!(a.link(after(200), B), Ok(None));
    assert_eq!(drain(&mut a, after(200)).len(), 1);
}

/// The caller was away for a second: that is no reason to skip a try.
#[test]
fn a_pause_costs_one_try_at_most() {
    let mut a = host(A, 1);
    a.link(START, B).unwrap();
    drain(&mut a, START);
    a.handle_timeout(after(1000));
    assert_eq!(
        (a.poll_event(), a.poll_timeout()),
        (None, Some(after(1040)))
    );
    assert_eq!(drain(&mut a, after(1000)).len(), 1);
}

#[test]
fn a_late_answer_still_counts() {
    let mut a = host(A, 1);
    a.link(START, B).unwrap();
    for millis in [20, 60, 140] {
        a.handle_timeout(after(millis));
    }
    assert!(matches!(a.poll_event(), Some(Event::Failed { .. })));
    receive(&mut a, after(150), &answer_frame(B, 2, A, 1));
    assert!(a.link(after(150), B).unwrap().is_some());
}

#[test]
fn a_peer_that_moved_is_asked_before_it_is_believed() {
    let (mut a, _, link) = pair();
    // B's packets now come from link address 9.
    let mut frame = frame_for_a();
    frame[6..12].copy_from_slice(&mac(9));
    assert!(receive(&mut a, START, &frame).is_some());
    assert_eq!(seal(&mut a, link, PACKET, 0).unwrap()[..6], mac(2));
    assert_eq!(drain(&mut a, START).len(), 1);
    receive(&mut a, START, &frame);
    assert!(drain(&mut a, START).is_empty(), "asked already");
    receive(&mut a, START, &answer_frame(B, 9, A, 1));
    assert_eq!(seal(&mut a, link, PACKET, 0).unwrap()[..6], mac(9));
    assert_eq!((a.neighbor_stats().moved, a.poll_event()), (1, None));
}

#[test]
fn an_impostor_changes_nothing_and_costs_one_request_a_second() {
    let (mut a, _, link) = pair();
    let mut frame = frame_for_a();
    frame[6..12].copy_from_slice(&mac(66));
    let mut requests = 0;
    for millis in 0..3000 {
        receive(&mut a, after(millis), &frame);
        for _ in drain(&mut a, after(millis)) {
            requests += 1;
            receive(&mut a, after(millis), &answer_frame(B, 2, A, 1));
        }
    }
    assert_eq!(requests, 3);
    assert_eq!(seal(&mut a, link, PACKET, 0).unwrap()[..6], mac(2));
}

#[test]
fn an_announcement_makes_us_ask_those_we_know_and_teaches_nothing_new() {
    let (mut a, _, _) = pair();
    let announcement = |ip, last| arp_frame(Arp::request(mac(last), v4(ip), v4(ip)));
    receive(&mut a, START, &announcement(B, 9));
    assert_eq!(drain(&mut a, START).len(), 1);
    receive(&mut a, START, &announcement(Ip::v4(10, 0, 0, 3), 3));
    assert_eq!(a.link(START, Ip::v4(10, 0, 0, 3)), Ok(None));
}

#[test]
fn our_addresses_are_announced_at_the_start() {
    let announcing = Params {
        announce: true,
        ..params(B, 9)
    };
    let (mut a, _, link) = pair();
    let mut b = Stack::new(announcing).unwrap();
    for frame in drain(&mut b, START) {
        receive(&mut a, START, &frame);
    }
    for frame in drain(&mut a, START) {
        receive(&mut b, START, &frame);
    }
    for frame in drain(&mut b, START) {
        receive(&mut a, START, &frame);
    }
    assert_eq!(seal(&mut a, link, PACKET, 0).unwrap()[..6], mac(9));
}

#[test]
fn a_peer_that_is_silent_while_we_send_is_asked_again() {
    let (mut a, _, link) = pair();
    // Heard after 20 s, so 40 s are no silence yet.
    receive(&mut a, after(20_000), &frame_for_a());
    a.handle_timeout(after(40_000));
    seal(&mut a, link, PACKET, 0);
    assert!(drain(&mut a, after(40_000)).is_empty());
    a.handle_timeout(after(50_001));
    seal(&mut a, link, PACKET, 0);
    assert_eq!(drain(&mut a, after(50_001)).len(), 1);
    // No answer: what we send still goes where it went, and we ask again while we send.
    for millis in 50_002..52_000 {
        a.handle_timeout(after(millis));
    }
    assert_eq!(drain(&mut a, after(52_000)).len(), 2);
    assert_eq!(a.poll_event(), None);
    assert!(seal(&mut a, link, PACKET, 0).is_some());
    assert_eq!(drain(&mut a, after(52_000)).len(), 1);
}

#[test]
fn all_behind_the_gateway_wait_for_it_and_share_its_address() {
    let mut a = host(A, 1);
    assert_eq!(
        (a.link(START, FAR), a.link(START, FARTHER)),
        (Ok(None), Ok(None))
    );
    let requests = drain(&mut a, START);
    assert_eq!(requests.len(), 1);
    assert_eq!(
        Arp::parse(&requests[0][14..]).unwrap().target_ip,
        v4(GATEWAY)
    );
    receive(&mut a, START, &answer_frame(GATEWAY, 254, A, 1));
    for peer in [FAR, FARTHER] {
        let link = a.link(START, peer).unwrap().unwrap();
        assert_eq!(a.poll_event(), Some(Event::Up { peer, link }));
        let frame = seal(&mut a, link, PACKET, 0).unwrap();
        assert_eq!(
            (&frame[..6], &frame[30..34]),
            (&mac(254)[..], &v4(peer).octets()[..])
        );
    }
    // Another one needs no request, and the gateway itself is a peer like any other.
    assert!(a.link(START, Ip::v4(8, 8, 8, 8)).unwrap().is_some());
    assert!(a.link(START, GATEWAY).unwrap().is_some());
    assert!(drain(&mut a, START).is_empty());
}

#[test]
fn a_gateway_that_moves_takes_all_behind_it_along() {
    let mut a = host(A, 1);
    a.link(START, FAR).unwrap();
    receive(&mut a, START, &answer_frame(GATEWAY, 254, A, 1));
    let link = a.link(START, FAR).unwrap().unwrap();
    receive(&mut a, START, &answer_frame(GATEWAY, 99, A, 1));
    receive(&mut a, START, &answer_frame(GATEWAY, 99, A, 1));
    assert_eq!(seal(&mut a, link, PACKET, 0).unwrap()[..6], mac(99));
}

#[test]
fn a_dead_gateway_makes_all_behind_it_unreachable() {
    let mut a = host(A, 1);
    a.link(START, FAR).unwrap();
    a.link(START, FARTHER).unwrap();
    for millis in [20, 60, 140] {
        a.handle_timeout(after(millis));
    }
    let error = Error::HostUnreachable;
    for peer in [FAR, FARTHER] {
        assert_eq!(a.poll_event(), Some(Event::Failed { peer, error }));
    }
    assert_eq!((a.poll_event(), a.link(after(150), FAR)), (None, Ok(None)));
}

#[test]
fn a_packet_from_behind_the_gateway_does_not_make_its_sender_a_neighbor() {
    let mut a = host(A, 1);
    let frame = bent(&frame_for_a(), |ip| {
        ip[12..16].copy_from_slice(&v4(FAR).octets())
    });
    assert!(receive(&mut a, START, &frame).is_some());
    assert_eq!(a.neighbor_stats().learnt, 0);
    a.link(START, FAR).unwrap();
    assert_eq!(drain(&mut a, START).len(), 1);
}

#[test]
fn without_a_route_a_peer_is_unreachable_at_once() {
    let mut a = Stack::new(Params {
        gateway: None,
        ..params(A, 1)
    })
    .unwrap();
    assert_eq!(a.link(START, FAR), Err(Error::HostUnreachable));
    assert_eq!(a.link(START, A), Ok(Some(LinkId::loopback(0))));
    assert!(drain(&mut a, START).is_empty());
}

#[test]
fn a_full_table_gives_up_the_idle_and_says_so() {
    let neighbor = |last| Ip::v4(10, 0, 0, last);
    let mut a = Stack::new(Params {
        neighbors_max: 3,
        ..params(A, 1)
    })
    .unwrap();
    let links = [2, 3, 4].map(|last| {
        receive(&mut a, START, &answer_frame(neighbor(last), last, A, 1));
        a.link(START, neighbor(last)).unwrap().unwrap()
    });
    // All in use.
    assert_eq!(a.link(after(10_000), neighbor(5)), Err(Error::Exhausted));
    a.handle_timeout(after(11_000));
    seal(&mut a, links[0], PACKET, 0).unwrap();
    seal(&mut a, links[2], PACKET, 0).unwrap();
    assert_eq!(a.link(after(11_000), neighbor(5)), Ok(None));
    let (peer, link) = (neighbor(3), links[1]);
    assert_eq!(a.poll_event(), Some(Event::Gone { peer, link }));
    // Its place has another tenant, whom the old link does not reach.
    receive(&mut a, after(11_000), &answer_frame(neighbor(5), 5, A, 1));
    assert!(matches!(a.poll_event(), Some(Event::Up { .. })));
    assert_eq!(seal(&mut a, link, PACKET, 0), None);
    assert_eq!(a.stats().stale_links, 1);
    assert!(seal(&mut a, links[0], PACKET, 0).is_some());
}

#[test]
fn strangers_fill_the_table_but_keep_nobody_out() {
    let mut a = Stack::new(Params {
        neighbors_max: 8,
        ..params(A, 1)
    })
    .unwrap();
    let frame = frame_for_a();
    for last in 10..250 {
        let frame = bent(&frame, |ip| ip[15] = last);
        assert!(receive(&mut a, START, &frame).is_some());
    }
    let stats = a.neighbor_stats();
    assert_eq!((stats.learnt, stats.table_full), (8, 232));
    assert_eq!(a.link(START, B), Ok(None));
    assert_eq!(a.poll_event(), None, "nobody knew the one given up");
}

#[test]
fn who_claims_our_address_is_counted_and_not_believed() {
    let mut a = host(A, 1);
    let claim = Arp::request(mac(9), v4(A), v4(A));
    receive(&mut a, START, &arp_frame(claim));
    assert_eq!(
        (a.stats().address_conflicts, drain(&mut a, START).len()),
        (1, 0)
    );
}

#[test]
fn requests_for_others_are_not_answered() {
    let mut a = host(A, 1);
    let request = |target| arp_frame(Arp::request(mac(2), v4(B), target));
    receive(&mut a, START, &request(v4(GATEWAY)));
    assert!(drain(&mut a, START).is_empty());
    receive(&mut a, START, &request(v4(A)));
    assert_eq!(drain(&mut a, START).len(), 1);
    // Whoever only probes whether the address is free gets an answer, but is no neighbor.
    let probe = Arp::request(mac(3), Ipv4Addr::UNSPECIFIED, v4(A));
    receive(&mut a, START, &arp_frame(probe));
    assert_eq!(
        (drain(&mut a, START).len(), a.neighbor_stats().learnt),
        (1, 1)
    );
}
