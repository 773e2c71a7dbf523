//! Very many RPCs whose handlers take long: all of them live, and the packets that keep them
//! alive are few.

use std::collections::VecDeque;

use demihoma::addr::{Addr, Ip};
use demihoma::homa::{BPAGE_LEN, Endpoint, Event, Notify, Params, Payload, SocketKey, Stats};
use demihoma::mem::{Buffers, Region};
use demihoma::net::{self, Interface};
use demihoma::runtime::Poller;
use demihoma::sim::Nic;
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;
const RPCS: u32 = 100_000;
const REQUEST_LEN: usize = 100;
/// Ten times as long as a silent peer is waited for.
const SERVICE: Duration = Duration::secs(1);
/// One turn of each loop. If it were much longer, ticks would be too, while RPCs wait for a look.
const TURN: Duration = Duration::micros(5);

/// Hosts joined back to back. A [`World`](demihoma::sim::World) checks all tables at each turn,
/// which would take hours here.
struct Pair {
    now: Instant,
    hosts: [Poller<Nic>; 2],
    socket: SocketKey,
    /// Requests in service, and when each will be answered.
    serving: VecDeque<(Instant, demihoma::homa::Message)>,
    done: u32,
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
                rpcs_max: 1 << 18,
                ..Params::default()
            };
            let region = Region::owned(1024 * BPAGE_LEN as usize).unwrap();
            let nic = Nic::new(number, 1500, 25_000);
            Poller::new(nic, net, params, region, Instant(0)).unwrap()
        });
        let socket = hosts[0].homa().open(0).unwrap();
        let server = hosts[1].homa().open(PORT).unwrap();
        hosts[1].homa().set_server(server, true);
        Self {
            now: Instant(0),
            hosts,
            socket,
            serving: VecDeque::new(),
            done: 0,
        }
    }

    fn call_all(&mut self) {
        let buffers = Buffers::new(1 << 20);
        let mut buf = buffers.alloc(REQUEST_LEN).unwrap();
        buf.make_mut().unwrap().fill(0);
        let to = Addr::new(Ip::v4(10, 0, 0, 2), PORT);
        for tag in 0..RPCS {
            let payload = Payload::Buffer(buf.clone());
            let (homa, socket, tag) = (self.hosts[0].homa(), self.socket, tag.into());
            let sent = homa.send_request(self.now, socket, to, payload, tag, Notify::Never);
            assert!(sent.is_ok(), "{sent:?}");
        }
    }

    fn turn(&mut self) {
        self.now += TURN;
        let now = self.now;
        let [client, server] = &mut self.hosts;
        client.turn_with(now, |homa, event| match event {
            Event::Response { message, .. } => {
                assert!(homa.release(now, message.run));
                self.done += 1;
            }
            other => panic!("at {now:?}: {other:?}, after {} were done", self.done),
        });
        while self.serving.front().is_some_and(|&(end, _)| end <= now) {
            let (_, message) = self.serving.pop_front().unwrap();
            reply(now, server.homa(), message);
        }
        server.turn_with(now, |homa, event| {
            let Event::Request { rpc, .. } = event else {
                panic!("the server was told {event:?}");
            };
            let message = homa.take(rpc).expect("a request that is there");
            self.serving.push_back((now + SERVICE, message));
        });
        while let Some(frame) = client.device_mut().take_sent() {
            server.device_mut().deliver(frame);
        }
        while let Some(frame) = server.device_mut().take_sent() {
            client.device_mut().deliver(frame);
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.turn();
        }
    }

    /// Packets of both hosts that carry no message, so far.
    fn control_packets(&self) -> u64 {
        let count = |stats: &Stats| stats.packets_out - stats.data_out;
        self.hosts
            .iter()
            .map(|host| count(host.endpoint().stats()))
            .sum()
    }
}

fn reply(now: Instant, homa: &mut Endpoint, message: demihoma::homa::Message) {
    let (run, start, len) = (message.run, 0, message.len);
    let payload = Payload::Received { run, start, len };
    let replied = homa.send_response(now, message.rpc, payload, Notify::Never);
    assert_eq!(replied, Ok(()));
    assert!(homa.release(now, run));
}

/// By default 8 RESENDs go to a peer in a tick of 1 ms, and each draws a BUSY: 16,000 packets in
/// a second, however many RPCs there are. To send all responses at once costs an ack packet for
/// some of them, which is no storm, as each names several.
#[test]
fn many_rpcs_to_slow_handlers_live_on_few_control_packets() {
    const CONTROL_MAX: u64 = 1_600;
    let mut pair = Pair::new();
    pair.call_all();
    let mut before = 0;
    while pair.now < Instant(0) + SERVICE {
        pair.pass(Duration::millis(100));
        let sent = pair.control_packets() - before;
        // Both ticks at the ends of the span may count.
        assert!(
            sent <= CONTROL_MAX + 32,
            "{sent} in the 100 ms before {:?}",
            pair.now
        );
        before += sent;
    }
    // They were kept alive by asking, and not because nobody looked.
    assert!(before > 10_000, "{before} control packets");
    pair.pass(Duration::millis(500));
    assert_eq!(pair.done, RPCS);
    let [client, server] = pair.hosts.each_ref().map(|host| host.endpoint().stats());
    assert_eq!((client.timeouts, client.retransmits_out), (0, 0));
    assert_eq!(
        (server.requests_in, server.responses_out),
        (RPCS.into(), RPCS.into())
    );
    assert!(
        client.acks_out < u64::from(RPCS) / 2,
        "{} ACKs",
        client.acks_out
    );
}
