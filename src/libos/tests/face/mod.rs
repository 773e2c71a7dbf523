//! The homa face. Sections SK, AP and PL of the rules, and those of RP that a socket shows.

mod regions;
mod sockets;

use super::*;
use crate::libos::{HomaRpc, Received, Side, Wanted};

const V4: i32 = libc::AF_INET;

/// The smallest region: 31 pages, of which requests have the lower 16.
const SMALLEST: usize = 2 * 1_000_000 + 65_536;

const ANY_REQUEST: Wanted = Wanted {
    id: 0,
    requests: true,
    responses: false,
    waits: false,
};

const ANY_RESPONSE: Wanted = Wanted {
    requests: false,
    responses: true,
    ..ANY_REQUEST
};

fn by_id(id: u64) -> Wanted {
    Wanted {
        id,
        requests: false,
        ..ANY_REQUEST
    }
}

/// A socket with a region.
fn homa(os: &mut Os, region_len: usize) -> QDesc {
    let qd = os.homa_socket(V4, libc::SOCK_DGRAM, 0xfd).unwrap();
    os.homa_lend(qd, Region::owned(region_len).unwrap())
        .unwrap();
    qd
}

/// A client's socket, and a server's that is bound to [`server_addr`].
fn pair(world: &mut World) -> (QDesc, QDesc) {
    let client = homa(&mut world.client, 64 << 16);
    let server = homa(&mut world.server, 64 << 16);
    world.server.homa_bind(server, server_addr(), V4).unwrap();
    (client, server)
}

fn send(os: &mut Os, qd: QDesc, bytes: &[u8], cookie: u64) -> Result<u64, Error> {
    let fill = |out: &mut [u8]| out.copy_from_slice(bytes);
    os.homa_send(qd, (server_addr(), V4), bytes.len(), fill, cookie)
}

fn reply(os: &mut Os, qd: QDesc, to: &Received, bytes: &[u8]) -> Result<(), Error> {
    let fill = |out: &mut [u8]| out.copy_from_slice(bytes);
    os.homa_reply(qd, to.peer, to.id, bytes.len(), fill)
}

impl World {
    /// Turns both until the server's socket has a request.
    fn server_receive(&mut self, qd: QDesc) -> Received {
        self.receive(qd, &ANY_REQUEST, true)
    }

    fn client_receive(&mut self, qd: QDesc, wanted: &Wanted) -> Received {
        self.receive(qd, wanted, false)
    }

    fn receive(&mut self, qd: QDesc, wanted: &Wanted, at_server: bool) -> Received {
        for _ in 0..1_000_000 {
            let (os, other) = match at_server {
                true => (&mut self.server, &mut self.client),
                false => (&mut self.client, &mut self.server),
            };
            match os.homa_receive(qd, wanted) {
                Ok(received) => return received,
                Err(Error::Exhausted) => other.turn(),
                Err(error) => panic!("{error}"),
            };
        }
        panic!("nothing comes for {wanted:?}");
    }
}

/// A received message's bytes, which are given back.
fn consume(os: &mut Os, qd: QDesc, received: &Received) -> Vec<u8> {
    let (len, parts) = received.result.clone().expect("a message");
    let socket = os.desk.queues.get(qd).unwrap().socket.unwrap();
    let region = os.poller.homa().lent(socket).unwrap().region().unwrap();
    let mut bytes = vec![0; len as usize];
    for (part, chunk) in parts.iter().zip(bytes.chunks_mut(1 << 16)) {
        region.read(*part as usize, chunk);
    }
    os.homa_give_back(qd, &parts).unwrap();
    bytes
}

fn rpcs(os: &mut Os, qd: QDesc) -> Vec<HomaRpc> {
    os.homa_info(qd).unwrap().rpcs
}

fn last_error(os: &mut Os, qd: QDesc) -> String {
    os.homa_info(qd).unwrap().last_error
}

fn polled(qd: QDesc, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd: qd.0 as i32,
        events,
        revents: 0,
    }
}
