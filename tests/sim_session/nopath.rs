//! What becomes of requests when no path leads to the server.

use demihoma::error::Error;
use demihoma::session::{LinkEvent, Outcome, status};
use demihoma::time::{Duration, Instant};

use crate::rig::{Ended, Ledger, Load, Rig, client, client_params, server_params, server_with};

/// S41: shorter than requests wait for a path.
#[test]
fn requests_wait_for_a_path_and_then_all_run() {
    let mut rig = Rig::with(
        10,
        2,
        client_params(2),
        Load::writes(5_000, 64),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(5));
    rig.cut(0);
    rig.cut(1);
    rig.run_for(Duration::secs(2));
    assert!(rig.client().paths().iter().all(|path| path.inflight == 0));
    rig.mend_all();
    rig.finish(Duration::secs(10));
    assert_eq!(rig.count(Outcome::Executed), 5_000);
    rig.judge_calm();
    let links: Vec<_> = rig.client().links.iter().map(|&(_, event)| event).collect();
    let count = |event| links.iter().filter(|&&other| other == event).count();
    assert_eq!(
        (
            count(LinkEvent::Disconnected),
            count(LinkEvent::Reconnected)
        ),
        (1, 1)
    );
}

/// S42. The path is found lost after 100 ms of silence. Lease and transport timeout are 500 and
/// 100 ms, and a tenth more: no copy begins after 660 ms.
fn all_down(fast_fail: Duration, ghost_fence: bool) -> (Instant, Vec<Ended>) {
    let mut params = client_params(1);
    (params.fast_fail, params.ghost_fence) = (fast_fail, ghost_fence);
    let load = Load {
        write_percent: 50,
        ..Load::writes(50, 50)
    };
    let mut rig = Rig::with(11, 1, params, load, Duration::millis(20));
    rig.open();
    rig.run_for(Duration::millis(5));
    rig.cut(0);
    rig.run_until(Duration::secs(1), |client| !client.links.is_empty());
    let down_at = rig.now();
    rig.finish(Duration::secs(20));
    let ended = rig.client().ended.clone();
    rig.mend(0);
    rig.judge_calm();
    (down_at, ended)
}

#[test]
fn without_a_wait_reads_fail_at_once_and_writes_when_no_copy_can_begin_any_more() {
    let (down_at, ended) = all_down(Duration::ZERO, true);
    let mut unknown = 0;
    for ended in &ended {
        match ended.completion.outcome {
            // They ran, or were not sent.
            Outcome::Executed => {}
            Outcome::NotExecuted => assert_eq!(ended.completion.status, status::ABORTED),
            Outcome::Unknown => {
                unknown += 1;
                assert_eq!(ended.completion.status, status::ABORTED);
                let after = ended.at.since(down_at);
                match ended.is_write {
                    true => assert!(after >= Duration::millis(660), "{ended:?}"),
                    false => assert!(after < Duration::millis(11), "{ended:?}"),
                }
            }
        }
    }
    assert!(unknown > 10);
}

#[test]
fn who_wants_no_fence_is_told_at_once() {
    let (down_at, ended) = all_down(Duration::ZERO, false);
    let unknown = ended
        .iter()
        .filter(|ended| ended.completion.outcome == Outcome::Unknown);
    let slowest = unknown.map(|ended| ended.at.since(down_at)).max();
    assert!(slowest < Some(Duration::millis(11)), "{slowest:?}");
}

#[test]
fn after_the_wait_all_fail() {
    let (down_at, ended) = all_down(Duration::secs(2), true);
    let late: Vec<_> = ended.iter().filter(|ended| ended.at > down_at).collect();
    assert!(late.len() > 10);
    for ended in late {
        let after = ended.at.since(down_at).as_millis();
        assert!((2_000..2_030).contains(&after), "{after} ms: {ended:?}");
    }
}

#[test]
fn new_requests_are_refused_while_there_is_no_path() {
    let mut params = client_params(1);
    params.fast_fail = Duration::ZERO;
    let mut rig = Rig::with(12, 1, params, Load::writes(10, 1), Duration::ZERO);
    rig.client().is_held = true;
    rig.open();
    rig.cut(0);
    rig.run_until(Duration::secs(1), |client| !client.links.is_empty());
    assert_eq!(
        rig.call(|_, _, app| app.client().attrs()),
        Err(Error::NoPath)
    );
    rig.call(|now, homa, app| {
        assert!(!app.ask(now, homa));
        assert_eq!(app.refusals, [Error::PathsLost]);
    });
    rig.mend(0);
    rig.run_for(Duration::secs(2));
    rig.client().is_held = false;
    rig.call(|_, _, _| ());
    rig.finish(Duration::secs(1));
    assert_eq!(rig.count(Outcome::Executed), 10);
}

/// A path that is not tried again is gone for good, and so are requests.
#[test]
fn without_hope_requests_are_refused_at_once() {
    let mut params = client_params(1);
    params.reconnects_max = Some(2);
    params.reconnect_delay = Duration::millis(100);
    let mut rig = Rig::with(13, 1, params, Load::writes(200, 8), Duration::millis(20));
    rig.open();
    rig.run_for(Duration::millis(50));
    rig.cut(0);
    rig.run_until(Duration::secs(20), |client| {
        matches!(client.links.last(), Some((_, LinkEvent::PathFailed { .. })))
    });
    rig.run_for(Duration::secs(2));
    let client = rig.client();
    assert_eq!(client.open_count(), 0);
    assert_eq!(client.refusals.first(), Some(&Error::NotConnected));
    rig.mend(0);
    rig.run_for(Duration::secs(2));
    assert!(!rig.is_up(0));
    rig.call(|now, homa, app| {
        let key = app.key(0);
        app.client().reconnect_path(now, homa, key).unwrap();
    });
    rig.finish(Duration::secs(5));
    rig.judge_calm();
}

/// S49: the server gives a session up before its paths are back.
#[test]
fn a_session_that_the_server_gave_up_begins_anew_and_says_so() {
    let ledger = Ledger::default();
    let mut params = server_params(1);
    params.linger = Duration::secs(1);
    let server = server_with(params, &ledger, Duration::millis(2));
    let client = client(client_params(2), Load::writes(3_000, 32));
    let mut rig = Rig::of(14, 2, ledger, vec![client, server]);
    rig.open();
    rig.run_for(Duration::millis(20));
    rig.cut(0);
    rig.cut(1);
    rig.run_for(Duration::secs(3));
    rig.mend_all();
    rig.finish(Duration::secs(10));
    assert_eq!(rig.client().client().stats().sessions_lost, 1);
    assert!(
        rig.client()
            .links
            .iter()
            .any(|(_, event)| *event == LinkEvent::SessionLost)
    );
    let unknown = rig.count(Outcome::Unknown);
    assert!((1..=32).contains(&unknown), "{unknown}");
    for ended in &rig.client().ended {
        if ended.completion.outcome == Outcome::Unknown {
            assert_eq!(ended.completion.status, status::OWNER_DEAD);
        }
    }
    rig.judge_calm();
}
