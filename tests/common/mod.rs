//! Tests that need DPDK or a network of their own run in a child process: DPDK starts only once
//! per process, and a network namespace is left behind by ending in it.

use std::any::type_name;
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Set in a child; its value is the part it plays.
const ROLE: &str = "DEMIHOMA_TEST_ROLE";

/// Far longer than any such test takes, here or on a slow machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs the body of a test, a closure written in the test itself, in a child process.
#[allow(dead_code)] // Not every file of tests uses every helper.
pub fn in_child<F: FnOnce()>(body: F) {
    run::<F>(&[], body);
}

/// The same in a network namespace of its own, which needs no privilege: who is not root becomes
/// root of a user namespace.
#[allow(dead_code)] // As above.
pub fn in_namespace<F: FnOnce()>(body: F) {
    // SAFETY: has no precondition.
    let root = unsafe { libc::geteuid() } == 0;
    run::<F>(
        if root {
            &["unshare", "-nm"]
        } else {
            &["unshare", "-Urnm"]
        },
        body,
    );
}

/// Runs the same test once more beside this one, in the same namespace, with another role.
#[allow(dead_code)] // As above.
pub fn beside(role: &str) -> Output {
    let test = env::args().nth(1).expect("a child is told its test");
    finish(command(&[], &test, role))
}

/// The part that this process plays: "main" in the child, or as [`beside`] was told.
#[allow(dead_code)] // As above.
pub fn role() -> String {
    env::var(ROLE).unwrap_or_default()
}

fn run<F: FnOnce()>(prefix: &[&str], body: F) {
    if env::var_os(ROLE).is_some() {
        return body();
    }
    let _turn = take_turn();
    let name = test_name::<F>();
    let output = finish(command(prefix, &name, "main"));
    assert!(
        output.status.success(),
        "{name} failed in its child process ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// A closure's type is named for the function it is written in: `crate::test::{{closure}}`.
fn test_name<F>() -> String {
    let path = type_name::<F>().trim_end_matches("::{{closure}}");
    let (_crate, name) = path.split_once("::").expect("a path begins with its crate");
    name.to_owned()
}

fn command(prefix: &[&str], test: &str, role: &str) -> Command {
    let program = env::current_exe().expect("a test has a program");
    let mut command = match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(ROLE, role);
    command
}

/// Its output, once it ended; it is ended if it takes too long.
fn finish(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let start = Instant::now();
    while child.try_wait().expect("a child of ours").is_none() {
        if start.elapsed() > TIME_LIMIT {
            child.kill().expect("a child of ours");
            eprintln!("ended after {TIME_LIMIT:?}: {command:?}");
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("a child of ours")
}

/// Such tests spin, so they run one at a time, whatever file they are in.
fn take_turn() -> File {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/one-device-test-at-a-time");
    let file = File::create(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    // SAFETY: the descriptor is open; the lock goes with it.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(result, 0, "{path}: {}", io::Error::last_os_error());
    file
}
