//! One endpoint, driven by hand: packets go in, time passes tick by tick, packets come out.

mod answers;
mod asking;
mod ends;
mod greed;
mod hostile;
mod identity;
mod incoming;
mod lent;
mod lives;
mod reaping;
mod repair;
mod sending;

use super::*;
use crate::addr::{Addr, LinkId, Meta};
use crate::homa::Message;
use crate::homa::event::{Payload, SocketKey};
use crate::time::Duration;
use crate::wire::homa::{self as wire, Ack, Common, Data, Packet, Placement, Resend};

const OURS: Ip = Ip::v4(10, 0, 0, 1);
const PEER: Addr = Addr::new(Ip::v4(10, 0, 0, 2), 40_000);
const PORT: u16 = 99;

/// An endpoint with an open server port, to which all peers are linked.
pub(super) struct Rig {
    homa: Endpoint,
    now: Instant,
    socket: SocketKey,
}

impl Rig {
    fn new() -> Self {
        Self::with(Params::default(), 16)
    }

    fn with(params: Params, pages: usize) -> Self {
        let region = Region::owned(pages << 16).unwrap();
        let mut homa = Endpoint::new(params, region, Instant(0)).unwrap();
        let socket = homa.open(PORT).unwrap();
        homa.set_server(socket, true);
        let now = Instant(0);
        Self { homa, now, socket }
    }

    fn hear(&mut self, from: Addr, id: u64, packet: &Packet<'_>) -> bool {
        self.hear_on(PORT, from, id, packet)
    }

    /// Takes a packet whose sender knows its RPC as `id`; false if it was dropped.
    fn hear_on(&mut self, port: u16, from: Addr, id: u64, packet: &Packet<'_>) -> bool {
        let verdict = self.verdict_on(port, from, id, packet);
        !matches!(verdict, Verdict::Dropped | Verdict::PortUnreachable)
    }

    fn verdict(&mut self, from: Addr, id: u64, packet: &Packet<'_>) -> Verdict {
        self.verdict_on(PORT, from, id, packet)
    }

    fn verdict_on(&mut self, port: u16, from: Addr, id: u64, packet: &Packet<'_>) -> Verdict {
        let verdict = self.hear_unlinked_on(port, from, id, packet);
        self.resolve();
        self.homa.check();
        verdict
    }

    /// Takes a packet of which there are so many that not each can be followed by a check.
    fn hear_unchecked(&mut self, from: Addr, id: u64, packet: &Packet<'_>) {
        let _ = self.hear_unlinked_on(PORT, from, id, packet);
        self.resolve();
    }

    /// Takes a packet, and the link of its sender is not found yet.
    fn hear_unlinked(&mut self, from: Addr, id: u64, packet: &Packet<'_>) {
        let _ = self.hear_unlinked_on(PORT, from, id, packet);
    }

    fn hear_unlinked_on(&mut self, port: u16, from: Addr, id: u64, packet: &Packet<'_>) -> Verdict {
        let common = Common {
            sport: from.port,
            dport: port,
            id: RpcId(id),
        };
        let mut bytes = [0; 1600];
        let len = wire::emit(&common, packet, &mut bytes);
        let meta = Meta {
            from: from.ip,
            to: OURS,
        };
        self.homa
            .handle_packet(self.now, meta, &bytes[..len], &mut Endpoint::keep_event)
    }

    /// Somebody says that the packet we sent from `port` to `to` found nobody.
    fn unreachable(&mut self, to: Addr, port: u16, id: u64) {
        let error = Error::NotConnected;
        self.homa
            .handle_unreachable(self.now, to, port, RpcId(id), error);
        self.homa.check();
    }

    fn resolve(&mut self) {
        while let Some(ip) = self.homa.poll_unresolved() {
            self.homa.handle_peer_up(ip, LinkId::new(0, 7, 0));
        }
    }

    /// A whole request of these bytes.
    fn request(&mut self, from: Addr, id: u64, bytes: &[u8]) -> bool {
        let data = data(bytes.len() as u32, 0);
        self.hear(from, id, &Packet::Data(data, bytes))
    }

    /// Lets `ticks` pass, and gives what was sent at each, from the first.
    fn pass(&mut self, ticks: u32) -> Vec<Vec<Out>> {
        let tick = |_| {
            self.now += self.homa.params().tick;
            self.homa.handle_timeout(self.now);
            while self.homa.due_left {
                self.homa.handle_timeout(self.now);
            }
            self.sent()
        };
        (0..ticks).map(tick).collect()
    }

    /// What is sent now.
    fn sent(&mut self) -> Vec<Out> {
        let packets = self.packets();
        let parsed = packets.iter().map(|(_, packet)| wire::parse(packet));
        let outs = parsed.map(|parsed| parsed.unwrap());
        outs.map(|(common, packet)| Out::new(common, &packet))
            .collect()
    }

    /// As [`Self::sent`]: each packet's priority and its bytes.
    fn packets(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.resolve();
        let mut room = [0; 1600];
        let mut packets = Vec::new();
        while let Some(sent) = self.homa.poll_transmit(self.now, &mut room) {
            packets.push((sent.priority, room[..usize::from(sent.len.get())].to_vec()));
        }
        self.homa.check();
        packets
    }

    /// The DATA among what is sent now: priority and header of each.
    fn data_sent(&mut self) -> Vec<(u8, Data)> {
        let packets = self.packets();
        let data = packets.iter().filter_map(|(priority, packet)| {
            let (_, data, _) = wire::parse_data(packet)?;
            Some((*priority, data))
        });
        data.collect()
    }

    /// Takes the next request that was announced, and so begins its service.
    fn serve(&mut self) -> Option<Message> {
        while let Some(event) = self.homa.poll_event() {
            if let Event::Request { rpc, .. } = event {
                return Some(self.homa.take(rpc).expect("a request that is there"));
            }
        }
        None
    }

    /// How many requests are announced and still there.
    fn announced(&mut self) -> usize {
        std::iter::from_fn(|| self.homa.poll_event()).count()
    }

    /// Serves the next request with a response of `len` zero bytes.
    fn answer(&mut self, len: u32) -> Message {
        let message = self.serve().expect("a request");
        self.reply(message.rpc, len);
        assert!(self.homa.release(self.now, message.run));
        message
    }

    fn reply(&mut self, rpc: RpcKey, len: u32) {
        let replied = self
            .homa
            .send_response(self.now, rpc, zeros(len), Notify::Never);
        assert_eq!(replied, Ok(()));
    }

    /// Calls [`PEER`] with `len` zero bytes, and sends what goes at once.
    fn call(&mut self, len: u32) -> (RpcKey, u64) {
        let called =
            self.homa
                .send_request(self.now, self.socket, PEER, zeros(len), 5, Notify::Never);
        let (key, id) = called.unwrap();
        self.sent();
        (key, id.0)
    }

    /// Part of a response of `len` bytes comes for the client RPC that we know as `id`.
    fn response(&mut self, from: Addr, id: u64, len: u32, part: std::ops::Range<u32>) -> bool {
        let bytes = vec![0; part.len()];
        let packet = Packet::Data(data(len, part.start), &bytes);
        self.hear(from, id ^ 1, &packet)
    }

    /// How the only client RPC that is done ended.
    fn outcome(&mut self) -> Option<Result<u32, Error>> {
        let event = self.homa.poll_event()?;
        match event {
            Event::Response { message, .. } => {
                assert!(self.homa.release(self.now, message.run));
                Some(Ok(message.len))
            }
            Event::Failed { error, .. } => Some(Err(error)),
            Event::Request { .. } | Event::Released { .. } => panic!("{event:?}"),
        }
    }
}

/// What matters of a packet that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    Data(u64, std::ops::Range<u32>),
    Resend(u64, u32, Option<u32>),
    Other(u64, &'static str),
}

impl Out {
    fn new(common: Common, packet: &Packet<'_>) -> Self {
        match packet {
            Packet::Data(data, payload) => {
                let end = data.offset + payload.len() as u32;
                Self::Data(common.id.0, data.offset..end)
            }
            Packet::Resend(resend) => Self::Resend(common.id.0, resend.offset, resend.length),
            other => Self::Other(common.id.0, other.name()),
        }
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Self::Data(..) => name == "DATA",
            Self::Resend(..) => name == "RESEND",
            Self::Other(_, other) => name == *other,
        }
    }
}

fn data(message_length: u32, offset: u32) -> Data {
    Data {
        message_length,
        incoming: message_length,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        empty_reply: false,
        life: 0,
        offset,
        placement: Placement::InSequence,
    }
}

fn ack(id: u64) -> Ack {
    Ack {
        client_id: RpcId(id),
        server_port: PORT,
    }
}

fn zeros(len: u32) -> Payload {
    let mut buf = crate::mem::Buffers::new(1 << 21)
        .alloc(len as usize)
        .unwrap();
    buf.make_mut().unwrap().fill(0);
    Payload::Buffer(buf)
}

/// At which ticks, from 1, one of `name` was sent.
fn ticks_of(name: &str, sent: &[Vec<Out>]) -> Vec<usize> {
    let has =
        |(tick, outs): (usize, &Vec<Out>)| outs.iter().any(|out| out.is(name)).then_some(tick + 1);
    sent.iter().enumerate().filter_map(has).collect()
}
