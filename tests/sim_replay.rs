//! Our side in the place of one of the two hosts in each capture of the Linux module. See
//! tests/replay and tests/golden/README.md.

mod replay;

use demihoma::error::Error;
use demihoma::sim::record::{SCENARIOS, record};
use replay::{Act, Case, End, play, play_ours};

/// The client's and the server's number in the captures.
const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// Ours is the server; the RPCs complete.
const fn server(name: &'static str) -> Case {
    Case {
        name,
        net: [10, 77, 0],
        ours: SERVER,
        theirs: CLIENT,
        muted: None,
        acts: &[],
        end: End::Whole,
        params: |_| (),
        secret: |_| (),
    }
}

/// Ours is the client; the RPCs complete.
const fn client(name: &'static str) -> Case {
    Case {
        ours: CLIENT,
        theirs: SERVER,
        ..server(name)
    }
}

/// Captures in which every RPC completes and nobody does anything out of the ordinary.
const PLAIN: [&str; 27] = [
    "01_rpc100_x3",
    "02_rpc1",
    "03_mtu_exact",
    "04_mtu_plus1",
    "05_10k",
    "06_unsched_exact",
    "07_unsched_plus1",
    "08_100k",
    "09_500k_req",
    "10_500k_resp",
    "11_1m_req",
    "12_10x100_o10",
    "13_20_sequential_gap",
    "14_3x300k",
    "30_drop_only_request",
    "31_drop_only_response",
    "32_drop_mid_request",
    "33_drop_mid_response",
    "34_drop_last_request",
    "35_drop_first_of_multi",
    "36_drop_grant",
    "37_drop_all_grants3",
    "38_drop_ack",
    "39_drop_need_ack",
    "40_slow_server_busy",
    "49_client_sigstop_busy",
    "51_dup_unknown_data",
];

/// Captures that are not played, by the beginning of their names, and why.
const LEFT_OUT: [(&str, &str); 4] = [
    ("2", "IPv6, of which our network layer knows nothing so far"),
    ("6", "Homa as TCP, which we do not speak so far"),
    ("80", "segmentation offload of Homa as TCP"),
    (
        "81",
        "an MTU of 9,000, which the virtual NIC here does not have",
    ),
];

/// Of these, one host sends what our side has no part in: the client that freezes hears nothing,
/// the raw probe is no module, and the host without Homa has nothing of ours to replace.
const ONE_SIDED: [&str; 3] = ["53_freeze", "70_raw_probe", "71_proto_unreachable"];

/// Captures in which something ends before its time, and how our side lives with it.
fn odd() -> [Case; 15] {
    let killed = End::Failed(Error::NotConnected);
    [
        Case {
            acts: &[(0, Act::Close)],
            end: End::Refused,
            ..server("41_no_server_port")
        },
        Case {
            end: killed,
            ..client("41_no_server_port")
        },
        // The two RESENDs before the "unreachable" found nobody.
        Case {
            acts: &[(81, Act::Close)],
            end: End::Refused,
            ..server("42_server_killed_in_service")
        },
        Case {
            end: killed,
            ..client("42_server_killed_in_service")
        },
        Case {
            acts: &[(71, Act::Close)],
            end: End::Refused,
            ..server("43_server_restarted")
        },
        Case {
            end: killed,
            ..client("43_server_restarted")
        },
        server("44_client_exits"),
        Case {
            acts: &[(1, Act::Close)],
            end: End::Unanswered,
            ..client("44_client_exits")
        },
        server("45_client_aborts"),
        Case {
            acts: &[(1, Act::Abort)],
            end: End::Failed(Error::Canceled),
            ..client("45_client_aborts")
        },
        Case {
            muted: Some(SERVER),
            end: End::Unanswered,
            ..server("47_blackhole")
        },
        Case {
            muted: Some(SERVER),
            end: End::Failed(Error::PeerTimedOut),
            ..client("47_blackhole")
        },
        // A new life may run the request once more.
        Case {
            acts: &[(27, Act::Stop), (38, Act::Start)],
            ..server("52_server_restarted_unknown")
        },
        client("52_server_restarted_unknown"),
        Case {
            end: End::Unanswered,
            ..server("53_freeze")
        },
    ]
}

/// Plays them all, and names each that goes wrong.
fn play_all(cases: &[Case]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| play(*case).err().map(|why| format!("{}: {why}", case.name)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_modules_clients_get_their_answers_from_our_server() {
    play_all(&PLAIN.map(server));
}

#[test]
fn our_client_gets_its_answers_from_the_modules_servers() {
    play_all(&PLAIN.map(client));
}

#[test]
fn every_capture_is_played_both_ways_or_left_out_for_a_reason() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let files = std::fs::read_dir(golden).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let captures = names.filter_map(|name| name.strip_suffix(".pcap.gz").map(str::to_owned));
    let mut played = 0;
    for name in captures.filter(|name| !name.ends_with(".dropped")) {
        let odd_ways = odd().iter().filter(|case| case.name == name).count();
        let is_played = PLAIN.contains(&&*name) || ONE_SIDED.contains(&&*name) || odd_ways == 2;
        let is_left_out = LEFT_OUT.iter().any(|(start, _)| name.starts_with(start));
        assert!(is_played != is_left_out, "{name}");
        played += usize::from(is_played);
    }
    assert_eq!(played, 27 + 7 + 3);
}

/// Each breaks one rule, and the judge says which.
#[test]
fn the_judge_finds_out_what_is_against_the_rules() {
    type Secret = fn(&mut demihoma::homa::Params);
    let cases: [(Case, Secret, &str); 7] = [
        (client("08_100k"), |p| p.unsched_bytes = 50_000, "incoming"),
        (
            client("09_500k_req"),
            |p| p.unsched_bytes = 30_000,
            "incoming",
        ),
        (
            client("40_slow_server_busy"),
            |p| (p.resend_ticks, p.resend_interval_ticks) = (1, 1),
            "too soon",
        ),
        (
            server("38_drop_ack"),
            |p| p.request_ack_ticks = 0,
            "too soon",
        ),
        (
            server("11_1m_req"),
            |p| p.max_incoming_bytes = 900_000,
            "too far ahead",
        ),
        (
            server("01_rpc100_x3"),
            |p| p.cutoff_version = 3,
            "the version",
        ),
        (
            client("33_drop_mid_response"),
            |p| p.num_priorities = 6,
            "at priority",
        ),
    ];
    for (case, secret, expected) in cases {
        let found = play(Case { secret, ..case });
        let is_found = found.as_ref().is_err_and(|why| why.contains(expected));
        assert!(is_found, "{}: {expected}, not {found:?}", case.name);
    }
}

#[test]
fn peers_that_vanish_or_come_back_are_lived_with_as_there() {
    play_all(&odd());
}

/// The application looks for its response 200 ms late; the transport acknowledges it at once.
#[test]
fn a_client_that_is_away_still_acknowledges() {
    play_all(&[Case {
        acts: &[(1, Act::Leave)],
        ..client("49_client_sigstop_busy")
    }]);
}

/// The server goes by four priorities and tells so; ours does too, in its place.
#[test]
fn cutoffs_that_change_are_told() {
    play_all(&[Case {
        params: |params| {
            params.cutoff_version = 2;
            params.num_priorities = 4;
            params.unsched_cutoffs = [u32::MAX, 0, 0, 0, 0, 0, 0, 0];
        },
        ..server("51_dup_unknown_data")
    }]);
}

/// A fake peer's packets, many of them nonsense, and the module's words to it: at least the
/// requests that make sense are answered.
#[test]
fn a_hand_made_peer_gets_legal_answers() {
    play_all(&[Case {
        theirs: 9,
        // All but the one that came as TCP.
        end: End::AtLeast(20),
        ..server("70_raw_probe")
    }]);
}

#[test]
fn a_host_without_homa_is_told_from_a_silent_one() {
    play_all(&[Case {
        ours: 2,
        theirs: 50,
        end: End::Failed(Error::ProtocolUnsupported),
        ..client("71_proto_unreachable")
    }]);
}

/// What `demihoma sim record` writes is played as the module's captures are: another life of ours,
/// with other ids, stands in for either host.
#[test]
fn our_own_captures_are_played_like_the_modules() {
    let mut played = 0;
    for scenario in SCENARIOS {
        if scenario.fate.is_some() || scenario.end.is_err() {
            continue;
        }
        for case in [server(scenario.name), client(scenario.name)] {
            let case = Case {
                net: [10, 0, 0],
                params: scenario.params,
                ..case
            };
            let played_so = play_ours(case, record(scenario, 3).frames);
            assert_eq!(played_so, Ok(()), "{}, ours is {}", case.name, case.ours);
            played += 1;
        }
    }
    assert_eq!(played, 54);
}
