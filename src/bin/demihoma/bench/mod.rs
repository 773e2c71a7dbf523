//! `demihoma bench`: how fast it is, beside bare DPDK in the same run.

mod net;
mod ring;
mod waits;
mod windows;

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// RPCs in one thread, client and server joined by rings in memory: what the code costs.
    Ring(ring::Arguments),
    /// RPC round trips between two processes over net_af_packet and a veth pair, made for it.
    Net(net::Arguments),
    /// Waits while 1 to 16,384 other operations are idle: what each of those costs.
    Waits(waits::Arguments),
}

impl Command {
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Ring(arguments) => ring::run(arguments),
            Self::Net(arguments) => net::run(arguments),
            Self::Waits(arguments) => waits::run(arguments),
        }
    }
}

/// Shorter waits need no bar.
const BAR_FROM: Duration = Duration::from_secs(2);

/// Shows people at a terminal how much of `steps` is done, if all of them take long.
fn progress(steps: u64, takes: Duration) -> ProgressBar {
    if takes <= BAR_FROM || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}%")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}

/// Seconds on a command line: from a hundredth of one to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(secs) if (0.01..=86_400.0).contains(&secs) => Ok(Duration::from_secs_f64(secs)),
        Ok(_) | Err(_) => Err("a number of seconds from 0.01 to 86400 is needed".to_owned()),
    }
}
