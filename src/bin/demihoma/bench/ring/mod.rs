//! `demihoma bench ring`: RPCs between two ports joined by rings in memory, in one thread, beside
//! the least that DPDK needs for a request and a reply.

mod handlers;
mod report;
mod tokens;

use std::time::{Duration, Instant};

use demihoma::addr::{Addr, Ip};
use demihoma::device::RX_BURST;
use demihoma::dpdk::{self, Eal, EalParams, Port, RingParams, floor, ring_pair};
use demihoma::mem::Region;
use demihoma::{homa, net};

use super::progress;
use super::windows::Windows;
use crate::failure::Failure;
use handlers::Handlers;
use tokens::Tokens;

/// The settings' own default, see config/default.toml, `memory.receive_bytes`.
const RECEIVE_BYTES: usize = 64 << 20;

/// RPCs of one window: about a millisecond, less than a thread's time on a busy core, so that most
/// windows are not disturbed.
const SMALL_RPCS: u32 = 2_000;

/// Bytes of requests of one window with large ones: as short.
const LARGE_BYTES: u32 = 8_000_000;

/// Rounds that even the shortest run makes.
const ROUNDS_MIN: usize = 3;

const SERVER_PORT: u16 = 7000;

/// The application reads messages up to this length whole, of longer ones only the beginning.
const READ_MAX: usize = 64;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// How long to measure, all rows together, in seconds.
    #[arg(long, value_name = "S", default_value = "5", value_parser = super::seconds)]
    seconds: Duration,
    /// Bytes of small requests, and of all responses.
    #[arg(long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
    /// RPCs under way at once, and the batch of the floor beside them (at most 32).
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,8,32",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: Vec<u32>,
    /// Bytes of large requests.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', default_value = "100000,1000000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    large: Vec<u32>,
    /// Large RPCs under way at once.
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    large_outstanding: Vec<u32>,
    /// Measures these ways to use the library only.
    #[arg(
        long,
        value_name = "PATH,..",
        value_delimiter = ',',
        default_value = "handler,tokens"
    )]
    path: Vec<Path>,
    /// Leaves out the large requests.
    #[arg(long)]
    small_only: bool,
    /// Largest IP packet on the rings, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u16).range(576..=9000))]
    mtu: u16,
}

/// A way to use the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Path {
    /// Requests are sent and answered within the turn that brought the packet before.
    Handler,
    /// Call, pop, reply and wait.
    Tokens,
}

/// What one window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    request_bytes: u32,
    response_bytes: u32,
    outstanding: u32,
    rpcs: u32,
}

/// One row of the table as it grows.
struct Row {
    /// None: the floor.
    path: Option<Path>,
    load: Load,
    is_large: bool,
    /// Of the rows: the floor with this one's batch.
    floor: Option<usize>,
    cycles: Windows,
    rpcs_per_sec: Windows,
    packets: Windows,
}

/// A client and a server.
trait Pair {
    /// Makes all RPCs of `load`; none is under way before or afterwards.
    fn run(&mut self, load: &Load) -> Result<(), Failure>;

    /// Packets that both sent so far, of all kinds.
    fn packets(&self) -> u64;
}

struct Bench {
    floor: (Port, Port),
    pairs: Vec<(Path, Box<dyn Pair>)>,
    rows: Vec<Row>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let eal = Eal::start(&EalParams::default())?;
    let mut bench = Bench::new(&eal, arguments)?;
    bench.measure(arguments.seconds)?;
    report::print(&bench.rows, arguments.json);
    Ok(())
}

impl Bench {
    fn new(eal: &Eal, arguments: &Arguments) -> Result<Self, Failure> {
        let rings = RingParams {
            mtu: arguments.mtu,
            ..RingParams::default()
        };
        let mut pairs: Vec<(Path, Box<dyn Pair>)> = Vec::new();
        for path in [Path::Handler, Path::Tokens] {
            if arguments.path.contains(&path) {
                let (near, far) = ring_pair(eal, &rings)?;
                pairs.push(match path {
                    Path::Handler => (path, Box::new(Handlers::new(near, far)?)),
                    Path::Tokens => (path, Box::new(Tokens::new(near, far)?)),
                });
            }
        }
        let paths: Vec<_> = pairs.iter().map(|&(path, _)| path).collect();
        Ok(Self {
            floor: ring_pair(eal, &rings)?,
            pairs,
            rows: arguments.rows(&paths),
        })
    }

    /// Round after round of one window of each row, so that ours and the floor see the same
    /// disturbances.
    fn measure(&mut self, takes: Duration) -> Result<(), Failure> {
        let bar = progress(takes.as_millis() as u64, takes);
        bar.set_message("bench ring");
        for index in 0..self.rows.len() {
            self.window(index)?;
        }
        for row in &mut self.rows {
            row.forget(); // The first round warms up.
        }
        let (start, mut rounds) = (Instant::now(), 0);
        while rounds < ROUNDS_MIN || start.elapsed() < takes {
            for index in 0..self.rows.len() {
                self.window(index)?;
            }
            rounds += 1;
            bar.set_position(start.elapsed().as_millis() as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn window(&mut self, index: usize) -> Result<(), Failure> {
        // Whoever waits for this core takes it now rather than within the window.
        std::thread::yield_now();
        let row = &mut self.rows[index];
        let (load, rpcs) = (row.load, f64::from(row.load.rpcs));
        let Some(path) = row.path else {
            let (near, far) = &mut self.floor;
            let start = Instant::now();
            let batch = load.outstanding;
            let cycles = floor::two_packets(near, far, batch as usize, load.rpcs / batch);
            row.cycles.add(cycles);
            row.rpcs_per_sec.add(rpcs / start.elapsed().as_secs_f64());
            row.packets.add(2.0);
            return Ok(());
        };
        let (_, pair) = self
            .pairs
            .iter_mut()
            .find(|(of, _)| *of == path)
            .expect("a row's pair was made before the row");
        let packets = pair.packets();
        let (start, ticks) = (Instant::now(), dpdk::ticks());
        pair.run(&load)?;
        let passed = dpdk::ticks() - ticks;
        row.rpcs_per_sec.add(rpcs / start.elapsed().as_secs_f64());
        row.cycles.add(passed as f64 / rpcs);
        row.packets.add((pair.packets() - packets) as f64 / rpcs);
        Ok(())
    }
}

impl Arguments {
    fn rows(&self, paths: &[Path]) -> Vec<Row> {
        let mut rows = Vec::new();
        for &outstanding in &self.outstanding {
            let load = Load {
                request_bytes: self.size,
                response_bytes: self.size,
                outstanding,
                rpcs: SMALL_RPCS,
            };
            let batch = outstanding.min(RX_BURST as u32);
            let floor = rows.len();
            rows.push(Row::new(
                None,
                Load {
                    outstanding: batch,
                    ..load
                },
            ));
            rows.extend(paths.iter().map(|&path| Row {
                floor: Some(floor),
                ..Row::new(Some(path), load)
            }));
        }
        let large: &[u32] = if self.small_only { &[] } else { &self.large };
        for &request_bytes in large {
            for &outstanding in &self.large_outstanding {
                let load = Load {
                    request_bytes,
                    response_bytes: self.size,
                    outstanding,
                    rpcs: (LARGE_BYTES / request_bytes).clamp(1, SMALL_RPCS),
                };
                rows.extend(paths.iter().map(|&path| Row {
                    is_large: true,
                    ..Row::new(Some(path), load)
                }));
            }
        }
        rows
    }
}

impl Row {
    fn new(path: Option<Path>, load: Load) -> Self {
        Self {
            path,
            load,
            is_large: false,
            floor: None,
            cycles: Windows::default(),
            rpcs_per_sec: Windows::default(),
            packets: Windows::default(),
        }
    }

    fn forget(&mut self) {
        self.cycles = Windows::default();
        self.rpcs_per_sec = Windows::default();
        self.packets = Windows::default();
    }
}

/// The address of one end, 1 or 2.
const fn ip(end: u8) -> Ip {
    Ip::v4(10, 0, 0, end)
}

const fn server() -> Addr {
    Addr::new(ip(2), SERVER_PORT)
}

fn net_params(end: u8) -> net::Params {
    net::Params {
        addresses: vec![net::Interface {
            ip: ip(end),
            prefix: 24,
        }],
        seed: end.into(),
        ..net::Params::default()
    }
}

/// The defaults, on a link that never is what one waits for.
fn homa_params(end: u8) -> homa::Params {
    homa::Params {
        seed: end.into(),
        ..homa::Params::default()
    }
}

fn region() -> Result<Region, Failure> {
    Region::owned(RECEIVE_BYTES).map_err(|_| Failure("no memory for received messages".to_owned()))
}

/// What the application says: as many bytes as asked for, different from place to place.
fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}
