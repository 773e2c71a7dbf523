//! The manual pages under `man/` say what the headers say: they are made from the same comments,
//! and their examples from `docs/calls.c`, which is compiled here.
//!
//! `DEMI_BLESS=1 cargo test --test manual` writes them anew.

#[path = "common/lab.rs"]
#[allow(dead_code)] // Nothing is run in it.
mod lab;
#[path = "common/program.rs"]
#[allow(dead_code)] // Nothing is linked.
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use lab::source;

/// In the order in which a reader meets them.
const HEADERS: [&str; 4] = ["libos", "sga", "wait", "homa"];

/// What an errno means where a comment does not say more.
const ERRNOS: [(&str, &str); 18] = [
    ("EADDRINUSE", "the address is in use"),
    ("EADDRNOTAVAIL", "not an address of ours"),
    ("EAFNOSUPPORT", "another address family"),
    ("EAGAIN", "nothing is free now; it may work later"),
    ("EBADF", "no such queue descriptor"),
    ("EDESTADDRREQ", "nothing says where to send"),
    (
        "EHOSTUNREACH",
        "no route to the host, or it does not answer ARP",
    ),
    ("EISCONN", "connected already"),
    ("EMSGSIZE", "more than 1,000,000 bytes"),
    ("ENOENT", "the file that was named is not there"),
    ("ENOMEM", "no memory is left"),
    ("ENOPROTOOPT", "no such option"),
    (
        "ENOSYS",
        "this thread has no runtime: it did not call demi_init(3)",
    ),
    (
        "ENOTCONN",
        "not connected, or nobody listens on the peer's port",
    ),
    ("ENOTSUP", "not offered by this kind of queue"),
    (
        "EPROTONOSUPPORT",
        "not a protocol of ours, or of the peer's",
    ),
    ("ESHUTDOWN", "the socket is shut down"),
    ("ETIMEDOUT", "the peer fell silent"),
];

/// What holds where a comment has no word of its own.
const NOTHING_OWNED: &str = "Nothing changes hands: pointers are used during the call only, and \
     what is written belongs to the caller.";

/// One function of a header.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    header: &'static str,
    name: String,
    prototype: String,
    /// What it does, paragraph by paragraph.
    description: Vec<String>,
    ownership: String,
    /// What comes before the errors, such as "0".
    returns: String,
    errors: Vec<(String, String)>,
}

fn read(path: &str) -> String {
    fs::read_to_string(source(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn calls() -> Vec<Call> {
    let of_header = |header: &'static str| {
        let text = read(&format!("include/demi/{header}.h"));
        functions(&text)
            .into_iter()
            .map(move |(comment, code)| call(header, &comment, &code))
    };
    HEADERS.into_iter().flat_map(of_header).collect()
}

/// Comment and declaration of each function.
fn functions(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in header.split("/**").skip(1) {
        let Some((comment, rest)) = part.split_once("*/") else {
            continue;
        };
        let Some((code, _)) = rest.split_once(';') else {
            continue;
        };
        let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
        if code.ends_with(')') && !code.contains(['{', '#']) {
            found.push((comment.to_owned(), code + ";"));
        }
    }
    found
}

fn call(header: &'static str, comment: &str, code: &str) -> Call {
    let (head, _) = code.split_once('(').expect("a function");
    let name = head.rsplit([' ', '*']).next().expect("a name").to_owned();
    let mut call = Call {
        header,
        name,
        prototype: code.trim_start_matches("ATTR_NODISCARD ").to_owned(),
        description: Vec::new(),
        ownership: NOTHING_OWNED.to_owned(),
        returns: String::new(),
        errors: Vec::new(),
    };
    for paragraph in paragraphs(comment) {
        let returns = paragraph.find("Returns ");
        let (text, returns) = match returns {
            Some(at) => (paragraph[..at].trim(), &paragraph[at + "Returns ".len()..]),
            None => (paragraph.as_str(), ""),
        };
        if let Some(owned) = text.strip_prefix("Ownership: ") {
            call.ownership = owned.to_owned();
        } else if !text.is_empty() {
            call.description.push(text.to_owned());
        }
        if !returns.is_empty() {
            (call.returns, call.errors) = outcome(returns);
        }
    }
    call
}

fn paragraphs(comment: &str) -> Vec<String> {
    let lines = comment
        .lines()
        .map(|line| line.trim().trim_start_matches('*').trim());
    let mut paragraphs = vec![String::new()];
    for line in lines {
        let last = paragraphs.last_mut().expect("there is one");
        match (line.is_empty(), last.is_empty()) {
            (true, true) => {}
            (true, false) => paragraphs.push(String::new()),
            (false, true) => last.push_str(line),
            (false, false) => write!(last, " {line}").expect("a string grows"),
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// "0, EBADF, EINVAL a NULL pointer, or ENOSYS." as what is before the errors, and each of them
/// with its reason.
fn outcome(returns: &str) -> (String, Vec<(String, String)>) {
    let mut head = String::new();
    let mut errors: Vec<(String, String)> = Vec::new();
    for word in returns.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', '.', ':']);
        let is_errno = bare.len() >= 3
            && bare.starts_with('E')
            && bare
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        if is_errno {
            errors.push((bare.to_owned(), String::new()));
        }
        let text = errors.last_mut().map_or(&mut head, |(_, reason)| reason);
        if !is_errno {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        } else if let Some(mark) = word.strip_prefix(bare).filter(|mark| !mark.is_empty()) {
            text.push_str(mark);
        }
    }
    // From the last on, so that "ENOENT, EINVAL bad" and "EINTR and ETIMEDOUT both" share a reason.
    let mut shared = String::new();
    for (errno, reason) in errors.iter_mut().rev() {
        let joins = reason == "and";
        *reason = plain(reason);
        if joins {
            reason.clone_from(&shared);
        } else if reason.is_empty() {
            let known = ERRNOS.iter().find(|(name, _)| name == errno);
            *reason = known.map_or(&*shared, |(_, text)| text).to_owned();
        }
        shared.clone_from(reason);
    }
    (plain(&head), errors)
}

/// Without the marks and words that lead to the next item of a list.
fn plain(text: &str) -> String {
    let mut text = text.trim();
    loop {
        let cut = text.trim_end_matches([',', ';', '.', ':', ' ']);
        let cut = cut.strip_suffix(" or").unwrap_or(cut);
        let cut = if cut == "or" { "" } else { cut };
        if cut == text {
            return text.to_owned();
        }
        text = cut;
    }
}

/// The body of `CALL_example` in docs/calls.c, for each call that has one.
fn examples() -> BTreeMap<String, String> {
    let text = read("docs/calls.c");
    let bodies = text.split("\nvoid ").skip(1).filter_map(|part| {
        let (name, rest) = part.split_once("_example(void)\n{\n")?;
        let (body, _) = rest.split_once("\n}\n")?;
        let lines = body
            .lines()
            .map(|line| line.strip_prefix("    ").unwrap_or(line));
        Some((name.to_owned(), lines.collect::<Vec<_>>().join("\n")))
    });
    bodies.collect()
}

/// Text for roff, which takes backslashes, and dots and quotes at the start of a line, for its own.
fn roff(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('`', "");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn head(name: &str, section: u8, what: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".\\\" Made from src/capi and docs/calls.c by tests/manual.rs: change it there, not here.\n\
         .TH {} {section} \"\" \"demihoma {version}\" \"demihoma\"\n.SH NAME\n{name} \\- {}\n",
        name.to_uppercase(),
        roff(what)
    )
}

fn first_sentence(call: &Call) -> &str {
    let text = call.description.first().map_or("", String::as_str);
    text.split_inclusive(['.', ':', ';'])
        .next()
        .unwrap_or(text)
        .trim_end_matches(['.', ':', ';'])
}

fn page(call: &Call, example: Option<&String>) -> String {
    let mut page = head(&call.name, 3, first_sentence(call));
    let put = |page: &mut String, text: String| page.push_str(&text);
    put(
        &mut page,
        format!(
            ".SH SYNOPSIS\n.nf\n.B #include <demi/{}.h>\n.PP\n.B {}\n.fi\n.SH DESCRIPTION\n",
            call.header,
            roff(&call.prototype)
        ),
    );
    let paragraphs: Vec<_> = call.description.iter().map(|text| roff(text)).collect();
    put(&mut page, paragraphs.join("\n.PP\n") + "\n");
    if !call.errors.is_empty() {
        let returns = match (call.returns.as_str(), call.returns.contains("-1")) {
            ("", _) => "One of these positive numbers.".to_owned(),
            ("0", _) => "0, or one of these positive numbers.".to_owned(),
            (head, false) => format!("{head}, one of these positive numbers."),
            (head, true) => format!("{head}; then errno is one of these."),
        };
        put(
            &mut page,
            format!(".SH RETURN VALUE\n{}\n.SH ERRORS\n", roff(&returns)),
        );
    }
    for (errno, reason) in &call.errors {
        put(&mut page, format!(".TP\n.B {errno}\n{}\n", roff(reason)));
    }
    put(
        &mut page,
        format!(".SH OWNERSHIP\n{}\n", roff(&call.ownership)),
    );
    if let Some(example) = example {
        let lines: Vec<_> = example.lines().map(roff).collect();
        put(
            &mut page,
            format!(".SH EXAMPLE\n.nf\n{}\n.fi\n", lines.join("\n")),
        );
    }
    page + ".SH SEE ALSO\n.BR demihoma (7)\n"
}

/// The list of all, and what holds for each of them.
fn overview(calls: &[Call]) -> String {
    let mut page = head("demihoma", 7, "a library OS that speaks Homa over DPDK");
    page.push_str(".SH DESCRIPTION\n");
    let init = calls
        .iter()
        .find(|call| call.name == "demi_init")
        .expect("demi_init");
    let rules = init.description.iter().map(|text| roff(text));
    page.push_str(&rules.collect::<Vec<_>>().join("\n.PP\n"));
    page.push('\n');
    for header in HEADERS {
        writeln!(page, ".SH \"demi/{header}.h\"").expect("a string grows");
        for call in calls.iter().filter(|call| call.header == header) {
            let what = roff(first_sentence(call));
            write!(page, ".TP\n.BR {} (3)\n{what}\n", call.name).expect("a string grows");
        }
    }
    page
}

fn pages() -> BTreeMap<String, String> {
    let (calls, examples) = (calls(), examples());
    let mut pages: BTreeMap<_, _> = calls
        .iter()
        .map(|call| {
            (
                format!("{}.3", call.name),
                page(call, examples.get(&call.name)),
            )
        })
        .collect();
    pages.insert("demihoma.7".to_owned(), overview(&calls));
    pages
}

#[test]
fn pages_say_what_the_headers_say() {
    let made = pages();
    let folder = source("man");
    if std::env::var_os("DEMI_BLESS").is_some() {
        for (name, text) in &made {
            fs::write(folder.join(name), text).expect("man can be written");
        }
    }
    let names = fs::read_dir(&folder).expect("man is there").map(|entry| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("names in ASCII")
    });
    let there: BTreeSet<String> = names.collect();
    assert_eq!(
        there,
        made.keys().cloned().collect(),
        "the files under man/"
    );
    for (name, text) in &made {
        assert!(
            read(&format!("man/{name}")) == *text,
            "man/{name} is not what src/capi and docs/calls.c say: \
             run `DEMI_BLESS=1 cargo test --test manual` and look at the difference"
        );
    }
}

#[test]
fn each_call_has_a_description_its_errors_and_an_example() {
    let (calls, examples) = (calls(), examples());
    assert!(
        calls.len() > 25,
        "the headers were not understood: {}",
        calls.len()
    );
    for call in calls {
        let name = &call.name;
        assert!(!call.description.is_empty(), "{name} says nothing");
        if call.prototype.starts_with("int demi_") {
            let told: Vec<_> = call
                .errors
                .iter()
                .map(|(errno, _)| errno.as_str())
                .collect();
            assert!(
                told.contains(&"ENOSYS") || name == "demi_init",
                "{name}: {told:?}"
            );
            let silent: Vec<_> = call
                .errors
                .iter()
                .filter(|(_, why)| why.is_empty())
                .collect();
            assert!(silent.is_empty(), "{name} does not say why: {silent:?}");
        }
        // Linux Homa's calls are shown by the manual of that.
        let has_example = examples.contains_key(name) || name.starts_with("homa_");
        assert!(has_example, "docs/calls.c has no {name}_example");
    }
}

#[test]
fn examples_compile_in_c_and_are_all_of_calls_that_exist() {
    program::check(&["gcc", "-std=c11"], &source("docs/calls.c"));
    let names: BTreeSet<_> = calls().into_iter().map(|call| call.name).collect();
    let strays: Vec<_> = examples()
        .into_keys()
        .filter(|name| !names.contains(name))
        .collect();
    assert!(strays.is_empty(), "no such calls: {strays:?}");
}

#[test]
fn errors_are_read_with_their_reasons() {
    let (returns, errors) = outcome("0, EBADF, EINVAL a NULL pointer, or a wrong size, or ENOSYS.");
    let reason = |name: &str| {
        let found = errors.iter().find(|(errno, _)| errno == name);
        found.map(|(_, reason)| reason.as_str())
    };
    assert_eq!(returns, "0");
    assert_eq!(reason("EINVAL"), Some("a NULL pointer, or a wrong size"));
    assert_eq!(reason("EBADF"), Some("no such queue descriptor"));
    assert_eq!(errors.len(), 3);
    let (_, errors) = outcome("0, ETIMEDOUT and EINTR as demi_wait(), or ENOSYS.");
    assert_eq!(errors[0].1, "as demi_wait()");
    assert_eq!(errors[1].1, "as demi_wait()");
}
