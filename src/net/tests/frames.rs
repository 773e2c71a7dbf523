//! What becomes of a frame, right, odd or garbage.

use super::*;
use crate::rng::Rng;

#[test]
fn a_packet_arrives_with_its_addresses_and_nothing_else() {
    let (mut a, mut b, link) = pair();
    let frame = seal(&mut a, link, PACKET, 5).unwrap();
    let packet = PACKET;
    let meta = Meta { from: A, to: B };
    assert_eq!(
        receive(&mut b, START, &frame),
        Some(Ingress::Homa { meta, packet })
    );
    // Padding, as for short frames, is no part of the packet.
    let padded = [&frame[..], &[0xee; 20]].concat();
    assert_eq!(
        receive(&mut b, START, &padded),
        Some(Ingress::Homa { meta, packet })
    );
}

#[test]
fn pings_are_answered() {
    let (mut a, _, link) = pair();
    let mut frame = seal(&mut a, link, b"\x08\0\0\0\x12\x34\0\x01odd data.", 0).unwrap();
    // From B to A instead, as ICMP.
    let (to_a, to_b) = (mac(1), mac(2));
    frame[..6].copy_from_slice(&to_a);
    frame[6..12].copy_from_slice(&to_b);
    let mut frame = bent(&frame, |ip| {
        ip[9] = 1;
        ip[12..16].copy_from_slice(&v4(B).octets());
        ip[16..20].copy_from_slice(&v4(A).octets());
    });
    assert_eq!(receive(&mut a, START, &frame), None);
    assert_eq!(a.stats().bad_checksum, 1);
    smoltcp::wire::Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
    assert_eq!(receive(&mut a, START, &frame), None);
    let pong = transmit(&mut a, START).unwrap();
    assert_eq!((&pong[..6], &pong[6..12]), (&to_b[..], &to_a[..]));
    assert_eq!(
        (&pong[26..30], &pong[30..34]),
        (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..])
    );
    assert_eq!((pong[23], pong[34], &pong[38..]), (1, 0, &frame[38..]));
    assert!(super::icmp::checksum_is_valid(&pong[34..]));
    assert!(smoltcp::wire::Ipv4Packet::new_unchecked(&pong[14..34]).verify_checksum());
}

/// Ports 7 and 9, RPC id 0x0102030405060708.
fn homa_like() -> Vec<u8> {
    let mut packet = vec![0; 100];
    packet[..4].copy_from_slice(&[0, 7, 0, 9]);
    packet[20..28].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

#[test]
fn a_closed_port_is_told_and_understood() {
    let (mut a, mut b, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 0).unwrap();
    let Some(Ingress::Homa { meta, packet }) = receive(&mut b, START, &request) else {
        panic!("a packet");
    };
    b.port_unreachable(START, meta, packet);
    let frame = transmit(&mut b, START).unwrap();
    // Headers, ICMP header, quoted IP header and 56 bytes.
    assert_eq!(frame.len(), 34 + 8 + 20 + 56);
    assert_eq!(frame[42..62], request[14..34]);
    let expected = Ingress::Unreachable {
        from: B,
        to: Addr::new(B, 9),
        sport: 7,
        id: Some(0x0102_0304_0506_0708),
        reason: Unreachable::Port,
    };
    assert_eq!(receive(&mut a, START, &frame), Some(expected));
}

#[test]
fn a_sender_not_yet_known_is_asked_for_first_and_told_upon_its_next_try() {
    let mut b = host(B, 2);
    let meta = Meta { from: A, to: B };
    b.port_unreachable(START, meta, &homa_like());
    assert_eq!(drain(&mut b, START).len(), 1); // The ARP request.
    receive(&mut b, START, &answer_frame(A, 1, B, 2));
    assert_eq!(b.poll_event(), None, "nobody above asked for the peer");
    b.port_unreachable(START, meta, &homa_like());
    assert_eq!(drain(&mut b, START)[0][23], 1);
}

#[test]
fn closed_ports_are_told_at_a_bounded_rate() {
    let (mut a, mut b, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 0).unwrap();
    receive(&mut b, START, &request);
    let mut told = 0;
    for millis in 0..1000 {
        for _ in 0..10 {
            b.port_unreachable(after(millis), Meta { from: A, to: B }, &homa_like());
        }
        told += drain(&mut b, after(millis)).len();
    }
    assert!((1000..=1050).contains(&told), "{told}");
}

#[test]
fn icmp_about_others_packets_is_ignored() {
    let (mut a, mut b, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 0).unwrap();
    receive(&mut b, START, &request);
    b.port_unreachable(START, Meta { from: A, to: B }, &homa_like());
    let frame = transmit(&mut b, START).unwrap();
    // Protocol and source of the quoted packet; its version; the ICMP type.
    for (at, value) in [(42 + 9, 17), (42 + 15, 77), (42, 0x65), (34, 5)] {
        let mut frame = frame.clone();
        frame[at] = value;
        smoltcp::wire::Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
        assert_eq!(receive(&mut a, START, &frame), None, "byte {at}");
    }
    assert_eq!(a.stats().icmp_ignored, 4);
    for (code, reason) in [(2, Unreachable::Protocol), (0, Unreachable::Host)] {
        let mut frame = frame.clone();
        frame[35] = code;
        smoltcp::wire::Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
        let ingress = receive(&mut a, START, &frame);
        let Some(Ingress::Unreachable { reason: found, .. }) = ingress else {
            panic!("about a packet of ours");
        };
        assert_eq!(found, reason);
    }
}

/// Each odd frame with the counter that it moves.
#[test]
fn odd_frames_are_counted_and_dropped() {
    let good = frame_for_a();
    let at_frame = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let at_ip = |at: usize, value: u8| bent(&good, |ip| ip[at] = value);
    type Counter = fn(&Stats) -> u64;
    let cases: [(Vec<u8>, Counter); 21] = [
        (good[..13].to_vec(), |s| s.truncated),
        (good[..33].to_vec(), |s| s.truncated),
        (good[..good.len() - 1].to_vec(), |s| s.truncated),
        (at_frame(5, 77), |s| s.not_ours),
        (at_frame(0, 3), |s| s.not_ours),
        (at_ip(19, 77), |s| s.not_ours),
        ([&[0xff; 6], &good[6..]].concat(), |s| s.not_ours),
        (at_frame(6, 3), |s| s.bad_source),
        (at_frame(11, 1), |s| s.bad_source), // Our own link address.
        (at_ip(15, 1), |s| s.bad_source),    // Our own address.
        (at_ip(12, 224), |s| s.bad_source),
        (at_ip(15, 255), |s| s.bad_source),
        (at_frame(12, 0x86), |s| s.other_ethertype),
        (at_ip(9, 6), |s| s.other_protocol),
        (at_frame(14, 0x55), |s| s.bad_header),
        (at_frame(14, 0x44), |s| s.bad_header),
        (bent(&good, |ip| ip[2..4].fill(0)), |s| s.bad_header),
        (at_frame(24, 0), |s| s.bad_checksum),
        (at_ip(6, 0x20), |s| s.fragments),
        (at_ip(7, 1), |s| s.fragments),
        (at_frame(14, 0x46), |s| s.options),
    ];
    for (n, (frame, counter)) in cases.iter().enumerate() {
        let mut a = host(A, 1);
        assert_eq!(receive(&mut a, START, frame), None, "case {n}");
        let (neighbors, homa_received) = (NeighborStats::default(), 0);
        let stats = a.stats();
        assert_eq!(
            (counter(&stats), stats.homa_received),
            (1, homa_received),
            "case {n}"
        );
        assert_eq!(a.neighbor_stats(), neighbors, "case {n}");
    }
    assert!(receive(&mut host(A, 1), START, &good).is_some());
}

#[test]
fn checksums_that_the_device_verified_are_not_verified_again() {
    let mut frame = frame_for_a();
    assert_eq!(host(A, 1).ingress(START, &frame, Checksums::Bad), None);
    frame[24] ^= 1;
    assert_eq!(host(A, 1).ingress(START, &frame, Checksums::Unknown), None);
    assert!(host(A, 1).ingress(START, &frame, Checksums::Good).is_some());
}

#[test]
fn floods_leave_the_queues_bounded() {
    let mut a = host(A, 1);
    let request = arp_frame(Arp::request(mac(2), v4(B), v4(A)));
    for _ in 0..10_000 {
        receive(&mut a, START, &request);
    }
    assert_eq!(
        (drain(&mut a, START).len(), a.stats().queue_full),
        (256, 10_000 - 256)
    );
}

/// Frames that are right but for a few bytes go deepest.
#[test]
fn garbage_never_panics_and_leaves_the_stack_working() {
    let mut rng = Rng::new(0xbad);
    let (mut a, mut b, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 0).unwrap();
    receive(&mut b, START, &request);
    b.port_unreachable(START, Meta { from: A, to: B }, &homa_like());
    let seeds = [
        frame_for_a(),
        transmit(&mut b, START).unwrap(),
        answer_frame(B, 2, A, 1),
        arp_frame(Arp::request(mac(2), v4(B), v4(A))),
    ];
    for n in 0..300_000 {
        let mut frame = seeds[rng.below(4) as usize].clone();
        for _ in 0..rng.below(6) {
            let at = rng.below(frame.len() as u64) as usize;
            frame[at] = rng.next_u64() as u8;
        }
        if rng.below(2) == 0 && frame[14] == 0x45 {
            smoltcp::wire::Ipv4Packet::new_unchecked(&mut frame[14..34]).fill_checksum();
        }
        frame.truncate(rng.below(2 * frame.len() as u64) as usize + 1);
        let now = after(n / 100);
        let checksums = [Checksums::Unknown, Checksums::Good][rng.below(2) as usize];
        a.ingress(now, &frame, checksums);
        if n % 64 == 0 {
            a.handle_timeout(now);
            drain(&mut a, now);
            while a.poll_event().is_some() {}
        }
    }
    let mut a_again = host(A, 1);
    assert!(receive(&mut a_again, START, &seeds[0]).is_some());
    assert!(receive(&mut a, after(3000), &seeds[0]).is_some());
    assert!(seal(&mut a, link, PACKET, 0).is_some());
}

#[test]
fn the_largest_packet_leaves_room_for_the_ip_header() {
    let a = host(A, 1);
    assert_eq!((a.payload_max(B), a.payload_max(Ip(1))), (1480, 1460));
}
