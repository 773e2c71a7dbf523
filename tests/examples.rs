//! The Rust examples as a reader would try them: server and client on the two ends of a wire.
#![cfg(feature = "dpdk")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::in_namespace;

/// A program of examples/, which `cargo test` builds beside this one.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test has a program");
    let folder = test
        .ancestors()
        .nth(2)
        .expect("tests are in target/PROFILE/deps");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "build it first: cargo build --examples");
    Command::new(program)
}

/// Two ends of a wire, and the settings of the side on each: 1 is the server's.
fn furnish(name: &str) -> [PathBuf; 2] {
    for words in [
        "link add v1 index 100 type veth peer name v2 index 20000",
        "link set v1 up",
        "link set v2 up",
    ] {
        let status = Command::new("ip").args(words.split(' ')).status();
        assert!(status.expect("iproute2").success(), "ip {words}");
    }
    [1, 2].map(|end| {
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{end}.toml"));
        let text = format!(
            "[network]\nbackend = \"af_packet\"\ninterface = \"v{end}\"\n\
             address = \"10.0.0.{end}/24\"\n"
        );
        fs::write(&file, text).expect("a folder for tests can be written to");
        file
    })
}

/// Ends the server also when the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs both sides; gives what the client says.
fn run(name: &str) -> String {
    let [near, far] = furnish(name);
    let mut server = example(name);
    server
        .args(["server", "--config"])
        .arg(near)
        .stdout(Stdio::piped());
    let mut server = Server(server.spawn().expect("the example was built"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("text");
    assert_eq!(line, "ready\n");
    let client = example(name).args(["client", "--config"]).arg(far).output();
    let client = client.expect("the example was built");
    let errors = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "{errors}");
    String::from_utf8_lossy(&client.stdout).into_owned()
}

#[test]
fn the_echo_example_gets_every_length_back() {
    in_namespace(|| {
        let said = run("echo");
        assert_eq!(said.lines().count(), 7, "{said}");
        assert!(said.contains("1000000 bytes there and back"), "{said}");
    });
}

#[test]
fn the_rpc_example_gets_every_result() {
    in_namespace(|| assert_eq!(run("rpc"), "1000 calls, all results right\n"));
}
