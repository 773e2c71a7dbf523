//! Tests that need DPDK or a network of their own run in a child process: DPDK starts only once
//! per process, and a network namespace is left behind by ending in it.

use std::any::type_name;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Lines};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Set in a child; its value is the part it plays.
const ROLE: &str = "DEMIHOMA_TEST_ROLE";

/// Far longer than any such test takes, here or on a slow machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs the body of a test, a closure written in the test itself, in a child process.
#[allow(dead_code)] // Not every file of tests uses every helper.
pub(crate) fn in_child<F: FnOnce()>(body: F) {
    run::<F>(&[], body);
}

/// The same in a network namespace of its own, which needs no privilege: who is not root becomes
/// root of a user namespace.
#[allow(dead_code)] // As above.
pub(crate) fn in_namespace<F: FnOnce()>(body: F) {
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
pub(crate) fn beside(role: &str) -> Output {
    let test = env::args().nth(1).expect("a child is told its test");
    finish(command(&[], &test, role))
}

/// A run of the same test beside this one, in the same namespace; it is killed with this value.
#[allow(dead_code)] // As above.
pub(crate) struct Beside {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

#[allow(dead_code)] // As above.
impl Beside {
    /// Starts it with another role, and waits until it has said "ready".
    pub(crate) fn start(role: &str) -> Self {
        let test = env::args().nth(1).expect("a child is told its test");
        let mut command = command(&[], &test, role);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().expect("it is piped");
        let lines = BufReader::new(stdout).lines();
        let mut beside = Self { child, lines };
        beside.says("ready");
        beside
    }

    /// Waits for a line of its.
    pub(crate) fn says(&mut self, line: &str) {
        let found = self.lines.by_ref().map_while(Result::ok);
        let found = found.into_iter().any(|said| said.ends_with(line));
        assert!(found, "it ended before it said {line:?}");
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: has no precondition; the child is ours and was not waited for, so that nobody
        // else has its id.
        let result = unsafe { libc::kill(pid, signal) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part that this process plays: "main" in the child, or as [`beside`] was told.
#[allow(dead_code)] // As above.
pub(crate) fn role() -> String {
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

/// Such tests spin, so they run one at a time, whatever program they are in: they lock the folder
/// that their programs are in.
fn take_turn() -> File {
    let program = env::current_exe().expect("a test has a program");
    let folder = program.parent().expect("a program is in a folder");
    let file = File::open(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    // SAFETY: the descriptor is open; the lock goes with it.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(result, 0, "{folder:?}: {}", io::Error::last_os_error());
    file
}
