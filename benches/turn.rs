//! What an RPC costs the transport alone: two endpoints whose packets are passed by hand, without
//! network layer and device.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use demihoma::addr::{Addr, Ip, LinkId, Meta};
use demihoma::homa::{Endpoint, Event, Notify, Params, Payload, SocketKey, Verdict};
use demihoma::mem::{Buf, Buffers, Region};
use demihoma::time::Instant;

const CLIENT: Ip = Ip::v4(10, 0, 0, 1);
const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 2), 99);

struct Pair {
    client: Endpoint,
    server: Endpoint,
    socket: SocketKey,
    now: Instant,
    room: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let now = Instant(0);
        let endpoint = |seed| {
            let params = Params {
                seed,
                ..Params::default()
            };
            let region = Region::owned(16 << 20).expect("16 MiB are there");
            Endpoint::new(params, region, now).expect("the defaults are good")
        };
        let (mut client, mut server) = (endpoint(1), endpoint(2));
        let socket = client.open(0).expect("a port is free");
        let listener = server.open(SERVER.port).expect("the port is free");
        server.set_server(listener, true);
        let room = vec![0; usize::from(client.params().packet_max)];
        Self {
            client,
            server,
            socket,
            now,
            room,
        }
    }

    /// One RPC, from the request to the response taken.
    fn exchange(&mut self, request: &Buf, response: &Buf) {
        self.now.0 += 1_000; // Far less than a tick.
        let (now, payload) = (self.now, Payload::Buffer(request.clone()));
        self.client
            .send_request(now, self.socket, SERVER, payload, 0, Notify::Never)
            .expect("RPCs are free");
        loop {
            while let Some(ip) = self.client.poll_unresolved() {
                self.client.handle_peer_up(ip, LinkId::new(0, 0, 0));
            }
            while let Some(ip) = self.server.poll_unresolved() {
                self.server.handle_peer_up(ip, LinkId::new(0, 0, 0));
            }
            pass(
                now,
                &mut self.client,
                &mut self.server,
                CLIENT,
                &mut self.room,
            );
            while let Some(event) = self.server.poll_event() {
                answer(now, &mut self.server, event, response);
            }
            pass(
                now,
                &mut self.server,
                &mut self.client,
                SERVER.ip,
                &mut self.room,
            );
            while let Some(event) = self.client.poll_event() {
                if let Event::Response { message, .. } = event {
                    self.client.release(now, message.run);
                    return;
                }
            }
        }
    }
}

/// All packets that one side has go to the other.
fn pass(now: Instant, from: &mut Endpoint, to: &mut Endpoint, sender: Ip, room: &mut [u8]) {
    let receiver = if sender == CLIENT { SERVER.ip } else { CLIENT };
    let meta = Meta {
        from: sender,
        to: receiver,
    };
    while let Some(sent) = from.poll_transmit(now, room) {
        let packet = &room[..usize::from(sent.len.get())];
        let verdict = to.handle_packet(now, meta, packet, &mut Endpoint::keep_event);
        assert_ne!(verdict, Verdict::PortUnreachable);
    }
}

fn answer(now: Instant, server: &mut Endpoint, event: Event, response: &Buf) {
    if let Event::Request { rpc, .. } = event
        && let Some(message) = server.take(rpc)
    {
        server.release(now, message.run);
        let payload = Payload::Buffer(response.clone());
        server
            .send_response(now, rpc, payload, Notify::Never)
            .expect("it is in service");
    }
}

fn turn(criterion: &mut Criterion) {
    let buffers = Buffers::new(16 << 20);
    let buffer = |len| buffers.alloc(len).expect("the pool is large enough");
    let (small, large) = (buffer(64), buffer(100_000));
    let mut pair = Pair::new();
    pair.exchange(&small, &small);
    let mut group = criterion.benchmark_group("transport");
    group.throughput(Throughput::Elements(1));
    group.bench_function("RPC of 64 B", |b| b.iter(|| pair.exchange(&small, &small)));
    group.throughput(Throughput::Bytes(large.len() as u64));
    group.bench_function("RPC with a request of 100 kB", |b| {
        b.iter(|| pair.exchange(&large, &small));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    // Short: `make bench` is to show trends, not the last percent.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = turn
}
criterion_main!(benches);
