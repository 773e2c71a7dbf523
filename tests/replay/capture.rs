//! What a capture holds, frame by frame, and the messages that went over the wire in it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use demihoma::addr::Ip;
use demihoma::sim::Tapped;
use demihoma::trace::pcap;
use demihoma::wire::homa::{self, Common, Data, Packet};
use flate2::read::GzDecoder;

/// Ethernet and IPv4, without options.
pub const HEADERS_LEN: usize = 34;

/// Homa under its own protocol number.
const HOMA: u8 = 146;
const ICMP: u8 = 1;

/// A frame as one of the two hosts sent it.
pub struct Record {
    /// Its number in the capture, from 0.
    pub number: usize,
    pub from: Ip,
    pub frame: Vec<u8>,
    /// The network dropped it.
    pub is_lost: bool,
}

/// Reads a capture of tests/golden, and which of its frames were dropped.
pub fn load(name: &str) -> Vec<Record> {
    let is_there = |name: &str| golden(name).exists();
    let lost: HashSet<_> = match is_there(&format!("{name}.dropped")) {
        true => frames(&format!("{name}.dropped")).into_iter().collect(),
        false => HashSet::new(),
    };
    let frames = frames(name).into_iter();
    number(frames.map(|(at, frame)| {
        let is_lost = lost.contains(&(at, frame.clone()));
        (frame, is_lost)
    }))
}

/// Frames of ours, as they were recorded.
pub fn of_ours(tapped: Vec<Tapped>) -> Vec<Record> {
    number(tapped.into_iter().map(|it| (it.frame, it.is_lost)))
}

fn number(frames: impl Iterator<Item = (Vec<u8>, bool)>) -> Vec<Record> {
    let records = frames.enumerate().filter_map(|(number, (frame, is_lost))| {
        let from = sender(&frame)?;
        Some(Record {
            number,
            from,
            frame,
            is_lost,
        })
    });
    records.collect()
}

/// Every message of these frames, whole, by its RPC's id as its sender knows it.
pub fn messages(records: &[Record]) -> BTreeMap<u64, Vec<u8>> {
    let mut messages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for record in records {
        if let Some((common, Packet::Data(data, payload))) = record.homa()
            && data.fits(payload.len())
        {
            let len = data.message_length as usize;
            let message = messages.entry(common.id.0).or_insert_with(|| vec![0; len]);
            let start = data.offset as usize;
            if let Some(part) = message.get_mut(start..start + payload.len()) {
                part.copy_from_slice(payload);
            }
        }
    }
    messages
}

/// Puts each RESEND that was answered by the message's first bytes behind them: it had come before,
/// but was looked at after, and what it drew then was a retransmission and not BUSY.
pub fn resends_when_heard(mut records: Vec<Record>) -> Vec<Record> {
    for at in (0..records.len()).rev() {
        let Some((common, Packet::Resend(_))) = records[at].homa() else {
            continue;
        };
        let answers = |record: &Record| {
            let about = record.homa().map(|(other, _)| other.id.0);
            about == Some(common.id.0 ^ 1)
        };
        let begins = |record: &Record| answers(record) && record.data().is_some();
        if records[..at].iter().any(begins) {
            continue;
        }
        let next = records[at..].iter().position(answers);
        if let Some(next) = next.filter(|next| records[at + next].data().is_some()) {
            records[at..=at + next].rotate_left(1);
        }
    }
    records
}

impl Record {
    /// The Homa packet in it, if it is one that makes sense.
    pub fn homa(&self) -> Option<(Common, Packet<'_>)> {
        homa::parse(homa_bytes(&self.frame)?).ok()
    }

    /// The packet of which it says that it could not be delivered, from its IP header on.
    pub fn quote(&self) -> Option<&[u8]> {
        quote(&self.frame)
    }

    /// As [`Self::homa`], of DATA.
    pub fn data(&self) -> Option<(Common, Data)> {
        match self.homa()? {
            (common, Packet::Data(data, payload)) => {
                data.fits(payload.len()).then_some((common, data))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {} of {}", self.number, self.from)?;
        match self.homa() {
            Some((common, Packet::Data(data, payload))) => write!(
                f,
                ", DATA {} + {} of {} for {}",
                data.offset,
                payload.len(),
                data.message_length,
                common.id.0
            ),
            Some((common, packet)) => write!(f, ", {} for {}", packet.name(), common.id.0),
            None => Ok(()),
        }
    }
}

/// The Homa packet in a frame, as the IP header cuts it.
pub fn homa_bytes(frame: &[u8]) -> Option<&[u8]> {
    (protocol(frame)? == HOMA).then(|| datagram(frame))?
}

/// The packet that an ICMP "unreachable" quotes, from its IP header on.
pub fn quote(frame: &[u8]) -> Option<&[u8]> {
    const ICMP_LEN: usize = 8;
    let icmp = (protocol(frame)? == ICMP).then(|| datagram(frame))??;
    (icmp[0] == 3).then(|| &icmp[ICMP_LEN..])
}

fn protocol(frame: &[u8]) -> Option<u8> {
    let is_ipv4 = frame.get(12..14)? == [8, 0] && frame.get(14)? == &0x45;
    is_ipv4.then(|| frame.get(23).copied())?
}

fn datagram(frame: &[u8]) -> Option<&[u8]> {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    frame.get(HEADERS_LEN..14 + total)
}

/// Who sent a frame, by its IPv4 or ARP header.
fn sender(frame: &[u8]) -> Option<Ip> {
    let at = match frame.get(12..14)? {
        [8, 0] => 26,
        [8, 6] => 28,
        _ => return None,
    };
    let ip = frame.get(at..at + 4)?;
    Some(Ip::v4(ip[0], ip[1], ip[2], ip[3]))
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.pcap.gz"))
}

/// Time and bytes of each frame.
fn frames(name: &str) -> Vec<(u64, Vec<u8>)> {
    let path = golden(name);
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let mut reader = pcap::Reader::new(&bytes[..]).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        frames.push((record.at.0, record.frame.to_vec()));
    }
    frames
}
