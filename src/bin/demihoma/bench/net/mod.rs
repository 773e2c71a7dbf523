//! `demihoma bench net`: round trips between two processes over a network of the kernel's, beside
//! those of bare DPDK over the same two ports.
//!
//! The program starts itself three times: as it was called; inside a network namespace of its own,
//! where it makes a veth pair and is the client; and as the server beside that.

mod client;
mod lab;
mod report;
mod server;

use std::time::Duration;

use demihoma::addr::Ip;
use demihoma::config::{Addresses, Backend, Cidr, Config};
use demihoma::libos::LibOS;

use crate::failure::Failure;

const SERVER_PORT: u16 = 7000;
const SERVER_END: u8 = 1;
const CLIENT_END: u8 = 2;

/// Source: HomaModule homa.h.
const IPPROTO_HOMA: i32 = 146;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// How long to measure, in seconds.
    #[arg(long, value_name = "S", default_value = "5", value_parser = super::seconds)]
    seconds: Duration,
    /// Bytes of requests and of responses.
    #[arg(long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// The part this process plays; for the program's own use.
    #[arg(long, hide = true, value_enum)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// Makes the veth pair, starts the server, and asks it.
    Client,
    /// Answers; which way it is told on standard input.
    Server,
}

/// Which way round trips are made. One line of text tells the server, and it says so too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Frames, by bare DPDK.
    Floor,
    /// RPCs, by tokens.
    Tokens,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match arguments.role {
        None => lab::enter(),
        Some(Role::Client) => client::run(arguments),
        Some(Role::Server) => server::run(),
    }
}

impl Way {
    const fn word(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Tokens => "tokens",
        }
    }

    fn of(line: &str) -> Option<Self> {
        [Self::Floor, Self::Tokens]
            .into_iter()
            .find(|way| way.word() == line.trim())
    }
}

/// The library OS of one end of the veth pair: 1 for the server's, 2 for the client's.
fn open(end: u8) -> Result<LibOS, Failure> {
    let mut config = Config::default();
    config.network.backend = Backend::AfPacket;
    config.network.interface = lab::interface(end);
    config.network.address = Addresses(vec![Cidr {
        ip: ip(end),
        prefix_bits: 24,
    }]);
    if let Some(core) = lab::core_of(end) {
        config.dpdk.lcores = format!("0@{core}");
        // Nobody else is to have the core.
        config.runtime.idle_turns_before_yield = 0;
    }
    Ok(LibOS::new(&config)?)
}

const fn ip(end: u8) -> Ip {
    Ip::v4(10, 0, 0, end)
}
