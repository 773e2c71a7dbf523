//! The program `demihoma`: measures the library on the machine it runs on, and runs it over a
//! network in memory.

#![forbid(unsafe_code)]

mod bench;
mod failure;
mod sim;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use failure::Failure;

/// A kernel-bypass library OS that runs the Homa transport in user space over DPDK.
#[derive(Debug, Parser)]
#[command(name = "demihoma", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Measures speed, beside what bare DPDK does in the same run.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Hosts of ours on a network in memory, in virtual time.
    #[command(subcommand)]
    Sim(sim::Command),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let result = match arguments.command {
        Command::Bench(command) => command.run(),
        Command::Sim(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("demihoma: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version as they are; of what is wrong with the arguments, one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayVersion
    ) {
        error.exit();
    }
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = paragraph.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    eprintln!("demihoma: {line}; see --help");
    ExitCode::from(2) // As shells and clap have it for wrong usage.
}
