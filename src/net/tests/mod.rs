//! Stacks whose frames the test carries by hand.

mod frames;
mod neighbors;
mod unreachable;

use std::net::Ipv4Addr;
use std::ops::Range;

use super::arp::Arp;
use super::*;
use crate::addr::Sent;
use crate::device::{Checksums, NET_ROOM, TxMeta};
use crate::time::Instant;

const START: Instant = Instant(5_000_000_000);
const A: Ip = Ip::v4(10, 0, 0, 1);
const B: Ip = Ip::v4(10, 0, 0, 2);
const GATEWAY: Ip = Ip::v4(10, 0, 0, 254);
const FAR: Ip = Ip::v4(192, 168, 7, 7);
const FARTHER: Ip = Ip::v4(192, 168, 8, 8);
const PACKET: &[u8] = b"a packet of some thirty bytes...";

fn after(millis: u64) -> Instant {
    START + Duration::millis(millis)
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn params(ip: Ip, last: u8) -> Params {
    Params {
        mac: mac(last),
        addresses: vec![Interface { ip, prefix: 24 }],
        gateway: Some(GATEWAY),
        announce: false,
        ..Params::default()
    }
}

fn host(ip: Ip, last: u8) -> Stack {
    Stack::new(params(ip, last)).unwrap()
}

fn v4(ip: Ip) -> Ipv4Addr {
    ip.as_v4().unwrap()
}

/// The next frame that the stack itself wants to send.
fn transmit(stack: &mut Stack, now: Instant) -> Option<Vec<u8>> {
    let mut slot = [0xee; 2000];
    let (frame, meta) = stack.poll_transmit(now, &mut slot)?;
    assert_eq!(meta.l2_len, 14);
    Some(slot[frame].to_vec())
}

/// All frames it wants to send.
fn drain(stack: &mut Stack, now: Instant) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| transmit(stack, now)).collect()
}

fn receive<'f>(stack: &mut Stack, now: Instant, frame: &'f [u8]) -> Option<Ingress<'f>> {
    stack.ingress(now, frame, Checksums::Unknown)
}

/// The frame around `packet`, as the stack sends it.
fn seal(stack: &mut Stack, link: LinkId, packet: &[u8], priority: u8) -> Option<Vec<u8>> {
    let mut slot = [0xee; 2000];
    slot[NET_ROOM..NET_ROOM + packet.len()].copy_from_slice(packet);
    let len = packet.len() as u16;
    let sent = Sent::new(len, link, priority).unwrap();
    let (frame, meta): (Range<usize>, TxMeta) = stack.seal(&mut slot, &sent)?;
    assert_eq!(
        (meta.l2_len, meta.l3_len, meta.priority),
        (14, 20, priority)
    );
    Some(slot[frame].to_vec())
}

/// Two hosts, of which A knows the way to B.
fn pair() -> (Stack, Stack, LinkId) {
    let (mut a, mut b) = (host(A, 1), host(B, 2));
    assert_eq!(a.link(START, B), Ok(None));
    let request = transmit(&mut a, START).unwrap();
    receive(&mut b, START, &request);
    let answer = transmit(&mut b, START).unwrap();
    receive(&mut a, START, &answer);
    let Some(Event::Up { peer: B, link }) = a.poll_event() else {
        panic!("B answered");
    };
    (a, b, link)
}

/// A frame of B's for A with a packet in it.
fn frame_for_a() -> Vec<u8> {
    let (mut a, mut b, link) = pair();
    let frame = seal(&mut a, link, PACKET, 0).unwrap();
    receive(&mut b, START, &frame);
    let link = b.link(START, A).unwrap().unwrap();
    seal(&mut b, link, PACKET, 3).unwrap()
}

/// Changes a frame's IPv4 header and makes its checksum right again.
fn bent(frame: &[u8], bend: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = frame.to_vec();
    bend(&mut frame[14..]);
    smoltcp::wire::Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    frame
}

fn arp_frame(arp: Arp) -> Vec<u8> {
    let mut frame = vec![0; arp::FRAME_LEN];
    arp.emit(&mut frame);
    frame
}

/// "I, at `from`, tell you at `to` that I have this link address."
fn answer_frame(from: Ip, last: u8, to: Ip, to_last: u8) -> Vec<u8> {
    arp_frame(Arp {
        is_reply: true,
        sender_mac: mac(last),
        sender_ip: v4(from),
        target_mac: mac(to_last),
        target_ip: v4(to),
    })
}

#[test]
fn parameters_that_make_no_sense_are_named() {
    assert_eq!(params(A, 1).validate(), Ok(()));
    type Bend = fn(&mut Params);
    let cases: [(&str, Bend); 13] = [
        ("mac", |p| p.mac = [0; 6]),
        ("mac", |p| p.mac[0] = 3),
        ("addresses", |p| p.addresses.clear()),
        ("addresses", |p| p.addresses = vec![p.addresses[0]; 17]),
        ("addresses", |p| p.addresses[0].prefix = 33),
        ("addresses", |p| p.addresses[0].ip = Ip(1)),
        ("addresses", |p| p.addresses[0].ip = Ip::v4(10, 0, 0, 255)),
        ("gateway", |p| p.gateway = Some(FAR)),
        ("gateway", |p| p.gateway = Some(A)),
        ("mtu", |p| p.mtu = 575),
        ("ip_protocol", |p| p.ip_protocol = 1),
        ("neighbors_max", |p| p.neighbors_max = 16_369),
        ("arp_tries", |p| p.arp_tries = 0),
    ];
    for (key, bend) in cases {
        let mut params = params(A, 1);
        bend(&mut params);
        let why = params.validate().unwrap_err();
        assert!(why.starts_with(key), "{key}: {why}");
        assert!(Stack::new(params).is_err());
    }
}
