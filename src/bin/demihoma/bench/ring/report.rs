//! The table of `bench ring`, for people and for programs.

use serde_json::{Value, json};

use super::{Path, Row};

/// All figures of a row are medians over its windows, but for `cycles_best`.
struct Figures {
    cycles: f64,
    cycles_best: f64,
    mega_rpcs_per_sec: f64,
    /// None for the floor itself and where none is beside.
    ratio: Option<f64>,
    packets: f64,
    /// Of the requests' bytes; none for small ones.
    gbps: Option<f64>,
}

pub fn print(rows: &[Row], as_json: bool) {
    if as_json {
        let list: Vec<Value> = rows.iter().map(|row| to_json(row, rows)).collect();
        println!("{:#}", json!({ "bench": "ring", "rows": list }));
        return;
    }
    println!(
        "{:<8} {:>9} {:>11} {:>10} {:>9} {:>8} {:>8} {:>11} {:>7}",
        "path",
        "bytes",
        "outstanding",
        "cycles/RPC",
        "best",
        "M RPC/s",
        "x floor",
        "packets/RPC",
        "Gbps"
    );
    for row in rows {
        let figures = Figures::of(row, rows);
        let optional = |value: Option<f64>, places| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
        };
        println!(
            "{:<8} {:>9} {:>11} {:>10.0} {:>9.0} {:>8.3} {:>8} {:>11.2} {:>7}",
            name(row),
            row.load.request_bytes,
            row.load.outstanding,
            figures.cycles,
            figures.cycles_best,
            figures.mega_rpcs_per_sec,
            optional(figures.ratio, 2),
            figures.packets,
            optional(figures.gbps, 1),
        );
    }
}

fn to_json(row: &Row, rows: &[Row]) -> Value {
    let figures = Figures::of(row, rows);
    json!({
        "path": name(row),
        "request_bytes": row.load.request_bytes,
        "response_bytes": row.load.response_bytes,
        "outstanding": row.load.outstanding,
        "windows": row.cycles.count(),
        "rpcs_per_window": row.load.rpcs,
        "cycles_per_rpc": figures.cycles,
        "cycles_per_rpc_best": figures.cycles_best,
        "rpcs_per_sec": figures.mega_rpcs_per_sec * 1e6,
        "ratio_to_floor": figures.ratio,
        "packets_per_rpc": figures.packets,
        "gbps": figures.gbps,
    })
}

impl Figures {
    fn of(row: &Row, rows: &[Row]) -> Self {
        let rpcs_per_sec = row.rpcs_per_sec.median();
        let bits = f64::from(row.load.request_bytes) * 8.0;
        Self {
            cycles: row.cycles.median(),
            cycles_best: row.cycles.least(),
            mega_rpcs_per_sec: rpcs_per_sec / 1e6,
            ratio: row
                .floor
                .map(|floor| row.cycles.over(&rows[floor].cycles).median()),
            packets: row.packets.median(),
            gbps: row.is_large.then_some(rpcs_per_sec * bits / 1e9),
        }
    }
}

const fn name(row: &Row) -> &'static str {
    match row.path {
        None => "floor",
        Some(Path::Handler) => "handler",
        Some(Path::Tokens) => "tokens",
    }
}
