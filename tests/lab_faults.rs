//! Faults on a kernel wire, between processes: each call ends in the right error within three
//! seconds, or the next one works. `sim_faults` tells when exactly.
#![cfg(feature = "dpdk")]

mod common;

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::FromRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use common::{Beside, beside, in_namespace, role};
use demihoma::addr::{Addr, Ip};
use demihoma::config::{Addresses, Config};
use demihoma::error::Error;
use demihoma::libos::{LibOS, OperationResult, QDesc, QToken};
use demihoma::sim::Garbage;
use demihoma::time::Duration;

/// Twenty times what the slowest of it takes, and more.
const PATIENCE: Duration = Duration::secs(3);

const SERVER: Addr = Addr::new(Ip::v4(10, 9, 0, 2), 7000);
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]];

/// Indices of `v1` and `v2`. Far apart, as one process's id XOR one index must not be another's
/// id XOR the other index: net_af_packet names its fanout group so.
const INDICES: [u32; 2] = [100, 20_000];

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {line}");
}

/// `v1` for clients and `v2` for the server, two ends of a wire.
fn wire() {
    let [one, two] = INDICES;
    ip(&format!(
        "link add v1 index {one} address 02:00:00:00:09:01 type veth peer name v2 index {two} \
         address 02:00:00:00:09:02"
    ));
    ip("link set v1 up");
    ip("link set v2 up");
}

fn config(interface: &str, host: u8) -> Config {
    let mut config = Config::default();
    config.network.interface = interface.to_owned();
    let address = format!("10.9.0.{host}/24").parse().expect("an address");
    config.network.address = Addresses(vec![address]);
    config
}

/// A runtime with one native queue.
struct Runtime {
    os: LibOS,
    qd: QDesc,
    /// The pop that waits for the next request.
    pop: Option<QToken>,
}

impl Runtime {
    fn start(interface: &str, host: u8) -> Self {
        let mut config = config(interface, host);
        // A tenth of the usual 5 s, so that it need not be waited for.
        config.homa.need_ack_give_up_ticks = 500;
        let started = LibOS::new(&config);
        let mut os = started.unwrap_or_else(|error| panic!("{interface}: {error}"));
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, 146).unwrap();
        let pop = None;
        Self { os, qd, pop }
    }

    fn client() -> Self {
        Self::start("v1", 1)
    }

    fn server() -> Self {
        let mut server = Self::start("v2", 2);
        server.os.bind(server.qd, SERVER).unwrap();
        server
    }

    fn begin(&mut self, to: Addr, len: usize) -> QToken {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let sga = self.os.sga_of(&bytes).unwrap();
        let called = self.os.call(self.qd, &sga.view(), to, 7);
        self.os.sgafree(sga.handle.into()).unwrap();
        called.unwrap().0
    }

    /// Waits for a response and checks its length. Every call ends in time.
    fn end(&mut self, qt: QToken, len: usize) -> Result<(), Error> {
        match self.os.wait(qt, Some(PATIENCE)).expect("in time").result {
            OperationResult::Pop(sga) => {
                assert_eq!(sga.len as usize, len);
                self.os.sgafree(sga.handle.into()).unwrap();
                Ok(())
            }
            OperationResult::Failed(error) => Err(error),
            other => panic!("{other:?} is no end of a call"),
        }
    }

    fn call(&mut self, to: Addr, len: usize) -> Result<(), Error> {
        let qt = self.begin(to, len);
        self.end(qt, len)
    }

    /// Answers the next request with its own bytes, if one comes in time; tells who sent it.
    fn serve_one(&mut self, timeout: Duration) -> Option<Addr> {
        let pop = match self.pop {
            Some(pop) => pop,
            None => *self.pop.insert(self.os.pop(self.qd, None).unwrap()),
        };
        let popped = self.os.wait(pop, Some(timeout)).ok()?;
        self.pop = None;
        let OperationResult::Pop(sga) = popped.result else {
            panic!("{popped:?} is no request");
        };
        let info = self.os.info(sga.handle.into()).unwrap();
        let view = sga.view();
        let replied = self.os.reply(self.qd, info.id, info.peer, &view, false);
        assert_eq!(replied, Ok(None));
        self.os.sgafree(sga.handle.into()).unwrap();
        Some(info.peer)
    }

    /// Serves until it is killed.
    fn serve(mut self) -> ! {
        say("ready");
        loop {
            self.serve_one(PATIENCE);
        }
    }

    /// Lets time pass.
    fn turn_for(&mut self, time: Duration) {
        let waited = self.os.wait_any(&[], Some(time));
        assert_eq!(waited, Err(Error::WaitTimedOut));
    }
}

fn say(line: &str) {
    println!("{line}");
    io::stdout().flush().expect("somebody listens");
}

/// Calls until one is answered, as one who waits for a server does.
fn until_answered(client: &mut Runtime) {
    let start = Instant::now();
    while let Err(error) = client.call(SERVER, 1000) {
        assert!(start.elapsed().as_secs() < 3, "still {error}");
    }
}

#[test]
fn a_killed_server_times_out_and_is_found_again_once_it_is_restarted() {
    in_namespace(|| {
        if role() == "server" {
            Runtime::server().serve();
        }
        wire();
        let mut client = Runtime::client();
        for len in [100, 100_000] {
            let server = Beside::start("server");
            until_answered(&mut client);
            let calls: Vec<_> = (0..4).map(|_| client.begin(SERVER, len)).collect();
            server.kill();
            // Some may have been answered before.
            for call in calls {
                let ended = client.end(call, len);
                assert!(
                    matches!(ended, Ok(()) | Err(Error::PeerTimedOut)),
                    "{ended:?}"
                );
            }
            assert_eq!(client.call(SERVER, len), Err(Error::PeerTimedOut));
        }
        let _server = Beside::start("server");
        assert_eq!(client.call(SERVER, 100_000), Ok(()));
    });
}

/// It answers ARP no more than it answers Homa, but its link address is known.
#[test]
fn a_stopped_server_times_out_and_answers_once_it_goes_on() {
    in_namespace(|| {
        if role() == "server" {
            Runtime::server().serve();
        }
        wire();
        let server = Beside::start("server");
        let mut client = Runtime::client();
        assert_eq!(client.call(SERVER, 1000), Ok(()));
        server.signal(libc::SIGSTOP);
        // The signal may need a moment.
        let failed = (0..10_000).find_map(|_| client.call(SERVER, 1000).err());
        assert_eq!(failed, Some(Error::PeerTimedOut));
        server.signal(libc::SIGCONT);
        until_answered(&mut client);
    });
}

#[test]
fn a_server_frees_what_killed_clients_left_and_serves_others_meanwhile() {
    in_namespace(|| {
        match role().as_str() {
            "doomed" => {
                let mut client = Runtime::client();
                assert_eq!(client.call(SERVER, 100), Ok(()));
                say("ready");
                loop {
                    let calls: Vec<_> = (0..8).map(|_| client.begin(SERVER, 500_000)).collect();
                    for call in calls {
                        assert_eq!(client.end(call, 500_000), Ok(()));
                    }
                }
            }
            "other" => {
                let mut client = Runtime::start("v1", 3);
                say("ready");
                (0..1000).for_each(|_| assert_eq!(client.call(SERVER, 2000), Ok(())));
                say("done");
                thread::sleep(std::time::Duration::from_secs(60)); // Until it is killed.
            }
            _ => {
                wire();
                let mut server = Runtime::server();
                let clients = thread::spawn(|| {
                    let doomed = Beside::start("doomed");
                    let mut other = Beside::start("other");
                    thread::sleep(std::time::Duration::from_millis(100));
                    doomed.kill();
                    other.says("done");
                });
                while !clients.is_finished() {
                    server.serve_one(Duration::millis(10));
                }
                clients.join().expect("both clients did what they should");
                let start = Instant::now();
                while server.os.poller().endpoint().rpc_count() > 0 {
                    assert!(start.elapsed().as_secs() < 3, "RPCs are left");
                    server.serve_one(Duration::millis(10));
                }
            }
        }
    });
}

#[test]
fn a_network_that_no_route_leads_to_is_unreachable() {
    in_namespace(|| {
        wire();
        let mut client = Runtime::client();
        let beyond = Addr::new(Ip::v4(192, 168, 1, 1), 7000);
        assert_eq!(client.call(beyond, 100), Err(Error::HostUnreachable));
        let nobody = Addr::new(Ip::v4(10, 9, 0, 77), 7000);
        assert_eq!(client.call(nobody, 100), Err(Error::HostUnreachable));
    });
}

/// A kernel that has the address, but knows nothing of Homa, answers "protocol unreachable".
#[test]
fn a_host_without_homa_says_so() {
    in_namespace(|| {
        wire();
        ip("address add 10.9.0.2/24 dev v2");
        let mut client = Runtime::client();
        assert_eq!(client.call(SERVER, 100), Err(Error::ProtocolUnsupported));
    });
}

#[test]
fn after_a_second_with_the_interface_down_the_next_call_works() {
    in_namespace(|| {
        if role() == "server" {
            Runtime::server().serve();
        }
        wire();
        let _server = Beside::start("server");
        let mut client = Runtime::client();
        for interface in ["v1", "v2"] {
            assert_eq!(client.call(SERVER, 100_000), Ok(()));
            ip(&format!("link set {interface} down"));
            assert_eq!(client.call(SERVER, 100_000), Err(Error::PeerTimedOut));
            client.turn_for(Duration::secs(1));
            ip(&format!("link set {interface} up"));
            assert_eq!(client.call(SERVER, 100_000), Ok(()), "{interface}");
        }
    });
}

#[test]
fn a_second_runtime_on_an_interface_is_told_in_one_line_whose_it_is() {
    in_namespace(|| {
        if role() == "second" {
            let error = LibOS::new(&config("v1", 1)).expect_err("it is taken");
            assert_eq!(error.error(), Error::AddressInUse);
            say(&format!("refused: {error}"));
            return;
        }
        wire();
        let _client = Runtime::client();
        let output = beside("second");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let pid = std::process::id().to_string();
        let line = text.lines().find(|line| line.contains("refused: "));
        assert!(
            line.is_some_and(|line| line.contains(&pid)),
            "{pid} is not in: {text}"
        );
    });
}

/// How many frames each of the two hosts is sent.
fn flood_len() -> u64 {
    match std::env::var_os("DEMIHOMA_SOAK") {
        Some(_) => 1_000_000,
        None => 100_000,
    }
}

/// Garbage from one end of the wire to the host at the other, as fast as the kernel takes it.
fn flood(from: usize, seed: u64, sent: &AtomicU64) {
    let mut socket = packet_socket(INDICES[from]);
    let host = 2 - from as u8;
    let to = (MACS[1 - from], Ip::v4(10, 9, 0, host));
    // Not in the name of an honest host: whoever may answer ARP for it cuts it off anyway.
    let strangers = (100..200).map(|last| Ip::v4(10, 9, 0, last));
    let mut garbage = Garbage::new(
        seed,
        to,
        ([2, 6, 6, 6, 6, 6], strangers.collect()),
        vec![SERVER.port, 0],
    );
    for _ in 0..flood_len() {
        // A frame too short to be one is refused by the kernel.
        if socket.write_all(garbage.frame()).is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A socket that sends whole frames out of an interface.
fn packet_socket(interface: u32) -> File {
    // SAFETY: has no precondition.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor is open and nobody else's.
    let socket = unsafe { File::from_raw_fd(fd) };
    // SAFETY: all zeroes are a valid value.
    let mut addr: libc::sockaddr_ll = unsafe { mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_ifindex = interface as i32;
    let len = mem::size_of_val(&addr) as u32;
    // SAFETY: the address is of that length and lives through the call.
    let bound = unsafe { libc::bind(fd, (&raw const addr).cast(), len) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket
}

/// Frames are lost in such a flood, so a call may time out; but each ends, and when the flood is
/// over all is well, on both sides.
#[test]
fn calls_end_while_garbage_floods_both_hosts_and_work_after_it() {
    in_namespace(|| {
        if role() == "server" {
            Runtime::server().serve();
        }
        wire();
        let _server = Beside::start("server");
        let mut client = Runtime::client();
        assert_eq!(client.call(SERVER, 1000), Ok(()));
        let sent = Arc::new(AtomicU64::new(0));
        let flooders = [0, 1].map(|from| {
            let sent = Arc::clone(&sent);
            thread::spawn(move || flood(from, 17 + from as u64, &sent))
        });
        let (start, mut answered, mut timed_out) = (Instant::now(), 0, 0);
        while !flooders.iter().all(|flooder| flooder.is_finished()) {
            match client.call(SERVER, [100, 1424, 20_000][answered % 3]) {
                Ok(()) => answered += 1,
                Err(Error::PeerTimedOut) => timed_out += 1,
                Err(error) => panic!("{error}"),
            }
        }
        flooders
            .into_iter()
            .for_each(|flooder| flooder.join().expect("no panic"));
        let sent = sent.load(Ordering::Relaxed);
        let stats = client.os.poller().endpoint().stats();
        println!(
            "{sent} frames in {:?}; {answered} calls answered, {timed_out} timed out; {} bent and \
             {} odd packets seen by the client",
            start.elapsed(),
            stats.malformed + stats.bad_data,
            stats.unknown_rpc,
        );
        assert!(sent > flood_len(), "the flooders could not send");
        assert!(stats.malformed > 0);
        until_answered(&mut client);
        (0..100).for_each(|_| assert_eq!(client.call(SERVER, 20_000), Ok(())));
    });
}
