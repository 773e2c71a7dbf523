//! Finds libdpdk, compiles the shim, makes the bindings and names the libraries to link.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

/// Drivers load themselves from DPDK's plugin folder; only `rte_net_ring` has functions we call.
const LIBRARIES: [&str; 6] = [
    "rte_ethdev",
    "rte_net_ring",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_eal",
];

const FUNCTIONS: [&str; 5] = [
    "shim_.*",
    "rte_(eal_init|eal_hotplug_add|eal_hotplug_remove|strerror|version|thread_register|lcore_count)",
    "rte_(pktmbuf_pool_create|mempool_free|mempool_avail_count|ring_create|ring_free|ring_count)",
    "rte_eth_(dev_get_port_by_name|dev_info_get|dev_configure|dev_adjust_nb_rx_tx_desc|dev_start\
     |dev_stop|dev_close|dev_count_avail|dev_get_mtu|rx_queue_setup|tx_queue_setup|macaddr_get\
     |stats_get|allmulticast_enable|from_rings)",
    "rte_eth_dev_(get_name_by_port|socket_id)",
];

/// Reached through pointers only, and with layouts that Rust cannot express.
const OPAQUE: &str = "rte_(mbuf|mempool|ring|device|bus|eth_dev_callback|mempool_.*|ring_.*)";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.h");
    println!("cargo::rerun-if-changed=src/shim.c");

    let flags = find();
    compile(&flags);
    bind(&flags);
}

/// Emits what to link, and gives the compiler flags that DPDK asks for, word for word: they hold
/// `-include rte_config.h` and the instruction set, on which its inline functions depend.
fn find() -> Vec<String> {
    let mut config = pkg_config::Config::new();
    let library = match config
        .atleast_version("22.11")
        .cargo_metadata(false)
        .env_metadata(false)
        .probe("libdpdk")
    {
        Ok(library) => library,
        Err(_) => fail("libdpdk 22.11 or newer was not found: run config/setup.sh"),
    };
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in LIBRARIES {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = match Command::new(program).args(["--cflags", "libdpdk"]).output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(_) | Err(_) => fail("`pkg-config --cflags libdpdk` failed: run config/setup.sh"),
    };
    String::from_utf8_lossy(&output)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn compile(flags: &[String]) {
    let mut build = cc::Build::new();
    build
        .file("src/shim.c")
        .flag("-Wno-deprecated-declarations")
        .opt_level(3);
    for flag in flags {
        build.flag(flag);
    }
    build.compile("dpdk_shim");
}

fn bind(flags: &[String]) {
    let mut builder = bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(flags)
        .allowlist_recursively(true)
        .allowlist_var("SHIM_.*|rte_eth_fp_ops|RTE_ETH_NAME_MAX_LEN")
        .opaque_type(OPAQUE)
        .generate_comments(false)
        .layout_tests(false)
        .derive_debug(false)
        .prepend_enum_name(false)
        .formatter(bindgen::Formatter::None);
    for pattern in FUNCTIONS {
        builder = builder.allowlist_function(pattern);
    }
    let bindings = match builder.generate() {
        Ok(bindings) => bindings,
        Err(error) => fail(&format!("no bindings to DPDK (libclang-dev?): {error}")),
    };
    let path = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs");
    if let Err(error) = bindings.write_to_file(&path) {
        fail(&format!("{}: {error}", path.display()));
    }
}

/// Cargo stops after this one line; a failing exit code would make it print our whole output too.
fn fail(reason: &str) -> ! {
    println!("cargo::error={reason}");
    exit(0)
}
