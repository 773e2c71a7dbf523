//! What `make install` puts in place, as those use it who never see this tree.

#![cfg(feature = "dpdk")]

#[path = "common/lab.rs"]
mod lab;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{Lab, scratch, source, succeed};

/// One after the other, because an install is made only once.
#[test]
fn programs_outside_the_tree_link_either_dpdk_and_see_only_our_names() {
    let prefix = scratch("prefix");
    succeed(script(&prefix).arg("install"));
    let declared = declared(&prefix);
    assert!(declared.contains("demi_homa_call") && declared.contains("demi_init"));
    for (library, options) in [
        ("libdemihoma.a", &["-g", "--defined-only"][..]),
        ("libdemihoma.so", &["-D", "--defined-only"]),
    ] {
        let library = prefix.join("lib").join(library);
        let output = succeed(Command::new("nm").args(options).arg(&library));
        let text = String::from_utf8(output.stdout).expect("names in ASCII");
        assert_eq!(names(&text), declared, "what {} shows", library.display());
    }
    for page in ["man3/demi_pushto.3", "man7/demihoma.7"] {
        let page = prefix.join("share/man").join(page);
        assert!(page.exists(), "no {}", page.display());
    }
    for package in ["demihoma", "demihoma-static"] {
        exchange(package, &link(&prefix, package));
    }
    succeed(script(&prefix).arg("uninstall"));
    let left = succeed(Command::new("find").arg(&prefix).args(["-type", "f"])).stdout;
    assert_eq!(
        String::from_utf8_lossy(&left),
        "",
        "files that uninstall left"
    );
}

fn script(prefix: &Path) -> Command {
    let mut command = Command::new(source("config/install.sh"));
    command.env("PREFIX", prefix).env_remove("DESTDIR");
    command
}

/// All functions of the installed headers.
fn declared(prefix: &Path) -> BTreeSet<String> {
    let headers = fs::read_dir(prefix.join("include/demi")).expect("headers are installed");
    let text = |header: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(header.expect("a header").path()).expect("text")
    };
    let text: String = headers.map(text).collect();
    let is_code = |line: &&str| !line.trim_start().starts_with(['*', '/', '#']);
    let words = text.lines().filter(is_code).flat_map(|line| {
        line.match_indices('(').filter_map(move |(at, _)| {
            let start = line[..at].rfind([' ', '*']).map_or(0, |before| before + 1);
            Some(line[start..at].to_owned()).filter(|name| is_ours(name))
        })
    });
    words.collect()
}

fn is_ours(name: &str) -> bool {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name && (name.starts_with("demi_") || name.starts_with("homa_"))
}

/// The symbols that `nm` lists, versions aside.
fn names(nm: &str) -> BTreeSet<String> {
    let symbols = nm.lines().filter_map(|line| line.split_whitespace().nth(2));
    let plain = symbols.map(|symbol| symbol.split('@').next().unwrap_or(symbol).to_owned());
    // The version itself is listed too.
    plain.filter(|name| !name.starts_with("DEMIHOMA")).collect()
}

/// The echo example, compiled in a folder where nothing else is.
fn link(prefix: &Path, package: &str) -> PathBuf {
    let folder = scratch(&format!("program-{package}"));
    fs::create_dir_all(&folder).expect("the scratch folder is ours");
    for file in ["echo.c", "example.h"] {
        let from = source("examples/c").join(file);
        fs::copy(from, folder.join(file)).expect("the example is there");
    }
    let options = succeed(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", package])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")),
    );
    let options = String::from_utf8(options.stdout).expect("options in ASCII");
    let mut command = Command::new("gcc");
    command
        .current_dir(&folder)
        .args(["-std=c11", "-O2", "echo.c", "-o", "echo"]);
    succeed(command.args(options.split_whitespace()));
    folder.join("echo")
}

/// The program serves itself in the lab.
fn exchange(package: &str, echo: &Path) {
    let lab = Lab::up(&package.replace("demihoma", "i"));
    let server = lab.serve(echo);
    let output = lab.client(echo, &["--count", "5", "--json"]);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        lines.matches("\"count\":5,").count(),
        7,
        "{package}: {lines}"
    );
    server.end();
}
