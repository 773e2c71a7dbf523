//! "Unreachable" in virtual time: which RPCs it ends, with which error, and which it does not.

use std::cell::RefCell;
use std::rc::Rc;

use demihoma::addr::{Addr, Ip};
use demihoma::error::Error;
use demihoma::homa::Params;
use demihoma::sim::{Echo, Requester, RequesterParams, Role, Sizes, Tap, World};
use demihoma::time::{Duration, Instant};
use smoltcp::wire::{Icmpv4Packet, Ipv4Packet};

const PORT: u16 = 99;
const SERVER: Addr = Addr::new(Ip::v4(10, 0, 0, 2), PORT);
const ROUTER: Ip = Ip::v4(10, 0, 0, 254);

/// Link address of the client, and of whoever speaks to it.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// How long the server's handler takes: within it, the client's RPC is open.
const SERVICE: Duration = Duration::millis(20);

/// The client's RPC is out, and the server at work on it.
const AMID: Instant = Instant(5_000_000);

/// A world with one RPC in service, and the client's frame that carried it.
fn amid_an_rpc() -> (World<Role>, Vec<u8>) {
    let client = Requester::new(RequesterParams {
        to: SERVER,
        rpcs: 1,
        outstanding: 1,
        sizes: Sizes::Fixed(100),
        first_number: 1,
        seed: 5,
    });
    let server = Echo::new(PORT, SERVICE);
    let apps = vec![Role::Client(client), Role::Server(server)];
    let mut world = World::new(7, &Params::default(), 16, apps);
    let tap = Rc::new(RefCell::new(Tap::new(&[])));
    world.watch = Some(tap.clone());
    world.run_until(AMID);
    let frames = std::mem::take(&mut tap.borrow_mut().frames);
    let is_request = |frame: &[u8]| frame[23] == 146 && frame.len() == 34 + 56 + 100;
    let request = frames
        .into_iter()
        .find(|it| it.from == 0 && is_request(&it.frame));
    (world, request.unwrap().frame)
}

/// `from` says that the client's frame could not be delivered.
fn unreachable(code: u8, from: Ip, frame: &[u8]) -> Vec<u8> {
    let quoted = &frame[14..14 + 20 + 56];
    let mut notice = vec![0; 34 + 8];
    notice.extend_from_slice(quoted);
    notice[..6].copy_from_slice(&TO);
    notice[6..12].copy_from_slice(&FROM);
    notice[12..14].copy_from_slice(&[8, 0]);
    let total = (notice.len() - 14) as u16;
    let ip = &mut notice[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    (ip[8], ip[9]) = (64, 1);
    ip[12..16].copy_from_slice(&from.as_v4().unwrap().octets());
    ip[16..20].copy_from_slice(&frame[26..30]);
    Ipv4Packet::new_unchecked(&mut notice[14..34]).fill_checksum();
    (notice[34], notice[35]) = (3, code);
    Icmpv4Packet::new_unchecked(&mut notice[34..]).fill_checksum();
    notice
}

/// What becomes of the RPC when the client hears this.
fn outcome(notice: impl Fn(&[u8]) -> Vec<u8>) -> Result<(), Error> {
    let (mut world, request) = amid_an_rpc();
    world.inject(0, notice(&request));
    world.run_until(AMID + Duration::millis(1));
    let client = world.hosts[0].app.client();
    if let Some(&(_, error)) = client.failed.first() {
        // It is told at once, and nothing is left of the RPC.
        assert_eq!(world.hosts[0].poller.endpoint().rpc_count(), 0);
        return Err(error);
    }
    assert!(!client.is_done());
    world.run_until(AMID + Duration::secs(1));
    assert_eq!(world.hosts[0].app.client().finished, 1);
    Ok(())
}

#[test]
fn each_reason_ends_the_rpc_with_its_own_error() {
    for (code, from, error) in [
        (3, SERVER.ip, Error::NotConnected),
        (2, SERVER.ip, Error::ProtocolUnsupported),
        (1, SERVER.ip, Error::HostUnreachable),
        (1, ROUTER, Error::HostUnreachable),
        (0, ROUTER, Error::HostUnreachable),
        (13, ROUTER, Error::HostUnreachable),
        (4, ROUTER, Error::MessageTooLong),
    ] {
        let found = outcome(|request| unreachable(code, from, request));
        assert_eq!(found, Err(error), "code {code} of {from}");
    }
}

/// Where in the quoted frame a lie may stand: addresses, ports, id. The checksum of a quoted header
/// is not looked at: routers have changed it.
#[test]
fn a_notice_that_quotes_no_packet_of_a_live_rpc_ends_nothing() {
    for at in [26, 29, 30, 33, 34, 35, 36, 37, 54, 58, 61] {
        let found = outcome(|request| {
            let mut quoted = request.to_vec();
            quoted[at] ^= 2;
            let mut notice = unreachable(3, SERVER.ip, &quoted);
            // Whatever it quotes, it goes to the client.
            notice[30..34].copy_from_slice(&request[26..30]);
            Ipv4Packet::new_unchecked(&mut notice[14..34]).fill_checksum();
            notice
        });
        assert_eq!(found, Ok(()), "byte {at}");
    }
}

#[test]
fn a_third_host_cannot_speak_for_the_servers_ports() {
    for code in [2, 3] {
        assert_eq!(
            outcome(|request| unreachable(code, ROUTER, request)),
            Ok(())
        );
    }
}

/// A quote of eight bytes, the least there may be, names ports but no RPC.
#[test]
fn a_notice_that_names_no_rpc_ends_none() {
    let found = outcome(|request| {
        let mut notice = unreachable(3, SERVER.ip, request);
        notice.truncate(34 + 8 + 20 + 8);
        let total = (notice.len() - 14) as u16;
        notice[16..18].copy_from_slice(&total.to_be_bytes());
        Ipv4Packet::new_unchecked(&mut notice[14..34]).fill_checksum();
        Icmpv4Packet::new_unchecked(&mut notice[34..]).fill_checksum();
        notice
    });
    assert_eq!(found, Ok(()));
}

/// Within one round trip: no timer has a part in it.
#[test]
fn a_closed_port_is_told_at_once() {
    let client = |port| {
        Role::Client(Requester::new(RequesterParams {
            to: Addr::new(SERVER.ip, port),
            rpcs: 3,
            outstanding: 1,
            sizes: Sizes::Fixed(100),
            first_number: 1,
            seed: 5,
        }))
    };
    let apps = vec![client(PORT + 1), Role::Server(Echo::new(PORT, SERVICE))];
    let mut world = World::new(7, &Params::default(), 16, apps);
    world.run_until(Instant(900_000));
    let failed = &world.hosts[0].app.client().failed;
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(
        failed
            .iter()
            .all(|&(_, error)| error == Error::NotConnected)
    );
}
