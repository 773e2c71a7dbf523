//! A server restarts amid its response, and answers anew by a copy of the request: the bytes of
//! its two lives are never put together.

use super::*;

const LEN: u32 = 2_000;

/// Half of a response by a life of the server that names itself so, and our cutoffs so.
fn half(rig: &mut Rig, id: u64, start: u32, (life, version): (u16, u16), byte: u8) -> bool {
    let data = Data {
        life,
        cutoff_version: version,
        ..data(LEN, start)
    };
    rig.hear(PEER, id ^ 1, &Packet::Data(data, &[byte; 1_000]))
}

/// The bytes of the response that came.
fn bytes_of(rig: &mut Rig) -> Vec<u8> {
    let Some(Event::Response { message, .. }) = rig.homa.poll_event() else {
        panic!("no response");
    };
    let mut bytes = vec![0; message.len as usize];
    rig.homa.region().read(message.offset as usize, &mut bytes);
    bytes
}

#[test]
fn a_response_is_of_one_life_of_its_server() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(100);
    assert!(half(&mut rig, id, 0, (7, 1), b'a'));
    assert!(!half(&mut rig, id, 1_000, (8, 1), b'b'));
    assert!(!half(&mut rig, id, 1_000, (0, 1), b'b'));
    assert_eq!(rig.homa.stats().other_life, 2);
    // What the first life sent may still come.
    assert!(half(&mut rig, id, 1_000, (7, 1), b'a'));
    assert_eq!(bytes_of(&mut rig), vec![b'a'; LEN as usize]);
}

/// Of the new life nothing is taken, so it does not count as an answer either.
#[test]
fn a_response_whose_server_restarted_amid_it_times_out() {
    let mut rig = Rig::new();
    let (_, id) = rig.call(100);
    half(&mut rig, id, 0, (7, 1), b'a');
    for _ in 0..20 {
        rig.pass(5);
        half(&mut rig, id, 1_000, (8, 1), b'b');
    }
    assert_eq!(rig.outcome(), Some(Err(Error::PeerTimedOut)));
}

/// A Linux server has no number; but it knew our cutoffs for long, and does not any more.
#[test]
fn a_linux_server_that_restarts_amid_a_response_is_found_out_by_its_cutoffs() {
    let mut rig = Rig::new();
    let (_, other) = rig.call(100);
    assert!(rig.response(PEER, other, 30, 0..30));
    assert_eq!(rig.outcome(), Some(Ok(30)));
    rig.pass(150);
    let (_, id) = rig.call(100);
    assert!(half(&mut rig, id, 0, (0, 1), b'a'));
    assert!(!half(&mut rig, id, 1_000, (0, 0), b'b'));
    // By now it knows them again.
    assert!(!half(&mut rig, id, 1_000, (0, 1), b'b'));
    assert_eq!(rig.homa.stats().other_life, 2);
    // A response that began in the new life is taken.
    let (_, id) = rig.call(100);
    assert!(half(&mut rig, id, 0, (0, 1), b'c'));
    assert!(half(&mut rig, id, 1_000, (0, 1), b'c'));
    assert_eq!(bytes_of(&mut rig), vec![b'c'; LEN as usize]);
}

#[test]
fn all_data_of_a_life_names_it_and_no_other() {
    let lives: std::collections::BTreeSet<u16> = (1..=20)
        .map(|seed| {
            let params = Params {
                seed,
                ..Params::default()
            };
            let mut rig = Rig::with(params, 16);
            let socket = rig.socket;
            let payload = zeros(3_000);
            let called = rig
                .homa
                .send_request(rig.now, socket, PEER, payload, 1, Notify::Never);
            called.unwrap();
            let lives: Vec<_> = rig.data_sent().iter().map(|(_, data)| data.life).collect();
            assert!(lives.iter().all(|&life| life == lives[0] && life != 0));
            lives[0]
        })
        .collect();
    assert_eq!(lives.len(), 20);
}
