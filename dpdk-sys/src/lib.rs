//! Bindings to the part of DPDK that demihoma uses, 22.11 or newer.
//!
//! Made when built, from the installed headers and an allowlist (`build.rs`). Functions that DPDK
//! has only as static inline ones come through `shim.c`. Nothing here knows the layout of an mbuf:
//! the `SHIM_MBUF_*` constants say where its fields are.

#![allow(non_camel_case_types, non_upper_case_globals, missing_docs)]
#![allow(clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
