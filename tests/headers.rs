//! The headers under `include/demi` say what `src/capi` does.
//!
//! `DEMI_BLESS=1 cargo test --test headers` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

const NOTICE: &str = "/* Made from src/capi by tests/headers.rs: change it there, not here. */";

/// Structures of the system, which cbindgen takes for typedefs.
const STRUCTS: [&str; 7] = [
    "sockaddr",
    "sockaddr_in",
    "sockaddr_in6",
    "sockaddr_storage",
    "timespec",
    "iovec",
    "pollfd",
];

#[test]
fn types_h_is_what_the_rust_types_are() {
    let mut config = config("DEMI_TYPES_H_IS_INCLUDED");
    config.sys_includes = [
        "stddef.h",
        "stdint.h",
        "netinet/in.h",
        "sys/socket.h",
        "demi/cc.h",
    ]
    .map(String::from)
    .to_vec();
    // Nothing in this file is used by a function of this file, so each must be asked for.
    config.export.include = [
        "demi_qtoken_t",
        "demi_sgaseg_t",
        "demi_sgarray_t",
        "demi_opcode_t",
        "demi_accept_result_t",
        "demi_qresult_t",
        "demi_callback_t",
        "demi_args",
    ]
    .map(String::from)
    .to_vec();
    compare("types.h", &generate("types", config));
}

#[test]
fn libos_h_declares_what_libos_rs_exports() {
    let mut config = config("DEMI_LIBOS_H_IS_INCLUDED");
    config.after_includes = Some(format!(
        "\n/**\n * The version of these headers: what demi_version() gave when they were made.\n \
         */\n\
         #define DEMIHOMA_VERSION (({} << 16) | ({} << 8) | {})",
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ));
    config
        .export
        .rename
        .insert("demi_args".into(), "struct demi_args".into());
    compare("libos.h", &generate("libos", config));
}

#[test]
fn sga_h_declares_what_sga_rs_exports() {
    compare("sga.h", &generate("sga", config("DEMI_SGA_H_IS_INCLUDED")));
}

#[test]
fn wait_h_declares_what_wait_rs_exports() {
    let mut config = config("DEMI_WAIT_H_IS_INCLUDED");
    config.sys_includes.insert(0, "time.h".into());
    // Strict C99 hides it in <time.h>.
    config.after_includes = Some("struct timespec;".into());
    compare("wait.h", &generate("wait", config));
}

/// Two parts: what Linux Homa's own header defines too, and ours.
#[test]
fn homa_h_declares_what_homa_rs_exports() {
    let mut linux = config("_HOMA_H");
    linux.header = None;
    linux.sys_includes.clear();
    // Each has a guard of its own in the text below: other headers may lack it, or have it alone.
    linux.export.exclude = ["IPPROTO_HOMA", "IPPROTO_HOMA_IANA", "SO_HOMA_SERVER"]
        .map(String::from)
        .to_vec();
    linux.after_includes = Some("typedef union sockaddr_in_union sockaddr_in_union;".into());
    linux.export.include = [
        "sockaddr_in_union",
        "homa_sendmsg_args",
        "homa_recvmsg_args",
        "homa_abort_args",
        "homa_set_buf_args",
    ]
    .map(String::from)
    .to_vec();
    let mut ours = config("");
    ours.header = None;
    ours.include_guard = None; // It stands in `HOMA_BEGIN`.
    ours.sys_includes.clear();
    ours.export.include = vec!["demi_homa_msg_info".into()];
    let mut face = config("");
    face.header = None;
    face.include_guard = None;
    face.sys_includes.clear();
    for name in ["homa_sendmsg_args", "homa_recvmsg_args", "homa_abort_args"] {
        let renamed = format!("struct {name}");
        face.export.rename.insert(name.into(), renamed);
    }
    let mut options = face.clone();
    options.export.include = ["homa_rpc_info", "homa_info"].map(String::from).to_vec();
    let text = [
        NOTICE,
        HOMA_BEGIN,
        generate("homa_types", linux).trim(),
        HOMA_MIDDLE,
        generate("homa_options", options).trim(),
        "",
        generate("homa_calls", face).trim(),
        HOMA_NATIVE,
        generate("homa", ours).trim(),
        "\n#endif  /* DEMI_HOMA_H_IS_INCLUDED */\n",
    ]
    .join("\n");
    compare("homa.h", &text);
}

const HOMA_BEGIN: &str = r#"
#ifndef DEMI_HOMA_H_IS_INCLUDED
#define DEMI_HOMA_H_IS_INCLUDED

#include <stddef.h>
#include <poll.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <demi/types.h>

/**
 * The protocol that selects native RPC in demi_socket(). 146, Linux's number, does so, too. What
 * stands in the IP header is set in the configuration.
 */
#ifndef IPPROTO_HOMA
#define IPPROTO_HOMA 0xFD
#endif

/* The constants and structures of Linux Homa's user interface. If the module's own header came
 * before this one, they are there already; if it comes after, it finds its guard set. Today's
 * header has other structures than that of 2022: after it, the homa_ calls are not declared. */
#ifdef _UAPI_LINUX_HOMA_H
#define _HOMA_H
#define DEMI_HOMA_WITHOUT_CALLS
#else
#define _UAPI_LINUX_HOMA_H
#endif
"#;

const HOMA_MIDDLE: &str = r#"
/**
 * Socket option, an int: whether a socket that is not bound takes requests.
 */
#ifndef SO_HOMA_SERVER
#define SO_HOMA_SERVER 11
#endif

/* Requests of the module's ioctl calls, kept as numbers for programs that name them. */
#ifndef HOMAIOCABORT
#define HOMAIOCABORT _IOWR(0x89, 0xe3, struct homa_abort_args)
#endif
#ifndef HOMAIOCREPLY
#define HOMAIOCREPLY _IOWR(0x89, 0xe2, struct homa_reply_args)
#endif
#ifndef HOMAIOCFREEZE
#define HOMAIOCFREEZE _IO(0x89, 0xef)
#endif

#ifndef DEMI_HOMA_WITHOUT_CALLS
"#;

const HOMA_NATIVE: &str = "
#endif  /* DEMI_HOMA_WITHOUT_CALLS */
";

/// What all headers share.
fn config(guard: &str) -> Config {
    let mut config = Config {
        language: Language::C,
        cpp_compat: true,
        header: Some(NOTICE.into()),
        include_guard: Some(guard.into()),
        no_includes: true,
        sys_includes: vec!["demi/types.h".into()],
        style: Style::Tag,
        documentation_style: DocumentationStyle::Doxy,
        usize_is_size_t: true,
        line_length: 100,
        tab_width: 4,
        ..Config::default()
    };
    config.layout.packed = Some("__attribute__((__packed__))".into());
    config.function.must_use = Some("ATTR_NODISCARD".into());
    config.export.rename = STRUCTS
        .iter()
        .map(|name| (name.to_string(), format!("struct {name}")))
        .collect();
    config
}

fn generate(room: &str, config: Config) -> String {
    let source = root().join("src/capi").join(room).with_extension("rs");
    let bindings = Builder::new()
        .with_src(source)
        .with_config(config)
        .generate()
        .unwrap_or_else(|error| panic!("src/capi/{room}.rs: {error}"));
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("cbindgen writes text")
}

fn compare(name: &str, made: &str) {
    let path = root().join("include/demi").join(name);
    if std::env::var_os("DEMI_BLESS").is_some() {
        fs::write(&path, made).expect("include/demi can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = made
        .lines()
        .zip(committed.lines())
        .position(|(a, b)| a != b);
    assert!(
        made == committed,
        "include/demi/{name} is not what src/capi says, first in line {}: \
         run `DEMI_BLESS=1 cargo test --test headers` and look at the difference",
        differs.map_or(made.lines().count().min(committed.lines().count()), |at| at) + 1,
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
