//! Whatever happens by chance: what the client is told is what the servers ran.

use demihoma::rng::Rng;
use demihoma::session::{Flags, Policy};
use demihoma::sim::Faults;
use demihoma::time::Duration;

use crate::rig::{CLIENT, Load, Rig, SERVER, client_params};

const POLICIES: [Policy; 5] = [
    Policy::RoundRobin,
    Policy::MinInflight,
    Policy::MinLatency,
    Policy::MinBytes,
    Policy::Sticky,
];

/// A network that loses, doubles, delays and holds frames, each a little.
fn bad_weather(rng: &mut Rng) -> Faults {
    Faults {
        loss_per_mille: rng.below(30) as u32,
        duplicate_per_mille: rng.below(30) as u32,
        late_per_mille: rng.below(50) as u32,
        late_max: Duration::micros(500),
        held_per_mille: rng.below(3) as u32,
        held_max: Duration::millis(300),
        corrupt_per_mille: 0,
    }
}

fn load(rng: &mut Rng) -> Load {
    let lens = [64, 4096, 126_976];
    Load {
        ops: 1_500,
        depth: 1 + rng.below(100),
        write_percent: rng.below(101),
        len_max: lens[rng.below(3) as usize],
        flags: Flags {
            is_idempotent: rng.below(4) == 0,
            runs_once: rng.below(4) == 0,
        },
        first_number: 1,
    }
}

fn trouble(rig: &mut Rig, rng: &mut Rng, networks: u8, may_restart: bool) {
    let network = rng.below(networks.into()) as u8;
    let both = [(CLIENT, SERVER), (SERVER, CLIENT)];
    let (from, to) = both[rng.below(2) as usize];
    match rng.below(14) {
        0 | 1 => rig.cut(network),
        2 => {
            rig.world.network_cuts.insert((from, to, network));
        }
        3..=5 => rig.mend(network),
        6 => rig.mend_all(),
        7 => rig.world.faults = bad_weather(rng),
        8 => rig.world.faults = Faults::NONE,
        9 => rig.call(|now, homa, app| {
            let key = app.key(network);
            app.client().disconnect_path(now, homa, key).unwrap();
        }),
        10 => rig.call(|now, homa, app| {
            let key = app.key(network);
            app.client().reconnect_path(now, homa, key).unwrap();
        }),
        11 => {
            let policy = POLICIES[rng.below(5) as usize];
            rig.call(|_, _, app| app.client().set_policy(policy));
        }
        12 => {
            let host = [CLIENT, SERVER][rng.below(2) as usize];
            let until = rig.now() + Duration::millis(rng.below(1500));
            rig.world.freeze(host, until);
        }
        _ if may_restart => rig.restart_server(),
        _ => rig.serve(|_, _, app| {
            app.server().pause(false);
            app.server().resume();
        }),
    }
}

fn run(seed: u64, may_restart: bool) {
    let mut rng = Rng::new(seed);
    let networks = 1 + rng.below(3) as u8;
    let mut params = client_params(networks);
    params.seed = seed;
    params.policy = POLICIES[rng.below(5) as usize];
    params.reconnect_delay = Duration::millis(20 + rng.below(500));
    params.fast_fail = Duration::millis(rng.below(3) * 1_000);
    params.ghost_fence = rng.below(2) == 0;
    params.io_timeout = Duration::millis([0, 40, 300, 5_000][rng.below(4) as usize]);
    let mut load = load(&mut rng);
    let slowest = [20_000, 20_000, 400_000][rng.below(3) as usize];
    let service = Duration::micros(rng.below(slowest));
    if slowest > 20_000 {
        // Fewer of them, or all of this would take for ever.
        (load.ops, load.depth) = (200, load.depth.max(20));
    }
    let mut rig = Rig::with(seed, networks, params, load, service);
    rig.open();
    for _ in 0..40 {
        rig.run_for(Duration::micros(rng.below(150_000)));
        trouble(&mut rig, &mut rng, networks, may_restart);
        if rig.client().is_done() {
            break;
        }
    }
    rig.mend_all();
    rig.world.faults = Faults::NONE;
    rig.call(|now, homa, app| {
        for path in app.paths() {
            app.client().reconnect_path(now, homa, path.key).unwrap();
        }
    });
    rig.finish(Duration::secs(60));
    rig.judge_calm();
    if !may_restart {
        let lost = rig.client().client().stats().sessions_lost;
        assert_eq!(lost, 0, "the server kept the session all the time");
    }
}

/// As many as there is time for; all of them when asked to.
fn seeds(first: u64) -> std::ops::Range<u64> {
    let is_soak = std::env::var_os("DEMIHOMA_SOAK").is_some();
    first..first + if is_soak { 10_000 } else { 25 }
}

#[test]
fn no_write_runs_twice_and_all_are_told_the_truth_whatever_the_paths_do() {
    for seed in seeds(1) {
        run(seed, false);
    }
}

#[test]
fn a_server_that_restarts_runs_nothing_twice_and_nobody_is_told_a_lie() {
    for seed in seeds(1_000_000) {
        run(seed, true);
    }
}
