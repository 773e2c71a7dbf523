//! C and C++ programs as their authors build them: compiled without a warning, and linked with the
//! static library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::lab::{scratch, source, succeed};

const WARNINGS: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

/// Programs that make each call in each wrong way, and end well if each was refused as it should
/// be. They need a lab.
pub const ERRORS: [&str; 5] = [
    "tests/c/uninitialised.c",
    "tests/c/invalid.c",
    "tests/c/strangers.c",
    "tests/c/messages.c",
    "tests/c/exhaustion.c",
];

/// Compiles without making anything; a warning is an error.
pub fn check(compiler: &[&str], file: &Path) {
    let mut command = compile(compiler);
    command.arg("-fsyntax-only").arg(file);
    succeed(&mut command);
}

fn compile(compiler: &[&str]) -> Command {
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .args(WARNINGS)
        .arg("-I")
        .arg(source("include"));
    command
}

/// Compiles a program and links it with the static library, under a name of its own.
pub fn link(compiler: &[&str], file: &str) -> PathBuf {
    // Tests run side by side, and some link the same source.
    static LINKED: AtomicU32 = AtomicU32::new(0);
    let name = Path::new(file).file_stem().unwrap_or_default();
    let number = LINKED.fetch_add(1, Ordering::Relaxed);
    let program = scratch(&format!("{}-{number}", name.display()));
    let mut command = compile(compiler);
    command
        .arg(source(file))
        .arg("-o")
        .arg(&program)
        .arg(archive());
    command.arg("-Wl,--as-needed").args(dpdk_libs()).args([
        "-lrte_net_ring",
        "-lpthread",
        "-ldl",
        "-lm",
    ]);
    succeed(&mut command);
    program
}

fn dpdk_libs() -> Vec<String> {
    let output = succeed(Command::new("pkg-config").args(["--libs", "libdpdk"]));
    let libs = String::from_utf8(output.stdout).expect("options in ASCII");
    libs.split_whitespace().map(String::from).collect()
}

/// `libdemihoma.a`, of this very source.
///
/// Cargo makes it beside this test, in the same breath as the crate the test links with, under a
/// name that tells nothing of its features; others, and older ones, may lie there too. If none is
/// surely right, one is built where nobody else builds.
fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        if let Some(beside) = archive_beside() {
            return beside;
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-target");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--lib",
            "--no-default-features",
            "--features",
            "dpdk",
        ]);
        cargo.arg("--manifest-path").arg(source("Cargo.toml"));
        succeed(cargo.arg("--target-dir").arg(&target));
        target.join("debug/libdemihoma.a")
    })
}

/// The newest archive with the C face, if it is newer than all that it is made of.
fn archive_beside() -> Option<PathBuf> {
    let this_test = std::env::current_exe().expect("a test knows its own path");
    let folder = this_test.parent().expect("a program is in a folder");
    let mut archives: Vec<_> = files(folder)
        .filter(|path| path.extension().is_some_and(|end| end == "a"))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| is_ours(&name.to_string_lossy()))
        })
        .map(|path| (changed(&path), path))
        .collect();
    archives.sort();
    let sources = newest(&source("src")).max(newest(&source("dpdk-sys/src")));
    archives
        .into_iter()
        .rev()
        .take_while(|&(at, _)| at > sources)
        .map(|(_, path)| path)
        .find(|path| fs::read(path).is_ok_and(|bytes| has_c_face(&bytes)))
}

fn is_ours(name: &str) -> bool {
    name.starts_with("libdemihoma")
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    entries.map(|entry| entry.expect("a folder's entry is readable").path())
}

/// When the file below `folder` that was changed last was changed.
fn newest(folder: &Path) -> SystemTime {
    let times = files(folder).map(|path| match path.is_dir() {
        true => newest(&path),
        false => changed(&path),
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn changed(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    metadata.modified().expect("Linux keeps such times")
}

fn has_c_face(archive: &[u8]) -> bool {
    let name = b"\0demi_homa_call\0";
    archive.windows(name.len()).any(|window| window == name)
}
