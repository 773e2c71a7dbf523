//! The end that answers.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{io, thread};

use demihoma::addr::{Addr, Ip};
use demihoma::dpdk::floor;
use demihoma::error::Error;
use demihoma::libos::{LibOS, OperationResult, QDesc, QToken, Sga};
use demihoma::time::Duration;

use super::{IPPROTO_HOMA, SERVER_END, SERVER_PORT, Way, open};
use crate::failure::Failure;

/// What the server was told last: a [`Way`], or that it is over.
const FLOOR: u8 = 0;
const TOKENS: u8 = 1;
const OVER: u8 = 2;

/// Answers frames or RPCs, whichever standard input says, until that ends.
pub fn run() -> Result<(), Failure> {
    // Before this thread is pinned to its core, where the other would hardly ever run.
    let told = listen();
    let mut os = open(SERVER_END)?;
    let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
    os.bind(qd, Addr::new(Ip::UNSPECIFIED_V4, SERVER_PORT))?;
    let mut pop = os.pop(qd, None)?;
    loop {
        match told.load(Ordering::Relaxed) {
            FLOOR => {
                say(Way::Floor)?;
                while told.load(Ordering::Relaxed) == FLOOR {
                    floor::pong_once(os.device_mut());
                }
            }
            TOKENS => {
                say(Way::Tokens)?;
                while told.load(Ordering::Relaxed) == TOKENS {
                    pop = serve_once(&mut os, qd, pop)?;
                }
            }
            _ => return Ok(()),
        }
    }
}

/// A thread that waits for lines, which the one that polls cannot.
fn listen() -> Arc<AtomicU8> {
    let told = Arc::new(AtomicU8::new(FLOOR));
    let teller = Arc::clone(&told);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let way = match Way::of(&line) {
                Some(Way::Floor) => FLOOR,
                Some(Way::Tokens) => TOKENS,
                None => break,
            };
            teller.store(way, Ordering::Relaxed);
        }
        teller.store(OVER, Ordering::Relaxed);
    });
    told
}

fn say(way: Way) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", way.word())?;
    Ok(out.flush()?)
}

/// Sends a request back as its response, if one is here after a turn. Gives the pop that waits for
/// the next one.
fn serve_once(os: &mut LibOS, qd: QDesc, pop: QToken) -> Result<QToken, Failure> {
    match os.wait(pop, Some(Duration::ZERO)) {
        Ok(done) => {
            if let OperationResult::Pop(request) = done.result {
                answer(os, qd, &request)?;
            }
            Ok(os.pop(qd, None)?)
        }
        Err(Error::WaitTimedOut) => Ok(pop),
        Err(error) => Err(error.into()),
    }
}

fn answer(os: &mut LibOS, qd: QDesc, request: &Sga) -> Result<(), Error> {
    let handle = request.handle.into();
    let info = os.info(handle)?;
    os.reply(qd, info.id, info.peer, &request.view(), false)?;
    os.sgafree(handle)
}
