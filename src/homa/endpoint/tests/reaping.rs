//! Many RPCs that are over at once, or whose link fails or comes up at once: in bounded steps, and
//! as if they were gone from the first moment. Rules RP-30 to RP-36, TM-09, IN-39.

use super::*;

/// RPCs of the socket that closes.
const MANY: u32 = 100_000;

fn roomy(rpcs_max: u32) -> Rig {
    let params = Params {
        rpcs_max,
        ..Params::default()
    };
    Rig::with(params, 64)
}

/// Calls from `socket`, with nothing sent yet.
fn call_from(rig: &mut Rig, socket: SocketKey, notify: Notify) -> Result<(RpcKey, u64), Error> {
    let called = rig
        .homa
        .send_request(rig.now, socket, PEER, Payload::EmptyReply, 1, notify);
    called.map(|(key, id)| (key, id.0))
}

fn call_ours(rig: &mut Rig, notify: Notify) -> Result<(RpcKey, u64), Error> {
    let socket = rig.socket;
    call_from(rig, socket, notify)
}

/// Sends all there is, without the checks of [`Rig::packets`], which look at every RPC.
fn send_all(rig: &mut Rig) -> usize {
    rig.resolve();
    let mut room = [0; 1600];
    let packets = std::iter::from_fn(|| rig.homa.poll_transmit(rig.now, &mut room));
    packets.count()
}

/// A turn in which a short response comes, for a call of that turn; tells if all went well at once.
fn short_rpc(rig: &mut Rig, socket: SocketKey, port: u16) -> bool {
    let Ok((_, id)) = call_from(rig, socket, Notify::Never) else {
        return false;
    };
    if send_all(rig) != 1 {
        return false;
    }
    let common = Common {
        sport: PEER.port,
        dport: port,
        id: RpcId(id ^ 1),
    };
    let mut bytes = [0; 1600];
    let len = wire::emit(&common, &Packet::Data(data(30, 0), &[0; 30]), &mut bytes);
    let meta = Meta {
        from: PEER.ip,
        to: OURS,
    };
    let mut got = Vec::new();
    let _ = rig
        .homa
        .handle_packet(rig.now, meta, &bytes[..len], &mut |homa, event| {
            if let Event::Response { message, .. } = event {
                homa.release(Instant(0), message.run);
            }
            got.push(event);
        });
    matches!(got[..], [Event::Response { .. }])
}

/// At 32 a turn, and 256 places looked at, 100,000 are gone within 3,200 turns; in each of them a
/// short RPC comes and goes as ever.
#[test]
fn a_socket_that_closes_with_many_rpcs_holds_up_no_short_one() {
    let mut rig = roomy(2 * MANY);
    let other = rig.homa.open(PORT + 1).unwrap();
    for _ in 0..MANY {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    send_all(&mut rig);
    rig.homa.close(rig.now, rig.socket);
    let mut left = rig.homa.rpc_count();
    assert!(left > MANY as usize - 100, "all at once: {left} are left");
    let mut turns = 0;
    while rig.homa.rpc_count() > 0 {
        assert!(short_rpc(&mut rig, other, PORT + 1), "turn {turns}");
        rig.homa.handle_timeout(rig.now);
        assert!(
            left - rig.homa.rpc_count() <= 32,
            "too many in turn {turns}"
        );
        assert!(rig.homa.poll_timeout().is_some());
        (left, turns) = (rig.homa.rpc_count(), turns + 1);
        assert!(turns <= 3_200, "{left} are left");
    }
    rig.homa.check();
    assert!(rig.homa.poll_event().is_none());
}

/// In each turn as many RPCs are left to the reaper as come in with a burst, among a thousand that
/// live.
#[test]
fn reaping_keeps_up_with_sockets_that_come_and_go() {
    let mut rig = roomy(8_000);
    for _ in 0..1_000 {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    let mut most = 0;
    for _ in 0..5_000 {
        let socket = rig.homa.open(0).unwrap();
        for _ in 0..32 {
            call_from(&mut rig, socket, Notify::Never).unwrap();
        }
        send_all(&mut rig);
        rig.homa.close(rig.now, socket);
        rig.homa.handle_timeout(rig.now);
        most = most.max(rig.homa.rpc_count());
    }
    assert!(most <= 1_000 + 8 * 32, "{most} at once");
}

/// Requests of a thousand in each state, then the port closes: not one says another word.
#[test]
fn an_rpc_of_a_closed_socket_answers_nothing_though_it_is_still_here() {
    let mut rig = roomy(8_000);
    let mut served = Vec::new();
    for id in 1..=1_000 {
        rig.hear_unchecked(PEER, 2 * id, &Packet::Data(data(1, 0), b"x"));
        served.push(rig.serve().unwrap());
    }
    for message in &served[..500] {
        rig.reply(message.rpc, 10);
    }
    let (_, called) = call_ours(&mut rig, Notify::Delivered(7)).unwrap();
    rig.homa.close(rig.now, rig.socket);
    assert!(rig.homa.rpc_count() > 900);
    assert_eq!(rig.sent(), [], "neither responses nor the request go out");
    let resend = Packet::Resend(Resend {
        offset: 0,
        length: None,
        priority: 7,
    });
    let (last, replying) = (&served[999], &served[499]);
    let verdict = rig.verdict(PEER, last.id.0 ^ 1, &resend);
    assert_eq!(verdict, Verdict::PortUnreachable);
    assert_eq!(rig.verdict(PEER, replying.id.0 ^ 1, &resend), verdict);
    assert!(!rig.response(PEER, called, 30, 0..30));
    assert!(!rig.homa.in_service(last.rpc));
    rig.reply(last.rpc, 10);
    rig.homa.abort(rig.now, last.rpc, Error::Canceled);
    rig.unreachable(PEER, PORT, called);
    assert!(rig.pass(200).iter().all(Vec::is_empty));
    // Who waits for bytes is told of them all the same.
    let told = Event::Released {
        tag: 7,
        result: Err(Error::Canceled),
    };
    assert_eq!(rig.homa.poll_event(), Some(told));
    assert_eq!((rig.homa.rpc_count(), rig.homa.poll_event()), (0, None));
}

/// Decision 12. As a Linux client does, the new life counts its ids from 2 on again.
#[test]
fn requests_of_an_earlier_life_are_never_served_though_they_are_still_here() {
    let mut rig = roomy(8_000);
    for id in 1..=1_000 {
        rig.hear_unchecked(PEER, 2 * id, &Packet::Data(data(1, 0), b"x"));
    }
    let old: Vec<_> = std::iter::from_fn(|| rig.homa.poll_event()).collect();
    rig.now += Duration::millis(200);
    let new = Data {
        cutoff_version: 0,
        ..data(1, 0)
    };
    assert!(rig.hear(PEER, 2_000, &Packet::Data(new, b"n")));
    assert_eq!(rig.homa.stats().restarts, 1);
    assert!(rig.homa.rpc_count() > 900);
    for event in old {
        let Event::Request { rpc, .. } = event else {
            panic!("{event:?}")
        };
        assert!(rig.homa.take(rpc).is_none());
    }
    let message = rig.serve().expect("the new life's");
    let mut byte = [0];
    let (region, at) = (rig.homa.region(), message.offset as usize);
    region.read(at, &mut byte);
    assert_eq!((message.id.0, byte), (2_001, *b"n"));
    rig.pass(100);
    assert_eq!(rig.homa.rpc_count(), 1);
}

/// Our own ids tell one life from another, so a late packet of the old one names an RPC that ran.
#[test]
fn a_late_copy_of_a_request_that_waits_for_the_reaper_does_not_run_again() {
    const DRAWN: u64 = 1 << 50;
    let mut rig = roomy(8_000);
    for id in 1..=1_000 {
        let packet = Packet::Data(data(1, 0), b"x");
        rig.hear_unchecked(PEER, DRAWN + 2 * id, &packet);
        rig.serve().unwrap();
    }
    rig.homa.close(rig.now, rig.socket);
    rig.socket = rig.homa.open(PORT).unwrap();
    rig.homa.set_server(rig.socket, true);
    assert!(rig.homa.rpc_count() > 900);
    assert!(!rig.request(PEER, DRAWN + 1_600, b"x"));
    assert_eq!((rig.announced(), rig.homa.stats().late_requests), (0, 1));
}

/// No turn passes: who finds all slots taken by what is over makes room.
#[test]
fn rpcs_that_are_over_keep_nobody_out() {
    let mut rig = roomy(1_000);
    rig.homa.set_server(rig.socket, false);
    while call_ours(&mut rig, Notify::Never).is_ok() {}
    let (full, old) = (rig.homa.rpc_count(), rig.socket);
    rig.socket = rig.homa.open(PORT + 1).unwrap();
    rig.homa.close(rig.now, old);
    assert!(rig.homa.rpc_count() > full - 100);
    for _ in 0..full {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    rig.homa.check();
}

/// The pages of responses that come in are all taken by RPCs that are over.
#[test]
fn pages_of_rpcs_that_are_over_are_there_for_who_needs_them() {
    let mut rig = roomy(1_000);
    let other = rig.homa.open(PORT + 1).unwrap();
    let begin = |rig: &mut Rig, socket, port| {
        let (_, id) = call_from(rig, socket, Notify::Never).unwrap();
        send_all(rig);
        let packet = Packet::Data(data(60_000, 0), &[0; 1000]);
        assert!(rig.hear_on(port, PEER, id ^ 1, &packet));
    };
    let ours = rig.socket;
    (0..64).for_each(|_| begin(&mut rig, ours, PORT));
    assert_eq!(rig.homa.free_pages(), 0);
    rig.homa.close(rig.now, rig.socket);
    (0..64).for_each(|_| begin(&mut rig, other, PORT + 1));
    assert_eq!(rig.homa.stats().page_waits, 0);
}

/// Some wait for pages when their socket closes: none of them gets any, and those of other sockets
/// do.
#[test]
fn who_waits_for_pages_and_is_over_gets_none() {
    let mut rig = roomy(1_000);
    let other = rig.homa.open(PORT + 1).unwrap();
    let begin = |rig: &mut Rig, socket, port| {
        let (_, id) = call_from(rig, socket, Notify::Never).unwrap();
        send_all(rig);
        let packet = Packet::Data(data(60_000, 0), &[0; 1000]);
        rig.hear_on(port, PEER, id ^ 1, &packet);
    };
    (0..64).for_each(|_| begin(&mut rig, other, PORT + 1));
    let ours = rig.socket;
    (0..100).for_each(|_| begin(&mut rig, ours, PORT));
    begin(&mut rig, other, PORT + 1);
    assert_eq!(rig.homa.stats().page_waits, 101);
    rig.homa.close(rig.now, rig.socket);
    rig.homa.close(rig.now, other);
    rig.homa.check();
    assert_eq!(rig.sent(), []);
    rig.pass(20);
    assert_eq!((rig.homa.rpc_count(), rig.homa.free_pages()), (0, 64));
}

/// A thousand requests wait for a link, of one packet each, and the way is not found.
#[test]
fn a_link_that_fails_ends_its_rpcs_a_few_at_a_time_and_each_once() {
    let mut rig = roomy(8_000);
    for _ in 0..1_000 {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    while rig.homa.poll_unresolved().is_some() {}
    let error = Error::HostUnreachable;
    rig.homa.handle_peer_failed(rig.now, PEER.ip, error);
    let mut failed = 0;
    for turn in 0.. {
        let events = std::iter::from_fn(|| rig.homa.poll_event());
        let count = events
            .inspect(|event| {
                assert!(matches!(event, Event::Failed { error: e, .. } if *e == error))
            })
            .count();
        assert!(count <= 64, "{count} in turn {turn}");
        failed += count;
        if rig.homa.poll_timeout() != Some(rig.now) {
            break;
        }
        rig.homa.check();
        rig.homa.handle_timeout(rig.now);
    }
    assert_eq!((failed, rig.homa.rpc_count()), (1_000, 0));
}

/// In the order in which they were made, each once; one that ended meanwhile is passed over.
#[test]
fn what_waited_for_a_link_goes_out_a_few_at_a_time_and_each_once() {
    let mut rig = roomy(8_000);
    let called = |_| call_ours(&mut rig, Notify::Never).unwrap();
    let calls: Vec<_> = (0..1_000).map(called).collect();
    while rig.homa.poll_unresolved().is_some() {}
    rig.homa.handle_peer_up(PEER.ip, LinkId::new(0, 7, 0));
    rig.homa.forget(rig.now, calls[900].0);
    let mut sent = Vec::new();
    for _ in 0..20 {
        let more = rig.sent();
        assert!(more.len() <= 64, "{} at once", more.len());
        sent.extend(more);
        rig.homa.handle_timeout(rig.now);
    }
    let others = calls.iter().filter(|(_, id)| *id != calls[900].1);
    let expected: Vec<_> = others.map(|(_, id)| Out::Data(*id, 0..1)).collect();
    assert_eq!(sent, expected);
}

/// Requests that ended before they went out are passed over in steps, and the next call goes on.
#[test]
fn messages_that_are_over_are_passed_over_in_steps() {
    let mut rig = roomy(8_000);
    let other = rig.homa.open(PORT + 1).unwrap();
    rig.call(1);
    for _ in 0..1_000 {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    let (_, id) = call_from(&mut rig, other, Notify::Never).unwrap();
    rig.homa.close(rig.now, rig.socket);
    let mut calls = 0;
    let sent = loop {
        calls += 1;
        let sent = rig.sent();
        if !sent.is_empty() {
            break sent;
        }
        assert_eq!(rig.homa.poll_timeout(), Some(Instant(0)), "it would sleep");
    };
    assert_eq!((sent, calls), (vec![Out::Data(id, 0..1)], 4));
}

/// A long request from a host whose link is not known: the grant goes out once it is.
#[test]
fn a_grant_waits_for_the_link_it_needs() {
    let mut rig = Rig::new();
    let packet = |offset| Data {
        incoming: 1_000,
        ..data(50_000, offset)
    };
    let unlinked = |rig: &mut Rig, offset| {
        let packet = Packet::Data(packet(offset), &[0; 1_000]);
        rig.hear_unlinked(PEER, 8, &packet);
        let mut room = [0; 1600];
        assert!(rig.homa.poll_transmit(rig.now, &mut room).is_none());
    };
    unlinked(&mut rig, 0);
    unlinked(&mut rig, 1_000);
    rig.homa.check();
    let sent = rig.sent();
    assert_eq!(sent, [Out::Other(9, "GRANT")]);
    assert_eq!((rig.sent(), rig.homa.stats().control_no_link), (vec![], 0));
}

/// 50,000 RPCs whose server is silent, and a call in four for each tick: as when every turn has a
/// full burst to receive. At 64 RPCs in a call their ticks would take ten times as long, and no
/// RPC would ever time out in its time. Now those that are due all at once take about 3 ms.
#[test]
fn timers_keep_up_with_many_rpcs_though_calls_are_rare() {
    let mut rig = roomy(50_000 * 2);
    for _ in 0..50_000 {
        call_ours(&mut rig, Notify::Never).unwrap();
    }
    send_all(&mut rig);
    let mut over = 0;
    for _ in 0..4 * 300 {
        rig.now += Duration::micros(250);
        rig.homa.handle_timeout(rig.now);
        send_all(&mut rig);
        over += rig.announced();
    }
    let ticks = rig.homa.wheel.tick();
    assert!(ticks > 240, "{ticks} ticks in 300");
    assert_eq!(over, 50_000, "each has timed out");
}
