//! Who may import whom: the table of ARCHITECTURE.md, section "Who may import whom".

use crate::source::{Finding, Source, is_name};

/// The words all rooms share.
const BASE: &[&str] = &["error", "time", "addr", "rng", "slots", "arena", "keyed"];

/// A room and what it may import besides the base and itself. `a::b` allows that part of `a` only;
/// `a::*Params` only what is named so; `!a::b` takes a part away again.
#[rustfmt::skip]
const TABLE: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("mem", &[]),
    ("trace", &[]),
    ("device", &[]),
    // Of `device` what a frame needs on its way out: the room before a packet, checksums.
    ("net", &["device", "wire", "!wire::homa", "!wire::session", "!wire::channel", "trace"]),
    ("homa", &["wire::homa", "mem", "trace"]),
    ("session", &["homa", "wire::session", "mem", "trace"]),
    ("channel", &["homa", "wire::channel", "mem", "trace"]),
    ("dpdk", &["device", "mem", "trace"]),
    // Of `wire` the ids of RPCs, which `homa`'s face speaks in.
    // Of `capi` names only, under paths that Demikernel's Rust programs import.
    ("runtime", &[
        "device", "net", "homa", "session", "channel", "wire::homa", "mem", "trace", "capi::types",
    ]),
    ("config", &PARAMS),
    // Of `net`, `device` and `dpdk` what it takes to build a poller over any device.
    ("libos", &[
        "runtime", "config", "homa", "session", "channel", "wire::homa", "net", "device", "dpdk",
        "mem", "trace",
    ]),
    ("sim", &[
        "runtime", "device", "net", "homa", "session", "channel", "wire", "mem", "trace",
    ]),
    ("capi", &["libos", "config", "runtime::fail", "runtime::types"]),
    // What lies below `libos` only to measure it: `bench` turns pollers by hand.
    ("bin", &[
        "libos", "sim", "config", "trace", "device", "dpdk", "runtime", "net", "homa", "mem",
    ]),
];

/// What settings are turned into: each room owns its own.
#[rustfmt::skip]
const PARAMS: [&str; 7] = [
    "net::*Params", "homa::*Params", "session::*Params", "channel::*Params", "runtime::*Params",
    "libos::*Params", "dpdk::*Params",
];

/// Macros stand at the root of the crate, wherever they were written.
const MACROS: &[(&str, &str)] = &[("counters", "trace")];

/// The parts of `homa` that must not know each other: only `endpoint` sees them all.
const STAR: &[&str] = &[
    "grant", "outgoing", "pacer", "timer", "peer", "pool", "reap", "control",
];

/// A path of ours: where it begins, and its segments.
type OurPath = (usize, Vec<String>);

pub fn rooms(source: &Source) -> Vec<Finding> {
    let Some(room) = source
        .room()
        .filter(|&room| source.is_rust() && room != "lib")
    else {
        return Vec::new();
    };
    let mut findings = climbs_to_the_root(source);
    // Tests may bring whatever they need; what ships may not.
    let tests_start = source.tests_start();
    for (at, segments) in paths(source, root_of(room)) {
        if at >= tests_start || is_allowed(room, &segments) {
            continue;
        }
        findings.push(source.finding(
            at,
            format!(
                "`{room}` may not import `{}`; pass in what it needs, or change the table in \
                 ARCHITECTURE.md and tests/tidy/imports.rs with a reason",
                segments.join("::")
            ),
        ));
    }
    findings
}

/// The program is a crate of its own and sees the library by name.
fn root_of(room: &str) -> &'static str {
    if room == "bin" { "demihoma" } else { "crate" }
}

fn is_allowed(room: &str, segments: &[String]) -> bool {
    let Some(first) = segments.first().map(String::as_str) else {
        return true;
    };
    if room == "bin" && first.starts_with(char::is_uppercase) {
        return true; // The library's facade.
    }
    let first = MACROS
        .iter()
        .find(|(name, _)| *name == first)
        .map_or(first, |(_, room)| room);
    if BASE.contains(&first) || first == room {
        return true;
    }
    if BASE.contains(&room) {
        return false;
    }
    let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == room) else {
        return false;
    };
    let matches = |rule: &str| match rule.split_once("::") {
        None => rule == first,
        Some((whole, "*Params")) => {
            whole == first && segments.last().is_some_and(|last| last.ends_with("Params"))
        }
        Some((whole, part)) => whole == first && segments.get(1).is_some_and(|one| one == part),
    };
    let denied = allowed
        .iter()
        .filter_map(|rule| rule.strip_prefix('!'))
        .any(matches);
    !denied && allowed.iter().any(|rule| matches(rule))
}

/// `super` must not lead out of the room, past this rule.
fn climbs_to_the_root(source: &Source) -> Vec<Finding> {
    let inner = source
        .path
        .trim_start_matches("src/")
        .trim_end_matches(".rs");
    let depth = inner.split('/').filter(|&part| part != "mod").count();
    let chain = "super::".repeat(depth);
    let out = source
        .words(&chain)
        .filter(|&at| at < source.tests_start() && !source.path.starts_with("src/bin"));
    out.map(|at| source.finding(at, "leaves the room by `super`; write `crate::` instead"))
        .collect()
}

pub fn star_of_homa(source: &Source) -> Vec<Finding> {
    let Some(part) = source.path.strip_prefix("src/homa/") else {
        return Vec::new();
    };
    let part = part
        .split('/')
        .next()
        .unwrap_or(part)
        .trim_end_matches(".rs");
    if !STAR.contains(&part) {
        return Vec::new();
    }
    let by_crate = paths(source, "crate")
        .into_iter()
        .filter_map(|(at, segments)| {
            (segments.first()? == "homa").then(|| (at, segments[1..].to_vec()))
        });
    by_crate
        .chain(paths(source, "super"))
        .filter_map(|(at, segments)| Some((at, segments.first()?.clone(), segments)))
        .filter(|(at, other, segments)| {
            *at < source.tests_start()
                && other != part
                && STAR.contains(&other.as_str())
                && !only_in_keys(source, segments)
        })
        .map(|(at, other, _)| {
            source.finding(
                at,
                format!(
                    "`homa::{part}` may not know `homa::{other}`; let `endpoint` tell it facts"
                ),
            )
        })
        .collect()
}

/// A type that serves only to tell one kind of key from another: `Key<Peer>`.
fn only_in_keys(source: &Source, segments: &[String]) -> bool {
    let Some(name) = segments
        .last()
        .filter(|name| name.starts_with(char::is_uppercase))
    else {
        return false;
    };
    source.words(name).all(|at| {
        let before = &source.code[..at];
        // Its own import, which ends in `::Peer;` or stands in a list after `use`.
        let statement = before
            .rfind([';', '}'])
            .map_or(before, |end| &before[end + 1..]);
        before.ends_with("Key<") || statement.trim_start().starts_with("use ")
    })
}

/// Every path of the code that begins with `root`, the lists in `use` written out.
fn paths(source: &Source, root: &str) -> Vec<OurPath> {
    let mut found = Vec::new();
    for at in source.words(root) {
        let after = &source.code[at + root.len()..];
        if let Some(rest) = after.strip_prefix("::") {
            expand(rest, &[], &mut |segments| found.push((at, segments)));
        }
    }
    found
}

/// Reads a path or a tree of them; tells each whole path and gives back what follows.
fn expand<'a>(text: &'a str, before: &[String], tell: &mut dyn FnMut(Vec<String>)) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            match rest.strip_prefix('}') {
                Some(rest) => return rest,
                None if rest.is_empty() => return rest,
                None => {}
            }
            let next = expand(rest, before, tell);
            // `as name` after a path; anything else that is not understood is stepped over.
            rest = match next.find([',', '}', '{']) {
                Some(end) => &next[end..],
                None => "",
            };
        }
    }
    let end = text
        .bytes()
        .position(|byte| !is_name(byte) && byte != b'*')
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut segments = before.to_vec();
    if !name.is_empty() && name != "self" {
        segments.push(name.to_owned());
    }
    match rest.strip_prefix("::") {
        Some(deeper) if !deeper.starts_with('<') => expand(deeper, &segments, tell),
        Some(_) | None => {
            tell(segments);
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        rooms(&Source::new(path, text))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn a_tree_of_paths_is_written_out() {
        let source = Source::new(
            "src/a.rs",
            "use crate::{a::{b, c as d}, e::*, f}; crate::g::h::<T>()",
        );
        let found: Vec<_> = paths(&source, "crate")
            .iter()
            .map(|(_, path)| path.join("::"))
            .collect();
        assert_eq!(found, ["a::b", "a::c", "e::*", "f", "g::h"]);
    }

    #[test]
    fn a_room_imports_lower_rooms_only() {
        assert_eq!(
            lines(
                "src/wire/mod.rs",
                "use crate::error::Error;\nuse crate::homa::Rpc;"
            ),
            [2]
        );
        assert_eq!(
            lines(
                "src/homa/rpc.rs",
                "use crate::{mem::Buf, wire::homa::Data};"
            ),
            []
        );
        assert_eq!(
            lines(
                "src/homa/rpc.rs",
                "use crate::{\n    mem::Buf,\n    net::Stack,\n};"
            ),
            [1]
        );
        assert_eq!(
            lines("src/net/mod.rs", "fn f() {\n    crate::homa::grant();\n}"),
            [2]
        );
        assert_eq!(lines("src/time.rs", "use crate::wire::Malformed;"), [1]);
        assert_eq!(
            lines("src/bin/demihoma/main.rs", "use demihoma::{LibOS, sim};"),
            []
        );
        assert_eq!(
            lines("src/bin/demihoma/main.rs", "use demihoma::capi::demi_pop;"),
            [1]
        );
    }

    #[test]
    fn a_part_of_a_room_can_be_allowed_or_denied() {
        assert_eq!(
            lines("src/homa/rpc.rs", "use crate::wire::session::Header;"),
            [1]
        );
        assert_eq!(
            lines("src/net/stack.rs", "use crate::wire::homa::Data;"),
            [1]
        );
        assert_eq!(lines("src/net/stack.rs", "use crate::wire::Malformed;"), []);
        assert_eq!(lines("src/homa/mod.rs", "use crate::counters;"), []);
        assert_eq!(lines("src/config.rs", "use crate::homa::Params;"), []);
        assert_eq!(lines("src/config.rs", "use crate::homa::Endpoint;"), [1]);
    }

    #[test]
    fn a_new_room_must_be_entered_in_the_table() {
        assert_eq!(lines("src/attic.rs", "use crate::homa::Rpc;"), [1]);
    }

    #[test]
    fn super_does_not_lead_out_of_the_room() {
        assert_eq!(lines("src/net/arp.rs", "use super::route::Route;"), []);
        assert_eq!(lines("src/net/arp.rs", "use super::super::homa::Rpc;"), [1]);
        assert_eq!(lines("src/net/mod.rs", "use super::homa::Rpc;"), [1]);
    }

    #[test]
    fn tests_and_comments_may_name_any_room() {
        let text = "// crate::homa\n#[cfg(test)]\nmod tests {\n    use crate::homa::Rpc;\n}";
        assert_eq!(lines("src/net/arp.rs", text), []);
    }

    #[test]
    fn the_parts_of_homa_do_not_know_each_other() {
        let star = |path: &str, text: &str| star_of_homa(&Source::new(path, text)).len();
        let grant = |text| star("src/homa/grant.rs", text);
        assert_eq!(grant("use super::timer::Timer;\nfn f(t: &Timer) {}"), 1);
        assert_eq!(grant("use crate::homa::{rpc::Rpc, peer::find};"), 1);
        assert_eq!(grant("use super::{params::Params, grant::find};"), 0);
        assert_eq!(grant("use super::peer::Peer;\nfn f(k: Key<Peer>) {}"), 0);
        assert_eq!(
            star("src/homa/endpoint/mod.rs", "use super::timer::find;"),
            0
        );
    }
}
