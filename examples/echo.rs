//! Messages there and back, in the style of Demikernel: a datagram socket, push, pop and wait.
//!
//!     cargo run --release --example echo -- server --config server.toml
//!     cargo run --release --example echo -- client --config client.toml
//!
//! Each exchange is one Homa RPC: what the server sends to a client that waits for an answer
//! becomes the response. So messages may be up to 1,000,000 bytes long, and none is lost.
//! `config/lab.sh` makes a network to try it in; the server's address there is 10.0.0.1.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use demihoma::addr::{Addr, Ip};
use demihoma::config::Config;
use demihoma::libos::{LibOS, OperationResult, QToken, Sga};

const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 1), 10_007);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let &[role @ ("server" | "client"), "--config", file] = &words[..] else {
        return Err("usage: echo server|client --config FILE".into());
    };
    let config = Config::load(Some(Path::new(file)))?;
    let libos = LibOS::new(&config)?;
    if role == "server" {
        serve(libos)
    } else {
        ask(libos)
    }
}

/// Sends each message back to where it came from, until the program is ended.
fn serve(mut libos: LibOS) -> Result<(), Box<dyn Error>> {
    let qd = libos.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    libos.bind(qd, Addr::new(Ip::UNSPECIFIED_V4, SERVER.port))?;
    println!("ready");
    loop {
        let pop = libos.pop(qd, None)?;
        let message = wait_for_message(&mut libos, pop)?;
        let from = message.peer.ok_or("a popped message has a sender")?;
        let push = libos.pushto(qd, &message.view(), from)?;
        // The push has a reference of its own, so the message may be freed at once.
        libos.sgafree(message.handle.into())?;
        // It completes once a copy is on its way, or a long message has arrived.
        if let OperationResult::Failed(error) = libos.wait(push, None)?.result {
            eprintln!("one client went away: {error}");
        }
    }
}

/// Sends messages of several lengths and checks that they come back.
fn ask(mut libos: LibOS) -> Result<(), Box<dyn Error>> {
    // Not bound: the first push gives the socket a port of its own.
    let qd = libos.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    for len in [1, 100, 1_424, 1_425, 10_000, 100_000, 1_000_000] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let message = libos.sga_of(&bytes)?;
        let start = Instant::now();
        let push = libos.pushto(qd, &message.view(), SERVER)?;
        let pop = libos.pop(qd, None)?;
        let answer = wait_for_message(&mut libos, pop)?;
        let took = start.elapsed();
        libos.wait(push, None)?;

        if libos.sga_bytes(&answer.view())? != bytes {
            return Err(format!("{len} bytes came back changed").into());
        }
        println!("{len} bytes there and back in {took:?}");
        libos.sgafree(answer.handle.into())?;
        libos.sgafree(message.handle.into())?;
    }
    Ok(())
}

/// The message that a pop brings.
fn wait_for_message(libos: &mut LibOS, pop: QToken) -> Result<Sga, Box<dyn Error>> {
    match libos.wait(pop, None)?.result {
        OperationResult::Pop(sga) => Ok(sga),
        other => Err(format!("the pop ended with {other:?}").into()),
    }
}
