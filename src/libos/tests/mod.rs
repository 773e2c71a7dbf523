//! Two library OSes joined by a cable, in virtual time: each reading of the clock takes 1 us.

mod buffers;
mod datagrams;
mod face;
mod natives;
mod sockets;
mod streams;
mod streams_chance;
mod stress;
mod waits;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use super::*;
use crate::device::{Caps, Checksums, RX_BURST, RxMeta, TX_BURST, TxMeta};

const MTU: u16 = 1500;

type Os = LibOSOver<Cable, Ticking>;
type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a cable.
struct Cable {
    mac: [u8; 6],
    incoming: Queue,
    outgoing: Queue,
    slot: Vec<u8>,
    /// How many of the next frames sent from here get lost.
    losing: Rc<Cell<u32>>,
}

/// A clock that all share, 1 us later each time it is read.
#[derive(Clone, Default)]
struct Ticking(Rc<Cell<u64>>);

struct World {
    clock: Ticking,
    client: Os,
    server: Os,
    /// Frames the client sends that get lost.
    losing: Rc<Cell<u32>>,
}

impl Device for Cable {
    fn caps(&self) -> Caps {
        Caps {
            mac: self.mac,
            mtu: MTU,
            link_mbps: 10_000,
        }
    }

    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, mut sink: S) -> usize {
        let count = self.incoming.borrow().len().min(RX_BURST);
        for _ in 0..count {
            let frame = self.incoming.borrow_mut().pop_front();
            sink(
                &frame.unwrap(),
                RxMeta {
                    checksums: Checksums::Good,
                },
            );
        }
        count
    }

    fn tx_room(&self) -> usize {
        TX_BURST
    }

    fn tx_slot(&mut self) -> &mut [u8] {
        &mut self.slot
    }

    fn tx_commit(&mut self, frame: Range<usize>, _meta: TxMeta) {
        let losing = self.losing.get();
        match losing {
            0 => self
                .outgoing
                .borrow_mut()
                .push_back(self.slot[frame].to_vec()),
            _ => self.losing.set(losing - 1),
        }
    }

    fn flush(&mut self) {}
}

impl Clock for Ticking {
    fn now(&mut self) -> Instant {
        self.0.set(self.0.get() + 1_000);
        Instant(self.0.get())
    }
}

impl World {
    fn new() -> Self {
        Self::with(Params::default())
    }

    fn with(params: Params) -> Self {
        Self::of(params, homa::Params::default(), 16 << 20)
    }

    /// The same with other settings of the transport, and so many bytes to receive into.
    fn of(params: Params, homa: homa::Params, receive_bytes: usize) -> Self {
        let clock = Ticking::default();
        let losing = Rc::new(Cell::new(0));
        let (east, west) = (Queue::default(), Queue::default());
        let end = |host: u8, incoming: &Queue, outgoing: &Queue, losing| Cable {
            mac: [2, 0, 0, 0, 0, host],
            incoming: Rc::clone(incoming),
            outgoing: Rc::clone(outgoing),
            slot: vec![0; crate::device::NET_ROOM + usize::from(MTU)],
            losing,
        };
        let near = end(1, &west, &east, Rc::clone(&losing));
        let far = end(2, &east, &west, Rc::default());
        let end = |cable, host| {
            let region = Region::owned(receive_bytes).unwrap();
            os(
                cable,
                host,
                clock.clone(),
                params.clone(),
                homa.clone(),
                region,
            )
        };
        let (client, server) = (end(near, 1), end(far, 2));
        Self {
            clock,
            client,
            server,
            losing,
        }
    }

    fn turn(&mut self) {
        self.client.turn();
        self.server.turn();
    }

    /// Turns both for about so long.
    fn live(&mut self, span: Duration) {
        let until = self.clock.0.get() + span.0;
        while self.clock.0.get() < until {
            self.turn();
        }
    }

    /// Nobody turns anything for so long.
    fn pause(&mut self, span: Duration) {
        self.clock.0.set(self.clock.0.get() + span.0);
    }

    /// Turns both until the client's token is done.
    fn client_done(&mut self, qt: QToken) -> OperationResult {
        for _ in 0..1_000_000 {
            match self.client.wait(qt, Some(Duration::ZERO)) {
                Ok(done) => return done.result,
                Err(Error::WaitTimedOut) => self.server.turn(),
                Err(error) => panic!("{error}"),
            };
        }
        panic!("{qt:?} never completes");
    }

    fn server_done(&mut self, qt: QToken) -> OperationResult {
        for _ in 0..1_000_000 {
            match self.server.wait(qt, Some(Duration::ZERO)) {
                Ok(done) => return done.result,
                Err(Error::WaitTimedOut) => self.client.turn(),
                Err(error) => panic!("{error}"),
            };
        }
        panic!("{qt:?} never completes");
    }

    /// A message the server gets from `qd`.
    fn server_pop(&mut self, qd: QDesc) -> Sga {
        let qt = self.server.pop(qd, None).unwrap();
        popped(self.server_done(qt))
    }

    fn client_pop(&mut self, qd: QDesc) -> Sga {
        let qt = self.client.pop(qd, None).unwrap();
        popped(self.client_done(qt))
    }

    /// The client pushes `bytes`, and the push completes.
    fn client_push(&mut self, qd: QDesc, bytes: &[u8], to: Addr) {
        let sga = self.client.sga_of(bytes).unwrap();
        let qt = self.client.pushto(qd, &sga.view(), to).unwrap();
        self.client.sgafree(sga.handle.into()).unwrap();
        assert_eq!(self.client_done(qt), OperationResult::Push);
    }

    fn server_push(&mut self, qd: QDesc, bytes: &[u8], to: Addr) {
        let sga = self.server.sga_of(bytes).unwrap();
        let qt = self.server.pushto(qd, &sga.view(), to).unwrap();
        self.server.sgafree(sga.handle.into()).unwrap();
        assert_eq!(self.server_done(qt), OperationResult::Push);
    }
}

fn os(
    cable: Cable,
    host: u8,
    clock: Ticking,
    params: Params,
    homa: homa::Params,
    region: Region,
) -> Os {
    let homa = homa::Params {
        seed: u64::from(host),
        ..homa
    };
    let params = Params {
        seed: u64::from(host),
        // Each test ends with two lingers, and a turn takes 1 us.
        linger: Duration::millis(2),
        yield_after_turns: 0,
        ..params
    };
    LibOSOver::over(cable, clock, net_params(host), homa, params, region).unwrap()
}

fn net_params(host: u8) -> net::Params {
    let address = net::Interface {
        ip: ip(host),
        prefix: 24,
    };
    net::Params {
        addresses: vec![address],
        seed: u64::from(host),
        ..net::Params::default()
    }
}

fn ip(host: u8) -> Ip {
    Ip::v4(10, 0, 0, host)
}

/// Where the server's sockets are bound in these tests.
fn server_addr() -> Addr {
    Addr::new(ip(2), 7000)
}

fn datagram(os: &mut Os) -> QDesc {
    os.socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap()
}

fn native(os: &mut Os) -> QDesc {
    os.socket(libc::AF_INET, libc::SOCK_DGRAM, 146).unwrap()
}

fn popped(result: OperationResult) -> Sga {
    match result {
        OperationResult::Pop(sga) => sga,
        other => panic!("{other:?} is no message"),
    }
}

fn bytes_of(os: &mut Os, sga: &Sga) -> Vec<u8> {
    os.sga_bytes(&sga.view()).unwrap().to_vec()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
