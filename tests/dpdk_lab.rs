//! Ports on the kernel's interfaces, in a network namespace that each test makes for itself.
#![cfg(feature = "dpdk")]

mod common;

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{beside, in_namespace, role};
use demihoma::addr::Ip;
use demihoma::device::{Checksums, Device, TxMeta};
use demihoma::dpdk::{Backend, Eal, EalParams, Port, PortParams, StartError, floor};
use demihoma::error::Error;

const META: TxMeta = TxMeta {
    l2_len: 14,
    l3_len: 20,
    priority: 0,
};

/// Twenty times what the slowest of it takes.
const PATIENCE: Duration = Duration::from_secs(3);

/// Not IP, so that no kernel answers. Source: IEEE 802, "Local Experimental Ethertype 2".
const ETHERTYPE: [u8; 2] = [0x88, 0xb6];

/// Runs `ip` once for each line.
fn ip(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let output = Command::new("ip")
            .args(line.split_whitespace())
            .output()
            .expect("iproute2");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {line}: {text}");
    }
}

/// `v0` and `v1`, two ends of a wire.
fn veth(mtu: u16) {
    ip(&format!(
        "link add v0 mtu {mtu} type veth peer name v1 mtu {mtu}
         link set v0 up
         link set v1 up"
    ));
}

fn start() -> Eal {
    Eal::start(&EalParams::default()).expect("the EAL starts")
}

fn on(interface: &str) -> PortParams {
    PortParams::new(Backend::AfPacket {
        interface: interface.to_owned(),
    })
}

fn tap(interface: &str) -> PortParams {
    PortParams::new(Backend::Tap {
        interface: interface.to_owned(),
        mac: None,
    })
}

fn open(eal: &Eal, params: &PortParams) -> Port {
    Port::open(eal, params).expect("the port opens")
}

fn refused(eal: &Eal, params: &PortParams) -> StartError {
    Port::open(eal, params).expect_err("must be refused")
}

fn commit(port: &mut Port, to: [u8; 6], number: u32, len: usize) {
    let from = port.caps().mac;
    let frame = &mut port.tx_slot()[..len];
    frame.fill(number as u8);
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    port.tx_commit(0..len, META);
}

/// Number and length of each frame of ours that waits, checked whole.
fn receive(port: &mut Port) -> Vec<(u32, usize)> {
    let mut frames = Vec::new();
    port.rx_burst(|frame, meta| {
        if frame.len() < 18 || frame[12..14] != ETHERTYPE {
            return;
        }
        assert_ne!(meta.checksums, Checksums::Bad);
        let number = u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]]);
        assert!(
            frame[18..].iter().all(|&byte| byte == number as u8),
            "frame {number} was bent"
        );
        frames.push((number, frame.len()));
    });
    frames
}

/// The kernel tells of a changed carrier a moment later.
fn becomes_true(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not so within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends one frame until it arrives; the kernel may need a moment after a change.
fn until_one_arrives(from: &mut Port, to: &mut Port, number: u32) {
    let (start, mac) = (Instant::now(), to.caps().mac);
    while start.elapsed() < PATIENCE {
        if from.tx_room() > 0 {
            commit(from, mac, number, 60);
        }
        from.flush();
        std::thread::sleep(Duration::from_millis(5));
        if receive(to).contains(&(number, 60)) {
            return;
        }
    }
    panic!("frame {number} did not arrive within {PATIENCE:?}: {from:?} {to:?}");
}

/// Frames of these lengths, all of them, in order.
fn all_arrive(from: &mut Port, to: &mut Port, lengths: impl Iterator<Item = usize>) {
    let mac = to.caps().mac;
    let mut lengths = lengths.enumerate().peekable();
    let (mut expected, mut got, mut heard_at) = (Vec::new(), Vec::new(), Instant::now());
    while lengths.peek().is_some() || got.len() < expected.len() {
        while from.tx_room() > 0 && expected.len() - got.len() < 64 {
            let Some((number, len)) = lengths.next() else {
                break;
            };
            commit(from, mac, number as u32, len);
            expected.push((number as u32, len));
        }
        from.flush();
        let frames = receive(to);
        if !frames.is_empty() {
            heard_at = Instant::now();
            got.extend(frames);
        }
        assert!(
            heard_at.elapsed() < PATIENCE,
            "{} of {}",
            got.len(),
            expected.len()
        );
    }
    assert_eq!(got, expected);
}

#[test]
fn frames_of_every_length_cross_a_veth_pair_both_ways() {
    in_namespace(|| {
        veth(1500);
        let eal = start();
        let (mut a, mut b) = (open(&eal, &on("v0")), open(&eal, &on("v1")));
        assert_eq!((a.caps().mtu, b.caps().mtu), (1500, 1500));
        assert_ne!(a.caps().mac, b.caps().mac);
        all_arrive(&mut a, &mut b, 60..=1514);
        all_arrive(&mut b, &mut a, (60..=1514).rev());
        let (count, free) = a.mbufs();
        assert_eq!(free, count, "nothing is left in the driver");
    });
}

#[test]
fn jumbo_frames_cross_and_the_interfaces_mtu_is_the_limit() {
    in_namespace(|| {
        veth(9000);
        let eal = start();
        let wish = |name| PortParams {
            mtu: 9000,
            ..on(name)
        };
        let mut a = open(&eal, &wish("v0"));
        // As non-root the second port's rings would not fit the locked memory beside the first's.
        let mut b = open(&eal, &on("v1"));
        assert_eq!((a.caps().mtu, b.caps().mtu), (9000, 1500));
        all_arrive(&mut b, &mut a, 1400..=1514);
        drop(b);
        drop(a);
        ip("link set v1 mtu 4000");
        let mut c = open(&eal, &wish("v1"));
        assert_eq!(c.caps().mtu, 4000);
        commit(&mut c, [0xff; 6], 1, 4014);
        commit(&mut c, [0xff; 6], 2, 4015);
        c.flush();
        assert_eq!((c.counters().tx_frames, c.counters().tx_oversize), (1, 1));
    });
}

#[test]
fn a_second_process_on_an_interface_is_refused_and_told_who_has_it() {
    in_namespace(|| {
        let address = |last| Some(Ip::v4(10, 0, 0, last));
        if role() == "second" {
            let eal = start();
            let error = refused(
                &eal,
                &PortParams {
                    address: address(1),
                    ..on("v0")
                },
            );
            assert_eq!(error.error(), Error::AddressInUse);
            println!("{error}");
            open(
                &eal,
                &PortParams {
                    address: address(2),
                    ..on("v0")
                },
            );
            return;
        }
        veth(1500);
        let eal = start();
        let held = open(
            &eal,
            &PortParams {
                address: address(1),
                ..on("v0")
            },
        );
        let output = beside("second");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let pid = format!("process {}", std::process::id());
        assert!(text.contains(&pid), "{pid} is not named in: {text}");
        drop(held);
        open(
            &eal,
            &PortParams {
                address: address(1),
                ..on("v0")
            },
        );
    });
}

#[test]
fn interfaces_that_cannot_be_used_are_named() {
    in_namespace(|| {
        let eal = start();
        for (params, error) in [
            (on("nosuchif"), Error::NoDevice),
            (on("lo"), Error::NotSupported),
            (on("a name"), Error::Invalid),
            (tap("x,mac=fixed"), Error::Invalid),
        ] {
            let refusal = refused(&eal, &params);
            assert_eq!(refusal.error(), error, "{refusal}");
        }
        assert!(
            refused(&eal, &on("nosuchif"))
                .to_string()
                .contains("nosuchif")
        );
    });
}

#[test]
fn frames_pass_again_once_a_downed_interface_is_up() {
    in_namespace(|| {
        veth(1500);
        let eal = start();
        let (mut a, mut b) = (open(&eal, &on("v0")), open(&eal, &on("v1")));
        until_one_arrives(&mut a, &mut b, 1);
        for number in 2..5 {
            becomes_true(|| a.link_is_up() && b.link_is_up());
            ip("link set v0 down");
            becomes_true(|| !a.link_is_up() && !b.link_is_up());
            let start = Instant::now();
            // More than the driver's ring holds, so that it would fill if it could.
            for _ in 0..200 {
                while a.tx_room() > 0 {
                    commit(&mut a, [0xff; 6], 0, 60);
                }
                a.flush();
            }
            assert!(
                start.elapsed() < PATIENCE,
                "a downed interface blocked the thread"
            );
            ip("link set v0 up");
            until_one_arrives(&mut a, &mut b, number);
            until_one_arrives(&mut b, &mut a, number);
        }
    });
}

/// A veth leaves the UDP checksum to a NIC that is not there.
#[test]
fn a_kernels_uncomputed_checksum_is_unknown_and_the_frame_arrives() {
    in_namespace(|| {
        veth(1500);
        let eal = start();
        let mut port = open(&eal, &on("v0"));
        let [a, b, c, d, e, f] = port.caps().mac;
        ip(&format!(
            "address add 10.0.0.1/24 dev v1
             neigh add 10.0.0.2 lladdr {a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x} dev v1"
        ));
        let socket = UdpSocket::bind("10.0.0.1:4000").expect("a socket");
        socket.send_to(b"hello", "10.0.0.2:5000").expect("sent");
        let (start, mut found) = (Instant::now(), None);
        while found.is_none() && start.elapsed() < PATIENCE {
            port.rx_burst(|frame, meta| {
                if frame.ends_with(b"hello") {
                    found = Some((frame.len(), meta.checksums));
                }
            });
        }
        // Ethernet 14, IP 20, UDP 8, and five letters.
        assert_eq!(found, Some((47, Checksums::Unknown)));
    });
}

#[test]
fn a_pair_of_taps_talks_through_a_bridge() {
    in_namespace(|| {
        let eal = start();
        let (mut a, mut b) = (open(&eal, &tap("t0")), open(&eal, &tap("t1")));
        ip("link add br0 type bridge
            link set t0 master br0
            link set t1 master br0
            link set br0 up");
        assert_ne!(a.caps().mac, b.caps().mac);
        until_one_arrives(&mut a, &mut b, 1);
        until_one_arrives(&mut b, &mut a, 1);
        all_arrive(&mut a, &mut b, 60..=1514);
        all_arrive(&mut b, &mut a, 60..=1514);
        // The driver would answer this one with "not now" for ever.
        a.tx_commit(0..1530, META);
        a.flush();
        until_one_arrives(&mut a, &mut b, 2);
        assert_eq!(a.counters().tx_oversize, 1);
        let pings = floor::ping(&mut a, 200, || {
            floor::pong_once(&mut b);
        });
        assert_eq!((pings.nanos.len(), pings.lost), (200, 0));
    });
}

#[test]
fn a_ports_address_stays_when_it_is_opened_again_and_its_lock_is_free() {
    in_namespace(|| {
        let eal = start();
        let first = open(&eal, &tap("t0"));
        let mac = first.caps().mac;
        assert_eq!(refused(&eal, &tap("t0")).error(), Error::AddressInUse);
        drop(first);
        assert_eq!(open(&eal, &tap("t0")).caps().mac, mac);
        let own = [0x02, 1, 2, 3, 4, 5];
        let interface = "t1".to_owned();
        let params = PortParams::new(Backend::Tap {
            interface,
            mac: Some(own),
        });
        assert_eq!(open(&eal, &params).caps().mac, own);
    });
}

/// Over the same pair, the bare ping-pong that a transport stands beside.
#[test]
fn a_bare_ping_pong_crosses_a_veth_pair_between_two_processes() {
    in_namespace(|| {
        let eal;
        if role() == "second" {
            eal = start();
            let answered = floor::pong(&mut open(&eal, &on("v1")), Duration::from_secs(1));
            assert!(answered >= 500, "{answered}");
            return;
        }
        veth(1500);
        eal = start();
        let mut port = open(&eal, &on("v0"));
        let second = std::thread::spawn(|| beside("second"));
        let start = Instant::now();
        // Until the other process is up.
        while floor::ping(&mut port, 1, || {}).lost > 0 {
            assert!(start.elapsed() < PATIENCE, "nobody answers");
        }
        let pings = floor::ping(&mut port, 500, || {});
        let output = second.join().expect("no panic");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut nanos = pings.nanos;
        nanos.sort_unstable();
        println!("bare ping-pong: p50 {} ns", nanos[nanos.len() / 2]);
        assert_eq!((nanos.len(), pings.lost), (500, 0));
    });
}
