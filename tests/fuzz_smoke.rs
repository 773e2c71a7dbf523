//! The fuzzers' bodies, fed by chance and with the frames of the captures. See config/fuzz.sh.

#[path = "../fuzz/bodies/mod.rs"]
mod bodies;

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use bodies::{calls, frames, packets};
use demihoma::addr::Ip;
use demihoma::rng::Rng;
use demihoma::sim::Garbage;
use demihoma::trace::pcap;
use flate2::read::GzDecoder;

/// Inputs for each body.
const RUNS: u64 = 2_000;

const fn ip(last: u8) -> Ip {
    Ip::v4(10, 0, 0, last)
}

/// Tells how many messages came in whole.
fn by_chance(body: impl Fn(&[u8]) -> u64, len_max: u64, seed: u64) -> u64 {
    let mut messages = 0;
    for run in 0..RUNS {
        let mut rng = Rng::new(seed + run);
        let len = rng.below(len_max) as usize;
        let input: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        let caught = panic::catch_unwind(AssertUnwindSafe(|| body(&input)));
        messages += caught.unwrap_or_else(|_| panic!("seed {}", seed + run));
    }
    messages
}

/// Inputs of as many frames as fit: for `frames` and for `packets`, from each capture.
fn seeds() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    const INPUT_MAX: usize = 16_384;
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(golden).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let captures = paths.filter(|path| path.extension().is_some_and(|ending| ending == "gz"));
    let mut seeds = Vec::new();
    for path in captures {
        let mut bytes = Vec::new();
        GzDecoder::new(File::open(&path).unwrap())
            .read_to_end(&mut bytes)
            .unwrap();
        let mut reader = pcap::Reader::new(bytes.as_slice()).unwrap();
        let (mut of_frames, mut of_packets) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next_record().unwrap()
            && of_frames.len() < INPUT_MAX
        {
            of_frames.extend(frames::record(record.frame));
            if record.frame.len() > 34 && record.frame[12..14] == [8, 0] {
                of_packets.extend(packets::record(&record.frame[34..]));
            }
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        seeds.push((name.replace(".pcap.gz", ""), of_frames, of_packets));
    }
    seeds
}

#[test]
fn frames_by_chance_leave_a_stack_whole_and_empty() {
    let mut messages = 0;
    for seed in 1..=RUNS / 4 {
        let (to, from) = (
            ([2, 0, 0, 0, 0, 1], ip(1)),
            ([2, 0, 0, 0, 0, 2], vec![ip(2), ip(3)]),
        );
        let mut garbage = Garbage::new(seed, to, from, vec![4_000, 40_000]);
        let frames = (0..200).flat_map(|_| frames::record(garbage.frame()));
        let input: Vec<u8> = frames.collect();
        let caught = panic::catch_unwind(AssertUnwindSafe(|| frames::run(&input)));
        messages += caught.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(messages > 20, "{messages} messages");
}

#[test]
fn packets_by_chance_leave_an_endpoint_whole_and_empty() {
    let messages = by_chance(packets::run, 800, 100_000);
    assert!(messages > 1_000, "{messages} messages");
}

#[test]
fn calls_by_chance_leave_two_endpoints_whole_and_empty() {
    let messages = by_chance(calls::run, 800, 200_000);
    assert!(messages > 1_000, "{messages} messages");
}

/// With DEMIHOMA_FUZZ_CORPUS, a directory, an input is written there for the coverage-guided
/// fuzzers to start from.
fn keep(target: &str, name: &str, bytes: &[u8]) {
    if let Some(corpus) = env::var_os("DEMIHOMA_FUZZ_CORPUS") {
        let directory = PathBuf::from(corpus).join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// 56 RPCs, many of which end before both of their messages are whole.
#[test]
fn calls_that_the_fuzzers_start_from_leave_two_endpoints_whole_and_empty() {
    let mut messages = 0;
    for (name, bytes) in calls::records() {
        keep("calls", &name, &bytes);
        messages += calls::run(&bytes);
    }
    assert!(messages > 70, "{messages} messages");
}

#[test]
fn frames_of_the_captures_leave_a_stack_whole_and_empty() {
    let seeds = seeds();
    assert!(seeds.len() > 20, "{} captures", seeds.len());
    let mut messages = [0; 2];
    for (name, of_frames, of_packets) in &seeds {
        keep("frames", name, of_frames);
        keep("packets", name, of_packets);
        messages[0] += frames::run(of_frames);
        messages[1] += packets::run(of_packets);
    }
    assert!(
        messages.iter().all(|&messages| messages > 50),
        "{messages:?} messages"
    );
}

/// The same with a few bytes changed.
#[test]
fn bent_frames_of_the_captures_leave_a_stack_whole_and_empty() {
    let mut rng = Rng::new(7);
    for (_, of_frames, of_packets) in seeds() {
        for (input, body) in [
            (of_frames, frames::run as fn(&[u8]) -> u64),
            (of_packets, packets::run as fn(&[u8]) -> u64),
        ] {
            for _ in 0..8 {
                let mut bent = input.clone();
                for _ in 0..bent.len().min(16) {
                    let at = rng.below(bent.len() as u64) as usize;
                    bent[at] = rng.next_u64() as u8;
                }
                body(&bent);
            }
        }
    }
}
