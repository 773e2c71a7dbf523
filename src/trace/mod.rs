//! What a run leaves behind for those who want to know what happened.

pub mod pcap;
