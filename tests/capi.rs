//! The C face as a C programmer meets it: headers, archive, and programs that run.

#[path = "common/lab.rs"]
#[allow(dead_code)] // Without DPDK nothing is run in it.
mod lab;
#[path = "common/program.rs"]
#[allow(dead_code)] // As above.
mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::{scratch, source};
use program::check;

/// Those of the dialects that a program may be written in. Demikernel's own examples are C99.
fn dialects() -> Vec<Vec<String>> {
    let mut dialects = Vec::new();
    for (c, cpp) in [("gcc", "g++"), ("clang", "clang++")] {
        // Where clang is not installed, gcc must do.
        if c != "gcc" && Command::new(c).arg("--version").output().is_err() {
            continue;
        }
        let c_standards = ["c99", "c11", "gnu17"].map(|standard| (c, standard, "c"));
        let cpp_standards =
            ["c++11", "c++14", "c++17", "c++20"].map(|standard| (cpp, standard, "c++"));
        for (compiler, standard, language) in c_standards.into_iter().chain(cpp_standards) {
            let standard = format!("-std={standard}");
            dialects.push(
                [compiler, &standard, "-x", language]
                    .map(String::from)
                    .to_vec(),
            );
        }
    }
    dialects
}

fn check_in(dialect: &[String], file: &Path) {
    let words: Vec<_> = dialect.iter().map(String::as_str).collect();
    check(&words, file);
}

#[test]
fn layouts_hold_in_c11_and_in_each_cpp() {
    for dialect in dialects() {
        // Static assertions, by which the layout is told, came with C11.
        if dialect[1] != "-std=c99" {
            check_in(&dialect, &source("tests/c/abi.c"));
        }
    }
}

#[test]
fn each_header_stands_alone_in_any_dialect() {
    for header in ["cc", "types", "libos", "sga", "wait", "homa"] {
        let path = scratch(&format!("alone-{header}.c"));
        fs::write(&path, format!("#include <demi/{header}.h>\nint nothing;\n")).unwrap();
        dialects()
            .iter()
            .for_each(|dialect| check_in(dialect, &path));
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
fn examples_compile_without_a_warning() {
    for file in [
        "examples/c/echo.c",
        "examples/c/rpc.c",
        "examples/c/stream.c",
        "tests/c/streams.c",
        "examples/c/homa_echo.c",
        "examples/c/homa_outstanding.c",
    ] {
        check(&["gcc", "-std=c11", "-O2"], &source(file));
    }
    for standard in ["-std=c++11", "-std=c++20"] {
        check(&["g++", standard, "-O2"], &source("examples/cpp/echo.cpp"));
    }
}

#[cfg(feature = "dpdk")]
mod linked {
    use std::process::Command;

    use super::lab::{Lab, succeed};
    use super::program::{ERRORS, link};

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
    fn calls_give_the_errno_that_the_headers_name() {
        let lab = Lab::up("errors");
        for file in ERRORS {
            let program = link(&["gcc", "-std=c11", "-O2"], file);
            succeed(&mut lab.run("client", &program));
        }
    }

    /// However it ends: what it pushed arrives, and what it got is acknowledged.
    #[test]
    fn a_client_that_ends_right_after_its_last_wait_loses_nothing() {
        let lab = Lab::up("leave");
        let leave = link(&["gcc", "-std=c11", "-O2"], "tests/c/leave.c");
        for way in ["return", "exit", "close", "thread"] {
            let server = lab.serve(&leave);
            lab.client(&leave, &["--by", way]);
            server.ended();
        }
    }

    #[test]
    fn the_cpp_example_echoes_and_frees_what_it_popped() {
        let lab = Lab::up("cpp");
        let echo = link(&["g++", "-std=c++11", "-O2"], "examples/cpp/echo.cpp");
        let server = lab.serve(&echo);
        let output = lab.client(&echo, &[]);
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(lines.matches("there and back").count(), 7, "{lines}");
        server.end();
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
}
