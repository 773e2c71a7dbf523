//! `demihoma bench waits`: what waiting costs while other operations, many of them, are idle.

mod busy;
mod report;

use std::time::{Duration, Instant};

use demihoma::dpdk::{self, Eal, EalParams, RingParams, ring_pair};

use super::progress;
use super::windows::Windows;
use crate::failure::Failure;
use busy::Busy;

/// Operations of one window: less than a millisecond, so that most windows are not disturbed.
const WINDOW_OPERATIONS: u32 = 2_000;

/// Rounds that even the shortest run makes.
const ROUNDS_MIN: usize = 3;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// How long to measure, all rows together, in seconds.
    #[arg(long, value_name = "S", default_value = "4", value_parser = super::seconds)]
    seconds: Duration,
    /// Operations that are idle meanwhile; the first number is what the others are compared with.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,64,1024,16384",
          value_parser = clap::value_parser!(u32).range(1..=65_000))]
    idle: Vec<u32>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// An operation that completes at once, and a wait for it.
    Wait,
    /// The same, waited for by `wait_next_n`.
    WaitNextN,
    /// The same by `wait_any`: all idle tokens are passed, and that one in their midst.
    WaitAny,
    /// A look, without any time to wait, for one of the idle operations.
    Poll,
    /// The same for all of them.
    PollAny,
    /// An RPC with ourselves: the idle pops take turns to get the requests, and all their tokens
    /// are passed each time. Two waits.
    Rpc,
}

const CALLS: [Call; 6] = [
    Call::Wait,
    Call::WaitNextN,
    Call::WaitAny,
    Call::Poll,
    Call::PollAny,
    Call::Rpc,
];

/// One cell of the table as it grows.
struct Cell {
    call: Call,
    /// Of the hosts.
    host: usize,
    cycles: Windows,
    nanos: Windows,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let eal = Eal::start(&EalParams::default())?;
    let mut hosts = Vec::new();
    for &idle in &arguments.idle {
        // The other end is nobody's: what is sent there is dropped once the ring is full.
        let (port, other) = ring_pair(&eal, &RingParams::default())?;
        hosts.push((Busy::new(port, idle)?, other));
    }
    let mut cells = Vec::new();
    for call in CALLS {
        cells.extend((0..hosts.len()).map(|host| Cell {
            call,
            host,
            cycles: Windows::default(),
            nanos: Windows::default(),
        }));
    }
    let mut window = |cell: &mut Cell| -> Result<(), Failure> {
        // Whoever waits for this core takes it now rather than within the window.
        std::thread::yield_now();
        let (start, ticks) = (Instant::now(), dpdk::ticks());
        hosts[cell.host].0.run(cell.call, WINDOW_OPERATIONS)?;
        let passed = dpdk::ticks() - ticks;
        let operations = f64::from(WINDOW_OPERATIONS);
        cell.cycles.add(passed as f64 / operations);
        cell.nanos
            .add(start.elapsed().as_nanos() as f64 / operations);
        Ok(())
    };
    measure(&mut cells, arguments.seconds, &mut window)?;
    report::print(&cells, &arguments.idle, arguments.json);
    Ok(())
}

/// Round after round of one window of each cell, so that all see the same disturbances.
fn measure(
    cells: &mut [Cell],
    takes: Duration,
    window: &mut impl FnMut(&mut Cell) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let bar = progress(takes.as_millis() as u64, takes);
    bar.set_message("bench waits");
    for cell in &mut *cells {
        window(cell)?;
        // The first round warms up.
        (cell.cycles, cell.nanos) = (Windows::default(), Windows::default());
    }
    let (start, mut rounds) = (Instant::now(), 0);
    while rounds < ROUNDS_MIN || start.elapsed() < takes {
        for cell in &mut *cells {
            window(cell)?;
        }
        rounds += 1;
        bar.set_position(start.elapsed().as_millis() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}
