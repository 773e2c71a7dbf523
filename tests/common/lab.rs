//! The lab of `config/lab.sh` as tests use it, to run C programs in.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file of these tests' own.
pub fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", env!("CARGO_CRATE_NAME")))
}

pub fn succeed(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

/// Two network namespaces, joined; gone with this value.
pub struct Lab {
    name: String,
}

impl Lab {
    pub fn up(name: &str) -> Self {
        let lab = Self {
            name: format!("{name}{}", std::process::id()),
        };
        succeed(lab.script().arg("up"));
        for (role, number) in [("server", 1), ("client", 2)] {
            let text = format!(
                "[network]\nbackend = \"af_packet\"\ninterface = \"lab0\"\n\
                 address = \"10.0.0.{number}/24\"\n"
            );
            fs::write(lab.config(role), text).unwrap();
        }
        lab
    }

    fn script(&self) -> Command {
        let mut command = Command::new(source("config/lab.sh"));
        command.env("LAB", &self.name);
        command
    }

    fn config(&self, role: &str) -> PathBuf {
        scratch(&format!("{}-{role}.toml", self.name))
    }

    pub fn run(&self, role: &str, program: &Path) -> Command {
        self.run_under(&[], role, program)
    }

    /// The same by the words of another program that is to run it.
    pub fn run_under(&self, words: &[&str], role: &str, program: &Path) -> Command {
        let mut command = self.script();
        command.args(["run", "--as", role]).args(words);
        command.arg(program).arg(role);
        command.arg("--config").arg(self.config(role));
        command
    }

    /// A server that is ready to serve.
    pub fn serve(&self, program: &Path) -> Server {
        let mut command = self.run("server", program);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("config/lab.sh runs");
        let stdout = child.stdout.take().expect("it is piped");
        let ready = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .any(|l| l == "ready");
        assert!(
            ready,
            "{command:?} ended before it was ready: {:?}",
            child.wait()
        );
        Server(child)
    }

    pub fn client(&self, program: &Path, options: &[&str]) -> Output {
        succeed(self.run("client", program).args(options))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for role in ["server", "client"] {
            let _ = fs::remove_file(self.config(role));
        }
        if let Err(error) = self.script().arg("down").output() {
            let _ = writeln!(
                std::io::stderr(),
                "the lab {} is still up: {error}",
                self.name
            );
        }
    }
}

pub struct Server(Child);

impl Server {
    /// Waits for it to end of its own accord, which it must do well.
    #[allow(dead_code)] // Not every file of tests has such servers.
    pub fn ended(mut self) {
        let status = self.0.wait().expect("it is our child");
        assert!(status.success(), "the server ended with {status}");
    }

    /// Asks it to end, which it must do well.
    pub fn end(mut self) {
        succeed(Command::new("kill").arg(self.0.id().to_string()));
        let status = self.0.wait().expect("it is our child");
        assert!(status.success(), "the server ended with {status}");
    }
}

impl Drop for Server {
    /// A test that failed must not leave it behind. After `end` it is gone already.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
