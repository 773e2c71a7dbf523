//! What the transport takes from the allocator: how much for each peer and RPC, and nothing at all
//! for one more RPC once it is warm.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use demihoma::addr::{Addr, Ip, LinkId, Meta};
use demihoma::device::{Caps, Checksums, Device, NET_ROOM, RX_BURST, RxMeta, TX_BURST, TxMeta};
use demihoma::error::Error;
use demihoma::homa::{Endpoint, Event, Notify, Params, Payload, SocketKey};
use demihoma::mem::{Buf, Buffers, Region};
use demihoma::net::{self, Interface};
use demihoma::runtime::Poller;
use demihoma::session::{
    Client, ClientEvent, ClientParams, Flags, Gather, Name, PathAddr, Purpose, Server, ServerEvent,
    ServerParams,
};
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;
const SERVER_IP: Ip = Ip::v4(10, 0, 0, 2);
const MTU: u16 = 1500;

/// The system's allocator, which notes what it is asked for.
struct Counting;

// Each test is a thread, and counts for itself.
thread_local! {
    /// Bytes that were allocated, less those that were freed.
    static BYTES: Cell<isize> = const { Cell::new(0) };
    /// Allocations that were ever made, those that only grew included.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is done by the system's allocator, on the very same arguments.
unsafe impl GlobalAlloc for Counting {
    /// # Safety
    /// As the trait demands of its callers.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As the trait demands of its callers.
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn bytes() -> isize {
    BYTES.get()
}

fn zeros(len: usize) -> Buf {
    let mut buf = Buffers::new(1 << 20).alloc(len).unwrap();
    buf.make_mut().unwrap().fill(0);
    buf
}

fn endpoint(params: Params) -> (Endpoint, SocketKey) {
    let region = Region::owned(64 << 16).unwrap();
    let mut homa = Endpoint::new(params, region, Instant(0)).unwrap();
    let socket = homa.open(PORT).unwrap();
    (homa, socket)
}

fn resolve(homa: &mut Endpoint) {
    while let Some(ip) = homa.poll_unresolved() {
        homa.handle_peer_up(ip, LinkId::new(0, 7, 0));
    }
}

#[test]
fn an_idle_peer_takes_128_bytes_at_most() {
    const PEERS: u32 = 100_000;
    let (mut homa, socket) = endpoint(Params {
        peers_max: PEERS,
        ..Params::default()
    });
    let buf = zeros(100);
    let mut room = [0; 1600];
    let before = bytes();
    for n in 0..PEERS {
        let ip = Ip::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n));
        let (to, payload) = (Addr::new(ip, PORT), Payload::Buffer(buf.clone()));
        let sent = homa.send_request(Instant(0), socket, to, payload, 1, Notify::Never);
        let (rpc, _) = sent.expect("a peer more");
        resolve(&mut homa);
        assert!(homa.poll_transmit(Instant(0), &mut room).is_some());
        homa.forget(Instant(0), rpc);
    }
    let each = (bytes() - before) as f64 / f64::from(PEERS);
    println!("{each:.1} B for each idle peer");
    assert!(each <= 128.0, "{each} B for each idle peer");
}

/// One million RPCs of 100 B whose requests went out; the bytes themselves, which are the
/// user's, are shared and do not count.
#[test]
fn a_live_small_rpc_takes_512_bytes_at_most() {
    const RPCS: u32 = 1_000_000;
    let (mut homa, socket) = endpoint(Params {
        rpcs_max: 1 << 20,
        ..Params::default()
    });
    let (buf, to) = (zeros(100), Addr::new(SERVER_IP, PORT));
    let mut room = [0; 1600];
    let before = bytes();
    for tag in 0..RPCS {
        let payload = Payload::Buffer(buf.clone());
        let sent = homa.send_request(Instant(0), socket, to, payload, tag.into(), Notify::Never);
        assert!(sent.is_ok(), "{sent:?}");
        resolve(&mut homa);
        assert!(homa.poll_transmit(Instant(0), &mut room).is_some());
    }
    assert_eq!(homa.rpc_count(), RPCS as usize);
    let each = (bytes() - before) as f64 / f64::from(RPCS);
    println!("{each:.1} B for each live RPC");
    assert!(each <= 512.0, "{each} B for each live RPC");
}

/// A NIC whose frames are made once and used again, so that it allocates nothing itself.
struct Nic {
    number: u8,
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    idle: Vec<Vec<u8>>,
    slot: Vec<u8>,
    committed: usize,
}

impl Nic {
    fn new(number: u8) -> Self {
        Self {
            number,
            received: VecDeque::new(),
            sent: VecDeque::new(),
            idle: Vec::new(),
            slot: vec![0; NET_ROOM + usize::from(MTU)],
            committed: 0,
        }
    }
}

impl Device for Nic {
    fn caps(&self) -> Caps {
        Caps {
            mac: [2, 0, 0, 0, 0, self.number],
            mtu: MTU,
            link_mbps: 25_000,
        }
    }

    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, mut sink: S) -> usize {
        let count = self.received.len().min(RX_BURST);
        for frame in self.received.drain(..count) {
            let checksums = Checksums::Unknown;
            sink(&frame, RxMeta { checksums });
            self.idle.push(frame);
        }
        count
    }

    fn tx_room(&self) -> usize {
        TX_BURST - self.committed
    }

    fn tx_slot(&mut self) -> &mut [u8] {
        &mut self.slot
    }

    fn tx_commit(&mut self, frame: Range<usize>, _meta: TxMeta) {
        let idle = self.idle.pop();
        let mut sent = idle.unwrap_or_else(|| Vec::with_capacity(self.slot.len()));
        sent.clear();
        sent.extend_from_slice(&self.slot[frame]);
        self.sent.push_back(sent);
        self.committed += 1;
    }

    fn flush(&mut self) {
        self.committed = 0;
    }
}

/// A client and a server that echoes, joined back to back.
struct Pair {
    now: Instant,
    hosts: [Poller<Nic>; 2],
    socket: SocketKey,
    buffers: Buffers,
    /// One frame in so many gets lost; 0 for none.
    loses_each: u32,
    carried: u32,
}

impl Pair {
    fn new() -> Self {
        let mut hosts = [1, 2].map(|number| {
            let interface = Interface {
                ip: Ip::v4(10, 0, 0, number),
                prefix: 24,
            };
            let net = net::Params {
                addresses: vec![interface],
                ..net::Params::default()
            };
            let params = Params {
                seed: number.into(),
                finished_max: 4096,
                ..Params::default()
            };
            let region = Region::owned(64 << 16).unwrap();
            Poller::new(Nic::new(number), net, params, region, Instant(0)).unwrap()
        });
        let socket = hosts[0].homa().open(0).unwrap();
        let server = hosts[1].homa().open(PORT).unwrap();
        hosts[1].homa().set_server(server, true);
        Self {
            now: Instant(0),
            hosts,
            socket,
            buffers: Buffers::new(16 << 20),
            loses_each: 0,
            carried: 0,
        }
    }

    /// One RPC of `len` bytes there and back.
    fn call(&mut self, len: usize) {
        let (to, buf) = (Addr::new(SERVER_IP, PORT), self.buffers.alloc(len).unwrap());
        let payload = Payload::Buffer(buf);
        let (now, socket) = (self.now, self.socket);
        let client = self.hosts[0].homa();
        let sent = client.send_request(now, socket, to, payload, 1, Notify::Never);
        assert!(sent.is_ok(), "{sent:?}");
        let mut is_done = false;
        let mut turns = 0;
        while !is_done {
            turns += 1;
            assert!(turns < 100_000, "an RPC of {len} B hangs");
            let now = self.now;
            self.hosts[0].turn_with(now, |homa, event| {
                is_done |= finish(now, homa, event, len);
            });
            self.hosts[1].turn_with(now, |homa, event| echo(now, homa, event));
            self.carry();
        }
    }

    fn carry(&mut self) {
        self.now += Duration::micros(1);
        let [client, server] = &mut self.hosts;
        let (client, server) = (client.device_mut(), server.device_mut());
        let mut carry = |from: &mut Nic, to: &mut Nic| {
            while let Some(frame) = from.sent.pop_front() {
                self.carried += 1;
                match self.loses_each > 0 && self.carried.is_multiple_of(self.loses_each) {
                    true => from.idle.push(frame),
                    false => to.received.push_back(frame),
                }
            }
        };
        carry(client, server);
        carry(server, client);
        // Frames travel, and the side that sends more must not need new ones.
        for (from, to) in [(0, 1), (1, 0)] {
            let idle = |hosts: &[Poller<Nic>; 2], at: usize| hosts[at].device().idle.len();
            while idle(&self.hosts, from) > idle(&self.hosts, to) + 1 {
                let frame = self.hosts[from].device_mut().idle.pop();
                self.hosts[to].device_mut().idle.extend(frame);
            }
        }
    }
}

fn finish(now: Instant, homa: &mut Endpoint, event: Event, len: usize) -> bool {
    let Event::Response { message, .. } = event else {
        panic!("the client was told {event:?}");
    };
    assert_eq!(message.len as usize, len);
    assert!(homa.release(now, message.run));
    true
}

fn echo(now: Instant, homa: &mut Endpoint, event: Event) {
    let Event::Request { rpc, .. } = event else {
        panic!("the server was told {event:?}");
    };
    let message = homa.take(rpc).expect("a request that is there");
    let (run, start, len) = (message.run, 0, message.len);
    let payload = Payload::Received { run, start, len };
    let replied = homa.send_response(now, rpc, payload, Notify::Never);
    assert_eq!(replied, Ok::<(), Error>(()));
    assert!(homa.release(now, run));
}

/// Allocations in `rpcs` RPCs of that length, after as many to warm up.
fn allocations(pair: &mut Pair, len: usize, rpcs: u32) -> usize {
    (0..rpcs).for_each(|_| pair.call(len));
    let before = ALLOCATIONS.get();
    (0..rpcs).for_each(|_| pair.call(len));
    ALLOCATIONS.get() - before
}

#[test]
fn an_rpc_allocates_nothing_once_all_is_warm() {
    let mut pair = Pair::new();
    for len in [1, 100, 1_400, 10_000, 100_000] {
        let made = allocations(&mut pair, len, 500);
        assert_eq!(made, 0, "in 500 RPCs of {len} B");
    }
}

/// One frame in 23 gets lost: holes, RESENDs and what is owed again find their memory there. (Only
/// who must wait for his turn to ask stands in a line that is made for that.)
#[test]
fn losses_allocate_nothing_once_all_is_warm() {
    let mut pair = Pair::new();
    pair.loses_each = 23;
    for len in [100, 10_000, 100_000] {
        let made = allocations(&mut pair, len, 100);
        assert_eq!(made, 0, "in 100 RPCs of {len} B");
    }
    assert!(pair.hosts[1].endpoint().stats().retransmits_out > 100);
}

/// Idle spells, in which the server asks for acks, change nothing.
#[test]
fn pauses_allocate_nothing_either() {
    let mut pair = Pair::new();
    let mut made = 0;
    for round in 0..20 {
        let before = ALLOCATIONS.get();
        (0..20).for_each(|_| pair.call(50_000));
        // The acks that wait are asked for.
        for _ in 0..20_000 {
            let now = pair.now;
            pair.hosts[0].turn_with(now, |_, event| panic!("{event:?}"));
            pair.hosts[1].turn_with(now, |_, event| panic!("{event:?}"));
            pair.carry();
        }
        if round >= 10 {
            made += ALLOCATIONS.get() - before;
        }
    }
    assert!(pair.hosts[1].endpoint().stats().need_acks_out > 0);
    assert_eq!(made, 0);
}

/// A session upon two endpoints whose packets are passed by hand.
struct Session {
    now: Instant,
    near: Endpoint,
    far: Endpoint,
    client: Client,
    server: Server,
    room: Vec<u8>,
}

impl Session {
    fn new() -> Self {
        let (now, params) = (Instant(0), Params::default());
        let endpoint = || {
            let region = Region::owned(1024 << 16).unwrap();
            Endpoint::new(params.clone(), region, now).unwrap()
        };
        let (mut near, mut far) = (endpoint(), endpoint());
        let path = PathAddr::parse(b"ip:10.0.0.2").unwrap();
        let name = Name::new(b"disk").unwrap();
        let params = ClientParams::new(name, PORT, vec![path]);
        let client = Client::open(now, &mut near, params).unwrap();
        let server = Server::open(now, &mut far, ServerParams::new(PORT, 1, 1)).unwrap();
        let mut session = Self {
            now,
            near,
            far,
            client,
            server,
            room: vec![0; 1600],
        };
        while session.client.poll_event() != Some(ClientEvent::Opened { status: 0 }) {
            session.turn();
        }
        session
    }

    fn turn(&mut self) {
        self.now += Duration::nanos(500);
        let (now, near, far) = (self.now, &mut self.near, &mut self.far);
        let (client, server) = (&mut self.client, &mut self.server);
        let ips = (Ip::v4(10, 0, 0, 1), SERVER_IP);
        client.poll(now, near);
        pass(now, (near, far), ips, &mut self.room, |homa, event| {
            server.handle_event(now, homa, event);
        });
        server.poll(now, far);
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Connecting { session } => {
                    server.accept(now, far, session).unwrap();
                }
                ServerEvent::Request { op, .. } => server.respond(now, far, op, 0, 4096).unwrap(),
                event => panic!("{event:?}"),
            }
        }
        let ips = (ips.1, ips.0);
        pass(now, (far, near), ips, &mut self.room, |homa, event| {
            client.handle_event(now, homa, event);
        });
    }

    fn request(&mut self, is_write: bool, data: &[u8]) {
        let permit = self.client.get_permit(Purpose::Io).unwrap();
        let (now, near, flags) = (self.now, &mut self.near, Flags::default());
        let user: &[&[u8]] = &[b"sector 7"];
        let bytes = Gather {
            user,
            data: &[data],
        };
        let taken = match is_write {
            true => self.client.write(now, near, permit, bytes, flags, 1),
            false => self.client.read(now, near, permit, user, 4096, flags, 1),
        };
        assert_eq!(taken, Ok(()));
        loop {
            self.turn();
            if let Some(ClientEvent::Completed { completion, .. }) = self.client.poll_event() {
                if let Some(data) = completion.data {
                    assert!(self.near.release(now, data.run));
                }
                return self.client.put_permit(permit).unwrap();
            }
        }
    }
}

fn pass(
    now: Instant,
    (from, to): (&mut Endpoint, &mut Endpoint),
    (from_ip, to_ip): (Ip, Ip),
    room: &mut [u8],
    mut tell: impl FnMut(&mut Endpoint, Event),
) {
    from.handle_timeout(now);
    resolve(from);
    while let Some(sent) = from.poll_transmit(now, room) {
        let packet = &room[..usize::from(sent.len.get())];
        let meta = Meta {
            from: from_ip,
            to: to_ip,
        };
        let _ = to.handle_packet(now, meta, packet, &mut tell);
    }
    while let Some(event) = to.poll_event() {
        tell(to, event);
    }
}

/// WRITEs and READs of 4 KiB in turn. Their memory was set aside when the session was opened, or
/// is used again.
#[test]
fn no_request_of_a_session_allocates_once_all_is_warm() {
    let (mut session, data) = (Session::new(), [7; 4096]);
    (0..5_000).for_each(|nth| session.request(nth % 2 == 0, &data));
    let before = ALLOCATIONS.get();
    (0..10_000).for_each(|nth| session.request(nth % 2 == 0, &data));
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
