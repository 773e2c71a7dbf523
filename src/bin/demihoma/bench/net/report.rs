//! The table of `bench net`, for people and for programs.

use demihoma::dpdk::floor;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::Way;
use super::client::WARMUP_TRIPS;
use crate::bench::windows::Windows;
use crate::failure::Failure;

/// What the round trips of one way took.
pub struct Trips {
    all: Histogram<u64>,
    p50: Windows,
    p99: Windows,
}

pub struct Report<'a> {
    pub request_bytes: u32,
    pub floor: &'a Trips,
    pub tokens: &'a Trips,
    pub pings_lost: u64,
    /// Whether each process had a core of its own.
    pub has_two_cores: bool,
}

struct Row<'a> {
    way: Way,
    bytes: u32,
    trips: &'a Trips,
    /// Of p50 and p99, to the floor's of the window before: medians. None for the floor itself.
    ratios: Option<[f64; 2]>,
}

impl Report<'_> {
    pub fn print(&self, as_json: bool) {
        let ratios = [
            self.tokens.p50.over(&self.floor.p50).median(),
            self.tokens.p99.over(&self.floor.p99).median(),
        ];
        let rows = [
            Row {
                way: Way::Floor,
                bytes: floor::PING_LEN as u32,
                trips: self.floor,
                ratios: None,
            },
            Row {
                way: Way::Tokens,
                bytes: self.request_bytes,
                trips: self.tokens,
                ratios: Some(ratios),
            },
        ];
        if as_json {
            let whole = json!({
                "bench": "net",
                "backend": "af_packet",
                "cores": if self.has_two_cores { 2 } else { 1 },
                "pings_lost": self.pings_lost,
                "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            });
            println!("{whole:#}");
            return;
        }
        println!(
            "{:<8} {:>8} {:>12} {:>9} {:>9} {:>11} {:>11}",
            "path", "bytes", "round trips", "p50 us", "p99 us", "p50 x floor", "p99 x floor"
        );
        rows.iter().for_each(Row::print);
        if !self.has_two_cores {
            println!("Both processes shared one core: this is no measure of a network.");
        }
    }
}

impl Row<'_> {
    fn print(&self) {
        let [ratio50, ratio99] = match self.ratios {
            Some(ratios) => ratios.map(|ratio| format!("{ratio:.2}")),
            None => ["-"; 2].map(str::to_owned),
        };
        println!(
            "{:<8} {:>8} {:>12} {:>9.1} {:>9.1} {:>11} {:>11}",
            self.way.word(),
            self.bytes,
            self.trips.all.len(),
            self.trips.micros_at(0.5),
            self.trips.micros_at(0.99),
            ratio50,
            ratio99
        );
    }

    fn to_json(&self) -> Value {
        json!({
            "path": self.way.word(),
            "bytes": self.bytes,
            "round_trips": self.trips.all.len(),
            "windows": self.trips.p50.count(),
            "p50_us": self.trips.micros_at(0.5),
            "p99_us": self.trips.micros_at(0.99),
            "p50_ratio_to_floor": self.ratios.map(|ratios| ratios[0]),
            "p99_ratio_to_floor": self.ratios.map(|ratios| ratios[1]),
        })
    }
}

impl Trips {
    pub fn new() -> Result<Self, Failure> {
        // Three digits are right; up to a minute.
        let all = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| Failure(error.to_string()))?;
        Ok(Self {
            all,
            p50: Windows::default(),
            p99: Windows::default(),
        })
    }

    /// One window: more than [`WARMUP_TRIPS`] round trips, in their order.
    pub fn add(&mut self, mut nanos: Vec<u64>) {
        nanos.drain(..WARMUP_TRIPS as usize);
        for &trip in &nanos {
            self.all.saturating_record(trip);
        }
        nanos.sort_unstable();
        let at = |per_mille: usize| nanos[(nanos.len() - 1) * per_mille / 1000] as f64;
        self.p50.add(at(500));
        self.p99.add(at(990));
    }

    /// Of all windows together.
    fn micros_at(&self, quantile: f64) -> f64 {
        self.all.value_at_quantile(quantile) as f64 / 1e3
    }
}
