//! Remote procedure calls: a call's token completes with the response, or with the error that
//! ended the call.
//!
//!     cargo run --release --example rpc -- server --config server.toml
//!     cargo run --release --example rpc -- client --config client.toml
//!
//! The procedure adds up the bytes of its argument. `config/lab.sh` makes a network to try it in;
//! the server's address there is 10.0.0.1.

use std::error::Error;
use std::path::Path;

use demihoma::addr::{Addr, Ip};
use demihoma::config::Config;
use demihoma::libos::{IPPROTO_HOMA, LibOS, OperationResult, QToken, Sga};

const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 1), 10_008);

/// Calls under way at once.
const OUTSTANDING: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let &[role @ ("server" | "client"), "--config", file] = &words[..] else {
        return Err("usage: rpc server|client --config FILE".into());
    };
    let config = Config::load(Some(Path::new(file)))?;
    let libos = LibOS::new(&config)?;
    if role == "server" {
        serve(libos)
    } else {
        ask(libos)
    }
}

/// Answers requests until the program is ended.
fn serve(mut libos: LibOS) -> Result<(), Box<dyn Error>> {
    let qd = libos.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
    libos.bind(qd, Addr::new(Ip::UNSPECIFIED_V4, SERVER.port))?;
    println!("ready");
    loop {
        let pop = libos.pop(qd, None)?;
        let OperationResult::Pop(request) = libos.wait(pop, None)?.result else {
            return Err("a pop failed".into());
        };
        let info = libos.info(request.handle.into())?;
        let sum = sum(&bytes_of(&mut libos, request)?);
        let response = libos.sga_of(&sum.to_be_bytes())?;
        // No token: nobody wants to know when the response's bytes may be overwritten.
        libos.reply(qd, info.id, info.peer, &response.view(), false)?;
        // The reply has what it needs, so the buffer may be freed at once.
        libos.sgafree(response.handle.into())?;
    }
}

/// Calls with arguments of growing length, several at a time, and checks the results.
fn ask(mut libos: LibOS) -> Result<(), Box<dyn Error>> {
    let qd = libos.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
    let mut lengths = (0..1_000).map(|number| 1 + number * 37);
    let mut expected: Vec<u64> = Vec::new();
    let mut calls: Vec<QToken> = Vec::new();
    let mut done = 0;
    loop {
        while calls.len() < OUTSTANDING
            && let Some(len) = lengths.next()
        {
            let argument: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let request = libos.sga_of(&argument)?;
            // The cookie comes back with the response and tells which call it answers.
            let cookie = expected.len() as u64;
            let (call, _) = libos.call(qd, &request.view(), SERVER, cookie)?;
            libos.sgafree(request.handle.into())?;
            expected.push(sum(&argument));
            calls.push(call);
        }
        if calls.is_empty() {
            println!("{done} calls, all results right");
            return Ok(());
        }
        // No timeout is needed: each call ends, if need be with an error.
        let (place, result) = libos.wait_any(&calls, None)?;
        calls.swap_remove(place);
        match result.result {
            OperationResult::Pop(response) => {
                let info = libos.info(response.handle.into())?;
                let right = expected[info.cookie as usize].to_be_bytes();
                if bytes_of(&mut libos, response)? != right {
                    return Err(format!("call {} has a wrong result", info.cookie).into());
                }
                done += 1;
            }
            OperationResult::Failed(error) => return Err(error.into()),
            other => return Err(format!("a call ended with {other:?}").into()),
        }
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().copied().map(u64::from).sum()
}

/// A message's bytes; the message itself is freed.
fn bytes_of(libos: &mut LibOS, message: Sga) -> Result<Vec<u8>, demihoma::error::Error> {
    let bytes = libos.sga_bytes(&message.view())?.to_vec();
    libos.sgafree(message.handle.into())?;
    Ok(bytes)
}
