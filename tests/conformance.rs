//! The tables in CONFORMANCE.md, FIELD.md and SESSIONS.md: whole, and true as far as a reader of
//! the sources can tell.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Rules in each group. Gaps in the numbers of RP are the list's own.
const GROUPS: [(&str, &[std::ops::RangeInclusive<u32>]); 11] = [
    ("IN", &[1..=65]),
    ("GR", &[1..=33]),
    ("RP", &[1..=11, 16..=22, 30..=41, 50..=51]),
    ("TM", &[1..=10]),
    ("PL", &[1..=21]),
    ("OUT", &[1..=19]),
    ("PE", &[1..=9]),
    ("SK", &[1..=4]),
    ("AP", &[1..=9]),
    ("PA", &[1..=1]),
    ("DK", &[1..=10]),
];

/// The cases of FIELD.md.
#[rustfmt::skip]
const CASES: [u32; 76] = [
    1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 14, 15,
    16, 17, 18, 19, 21, 22, 23, 24, 25, 26, 30, 31,
    33, 34, 35, 36, 37, 38, 39, 40, 42, 50, 52, 53,
    54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 70, 71,
    73, 74, 75, 76, 77, 80, 81, 82, 83, 84, 85, 86,
    88, 89, 90, 91, 92, 94, 95, 96, 98, 99, 100, 101,
    102, 103, 106, 108,
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Rule and what holds it, row by row.
fn rows(table: &str) -> Vec<(String, String)> {
    let cells = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let (rule, _, held) = (cells.next()?, cells.next()?, cells.next()?);
        assert_eq!(cells.next(), None, "{line}");
        Some((rule.to_owned(), held.to_owned()))
    });
    cells
        .filter(|(rule, _)| !["rule", "case", "story"].contains(&rule.as_str()))
        .collect()
}

/// Whether the source has a test of that name.
fn has_test(source: &str, name: &str) -> bool {
    let declaration = format!("fn {name}()");
    source.split("#[test]").skip(1).any(|item| {
        let head = item.split('{').next().unwrap_or_default();
        head.contains(&declaration)
    })
}

#[test]
fn the_table_has_each_rule_once_and_in_order() {
    let expected: Vec<String> = GROUPS
        .iter()
        .flat_map(|(group, ranges)| {
            let numbers = ranges.iter().cloned().flatten();
            numbers.map(move |number| format!("{group}-{number:02}"))
        })
        .collect();
    let rows = rows(&read("tests/CONFORMANCE.md"));
    let found: Vec<&String> = rows.iter().map(|(rule, _)| rule).collect();
    assert_eq!(expected.len(), 213);
    assert_eq!(found, expected.iter().collect::<Vec<_>>());
}

#[test]
fn the_field_has_each_case_once_and_in_order() {
    let expected = CASES.map(|case| format!("C{case:03}"));
    let rows = rows(&read("tests/FIELD.md"));
    let found: Vec<String> = rows.into_iter().map(|(case, _)| case).collect();
    assert_eq!(found, expected);
}

#[test]
fn sessions_have_each_story_once_and_in_order() {
    let expected: Vec<String> = (1..=36).chain(40..=54).map(|n| format!("{n:02}")).collect();
    let rows = rows(&read("tests/SESSIONS.md"));
    let found: Vec<String> = rows.into_iter().map(|(story, _)| story).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_test_that_a_table_names_exists() {
    let mut sources: HashMap<String, String> = HashMap::new();
    let mut missing = Vec::new();
    let tables = [
        "tests/CONFORMANCE.md",
        "tests/FIELD.md",
        "tests/SESSIONS.md",
    ];
    for (rule, held) in tables.iter().flat_map(|table| rows(&read(table))) {
        for test in held.split('`').skip(1).step_by(2) {
            let (path, name) = test.split_once("::").expect("a path and a name");
            let source = sources.entry(path.to_owned()).or_insert_with(|| read(path));
            if !has_test(source, name) {
                missing.push(format!("{rule}: {test}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
}

/// A test, or a reason that is more than a word; what is open is counted.
#[test]
fn each_rule_has_a_test_or_a_reason_or_is_counted_as_open() {
    check_held("tests/CONFORMANCE.md");
    check_held("tests/FIELD.md");
    check_held("tests/SESSIONS.md");
}

fn check_held(path: &str) {
    let (table, mut open) = (read(path), 0);
    let rows = rows(&table);
    for (rule, held) in &rows {
        let has_test = held.contains('`');
        let is_reason = held.starts_with("n.a. ") && held.len() > "n.a. one thread".len() - 1;
        let is_open = held.starts_with("open");
        assert!(has_test || is_reason || is_open, "{rule}: {held}");
        assert!(!held.starts_with("adapted") || has_test, "{rule}: {held}");
        open += usize::from(is_open);
    }
    assert!(
        table.contains(&format!("Open: {open} of {}.", rows.len())),
        "{open} are open in {path}"
    );
}

#[test]
fn a_name_in_a_comment_or_without_the_attribute_is_no_test() {
    let source =
        "#[test]\nfn one() {}\nfn two() {}\n// fn three()\n/// Four.\n#[test]\nfn four() {}";
    let found = ["one", "two", "three", "four"].map(|name| has_test(source, name));
    assert_eq!(found, [true, false, false, true]);
}
