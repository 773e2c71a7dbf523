//! The table of `bench waits`, for people and for programs.

use serde_json::{Value, json};

use super::{CALLS, Call, Cell};

pub fn print(cells: &[Cell], idle: &[u32], as_json: bool) {
    if as_json {
        let rows: Vec<Value> = cells
            .iter()
            .map(|cell| to_json(cell, cells, idle))
            .collect();
        println!("{:#}", json!({ "bench": "waits", "rows": rows }));
        return;
    }
    print!("{:<22}", "cycles, idle:");
    idle.iter().for_each(|idle| print!("{idle:>10}"));
    println!("{:>10}{:>10}", "most", "least ns");
    for call in CALLS {
        print!("{:<22}", name(call));
        let of_call = || cells.iter().filter(|cell| cell.call == call);
        of_call().for_each(|cell| print!("{:>10.0}", cell.cycles.median()));
        let most = of_call().map(|cell| ratio(cell, cells)).fold(1.0, f64::max);
        let least = of_call()
            .map(|cell| cell.nanos.median())
            .fold(f64::INFINITY, f64::min);
        println!("{:>10}{least:>10.0}", format!("x {most:.2}"));
    }
}

fn to_json(cell: &Cell, cells: &[Cell], idle: &[u32]) -> Value {
    json!({
        "call": name(cell.call),
        "idle": idle[cell.host],
        "windows": cell.cycles.count(),
        "cycles": cell.cycles.median(),
        "cycles_best": cell.cycles.least(),
        "ns": cell.nanos.median(),
        "ratio_to_first": ratio(cell, cells),
    })
}

/// To the same call with the first number of idle operations: the median over the rounds.
fn ratio(cell: &Cell, cells: &[Cell]) -> f64 {
    let first = cells.iter().find(|first| first.call == cell.call);
    first.map_or(f64::NAN, |first| cell.cycles.over(&first.cycles).median())
}

const fn name(call: Call) -> &'static str {
    match call {
        Call::Wait => "wait",
        Call::WaitNextN => "wait_next_n",
        Call::WaitAny => "wait_any of all",
        Call::Poll => "wait, no time",
        Call::PollAny => "wait_any, no time",
        Call::Rpc => "rpc, wait_any of all",
    }
}
