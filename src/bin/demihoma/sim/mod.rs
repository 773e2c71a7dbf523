//! `demihoma sim`: hosts of ours on a network in memory, in virtual time.

mod record;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Writes what two hosts of ours say to each other into captures, scenario by scenario.
    ///
    /// Hosts 10.0.0.1 (client) and 10.0.0.2 (server, port 4000) live through the scenarios of
    /// which there are captures of the Linux module. NAME.pcap keeps every frame that one of them
    /// sent, NAME.dropped.pcap those that the network then lost. Each scenario begins with a first
    /// contact. Request byte i is 7 i mod 256, but for bytes 0-3, the request's length, and 4-7,
    /// the response's, little-endian; response byte i is 5 i + 1 mod 256.
    Record(record::Arguments),
}

impl Command {
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Record(arguments) => record::run(arguments),
        }
    }
}
