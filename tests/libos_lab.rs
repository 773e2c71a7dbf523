//! The library OS over two ends of a kernel wire, one runtime in each of two threads.
#![cfg(feature = "dpdk")]

mod common;

use std::process::Command;
use std::sync::mpsc;
use std::thread;

use common::in_namespace;
use demihoma::addr::{Addr, Ip};
use demihoma::config::{Addresses, Config, Network};
use demihoma::error::Error;
use demihoma::libos::{LibOS, OperationResult, QDesc, QToken, Sga};
use demihoma::time::Duration;

/// Twenty times what the slowest of it takes.
const PATIENCE: Option<Duration> = Some(Duration::secs(3));

const SIZES: [usize; 7] = [1, 100, 1_424, 1_425, 10_000, 100_000, 1_000_000];

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {line}");
}

/// `v1` and `v2`, two ends of a wire.
fn wire() {
    ip("link add v1 type veth peer name v2");
    ip("link set v1 up");
    ip("link set v2 up");
}

/// The end `name` of a wire, as the device of host `host` in that network.
fn device(name: &str, network: u8, host: u8) -> Network {
    let address = format!("10.9.{network}.{host}/24");
    Network {
        interface: name.to_owned(),
        address: Addresses(vec![address.parse().expect("an address")]),
        ..Network::default()
    }
}

/// The runtime of host `host`, on its end of the wire.
fn start(host: u8) -> LibOS {
    start_on(host, device(&format!("v{host}"), 0, host), Vec::new())
}

fn start_on(host: u8, network: Network, port: Vec<Network>) -> LibOS {
    let config = Config {
        network,
        port,
        ..Config::default()
    };
    LibOS::new(&config).unwrap_or_else(|error| panic!("host {host}: {error}"))
}

fn server_addr() -> Addr {
    Addr::new(Ip::v4(10, 9, 0, 2), 7000)
}

fn message(os: &mut LibOS, qt: QToken) -> Sga {
    match os.wait(qt, PATIENCE).expect("within the time").result {
        OperationResult::Pop(sga) => sga,
        other => panic!("{other:?} is no message"),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Pushes back whatever it pops, as often as it is to.
fn echo(mut os: LibOS, protocol: i32, count: usize, ready: &mpsc::Sender<()>) {
    let qd = os
        .socket(libc::AF_INET, libc::SOCK_DGRAM, protocol)
        .unwrap();
    os.bind(qd, server_addr()).unwrap();
    ready.send(()).unwrap();
    for _ in 0..count {
        let pop = os.pop(qd, None).unwrap();
        let sga = message(&mut os, pop);
        if protocol == 0 {
            os.pushto(qd, &sga.view(), sga.peer.unwrap()).unwrap();
        } else {
            let info = os.info(sga.handle.into()).unwrap();
            os.reply(qd, info.id, info.peer, &sga.view(), false)
                .unwrap();
        }
        os.sgafree(sga.handle.into()).unwrap();
    }
    // The drop lingers until the client has it all.
}

fn exchange(protocol: i32) {
    wire();
    let (ready, is_ready) = mpsc::channel();
    let server = thread::spawn(move || echo(start(2), protocol, SIZES.len(), &ready));
    is_ready.recv().unwrap();
    let mut os = start(1);
    let qd = os
        .socket(libc::AF_INET, libc::SOCK_DGRAM, protocol)
        .unwrap();
    for len in SIZES {
        ask(&mut os, qd, protocol, server_addr(), len);
    }
    drop(os);
    server.join().unwrap();
}

/// Sends a message of that length and sees it come back.
fn ask(os: &mut LibOS, qd: QDesc, protocol: i32, to: Addr, len: usize) {
    let sga = os.sga_of(&pattern(len)).unwrap();
    let answer = if protocol == 0 {
        os.pushto(qd, &sga.view(), to).unwrap();
        os.pop(qd, None).unwrap()
    } else {
        os.call(qd, &sga.view(), to, 7).unwrap().0
    };
    os.sgafree(sga.handle.into()).unwrap();
    let got = message(os, answer);
    assert_eq!(os.sga_bytes(&got.view()), Ok(&pattern(len)[..]));
    os.sgafree(got.handle.into()).unwrap();
}

/// A runtime on two wires: the server's two addresses are reached by one each, also when the
/// other wire is cut.
#[test]
fn each_of_two_wires_carries_what_is_for_its_network() {
    in_namespace(|| {
        wire();
        ip("link add w1 type veth peer name w2");
        ip("link set w1 up");
        ip("link set w2 up");
        let both = |host| {
            let [v, w] = ["v", "w"].map(|wire| format!("{wire}{host}"));
            start_on(host, device(&v, 0, host), vec![device(&w, 1, host)])
        };
        let (ready, is_ready) = mpsc::channel();
        let count = 3 * SIZES.len();
        let server = thread::spawn(move || echo(both(2), 146, count, &ready));
        is_ready.recv().unwrap();
        let mut os = both(1);
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, 146).unwrap();
        let [near, far] = [0, 1].map(|network| Addr::new(Ip::v4(10, 9, network, 2), 7000));
        for len in SIZES {
            ask(&mut os, qd, 146, near, len);
            ask(&mut os, qd, 146, far, len);
        }
        let frames = |os: &LibOS| -> Vec<u64> {
            let legs = os.poller().legs();
            legs.map(|leg| leg.device().counters().tx_frames).collect()
        };
        let sent = frames(&os);
        assert!(sent.iter().all(|&frames| frames > 800), "{sent:?}");
        ip("link set v1 down");
        for len in SIZES {
            ask(&mut os, qd, 146, far, len);
        }
        assert_eq!(
            frames(&os)[0],
            sent[0],
            "nothing more by the wire that is cut"
        );
        drop(os);
        server.join().unwrap();
    });
}

#[test]
fn datagrams_of_all_sizes_come_back_over_a_kernel_wire() {
    in_namespace(|| exchange(0));
}

#[test]
fn calls_of_all_sizes_are_answered_over_a_kernel_wire() {
    in_namespace(|| exchange(146));
}

#[test]
fn a_closed_port_and_a_host_that_is_not_there_are_told_apart() {
    in_namespace(|| {
        wire();
        let (ready, is_ready) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let server = thread::spawn(move || {
            let mut os = start(2);
            ready.send(()).unwrap();
            while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                // Nothing is waited for: this only turns the loop.
                assert_eq!(
                    os.wait_any(&[], Some(Duration::millis(1))),
                    Err(Error::WaitTimedOut)
                );
            }
        });
        is_ready.recv().unwrap();
        let mut os = start(1);
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, 146).unwrap();
        let sga = os.sga_of(b"anybody there?").unwrap();
        let nobody = Addr::new(Ip::v4(10, 9, 0, 3), 7000);
        for (to, error) in [
            (server_addr(), Error::NotConnected),
            (nobody, Error::HostUnreachable),
        ] {
            let (qt, _) = os.call(qd, &sga.view(), to, 0).unwrap();
            let result = os.wait(qt, PATIENCE).expect("within the time").result;
            assert_eq!(result, OperationResult::Failed(error));
        }
        done.send(()).unwrap();
        server.join().unwrap();
    });
}
