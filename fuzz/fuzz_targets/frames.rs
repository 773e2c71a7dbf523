//! Any frames into a live stack.
#![no_main]

#[allow(dead_code)] // Each target uses its own.
#[path = "../bodies/mod.rs"]
mod bodies;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bodies::frames::run(bytes);
});
