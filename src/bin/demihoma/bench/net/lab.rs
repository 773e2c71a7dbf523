//! Where the measurement takes place: a network namespace, two ends of a veth pair, two cores.

use std::env;
use std::fs;
use std::io;
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;

/// Ways to make a namespace: as root, and as root of a user namespace, which most kernels allow
/// to everybody.
const WAYS: [&str; 2] = ["-nm", "-Urnm"];

/// Starts this program again, as the client, in a network namespace of its own.
///
/// The namespace and all in it are gone once both processes are.
pub fn enter() -> Result<(), Failure> {
    let mut refusal = String::new();
    for way in WAYS {
        let tried = output(Command::new("unshare").args([way, "true"]))?;
        if !tried.status.success() {
            refusal = text_of(&tried);
            continue;
        }
        let status = Command::new("unshare")
            .arg(way)
            .arg(env::current_exe()?)
            .args(env::args_os().skip(1))
            .args(["--role", "client"])
            .status()?;
        // It has said what went wrong.
        std::process::exit(status.code().unwrap_or(1));
    }
    Err(Failure(format!(
        "no network namespace can be made here, be root or allow user namespaces ({refusal})"
    )))
}

/// The name of an end of the pair.
pub fn interface(end: u8) -> String {
    format!("bench{end}")
}

/// Makes the veth pair.
///
/// The two indices are far apart: net_af_packet names its fanout group for the process's id XOR
/// the interface's index, so with indices side by side two processes could meet in one group.
pub fn furnish() -> Result<(), Failure> {
    let (one, two) = (interface(1), interface(2));
    ip(&format!(
        "link add {one} index 100 type veth peer name {two} index 20000"
    ))?;
    for end in [one, two] {
        // No IPv6 addresses: the kernel would chatter.
        ip(&format!("link set {end} addrgenmode none"))?;
        ip(&format!("link set {end} up"))?;
    }
    Ok(())
}

/// The core for an end's process; none if there are not two.
pub fn core_of(end: u8) -> Option<u16> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let cores = cores(list.trim());
    if cores.len() < 2 {
        return None;
    }
    cores.get(usize::from(end) - 1).copied()
}

/// The numbers in a list such as `0-3,8`.
fn cores(list: &str) -> Vec<u16> {
    list.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

fn ip(words: &str) -> Result<(), Failure> {
    let made = output(Command::new("ip").args(words.split_whitespace()))?;
    if made.status.success() {
        return Ok(());
    }
    Err(Failure(format!("ip {words}: {}", text_of(&made))))
}

fn output(command: &mut Command) -> Result<Output, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure(format!(
                "`{program}` is needed and not here: install util-linux, iproute2"
            )),
            _ => Failure(format!("{program}: {error}")),
        })
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_read() {
        assert_eq!(cores("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cores("5"), [5]);
        assert!(cores("").is_empty());
    }
}
