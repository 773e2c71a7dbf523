#!/bin/bash
# Feeds each parser, a whole stack and live endpoints with what a coverage-guided fuzzer thinks up.
#
#   config/fuzz.sh [SECONDS]    for each target of fuzz/ (default: 60)
#
# A finding is kept in fuzz/artifacts and ends the run with an error. What was learnt is kept in
# fuzz/corpus, so that the next run goes on from there.
set -eu

cd "$(dirname "$0")/../fuzz"
seconds=${1:-60}
host=$(rustc --print host-tuple)

# What the fuzzers start from: the frames of the captures, and calls that make sense.
DEMIHOMA_FUZZ_CORPUS=$PWD/corpus cargo test --quiet --manifest-path ../Cargo.toml \
    --no-default-features --test fuzz_smoke -- frames_of_the_captures fuzzers_start_from >/dev/null

# What `cargo fuzz` passes; RUSTC_BOOTSTRAP lets a stable compiler take them.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
cargo build --release --target "$host"

for source in fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    mkdir -p "corpus/$target" artifacts
    echo "fuzz: $target for $seconds s"
    log=artifacts/$target.log
    "target/$host/release/$target" -max_total_time="$seconds" -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target-" "corpus/$target" >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        echo "fuzz: $target failed; the input is in fuzz/artifacts" >&2
        exit 1
    }
    grep -m 1 number_of_executed_units "$log" | sed "s/^.*: */fuzz: $target: runs /"
done
