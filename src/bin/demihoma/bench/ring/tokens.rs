//! What applications use: call, pop, reply and wait, on two library OSes.

use demihoma::dpdk::{Clock, Port};
use demihoma::error::Error;
use demihoma::homa::Stats;
use demihoma::libos::{LibOSOver, OperationResult, Params, QDesc, QToken, Sga};
use demihoma::time::Duration;

use super::{Load, Pair, READ_MAX, homa_params, net_params, pattern, region, server};
use crate::failure::Failure;

/// Source: IANA, and HomaModule homa.h `IPPROTO_HOMA`.
const IPPROTO_HOMA: i32 = 146;

pub struct Tokens {
    client: Side,
    server: Side,
}

struct Side {
    os: LibOSOver<Port, Clock>,
    qd: QDesc,
    pending: Round,
}

/// Calls or pops under way, in the order they were made: whichever is over is followed by another
/// in its place, or by none.
#[derive(Default)]
struct Round {
    places: Vec<Option<QToken>>,
    /// Where the oldest is, if there is any.
    oldest: usize,
}

/// What one window sends and expects.
struct Window<'a> {
    load: &'a Load,
    request: Vec<u8>,
    response: Vec<u8>,
    /// What is sent: always the same buffer, which each message on its way refers to.
    ask: Sga,
    answer: Sga,
    started: u32,
    done: u32,
}

impl Tokens {
    pub fn new(near: Port, far: Port) -> Result<Self, Failure> {
        let (client, mut service) = (Side::new(near, 1)?, Side::new(far, 2)?);
        service.os.bind(service.qd, server())?;
        Ok(Self {
            client,
            server: service,
        })
    }

    /// Waits for responses, as many as may be here, and calls again for each.
    fn client_step(&mut self, window: &mut Window) -> Result<(), Failure> {
        let side = &mut self.client;
        let mut left = window.load.outstanding;
        while left > 0 || has_unsent(side) {
            let Some(response) = side.wait_first()? else {
                return Ok(());
            };
            side.take(&response, &window.response)?;
            window.done += 1;
            left = left.saturating_sub(1);
            let next = window.call(side)?;
            side.pending.replace(next);
        }
        Ok(())
    }

    /// Waits for requests, as many as may be here, and answers each.
    fn server_step(&mut self, window: &Window) -> Result<(), Failure> {
        let side = &mut self.server;
        let mut left = window.load.outstanding;
        while left > 0 || has_unsent(side) {
            let Some(request) = side.wait_first()? else {
                return Ok(());
            };
            left = left.saturating_sub(1);
            let info = side.os.info(request.handle.into())?;
            side.take(&request, &window.request)?;
            let answer = window.answer.view();
            side.os.reply(side.qd, info.id, info.peer, &answer, false)?;
            let next = side.os.pop(side.qd, None)?;
            side.pending.replace(Some(next));
        }
        Ok(())
    }
}

impl Pair for Tokens {
    fn run(&mut self, load: &Load) -> Result<(), Failure> {
        let (request, response) = (pattern(load.request_bytes), pattern(load.response_bytes));
        let mut window = Window {
            load,
            ask: self.client.os.sga_of(&request)?,
            answer: self.server.os.sga_of(&response)?,
            request,
            response,
            started: 0,
            done: 0,
        };
        for _ in self.server.pending.places.len()..load.outstanding as usize {
            let side = &mut self.server;
            side.pending.add(side.os.pop(side.qd, None)?);
        }
        self.client.pending = Round::default(); // Nothing is under way.
        for _ in 0..load.outstanding {
            if let Some(qt) = window.call(&mut self.client)? {
                self.client.pending.add(qt);
            }
        }
        while window.done < load.rpcs {
            self.client_step(&mut window)?;
            self.server_step(&window)?;
        }
        self.client.os.sgafree(window.ask.handle.into())?;
        self.server.os.sgafree(window.answer.handle.into())?;
        Ok(())
    }

    fn packets(&self) -> u64 {
        stats(&self.client).packets_out + stats(&self.server).packets_out
    }
}

impl Window<'_> {
    /// The next call, if there is one left.
    #[inline]
    fn call(&mut self, side: &mut Side) -> Result<Option<QToken>, Error> {
        if self.started == self.load.rpcs {
            return Ok(None);
        }
        self.started += 1;
        let (qt, _) = side.os.call(side.qd, &self.ask.view(), server(), 0)?;
        Ok(Some(qt))
    }
}

impl Round {
    /// Adds one more, the newest.
    fn add(&mut self, qt: QToken) {
        self.places.insert(self.oldest, Some(qt));
        self.turn();
    }

    /// The oldest.
    #[inline]
    fn oldest(&self) -> Option<QToken> {
        self.places.get(self.oldest).copied().flatten()
    }

    /// The oldest is over, and `next` followed it.
    #[inline]
    fn replace(&mut self, next: Option<QToken>) {
        self.places[self.oldest] = next;
        self.turn();
    }

    #[inline]
    fn turn(&mut self) {
        self.oldest += 1;
        if self.oldest == self.places.len() {
            self.oldest = 0;
        }
    }
}

impl Side {
    fn new(port: Port, end: u8) -> Result<Self, Failure> {
        let params = Params {
            seed: end.into(),
            // The other end is turned by this thread too, so there is nobody to give way to.
            yield_after_turns: 0,
            linger: Duration::ZERO,
            ..Params::default()
        };
        let (net, homa) = (net_params(end), homa_params(end));
        let mut os = LibOSOver::over(port, Clock::start(), net, homa, params, region()?)?;
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
        Ok(Self {
            os,
            qd,
            pending: Round::default(),
        })
    }

    /// The message of the oldest token, if it is here after at most one turn.
    #[inline(always)]
    fn wait_first(&mut self) -> Result<Option<Sga>, Failure> {
        // With nothing to wait for, a token that never was one would be an error: look again later.
        let Some(first) = self.pending.oldest() else {
            return Ok(None);
        };
        let done = match self.os.wait(first, Some(Duration::ZERO)) {
            Ok(done) => done,
            Err(Error::WaitTimedOut) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match done.result {
            OperationResult::Pop(sga) => Ok(Some(sga)),
            OperationResult::Failed(error) => Err(error.into()),
            other => Err(Failure(format!("{other:?} where a message was awaited"))),
        }
    }

    /// Reads a message (only the beginning of a long one), and frees it.
    #[inline(always)]
    fn take(&mut self, sga: &Sga, expected: &[u8]) -> Result<(), Failure> {
        let bytes = self.os.sga_bytes(&sga.view())?;
        let read = bytes.len().min(READ_MAX);
        if bytes.len() != expected.len() || bytes[..read] != expected[..read] {
            return Err(Failure("a message arrived changed".to_owned()));
        }
        Ok(self.os.sgafree(sga.handle.into())?)
    }
}

fn stats(side: &Side) -> &Stats {
    side.os.poller().endpoint().stats()
}

/// Whether a small message waits for the next turn: then that turn is worth making before the
/// other end has its own.
fn has_unsent(side: &Side) -> bool {
    let stats = stats(side);
    side.pending.oldest().is_some() && stats.requests + stats.responses_out > stats.data_out
}
