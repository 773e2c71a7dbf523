//! How RPCs begin and end by the user's hand. Rules RP-01 to RP-22, SK-03, TM-10.

use super::*;

/// Rule RP-01.
#[test]
fn an_rpc_that_cannot_begin_leaves_nothing_behind() {
    let params = Params {
        rpcs_max: 2,
        peers_max: 1,
        ..Params::default()
    };
    let mut rig = Rig::with(params, 16);
    let call = |rig: &mut Rig, socket, to| {
        let called = rig
            .homa
            .send_request(rig.now, socket, to, zeros(10), 1, Notify::Never);
        called.map(|_| ())
    };
    let socket = rig.socket;
    // A socket that takes requests would leave a slot to them.
    rig.homa.set_server(socket, false);
    let elsewhere = Addr::new(Ip::v4(10, 0, 0, 3), 7);
    assert_eq!(call(&mut rig, socket, PEER), Ok(()));
    assert_eq!(call(&mut rig, socket, elsewhere), Err(Error::Exhausted));
    assert_eq!(call(&mut rig, socket, PEER), Ok(()));
    assert_eq!(call(&mut rig, socket, PEER), Err(Error::Exhausted));
    assert_eq!(rig.homa.rpc_count(), 2);
    rig.homa.close(rig.now, socket);
    assert_eq!(call(&mut rig, socket, PEER), Err(Error::BadDescriptor));
    assert_eq!((rig.homa.rpc_count(), rig.sent()), (0, vec![]));
}

/// Rules RP-07, RP-10: once for good.
#[test]
fn an_abort_ends_an_rpc_once() {
    let mut rig = Rig::new();
    let (key, id) = rig.call(10);
    rig.homa.abort(rig.now, key, Error::Canceled);
    rig.homa.abort(rig.now, key, Error::Aborted(5));
    assert_eq!(rig.outcome(), Some(Err(Error::Canceled)));
    assert_eq!((rig.outcome(), rig.homa.rpc_count()), (None, 0));
    assert!(!rig.response(PEER, id, 30, 0..30));
    rig.request(PEER, 8, b"x");
    let served = rig.serve().unwrap();
    rig.homa.abort(rig.now, served.rpc, Error::Canceled);
    rig.homa.abort(rig.now, served.rpc, Error::Canceled);
    assert_eq!((rig.homa.poll_event(), rig.homa.rpc_count()), (None, 0));
}

/// Rules RP-08, RP-38: out of all lists, and its pages are free.
#[test]
fn an_rpc_that_ends_amid_its_response_holds_nothing() {
    let mut rig = Rig::new();
    let (key, id) = rig.call(60_000);
    let data = Data {
        incoming: 5000,
        ..data(500_000, 3000)
    };
    rig.hear(PEER, id ^ 1, &Packet::Data(data, &[0; 1000]));
    let second = Data { offset: 0, ..data };
    rig.hear(PEER, id ^ 1, &Packet::Data(second, &[0; 1000]));
    assert_eq!(rig.homa.grants.incoming(), 3000);
    assert!(rig.homa.free_pages() < 16);
    rig.homa.abort(rig.now, key, Error::Canceled);
    assert_eq!(rig.homa.free_pages(), 16);
    assert_eq!(rig.homa.grants.incoming(), 0);
    assert!(rig.pass(200).iter().all(Vec::is_empty));
    assert!(rig.homa.is_quiet());
}

/// Rule RP-38.
#[test]
fn a_request_that_nobody_took_gives_its_pages_back() {
    let mut rig = Rig::new();
    for id in [8, 10] {
        rig.request(PEER, id, &[0; 1_000]);
    }
    let Some(Event::Request { rpc, .. }) = rig.homa.poll_event() else {
        panic!("a request");
    };
    rig.homa.abort(rig.now, rpc, Error::Canceled);
    assert_eq!(rig.homa.free_pages(), 15);
    rig.homa.close(rig.now, rig.socket);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 16));
}

/// Rules SK-03, TM-10, IN-65: a socket that closes takes its RPCs along, of either side, and says
/// nothing of them.
#[test]
fn a_socket_that_closes_ends_its_rpcs_and_no_others() {
    let mut rig = Rig::new();
    let other = rig.homa.open(PORT + 1).unwrap();
    let called = rig
        .homa
        .send_request(rig.now, other, PEER, zeros(10), 1, Notify::Never);
    let (_, id) = called.unwrap();
    rig.call(10);
    rig.request(PEER, 8, b"x");
    rig.homa.close(rig.now, rig.socket);
    rig.homa.close(rig.now, rig.socket);
    assert_eq!(rig.homa.rpc_count(), 1);
    while let Some(event) = rig.homa.poll_event() {
        let Event::Request { rpc, .. } = event else {
            panic!("{event:?}");
        };
        assert!(rig.homa.take(rpc).is_none());
    }
    let bytes = [0; 30];
    let response = Packet::Data(data(30, 0), &bytes);
    rig.hear_on(PORT + 1, PEER, id.0 ^ 1, &response);
    assert_eq!(rig.outcome(), Some(Ok(30)));
    assert!(rig.pass(200).iter().all(Vec::is_empty));
}

/// Rule AP-03: an RPC that is gone takes no response, one not in service refuses it.
#[test]
fn a_response_goes_to_a_request_in_service_only() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    let Some(Event::Request { rpc, .. }) = rig.homa.poll_event() else {
        panic!("a request");
    };
    let early = rig
        .homa
        .send_response(rig.now, rpc, zeros(10), Notify::Never);
    assert_eq!(early, Err(Error::Invalid));
    assert!(rig.homa.take(rpc).is_some() && rig.homa.in_service(rpc));
    rig.reply(rpc, 10);
    let twice = rig
        .homa
        .send_response(rig.now, rpc, zeros(10), Notify::Never);
    assert_eq!(twice, Err(Error::Invalid));
    assert_eq!(rig.sent(), [Out::Data(9, 0..10)]);
    rig.hear(PEER, 8, &Packet::Ack(wire::Acks::default()));
    rig.reply(rpc, 10);
    assert_eq!(rig.sent(), []);
}

/// Rule AP-03. Not as HomaModule, which ends such an RPC: its client would send the request again.
#[test]
fn a_request_whose_response_is_too_long_may_be_answered_again() {
    let mut rig = Rig::new();
    rig.request(PEER, 8, b"x");
    let rpc = rig.serve().unwrap().rpc;
    let too_long = zeros(1_000_001);
    let replied = rig
        .homa
        .send_response(rig.now, rpc, too_long, Notify::Never);
    assert_eq!(replied, Err(Error::MessageTooLong));
    assert!(rig.homa.in_service(rpc));
    rig.reply(rpc, 10);
    assert_eq!(rig.sent(), [Out::Data(9, 0..10)]);
}
