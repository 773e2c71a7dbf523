//! Words that must not stand somewhere, and lengths that must not be passed.

use crate::source::{Finding, Source, is_name};

const LINE_MAX_CHARS: usize = 100;
const FUNCTION_MAX_LINES: usize = 70;
const FILE_MAX_LINES: usize = 700;

/// The rooms without clock, chance, threads and sockets of their own: sans-IO.
const PURE: &[&str] = &["wire", "net", "homa", "session", "channel"];

/// A word, and what to use in its place.
const IMPURE: &[(&str, &str)] = &[
    (
        "std::time",
        "time comes from outside as `crate::time::Instant`",
    ),
    ("std::thread", "the core has no threads"),
    ("UdpSocket", "the core has no sockets"),
    ("TcpStream", "the core has no sockets"),
    ("TcpListener", "the core has no sockets"),
    (
        "rand::",
        "chance comes from `crate::rng`, whose seed comes from outside",
    ),
    (
        "RandomState",
        "its order differs from run to run; use `crate::keyed` with the seed",
    ),
    (
        "HashMap::new",
        "its order differs from run to run; use `crate::keyed` with the seed",
    ),
    (
        "HashMap::with_capacity(",
        "its order differs from run to run; use `crate::keyed`",
    ),
    (
        "HashSet::new",
        "its order differs from run to run; use `crate::keyed` with the seed",
    ),
    (
        "HashSet::with_capacity(",
        "its order differs from run to run; use `crate::keyed`",
    ),
];

/// Only a program prints; a library returns.
const PRINTING: &[&str] = &["println!", "eprintln!", "print!", "eprint!"];

pub fn banned(source: &Source) -> Vec<Finding> {
    let Some(room) = source.room().filter(|_| source.is_rust()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let tests_start = source.tests_start();
    if PURE.contains(&room) {
        for (word, instead) in IMPURE {
            for at in source.words(word) {
                findings.push(source.finding(at, format!("no `{word}` in `{room}`: {instead}")));
            }
        }
    }
    // To C only an errno can be returned, so the C face says the rest on standard error.
    if room != "bin" && room != "capi" {
        for word in PRINTING {
            let found = source.words(word).filter(|&at| at < tests_start);
            let what = format!("no `{word}` outside the program: return it, count it or trace it");
            findings.extend(found.map(|at| source.finding(at, what.clone())));
        }
    }
    findings
}

pub fn unfinished(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let words = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
    let found = words
        .iter()
        .flat_map(|word| source.words(word).map(move |at| (at, word)));
    found
        .map(|(at, word)| {
            source.finding(
                at,
                format!("`{word}` is unfinished work: finish it, or leave it out"),
            )
        })
        .collect()
}

pub fn machine_paths(source: &Source) -> Vec<Finding> {
    // Written in two halves, or this file would be a finding itself.
    let mut words = vec![concat!("/wo", "rk/"), concat!("/tmp", "/wt")];
    if source.path.ends_with(".md") {
        words.push(concat!("/t", "mp/"));
    }
    let found = words
        .iter()
        .flat_map(|word| source.text.match_indices(word));
    found
        .map(|(at, word)| {
            let line = source.text[..at].matches('\n').count() + 1;
            source.finding_at_line(line, format!("`{word}` is a path of one machine only"))
        })
        .collect()
}

pub fn long_lines(source: &Source) -> Vec<Finding> {
    if !source.is_rust() && !source.path.ends_with(".c") {
        return Vec::new();
    }
    let lines = source.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let chars = line.chars().count();
            let what = format!("{chars} characters; break it so that it has {LINE_MAX_CHARS}");
            (chars > LINE_MAX_CHARS).then(|| source.finding_at_line(index + 1, what))
        })
        .collect()
}

pub fn long_files(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if !source.is_rust() || lines <= FILE_MAX_LINES {
        return Vec::new();
    }
    let what = format!("{lines} lines; split it so that each part has {FILE_MAX_LINES} at most");
    vec![source.finding_at_line(1, what)]
}

pub fn long_functions(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for at in source.words("fn") {
        let head = source.code[at + 2..].trim_start();
        let name: String = head
            .bytes()
            .take_while(|&byte| is_name(byte))
            .map(char::from)
            .collect();
        let Some(end) = body_end(&source.code, at).filter(|_| !name.is_empty()) else {
            continue; // A type, or a declaration without a body.
        };
        let lines = source.line_of(end) - source.line_of(at) + 1;
        if lines > FUNCTION_MAX_LINES {
            let what = format!(
                "`{name}` has {lines} lines; take out a step so that it has {FUNCTION_MAX_LINES}"
            );
            findings.push(source.finding(at, what));
        }
    }
    findings
}

/// Where the body of the function that begins at `at` closes.
fn body_end(code: &str, at: usize) -> Option<usize> {
    let (mut round, mut curly) = (0, 0);
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' if round == 0 || curly > 0 => curly += 1,
            b'}' if curly > 0 => {
                curly -= 1;
                if curly == 0 {
                    return Some(offset);
                }
            }
            b';' | b'}' if curly == 0 && round <= 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        rule(&Source::new(path, text))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn a_clock_or_a_thread_in_the_core_is_found() {
        assert_eq!(
            lines(banned, "src/homa/a.rs", "\nuse std::time::Instant;"),
            [2]
        );
        assert_eq!(
            lines(banned, "src/net/a.rs", "let m = HashMap::new();"),
            [1]
        );
        assert_eq!(
            lines(
                banned,
                "src/net/a.rs",
                "HashMap::with_capacity_and_hasher(1, k)"
            ),
            []
        );
        assert_eq!(
            lines(banned, "src/runtime/a.rs", "use std::time::Instant;"),
            []
        );
    }

    #[test]
    fn printing_outside_the_program_is_found() {
        assert_eq!(lines(banned, "src/mem/a.rs", "println!();"), [1]);
        assert_eq!(lines(banned, "src/bin/demihoma/main.rs", "println!();"), []);
        assert_eq!(
            lines(
                banned,
                "src/mem/a.rs",
                "#[cfg(test)]\nmod tests {\nprintln!();\n}"
            ),
            []
        );
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(lines(unfinished, "examples/a.rs", "todo!()"), [1]);
        assert_eq!(
            lines(
                unfinished,
                "tests/a.rs",
                "#[test]\n#[ignore = \"slow\"]\nfn f() {}"
            ),
            [2]
        );
        assert_eq!(
            lines(unfinished, "src/a.rs", "// todo!()\nlet a = \"todo!()\";"),
            []
        );
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let (work, tmp) = (concat!("a\n/wo", "rk/b"), concat!("/t", "mp/b"));
        assert_eq!(lines(machine_paths, "config/a.toml", work), [2]);
        assert_eq!(lines(machine_paths, "README.md", tmp), [1]);
        assert_eq!(lines(machine_paths, "config/a.sh", tmp), []);
    }

    #[test]
    fn a_line_past_the_limit_is_found() {
        let text = format!(
            "{}\n{}",
            "ö".repeat(LINE_MAX_CHARS),
            "a".repeat(LINE_MAX_CHARS + 1)
        );
        assert_eq!(lines(long_lines, "src/a.rs", &text), [2]);
    }

    #[test]
    fn a_file_past_the_limit_is_found() {
        assert_eq!(
            lines(long_files, "src/a.rs", &"\n".repeat(FILE_MAX_LINES + 1)),
            [1]
        );
        assert_eq!(
            lines(long_files, "src/a.rs", &"\n".repeat(FILE_MAX_LINES)),
            []
        );
    }

    #[test]
    fn a_function_past_the_limit_is_found() {
        let with = |lines: usize| format!("\nfn f(a: [u8; 2]) {{{}}}", "\n".repeat(lines - 1));
        assert_eq!(
            lines(long_functions, "src/a.rs", &with(FUNCTION_MAX_LINES)),
            []
        );
        assert_eq!(
            lines(long_functions, "src/a.rs", &with(FUNCTION_MAX_LINES + 1)),
            [2]
        );
        let declared = format!("trait T {{ fn f(); }}\n{}", "\n".repeat(FUNCTION_MAX_LINES));
        assert_eq!(lines(long_functions, "src/a.rs", &declared), []);
    }
}
