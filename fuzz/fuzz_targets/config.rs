//! Any text is a configuration or one line of complaint.
#![no_main]

use demihoma::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Config::from_parts(None, text, std::iter::empty()) {
        assert!(!error.to_string().contains('\n'));
    }
});
