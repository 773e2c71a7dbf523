//! Who is alive, and who only seems dead.

use demihoma::session::{LinkEvent, Outcome, PathState, status};
use demihoma::sim::Crossing;
use demihoma::time::Duration;
use demihoma::wire::homa::Packet;
use demihoma::wire::session::{Request, Response, parse_request, parse_response};

use crate::rig::{CLIENT, ClientApp, Load, Rig, SERVER, client_params};

/// What a frame that is a whole message says.
fn said(crossing: &Crossing) -> Option<(Option<Request>, Option<Response>)> {
    let Some((_, Packet::Data(data, payload))) = crossing.packet() else {
        return None;
    };
    let head = &payload[..payload.len().min(128)];
    let request = parse_request(head, data.message_length).ok();
    let response = parse_response(head, data.message_length).ok();
    Some((
        request.map(|(_, said)| said),
        response.map(|(_, said)| said),
    ))
}

fn is_beat(crossing: &Crossing) -> bool {
    said(crossing).is_some_and(|(request, _)| matches!(request, Some(Request::Heartbeat(_))))
}

fn is_write_answer(crossing: &Crossing) -> bool {
    said(crossing).is_some_and(|(_, response)| matches!(response, Some(Response::Write(_))))
}

fn downs(app: &ClientApp) -> usize {
    let is_down = |event: &LinkEvent| matches!(event, LinkEvent::PathDown { .. });
    app.links.iter().filter(|(_, event)| is_down(event)).count()
}

/// Story 2, `hb_reset_by_io`: a hundred intervals without a heartbeat that arrives.
#[test]
fn a_busy_path_needs_no_heartbeats() {
    let load = Load::writes(1_000_000, 4);
    let mut rig = Rig::with(30, 1, client_params(1), load, Duration::millis(10));
    rig.open();
    rig.world.loses = is_beat;
    rig.run_for(Duration::secs(10));
    assert_eq!(downs(rig.client()), 0);
    assert!(rig.count(Outcome::Executed) > 3_000);
    rig.judge();
}

#[test]
fn an_idle_path_that_is_cut_is_found_by_its_heartbeats_within_half_a_second() {
    let mut rig = Rig::with(31, 2, client_params(2), Load::writes(0, 1), Duration::ZERO);
    rig.open();
    rig.run_for(Duration::secs(5));
    assert_eq!(downs(rig.client()), 0);
    rig.cut(1);
    let took = rig.run_until(Duration::secs(1), |app| downs(app) == 1);
    println!("found after {took:?}");
    assert!(took < Duration::millis(510), "{took:?}");
    // The server has found it by then, or does soon.
    rig.run_for(Duration::millis(300));
    assert_eq!(rig.server().server().paths_up(), 1);
    rig.mend(1);
    rig.run_for(Duration::secs(2));
    assert!(rig.is_up(1));
}

/// Story 4: three reconnects later three heartbeats may still stay unanswered.
#[test]
fn the_patience_with_heartbeats_survives_reconnects() {
    let mut rig = Rig::with(32, 1, client_params(1), Load::writes(0, 1), Duration::ZERO);
    rig.open();
    for _ in 0..3 {
        rig.call(|now, homa, app| {
            let key = app.key(0);
            app.client().reconnect_path(now, homa, key).unwrap();
        });
        rig.run_for(Duration::millis(350));
        assert!(rig.is_up(0));
    }
    let before = downs(rig.client());
    let missed = rig.client().client().stats().beats_missed;
    rig.cut(0);
    let is_missed = |app: &mut ClientApp| app.client().stats().beats_missed == missed + 2;
    rig.run_until(Duration::secs(1), is_missed);
    rig.mend(0);
    rig.run_for(Duration::secs(2));
    assert_eq!(downs(rig.client()), before);
}

/// S46: the transport says that the server is busy, and so it is not dead.
#[test]
fn a_handler_may_take_a_hundred_times_longer_than_silence_may() {
    let mut rig = Rig::with(
        33,
        2,
        client_params(2),
        Load::mixed(20, 20),
        Duration::secs(10),
    );
    rig.open();
    rig.finish(Duration::secs(12));
    assert_eq!((rig.count(Outcome::Executed), downs(rig.client())), (20, 0));
    rig.judge_calm();
}

/// S52: answers come in for 6 s while the client sends nothing but heartbeats.
#[test]
fn a_client_that_only_listens_keeps_its_lease() {
    let load = Load {
        write_percent: 0,
        ..Load::writes(60, 60)
    };
    let mut rig = Rig::with(34, 1, client_params(1), load, Duration::ZERO);
    rig.server().is_mute = true;
    rig.open();
    for _ in 0..60 {
        rig.run_for(Duration::millis(100));
        rig.serve(|now, homa, app| {
            let (_, op) = app.pending.pop_front().expect("all were sent at once");
            app.respond(now, homa, op);
        });
    }
    rig.run_for(Duration::millis(10));
    assert_eq!((rig.count(Outcome::Executed), downs(rig.client())), (60, 0));
    assert_eq!(rig.server().server().stats().leases_expired, 0);
}

/// A pulled cable need not be found out.
#[test]
fn a_link_that_goes_down_fails_over_at_once() {
    let mut rig = Rig::with(
        35,
        2,
        client_params(2),
        Load::writes(5_000, 64),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(5));
    rig.cut(0);
    let stuck = rig.client().path(0).inflight;
    assert!(stuck > 0);
    rig.call(|now, homa, app| {
        let local = app.path(0).address.source.unwrap();
        app.client().handle_link_down(now, homa, local);
    });
    let before = rig.client().ended.len();
    let is_through = |app: &mut ClientApp| app.ended.len() >= before + 128;
    let took = rig.run_until(Duration::millis(100), is_through);
    println!("{stuck} requests failed over, 128 done after {took:?}");
    assert!(took < Duration::millis(5), "{took:?}");
    assert_eq!(rig.client().path(0).last_status, status::LINK_DOWN);
    rig.mend(0);
    rig.finish(Duration::secs(5));
    rig.judge_calm();
}

/// Time lived: whoever was away finds all as it was, whichever side it is.
#[test]
fn a_process_that_slept_loses_no_path_by_it() {
    for host in [CLIENT, SERVER] {
        let mut rig = Rig::with(36, 2, client_params(2), Load::writes(0, 1), Duration::ZERO);
        rig.open();
        rig.run_for(Duration::millis(333));
        let until = rig.now() + Duration::millis(90);
        rig.world.freeze(host, until);
        rig.run_for(Duration::secs(2));
        assert_eq!(downs(rig.client()), 0, "host {host}");
    }
    // A client that was away for 5 s has lost its lease, and comes back by itself.
    let mut rig = Rig::with(
        37,
        2,
        client_params(2),
        Load::mixed(100, 8),
        Duration::millis(1),
    );
    rig.open();
    let until = rig.now() + Duration::secs(5);
    rig.world.freeze(CLIENT, until);
    rig.run_for(Duration::secs(8));
    assert_eq!(rig.count(Outcome::Executed), 100);
    rig.judge_calm();
}

/// S53. The WRITE runs, and its answer never arrives, though heartbeats' do. The server drops the
/// path and takes it back, so that the next copy is turned away: that says nothing of the first.
#[test]
fn a_copy_that_is_turned_away_is_no_word_about_the_one_that_ran() {
    let mut rig = Rig::with(
        38,
        1,
        client_params(1),
        Load::writes(1, 1),
        Duration::millis(1),
    );
    rig.open();
    rig.world.loses = is_write_answer;
    rig.run_for(Duration::millis(50));
    assert_eq!(rig.ledger.borrow().get(&1), Some(&1));
    rig.serve(|_, _, app| {
        app.server().pause(false);
        app.server().resume();
    });
    rig.run_for(Duration::millis(500));
    assert!(rig.client().ended.is_empty());
    rig.world.loses = |_| false;
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 1);
    assert!(rig.client().ended[0].completion.is_replayed);
    rig.judge_calm();
}

/// The path is alive, but it eats the answers to one kind of request: a few are tried again one by
/// one, and then the path counts as lost.
#[test]
fn a_path_that_eats_answers_is_lost_though_heartbeats_pass() {
    let mut params = client_params(2);
    params.beat = Duration::millis(20);
    let mut rig = Rig::with(39, 2, params, Load::writes(40, 8), Duration::ZERO);
    rig.client().is_held = true;
    rig.open();
    rig.run_for(Duration::millis(250));
    rig.world.loses = |crossing| crossing.network() == Some(0) && is_write_answer(crossing);
    rig.client().is_held = false;
    rig.call(|_, _, _| ());
    rig.finish(Duration::secs(10));
    assert_eq!(rig.count(Outcome::Executed), 40);
    assert!(rig.client().client().stats().single_retries > 0);
    rig.world.loses = |_| false;
    rig.judge_calm();
}

/// Story 3, `hb_not_before_ready`.
#[test]
fn no_heartbeat_is_sent_before_the_path_is_ready() {
    let mut params = client_params(1);
    params.connect_timeout = Duration::secs(3);
    let mut rig = Rig::with(40, 1, params, Load::writes(0, 1), Duration::ZERO);
    // Answers are lost for a second, which is ten intervals: nothing is ready.
    rig.world.network_cuts.insert((SERVER, CLIENT, 0));
    rig.run_for(Duration::secs(1));
    assert_eq!(rig.client().client().stats().beats, 0);
    assert_ne!(rig.client().path(0).state, PathState::Connected);
    rig.mend(0);
    rig.run_for(Duration::millis(1_600));
    assert!(rig.client().client().stats().beats > 0);
}
