//! Round trips, golden bytes, and bytes that nobody sent.

use super::*;
use crate::rng::Rng;

const COMMON: Common = Common {
    flags: Flags {
        is_retry: true,
        is_idempotent: false,
        keeps_reply: true,
    },
    session: 0x1122_3344_5566_7788,
    path: 0x99aa,
    epoch: 7,
};

fn any_common(rng: &mut Rng) -> Common {
    Common {
        flags: Flags::from_wire(rng.next_u64() as u16),
        session: rng.next_u64(),
        path: rng.next_u64() as u16,
        epoch: rng.next_u64() as u32,
    }
}

fn any_status(rng: &mut Rng) -> i32 {
    -((rng.next_u64() >> 33) as i32)
}

fn any_u128(rng: &mut Rng) -> u128 {
    u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())
}

fn any_io(rng: &mut Rng) -> IoRequest {
    IoRequest {
        sequence: rng.next_u64(),
        slot: rng.next_u64() as u16,
        user_len: rng.below(4033) as u16,
        data_len: rng.below(1_000_000) as u32,
        attempt: rng.next_u64() as u16,
        segments: rng.next_u64() as u16,
        timeout_ms: rng.next_u64() as u32,
    }
}

/// A request and the length that a message of it has.
fn any_request(rng: &mut Rng) -> (Request, usize) {
    let list = Resolve {
        status: 0,
        count: rng.below(u64::from(ENTRIES_MAX) + 1) as u32,
        pages: rng.next_u64() as u32,
    };
    let list_len = Resolve::message_len(list.count, Entry::ASKED);
    let status = any_status(rng);
    match rng.below(8) {
        0 => {
            let name_len = rng.next_u64() as u16;
            let open = OpenRequest {
                session_uuid: any_u128(rng),
                path_uuid: any_u128(rng),
                expected_server: any_u128(rng),
                resumed: rng.next_u64(),
                may_create: rng.below(2) == 0,
                queue_depth: rng.next_u64() as u32,
                io_max: rng.next_u64() as u32,
                user_max: rng.next_u64() as u32,
                beat_ms: rng.next_u64() as u32,
                missed_max: rng.next_u64() as u16,
                name_len,
            };
            (Request::PathOpen(open), 128 + usize::from(name_len))
        }
        1 => (Request::PathReady(list), list_len),
        2 => (Request::SlotResolve(list), list_len),
        3 => (Request::Heartbeat(any_beat(rng)), Heartbeat::LEN),
        4 => (Request::PathClose(Close { status }), Close::LEN),
        5 => (Request::SessionClose(Close { status }), Close::LEN),
        6 => {
            let io = any_io(rng);
            (Request::Read(io), 64 + usize::from(io.user_len))
        }
        _ => {
            let io = any_io(rng);
            let len = IoRequest::data_offset(io.user_len) + io.data_len as usize;
            (Request::Write(io), len)
        }
    }
}

fn any_beat(rng: &mut Rng) -> Heartbeat {
    Heartbeat {
        at_ns: rng.next_u64(),
        count: rng.next_u64() as u32,
        inflight: rng.next_u64() as u32,
        status: any_status(rng),
    }
}

fn any_response(rng: &mut Rng) -> (Response, usize) {
    let list = Resolve {
        status: any_status(rng),
        count: rng.below(u64::from(ENTRIES_MAX) + 1) as u32,
        pages: rng.next_u64() as u32,
    };
    let list_len = Resolve::message_len(list.count, Entry::ANSWERED);
    let status = any_status(rng);
    let outcomes = [
        Outcome::Executed,
        Outcome::NotExecuted,
        Outcome::Stale,
        Outcome::Refused,
    ];
    let outcome = outcomes[rng.below(4) as usize];
    let data_len = match (status, outcome) {
        (0, Outcome::Executed) => rng.below(1_000_000) as u32,
        _ => 0,
    };
    let io = IoResponse {
        sequence: rng.next_u64(),
        slot: rng.next_u64() as u16,
        outcome,
        is_replayed: rng.below(2) == 0,
        status,
        data_len,
        queued: rng.next_u64() as u32,
    };
    match rng.below(8) {
        0 => {
            let open = OpenResponse {
                status,
                server_uuid: any_u128(rng),
                queue_depth: rng.next_u64() as u32,
                io_max: rng.next_u64() as u32,
                user_max: rng.next_u64() as u32,
                beat_ms: rng.next_u64() as u32,
                missed_max: rng.next_u64() as u16,
                is_new: rng.below(2) == 0,
                no_reconnect: rng.below(2) == 0,
                lease_ms: rng.next_u64() as u32,
                linger_ms: rng.next_u64() as u32,
                retry_after_ms: rng.next_u64() as u32,
                server_id: any_u128(rng),
            };
            (Response::PathOpen(open), OpenResponse::LEN)
        }
        1 => (Response::PathReady(list), list_len),
        2 => (Response::SlotResolve(list), list_len),
        3 => (Response::Heartbeat(any_beat(rng)), Heartbeat::LEN),
        4 => (Response::PathClose(Close { status }), Close::LEN),
        5 => (Response::SessionClose(Close { status }), Close::LEN),
        6 => (Response::Read(io), 64 + data_len as usize),
        _ => (Response::Write(io), 64 + data_len as usize),
    }
}

#[test]
fn what_is_written_is_read_again_and_fits_no_other_length() {
    let mut rng = Rng::new(1);
    for _ in 0..2_000 {
        let mut out = [0xee; HEAD_MAX];
        let common = any_common(&mut rng);
        let (request, len) = any_request(&mut rng);
        let head_len = request.emit(&common, &mut out);
        let head = &out[..head_len];
        assert_eq!(parse_request(head, len as u32), Ok((common, request)));
        let others = [0, len - 1, len + 1, u32::MAX as usize];
        for other in others {
            let parsed = parse_request(head, other as u32);
            let is_fixed = head_len == Heartbeat::LEN && matches!(request, Request::Heartbeat(_))
                || matches!(request, Request::PathClose(_) | Request::SessionClose(_));
            assert!(is_fixed || parsed == Err(Malformed::Field), "{request:?}");
        }
        assert_eq!(parse_response(head, len as u32), Err(Malformed::Type));

        let (response, len) = any_response(&mut rng);
        let head_len = response.emit(&common, &mut out);
        let parsed = parse_response(&out[..head_len], len as u32);
        assert_eq!(parsed, Ok((common, response)));
    }
}

#[test]
fn every_shorter_head_is_refused() {
    let mut rng = Rng::new(2);
    for _ in 0..200 {
        let mut out = [0; HEAD_MAX];
        let (request, len) = any_request(&mut rng);
        let head_len = request.emit(&COMMON, &mut out);
        for short in 0..head_len {
            let parsed = parse_request(&out[..short], len as u32);
            assert_eq!(parsed, Err(Malformed::Short), "{request:?}");
        }
        let (response, len) = any_response(&mut rng);
        let head_len = response.emit(&COMMON, &mut out);
        for short in 0..head_len {
            let parsed = parse_response(&out[..short], len as u32);
            assert_eq!(parsed, Err(Malformed::Short), "{response:?}");
        }
    }
}

/// A CRC finds every error of one bit; reserved bytes are under it too.
#[test]
fn every_bit_turned_over_is_found() {
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let mut out = [0; HEAD_MAX];
        let (request, len) = any_request(&mut rng);
        let head_len = request.emit(&COMMON, &mut out);
        for bit in 0..head_len * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            let parsed = parse_request(&out[..head_len], len as u32);
            assert!(parsed.is_err(), "{request:?}, bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Whatever the fields say, a header whose check is right parses to what fits the message, or not
/// at all.
#[test]
fn fields_of_any_value_never_lead_outside_the_message() {
    let edges = [
        0,
        1,
        63,
        64,
        65,
        4032,
        4033,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
    ];
    let mut rng = Rng::new(4);
    for _ in 0..100_000 {
        let mut out = [0; HEAD_MAX];
        let (request, _) = any_request(&mut rng);
        let head_len = request.emit(&COMMON, &mut out);
        for _ in 0..3 {
            let at = COMMON_LEN + rng.below((head_len - COMMON_LEN - 3) as u64) as usize;
            let edge = edges[rng.below(edges.len() as u64) as usize];
            out[at..at + 4].copy_from_slice(&edge.to_le_bytes());
        }
        finish(&mut out[..head_len]);
        let len = edges[rng.below(edges.len() as u64) as usize];
        match parse_request(&out[..head_len], len) {
            Ok((_, Request::Write(io))) => {
                let end = IoRequest::data_offset(io.user_len) as u64 + u64::from(io.data_len);
                assert!(end == u64::from(len) && usize::from(io.user_len) <= USER_HEAD_MAX - 64);
            }
            Ok((_, Request::Read(io))) => assert_eq!(64 + u32::from(io.user_len), len),
            Ok((_, Request::PathOpen(open))) => assert_eq!(128 + u32::from(open.name_len), len),
            Ok((_, Request::PathReady(list) | Request::SlotResolve(list))) => {
                assert_eq!(48 + list.count * 16, len);
            }
            Ok((_, Request::Heartbeat(_) | Request::PathClose(_) | Request::SessionClose(_)))
            | Err(_) => {}
        }
    }
}

#[test]
fn noise_is_refused() {
    let mut rng = Rng::new(5);
    for _ in 0..20_000 {
        let mut bytes = [0u8; HEAD_MAX];
        bytes.fill_with(|| rng.next_u64() as u8);
        if rng.below(2) == 0 {
            bytes[..4].copy_from_slice(&[0x48, 0x52, 1, 0x10]);
        }
        assert!(parse_request(&bytes, 128).is_err() && parse_response(&bytes, 128).is_err());
    }
}

/// The bytes as the table in the module's documentation has them.
#[test]
fn a_write_looks_like_this() {
    let io = IoRequest {
        sequence: 0x0102_0304_0506_0708,
        slot: 0x1112,
        user_len: 5,
        data_len: 0x2122,
        attempt: 2,
        segments: 3,
        timeout_ms: 30_000,
    };
    let mut out = [0xee; 64];
    assert_eq!(Request::Write(io).emit(&COMMON, &mut out), 64);
    let crc: [u8; 4] = out[24..28].try_into().unwrap();
    #[rustfmt::skip]
    let expected = [
        0x48, 0x52, 1, 0x11, 0x0a, 0, 64, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        0xaa, 0x99, 0, 0, 7, 0, 0, 0, crc[0], crc[1], crc[2], crc[3], 0, 0, 0, 0,
        8, 7, 6, 5, 4, 3, 2, 1, 0x12, 0x11, 5, 0, 0x22, 0x21, 0, 0,
        72, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0x30, 0x75, 0, 0,
    ];
    assert_eq!(out, expected);
}

#[test]
fn a_verdict_of_each_kind_comes_back_and_others_are_refused() {
    let states = [
        SlotState::NotExecuted,
        SlotState::InProgress,
        SlotState::Done { status: 0 },
        SlotState::Done { status: i32::MIN },
        SlotState::Stale,
        SlotState::DoneNoData,
    ];
    for state in states {
        let verdict = Verdict {
            slot: 9,
            sequence: u64::MAX,
            state,
        };
        let mut out = [0xee; Entry::ANSWERED];
        verdict.emit(&mut out);
        assert_eq!(Verdict::parse(&out), Ok(verdict));
    }
    let mut out = [0; Entry::ANSWERED];
    out[2] = 5;
    assert_eq!(Verdict::parse(&out), Err(Malformed::Field));
    let entry = Entry {
        slot: 3,
        sequence: 1 << 63,
    };
    let mut out = [0xee; Entry::ASKED];
    entry.emit(&mut out);
    assert_eq!(Entry::parse(&out), entry);
}

#[test]
fn another_version_and_another_protocol_are_told_apart() {
    let mut out = [0; HEAD_MAX];
    let len = Request::Heartbeat(Heartbeat::default()).emit(&COMMON, &mut out);
    let with = |at: usize, byte: u8| {
        let mut bytes = out;
        bytes[at] = byte;
        finish(&mut bytes[..len]);
        parse_request(&bytes[..len], len as u32)
    };
    assert_eq!(with(0, 0), Err(Malformed::Magic));
    assert_eq!(with(2, 2), Err(Malformed::Version));
    assert_eq!(with(3, 0x07), Err(Malformed::Type));
    assert_eq!(with(3, 0x83), Err(Malformed::Type));
    assert_eq!(with(6, 63), Err(Malformed::HeaderLen));
    assert_eq!(with(24, 0x83).map(|(common, _)| common), Ok(COMMON));
}
