use arrayvec::ArrayVec;

use super::*;
use crate::addr::Ip;
use crate::rng::Rng;

const COMMON: Common = Common {
    sport: 0x8001,
    dport: 4000,
    id: RpcId(0x0102_0304_0506_0708),
};

const DATA: Data = Data {
    message_length: 1_000_000,
    incoming: 40_000,
    ack: Some(Ack {
        client_id: RpcId(0xfedc_ba98_7654_3210),
        server_port: 0xfffe,
    }),
    cutoff_version: 0xabcd,
    retransmit: true,
    empty_reply: true,
    life: 0x1d2e,
    offset: 0x00ab_cdef,
    placement: Placement::Explicit,
};

fn ack(n: u64) -> Ack {
    Ack {
        client_id: RpcId(2 * n),
        server_port: n as u16,
    }
}

/// One packet of each type, with its whole length on the wire.
fn samples() -> [(Packet<'static>, usize); 9] {
    let cutoffs = Cutoffs {
        unsched_cutoffs: [1, 2, 3, 4, u32::MAX, 6, 7, 8],
        version: 0x1234,
    };
    let grant = Grant {
        offset: 0x0102_0304,
        priority: 7,
    };
    let resend = Resend {
        offset: 5,
        length: Some(6),
        priority: 255,
    };
    [
        (Packet::Data(DATA, b"payload"), 63),
        (Packet::Grant(grant), 33),
        (Packet::Resend(resend), 37),
        (Packet::Unknown, 28),
        (Packet::Busy, 28),
        (Packet::Cutoffs(cutoffs), 62),
        (Packet::Freeze, 28),
        (Packet::NeedAck, 28),
        (Packet::Ack(Acks((1..=5).map(ack).collect())), 80),
    ]
}

/// The packet's bytes, written over rubbish, which must not shine through.
fn bytes_of(common: &Common, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = [0xee; 2000];
    let len = emit(common, packet, &mut out);
    assert!(out[len..].iter().all(|&byte| byte == 0xee));
    out[..len].to_vec()
}

fn assert_round_trip(common: Common, packet: &Packet<'_>) {
    let bytes = bytes_of(&common, packet);
    assert_eq!(parse(&bytes), Ok((common, packet.clone())));
}

#[test]
fn every_type_comes_back_as_it_went_and_has_its_length() {
    for (packet, len) in samples() {
        assert_eq!(bytes_of(&COMMON, &packet).len(), len, "{}", packet.name());
        assert_round_trip(COMMON, &packet);
    }
}

#[test]
fn every_shorter_packet_is_malformed() {
    for (packet, len) in samples() {
        let bytes = bytes_of(&COMMON, &packet);
        // A DATA packet's payload may be cut anywhere: its length is not in the header.
        let shortest = if matches!(packet, Packet::Data(..)) {
            DATA_LEN
        } else {
            len
        };
        for cut in 0..shortest {
            assert_eq!(
                parse(&bytes[..cut]),
                Err(Malformed::Short),
                "{}",
                packet.name()
            );
        }
        assert!(parse(&bytes[..shortest]).is_ok());
    }
}

#[test]
fn longer_control_packets_are_taken() {
    for (packet, _) in samples().into_iter().skip(1) {
        let mut bytes = bytes_of(&COMMON, &packet);
        bytes.extend([0x55; 100]);
        assert_eq!(parse(&bytes), Ok((COMMON, packet)));
    }
}

#[test]
fn only_nine_types_are_known() {
    let mut bytes = [0; 100];
    for kind in 0..=255 {
        bytes[11] = kind;
        match parse(&bytes) {
            Ok(_) => assert!((0x10..=0x18).contains(&kind)),
            Err(why) => assert_eq!(
                (why, (0x10..=0x18).contains(&kind)),
                (Malformed::Type, false)
            ),
        }
    }
}

#[test]
fn a_data_header_lies_as_the_linux_module_expects_it() {
    let mut out = [0xee; DATA_LEN];
    DATA.emit(&COMMON, &mut out);
    #[rustfmt::skip]
    let expected = [
        0x80, 0x01, 0x0f, 0xa0, // ports
        0x00, 0xab, 0xcd, 0xef, // sequence
        0, 0, 0, 0x10, // ack, type
        0xe0, 0x06, 0, 0, // data offset, flags, window
        0, 0, 0xb9, 0x7d, // checksum, urgent
        1, 2, 3, 4, 5, 6, 7, 8, // id
        0x00, 0x0f, 0x42, 0x40, // message length
        0x00, 0x00, 0x9c, 0x40, // incoming
        0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, 0xff, 0xfe, // ack
        0xab, 0xcd, // cutoff version
        1, 1, 0x1d, 0x2e, // retransmit, and in its padding: empty reply, life
        0x00, 0xab, 0xcd, 0xef, // segment offset
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_stale_sequence_is_ignored_where_the_segment_offset_counts() {
    let mut bytes = bytes_of(&COMMON, &Packet::Data(DATA, b"x"));
    bytes[4..8].fill(0x77);
    assert_eq!(parse(&bytes), Ok((COMMON, Packet::Data(DATA, b"x"))));
}

#[test]
fn garbage_in_the_fields_that_only_tcp_knows_is_ignored() {
    for (packet, _) in samples() {
        let mut bytes = bytes_of(&COMMON, &packet);
        bytes[8..11].fill(0x77);
        bytes[12..20].fill(0x77);
        assert_eq!(parse(&bytes), Ok((COMMON, packet)));
    }
}

#[test]
fn data_fields_survive_at_their_edges() {
    for number in [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX] {
        for placement in [Placement::InSequence, Placement::Explicit] {
            if (number, placement) == (u32::MAX, Placement::Explicit) {
                continue; // Cannot be said: it means "see the sequence".
            }
            let data = Data {
                message_length: number,
                incoming: number,
                ack: None,
                cutoff_version: number as u16,
                retransmit: number & 1 == 1,
                empty_reply: number & 1 == 0,
                life: number as u16,
                offset: number,
                placement,
            };
            assert_round_trip(COMMON, &Packet::Data(data, b""));
        }
    }
}

#[test]
fn control_fields_survive_at_their_edges() {
    for number in [0, 1, 0x8000_0000, 0xffff_fffe, u32::MAX] {
        for priority in [0, 7, 255] {
            let offset = number;
            assert_round_trip(COMMON, &Packet::Grant(Grant { offset, priority }));
            let resend = Resend {
                offset,
                length: (number != u32::MAX).then_some(number),
                priority,
            };
            assert_round_trip(COMMON, &Packet::Resend(resend));
        }
        let cutoffs = Cutoffs {
            unsched_cutoffs: [number; 8],
            version: number as u16,
        };
        assert_round_trip(COMMON, &Packet::Cutoffs(cutoffs));
    }
    for count in 0..=5 {
        assert_round_trip(COMMON, &Packet::Ack(Acks((0..count).map(ack).collect())));
    }
}

#[test]
fn common_fields_survive_at_their_edges() {
    for (port, id) in [(0, 0), (1, 1), (0x8000, 1 << 63), (u16::MAX, u64::MAX)] {
        let common = Common {
            sport: port,
            dport: !port,
            id: RpcId(id),
        };
        assert_round_trip(common, &Packet::Busy);
    }
}

#[test]
fn an_ack_packet_that_claims_more_than_five_holds_five() {
    let mut bytes = bytes_of(&COMMON, &Packet::Ack(Acks(ArrayVec::new())));
    bytes.extend([0; 100]);
    for count in 6..=u16::MAX {
        bytes[28..30].copy_from_slice(&count.to_be_bytes());
        let Ok((_, Packet::Ack(acks))) = parse(&bytes) else {
            panic!("an ACK");
        };
        assert_eq!(acks.0.len(), 5);
    }
}

#[test]
fn an_id_knows_its_side_and_the_other() {
    assert!(RpcId(6).is_client() && !RpcId(7).is_client());
    assert_eq!(
        (RpcId(6).peer_side(), RpcId(7).peer_side()),
        (RpcId(7), RpcId(6))
    );
}

/// (message length, offset, payload length, fits)
#[test]
fn a_payload_fits_only_inside_a_message_of_allowed_length() {
    let cases = [
        (1, 0, 1, true),
        (1, 0, 0, false),
        (1, 0, 2, false),
        (1, 1, 1, false),
        (0, 0, 1, false),
        (0, 0, 0, false),
        (1_000_000, 999_999, 1, true),
        (1_000_000, 999_999, 2, false),
        (1_000_001, 0, 1, false),
        (u32::MAX, u32::MAX, 1, false),
        (1000, u32::MAX, 1001, false),
        (1000, u32::MAX, usize::MAX, false),
    ];
    for (message_length, offset, payload_len, fits) in cases {
        let data = Data {
            message_length,
            offset,
            ..DATA
        };
        assert_eq!(
            data.fits(payload_len),
            fits,
            "{message_length} {offset} {payload_len}"
        );
    }
}

/// Odd and even lengths, both families; a change of any byte is found.
#[test]
fn a_checksum_set_is_valid_until_a_byte_changes() {
    let v6 = |last: u128| Ip(0xfd77 << 112 | last);
    for (from, to) in [(Ip::v4(10, 77, 0, 1), Ip::v4(10, 77, 0, 2)), (v6(1), v6(2))] {
        for payload in [&b"odd"[..], b"even"] {
            let mut bytes = bytes_of(&COMMON, &Packet::Data(DATA, payload));
            set_checksum(&mut bytes, from, to);
            assert!(checksum_is_valid(&bytes, from, to));
            assert!(!checksum_is_valid(&bytes, from, Ip(to.0 + 1)));
            for at in 0..bytes.len() {
                bytes[at] ^= 0x10;
                assert!(!checksum_is_valid(&bytes, from, to));
                bytes[at] ^= 0x10;
            }
        }
    }
    assert!(!checksum_is_valid(&[0xff; 27], Ip(0), Ip(0)));
}

/// Whatever parses must also come back the same once written again.
#[test]
fn arbitrary_bytes_never_panic_and_keep_their_meaning() {
    let mut rng = Rng::new(0x4f6d);
    let mut bytes = [0u8; 128];
    for _ in 0..300_000 {
        for chunk in bytes.chunks_mut(8) {
            // Small numbers and all ones are where the edges are.
            let word = match rng.below(4) {
                0 => 0,
                1 => u64::MAX,
                _ => rng.next_u64(),
            };
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        if rng.below(8) > 0 {
            bytes[11] = 0x0f + rng.below(11) as u8;
            bytes[28] = 0;
            bytes[29] = rng.below(7) as u8;
        }
        let len = rng.below(129) as usize;
        if let Ok((common, packet)) = parse(&bytes[..len]) {
            assert_round_trip(common, &packet);
        }
    }
}
