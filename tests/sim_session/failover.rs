//! Paths come and go, and no request is lost or runs twice.

use demihoma::session::{LinkEvent, Outcome};
use demihoma::time::Duration;

use crate::rig::{CLIENT, Load, Rig, SERVER, client_params};

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
