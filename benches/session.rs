//! What a session adds to an RPC: two endpoints whose packets are passed by hand, once with a
//! client and a server of sessions upon them and once without.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use demihoma::addr::{Addr, Ip, LinkId, Meta};
use demihoma::homa::{Endpoint, Event, Notify, Params, Payload, SocketKey};
use demihoma::mem::{Buf, Buffers, Region};
use demihoma::session::{
    Client, ClientEvent, ClientParams, Flags, Gather, Name, PathAddr, Purpose, Server, ServerEvent,
    ServerParams,
};
use demihoma::time::{Duration, Instant};

const CLIENT: Ip = Ip::v4(10, 0, 0, 1);
const SERVER: Ip = Ip::v4(10, 0, 0, 2);
const SESSION_PORT: u16 = 99;
const RAW_PORT: u16 = 98;
const LEN: u32 = 4096;

struct Pair {
    now: Instant,
    homa: [Endpoint; 2],
    client: Client,
    server: Server,
    raw: SocketKey,
    raw_server: SocketKey,
    buffers: Buffers,
    room: Vec<u8>,
}

fn endpoint(seed: u64) -> Endpoint {
    let params = Params {
        seed,
        ..Params::default()
    };
    let region = Region::owned(256 << 20).expect("address space is there");
    Endpoint::new(params, region, Instant(0)).expect("the defaults are good")
}

impl Pair {
    fn new() -> Self {
        let now = Instant(0);
        let mut homa = [endpoint(1), endpoint(2)];
        let path = PathAddr {
            source: Some(CLIENT),
            destination: SERVER,
        };
        let name = Name::new(b"bench").expect("a good name");
        let params = ClientParams::new(name, SESSION_PORT, vec![path]);
        let client = Client::open(now, &mut homa[0], params).expect("good params");
        let params = ServerParams::new(SESSION_PORT, 1, 1);
        let server = Server::open(now, &mut homa[1], params).expect("good params");
        let raw = homa[0].open(0).expect("a port is free");
        let raw_server = homa[1].open(RAW_PORT).expect("the port is free");
        homa[1].set_server(raw_server, true);
        let mut pair = Self {
            now,
            homa,
            client,
            server,
            raw,
            raw_server,
            buffers: Buffers::new(1 << 20),
            room: vec![0; 1480],
        };
        while pair.client.poll_event() != Some(ClientEvent::Opened { status: 0 }) {
            pair.turn();
        }
        pair
    }

    /// Passes what there is to pass; tells whether a raw RPC has ended.
    fn turn(&mut self) -> bool {
        self.now += Duration::micros(1);
        let now = self.now;
        let [near, far] = &mut self.homa;
        self.client.poll(now, near);
        let (server, raw_server) = (&mut self.server, self.raw_server);
        let reply = self.buffers.alloc(64).expect("it is given back");
        carry(
            now,
            near,
            far,
            (CLIENT, SERVER),
            &mut self.room,
            |homa, event| match event {
                Event::Request { socket, rpc } if socket == raw_server => {
                    answer(now, homa, rpc, &reply);
                }
                event => server.handle_event(now, homa, event),
            },
        );
        server.poll(now, far);
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Connecting { session } => {
                    server.accept(now, far, session).expect("it waits for that");
                }
                ServerEvent::Request { op, .. } => {
                    server
                        .respond(now, far, op, 0, LEN)
                        .expect("it was just told");
                }
                _ => {}
            }
        }
        let (client, raw, mut is_over) = (&mut self.client, self.raw, false);
        carry(
            now,
            far,
            near,
            (SERVER, CLIENT),
            &mut self.room,
            |homa, event| match event {
                Event::Response {
                    socket, message, ..
                } if socket == raw => {
                    homa.release(now, message.run);
                    is_over = true;
                }
                event => client.handle_event(now, homa, event),
            },
        );
        is_over
    }

    fn request(&mut self, is_write: bool, data: &[u8]) {
        let permit = self.client.get_permit(Purpose::Io).expect("all are free");
        let (now, near, flags) = (self.now, &mut self.homa[0], Flags::default());
        let user: &[&[u8]] = &[b"sector 7"];
        let taken = if is_write {
            let bytes = Gather {
                user,
                data: &[data],
            };
            self.client.write(now, near, permit, bytes, flags, 0)
        } else {
            self.client.read(now, near, permit, user, LEN, flags, 0)
        };
        taken.expect("a path is up");
        loop {
            self.turn();
            while let Some(event) = self.client.poll_event() {
                if let ClientEvent::Completed { completion, .. } = event {
                    assert_eq!(completion.status, 0);
                    if let Some(data) = completion.data {
                        self.homa[0].release(self.now, data.run);
                    }
                    self.client.put_permit(permit).expect("its request is over");
                    return;
                }
            }
        }
    }

    /// The same bytes as a WRITE's, without a session, copied into a buffer as a session does.
    fn raw(&mut self, data: &[u8]) {
        let to = Addr::new(SERVER, RAW_PORT);
        let mut buf = self
            .buffers
            .alloc(72 + data.len())
            .expect("it is given back");
        buf.make_mut().expect("it is new")[72..].copy_from_slice(data);
        let payload = Payload::Buffer(buf);
        self.homa[0]
            .send_request(self.now, self.raw, to, payload, 0, Notify::Never)
            .expect("RPCs are free");
        while !self.turn() {}
    }
}

fn answer(now: Instant, homa: &mut Endpoint, rpc: demihoma::homa::RpcKey, reply: &Buf) {
    if let Some(message) = homa.take(rpc) {
        homa.release(now, message.run);
        let payload = Payload::Buffer(reply.clone());
        homa.send_response(now, rpc, payload, Notify::Never)
            .expect("it is in service");
    }
}

fn carry(
    now: Instant,
    from: &mut Endpoint,
    to: &mut Endpoint,
    (from_ip, to_ip): (Ip, Ip),
    room: &mut [u8],
    mut tell: impl FnMut(&mut Endpoint, Event),
) {
    from.handle_timeout(now);
    while let Some(ip) = from.poll_unresolved() {
        from.handle_peer_up(ip, LinkId::new(0, 0, 0));
    }
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

fn session(criterion: &mut Criterion) {
    let (mut pair, data) = (Pair::new(), vec![7; LEN as usize]);
    let mut group = criterion.benchmark_group("session");
    group.throughput(Throughput::Elements(1));
    group.bench_function("permit_get_put", |bencher| {
        bencher.iter(|| {
            let permit = pair.client.get_permit(Purpose::Io).expect("all are free");
            pair.client.put_permit(permit)
        });
    });
    group.bench_function("raw_4k", |bencher| bencher.iter(|| pair.raw(&data)));
    group.bench_function("write_4k", |bencher| {
        bencher.iter(|| pair.request(true, &data));
    });
    group.bench_function("read_4k", |bencher| {
        bencher.iter(|| pair.request(false, &data));
    });
    group.finish();
}

criterion_group!(benches, session);
criterion_main!(benches);
