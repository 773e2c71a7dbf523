//! The library OS over two ends of a kernel wire, one runtime in each of two threads.
#![cfg(feature = "dpdk")]

mod common;

use std::process::Command;
use std::sync::mpsc;
use std::thread;

use common::in_namespace;
use demihoma::addr::{Addr, Ip};
use demihoma::config::{Addresses, Config};
use demihoma::error::Error;
use demihoma::libos::{LibOS, OperationResult, QToken, Sga};
use demihoma::time::Duration;

/// Twenty times what the slowest of it takes.
const PATIENCE: Option<Duration> = Some(Duration::secs(3));

const SIZES: [usize; 7] = [1, 100, 1_424, 1_425, 10_000, 100_000, 1_000_000];

fn wire() {
    let commands = [
        "link add v1 type veth peer name v2",
        "link set v1 up",
        "link set v2 up",
    ];
    for line in commands {
        let status = Command::new("ip")
            .args(line.split(' '))
            .status()
            .expect("iproute2");
        assert!(status.success(), "ip {line}");
    }
}

/// The runtime of host `host`, on its end of the wire.
fn start(host: u8) -> LibOS {
    let mut config = Config::default();
    config.network.interface = format!("v{host}");
    let address = format!("10.9.0.{host}/24").parse().expect("an address");
    config.network.address = Addresses(vec![address]);
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
fn echo(protocol: i32, count: usize, ready: &mpsc::Sender<()>) {
    let mut os = start(2);
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
    let server = thread::spawn(move || echo(protocol, SIZES.len(), &ready));
    is_ready.recv().unwrap();
    let mut os = start(1);
    let qd = os
        .socket(libc::AF_INET, libc::SOCK_DGRAM, protocol)
        .unwrap();
    for len in SIZES {
        let sga = os.sga_of(&pattern(len)).unwrap();
        let answer = if protocol == 0 {
            os.pushto(qd, &sga.view(), server_addr()).unwrap();
            os.pop(qd, None).unwrap()
        } else {
            os.call(qd, &sga.view(), server_addr(), 7).unwrap().0
        };
        os.sgafree(sga.handle.into()).unwrap();
        let got = message(&mut os, answer);
        assert_eq!(os.sga_bytes(&got.view()), Ok(&pattern(len)[..]));
        os.sgafree(got.handle.into()).unwrap();
    }
    drop(os);
    server.join().unwrap();
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
