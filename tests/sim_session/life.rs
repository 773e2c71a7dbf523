//! Opening and closing, permits, paths that are added and removed.

use demihoma::error::Error;
use demihoma::session::{LinkEvent, Name, Outcome, Policy, Purpose, ServerEvent, status};
use demihoma::time::{Duration, Instant};

use crate::rig::{
    CLIENT, ClientApp, Ledger, Load, Node, Rig, client, client_params, path_to, server,
    server_params, server_with,
};

fn opened(app: &mut ClientApp) -> bool {
    app.opened.is_some()
}

#[test]
fn opening_tells_why_it_failed() {
    // Nobody listens on the port: the host says so at once.
    let ledger = Ledger::default();
    let quiet = vec![client(client_params(1), Load::writes(0, 1)), Node::Idle];
    let mut rig = Rig::of(50, 1, ledger.clone(), quiet);
    rig.run_until(Duration::secs(3), opened);
    assert_eq!(rig.client().opened, Some(status::NOT_CONNECTED));
    // Nobody answers: ARP finds out before the attempt's time is over.
    let alone = vec![client(client_params(1), Load::writes(0, 1))];
    let mut rig = Rig::of(51, 1, ledger.clone(), alone);
    rig.run_until(Duration::secs(3), opened);
    assert_eq!(rig.client().opened, Some(-libc::EHOSTUNREACH));
    // The application does not want it.
    let mut rig = Rig::with(52, 2, client_params(2), Load::writes(0, 1), Duration::ZERO);
    rig.server().refuses = true;
    rig.run_until(Duration::secs(3), opened);
    assert_eq!(rig.client().opened, Some(status::NOT_PERMITTED));
    rig.run_for(Duration::secs(1));
    assert!(rig.client().client().is_closed());
    assert_eq!(rig.server().server().session_count(), 0);
    // More paths are wanted than there are.
    let mut params = client_params(2);
    params.paths_min = 2;
    let mut rig = Rig::with(53, 2, params, Load::writes(0, 1), Duration::ZERO);
    rig.cut(1);
    rig.run_until(Duration::secs(3), opened);
    assert!(rig.client().opened < Some(0));
}

/// Story 6.
#[test]
fn a_name_belongs_to_one_session_while_that_has_a_path() {
    let ledger = Ledger::default();
    let mut second = client_params(1);
    second.paths[0].source = None;
    second.seed = 2;
    let nodes = vec![
        client(client_params(1), Load::writes(2_000, 4)),
        server(1, &ledger, Duration::millis(1)),
        Node::Idle,
    ];
    let mut rig = Rig::of(54, 1, ledger, nodes);
    rig.open();
    rig.world
        .restart(2, 5, client(second.clone(), Load::writes(0, 1)));
    rig.run_for(Duration::millis(100));
    assert_eq!(rig.world.hosts[2].app.client().opened, Some(status::EXISTS));
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 2_000);
    // The first one's host fails: its session has no path soon, and gives way.
    rig.world.restart(CLIENT, 6, Node::Idle);
    rig.run_for(Duration::secs(1));
    rig.world.restart(2, 7, client(second, Load::writes(0, 1)));
    rig.run_for(Duration::secs(3));
    assert_eq!(rig.world.hosts[2].app.client().opened, Some(0));
}

/// S50, stories 19 and 32.
#[test]
fn closing_ends_what_is_under_way_and_voids_permits() {
    let load = Load::writes(1_000, 100);
    let mut rig = Rig::with(55, 2, client_params(2), load, Duration::secs(100));
    rig.client().keeps_permits = true;
    rig.open();
    rig.run_for(Duration::millis(10));
    let held = rig.call(|_, _, app| {
        let client = app.client();
        let mut held = Vec::new();
        while let Ok(permit) = client.get_permit(Purpose::Io) {
            held.push(permit);
        }
        client.wait_permit(Purpose::Io, 7).unwrap();
        client.wait_permit(Purpose::Io, 8).unwrap();
        held
    });
    rig.call(|now, _, app| app.client().close(now, Duration::millis(300)));
    assert_eq!(rig.client().granted, [(7, None), (8, None)]);
    let refused = rig.call(|_, _, app| app.client().get_permit(Purpose::Io));
    assert_eq!(refused, Err(Error::Shutdown));
    let took = rig.run_until(Duration::secs(1), |app| app.closed.is_some());
    assert!(took <= Duration::millis(311), "{took:?}");
    let app = rig.client();
    assert_eq!(
        (app.closed, app.ended.len()),
        (Some((held.len() + 100, 100)), 100)
    );
    for ended in &app.ended {
        assert_eq!(ended.completion.status, status::CANCELED);
        assert_eq!(ended.completion.outcome, Outcome::Unknown);
    }
    let put = rig.call(|_, _, app| app.client().put_permit(held[0]));
    assert_eq!(put, Err(Error::BadDescriptor));
    rig.run_until(Duration::secs(1), |app| app.client().is_closed());
    rig.judge();
    // Story 11: the server's handlers may still answer, which is harmless.
    rig.serve(|now, homa, app| {
        while let Some((_, op)) = app.pending.pop_front() {
            app.respond(now, homa, op);
            let again = app.server().respond(now, homa, op, 0, 0);
            assert_eq!(again, Err(Error::AlreadyAnswered));
        }
        assert_eq!(
            (app.server().session_count(), app.server().op_count()),
            (0, 0)
        );
        assert!(matches!(
            app.server().poll_event(),
            Some(ServerEvent::Destroyed { .. })
        ));
    });
}

#[test]
fn a_session_that_closes_waits_for_what_is_under_way() {
    let load = Load::mixed(50, 50);
    let mut rig = Rig::with(56, 2, client_params(2), load, Duration::millis(100));
    rig.open();
    rig.run_for(Duration::millis(10));
    rig.call(|now, _, app| app.client().close(now, Duration::secs(5)));
    let took = rig.run_until(Duration::secs(1), |app| app.client().is_closed());
    assert!(took < Duration::millis(150), "{took:?}");
    assert_eq!(rig.client().closed, Some((0, 0)));
    assert_eq!(rig.count(Outcome::Executed), 50);
    rig.run_for(Duration::millis(10));
    assert_eq!(rig.server().server().session_count(), 0);
}

/// Story 11, the other way: the server closes.
#[test]
fn a_server_that_closes_ends_all_sessions_once_handlers_have_ended() {
    let load = Load::writes(64, 64);
    let mut rig = Rig::with(57, 2, client_params(2), load, Duration::secs(100));
    rig.open();
    rig.run_for(Duration::millis(10));
    rig.serve(|now, homa, app| app.server().close(now, homa));
    assert!(!rig.server().server().is_over());
    rig.run_for(Duration::millis(10));
    rig.serve(|now, homa, app| {
        while let Some((_, op)) = app.pending.pop_front() {
            app.respond(now, homa, op);
        }
    });
    assert!(rig.server().server().is_over());
    rig.finish(Duration::secs(10));
    // Their answers came over paths that were no more, but they came.
    assert_eq!(rig.count(Outcome::Executed), 64);
    rig.judge();
}

/// Story 16: as many requests at once as there are slots, each as long as may be.
#[test]
fn all_slots_at_once_want_for_nothing() {
    let mut load = Load::mixed(1_024, 512);
    load.len_max = 126_976;
    let mut params = client_params(2);
    params.queue_depth = 504;
    let mut rig = Rig::with(58, 2, params, load, Duration::millis(1));
    rig.open();
    assert_eq!(rig.client().client().attrs().unwrap().queue_depth, 504);
    rig.finish(Duration::secs(20));
    assert_eq!(rig.count(Outcome::Executed), 1_024);
    let refusals = rig.client().refusals.clone();
    assert_eq!(refusals, []);
    rig.judge_calm();
}

/// Story 8.
#[test]
fn policies_can_be_changed_while_requests_are_under_way() {
    let mut rig = Rig::with(
        59,
        3,
        client_params(3),
        Load::mixed(3_000, 64),
        Duration::micros(300),
    );
    rig.open();
    let policies = [
        Policy::MinBytes,
        Policy::Sticky,
        Policy::RoundRobin,
        Policy::MinLatency,
        Policy::MinInflight,
    ];
    for policy in policies.into_iter().cycle().take(30) {
        rig.run_for(Duration::micros(300));
        rig.call(|_, _, app| app.client().set_policy(policy));
    }
    rig.finish(Duration::secs(5));
    rig.judge_calm();
}

/// Story 10: a hundred times, under load.
#[test]
fn paths_can_be_removed_and_added_under_load() {
    let load = Load::mixed(1_000_000, 64);
    let mut rig = Rig::with(60, 2, client_params(2), load, Duration::micros(100));
    rig.client().load.len_max = 2_000;
    rig.open();
    for round in 0..100 {
        let network = round % 2;
        rig.run_for(Duration::micros(500));
        rig.call(|now, homa, app| {
            let key = app.key(network);
            app.client().remove_path(now, homa, key, false).unwrap();
        });
        rig.run_for(Duration::micros(300));
        rig.call(|_, _, app| {
            assert_eq!(app.paths().len(), 1, "it has parted");
            app.client().add_path(path_to(network)).unwrap();
            assert_eq!(app.client().add_path(path_to(network)), Err(Error::Exists));
        });
        rig.run_for(Duration::micros(500));
        assert!(rig.is_up(network), "round {round}");
    }
    rig.client().load.ops = 0;
    rig.run_until(Duration::secs(5), |app| app.open_count() == 0);
    assert_eq!(rig.count(Outcome::Executed), rig.client().ended.len());
    rig.judge_calm();
    rig.call(|now, homa, app| {
        let (one, two) = (app.key(0), app.key(1));
        app.client().remove_path(now, homa, one, false).unwrap();
        assert_eq!(
            app.client().remove_path(now, homa, two, false),
            Err(Error::Busy)
        );
        app.client().remove_path(now, homa, two, true).unwrap();
    });
    rig.run_for(Duration::millis(600));
    let again = rig.call(|now, homa, app| {
        let stale = demihoma::session::PathKey::default();
        app.client().remove_path(now, homa, stale, true)
    });
    assert_eq!(
        (rig.client().paths().len(), again),
        (0, Err(Error::NoSuchPath))
    );
}

/// S51.
#[test]
fn a_path_added_while_all_others_die_carries_the_session_on() {
    let mut rig = Rig::with(
        61,
        2,
        client_params(1),
        Load::writes(2_000, 32),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(10));
    rig.cut(0);
    rig.call(|_, _, app| app.client().add_path(path_to(1)).unwrap());
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 2_000);
    rig.mend_all();
    rig.judge_calm();
}

/// S47.
#[test]
fn a_handler_that_never_answers_holds_its_slot_and_nobody_else() {
    let mut params = client_params(2);
    params.io_timeout = Duration::secs(1);
    let mut rig = Rig::with(62, 2, params, Load::writes(40, 8), Duration::ZERO);
    rig.server().is_mute = true;
    rig.client().load.ops = 4;
    rig.open();
    rig.finish(Duration::secs(2));
    for ended in &rig.client().ended {
        assert_eq!(ended.completion.status, status::TIMED_OUT);
        assert_eq!(ended.completion.outcome, Outcome::Unknown);
        assert!(ended.took < Duration::millis(1_050), "{ended:?}");
    }
    let (free, held, quarantined) = rig.client().client().permit_counts();
    assert_eq!((held, quarantined), (0, 4));
    // Others go on.
    let stuck: Vec<_> = rig.server().pending.drain(..).collect();
    rig.server().is_mute = false;
    rig.client().load.ops = 40;
    rig.call(|_, _, _| ());
    rig.finish(Duration::secs(2));
    assert_eq!(rig.count(Outcome::Executed), 36);
    // The late answers set the slots free.
    rig.serve(|now, homa, app| stuck.iter().for_each(|&(_, op)| app.respond(now, homa, op)));
    rig.run_for(Duration::millis(300));
    assert_eq!(rig.client().client().permit_counts(), (free + 4, 0, 0));
    rig.judge_calm();
}

/// What was not begun when its time was up is fenced, and so will never be.
#[test]
fn a_request_that_never_arrived_in_time_is_known_not_to_have_run() {
    let mut params = client_params(2);
    params.io_timeout = Duration::millis(50);
    let mut rig = Rig::with(63, 2, params, Load::writes(64, 64), Duration::ZERO);
    rig.client().is_held = true;
    rig.open();
    rig.run_for(Duration::millis(250));
    // Their time is up before the transport finds path A silent.
    rig.world.network_cuts.insert((0, 1, 0));
    rig.client().is_held = false;
    rig.call(|_, _, _| ());
    rig.finish(Duration::secs(3));
    assert!(rig.count(Outcome::NotExecuted) >= 20);
    rig.mend_all();
    rig.judge_calm();
}

/// Story 30.
#[test]
fn any_status_of_a_handler_survives_and_counts_as_run() {
    for status in [-1, -511, -512, -40_000, i32::MIN] {
        let mut rig = Rig::with(64, 1, client_params(1), Load::mixed(6, 2), Duration::ZERO);
        rig.server().status = status;
        rig.finish(Duration::secs(2));
        for ended in &rig.client().ended {
            let told = (ended.completion.status, ended.completion.outcome);
            assert_eq!(told, (status, Outcome::Executed));
        }
    }
    let mut rig = Rig::with(65, 1, client_params(1), Load::mixed(6, 2), Duration::ZERO);
    rig.server().status = 5;
    rig.finish(Duration::secs(2));
    assert_eq!(rig.client().ended[0].completion.status, status::INVALID);
    assert_eq!(rig.server().server().stats().bad_statuses, 6);
}

/// Story 22.
#[test]
fn sessions_with_many_paths_leave_nothing_behind() {
    let ledger = Ledger::default();
    let server = server_with(server_params(1), &ledger, Duration::ZERO);
    let mut rig = Rig::of(66, 8, ledger, vec![Node::Idle, server]);
    for round in 0..40u64 {
        let mut params = client_params(1 + (round % 8) as u8);
        (params.seed, params.name) = (round, Name::new(b"again").unwrap());
        rig.world
            .restart(CLIENT, round + 100, client(params, Load::writes(20, 4)));
        rig.open();
        rig.finish(Duration::secs(2));
        rig.call(|now, _, app| app.client().close(now, Duration::secs(1)));
        rig.run_until(Duration::secs(2), |app| app.client().is_closed());
        assert_eq!(rig.world.hosts[CLIENT].poller.endpoint().rpc_count(), 0);
        rig.run_for(Duration::millis(20));
        assert_eq!(rig.server().server().session_count(), 0);
    }
    let stats = *rig.server().server().stats();
    assert_eq!((stats.sessions_made, stats.sessions_gone), (40, 40));
}

/// Story 29: eight paths lose the server at once; jitter is half of the delay, 1 s.
#[test]
fn attempts_to_come_back_are_spread_over_the_delay() {
    let mut rig = Rig::with(67, 8, client_params(8), Load::writes(0, 1), Duration::ZERO);
    rig.open();
    rig.run_for(Duration::millis(500));
    rig.world.restart(1, 9, Node::Idle);
    let is_lost = |app: &mut ClientApp| app.links.len() >= 8 + 8;
    rig.run_until(Duration::secs(2), is_lost);
    let mut attempts: Vec<Instant> = Vec::new();
    let mut epochs: Vec<u32> = rig.client().paths().iter().map(|path| path.epoch).collect();
    while attempts.len() < 8 {
        rig.run_for(Duration::millis(1));
        let now = rig.now();
        for (seen, path) in epochs.iter_mut().zip(rig.client().paths()) {
            if path.epoch > *seen && attempts.len() < 8 {
                *seen = u32::MAX;
                attempts.push(now);
            }
        }
    }
    let spread = attempts[7].since(attempts[0]);
    assert!(spread >= Duration::millis(250), "{spread:?}");
}

#[test]
fn link_events_come_in_their_order() {
    let mut rig = Rig::with(
        68,
        2,
        client_params(2),
        Load::writes(5_000, 16),
        Duration::millis(1),
    );
    rig.open();
    rig.run_for(Duration::millis(10));
    rig.client().links.clear();
    rig.cut(0);
    rig.cut(1);
    rig.run_for(Duration::millis(500));
    rig.mend_all();
    rig.finish(Duration::secs(5));
    rig.run_for(Duration::secs(1));
    let (one, two) = (rig.client().key(0), rig.client().key(1));
    let links = rig.client().links.clone();
    let names = links.iter().map(|(_, event)| match event {
        LinkEvent::PathDown { .. } => "down",
        LinkEvent::PathUp(key) if [one, two].contains(key) => "up",
        LinkEvent::Disconnected => "disconnected",
        LinkEvent::Reconnected => "reconnected",
        LinkEvent::PathUp(_) | LinkEvent::PathFailed { .. } | LinkEvent::SessionLost => "odd",
    });
    let names: Vec<_> = names.collect();
    assert_eq!(
        names,
        ["down", "down", "disconnected", "up", "reconnected", "up"]
    );
    rig.judge_calm();
}
