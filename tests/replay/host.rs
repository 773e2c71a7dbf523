//! Our side of a replay: the production loop over a virtual NIC, and an application that does what
//! it is told.

use std::collections::BTreeMap;

use demihoma::addr::{Addr, Ip};
use demihoma::error::Error;
use demihoma::homa::{self, BPAGE_LEN, Event, Message, Notify, Payload, RpcKey, SocketKey};
use demihoma::mem::{Buf, Buffers, Region};
use demihoma::net::{self, Interface};
use demihoma::runtime::Poller;
use demihoma::sim::Nic;
use demihoma::time::{Duration, Instant};

/// Bytes of receive memory, in pages: the module's default of 64 MiB is more than any RPC here
/// needs, and half of it still is.
const PAGES: usize = 512;

const MTU: u16 = 1500;
const LINK_MBPS: u32 = 25_000;

/// One computer of ours.
pub struct Host {
    pub poller: Poller<Nic>,
    pub now: Instant,
    server: Option<SocketKey>,
    client: Option<SocketKey>,
    buffers: Buffers,
    /// Requests in service, by id as we know it.
    serving: BTreeMap<u64, Message>,
    /// How often each request was handed to the application.
    pub runs: BTreeMap<u64, u32>,
    /// Client RPCs, by id.
    calls: BTreeMap<u64, RpcKey>,
    /// Responses that nobody looked at.
    unseen: Vec<Message>,
    /// How client RPCs ended.
    pub outcomes: BTreeMap<u64, Result<Vec<u8>, Error>>,
    /// The application does not look for responses.
    pub is_away: bool,
}

impl Host {
    pub fn new(now: Instant, ip: Ip, params: homa::Params) -> Self {
        let net = net::Params {
            addresses: vec![Interface { ip, prefix: 24 }],
            announce: false,
            ..net::Params::default()
        };
        let region = Region::owned(PAGES * BPAGE_LEN as usize).unwrap();
        let nic = Nic::new(7, MTU, LINK_MBPS);
        Self {
            poller: Poller::new(nic, net, params, region, now).unwrap(),
            now,
            server: None,
            client: None,
            buffers: Buffers::new(64 << 20),
            serving: BTreeMap::new(),
            runs: BTreeMap::new(),
            calls: BTreeMap::new(),
            unseen: Vec::new(),
            outcomes: BTreeMap::new(),
            is_away: false,
        }
    }

    /// Begins to take requests on `port`.
    pub fn listen(&mut self, port: u16) {
        let socket = self.poller.homa().open(port).unwrap();
        self.poller.homa().set_server(socket, true);
        self.server = Some(socket);
    }

    pub fn is_listening(&self) -> bool {
        self.server.is_some()
    }

    /// The application is gone, though the host lives.
    pub fn close(&mut self) {
        for socket in [self.server.take(), self.client.take()]
            .into_iter()
            .flatten()
        {
            self.poller.homa().close(self.now, socket);
        }
        for message in std::mem::take(&mut self.serving).into_values() {
            self.poller.homa().release(self.now, message.run);
        }
    }

    /// Starts a client RPC, and tells its port and id.
    pub fn call(&mut self, to: Addr, request: &[u8]) -> (u16, u64) {
        let payload = self.payload(request);
        let homa = self.poller.homa();
        let socket = *self.client.get_or_insert_with(|| homa.open(0).unwrap());
        let port = homa.port(socket).unwrap();
        let called = homa.send_request(self.now, socket, to, payload, 0, Notify::Never);
        let (key, id) = called.unwrap();
        self.calls.insert(id.0, key);
        (port, id.0)
    }

    /// Gives a client RPC up.
    pub fn abort(&mut self, id: u64) {
        let key = self.calls[&id];
        self.poller.homa().abort(self.now, key, Error::Canceled);
    }

    /// The request of that id, if it is here whole and not answered.
    pub fn request(&self, id: u64) -> Option<Vec<u8>> {
        self.serving.get(&id).map(|message| self.bytes(message))
    }

    pub fn reply(&mut self, id: u64, response: &[u8]) {
        let message = self.serving.remove(&id).unwrap();
        let payload = self.payload(response);
        let homa = self.poller.homa();
        homa.send_response(self.now, message.rpc, payload, Notify::Never)
            .unwrap();
        assert!(homa.release(self.now, message.run));
    }

    pub fn deliver(&mut self, frame: Vec<u8>) {
        self.poller.device_mut().deliver(frame);
    }

    /// Turns the loop until there is nothing to do at this moment; gives what was sent.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            let mut events = Vec::new();
            let received = self
                .poller
                .turn_with(self.now, |_, event| events.push(event));
            let is_idle = received == 0 && events.is_empty();
            events.into_iter().for_each(|event| self.hear(event));
            self.poller.endpoint().check();
            let before = sent.len();
            sent.extend(std::iter::from_fn(|| self.poller.device_mut().take_sent()));
            if is_idle && sent.len() == before {
                return sent;
            }
        }
    }

    /// Lets time pass until something is due, but not beyond `end`; gives what was sent then.
    pub fn pass(&mut self, end: Instant) -> Vec<Vec<u8>> {
        let due = self.poller.poll_timeout().unwrap_or(end);
        self.now = due.max(self.now + Duration::nanos(1)).min(end);
        self.turn()
    }

    /// Looks for responses again.
    pub fn come_back(&mut self) {
        self.is_away = false;
        for message in std::mem::take(&mut self.unseen) {
            self.look(message);
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Request { rpc, .. } => {
                let Some(message) = self.poller.homa().take(rpc) else {
                    return; // Its client took it back.
                };
                *self.runs.entry(message.id.0).or_default() += 1;
                self.serving.insert(message.id.0, message);
            }
            Event::Response { message, .. } if self.is_away => self.unseen.push(message),
            Event::Response { message, .. } => self.look(message),
            Event::Failed { id, error, .. } => {
                self.outcomes.insert(id.0, Err(error));
            }
            Event::Released { .. } => {}
        }
    }

    fn look(&mut self, message: Message) {
        let bytes = self.bytes(&message);
        assert!(self.poller.homa().release(self.now, message.run));
        self.outcomes.insert(message.id.0, Ok(bytes));
    }

    fn bytes(&self, message: &Message) -> Vec<u8> {
        let mut bytes = vec![0; message.len as usize];
        let region = self.poller.endpoint().region();
        region.read(message.offset as usize, &mut bytes);
        bytes
    }

    fn payload(&self, bytes: &[u8]) -> Payload {
        let mut buf: Buf = self.buffers.alloc(bytes.len()).unwrap();
        buf.make_mut().unwrap().copy_from_slice(bytes);
        Payload::Buffer(buf)
    }
}
