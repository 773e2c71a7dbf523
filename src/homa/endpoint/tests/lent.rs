//! Sockets whose messages go to pages that their user lends.

use super::*;
use crate::homa::LentPool;

/// The smallest region: 31 pages, of which requests have the lower 16.
const SMALLEST: usize = 2 * 1_000_000 + 65_536;

/// A rig whose server socket has lent pages, though the runtime has but one page of its own.
fn lent_rig(region_len: usize) -> Rig {
    let mut rig = Rig::with(Params::default(), 1);
    rig.homa.close(rig.now, rig.socket);
    rig.socket = rig.homa.open_lent(PORT).unwrap();
    rig.homa.set_server(rig.socket, true);
    if region_len > 0 {
        let region = Region::owned(region_len).unwrap();
        rig.homa.lend(rig.now, rig.socket, region).unwrap();
    }
    rig
}

fn lent(rig: &Rig) -> &LentPool {
    rig.homa.lent(rig.socket).unwrap()
}

/// Takes the next request that was announced: its parts, and its bytes.
fn take(rig: &mut Rig) -> Option<(Vec<u32>, Vec<u8>)> {
    while let Some(event) = rig.homa.poll_event() {
        if let Event::Request { rpc, .. } = event {
            let message = rig.homa.take_lent(rpc).expect("a request that is there");
            let mut bytes = vec![0; message.len as usize];
            lent(rig).read(message.run, 0, &mut bytes);
            let parts = rig.homa.hand_over(rig.socket, message.run).unwrap();
            rig.homa.check();
            return Some((parts.to_vec(), bytes));
        }
    }
    None
}

/// The packets of a request of `len` bytes from `from` on, 1,400 at a time.
fn send(rig: &mut Rig, id: u64, bytes: &[u8], from: usize) {
    for start in (from..bytes.len()).step_by(1400) {
        let end = bytes.len().min(start + 1400);
        let data = data(bytes.len() as u32, start as u32);
        rig.hear(PEER, id, &Packet::Data(data, &bytes[start..end]));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn messages_of_all_lengths_lie_in_the_lent_region_and_take_no_page_of_ours() {
    let mut rig = lent_rig(64 << 16);
    for (n, len) in [1, 1400, 1401, 65_536, 65_537, 150_000]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(len);
        send(&mut rig, n as u64 * 2 + 2, &bytes, 0);
        let (parts, got) = take(&mut rig).expect("a request");
        assert!(got == bytes, "{len}");
        assert_eq!(parts.len(), len.div_ceil(1 << 16));
        assert_eq!(rig.homa.free_pages(), 1);
        rig.homa.take_back(rig.now, rig.socket, &parts).unwrap();
    }
    assert_eq!(lent(&rig).free_bytes(), 64 << 16);
}

#[test]
fn a_message_longer_than_all_our_own_pages_comes_in_whole() {
    let mut rig = lent_rig(SMALLEST);
    let bytes = pattern(1_000_000);
    send(&mut rig, 2, &bytes, 0);
    let (parts, got) = take(&mut rig).expect("a request");
    assert!(got == bytes && parts.len() == 16);
    assert_eq!(rig.homa.stats().too_long, 0);
}

/// Before there is a region a message waits; then all of it is asked for. Rule PL-18.
#[test]
fn a_message_that_came_before_the_region_is_asked_for_again() {
    let mut rig = lent_rig(0);
    rig.request(PEER, 2, &[7; 100]);
    assert_eq!((take(&mut rig), rig.homa.stats().page_waits), (None, 1));
    let region = Region::owned(SMALLEST).unwrap();
    rig.homa.lend(rig.now, rig.socket, region).unwrap();
    rig.homa.check();
    assert!(rig.sent().contains(&Out::Resend(3, 0, None)));
    rig.request(PEER, 2, &[7; 100]);
    assert_eq!(take(&mut rig).map(|(_, bytes)| bytes), Some(vec![7; 100]));
}

/// The application has all pages: senders get no grant, and go on once it gives some back.
#[test]
fn exhaustion_stalls_senders_and_ends() {
    let mut rig = lent_rig(SMALLEST);
    let bytes = pattern(1_000_000);
    send(&mut rig, 2, &bytes, 0);
    let (parts, _) = take(&mut rig).expect("a request");
    rig.sent();
    // A second of 1,000,000 bytes finds none of the 16 pages: what comes is dropped.
    let first = Data {
        incoming: 40_000,
        ..data(1_000_000, 0)
    };
    for _ in 0..2 {
        rig.hear(PEER, 4, &Packet::Data(first, &bytes[..1400]));
    }
    assert!(rig.pass(50).concat().iter().all(|out| !out.is("GRANT")));
    assert_eq!((take(&mut rig), lent(&rig).waiter_count()), (None, 1));
    // While the application keeps one page, the message still waits.
    rig.homa
        .take_back(rig.now, rig.socket, &parts[1..])
        .unwrap();
    assert_eq!(lent(&rig).waiter_count(), 1);
    rig.homa
        .take_back(rig.now, rig.socket, &parts[..1])
        .unwrap();
    let sent = rig.sent();
    assert!(sent.contains(&Out::Resend(5, 0, None)), "{sent:?}");
    assert!(sent.iter().any(|out| out.is("GRANT")), "{sent:?}");
    send(&mut rig, 4, &bytes, 0);
    assert!(take(&mut rig).expect("a request").1 == bytes);
}

/// What comes next never touches a page that was not given back.
#[test]
fn pages_that_the_user_has_are_never_written_to() {
    let mut rig = lent_rig(SMALLEST);
    let mut ours: Vec<(Vec<u32>, Vec<u8>)> = Vec::new();
    let mut rng = crate::rng::Rng::new(5);
    for id in 1..400 {
        let len = 1 + rng.next_u64() as usize % 150_000;
        let bytes = vec![id as u8; len];
        send(&mut rig, id * 2, &bytes, 0);
        ours.extend(take(&mut rig));
        for (parts, bytes) in &ours {
            let region = lent(&rig).region().unwrap();
            for (part, expected) in parts.iter().zip(bytes.chunks(1 << 16)) {
                let mut there = vec![0; expected.len()];
                region.read(*part as usize, &mut there);
                assert!(there == expected, "message {id} wrote over another");
            }
        }
        while ours.len() > 4 {
            let (parts, _) = ours.swap_remove(rng.next_u64() as usize % ours.len());
            rig.homa.take_back(rig.now, rig.socket, &parts).unwrap();
        }
    }
    assert!(ours.len() == 4);
}

#[test]
fn a_socket_that_closes_leaves_nothing_of_its_messages_behind() {
    let mut rig = lent_rig(SMALLEST);
    // One that nobody took, one that waits, one half here.
    send(&mut rig, 2, &pattern(1_000_000), 0);
    send(&mut rig, 4, &pattern(900_000)[..30_000], 0);
    rig.hear(PEER, 6, &Packet::Data(data(3000, 0), &[0; 1400]));
    assert_eq!(rig.homa.rpc_count(), 3);
    rig.homa.close(rig.now, rig.socket);
    rig.homa.check();
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 1));
}

#[test]
fn responses_come_into_the_lent_region_and_nobody_s_error_keeps_a_page() {
    let mut rig = lent_rig(SMALLEST);
    let (_, id) = rig.call(100);
    assert!(rig.response(PEER, id, 2800, 0..1400));
    assert!(rig.response(PEER, id, 2800, 1400..2800));
    let Some(Event::Response { message, .. }) = rig.homa.poll_event() else {
        panic!("no response");
    };
    let parts = rig.homa.hand_over(rig.socket, message.run).unwrap();
    // The page of requests is the lowest, that of responses the first above theirs.
    assert_eq!((message.len, parts.to_vec()), (2800, vec![16 << 16]));
    rig.homa.take_back(rig.now, rig.socket, &parts).unwrap();
    let (key, id) = rig.call(100);
    assert!(rig.response(PEER, id, 2800, 0..1400));
    rig.homa.abort(rig.now, key, Error::Canceled);
    rig.homa.check();
    assert_eq!(lent(&rig).free_bytes(), 31 << 16);
}

#[test]
fn a_freeze_goes_to_every_peer() {
    let mut rig = lent_rig(SMALLEST);
    rig.request(PEER, 2, &[1]);
    rig.sent();
    rig.homa.freeze_peers(rig.socket);
    assert!(rig.sent().iter().any(|out| out.is("FREEZE")));
    assert_eq!(rig.homa.stats().freezes_out, 1);
}
