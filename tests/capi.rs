//! The C face as a C programmer meets it: headers, archive, and programs that run.

#[path = "common/lab.rs"]
#[allow(dead_code)] // Without DPDK nothing is run in it.
mod lab;

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::{scratch, source, succeed};

const WARNINGS: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

#[test]
fn layouts_hold_in_c11_and_in_cpp17() {
    check(&["gcc", "-std=c11"], &source("tests/c/abi.c"));
    check(
        &["g++", "-std=c++17", "-x", "c++"],
        &source("tests/c/abi.c"),
    );
}

#[test]
fn each_header_stands_alone_in_any_dialect() {
    for header in ["cc", "types", "libos", "sga", "wait", "homa"] {
        let path = scratch(&format!("alone-{header}.c"));
        fs::write(&path, format!("#include <demi/{header}.h>\nint nothing;\n")).unwrap();
        for dialect in [
            &["gcc", "-std=c11"][..],
            &["gcc", "-std=gnu17"],
            &["g++", "-std=c++17", "-x", "c++"],
            &["g++", "-std=c++20", "-x", "c++"],
        ] {
            check(dialect, &path);
        }
    }
}

#[test]
fn homa_h_and_the_linux_module_s_header_bear_each_other() {
    // What is common to all versions of that header: its guard, and a structure of ours.
    let theirs = |guard: &str| {
        format!(
            "#ifndef {guard}\n#define {guard}\n#include <netinet/in.h>\n#include <stdint.h>\n\
             #define IPPROTO_HOMA 146\n\
             struct homa_sendmsg_args {{ uint64_t id, completion_cookie; }};\n\
             struct homa_recvmsg_args;\nstruct homa_abort_args;\n\
             typedef union sockaddr_in_union {{ struct sockaddr_in in4; \
             struct sockaddr_in6 in6; }} sockaddr_in_union;\n#endif\n"
        )
    };
    let ours = "#include <demi/homa.h>\n";
    let ask = "struct homa_sendmsg_args args;\nint protocol = IPPROTO_HOMA;\n";
    for guard in ["_HOMA_H", "_UAPI_LINUX_HOMA_H"] {
        for (order, text) in [
            ("before", theirs(guard) + ours + ask),
            ("after", ours.to_owned() + &theirs(guard) + ask),
        ] {
            let path = scratch(&format!("beside{guard}-{order}.c"));
            fs::write(&path, text).unwrap();
            check(&["gcc", "-std=gnu11"], &path);
        }
    }
}

#[test]
fn examples_and_test_programs_compile_without_a_warning() {
    for file in [
        "examples/c/echo.c",
        "examples/c/rpc.c",
        "examples/c/stream.c",
        "tests/c/streams.c",
        "examples/c/homa_echo.c",
        "examples/c/homa_outstanding.c",
        "tests/c/invalid.c",
        "tests/c/homa_face.c",
    ] {
        check(&["gcc", "-std=c11", "-O2"], &source(file));
    }
}

/// Compiles without making anything; a warning is an error.
fn check(compiler: &[&str], file: &Path) {
    let mut command = compile(compiler);
    command.arg("-fsyntax-only").arg(file);
    succeed(&mut command);
}

fn compile(compiler: &[&str]) -> Command {
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .args(WARNINGS)
        .arg("-I")
        .arg(source("include"));
    command
}

#[cfg(feature = "dpdk")]
mod linked {
    use super::*;

    use std::ffi::OsStr;
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use lab::Lab;

    #[test]
    fn calls_before_init_are_refused() {
        let program = link(&["gcc", "-std=c11"], "tests/c/uninitialised.c");
        succeed(&mut Command::new(program));
    }

    #[test]
    fn a_cpp17_program_links_and_runs() {
        let program = link(&["g++", "-std=c++17"], "tests/c/cpp.cpp");
        succeed(&mut Command::new(program));
    }

    #[test]
    fn bad_arguments_give_the_errno_that_the_headers_name() {
        let program = link(&["gcc", "-std=c11"], "tests/c/invalid.c");
        succeed(&mut Lab::up("invalid").run("client", &program));
    }

    #[test]
    fn examples_talk_across_a_network_and_tell_errors_apart() {
        let lab = Lab::up("examples");
        let echo = link(&["gcc", "-std=c11", "-O2"], "examples/c/echo.c");
        let rpc = link(&["gcc", "-std=c11", "-O2"], "examples/c/rpc.c");

        let server = lab.serve(&echo);
        let output = lab.client(&echo, &["--count", "20", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            lines.matches("\"count\":20,").count(),
            7,
            "a line for each size: {lines}"
        );
        server.end();

        let server = lab.serve(&rpc);
        lab.client(
            &rpc,
            &[
                "--count",
                "100",
                "--outstanding",
                "8",
                "--sizes",
                "1,1425,100000",
            ],
        );
        lab.client(&rpc, &["--expect", "ENOTCONN", "--server", "10.0.0.1:9"]);
        lab.client(
            &rpc,
            &["--expect", "EHOSTUNREACH", "--server", "10.0.0.77:9"],
        );
        server.end();
    }

    #[test]
    fn connections_work_across_a_network() {
        let lab = Lab::up("streams");
        let streams = link(&["gcc", "-std=c11", "-O2"], "tests/c/streams.c");
        let server = lab.serve(&streams);
        lab.client(&streams, &[]);
        server.end();

        let example = link(&["gcc", "-std=c11", "-O2"], "examples/c/stream.c");
        let server = lab.serve(&example);
        let output = lab.client(&example, &["--count", "20", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.matches("\"count\":20,").count(), 7, "{lines}");
        server.end();
    }

    #[test]
    fn the_calls_of_the_linux_module_do_what_the_header_says() {
        let lab = Lab::up("homaface");
        let echo = link(&["gcc", "-std=c11", "-O2"], "examples/c/homa_echo.c");
        let face = link(&["gcc", "-std=c11"], "tests/c/homa_face.c");
        let server = lab.serve(&echo);
        lab.client(&face, &[]);
        server.end();
    }

    #[test]
    fn examples_of_the_homa_face_talk_across_a_network() {
        let lab = Lab::up("homaecho");
        let echo = link(&["gcc", "-std=c11", "-O2"], "examples/c/homa_echo.c");
        let many = link(&["gcc", "-std=c11", "-O2"], "examples/c/homa_outstanding.c");
        let server = lab.serve(&echo);
        let output = lab.client(&echo, &["--count", "20", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            lines.matches("\"count\":20,").count(),
            7,
            "a line for each size: {lines}"
        );
        lab.client(&echo, &["--expect", "ENOTCONN", "--server", "10.0.0.1:9"]);
        let output = lab.client(&many, &["--count", "500", "--outstanding", "64"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.contains("500 requests") && said.contains(" 0 responses wrong"),
            "{said}"
        );
        // Of seven sizes, up to 1,000,000 bytes, short ones overtake long ones.
        assert!(!said.contains(" 0 after"), "{said}");
        server.end();
    }

    /// Compiles a program and links it with the static library.
    fn link(compiler: &[&str], file: &str) -> PathBuf {
        let name = Path::new(file)
            .file_stem()
            .and_then(OsStr::to_str)
            .expect("a name in ASCII");
        let program = scratch(name);
        let mut command = compile(compiler);
        command
            .arg(source(file))
            .arg("-o")
            .arg(&program)
            .arg(archive());
        command.arg("-Wl,--as-needed").args(dpdk_libs()).args([
            "-lrte_net_ring",
            "-lpthread",
            "-ldl",
            "-lm",
        ]);
        succeed(&mut command);
        program
    }

    fn dpdk_libs() -> Vec<String> {
        let output = succeed(Command::new("pkg-config").args(["--libs", "libdpdk"]));
        let libs = String::from_utf8(output.stdout).expect("options in ASCII");
        libs.split_whitespace().map(String::from).collect()
    }

    /// `libdemihoma.a`, of this very source.
    ///
    /// Cargo makes it beside this test, in the same breath as the crate the test links with. But
    /// its name says nothing about features, so that a build without the C face may have put
    /// another in its place: then one is built where nobody else builds.
    fn archive() -> &'static Path {
        static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
        ARCHIVE.get_or_init(|| {
            let this_test = std::env::current_exe().expect("a test knows its own path");
            let beside = this_test.with_file_name("libdemihoma.a");
            if fs::read(&beside).is_ok_and(|bytes| has_c_face(&bytes)) {
                return beside;
            }
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-target");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args([
                "build",
                "--lib",
                "--no-default-features",
                "--features",
                "dpdk",
            ]);
            cargo.arg("--manifest-path").arg(source("Cargo.toml"));
            succeed(cargo.arg("--target-dir").arg(&target));
            target.join("debug/libdemihoma.a")
        })
    }

    fn has_c_face(archive: &[u8]) -> bool {
        let name = b"\0demi_homa_call\0";
        archive.windows(name.len()).any(|window| window == name)
    }
}
