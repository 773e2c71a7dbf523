//! Opening goes wrong at each of its steps, and many clients come at once.

use std::cell::RefCell;
use std::rc::Rc;

use demihoma::session::{Name, Outcome, status};
use demihoma::sim::{Drops, Tap};
use demihoma::time::Duration;

use crate::rig::{CLIENT, Ledger, Load, Node, Rig, SERVER, client, client_params, server};

/// Stories 17 and 18: whichever of the first frames of either side gets lost, the session opens,
/// and nothing but what is in use is held.
#[test]
fn a_session_opens_though_any_one_frame_of_it_gets_lost() {
    for from in [CLIENT, SERVER] {
        for skip in 0..12 {
            let mut rig = Rig::new(80, 2, Load::mixed(20, 4));
            let drops = [Drops {
                from,
                kind: "",
                skip,
                count: 1,
            }];
            rig.world.watch = Some(Rc::new(RefCell::new(Tap::new(&drops))));
            rig.open();
            rig.finish(Duration::secs(5));
            assert_eq!(
                rig.count(Outcome::Executed),
                20,
                "frame {skip} of host {from}"
            );
            rig.judge_calm();
        }
    }
}

/// The same, but nothing that the server says arrives from some frame on.
#[test]
fn a_session_that_cannot_open_leaves_nothing_behind() {
    for skip in 0..8 {
        let mut params = client_params(2);
        params.connect_timeout = Duration::millis(300);
        let mut rig = Rig::with(81, 2, params, Load::writes(0, 1), Duration::ZERO);
        let drops = [Drops {
            from: SERVER,
            kind: "",
            skip,
            count: u32::MAX,
        }];
        rig.world.watch = Some(Rc::new(RefCell::new(Tap::new(&drops))));
        rig.run_until(Duration::secs(2), |app| app.opened.is_some());
        if rig.client().opened == Some(0) {
            rig.call(|now, _, app| app.client().close(now, Duration::ZERO));
        }
        rig.run_until(Duration::secs(2), |app| app.client().is_closed());
        assert_eq!(rig.world.hosts[CLIENT].poller.endpoint().rpc_count(), 0);
    }
}

/// Story 27.
#[test]
fn a_session_can_be_closed_at_any_moment_of_its_opening() {
    for micros in 0..40 {
        let mut rig = Rig::with(82, 2, client_params(2), Load::writes(0, 1), Duration::ZERO);
        rig.run_for(Duration::micros(micros));
        rig.call(|now, _, app| app.client().close(now, Duration::ZERO));
        rig.run_until(Duration::secs(2), |app| app.client().is_closed());
        assert_eq!(rig.client().closed, Some((0, 0)));
        assert_eq!(rig.world.hosts[CLIENT].poller.endpoint().rpc_count(), 0);
        // What the server has begun it ends by itself.
        rig.run_for(Duration::secs(70));
        assert_eq!(rig.server().server().session_count(), 0);
    }
}

/// Story 20: many clients, a server that restarts again and again. All come back, and no session
/// is left over.
#[test]
fn a_storm_of_clients_that_come_back_leaves_no_session_too_many() {
    const CLIENTS: usize = 16;
    let ledger = Ledger::default();
    let mut nodes = vec![Node::Idle, server(1, &ledger, Duration::millis(10))];
    for nth in 0..CLIENTS {
        let mut params = client_params(2);
        params.name = Name::new(format!("disk{nth}").as_bytes()).unwrap();
        params.seed = nth as u64 + 1;
        params.queue_depth = 8;
        params.reconnect_delay = Duration::millis(100);
        for path in &mut params.paths {
            path.source = None;
        }
        let load = Load {
            first_number: 1 + 1_000_000 * nth as u64,
            ..Load::writes(1_000_000, 2)
        };
        nodes.push(client(params, load));
    }
    let mut rig = Rig::of(83, 2, ledger, nodes);
    for _ in 0..3 {
        rig.run_for(Duration::millis(200));
        rig.restart_server();
        rig.run_for(Duration::millis(900));
        let server = rig.server().server();
        assert_eq!(
            (server.session_count(), server.paths_up()),
            (CLIENTS, 2 * CLIENTS as u32)
        );
    }
    let ledger = rig.ledger.borrow().clone();
    for nth in 0..CLIENTS {
        let app = rig.world.hosts[nth + 2].app.client();
        assert_eq!(app.client().stats().sessions_lost, 3);
        for ended in &app.ended {
            let runs = ledger.get(&ended.number).copied().unwrap_or(0);
            match ended.completion.outcome {
                Outcome::Executed => assert_eq!(runs, 1),
                Outcome::NotExecuted => assert_eq!(runs, 0),
                Outcome::Unknown => {
                    assert!(runs <= 1);
                    assert_eq!(ended.completion.status, status::OWNER_DEAD);
                }
            }
        }
    }
}
