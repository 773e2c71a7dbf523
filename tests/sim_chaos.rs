//! Random worlds in which everything goes wrong that can: what is promised holds all the same.
//!
//! A failure prints its seed, the last events and the command that repeats it.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use demihoma::sim::chaos::{self, Fault, Faults, Report, Shape};

/// Worlds in CI, and in a soak.
const SEEDS: u64 = 1000;
const SOAK_SEEDS: u64 = 100_000;

/// Runs all seeds from `first` on, on all cores, and adds up what happened.
fn run_all(first: u64, seeds: u64, shape: fn(u64) -> Shape) -> Report {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(first);
    let work = || {
        let mut sum = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return sum;
            }
            match chaos::run(seed, shape(seed)) {
                Ok(report) => sum += report,
                Err(failure) => panic!("\n{failure}"),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = Report::default();
        for worker in workers {
            sum += worker.join().expect("the failure is printed above");
        }
        sum
    })
}

#[test]
fn a_thousand_worlds_of_trouble_keep_every_promise() {
    let seeds = match env::var_os("DEMIHOMA_SOAK") {
        Some(_) => SOAK_SEEDS,
        None => SEEDS,
    };
    let report = run_all(1, seeds, Shape::draw);
    println!("{report:#?}");
    // Nearly all is answered, and yet there is trouble enough.
    assert!(report.responses > 50 * seeds, "{report:?}");
    assert!(report.failures > seeds, "{report:?}");
    assert!(report.restarts > seeds / 2 && report.closes > seeds / 100);
}

#[test]
fn without_trouble_every_rpc_has_a_response() {
    let shape = |seed| Shape {
        faults: Faults::NONE.with(Fault::Nested),
        ..Shape::draw(seed)
    };
    let report = run_all(5000, 20, shape);
    // Ports that nobody has and hosts that do not exist are asked too, one in 25.
    assert!(report.failures < report.started / 15, "{report:?}");
    assert_eq!(report.started, report.responses + report.failures);
    // At the end some handlers wait for others no longer.
    assert!(report.runs - report.responses < report.runs / 50);
}

#[test]
fn the_same_seed_is_the_same_world() {
    let seed = 77;
    let reports = [(); 2].map(|()| chaos::run(seed, Shape::draw(seed)).expect("a good seed"));
    assert_eq!(reports[0], reports[1]);
}
