//! `demihoma sim record`: captures of our own frames.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use demihoma::sim::Tapped;
use demihoma::sim::record::{SCENARIOS, Scenario, record};
use demihoma::trace::pcap;
use serde_json::{Value, json};

use crate::failure::Failure;

/// Stands for all scenarios.
const ALL: &str = "all";

/// Frames are kept whole.
const FRAME_MAX: u32 = u32::MAX;

/// Which scenarios, and where to.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scenario to record.
    #[arg(long, default_value = ALL, value_parser = PossibleValuesParser::new(names()))]
    scenario: String,
    /// The directory to write to; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of RPC ids and ports: the same one gives the same files.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// A capture that was written.
struct Row {
    scenario: Scenario,
    frames: usize,
    lost: usize,
    bytes: usize,
}

fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(ALL).chain(SCENARIOS.iter().map(|scenario| scenario.name))
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let out = &arguments.out;
    fs::create_dir_all(out).map_err(|error| cannot_write(out, &error))?;
    let is_wanted =
        |scenario: &&Scenario| [ALL, scenario.name].contains(&arguments.scenario.as_str());
    let rows: Result<Vec<Row>, Failure> = SCENARIOS
        .iter()
        .filter(is_wanted)
        .map(|&scenario| write_scenario(out, scenario, arguments.seed))
        .collect();
    let rows = rows?;
    match arguments.json {
        true => println!(
            "{}",
            json!({ "rows": rows.iter().map(to_json).collect::<Vec<_>>() })
        ),
        false => print_table(&rows),
    }
    Ok(())
}

fn write_scenario(out: &Path, scenario: Scenario, seed: u64) -> Result<Row, Failure> {
    let recording = record(scenario, seed);
    let frames = &recording.frames;
    write_capture(&out.join(format!("{}.pcap", scenario.name)), frames.iter())?;
    let lost = frames.iter().filter(|tapped| tapped.is_lost);
    let lost_count = lost.clone().count();
    if lost_count > 0 {
        let name = format!("{}.dropped.pcap", scenario.name);
        write_capture(&out.join(name), lost)?;
    }
    Ok(Row {
        scenario,
        frames: frames.len(),
        lost: lost_count,
        bytes: frames.iter().map(|tapped| tapped.frame.len()).sum(),
    })
}

fn write_capture<'a>(path: &Path, frames: impl Iterator<Item = &'a Tapped>) -> Result<(), Failure> {
    let write = || {
        let mut writer = pcap::Writer::new(BufWriter::new(File::create(path)?), FRAME_MAX)?;
        for tapped in frames {
            writer.write(tapped.at, &tapped.frame)?;
        }
        writer.into_inner().flush()
    };
    write().map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!(
        "cannot write {}: {error}; name a directory with --out where you may write",
        path.display()
    ))
}

fn to_json(row: &Row) -> Value {
    json!({
        "scenario": row.scenario.name,
        "about": row.scenario.about,
        "file": format!("{}.pcap", row.scenario.name),
        "frames": row.frames,
        "dropped": row.lost,
        "bytes": row.bytes,
    })
}

fn print_table(rows: &[Row]) {
    println!(
        "{:<34} {:>7} {:>8} {:>10}  what happens",
        "file", "frames", "dropped", "bytes"
    );
    for row in rows {
        println!(
            "{:<34} {:>7} {:>8} {:>10}  {}",
            format!("{}.pcap", row.scenario.name),
            row.frames,
            row.lost,
            row.bytes,
            row.scenario.about
        );
    }
}
