//! A library OS with many idle operations and one that is not.

use demihoma::addr::{Addr, Ip};
use demihoma::dpdk::{Clock, Port};
use demihoma::error::Error;
use demihoma::libos::{IPPROTO_HOMA, LibOSOver, OperationResult, Params, QDesc, QToken, Sga};
use demihoma::mem::Region;
use demihoma::time::Duration;
use demihoma::{homa, net};

use super::Call;
use crate::failure::Failure;

/// Far more than the messages of one RPC take.
const RECEIVE_BYTES: usize = 4 << 20;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Where the idle pops wait.
const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 1), 7000);

pub struct Busy {
    os: LibOSOver<Port, Clock>,
    /// Its pushes lack an address, so they end at once.
    client: QDesc,
    caller: QDesc,
    server: QDesc,
    /// The idle operations, and in their midst a place for the other one.
    tokens: Vec<QToken>,
    place: usize,
    message: Sga,
}

impl Busy {
    pub fn new(port: Port, idle: u32) -> Result<Self, Failure> {
        let net = net::Params {
            addresses: vec![net::Interface {
                ip: SERVER.ip,
                prefix: 24,
            }],
            ..net::Params::default()
        };
        let params = Params {
            // What a yield costs is not what a wait costs.
            yield_after_turns: 0,
            linger: Duration::ZERO,
            ..Params::default()
        };
        let region = Region::owned(RECEIVE_BYTES)?;
        let homa = homa::Params::default();
        let mut os = LibOSOver::over(port, Clock::start(), net, homa, params, region)?;
        let client = os.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let caller = os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
        let server = os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)?;
        os.bind(server, SERVER)?;
        let mut tokens = Vec::new();
        for _ in 0..idle {
            tokens.push(os.pop(server, None)?);
        }
        let place = tokens.len().div_ceil(2); // Not the first.
        // Until an operation takes it, another of the idle tokens stands there.
        tokens.insert(place, tokens[0]);
        let message = os.sga_of(&[7; 64])?;
        Ok(Self {
            os,
            client,
            caller,
            server,
            tokens,
            place,
            message,
        })
    }

    pub fn run(&mut self, call: Call, operations: u32) -> Result<(), Failure> {
        for _ in 0..operations {
            match call {
                Call::Wait => self.wait()?,
                Call::WaitNextN => self.wait_next_n()?,
                Call::WaitAny => self.wait_any()?,
                Call::Poll => self.poll()?,
                Call::PollAny => self.poll_any()?,
                Call::Rpc => self.rpc()?,
            }
        }
        Ok(())
    }

    /// Begins an operation that has completed already.
    #[inline]
    fn begin(&mut self) -> Result<QToken, Error> {
        self.os.push(self.client, &self.message.view())
    }

    #[inline]
    fn wait(&mut self) -> Result<(), Failure> {
        let qt = self.begin()?;
        self.os.wait(qt, None)?;
        Ok(())
    }

    #[inline]
    fn wait_next_n(&mut self) -> Result<(), Failure> {
        self.begin()?;
        self.os.wait_next_n(|_| false, None)?;
        Ok(())
    }

    #[inline]
    fn wait_any(&mut self) -> Result<(), Failure> {
        self.tokens[self.place] = self.begin()?;
        let (place, _) = self.os.wait_any(&self.tokens, None)?;
        expect(place == self.place)?;
        self.tokens[self.place] = self.tokens[0];
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<(), Failure> {
        let waited = self.os.wait(self.tokens[0], AT_ONCE);
        expect(waited == Err(Error::WaitTimedOut))
    }

    #[inline]
    fn poll_any(&mut self) -> Result<(), Failure> {
        let waited = self.os.wait_any(&self.tokens, AT_ONCE);
        expect(waited == Err(Error::WaitTimedOut))
    }

    #[inline]
    fn rpc(&mut self) -> Result<(), Failure> {
        let view = self.message.view();
        let (call, _) = self.os.call(self.caller, &view, SERVER, 0)?;
        self.tokens[self.place] = call;
        let (place, request) = self.any_message()?;
        let info = self.os.info(request.handle.into())?;
        self.os
            .reply(self.server, info.id, info.peer, &request.view(), false)?;
        self.os.sgafree(request.handle.into())?;
        self.tokens[place] = self.os.pop(self.server, None)?;
        let (place, response) = self.any_message()?;
        expect(place == self.place)?;
        self.os.sgafree(response.handle.into())?;
        self.tokens[self.place] = self.tokens[0];
        Ok(())
    }

    #[inline]
    fn any_message(&mut self) -> Result<(usize, Sga), Failure> {
        let (place, done) = self.os.wait_any(&self.tokens, None)?;
        match done.result {
            OperationResult::Pop(sga) => Ok((place, sga)),
            other => Err(Failure(format!("{other:?} where a message was awaited"))),
        }
    }
}

#[inline]
fn expect(is_so: bool) -> Result<(), Failure> {
    match is_so {
        true => Ok(()),
        false => Err(Failure("a wait gave what it should not".to_owned())),
    }
}
