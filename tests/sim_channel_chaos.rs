//! Message channels in random worlds in which everything goes wrong that can.
//!
//! A failure names its seed; `DEMIHOMA_SEED=N cargo test --test sim_channel_chaos` repeats it.

use std::env;

use demihoma::sim::chaos::{Fault, Shape, TalkReport, run_talks};

/// Worlds in CI, and in a soak.
const SEEDS: u64 = 200;
const SOAK_SEEDS: u64 = 20_000;

#[test]
fn two_hundred_worlds_of_trouble_keep_the_order() {
    let seeds = match (env::var("DEMIHOMA_SEED"), env::var_os("DEMIHOMA_SOAK")) {
        (Ok(seed), _) => {
            let seed = seed.parse().expect("DEMIHOMA_SEED is a number");
            println!("{:?}", run_talks(seed, Shape::draw(seed)));
            return;
        }
        (Err(_), None) => 1..=SEEDS,
        (Err(_), Some(_)) => 1..=SOAK_SEEDS,
    };
    let mut sum = TalkReport::default();
    for seed in seeds {
        let shape = Shape::draw(seed);
        let report = run_talks(seed, shape);
        assert!(report.restarts > 0 || !shape.faults.has(Fault::Restart));
        sum.channels += report.channels;
        sum.messages += report.messages;
        sum.failures += report.failures;
        sum.retries += report.retries;
        sum.early_dropped += report.early_dropped;
        sum.restarts += report.restarts;
    }
    println!("{sum:#?}");
    assert!(sum.channels > 1_000 && sum.messages > 20_000, "{sum:?}");
    assert!(sum.retries > 100 && sum.early_dropped > 50, "{sum:?}");
    assert!(sum.failures > 40 && sum.restarts > 100, "{sum:?}");
}
