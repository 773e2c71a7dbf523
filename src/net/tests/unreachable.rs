//! Who is told that a packet found nobody, and whose word is taken for it.

use super::*;

/// IP protocols besides ours: TCP, UDP, and one that nobody speaks.
const OTHERS: [u8; 3] = [6, 17, 253];

/// Ports 7 and 9, RPC id 0x0102030405060708.
fn homa_like() -> Vec<u8> {
    let mut packet = vec![0; 100];
    packet[..4].copy_from_slice(&[0, 7, 0, 9]);
    packet[20..28].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

/// A frame with an ICMP message, its bytes changed and its checksum right again.
fn bent_icmp(frame: &[u8], bend: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = frame.to_vec();
    bend(&mut frame[34..]);
    smoltcp::wire::Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
    frame
}

/// What B says of a packet of A's to a port that nobody has.
fn port_unreachable() -> (Stack, Vec<u8>) {
    let (mut a, mut b, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 0).unwrap();
    receive(&mut b, START, &request);
    b.port_unreachable(START, Meta { from: A, to: B }, &homa_like());
    (a, transmit(&mut b, START).unwrap())
}

#[test]
fn a_protocol_that_a_host_does_not_speak_is_told_and_understood() {
    let (mut a, _, link) = pair();
    let request = seal(&mut a, link, &homa_like(), 5).unwrap();
    let mut b = Stack::new(Params {
        ip_protocol: 200,
        ..params(B, 2)
    })
    .unwrap();
    assert_eq!(receive(&mut b, START, &request), None);
    assert_eq!((b.stats().other_protocol, b.stats().refused), (1, 1));
    let frame = transmit(&mut b, START).unwrap();
    assert_eq!((frame[34], frame[35]), (3, 2));
    assert_eq!(frame[42..62 + 56], request[14..34 + 56], "as A sent it");
    let expected = Ingress::Unreachable {
        from: B,
        to: Addr::new(B, 9),
        sport: 7,
        id: Some(0x0102_0304_0506_0708),
        reason: Unreachable::Protocol,
    };
    assert_eq!(receive(&mut a, START, &frame), Some(expected));
}

#[test]
fn every_protocol_but_ours_and_icmp_is_refused_with_its_own_words() {
    for protocol in OTHERS {
        let mut a = host(A, 1);
        let frame = bent(&frame_for_a(), |ip| ip[9] = protocol);
        assert_eq!(receive(&mut a, START, &frame), None);
        let refusal = transmit(&mut a, START).unwrap();
        assert_eq!((refusal[23], refusal[34], refusal[35]), (1, 3, 2));
        assert_eq!(refusal[42..62], frame[14..34], "protocol {protocol}");
        assert!(super::super::icmp::checksum_is_valid(&refusal[34..]));
        // And so that nobody answers for ever, a refusal draws none.
        assert_eq!(receive(&mut host(B, 2), START, &refusal), None);
    }
}

/// RFC 1122: no answer to what went to many, came from nobody, or is a piece.
#[test]
fn what_may_draw_no_icmp_message_draws_none() {
    let other = bent(&frame_for_a(), |ip| ip[9] = 17);
    let to_all = [&[0xff; 6], &other[6..]].concat();
    let of_nobody = bent(&other, |ip| ip[12..16].fill(0));
    let of_many = bent(&other, |ip| ip[12] = 224);
    let broadcast = bent(&other, |ip| ip[19] = 255);
    let piece = bent(&other, |ip| ip[7] = 1);
    for frame in [to_all, of_nobody, of_many, broadcast, piece] {
        let mut a = host(A, 1);
        assert_eq!(receive(&mut a, START, &frame), None);
        assert_eq!((drain(&mut a, START), a.stats().refused), (vec![], 0));
    }
}

/// 4 at once and 1,000 a second for foreign protocols; closed ports have an allowance of their own.
#[test]
fn foreign_protocols_are_refused_at_a_rate_that_leaves_room_for_closed_ports() {
    let mut a = host(A, 1);
    receive(&mut a, START, &frame_for_a());
    let other = bent(&frame_for_a(), |ip| ip[9] = 17);
    let mut told = 0;
    for millis in 0..100 {
        for _ in 0..10 {
            receive(&mut a, after(millis), &other);
        }
        a.port_unreachable(after(millis), Meta { from: B, to: A }, &homa_like());
        let frames = drain(&mut a, after(millis));
        let (ports, protocols): (Vec<_>, Vec<_>) = frames.iter().partition(|frame| frame[35] == 3);
        assert_eq!(ports.len(), 1, "at {millis} ms");
        told += protocols.len();
    }
    assert!((100..=104).contains(&told), "{told}");
    assert_eq!(a.stats().rate_limited, 1000 - told as u64);
}

#[test]
fn each_code_has_its_meaning_and_those_without_one_are_ignored() {
    let (mut a, frame) = port_unreachable();
    for code in 0..=255 {
        let frame = bent_icmp(&frame, |icmp| icmp[1] = code);
        let expected = match code {
            2 => Some(Unreachable::Protocol),
            3 => Some(Unreachable::Port),
            4 => Some(Unreachable::TooLong),
            0..=15 => Some(Unreachable::Host),
            _ => None,
        };
        let found = match receive(&mut a, START, &frame) {
            Some(Ingress::Unreachable { reason, .. }) => Some(reason),
            _ => None,
        };
        assert_eq!(found, expected, "code {code}");
    }
    assert_eq!(a.stats().icmp_ignored, 240);
}

/// A router may know of hosts and networks, but of no host's ports.
#[test]
fn only_the_destination_itself_has_a_say_about_its_ports_and_protocols() {
    let (mut a, frame) = port_unreachable();
    let from_router = |code| {
        let frame = bent_icmp(&frame, |icmp| icmp[1] = code);
        bent(&frame, |ip| {
            ip[12..16].copy_from_slice(&v4(GATEWAY).octets())
        })
    };
    for code in [2, 3] {
        assert_eq!(receive(&mut a, START, &from_router(code)), None);
    }
    assert_eq!(a.stats().icmp_ignored, 2);
    for (code, meaning) in [
        (0, Unreachable::Host),
        (1, Unreachable::Host),
        (4, Unreachable::TooLong),
        (13, Unreachable::Host),
    ] {
        let frame = from_router(code);
        let Some(Ingress::Unreachable {
            from, to, reason, ..
        }) = receive(&mut a, START, &frame)
        else {
            panic!("code {code} is a router's to say");
        };
        let expected = (GATEWAY, Addr::new(B, 9), meaning);
        assert_eq!((from, to, reason), expected);
    }
}
