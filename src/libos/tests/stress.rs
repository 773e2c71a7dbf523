//! Many of each: what holds for one message must hold for a hundred thousand.

use super::*;
use crate::rng::Rng;

const NOW: Option<Duration> = Some(Duration::ZERO);

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// The number that a message carries; the buffer is freed.
fn take_number(os: &mut Os, sga: &Sga) -> u32 {
    let number = number(os.sga_bytes(&sga.view()).unwrap());
    os.sgafree(sga.handle.into()).unwrap();
    number
}

/// Frees the buffer too: a push has a reference of its own.
fn push_number(os: &mut Os, qd: QDesc, number: u32, to: Addr) -> Result<QToken, Error> {
    let sga = os.sga_of(&number.to_le_bytes()).unwrap();
    let pushed = os.pushto(qd, &sga.view(), to);
    os.sgafree(sga.handle.into()).unwrap();
    pushed
}

/// Any order will do that is not theirs.
fn shuffle<T>(list: &mut [T]) {
    let mut rng = Rng::new(29);
    for at in (1..list.len()).rev() {
        list.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

fn pair(world: &mut World) -> (QDesc, QDesc) {
    let (near, far) = (datagram(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    (near, far)
}

/// Request and response are a packet each. ACKs ride on the next request, but for those of the
/// last few; before all this there was the client's first message, which brings the cutoffs.
#[test]
fn each_exchange_of_datagrams_is_one_rpc_of_two_packets() {
    const EXCHANGES: u32 = 10_000;
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let exchange = |world: &mut World, n: u32| {
        push_number(&mut world.client, near, n, server_addr()).unwrap();
        let request = world.server_pop(far);
        let from = request.peer.unwrap();
        world.server.pushto(far, &request.view(), from).unwrap();
        assert_eq!(take_number(&mut world.server, &request), n);
        let response = world.client_pop(near);
        assert_eq!(take_number(&mut world.client, &response), n);
    };
    exchange(&mut world, 0);
    world.live(Duration::millis(20));
    let before = [&world.client, &world.server].map(|os| *os.poller.endpoint().stats());
    (0..EXCHANGES).for_each(|n| exchange(&mut world, n));
    world.live(Duration::millis(20));
    let after = [&world.client, &world.server].map(|os| *os.poller.endpoint().stats());
    let grown =
        |of: fn(&crate::homa::Stats) -> u64| [0, 1].map(|at| of(&after[at]) - of(&before[at]));
    let exchanges = u64::from(EXCHANGES);
    assert_eq!(grown(|stats| stats.requests), [exchanges, 0]);
    assert_eq!(grown(|stats| stats.data_out), [exchanges, exchanges]);
    let packets = grown(|stats| stats.packets_out);
    assert!(
        packets[0] <= exchanges + 4 && packets[1] <= exchanges + 4,
        "{packets:?}"
    );
    assert_eq!(world.server.stats().empty_replies, 0);
}

/// As long as its buffer is held, a request has all the time it needs; so has one that was freed,
/// for 10 ms.
#[test]
fn slow_handlers_are_never_answered_for() {
    const REQUESTS: u32 = 300;
    let mut world = World::new();
    let (near, far) = (native(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let calls: Vec<_> = (0..REQUESTS)
        .map(|n| {
            let sga = world.client.sga_of(&n.to_le_bytes()).unwrap();
            world
                .client
                .call(near, &sga.view(), server_addr(), 0)
                .unwrap()
                .0
        })
        .collect();
    let requests: Vec<_> = calls.iter().map(|_| world.server_pop(far)).collect();
    for request in requests.iter().rev() {
        world.live(Duration::millis(9));
        let from = request.peer.unwrap();
        world.server.pushto(far, &request.view(), from).unwrap();
        world.server.sgafree(request.handle.into()).unwrap();
    }
    for (n, &call) in calls.iter().enumerate() {
        let response = popped(world.client_done(call));
        assert_eq!(take_number(&mut world.client, &response), n as u32);
    }
    assert_eq!(world.server.stats().empty_replies, 0);
    assert_eq!(world.client.stats().responses_dropped, 0);
}

#[test]
fn open_requests_of_one_client_never_get_each_others_answers() {
    const ROUNDS: u32 = 50;
    const OPEN: u32 = 64;
    let mut world = World::new();
    let (near, far) = (native(&mut world.client), datagram(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    for round in 0..ROUNDS {
        let calls: Vec<_> = (0..OPEN)
            .map(|n| {
                let sga = world
                    .client
                    .sga_of(&(round * OPEN + n).to_le_bytes())
                    .unwrap();
                let call = world.client.call(near, &sga.view(), server_addr(), 0);
                world.client.sgafree(sga.handle.into()).unwrap();
                call.unwrap().0
            })
            .collect();
        let mut requests: Vec<_> = calls.iter().map(|_| world.server_pop(far)).collect();
        shuffle(&mut requests);
        for request in requests {
            // The answer is part of the question, so it can be told apart from all others.
            let from = request.peer.unwrap();
            world.server.pushto(far, &request.view(), from).unwrap();
            world.server.sgafree(request.handle.into()).unwrap();
        }
        for (n, call) in (0..OPEN).zip(calls) {
            let response = popped(world.client_done(call));
            assert_eq!(take_number(&mut world.client, &response), round * OPEN + n);
        }
    }
    assert_eq!(world.server.poller.homa().stats().requests, 0);
}

/// With two requests of that client open, a push from some other buffer answers neither: it might
/// be the answer to the wrong one.
#[test]
fn a_push_that_could_answer_either_of_two_requests_is_a_new_datagram() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    push_number(&mut world.client, near, 1, server_addr()).unwrap();
    push_number(&mut world.client, near, 2, server_addr()).unwrap();
    let requests = [world.server_pop(far), world.server_pop(far)];
    push_number(&mut world.server, far, 3, requests[0].peer.unwrap()).unwrap();
    let got = world.client_pop(near);
    assert_eq!(take_number(&mut world.client, &got), 3);
    assert_eq!(world.server.poller.homa().stats().requests, 1);
}

/// Nobody ever replies, so each waits 10 ms for the empty reply, and 1,024 at a time are out.
#[test]
fn a_hundred_thousand_one_way_messages_arrive_once_each() {
    const MESSAGES: u32 = 100_000;
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let mut is_here = vec![false; MESSAGES as usize];
    let mut pop = world.server.pop(far, None).unwrap();
    let (mut pushed, mut arrived) = (0, 0);
    let mut pushes = VecDeque::new();
    while arrived < MESSAGES {
        while pushed < MESSAGES && pushes.len() < 4_000 {
            let push = push_number(&mut world.client, near, pushed, server_addr());
            pushes.push_back(push.unwrap());
            pushed += 1;
        }
        world.client.turn();
        while let Some(&push) = pushes.front()
            && let Ok(done) = world.client.wait(push, NOW)
        {
            assert_eq!(done.result, OperationResult::Push);
            pushes.pop_front();
        }
        while let Ok(done) = world.server.wait(pop, NOW) {
            let number = take_number(&mut world.server, &popped(done.result));
            assert!(
                !std::mem::replace(&mut is_here[number as usize], true),
                "{number} twice"
            );
            arrived += 1;
            pop = world.server.pop(far, None).unwrap();
        }
    }
    world.live(Duration::millis(40));
    assert!(is_here.iter().all(|&is_here| is_here));
    assert_eq!(world.server.stats().empty_replies, u64::from(MESSAGES));
    assert_eq!(world.client.stats().datagrams_failed, 0);
    assert_eq!(world.client.poller.homa().rpc_count(), 0);
    assert_eq!(world.client.desk.buffers.used_bytes(), 0);
}

/// The server looks at nothing. The sender may have 65,536 tokens, and of its messages 1,024 are on
/// their way; what it is refused costs nothing, and in the end all arrives.
#[test]
fn a_sender_that_never_waits_is_held_back_and_takes_no_more_memory() {
    let mut world = World::new();
    let (near, far) = pair(&mut world);
    let mut pushes = Vec::new();
    let refused = loop {
        match push_number(&mut world.client, near, pushes.len() as u32, server_addr()) {
            Ok(push) => pushes.push(push),
            Err(error) => break error,
        }
    };
    assert_eq!((refused, pushes.len()), (Error::Exhausted, 65_536));
    let used_bytes = world.client.desk.buffers.used_bytes();
    assert!(used_bytes <= world.client.desk.params.send_bytes);
    for _ in 0..10_000 {
        let push = push_number(&mut world.client, near, 0, server_addr());
        assert_eq!(push, Err(Error::Exhausted));
    }
    assert_eq!(world.client.desk.buffers.used_bytes(), used_bytes);
    world.live(Duration::millis(5));
    assert_eq!(world.client.poller.homa().rpc_count(), 1_024);
    for _ in &pushes {
        let got = world.server_pop(far);
        world.server.sgafree(got.handle.into()).unwrap();
    }
    for push in pushes {
        assert_eq!(world.client_done(push), OperationResult::Push);
    }
    world.live(Duration::millis(40));
    assert_eq!(world.client.desk.buffers.used_bytes(), 0);
}

/// 2,000 requests have 40 MB, and one client may fill a quarter of 16 MiB: by 209 of them, three
/// to a page. The others wait, longer than a peer may be silent, and more of them than may be
/// asked for in that time.
#[test]
fn requests_that_nobody_pops_take_no_more_than_their_share_and_wait() {
    const REQUESTS: usize = 2_000;
    let mut world = World::new();
    let (near, far) = (native(&mut world.client), native(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let sga = world.client.sga_of(&pattern(20_000)).unwrap();
    let calls: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let called = world.client.call(near, &sga.view(), server_addr(), 0);
            called.unwrap().0
        })
        .collect();
    world.live(Duration::millis(300));
    let free_pages = world.server.poller.endpoint().free_pages();
    assert_eq!(free_pages, 256 - 70);
    for _ in &calls {
        let request = world.server_pop(far);
        let info = world.server.info(request.handle.into()).unwrap();
        let answer = SgaView {
            len: 4,
            ..request.view()
        };
        let replied = world.server.reply(far, info.id, info.peer, &answer, false);
        assert_eq!(replied, Ok(None));
        world.server.sgafree(request.handle.into()).unwrap();
    }
    for call in calls {
        let response = popped(world.client_done(call));
        world.client.sgafree(response.handle.into()).unwrap();
    }
}

/// Settings for 100,000 RPCs and more at once.
fn large_world() -> World {
    const MANY: u32 = 1 << 17;
    let params = Params {
        tokens_max: MANY,
        service_max: MANY,
        ..Params::default()
    };
    let homa = homa::Params {
        rpcs_max: 2 * MANY,
        ..homa::Params::default()
    };
    World::of(params, homa, 64 << 20)
}

#[test]
fn a_hundred_thousand_calls_in_flight_are_answered_in_any_order() {
    const CALLS: u32 = 100_000;
    let mut world = large_world();
    let (near, far) = (native(&mut world.client), native(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let mut calls = Vec::new();
    for n in 0..CALLS {
        let sga = world.client.sga_of(&n.to_le_bytes()).unwrap();
        let (call, _) = world
            .client
            .call(near, &sga.view(), server_addr(), n.into())
            .unwrap();
        world.client.sgafree(sga.handle.into()).unwrap();
        calls.push(call);
        world.turn();
    }
    let mut requests: Vec<_> = calls.iter().map(|_| world.server_pop(far)).collect();
    assert_eq!(world.client.poller.homa().rpc_count(), CALLS as usize);
    shuffle(&mut requests);
    for request in requests {
        let info = world.server.info(request.handle.into()).unwrap();
        let replied = world
            .server
            .reply(far, info.id, info.peer, &request.view(), false);
        assert_eq!(replied, Ok(None));
        world.server.sgafree(request.handle.into()).unwrap();
        world.turn();
    }
    shuffle(&mut calls);
    let mut is_answered = vec![false; CALLS as usize];
    for call in calls {
        let response = popped(world.client_done(call));
        let cookie = world.client.info(response.handle.into()).unwrap().cookie;
        let number = take_number(&mut world.client, &response);
        assert_eq!(u64::from(number), cookie);
        assert!(!std::mem::replace(&mut is_answered[number as usize], true));
    }
    world.live(Duration::millis(40));
    assert_eq!(world.client.poller.homa().rpc_count(), 0);
    assert_eq!(world.server.poller.homa().rpc_count(), 0);
}

/// How far a call has come when it is aborted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Nobody knows the way to the server yet.
    Unresolved,
    /// Some of a long request is there.
    RequestHalfSent,
    /// The server's application has not looked yet.
    Arrived,
    InService,
    ResponseHalfSent,
    /// The response is there, but nobody asked for it.
    Answered,
}

/// A call that has come to `stage`, on two hosts that do not know each other before.
fn call_at(world: &mut World, stage: Stage) -> (QDesc, QToken, u64) {
    let (near, far) = (native(&mut world.client), native(&mut world.server));
    world.server.bind(far, server_addr()).unwrap();
    let len = match stage {
        Stage::RequestHalfSent | Stage::ResponseHalfSent => 1_000_000,
        _ => 100,
    };
    let sga = world.client.sga_of(&pattern(len)).unwrap();
    let (call, id) = world
        .client
        .call(near, &sga.view(), server_addr(), 0)
        .unwrap();
    world.client.sgafree(sga.handle.into()).unwrap();
    match stage {
        Stage::Unresolved => return (near, call, id),
        Stage::RequestHalfSent => (0..20).for_each(|_| world.turn()),
        Stage::Arrived => world.live(Duration::millis(1)),
        Stage::InService | Stage::ResponseHalfSent | Stage::Answered => {
            let request = world.server_pop(far);
            if stage != Stage::InService {
                let info = world.server.info(request.handle.into()).unwrap();
                let view = request.view();
                world
                    .server
                    .reply(far, info.id, info.peer, &view, false)
                    .unwrap();
                let turns = if stage == Stage::Answered { 1_000 } else { 20 };
                (0..turns).for_each(|_| world.turn());
            }
            world.server.sgafree(request.handle.into()).unwrap();
        }
    }
    (near, call, id)
}

/// A server that was left in the midst of something needs its 100 ms of silence to notice.
#[test]
fn an_abort_ends_a_call_once_and_leaves_nothing_whatever_its_stage() {
    for stage in [
        Stage::Unresolved,
        Stage::RequestHalfSent,
        Stage::Arrived,
        Stage::InService,
        Stage::ResponseHalfSent,
        Stage::Answered,
    ] {
        let mut world = World::new();
        let free_pages = world.client.poller.endpoint().free_pages();
        let (near, call, id) = call_at(&mut world, stage);
        let aborted = world.client.abort(near, id, 0);
        let done = world.client.wait(call, NOW).unwrap().result;
        if stage == Stage::Answered {
            assert_eq!(aborted, Err(Error::Invalid));
            let sga = popped(done);
            world.client.sgafree(sga.handle.into()).unwrap();
        } else {
            assert_eq!(aborted, Ok(()), "{stage:?}");
            assert_eq!(done, OperationResult::Failed(Error::Canceled), "{stage:?}");
        }
        assert_eq!(world.client.wait(call, NOW), Err(Error::Invalid));
        assert_eq!(world.client.abort(near, id, 0), Err(Error::Invalid));
        world.live(Duration::millis(250));
        assert!(world.client.desk.tokens.is_empty());
        assert_eq!(world.client.desk.buffers.used_bytes(), 0, "{stage:?}");
        let homa = world.client.poller.endpoint();
        assert_eq!(
            (homa.rpc_count(), homa.free_pages()),
            (0, free_pages),
            "{stage:?}"
        );
        // What the application was given, or is to be, waits for that.
        let at_server = matches!(stage, Stage::Arrived | Stage::InService);
        let left = world.server.poller.endpoint().rpc_count();
        assert!(left <= usize::from(at_server), "{stage:?}");
    }
}
