//! `demihoma sim`: networks that only exist in memory, in virtual time.

mod chaos;

use crate::failure::Failure;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Lets everything go wrong that can, and checks what is promised all the same.
    Chaos(chaos::Arguments),
}

impl Command {
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Chaos(arguments) => chaos::run(arguments),
        }
    }
}
