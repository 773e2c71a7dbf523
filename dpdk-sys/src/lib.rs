//! Bindings to the part of DPDK that demihoma uses.
