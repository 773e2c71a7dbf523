//! Ports on a real EAL, joined by rings in memory.
#![cfg(feature = "dpdk")]

mod common;

use common::in_child;
use demihoma::device::{Checksums, Device, NET_ROOM, RX_BURST, TX_BURST, TxMeta};
use demihoma::dpdk::{
    Backend, Eal, EalParams, Port, PortParams, RingParams, StartError, floor, ring_pair,
};
use demihoma::error::Error;

const META: TxMeta = TxMeta {
    l2_len: 14,
    l3_len: 20,
    priority: 0,
};

fn start() -> Eal {
    Eal::start(&EalParams::default()).expect("the EAL starts")
}

fn pair(eal: &Eal, ring_len: u16) -> (Port, Port) {
    ring_pair(
        eal,
        &RingParams {
            ring_len,
            ..RingParams::default()
        },
    )
    .expect("a pair opens")
}

/// A frame of `len` bytes that begin with `number`, at a place that changes with it.
fn commit(port: &mut Port, number: u32, len: usize) {
    let start = number as usize % (NET_ROOM - 14);
    let frame = &mut port.tx_slot()[start..start + len];
    frame.fill(number as u8);
    frame[..4].copy_from_slice(&number.to_be_bytes());
    port.tx_commit(start..start + len, META);
}

/// The numbers of the frames that wait, each checked whole.
fn receive(port: &mut Port) -> Vec<u32> {
    let mut numbers = Vec::new();
    port.rx_burst(|frame, meta| {
        assert_eq!(meta.checksums, Checksums::Unknown);
        let (head, rest) = frame.split_first_chunk::<4>().expect("four bytes");
        let number = u32::from_be_bytes(*head);
        assert!(
            rest.iter().all(|&byte| byte == number as u8),
            "frame {number} was bent"
        );
        numbers.push(number);
    });
    numbers
}

#[test]
fn frames_of_every_length_cross_the_ring() {
    in_child(|| {
        let eal = start();
        let (mut a, mut b) = pair(&eal, 512);
        assert_ne!(a.caps().mac, b.caps().mac);
        assert_eq!(a.caps().mtu, 1500);
        assert!(a.link_is_up());
        assert!(a.tx_slot().len() >= NET_ROOM + 1500);
        for len in 14..=1514 {
            commit(&mut a, len as u32, len);
            a.flush();
            assert_eq!(receive(&mut b), [len as u32]);
        }
        let (sent, received) = (a.counters(), b.counters());
        assert_eq!((sent.tx_frames, received.rx_frames), (1501, 1501));
        assert_eq!(sent.tx_bytes, received.rx_bytes);
        assert_eq!(sent.tx_bytes, (14..=1514).sum::<u64>());
    });
}

#[test]
fn the_pool_is_whole_again_after_a_thousand_frames_each_way() {
    in_child(|| {
        let eal = start();
        let (mut a, mut b) = pair(&eal, 512);
        for number in 0..1000 {
            for _ in 0..2 {
                commit(&mut a, number, 64 + number as usize);
                a.flush();
                assert_eq!(receive(&mut b), [number]);
                std::mem::swap(&mut a, &mut b);
            }
        }
        let (mut sent, mut received) = (0, 0);
        while received < 1000 {
            // One way only: mbufs wander from one stash to the other, by way of the pool.
            while sent < 1000 && a.tx_room() > 0 {
                commit(&mut a, sent, 200);
                sent += 1;
            }
            a.flush();
            received += receive(&mut b).len();
        }
        drop(a); // With it went its stash, back to the pool that both have in common.
        let (count, free) = b.mbufs();
        assert_eq!(free, count);
    });
}

#[test]
fn oversize_frames_are_counted_and_not_sent() {
    in_child(|| {
        let eal = start();
        let (mut a, mut b) = pair(&eal, 64);
        let room = a.tx_room();
        a.tx_commit(0..1515, META);
        assert_eq!(a.tx_room(), room, "the mbuf is free again");
        a.tx_commit(0..1518, TxMeta { l2_len: 18, ..META }); // A VLAN tag is no payload.
        a.tx_commit(0..1519, TxMeta { l2_len: 18, ..META });
        a.flush();
        let mut lengths = Vec::new();
        b.rx_burst(|frame, _| lengths.push(frame.len()));
        assert_eq!(lengths, [1518]);
        let counters = a.counters();
        assert_eq!((counters.tx_oversize, counters.tx_frames), (2, 1));
    });
}

/// A ring of 64 holds 63 frames, the port keeps 16 more, and then says that there is no room.
#[test]
fn a_full_transmit_ring_keeps_frames_in_order_and_is_bounded() {
    in_child(|| {
        let eal = start();
        let (mut a, mut b) = pair(&eal, 64);
        let mut sent = 0;
        for _ in 0..100 {
            while a.tx_room() > 0 {
                commit(&mut a, sent, 60);
                sent += 1;
            }
            a.flush();
        }
        assert_eq!((sent, a.waiting()), (63 + TX_BURST as u32, TX_BURST));
        assert!(a.counters().tx_refused > 0);

        let mut numbers = Vec::new();
        while numbers.len() < sent as usize {
            let burst = receive(&mut b);
            assert!((1..=RX_BURST).contains(&burst.len()));
            numbers.extend(burst);
            a.flush();
        }
        assert!(numbers.into_iter().eq(0..sent));
        assert_eq!((a.waiting(), a.tx_room()), (0, TX_BURST));
    });
}

#[test]
fn closing_frees_what_is_on_the_way_and_a_new_pair_can_be_opened() {
    in_child(|| {
        let eal = start();
        for round in 0..20 {
            let (mut a, mut b) = pair(&eal, 64);
            for number in 0..10 {
                commit(&mut a, number, 60);
            }
            a.flush();
            commit(&mut b, round, 60);
            drop(a);
            b.flush();
        }
    });
}

#[test]
fn the_eal_starts_once() {
    in_child(|| {
        let early = Eal::attach().expect_err("nothing to attach to yet");
        assert_eq!(early.error(), Error::NotInitialised);
        let eal = start();
        let second = Eal::start(&EalParams::default()).expect_err("it runs already");
        assert_eq!(second.error(), Error::Exists);
        let (_a, mut b) = pair(&eal, 64);
        assert_eq!(receive(&mut b), [], "the first is unharmed");
        std::thread::spawn(|| {
            let eal = Eal::attach().expect("another thread joins");
            let (mut a, mut b) = pair(&eal, 64);
            commit(&mut a, 7, 60);
            a.flush();
            assert_eq!(receive(&mut b), [7]);
        })
        .join()
        .expect("the other thread is fine");
    });
}

#[test]
fn an_eal_that_failed_to_start_says_so_ever_after() {
    in_child(|| {
        // 64 TiB.
        let error = Eal::start(&EalParams {
            memory_mib: 64 << 20,
            ..EalParams::default()
        })
        .expect_err("no machine has so much");
        println!("{error}");
        assert_eq!(error.error(), Error::Device);
        assert_eq!(Eal::attach().expect_err("it failed").error(), Error::Device);
        let again = Eal::start(&EalParams::default()).expect_err("it failed");
        assert_eq!(again.error(), Error::Device);
    });
}

#[test]
fn starting_the_eal_leaves_the_thread_on_its_cpus() {
    in_child(|| {
        // SAFETY: plain bits; the call writes at most their size.
        let cpus = || unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
            (0..1024)
                .filter(|&cpu| libc::CPU_ISSET(cpu, &set))
                .collect::<Vec<_>>()
        };
        let before = cpus();
        let _eal = start();
        assert_eq!(cpus(), before);
    });
}

#[test]
fn a_device_that_cannot_be_is_an_error_and_leaves_nothing_behind() {
    in_child(|| {
        let eal = start();
        let open = |words: &str| -> Result<Port, StartError> {
            Port::open(&eal, &PortParams::new(Backend::Vdev(words.to_owned())))
        };
        for words in [
            "net_nosuch0",
            "net_af_packet0,iface=nosuchif",
            "net_ring0,nodeaction=x",
        ] {
            let error = open(words).expect_err("no such device");
            assert_eq!(error.error(), Error::Device, "{error}");
            let name = words.split(',').next().expect("a name");
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(open("").expect_err("no name").error(), Error::Invalid);
        let missing = Backend::Pci("0000:ff:1f.7".to_owned());
        let error = Port::open(&eal, &PortParams::new(missing)).expect_err("no such NIC");
        assert_eq!(error.error(), Error::NoDevice);
        let small = PortParams {
            mtu: 100,
            ..PortParams::new(Backend::Vdev("net_ring0".into()))
        };
        assert_eq!(
            Port::open(&eal, &small).expect_err("too small").error(),
            Error::Invalid
        );

        let mut port = open("net_ring0").expect("the EAL is unharmed");
        commit(&mut port, 5, 60);
        port.flush();
        assert_eq!(receive(&mut port), [5], "a self loop");
    });
}

#[test]
fn a_pool_too_large_for_the_memory_says_so() {
    in_child(|| {
        let eal = Eal::start(&EalParams {
            memory_mib: 32,
            ..EalParams::default()
        })
        .expect("the EAL starts");
        let huge = RingParams {
            ring_len: 16_384,
            mtu: 9000,
        };
        let error = ring_pair(&eal, &huge).expect_err("300 MiB do not fit 32");
        assert_eq!(error.error(), Error::NoMemory);
        assert!(error.to_string().contains("MiB"), "{error}");
        pair(&eal, 64);
    });
}

#[test]
fn the_floor_and_a_ping_pong_can_be_measured() {
    in_child(|| {
        let eal = start();
        let (mut a, mut b) = pair(&eal, 512);
        for batch in [1, 8, 32] {
            let ticks = floor::two_packets(&mut a, &mut b, batch, 1000);
            println!("two-packet floor at batch {batch}: {ticks:.0} ticks");
            assert!(ticks > 0.0);
        }
        let pings = floor::ping(&mut a, 1000, || {
            floor::pong_once(&mut b);
        });
        assert_eq!((pings.nanos.len(), pings.lost), (1000, 0));
    });
}
