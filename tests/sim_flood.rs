//! Hostile packets by the million at a loop that is at work: no crash, bounded tables, and the
//! RPCs of honest hosts finish. Decision 43.

use std::env;

use demihoma::addr::{Addr, Ip};
use demihoma::device::Device;
use demihoma::homa::Params;
use demihoma::sim::{Echo, Garbage, Requester, RequesterParams, Role, Sizes, World};
use demihoma::time::Duration;
use demihoma::wire::homa::{Common, Data, Packet, Placement, RpcId};

const PORT: u16 = 99;
const PAGES: usize = 256;
const RPCS_MAX: u32 = 512;

const CLIENT_HOST: usize = 0;
const SERVER_HOST: usize = 1;

/// Small tables, so that they are full all the time.
fn params() -> Params {
    Params {
        rpcs_max: RPCS_MAX,
        peers_max: 64,
        sockets_max: 4,
        control_max: 256,
        finished_max: 4096,
        ..Params::default()
    }
}

/// A client that calls a server without end.
fn busy_world(seed: u64) -> World<Role> {
    let client = Role::Client(Requester::new(RequesterParams {
        to: Addr::new(World::<Role>::ip_of(2), PORT),
        rpcs: u64::MAX,
        outstanding: 4,
        sizes: Sizes::Uniform(8, 20_000),
        first_number: 1,
        seed,
    }));
    let server = Role::Server(Echo::new(PORT, Duration::micros(20)));
    World::new(seed, &params(), PAGES, vec![client, server])
}

fn flooder(world: &World<Role>, seed: u64, host: usize, from: Vec<Ip>) -> Garbage {
    let poller = &world.hosts[host].poller;
    let to = (poller.device().caps().mac, poller.local_ip());
    Garbage::new(
        seed,
        to,
        ([2, 6, 6, 6, 6, 6], from),
        vec![PORT, 0, 32768, 40_000],
    )
}

/// Strangers of the same network, more than the peer table holds.
fn strangers() -> Vec<Ip> {
    (100..200).map(|last| Ip::v4(10, 0, 0, last)).collect()
}

/// Frames each host is sent.
fn flood_len() -> u64 {
    match env::var_os("DEMIHOMA_SOAK") {
        Some(_) => 20_000_000,
        None => 1_000_000,
    }
}

fn finished(world: &World<Role>) -> u64 {
    world.hosts[CLIENT_HOST].app.client().finished
}

/// A frame a microsecond at each host, in bursts as they come from a NIC.
#[test]
fn rpcs_finish_while_millions_of_hostile_packets_come_from_strangers() {
    const BURST: u64 = 40;
    let seed = 11;
    println!("seed {seed}");
    let mut world = busy_world(seed);
    let hosts = [CLIENT_HOST, SERVER_HOST];
    let mut flooders = hosts.map(|host| flooder(&world, seed + host as u64, host, strangers()));
    let (mut before, mut slowest) = (0, u64::MAX);
    for burst in 0..flood_len() / BURST {
        for (host, garbage) in hosts.into_iter().zip(&mut flooders) {
            for _ in 0..BURST {
                world.hosts[host]
                    .poller
                    .device_mut()
                    .deliver(garbage.frame().to_vec());
            }
            world.turn(host);
        }
        world.run_until(world.now + Duration::micros(BURST));
        if burst % 2500 == 2499 {
            // A tenth of a second, the time after which a client gives up.
            slowest = slowest.min(finished(&world) - before);
            before = finished(&world);
        }
    }
    let client = world.hosts[CLIENT_HOST].app.client();
    assert_eq!(client.failed, []);
    assert!(slowest > 100, "only {slowest} RPCs in a tenth of a second");
    for host in &world.hosts {
        let homa = host.poller.endpoint();
        assert!(homa.rpc_count() <= RPCS_MAX as usize && homa.finished_count(world.now) <= 4096);
        assert!(homa.stats().malformed > 0 && homa.stats().bad_data > 0);
    }
    assert!(world.hosts[SERVER_HOST].app.server().strange > 0);
}

/// The n-th packet of somebody who begins requests, each with an id of its own.
type Greed = fn(u64) -> (u32, usize);

/// A stranger every microsecond begins a request that is whole, or never will be: each wants an
/// RPC slot, the long ones 16 pages and grants, and what is answered is never acknowledged.
#[test]
fn rpcs_finish_while_strangers_want_all_slots_and_pages() {
    let greeds: [Greed; 3] = [
        |_| (100, 100),
        |_| (1_000_000, 1000),
        |n| (100 + (n % 100) as u32 * 10_000, 100),
    ];
    for greed in greeds {
        let mut world = busy_world(12);
        let garbage = flooder(&world, 12, SERVER_HOST, strangers());
        let (mut before, mut slowest) = (0, u64::MAX);
        for n in 0..flood_len() / 4 {
            let (message_length, payload_len) = greed(n);
            let data = Data {
                message_length,
                incoming: message_length,
                ack: None,
                cutoff_version: 1,
                retransmit: false,
                empty_reply: false,
                life: 0,
                offset: 0,
                placement: Placement::InSequence,
            };
            let common = Common {
                sport: 7,
                dport: PORT,
                id: RpcId(n * 2),
            };
            let from = strangers()[(n % 40) as usize];
            let payload = vec![1; payload_len];
            let frame = garbage.carry(from, &common, &Packet::Data(data, &payload));
            world.inject(SERVER_HOST, frame);
            world.run_until(world.now + Duration::micros(1));
            if n % 100_000 == 99_999 {
                slowest = slowest.min(finished(&world) - before);
                before = finished(&world);
                println!("{before} after {n} requests of {message_length} B");
            }
        }
        assert_eq!(world.hosts[CLIENT_HOST].app.client().failed, []);
        // Whoever finds no slot is told to wait, and so does not give up.
        assert!(slowest > 0, "none in a tenth of a second");
        world.run_until(world.now + Duration::millis(100));
        let at_rest = finished(&world);
        world.run_until(world.now + Duration::millis(100));
        assert!(finished(&world) - at_rest > 5_000, "it did not recover");
    }
}
