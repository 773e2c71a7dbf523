//! Paths come and go, and no request is lost or runs twice.

use demihoma::session::{LinkEvent, Outcome};
use demihoma::time::Duration;

use crate::rig::{CLIENT, Ledger, Load, Rig, SERVER, client, client_params, server};

#[test]
fn requests_over_two_paths_are_all_executed_once() {
    let mut rig = Rig::new(1, 2, Load::mixed(2_000, 64));
    let took = rig.finish(Duration::secs(5));
    println!("took {took:?}");
    assert_eq!(rig.count(Outcome::Executed), 2_000);
    rig.judge_calm();
    assert!(
        rig.client()
            .links
            .iter()
            .all(|(_, event)| matches!(event, LinkEvent::PathUp(_)))
    );
}

/// Story 1, `fo_before_reconnect`: what was under way must not wait for the reconnect delay.
#[test]
fn requests_fail_over_long_before_their_path_is_tried_again() {
    let mut params = client_params(2);
    params.reconnect_delay = Duration::secs(10);
    let mut rig = Rig::with(2, 2, params, Load::writes(20_000, 64), Duration::ZERO);
    rig.open();
    rig.run_for(Duration::millis(1));
    rig.cut(0);
    rig.run_until(Duration::millis(150), |client| client.path(0).inflight == 0);
    rig.finish(Duration::secs(5));
    let slowest = rig.client().ended.iter().map(|ended| ended.took).max();
    assert!(slowest < Some(Duration::millis(120)), "{slowest:?}");
    assert_eq!(rig.count(Outcome::Executed), 20_000);
    assert!(rig.client().client().stats().failovers > 0);
    rig.mend(0);
    rig.judge_calm();
}

/// S44, and S45 one way: requests arrive over path A and run, and no answer comes back.
#[test]
fn an_answer_lost_with_its_path_is_told_again_over_the_other() {
    let mut rig = Rig::new(3, 2, Load::writes(500, 64));
    rig.open();
    rig.world.network_cuts.insert((SERVER, CLIENT, 0));
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 500);
    let replayed = rig
        .client()
        .ended
        .iter()
        .filter(|ended| ended.completion.is_replayed);
    let replayed = replayed.count();
    assert!(replayed > 0);
    rig.mend_all();
    rig.judge_calm();
    assert!(rig.ledger.borrow().values().all(|&runs| runs == 1));
}

/// S45 the other way.
#[test]
fn requests_that_never_arrived_run_over_the_other_path() {
    let mut rig = Rig::new(4, 2, Load::mixed(500, 64));
    rig.open();
    rig.world.network_cuts.insert((CLIENT, SERVER, 0));
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 500);
    rig.mend_all();
    rig.judge_calm();
}

/// S40: one of two paths, and then of four, is cut every 200 ms for three seconds.
#[test]
fn paths_that_are_cut_again_and_again_lose_and_repeat_nothing() {
    for paths in [2, 4] {
        let mut load = Load::mixed(10_000, 64);
        load.len_max = 32_000;
        let mut params = client_params(paths);
        params.reconnect_delay = Duration::millis(50);
        let mut rig = Rig::with(5, paths, params, load, Duration::millis(10));
        rig.open();
        for round in 0..15 {
            rig.cut(round % paths);
            rig.run_for(Duration::millis(100));
            rig.mend(round % paths);
            rig.run_for(Duration::millis(100));
        }
        rig.finish(Duration::secs(20));
        assert_eq!(rig.count(Outcome::Executed), 10_000);
        assert!(rig.client().client().stats().failovers >= 15 * 5);
        let disconnected = |event: &LinkEvent| *event == LinkEvent::Disconnected;
        assert!(
            !rig.client()
                .links
                .iter()
                .any(|(_, event)| disconnected(event))
        );
        rig.judge_calm();
    }
}

/// READs that are to run once do so though their answers are lost with the path.
#[test]
fn reads_that_run_once_are_told_again_from_memory() {
    let mut load = Load::mixed(500, 64);
    (load.write_percent, load.len_max) = (0, 4_000);
    load.flags.runs_once = true;
    let mut rig = Rig::new(6, 2, load);
    rig.open();
    rig.world.network_cuts.insert((SERVER, CLIENT, 0));
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 500);
    let replays = rig.client().client().stats().replays;
    assert!(replays > 0);
    assert!(rig.ledger.borrow().values().all(|&runs| runs == 1));
    rig.mend_all();
    rig.run_for(Duration::secs(2));
    rig.judge();
}

/// S48: far fewer receive pages than requests would fill.
#[test]
fn a_client_short_of_pages_is_slow_and_loses_no_path() {
    let ledger = Ledger::default();
    let mut load = Load::mixed(300, 64);
    (load.write_percent, load.len_max) = (0, 126_976);
    let nodes = vec![
        client(client_params(2), load),
        server(1, &ledger, Duration::ZERO),
    ];
    let mut rig = Rig::of_pages(7, 2, ledger, nodes, 33);
    rig.finish(Duration::secs(20));
    assert_eq!(rig.count(Outcome::Executed), 300);
    let lost = |event: &LinkEvent| matches!(event, LinkEvent::PathDown { .. });
    assert!(!rig.client().links.iter().any(|(_, event)| lost(event)));
    rig.judge();
}
