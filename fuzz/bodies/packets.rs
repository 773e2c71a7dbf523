//! Any sequence of packets at a live endpoint that serves and calls.

use demihoma::addr::{Addr, Ip, Meta};
use demihoma::error::Error;
use demihoma::homa::{Endpoint, Event, Notify, Payload, RunKey, SocketKey};
use demihoma::time::Instant;
use demihoma::wire::homa::{
    self as wire, Ack, Acks, Common, Cutoffs, Data, Grant, Packet, Placement, Resend, RpcId,
};

use super::{Bytes, buffers, check_empty, drain, endpoint, resolve};

/// As in the captures.
const PORT: u16 = 4_000;
const CLIENT_PORT: u16 = 40_000;

/// Reads the next bytes as a packet.
const RAW: u8 = 9;

/// A packet as [`run`] reads it, for inputs made of captures.
pub fn record(packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, RAW];
    bytes.extend((packet.len() as u16).to_be_bytes());
    bytes.extend(packet);
    bytes
}

struct Live {
    homa: Endpoint,
    now: Instant,
    socket: SocketKey,
    /// Ids of RPCs of ours, as their servers know them.
    ids: Vec<u64>,
    /// Requests that were not answered yet.
    requests: Vec<demihoma::homa::RpcKey>,
    held: Vec<RunKey>,
}

/// Each packet is built from a few bytes, so that most of them are nearly right.
pub fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let mut homa = endpoint(1);
    let server = homa.open(PORT).expect("a free port");
    homa.set_server(server, true);
    let socket = homa.open(CLIENT_PORT).expect("a free port");
    let mut live = Live {
        homa,
        now: Instant(0),
        socket,
        ids: Vec::new(),
        requests: Vec::new(),
        held: Vec::new(),
    };
    live.call(100);
    live.call(100_000);
    while !bytes.is_empty() {
        live.step(&mut bytes);
        live.settle();
    }
    let now = live.now;
    live.homa.close(now, server);
    live.homa.close(now, socket);
    live.settle();
    for run in live.held.drain(..) {
        assert!(live.homa.release(now, run), "held bytes are there");
    }
    check_empty(&live.homa)
}

impl Live {
    fn call(&mut self, len: u32) {
        let to = Addr::new(Ip::v4(10, 0, 0, 2), PORT);
        let Some(buf) = buffers().alloc(len as usize) else {
            return;
        };
        let (payload, notify) = (Payload::Buffer(buf), Notify::Delivered(1));
        let sent = self
            .homa
            .send_request(self.now, self.socket, to, payload, 1, notify);
        match sent {
            Ok((_, id)) => self.ids.push(id.0 ^ 1),
            Err(error) => assert!(error == Error::Exhausted || len == 0 || len > 1_000_000),
        }
    }

    fn step(&mut self, bytes: &mut Bytes) {
        let from = Ip::v4(10, 0, 0, 2 + bytes.u8() % 3);
        match bytes.u8() % 16 {
            10 => self.now += bytes.span(),
            11 => self.call(bytes.len().min(1_000_001)),
            12 => self.answer(bytes),
            13 => self.homa.handle_peer_lost(from),
            14 => self
                .homa
                .handle_peer_failed(self.now, from, Error::HostUnreachable),
            15 => {
                let id = RpcId(self.id(bytes) ^ 1);
                let to = Addr::new(from, PORT);
                let error = Error::NotConnected;
                self.homa
                    .handle_unreachable(self.now, to, CLIENT_PORT, id, error);
            }
            RAW => {
                let len = usize::from(bytes.u16());
                self.hear(from, bytes.take(len));
            }
            kind => self.hear_built(kind, from, bytes),
        }
        self.homa.handle_timeout(self.now);
    }

    fn hear(&mut self, from: Ip, packet: &[u8]) {
        let to = Ip::v4(10, 0, 0, 1);
        let meta = Meta { from, to };
        let keep = &mut Endpoint::keep_event;
        let _ = self.homa.handle_packet(self.now, meta, packet, keep);
    }

    fn hear_built(&mut self, kind: u8, from: Ip, bytes: &mut Bytes) {
        let id = self.id(bytes);
        let (sport, dport) = match id % 2 {
            0 => (CLIENT_PORT + u16::from(bytes.u8() % 2), PORT),
            _ => (PORT, CLIENT_PORT),
        };
        let common = Common {
            sport,
            dport,
            id: RpcId(id),
        };
        let payload = [0; 1_420];
        let packet = match kind {
            0..=2 => self.data(bytes, &payload),
            3 => Packet::Grant(Grant {
                offset: bytes.len(),
                priority: bytes.u8() % 8,
            }),
            4 => Packet::Resend(Resend {
                offset: bytes.len(),
                length: (!bytes.u8().is_multiple_of(4)).then(|| bytes.len()),
                priority: bytes.u8() % 8,
            }),
            5 => Packet::Unknown,
            6 => Packet::Busy,
            7 => Packet::NeedAck,
            _ if bytes.u8().is_multiple_of(2) => Packet::Cutoffs(Cutoffs {
                unsched_cutoffs: [0; 8].map(|_: u32| bytes.len()),
                version: bytes.u16(),
            }),
            _ => {
                let mut acks = Acks::default();
                for _ in 0..bytes.u8() % 6 {
                    acks.0.push(self.ack(bytes));
                }
                Packet::Ack(acks)
            }
        };
        let mut room = [0; 1600];
        let len = wire::emit(&common, &packet, &mut room);
        self.hear(from, &room[..len]);
    }

    /// One that lies in its message, if that is long enough.
    fn data<'a>(&self, bytes: &mut Bytes, payload: &'a [u8]) -> Packet<'a> {
        let incoming = bytes.len();
        let (message_length, is_one) = match bytes.u8() % 2 {
            0 => (u32::from(bytes.u16() % 1_421), true),
            _ => (bytes.len(), false),
        };
        let offset = match bytes.u8() % 4 {
            _ if is_one => 0,
            0 => bytes.len(),
            nth => u32::from(nth - 1) * payload.len() as u32,
        };
        let left = message_length.saturating_sub(offset) as usize;
        let flags = bytes.u8();
        let data = Data {
            message_length,
            incoming,
            ack: (flags & 1 > 0).then(|| self.ack(bytes)),
            cutoff_version: u16::from(flags >> 1 & 3),
            retransmit: flags & 8 > 0,
            empty_reply: flags & 16 > 0,
            life: u16::from(flags >> 5),
            offset,
            placement: Placement::InSequence,
        };
        Packet::Data(data, &payload[..left.min(payload.len())])
    }

    fn ack(&self, bytes: &mut Bytes) -> Ack {
        Ack {
            client_id: RpcId(self.id(bytes)),
            server_port: PORT,
        }
    }

    /// Even ones are requests of theirs.
    fn id(&self, bytes: &mut Bytes) -> u64 {
        let lot = bytes.u8();
        match lot % 8 {
            0..=3 => u64::from(lot >> 3) * 2,
            4..=6 => bytes.pick(&self.ids).unwrap_or(1),
            _ => u64::from(bytes.u16()) << 40 | u64::from(lot),
        }
    }

    fn answer(&mut self, bytes: &mut Bytes) {
        let Some(rpc) = bytes.pick(&self.requests) else {
            return;
        };
        self.requests.retain(|&other| other != rpc);
        let Some(message) = self.homa.take(rpc) else {
            return;
        };
        let (run, start, len) = (message.run, 0, message.len);
        let payload = match bytes.u8() % 3 {
            0 => Payload::EmptyReply,
            1 => Payload::Received { run, start, len },
            _ => {
                let len = bytes.u16().max(1);
                let buf = buffers().alloc(len.into());
                buf.map_or(Payload::EmptyReply, Payload::Buffer)
            }
        };
        let replied = self
            .homa
            .send_response(self.now, rpc, payload, Notify::Never);
        assert!(replied.is_ok(), "{replied:?}");
        self.held.push(run);
        if !bytes.u8().is_multiple_of(4) {
            self.held.pop();
            assert!(self.homa.release(self.now, run), "held bytes are there");
        }
    }

    /// Hears what happened, and lets out what is to be sent.
    fn settle(&mut self) {
        resolve(&mut self.homa);
        while let Some(event) = self.homa.poll_event() {
            match event {
                Event::Request { rpc, .. } => self.requests.push(rpc),
                Event::Response { message, .. } => self.held.push(message.run),
                Event::Failed { .. } | Event::Released { .. } => {}
            }
        }
        self.requests
            .drain(..self.requests.len().saturating_sub(64));
        if self.held.len() > 4 {
            let run = self.held.remove(0);
            assert!(self.homa.release(self.now, run), "held bytes are there");
        }
        drain(&mut self.homa, self.now, |_, _| ());
        self.homa.check();
    }
}
