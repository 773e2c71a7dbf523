//! Any order of calls at two endpoints that talk to each other.

use demihoma::addr::{Addr, Ip, LinkId, Meta};
use demihoma::error::Error;
use demihoma::homa::{Endpoint, Event, Notify, Payload, RpcKey, RunKey, SocketKey};
use demihoma::time::Instant;

use super::{Bytes, buffers, check_empty, drain, endpoint};

/// Calls as [`run`] reads them, for fuzzers to start from: an RPC of several lengths, well and with
/// losses, and with something in between that ends it.
pub fn records() -> Vec<(String, Vec<u8>)> {
    /// Places in the lengths of [`Bytes::len`]: 100 B, 2,840 B, 40,000 B and 500,000 B.
    const LENS: [u8; 4] = [3, 6, 9, 11];
    /// The last call on side 1, by what it does.
    const ENDS: [(&str, &[u8]); 7] = [
        ("nothing", &[]),
        ("abort", &[128 | 23, 0, 0]),
        ("forget", &[24, 0, 0]),
        ("client-closes", &[28, 0, 0, 0]),
        ("server-closes", &[128 | 28, 0, 0, 0]),
        ("peer-lost", &[29, 0, 0]),
        ("peer-failed", &[128 | 30, 0, 0]),
    ];
    let mut records = Vec::new();
    for (len, lost, end) in (0..LENS.len() * 2 * ENDS.len()).map(|n| (n / 14, n / 7 % 2, n % 7)) {
        let (at, lost) = (LENS[len], [0, 0b0100_0010][lost]);
        // Socket and RPC, port 99, a buffer of that length, told when it is delivered.
        let mut bytes = vec![11, 0, 0, 2, 2, 0, at, 2];
        (0..8).for_each(|_| bytes.extend([0, lost, 6, 8]));
        bytes.extend([128 | 17, 0, 0, 128 | 20, 0, 0, 2, 0, at, 2, 0, lost]);
        bytes.extend(ENDS[end].1);
        (0..8).for_each(|_| bytes.extend([0, 0, 6, 12]));
        bytes.extend([25, 0, 0, 0]);
        records.push((format!("{at}-{lost}-{}", ENDS[end].0), bytes));
    }
    records
}

/// One endpoint, and all that its user was ever given.
struct Side {
    homa: Endpoint,
    ip: Ip,
    sockets: Vec<SocketKey>,
    rpcs: Vec<RpcKey>,
    /// Runs that the user holds, each as often as it does.
    held: Vec<RunKey>,
    /// Packets on their way out.
    wire: Vec<Vec<u8>>,
}

pub fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let mut now = Instant(0);
    let mut sides = [1, 2].map(|number| Side {
        homa: endpoint(number.into()),
        ip: Ip::v4(10, 0, 0, number),
        sockets: Vec::new(),
        rpcs: Vec::new(),
        held: Vec::new(),
        wire: Vec::new(),
    });
    sides.iter_mut().for_each(|side| side.open(99));
    while !bytes.is_empty() {
        let lot = bytes.u8();
        let (which, other) = (usize::from(lot >> 7), usize::from(lot < 128));
        let peer = sides[other].ip;
        match lot % 32 {
            0..=5 => carry(&mut sides, now, bytes.u8()),
            6 => now += bytes.span(),
            // The host stands still for long.
            7 => now += demihoma::time::Duration::millis(u64::from(bytes.u16())),
            call => sides[which].act(call, now, peer, &mut bytes),
        }
        for side in &mut sides {
            side.homa.handle_timeout(now);
            side.settle(now);
        }
    }
    let mut messages = 0;
    for side in &mut sides {
        for socket in side.sockets.clone() {
            side.homa.close(now, socket);
        }
        side.settle(now);
        for run in side.held.drain(..) {
            assert!(side.homa.release(now, run), "held bytes are there");
        }
        messages += check_empty(&side.homa);
    }
    messages
}

/// Each packet arrives, unless a bit says that it is lost.
fn carry(sides: &mut [Side; 2], now: Instant, lost: u8) {
    let wires = [0, 1].map(|side| std::mem::take(&mut sides[side].wire));
    for (from, wire) in wires.iter().enumerate() {
        let meta = Meta {
            from: sides[from].ip,
            to: sides[1 - from].ip,
        };
        for (nth, packet) in wire.iter().enumerate() {
            if lost >> (nth % 8) & 1 == 0 || lost > 0xf0 {
                let keep = &mut Endpoint::keep_event;
                let _ = sides[1 - from].homa.handle_packet(now, meta, packet, keep);
            }
        }
    }
}

impl Side {
    fn open(&mut self, port: u16) {
        if let Ok(socket) = self.homa.open(port) {
            self.homa.set_server(socket, true);
            self.sockets.push(socket);
        }
    }

    fn act(&mut self, call: u8, now: Instant, peer: Ip, bytes: &mut Bytes) {
        let socket = bytes.pick(&self.sockets).unwrap_or_default();
        let rpc = bytes.pick(&self.rpcs).unwrap_or_default();
        match call {
            8 => self.open(u16::from(bytes.u8() % 4) + 97),
            9 => {
                let _ = self.homa.bind(socket, u16::from(bytes.u8() % 4) + 97);
            }
            10 => self.homa.set_server(socket, !bytes.u8().is_multiple_of(4)),
            11..=16 => self.request(now, socket, peer, bytes),
            17..=19 => {
                if let Some(message) = self.homa.take(rpc) {
                    self.held.push(message.run);
                }
            }
            20..=22 => {
                let (payload, notify) = (self.payload(bytes), notify(bytes));
                let _ = self.homa.send_response(now, rpc, payload, notify);
            }
            23 => self.homa.abort(now, rpc, Error::Canceled),
            24 => self.homa.forget(now, rpc),
            25 | 26 => {
                let at = usize::from(bytes.u8());
                if let Some(at) = at.checked_rem(self.held.len()) {
                    let run = self.held.swap_remove(at);
                    assert!(self.homa.release(now, run), "held bytes are there");
                    let is_held = self.held.contains(&run);
                    assert!(!is_held || self.homa.retain(run), "two held it");
                    self.held.extend(is_held.then_some(run));
                }
            }
            27 => {
                if let Some(run) = bytes.pick(&self.held) {
                    assert!(self.homa.retain(run), "held bytes are there");
                    self.held.push(run);
                }
            }
            28 if bytes.u8().is_multiple_of(4) => self.homa.close(now, socket),
            29 => self.homa.handle_peer_lost(peer),
            30 => self
                .homa
                .handle_peer_failed(now, peer, Error::HostUnreachable),
            31 => self.homa.send_saved_acks(socket),
            _ => {
                let _ = self.homa.is_settled(socket);
            }
        }
    }

    fn request(&mut self, now: Instant, socket: SocketKey, peer: Ip, bytes: &mut Bytes) {
        let to = Addr::new(peer, u16::from(bytes.u8() % 4) + 97);
        let (payload, notify) = (self.payload(bytes), notify(bytes));
        if let Ok((rpc, _)) = self.homa.send_request(now, socket, to, payload, 1, notify) {
            self.rpcs.push(rpc);
        }
    }

    fn payload(&self, bytes: &mut Bytes) -> Payload {
        match bytes.u8() % 4 {
            0 => Payload::EmptyReply,
            1 => match bytes.pick(&self.held) {
                Some(run) => Payload::Received {
                    run,
                    start: bytes.len(),
                    len: bytes.len(),
                },
                None => Payload::Gone,
            },
            _ => {
                let buf = buffers().alloc(bytes.len().min(1_000_001) as usize);
                buf.map_or(Payload::Gone, Payload::Buffer)
            }
        }
    }

    fn settle(&mut self, now: Instant) {
        while let Some(ip) = self.homa.poll_unresolved() {
            self.homa.handle_peer_up(ip, LinkId::new(0, 7, 0));
        }
        while let Some(event) = self.homa.poll_event() {
            match event {
                Event::Request { rpc, .. } => self.rpcs.push(rpc),
                Event::Response { message, .. } => self.held.push(message.run),
                Event::Failed { .. } | Event::Released { .. } => {}
            }
        }
        // Stale keys are worth keeping, but not all.
        self.rpcs.drain(..self.rpcs.len().saturating_sub(64));
        let wire = &mut self.wire;
        drain(&mut self.homa, now, |_, packet| wire.push(packet.to_vec()));
        self.wire.truncate(4_096);
        self.homa.check();
    }
}

fn notify(bytes: &mut Bytes) -> Notify {
    match bytes.u8() % 3 {
        0 => Notify::Never,
        1 => Notify::Transmitted(1),
        _ => Notify::Delivered(1),
    }
}
