//! Servers that restart, and servers that are others than they were.

use demihoma::session::{Flags, LinkEvent, Outcome, PathState, status};
use demihoma::time::Duration;

use crate::rig::{
    Ledger, Load, Rig, client, client_params, path_to, server, server_params, server_with,
};

/// S43.
#[test]
fn what_a_restarted_server_may_have_run_is_unknown_and_runs_no_more() {
    let mut rig = Rig::with(
        20,
        2,
        client_params(2),
        Load::writes(3_000, 64),
        Duration::millis(2),
    );
    rig.open();
    rig.run_for(Duration::millis(21));
    rig.restart_server();
    rig.finish(Duration::secs(10));
    let unknown = rig.count(Outcome::Unknown);
    assert!((1..=64).contains(&unknown), "{unknown}");
    assert_eq!(rig.count(Outcome::Executed), 3_000 - unknown);
    for ended in &rig.client().ended {
        if ended.completion.outcome == Outcome::Unknown {
            assert_eq!(ended.completion.status, status::OWNER_DEAD);
        }
    }
    assert!(
        rig.client()
            .links
            .iter()
            .any(|(_, event)| *event == LinkEvent::SessionLost)
    );
    rig.judge_calm();
    assert!(rig.ledger.borrow().values().all(|&runs| runs == 1));
}

#[test]
fn requests_that_may_run_again_do_so_in_the_next_life() {
    let flags = Flags {
        is_idempotent: true,
        runs_once: false,
    };
    let load = Load {
        flags,
        ..Load::mixed(3_000, 64)
    };
    let mut rig = Rig::with(21, 2, client_params(2), load, Duration::millis(2));
    rig.open();
    for _ in 0..3 {
        rig.run_for(Duration::millis(21));
        rig.restart_server();
        rig.run_for(Duration::secs(2));
    }
    rig.finish(Duration::secs(10));
    assert_eq!(rig.count(Outcome::Executed), 3_000);
    rig.judge_calm();
}

/// Story 5. The third network's host 2 is another server: the path is refused, and nothing else.
#[test]
fn a_path_to_another_server_is_refused_and_the_session_does_not_notice() {
    let ledger = Ledger::default();
    let other = {
        let mut params = server_params(9);
        params.server_id = 78;
        server_with(params, &Ledger::default(), Duration::ZERO)
    };
    let mine = server(1, &ledger, Duration::millis(1));
    let nodes = vec![
        client(client_params(1), Load::writes(3_000, 8)),
        mine,
        other,
    ];
    let mut rig = Rig::of(22, 2, ledger, nodes);
    rig.open();
    let mut address = path_to(1);
    address.destination = demihoma::addr::Ip::v4(10, 0, 1, 3);
    let key = rig.call(|_, _, app| app.client().add_path(address).unwrap());
    rig.finish(Duration::secs(5));
    let failed = LinkEvent::PathFailed {
        path: key,
        status: status::NO_SUCH_SESSION,
    };
    assert_eq!(
        rig.client()
            .links
            .iter()
            .map(|&(_, event)| event)
            .collect::<Vec<_>>(),
        [failed]
    );
    assert_eq!(rig.count(Outcome::Executed), 3_000);
    // The same when there is no other path.
    rig.cut(0);
    rig.run_for(Duration::secs(1));
    rig.call(|now, homa, app| app.client().reconnect_path(now, homa, key).unwrap());
    rig.run_for(Duration::secs(1));
    assert_eq!(
        rig.client().links.last().map(|&(_, event)| event),
        Some(failed)
    );
    assert_eq!(rig.client().client().stats().sessions_lost, 0);
    rig.mend(0);
    rig.judge_calm();
}

/// S54: of two that answer, only the right one counts.
#[test]
fn a_session_without_paths_goes_back_to_its_own_server_only() {
    let ledger = Ledger::default();
    let wrong_ledger = Ledger::default();
    let other = {
        let mut params = server_params(9);
        params.server_id = 78;
        server_with(params, &wrong_ledger, Duration::ZERO)
    };
    let mut params = client_params(1);
    let mut address = path_to(1);
    address.destination = demihoma::addr::Ip::v4(10, 0, 1, 3);
    params.paths.push(address);
    let mine = server(1, &ledger, Duration::millis(1));
    let mut rig = Rig::of(
        23,
        2,
        ledger,
        vec![client(params, Load::writes(500, 8)), mine, other],
    );
    rig.world.network_cuts.insert((0, 2, 1));
    rig.open();
    rig.run_for(Duration::millis(5));
    rig.cut(0);
    rig.run_for(Duration::secs(1));
    // The session is down; the wrong server can be reached first.
    rig.world.network_cuts.remove(&(0, 2, 1));
    rig.run_for(Duration::millis(1_500));
    rig.mend(0);
    rig.finish(Duration::secs(10));
    assert_eq!(rig.count(Outcome::Executed), 500);
    assert!(wrong_ledger.borrow().is_empty());
    rig.judge_calm();
}

/// Story 7: the user was promised more slots than the server has in its next life.
#[test]
fn a_server_that_grants_less_than_before_is_not_come_back_to() {
    let mut rig = Rig::with(
        24,
        1,
        client_params(1),
        Load::writes(100, 8),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(3));
    let ledger = rig.ledger.clone();
    let mut small = server_params(2);
    small.queue_depth = 64;
    rig.restart_server_as(server_with(small, &ledger, Duration::millis(1)));
    let is_closed = |app: &mut crate::rig::ClientApp| app.path(0).state == PathState::Closed;
    rig.run_until(Duration::secs(5), is_closed);
    let epoch = rig.client().path(0).epoch;
    rig.run_for(Duration::secs(10));
    assert_eq!(rig.client().path(0).epoch, epoch, "it was not tried again");
    rig.restart_server();
    rig.call(|now, homa, app| {
        let key = app.key(0);
        app.client().reconnect_path(now, homa, key).unwrap();
    });
    rig.finish(Duration::secs(5));
    rig.judge_calm();
}

/// Story 28.
#[test]
fn a_server_that_pauses_can_tell_clients_to_stay_away() {
    let mut rig = Rig::with(
        25,
        1,
        client_params(1),
        Load::writes(2_000, 8),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(50));
    rig.serve(|_, _, app| app.server().pause(true));
    let is_closed = |app: &mut crate::rig::ClientApp| app.path(0).state == PathState::Closed;
    rig.run_until(Duration::secs(5), is_closed);
    assert_eq!(rig.client().path(0).last_status, status::PAUSED);
    rig.serve(|_, _, app| app.server().resume());
    rig.run_for(Duration::secs(3));
    assert!(!rig.is_up(0));
    rig.call(|now, homa, app| {
        let key = app.key(0);
        app.client().reconnect_path(now, homa, key).unwrap();
    });
    rig.run_for(Duration::millis(100));
    assert!(rig.is_up(0));
    rig.finish(Duration::secs(5));
    rig.judge_calm();
}

/// What may run again in the next life may have run in the one before: "not executed" would be a
/// lie, though the next life never saw it.
#[test]
fn a_request_that_waits_for_the_next_life_is_never_said_not_to_have_run() {
    let flags = Flags {
        is_idempotent: true,
        runs_once: false,
    };
    let load = Load {
        flags,
        ..Load::writes(32, 32)
    };
    let mut params = client_params(1);
    params.fast_fail = Duration::secs(1);
    let mut rig = Rig::with(26, 1, params, load, Duration::millis(500));
    rig.open();
    rig.run_for(Duration::millis(5));
    // All of them run, and the server fails before it answers. In its next life it takes the path,
    // and then that is cut for too long.
    rig.restart_server();
    let is_lost = |app: &mut crate::rig::ClientApp| app.client().stats().sessions_lost == 1;
    rig.run_until(Duration::secs(3), is_lost);
    rig.cut(0);
    rig.finish(Duration::secs(5));
    assert_eq!(rig.ledger.borrow().len(), 32);
    assert_eq!(rig.count(Outcome::Unknown), 32);
    rig.mend(0);
    rig.judge_calm();
}
