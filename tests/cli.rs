//! The program `demihoma`, as a user starts it.
#![cfg(all(feature = "cli", feature = "dpdk"))]

use std::process::{Command, Output};

use serde_json::Value;

fn demihoma(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_demihoma"))
        .args(words.split_whitespace())
        .output()
        .expect("the program was built with this test")
}

/// The rows of a JSON report.
fn rows(words: &str) -> Vec<Value> {
    let output = demihoma(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON, and nothing else");
    report["rows"].as_array().expect("rows").clone()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {key} in {row}"))
}

#[test]
fn bench_ring_tells_of_the_floor_and_of_both_paths() {
    let rows = rows("bench ring --json --seconds 0.01 --outstanding 1,8 --large 100000");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            let path = row["path"].as_str().expect("a path");
            (
                path,
                row["request_bytes"].as_u64().expect("bytes"),
                row["outstanding"].as_u64(),
            )
        })
        .collect();
    let mut expected = Vec::new();
    for outstanding in [1, 8] {
        expected.extend(["floor", "handler", "tokens"].map(|path| (path, 64, Some(outstanding))));
    }
    for outstanding in [1, 4] {
        expected.extend(["handler", "tokens"].map(|path| (path, 100_000, Some(outstanding))));
    }
    assert_eq!(seen, expected);
    for row in &rows {
        assert!(number(row, "cycles_per_rpc") > 0.0 && number(row, "rpcs_per_sec") > 0.0);
        // A request and its response at least; acks and grants come on top.
        assert!(number(row, "packets_per_rpc") >= 2.0, "{row}");
        let is_small = row["request_bytes"] == 64;
        assert_eq!(row["gbps"].is_null(), is_small);
        assert_eq!(
            row["ratio_to_floor"].is_f64(),
            is_small && row["path"] != "floor"
        );
    }
}

#[test]
fn bench_net_stands_beside_a_bare_ping_pong() {
    let rows = rows("bench net --json --seconds 0.01");
    assert_eq!(rows.len(), 2);
    for (row, path) in rows.iter().zip(["floor", "tokens"]) {
        assert_eq!(row["path"], path);
        assert!(number(row, "round_trips") > 0.0);
        assert!(number(row, "p99_us") >= number(row, "p50_us"));
    }
    assert!(number(&rows[1], "p50_ratio_to_floor") > 0.0);
}

#[test]
fn bench_waits_tells_of_each_call_and_number_of_idle_operations() {
    let rows = rows("bench waits --json --seconds 0.01 --idle 1,65,3000");
    assert_eq!(rows.len(), 6 * 3);
    for (row, idle) in rows.iter().zip([1.0, 65.0, 3000.0].iter().cycle()) {
        assert_eq!(number(row, "idle"), *idle);
        assert!(
            number(row, "cycles") > 0.0 && number(row, "ns") > 0.0,
            "{row}"
        );
        assert!(*idle > 1.0 || number(row, "ratio_to_first") == 1.0, "{row}");
    }
}

/// All scenarios' names, and one of them with its captures.
#[test]
fn sim_record_writes_captures_and_tells_of_them() {
    let out = std::env::temp_dir().join(format!("demihoma-record-{}", std::process::id()));
    let words = format!(
        "sim record --json --scenario 38_drop_ack --out {}",
        out.display()
    );
    let rows = rows(&words);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["scenario"], number(&rows[0], "dropped")),
        (&"38_drop_ack".into(), 2.0)
    );
    let mut sizes = Vec::new();
    for (name, count) in [
        ("38_drop_ack.pcap", "frames"),
        ("38_drop_ack.dropped.pcap", "dropped"),
    ] {
        let file = std::fs::read(out.join(name)).expect("the capture was written");
        let mut reader = demihoma::trace::pcap::Reader::new(&file[..]).expect("a capture");
        let mut frames = 0.0;
        while reader.next_record().expect("a whole capture").is_some() {
            frames += 1.0;
        }
        assert_eq!(frames, number(&rows[0], count), "{name}");
        sizes.push(file.len());
    }
    std::fs::remove_dir_all(&out).expect("the directory is ours");
    assert!(sizes[0] > sizes[1]);
    let refused = demihoma("sim record --out /proc/nowhere");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.contains("/proc/nowhere") && text.contains("--out"),
        "{text}"
    );
}

#[test]
fn sim_chaos_sums_up_what_its_seeds_did_and_repeats_it() {
    let words = "sim chaos --seed 3 --seeds 4 --hosts 3 --rpcs 20 --faults loss,restart --json";
    let [first, again] = [(); 2].map(|()| {
        let output = demihoma(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON, and nothing else")
    });
    assert_eq!(first, again);
    // Four worlds of three hosts, each of which starts 20 RPCs at most.
    let rpcs = number(&first, "rpcs");
    assert!(rpcs > 150.0 && rpcs <= 240.0, "{first}");
    assert!(number(&first, "responses") > 0.8 * rpcs && number(&first, "restarts") >= 4.0);
    let ended = number(&first, "responses") + number(&first, "failures");
    assert!(ended <= rpcs && number(&first, "handler_runs") >= number(&first, "responses"));
}

#[test]
fn a_bad_argument_gives_one_line_that_names_it() {
    for (words, named) in [
        ("bench ring --outstanding 0", "--outstanding"),
        ("bench ring --size 2000", "--size"),
        ("bench ring --path sideways", "sideways"),
        ("bench net --seconds never", "--seconds"),
        ("bench waits --idle 0", "--idle"),
        ("bench sea", "sea"),
        ("sim chaos --hosts 1", "--hosts"),
        ("sim chaos --faults loss,rain", "rain"),
        ("sim record --scenario sea --out x", "sea"),
        ("sim record", "--out"),
        ("fly", "fly"),
    ] {
        let output = demihoma(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {text}");
        assert_eq!(text.lines().count(), 1, "{words}: {text}");
        assert!(
            text.contains(named) && text.starts_with("demihoma: "),
            "{words}: {text}"
        );
        assert!(output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn help_names_the_benchmarks_and_hides_what_is_not_for_users() {
    let output = demihoma("bench --help");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("ring") && text.contains("net"),
        "{text}"
    );
    let output = demihoma("bench net --help");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("--role"));
}
