//! The C programs that make every mistake once more, watched: by AddressSanitizer on their side of
//! the border, and by valgrind on both sides.
#![cfg(feature = "dpdk")]

#[path = "common/lab.rs"]
#[allow(dead_code)] // Not every file of tests uses every helper.
mod lab;
#[path = "common/program.rs"]
#[allow(dead_code)] // As above.
mod program;

use std::path::Path;
use std::process::Command;

use lab::{Lab, succeed};
use program::{ERRORS, link};

/// Far longer than any program takes under either.
const LIMIT_SECS: &str = "240";

/// What DPDK allocates for the life of the process is no leak of anybody's.
const ASAN: &str = "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=1";

#[test]
fn address_sanitizer_finds_nothing_in_programs_that_make_every_mistake() {
    let lab = Lab::up("asan");
    for file in ERRORS {
        let flags = [
            "-O1",
            "-g",
            "-fno-omit-frame-pointer",
            "-fsanitize=address,undefined",
        ];
        let mut compiler = vec!["gcc", "-std=c11", "-fno-sanitize-recover=all"];
        compiler.extend(flags);
        let program = link(&compiler, file);
        succeed(lab.run("client", &program).env("ASAN_OPTIONS", ASAN));
    }
}

#[test]
fn valgrind_finds_nothing_in_programs_that_make_every_mistake() {
    let lab = Lab::up("memcheck");
    for file in ERRORS {
        let program = link(&["gcc", "-std=c11", "-O1", "-g"], file);
        succeed(&mut watched(&lab, &program));
    }
}

/// A run under valgrind, with an exit code of its own for what that finds.
fn watched(lab: &Lab, program: &Path) -> Command {
    let words = [
        "timeout",
        LIMIT_SECS,
        "valgrind",
        "--quiet",
        "--error-exitcode=99",
    ];
    lab.run_under(&words, "client", program)
}
