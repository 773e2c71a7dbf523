//! Any bytes are a packet or an error; what is a packet is so by all its fields.
#![no_main]

use demihoma::wire::homa;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((common, packet)) = homa::parse(bytes) {
        // Reading everything shows that no field lies outside of the bytes.
        std::hint::black_box(format!("{common:?} {packet:?}"));
    }
});
