//! One runtime over several devices: each packet takes the one that leads to its peer.

use std::ops::Range;

use demihoma::addr::{Addr, Ip};
use demihoma::device::{Caps, Device, RxMeta, TxMeta};
use demihoma::error::Error;
use demihoma::homa::{BPAGE_LEN, Event, Notify, Params, Payload, SocketKey};
use demihoma::mem::{Buffers, Region};
use demihoma::net::{self, Interface};
use demihoma::runtime::Poller;
use demihoma::sim::Nic;
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;
const TURN: Duration = Duration::micros(10);

/// A NIC that may hang: then it takes no frame.
struct Hanging {
    nic: Nic,
    hangs: bool,
}

/// A runtime on both networks, and a server on each.
struct Lab {
    now: Instant,
    client: Poller<Hanging>,
    servers: [Poller<Nic>; 2],
    socket: SocketKey,
    /// What became of the calls, in order.
    outcomes: Vec<(u64, Result<usize, Error>)>,
}

impl Lab {
    fn new() -> Self {
        let devices = (0..2)
            .map(|network| (Hanging::new(10 + network), net_params(network, 1)))
            .collect();
        let mut client = Poller::over(devices, homa_params(1), region(), Instant(0)).unwrap();
        let servers = [0, 1].map(|network| {
            let (nic, net) = (Nic::new(20 + network, 1500, 0), net_params(network, 2));
            let (homa, now) = (homa_params(2 + u64::from(network)), Instant(0));
            let mut server = Poller::new(nic, net, homa, region(), now).unwrap();
            let socket = server.homa().open(PORT).unwrap();
            server.homa().set_server(socket, true);
            server
        });
        let socket = client.homa().open(0).unwrap();
        Self {
            now: Instant(0),
            client,
            servers,
            socket,
            outcomes: Vec::new(),
        }
    }

    fn call(&mut self, to: Ip, len: usize, tag: u64) {
        let mut buf = Buffers::new(1 << 20).alloc(len).unwrap();
        buf.make_mut().unwrap().fill(tag as u8);
        let (to, payload) = (Addr::new(to, PORT), Payload::Buffer(buf));
        let homa = self.client.homa();
        homa.send_request(self.now, self.socket, to, payload, tag, Notify::Never)
            .unwrap();
    }

    /// Lets time pass; servers, and the client for calls to itself, echo.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += TURN;
            let (now, outcomes) = (self.now, &mut self.outcomes);
            self.client.turn_with(now, |homa, event| match event {
                Event::Response { tag, message, .. } => {
                    outcomes.push((tag, Ok(message.len as usize)));
                    assert!(homa.release(now, message.run));
                }
                Event::Failed { tag, error, .. } => outcomes.push((tag, Err(error))),
                event => echo(now, homa, event),
            });
            for (leg, server) in self.client.legs_mut().zip(&mut self.servers) {
                server.turn_with(now, |homa, event| echo(now, homa, event));
                let (near, far) = (&mut leg.device_mut().nic, server.device_mut());
                while let Some(frame) = near.take_sent() {
                    far.deliver(frame);
                }
                while let Some(frame) = far.take_sent() {
                    near.deliver(frame);
                }
            }
        }
    }

    fn stuck(&self) -> Vec<u64> {
        self.client.legs().map(|leg| leg.stuck()).collect()
    }
}

fn echo(now: Instant, homa: &mut demihoma::homa::Endpoint, event: Event) {
    let Event::Request { rpc, .. } = event else {
        panic!("told {event:?}");
    };
    let message = homa.take(rpc).expect("a request that is there");
    let (run, start, len) = (message.run, 0, message.len);
    let payload = Payload::Received { run, start, len };
    assert_eq!(homa.send_response(now, rpc, payload, Notify::Never), Ok(()));
    assert!(homa.release(now, run));
}

fn ip(network: u8, host: u8) -> Ip {
    Ip::v4(10, 0, network, host)
}

fn net_params(network: u8, host: u8) -> net::Params {
    net::Params {
        addresses: vec![Interface {
            ip: ip(network, host),
            prefix: 24,
        }],
        ..net::Params::default()
    }
}

fn homa_params(seed: u64) -> Params {
    Params {
        seed,
        ..Params::default()
    }
}

fn region() -> Region {
    Region::owned(64 * BPAGE_LEN as usize).unwrap()
}

impl Hanging {
    fn new(number: u8) -> Self {
        Self {
            nic: Nic::new(number, 1500, 0),
            hangs: false,
        }
    }
}

impl Device for Hanging {
    fn caps(&self) -> Caps {
        self.nic.caps()
    }

    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, sink: S) -> usize {
        self.nic.rx_burst(sink)
    }

    fn tx_room(&self) -> usize {
        if self.hangs { 0 } else { self.nic.tx_room() }
    }

    fn tx_slot(&mut self) -> &mut [u8] {
        self.nic.tx_slot()
    }

    fn tx_commit(&mut self, frame: Range<usize>, meta: TxMeta) {
        self.nic.tx_commit(frame, meta);
    }

    fn flush(&mut self) {
        self.nic.flush();
    }
}

#[test]
fn each_peer_is_reached_by_the_device_in_whose_network_it_is() {
    let mut lab = Lab::new();
    for tag in 0..20 {
        lab.call(ip(tag as u8 % 2, 2), 1 + 5_000 * tag as usize, tag);
    }
    lab.pass(Duration::millis(20));
    assert_eq!(lab.outcomes.len(), 20);
    for (tag, outcome) in &lab.outcomes {
        assert_eq!(*outcome, Ok(1 + 5_000 * *tag as usize), "call {tag}");
    }
    let served = lab.servers.each_ref().map(|server| {
        let stats = server.endpoint().stats();
        (stats.requests_in, stats.unknown_port)
    });
    assert_eq!(served, [(10, 0), (10, 0)]);
    assert_eq!(lab.client.endpoint().rpc_count(), 0);
}

#[test]
fn each_of_our_own_addresses_is_ourselves() {
    let mut lab = Lab::new();
    let own = lab.client.homa().open(PORT).unwrap();
    lab.client.homa().set_server(own, true);
    lab.call(ip(0, 1), 10_000, 1);
    lab.call(ip(1, 1), 10, 2);
    lab.pass(Duration::millis(5));
    lab.outcomes.sort_by_key(|&(tag, _)| tag);
    assert_eq!(lab.outcomes, [(1, Ok(10_000)), (2, Ok(10))]);
    let heard = lab
        .servers
        .each_ref()
        .map(|s| s.endpoint().stats().packets_in);
    assert_eq!(heard, [0, 0], "nothing left us");
}

#[test]
fn a_peer_in_no_network_of_ours_fails_at_once() {
    let mut lab = Lab::new();
    lab.call(Ip::v4(192, 168, 0, 1), 10, 1);
    lab.pass(TURN);
    assert_eq!(lab.outcomes, [(1, Err(Error::HostUnreachable))]);
}

/// What it does not take is lost as on a wire, and repaired.
#[test]
fn a_device_that_hangs_holds_back_only_its_own() {
    let mut lab = Lab::new();
    for network in [0, 1] {
        lab.call(ip(network, 2), 10, network.into()); // Both peers are found.
    }
    lab.pass(Duration::millis(1));
    lab.outcomes.clear();
    for hanging in [0, 1] {
        for (number, leg) in lab.client.legs_mut().enumerate() {
            leg.device_mut().hangs = number == hanging;
        }
        let (blocked, free) = (hanging as u8, 1 - hanging as u8);
        for tag in 0..10 {
            lab.call(ip(blocked, 2), 20_000, 100 + tag);
            lab.call(ip(free, 2), 20_000, tag);
        }
        lab.pass(Duration::millis(5));
        lab.outcomes.sort_by_key(|&(tag, _)| tag);
        let done: Vec<_> = (0..10).map(|tag| (tag, Ok(20_000))).collect();
        assert_eq!(lab.outcomes, done, "while device {hanging} hangs");
        lab.outcomes.clear();
        assert!(lab.stuck()[hanging] >= 10, "{:?}", lab.stuck());
        lab.client
            .legs_mut()
            .for_each(|leg| leg.device_mut().hangs = false);
        lab.pass(Duration::millis(60));
        lab.outcomes.sort_by_key(|&(tag, _)| tag);
        let repaired: Vec<_> = (100..110).map(|tag| (tag, Ok(20_000))).collect();
        assert_eq!(lab.outcomes, repaired, "once device {hanging} goes on");
        lab.outcomes.clear();
    }
}

#[test]
fn devices_that_cannot_stand_side_by_side_are_refused() {
    let over = |hosts: &[(u8, u8)]| {
        let devices = hosts.iter().zip(10..).map(|(&(network, host), number)| {
            (Nic::new(number, 1500, 0), net_params(network, host))
        });
        Poller::over(devices.collect(), homa_params(1), region(), Instant(0)).map(|_| ())
    };
    let four = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)];
    assert_eq!(over(&four[..4]), Ok(()));
    assert_eq!(over(&four), Err(Error::Invalid), "five");
    assert_eq!(over(&[]), Err(Error::Invalid), "none");
    let net = net::Params {
        mtu: 10, // Less than an IP header.
        ..net_params(0, 1)
    };
    let short = Poller::new(
        Nic::new(1, 1500, 0),
        net,
        homa_params(1),
        region(),
        Instant(0),
    );
    assert_eq!(short.map(|_| ()), Err(Error::Invalid), "an MTU of 10");
    assert_eq!(
        over(&[(0, 1), (0, 1)]),
        Err(Error::Invalid),
        "an address twice"
    );
}
