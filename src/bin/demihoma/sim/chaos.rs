//! `demihoma sim chaos`: runs of the chaos simulator, one seed after the other, on all cores.

use std::io::IsTerminal;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use demihoma::sim::chaos::{self, Faults, Report, Shape};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::failure::Failure;

/// Shorter waits need no bar.
const BAR_FROM: Duration = Duration::from_secs(2);

/// Prints what was found before the process ends, whichever thread found it.
static FOUND: Mutex<()> = Mutex::new(());

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The first seed; all that happens follows from it.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds to run, each once; 0: without end.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// Hosts of each world, instead of what the seed says.
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u8).range(2..=100))]
    hosts: Option<u8>,
    /// RPCs that each host starts, instead of what the seed says.
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rpcs: Option<u64>,
    /// What goes wrong, instead of what the seed says: of loss, duplicate, reorder, delay, corrupt,
    /// partition, one-way, flap, restart, freeze, pool, slow, abort, nested; or none, or all.
    #[arg(long, value_name = "LIST")]
    faults: Option<Faults>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn shape(&self, seed: u64) -> Shape {
        let drawn = Shape::draw(seed);
        Shape {
            hosts: self.hosts.unwrap_or(drawn.hosts),
            rpcs: self.rpcs.unwrap_or(drawn.rpcs),
            faults: self.faults.unwrap_or(drawn.faults),
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let is_json = arguments.json;
    // A check that fails panics, and then there is nothing to go on with.
    panic::set_hook(Box::new(move |info| give_up(info, is_json)));
    let end = match arguments.seeds {
        0 => u64::MAX,
        seeds => arguments.seed.saturating_add(seeds),
    };
    let progress = Progress::new(arguments.seeds, is_json);
    let next = AtomicU64::new(arguments.seed);
    let work = || {
        let mut sum = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return Ok(sum);
            }
            sum += chaos::run(seed, arguments.shape(seed))?;
            progress.step();
        }
    };
    let report = run_on_all_cores(arguments.seeds, work);
    progress.bar.finish_and_clear();
    match report {
        Ok(report) => print(arguments, &report),
        Err(failure) => tell(&failure, is_json),
    }
    Ok(())
}

/// How many seeds are done, for people at a terminal.
struct Progress {
    bar: ProgressBar,
    began: Instant,
    is_wanted: bool,
    is_shown: AtomicBool,
}

impl Progress {
    fn new(seeds: u64, is_json: bool) -> Self {
        let (bar, form) = match seeds {
            0 => (ProgressBar::no_length(), "{pos} seeds in {elapsed}"),
            seeds => (
                ProgressBar::new(seeds),
                "{pos} of {len} seeds {wide_bar} {eta}",
            ),
        };
        let style = ProgressStyle::with_template(form);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            began: Instant::now(),
            is_wanted: !is_json && std::io::stderr().is_terminal(),
            is_shown: AtomicBool::new(false),
        }
    }

    /// One seed more is done.
    fn step(&self) {
        let is_due = self.is_wanted && self.began.elapsed() > BAR_FROM;
        if is_due && !self.is_shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }
}

/// Sums up what as many threads do as there are cores, and seeds for them.
fn run_on_all_cores(
    seeds: u64,
    work: impl Fn() -> Result<Report, Box<chaos::Failure>> + Sync,
) -> Result<Report, Box<chaos::Failure>> {
    let cores = thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = if seeds == 0 { cores } else { cores.min(seeds) };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let mut sum = Report::default();
        for worker in workers {
            sum += worker
                .join()
                .expect("the hook ends the process on a panic")?;
        }
        Ok(sum)
    })
}

/// Tells what a check found, and ends the process.
fn give_up(info: &PanicHookInfo<'_>, is_json: bool) {
    match chaos::failure(&info.to_string()) {
        Some(failure) => tell(&failure, is_json),
        None => eprintln!("demihoma: {info}"),
    }
    process::exit(1);
}

/// Tells what was found, and ends the process.
fn tell(failure: &chaos::Failure, is_json: bool) -> ! {
    let _one_at_a_time = FOUND.lock();
    if is_json {
        let log: Vec<_> = failure.log.lines().collect();
        let found = json!({
            "seed": failure.seed,
            "failure": failure.what,
            "again": failure.command(),
            "log": log,
        });
        println!("{found:#}");
    } else {
        eprintln!("{failure}");
    }
    process::exit(1);
}

fn print(arguments: &Arguments, report: &Report) {
    let virtual_secs = report.virtual_time.as_millis() as f64 / 1000.0;
    if arguments.json {
        let sum = json!({
            "seed": arguments.seed,
            "seeds": arguments.seeds,
            "rpcs": report.started,
            "responses": report.responses,
            "failures": report.failures,
            "forgotten": report.forgotten,
            "handler_runs": report.runs,
            "restarts": report.restarts,
            "frames": report.frames,
            "virtual_seconds": virtual_secs,
        });
        println!("{sum:#}");
        return;
    }
    println!(
        "{} seeds from {} on, and every promise was kept",
        arguments.seeds, arguments.seed
    );
    println!("{:>12} RPCs", report.started);
    println!("{:>12} ended with a response", report.responses);
    println!("{:>12} failed for a reason", report.failures);
    println!("{:>12} were forgotten by their clients", report.forgotten);
    println!("{:>12} handlers ran", report.runs);
    println!("{:>12} hosts restarted", report.restarts);
    println!("{:>12} frames crossed", report.frames);
    println!("{virtual_secs:>12.1} s of virtual time");
}
