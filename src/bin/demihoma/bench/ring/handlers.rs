//! The shortest way: requests are sent, and answered, within the turn itself.

use demihoma::device::Device;
use demihoma::dpdk::{Clock, Port};
use demihoma::error::Error;
use demihoma::homa::{Endpoint, Event, Notify, Payload, SocketKey};
use demihoma::mem::{Buf, Buffers};
use demihoma::runtime::Poller;
use demihoma::time::Instant;

use super::{Load, Pair, SERVER_PORT, homa_params, net_params, pattern, region, server};
use crate::failure::Failure;

/// Send buffers: two messages at a time.
const SEND_BYTES: usize = 4 << 20;

pub struct Handlers {
    client: Side,
    server: Side,
    socket: SocketKey,
    buffers: Buffers,
}

/// One end: a poller with its own clock, as if it had a thread of its own.
struct Side {
    poller: Poller<Port>,
    clock: Clock,
}

/// What the client's handler needs to know.
struct Client<'a> {
    load: &'a Load,
    socket: SocketKey,
    request: Buf,
    response: &'a [u8],
    started: u32,
    done: u32,
    failure: Option<Error>,
}

impl Handlers {
    pub fn new(near: Port, far: Port) -> Result<Self, Failure> {
        let (mut client, mut server) = (Side::new(near, 1)?, Side::new(far, 2)?);
        let socket = client.poller.homa().open(0)?;
        let listener = server.poller.homa().open(SERVER_PORT)?;
        server.poller.homa().set_server(listener, true);
        Ok(Self {
            client,
            server,
            socket,
            buffers: Buffers::new(SEND_BYTES),
        })
    }

    fn buffer(&self, bytes: &[u8]) -> Result<Buf, Failure> {
        Ok(self.buffers.copy_of(bytes).ok_or(Error::NoMemory)?)
    }
}

impl Pair for Handlers {
    fn run(&mut self, load: &Load) -> Result<(), Failure> {
        let (request, response) = (pattern(load.request_bytes), pattern(load.response_bytes));
        let answer = self.buffer(&response)?;
        let mut client = Client {
            load,
            socket: self.socket,
            request: self.buffer(&request)?,
            response: &response,
            started: 0,
            done: 0,
            failure: None,
        };
        let now = self.client.clock.now();
        for _ in 0..load.outstanding.min(load.rpcs) {
            client.start(now, self.client.poller.homa())?;
        }
        let mut failure = None;
        while client.done < load.rpcs {
            self.client
                .turn(|now, homa, event| client.on_event(now, homa, event));
            self.server.turn(|now, homa, event| {
                if let Err(error) = answer_with(&answer, &request, now, homa, event) {
                    failure = Some(error);
                }
            });
            if let Some(error) = client.failure.or(failure) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn packets(&self) -> u64 {
        let sent = |side: &Side| side.poller.endpoint().stats().packets_out;
        sent(&self.client) + sent(&self.server)
    }
}

impl Side {
    fn new(port: Port, end: u8) -> Result<Self, Failure> {
        let mut clock = Clock::start();
        debug_assert_ne!(port.caps().mac, [0; 6]);
        let (net, homa) = (net_params(end), homa_params(end));
        let poller = Poller::new(port, net, homa, region()?, clock.now())?;
        Ok(Self { poller, clock })
    }

    #[inline]
    fn turn(&mut self, mut app: impl FnMut(Instant, &mut Endpoint, Event)) {
        let now = self.clock.now();
        self.poller
            .turn_with(now, |homa, event| app(now, homa, event));
    }
}

impl Client<'_> {
    #[inline]
    fn start(&mut self, now: Instant, homa: &mut Endpoint) -> Result<(), Error> {
        let payload = Payload::Buffer(self.request.clone());
        homa.send_request(now, self.socket, server(), payload, 0, Notify::Never)?;
        self.started += 1;
        Ok(())
    }

    #[inline]
    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Response { message, .. } => {
                if !is_right(homa, message.offset, message.len, self.response) {
                    self.failure = Some(Error::Device);
                }
                homa.release(now, message.run);
                self.done += 1;
                if self.started < self.load.rpcs
                    && let Err(error) = self.start(now, homa)
                {
                    self.failure = Some(error);
                }
            }
            Event::Failed { error, .. } => self.failure = Some(error),
            Event::Request { .. } | Event::Released { .. } => {}
        }
    }
}

/// What the server's handler does.
#[inline]
fn answer_with(
    answer: &Buf,
    request: &[u8],
    now: Instant,
    homa: &mut Endpoint,
    event: Event,
) -> Result<(), Error> {
    let Event::Request { rpc, .. } = event else {
        return Ok(());
    };
    let Some(message) = homa.take(rpc) else {
        return Ok(());
    };
    if !is_right(homa, message.offset, message.len, request) {
        return Err(Error::Device);
    }
    homa.release(now, message.run);
    homa.send_response(now, rpc, Payload::Buffer(answer.clone()), Notify::Never)
}

/// Whether a message is as long as `expected` and begins so: small ones are read whole.
#[inline]
fn is_right(homa: &Endpoint, offset: u32, len: u32, expected: &[u8]) -> bool {
    let mut bytes = [0; super::READ_MAX];
    let read = expected.len().min(bytes.len());
    if len as usize != expected.len() {
        return false;
    }
    homa.region().read(offset as usize, &mut bytes[..read]);
    bytes[..read] == expected[..read]
}
