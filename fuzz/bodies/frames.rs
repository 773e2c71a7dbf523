//! Frames into a whole stack: the production poller over a virtual NIC.

use demihoma::addr::{Addr, Ip};
use demihoma::homa::{Endpoint, Event, Message, Notify, Payload};
use demihoma::net::{self, Interface};
use demihoma::runtime::Poller;
use demihoma::sim::Nic;
use demihoma::time::Instant;

use super::{Bytes, buffers, params, region};

/// As in the captures.
const PORT: u16 = 4_000;
const OURS: [u8; 4] = [10, 0, 0, 1];
const THEIRS: [u8; 4] = [10, 0, 0, 2];

/// What [`aim`] may change about a frame.
const TO_US: u8 = 1;
const FROM_PEER: u8 = 2;
const LATER: u8 = 4;

/// A frame as [`run`] reads it, for inputs made of captures.
pub fn record(frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![TO_US | FROM_PEER | LATER, 1];
    bytes.extend((frame.len() as u16).to_be_bytes());
    bytes.extend(frame);
    bytes
}

/// Feeds a server and client with frames, each after a byte of flags, one that says how long
/// after the last, and two of length.
pub fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let mut now = Instant(0);
    let net = net::Params {
        addresses: vec![Interface {
            ip: Ip::v4(10, 0, 0, 1),
            prefix: 24,
        }],
        ..net::Params::default()
    };
    let nic = Nic::new(1, 1500, 25_000);
    let poller = Poller::new(nic, net, params(1), region(), now);
    let mut poller = poller.expect("valid params");
    let (server, client) = (poller.homa().open(PORT), poller.homa().open(40_000));
    let (server, client) = (server.expect("a free port"), client.expect("a free port"));
    poller.homa().set_server(server, true);
    for len in [100, 50_000] {
        let buf = buffers().alloc(len).expect("a send buffer");
        let (to, payload) = (Addr::new(Ip::v4(10, 0, 0, 2), PORT), Payload::Buffer(buf));
        let sent = poller
            .homa()
            .send_request(now, client, to, payload, 1, Notify::Never);
        assert!(sent.is_ok(), "{sent:?}");
    }
    while !bytes.is_empty() {
        let (flags, wait) = (bytes.u8(), bytes.span());
        let len = usize::from(bytes.u16());
        let mut frame = bytes.take(len.min(1514)).to_vec();
        aim(&mut frame, flags);
        if flags & LATER != 0 {
            now += wait;
        }
        poller.device_mut().deliver(frame);
        turn(&mut poller, now);
    }
    for socket in [server, client] {
        poller.homa().close(now, socket);
    }
    turn(&mut poller, now);
    super::check_empty(poller.endpoint())
}

fn turn(poller: &mut Poller<Nic>, now: Instant) {
    poller.turn_with(now, |homa, event| serve(homa, now, event));
    poller.endpoint().check();
    while poller.device_mut().take_sent().is_some() {}
}

/// Echoes requests and lets responses go.
fn serve(homa: &mut Endpoint, now: Instant, event: Event) {
    match event {
        Event::Request { rpc, .. } => {
            let Some(Message { run, len, .. }) = homa.take(rpc) else {
                return;
            };
            let payload = Payload::Received { run, start: 0, len };
            let replied = homa.send_response(now, rpc, payload, Notify::Never);
            assert!(replied.is_ok(), "{replied:?}");
            assert!(homa.release(now, run), "the request's bytes were held");
        }
        Event::Response { message, .. } => {
            assert!(homa.release(now, message.run), "the response's were held");
        }
        Event::Failed { .. } | Event::Released { .. } => {}
    }
}

/// Makes a frame one for us, from our peer, so that more of it is looked at.
fn aim(frame: &mut [u8], flags: u8) {
    if flags & TO_US != 0 && frame.len() >= 6 {
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    }
    if frame.len() < 42 {
        return;
    }
    let (from, to) = match frame[12..14] {
        [8, 0] => (26, 30),
        [8, 6] => (28, 38),
        _ => return,
    };
    if flags & FROM_PEER != 0 {
        frame[from..from + 4].copy_from_slice(&THEIRS);
    }
    if flags & TO_US != 0 {
        frame[to..to + 4].copy_from_slice(&OURS);
    }
    if frame[12..14] == [8, 0] && flags & (TO_US | FROM_PEER) != 0 {
        frame[24..26].fill(0);
        let words = frame[14..34].chunks(2);
        let mut sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}
