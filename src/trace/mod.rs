//! What a run leaves behind for those who want to know what happened.

mod metrics;
pub mod pcap;

pub use metrics::Metric;
