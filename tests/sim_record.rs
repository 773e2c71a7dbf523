//! Our own frames in the module's scenarios, as `demihoma sim record` writes them.

use demihoma::sim::record::{CLIENT, Recording, SCENARIOS, SERVER, Scenario, record};
use demihoma::trace::pcap;
use demihoma::wire::homa::{self, Packet};

/// Ethernet and IPv4.
const HEADERS_LEN: usize = 34;

/// What a frame holds; frames of ours always make sense.
fn kind(frame: &[u8]) -> &'static str {
    match ([frame[12], frame[13]], frame[23]) {
        ([8, 6], _) => "ARP",
        ([8, 0], 1) => "ICMP",
        ([8, 0], 146) => {
            let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            assert_eq!(frame.len(), 14 + total, "as long as its IP header says");
            let packet = homa::parse(&frame[HEADERS_LEN..]);
            packet.expect("a Homa packet").1.name()
        }
        (ethertype, protocol) => panic!("ethertype {ethertype:?}, protocol {protocol}"),
    }
}

fn scenario(name: &str) -> Scenario {
    *SCENARIOS.iter().find(|it| it.name == name).unwrap()
}

/// How often one of the hosts sent a packet of this type.
fn count(recording: &Recording, from: usize, name: &str) -> usize {
    let frames = recording.frames.iter().filter(|tapped| tapped.from == from);
    frames.filter(|tapped| kind(&tapped.frame) == name).count()
}

#[test]
fn every_scenario_ends_as_it_should_and_the_same_twice() {
    for scenario in SCENARIOS {
        let (once, twice) = (record(scenario, 7), record(scenario, 7));
        assert!(once.frames == twice.frames, "{}", scenario.name);
        let expected = match scenario.name {
            "44_client_exits" => vec![],
            _ => vec![scenario.end; scenario.rpcs as usize],
        };
        assert_eq!(once.ends, expected, "{}", scenario.name);
        let lost = once.frames.iter().filter(|tapped| tapped.is_lost).count();
        assert_eq!(lost > 0, !scenario.drops.is_empty(), "{}", scenario.name);
    }
}

#[test]
fn another_seed_gives_other_ids() {
    let scenario = scenario("02_rpc1");
    assert!(record(scenario, 1).frames != record(scenario, 2).frames);
}

#[test]
fn a_capture_of_ours_is_read_back_frame_by_frame() {
    for scenario in SCENARIOS {
        let recording = record(scenario, 1);
        let mut writer = pcap::Writer::new(Vec::new(), u32::MAX).unwrap();
        for tapped in &recording.frames {
            writer.write(tapped.at, &tapped.frame).unwrap();
        }
        let file = writer.into_inner();
        let mut reader = pcap::Reader::new(&file[..]).unwrap();
        let mut frames = recording.frames.iter();
        while let Some(read) = reader.next_record().unwrap() {
            let tapped = frames.next().expect("no frame is read twice");
            assert_eq!((read.at, read.frame), (tapped.at, &tapped.frame[..]));
            assert_ne!(kind(read.frame), "FREEZE");
        }
        assert!(frames.next().is_none(), "{}", scenario.name);
    }
}

/// What each scenario is there for does occur in it.
#[test]
fn the_frames_that_a_scenario_is_about_are_in_it() {
    let cases = [
        ("01_rpc100_x3", SERVER, "CUTOFFS", 1),
        ("01_rpc100_x3", CLIENT, "ACK", 1),
        ("08_100k", SERVER, "GRANT", 1),
        ("08_100k", CLIENT, "GRANT", 1),
        ("12_10x100_o10", SERVER, "NEED_ACK", 1),
        ("30_drop_only_request", SERVER, "RPC_UNKNOWN", 1),
        ("33_drop_mid_response", CLIENT, "RESEND", 2),
        ("38_drop_ack", CLIENT, "ACK", 3),
        ("39_drop_need_ack", SERVER, "NEED_ACK", 3),
        ("40_slow_server_busy", SERVER, "BUSY", 3),
        ("41_no_server_port", SERVER, "ICMP", 1),
        ("42_server_killed_in_service", SERVER, "ICMP", 1),
        ("47_blackhole", CLIENT, "RESEND", 10),
        ("52_server_restarted_unknown", SERVER, "RPC_UNKNOWN", 1),
    ];
    for (name, from, kind, least) in cases {
        let found = count(&record(scenario(name), 1), from, kind);
        assert!(found >= least, "{name}: {found} {kind} of {from}");
    }
}

/// Acks ride on later requests, so that few are sent alone.
#[test]
fn acks_ride_on_requests() {
    let recording = record(scenario("54_20x10k_o4"), 1);
    let data = recording
        .frames
        .iter()
        .filter(|tapped| tapped.from == CLIENT);
    let riding = data.filter(|tapped| {
        kind(&tapped.frame) == "DATA"
            && matches!(
                homa::parse(&tapped.frame[HEADERS_LEN..]),
                Ok((_, Packet::Data(data, _))) if data.ack.is_some()
            )
    });
    assert!(riding.count() >= 16 && count(&recording, CLIENT, "ACK") <= 4);
}
