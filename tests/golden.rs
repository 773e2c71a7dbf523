//! The codec against frames that the Linux module itself put on a wire. See tests/golden/README.md.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use demihoma::addr::{Addr, Ip, LinkId, Sent};
use demihoma::device::{Checksums, NET_ROOM};
use demihoma::net::{Event, Ingress, Interface, Params, Stack, Unreachable};
use demihoma::time::Instant;
use demihoma::trace::pcap;
use demihoma::wire::homa;
use flate2::read::GzDecoder;

/// One packet, cut out of its frame as the IP header says.
struct Datagram<'a> {
    from: Ip,
    to: Ip,
    packet: &'a [u8],
}

/// Homa under its own protocol number.
const NATIVE: u8 = 146;
/// Homa that looks like TCP.
const HIJACK: u8 = 6;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// Name and content of every capture.
fn captures() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(golden("")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .map(|path| {
            let mut bytes = Vec::new();
            let file = File::open(&path).unwrap();
            GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            (name.trim_end_matches(".pcap.gz").to_owned(), bytes)
        })
        .collect()
}

fn for_each_frame(capture: &[u8], mut look: impl FnMut(&[u8])) {
    let mut reader = pcap::Reader::new(capture).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        look(record.frame);
    }
}

/// Name and bytes of the frames of frames.txt: a line that names and one that decodes before each.
fn golden_frames() -> Vec<(String, Vec<u8>)> {
    let text = fs::read_to_string(golden("frames.txt")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let frames = lines.chunks(3).map(|lines| {
        let hex = lines[2].trim().as_bytes().chunks(2);
        let byte = |digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        (lines[0].to_owned(), hex.map(byte).collect())
    });
    frames.collect()
}

/// The Homa packet in an Ethernet frame, if it holds one.
fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let ip = &frame[14..];
    let (from, to, protocol, packet) = match frame[12..14] {
        [0x08, 0x00] => {
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let v4 = |at: usize| Ip::v4(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (v4(12), v4(16), ip[9], &ip[20..total])
        }
        [0x86, 0xdd] => {
            let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            let v6 = |at: usize| Ip(u128::from_be_bytes(ip[at..at + 16].try_into().unwrap()));
            (v6(8), v6(24), ip[6], &ip[40..40 + len])
        }
        _ => return None,
    };
    let is_homa = match protocol {
        NATIVE => true,
        // As the module tells it from TCP: by flags and urgent pointer.
        HIJACK => packet.len() >= 20 && packet[13] & 0x06 == 0x06 && packet[18..20] == [0xb9, 0x7d],
        _ => false,
    };
    is_homa.then_some(Datagram { from, to, packet })
}

/// The packet written anew from what parsing found, with its checksum.
fn rewrite(datagram: &Datagram<'_>) -> Vec<u8> {
    let (common, packet) = homa::parse(datagram.packet).unwrap();
    let mut out = vec![0xee; datagram.packet.len().max(100)];
    let len = homa::emit(&common, &packet, &mut out);
    out.truncate(len);
    homa::set_checksum(&mut out, datagram.from, datagram.to);
    out
}

#[test]
fn one_frame_of_each_type_comes_out_byte_for_byte_again() {
    let frames = golden_frames();
    let mut types: Vec<&str> = Vec::new();
    for (name, frame) in &frames {
        let datagram = datagram(frame).unwrap();
        assert!(homa::checksum_is_valid(
            datagram.packet,
            datagram.from,
            datagram.to
        ));
        types.push(homa::parse(datagram.packet).unwrap().1.name());
        assert_eq!(rewrite(&datagram), datagram.packet, "{name}");
    }
    types.sort_unstable();
    types.dedup();
    assert_eq!((frames.len(), types.len()), (10, 9));
}

/// The four were sent on purpose: DATA and GRANT cut short, and types 0x19 and 0x0f.
#[test]
fn every_homa_packet_of_every_capture_parses_but_four_of_the_raw_probe() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut malformed = Vec::new();
    for (name, capture) in &captures() {
        for_each_frame(capture, |frame| {
            let Some(datagram) = datagram(frame) else {
                return;
            };
            match homa::parse(datagram.packet) {
                Ok((_, packet)) => *counts.entry(packet.name()).or_default() += 1,
                Err(why) => malformed.push((name.clone(), datagram.packet[11], why)),
            }
        });
    }
    use homa::Malformed::{Short, Type};
    let expected = [(0x10, Short), (0x11, Short), (0x19, Type), (0x0f, Type)];
    let expected = expected.map(|(kind, why)| ("70_raw_probe".to_owned(), kind, why));
    assert_eq!(malformed, expected);
    let counts: Vec<(&str, u32)> = counts.into_iter().collect();
    let expected = [
        ("ACK", 124),
        ("BUSY", 220),
        ("CUTOFFS", 23),
        ("DATA", 3603),
        ("FREEZE", 1),
        ("GRANT", 220),
        ("NEED_ACK", 1309),
        ("RESEND", 345),
        ("RPC_UNKNOWN", 10),
    ];
    assert_eq!(counts, expected);
}

/// Segmentation offload leaves the sequence, the data offset and the checksum stale, and the raw
/// probe sent zeroes there on purpose; in those captures these fields are not compared.
#[test]
fn every_packet_of_every_capture_comes_out_byte_for_byte_again() {
    let stale = |name: &str| {
        ["67", "70", "80"]
            .iter()
            .any(|number| name.starts_with(number))
    };
    for (name, capture) in &captures() {
        for_each_frame(capture, |frame| {
            let Some(datagram) = datagram(frame) else {
                return;
            };
            if homa::parse(datagram.packet).is_err() {
                return;
            }
            let (mut ours, mut theirs) = (rewrite(&datagram), datagram.packet.to_vec());
            if stale(name) {
                for packet in [&mut ours, &mut theirs] {
                    packet[4..8].fill(0);
                    packet[12..20].fill(0);
                }
            }
            assert_eq!(ours, theirs, "{name}");
        });
    }
}

const NOW: Instant = Instant(1_000_000_000);

/// The network layer of the host with these addresses.
fn stack(mac: &[u8], ip: Ip) -> Stack {
    Stack::new(Params {
        mac: mac.try_into().unwrap(),
        addresses: vec![Interface { ip, prefix: 24 }],
        mtu: 9000,
        announce: false,
        ..Params::default()
    })
    .unwrap()
}

/// Makes two network layers, of a frame's sender and receiver, acquainted.
fn acquainted(frame: &[u8], datagram: &Datagram<'_>) -> (Stack, Stack, LinkId) {
    let mut sender = stack(&frame[6..12], datagram.from);
    let mut receiver = stack(&frame[..6], datagram.to);
    assert_eq!(sender.link(NOW, datagram.to), Ok(None));
    let mut slot = [0; 200];
    let (request, _) = sender.poll_transmit(NOW, &mut slot).unwrap();
    receiver.ingress(NOW, &slot[request], Checksums::Unknown);
    let (answer, _) = receiver.poll_transmit(NOW, &mut slot).unwrap();
    sender.ingress(NOW, &slot[answer], Checksums::Unknown);
    let Some(Event::Up { link, .. }) = sender.poll_event() else {
        panic!("the receiver answered");
    };
    (sender, receiver, link)
}

/// Sends and receives the frame's packet with network layers of our own.
fn assert_frame_comes_out_again(name: &str, frame: &[u8], datagram: &Datagram<'_>) {
    let (mut sender, mut receiver, link) = acquainted(frame, datagram);
    let packet = rewrite(datagram);
    let mut slot = vec![0xee; 10_000];
    slot[NET_ROOM..NET_ROOM + packet.len()].copy_from_slice(&packet);
    let sent = Sent::new(packet.len() as u16, link, frame[15] >> 5).unwrap();
    let (range, _) = sender.seal(&mut slot, &sent).unwrap();
    assert_eq!(&slot[range], frame, "{name}");
    let Some(Ingress::Homa { meta, packet }) = receiver.ingress(NOW, frame, Checksums::Unknown)
    else {
        panic!("{name}: a Homa packet was not passed up");
    };
    assert_eq!((meta.from, meta.to), (datagram.from, datagram.to));
    assert_eq!(packet, datagram.packet);
}

fn is_native_ipv4(frame: &[u8]) -> bool {
    frame[12..14] == [0x08, 0x00] && frame[23] == NATIVE
}

#[test]
fn whole_frames_come_out_byte_for_byte_again() {
    for (name, frame) in &golden_frames() {
        if is_native_ipv4(frame) {
            assert_frame_comes_out_again(name, frame, &datagram(frame).unwrap());
        }
    }
    let is_plain = |name: &str| {
        !["67", "70", "80"]
            .iter()
            .any(|number| name.starts_with(number))
    };
    let mut frame_count = 0;
    for (name, capture) in captures().iter().filter(|(name, _)| is_plain(name)) {
        for_each_frame(capture, |frame| {
            if is_native_ipv4(frame) {
                assert_frame_comes_out_again(name, frame, &datagram(frame).unwrap());
                frame_count += 1;
            }
        });
    }
    assert_eq!(frame_count, 3856);
}

/// Of which packets the host 10.77.0.`last` learns in a capture that they were undeliverable.
fn complaints(capture: &str, last: u8) -> Vec<(Addr, u16, Option<u64>, Unreachable)> {
    let mut host = stack(&[0x52, 0x54, 0, 0x4d, 0, last], Ip::v4(10, 77, 0, last));
    let mut found = Vec::new();
    for_each_frame(&captures()[capture], |frame| {
        if let Some(Ingress::Unreachable {
            from,
            to,
            sport,
            id,
            reason,
        }) = host.ingress(NOW, frame, Checksums::Unknown)
        {
            assert_eq!(from, to.ip);
            found.push((to, sport, id, reason));
        }
    });
    found
}

#[test]
fn what_linux_says_of_undeliverable_packets_is_understood() {
    let server = Addr::new(Ip::v4(10, 77, 0, 2), 4000);
    let closed = (server, 32_797, Some(96), Unreachable::Port);
    assert_eq!(complaints("41_no_server_port", 1), [closed, closed]);
    let killed = (server, 32_798, Some(98), Unreachable::Port);
    assert_eq!(complaints("42_server_killed_in_service", 1), [killed]);
    let no_homa = complaints("71_proto_unreachable", 2);
    assert!(!no_homa.is_empty());
    for (to, _, id, reason) in no_homa {
        assert_eq!(
            (to.ip, reason),
            (Ip::v4(10, 77, 0, 50), Unreachable::Protocol)
        );
        assert!(id.is_some());
    }
}
