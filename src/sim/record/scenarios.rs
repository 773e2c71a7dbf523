//! The scenarios, by the names of the module's captures.

use super::{CLIENT, Fate, SERVER, Scenario};
use crate::error::Error;
use crate::sim::Drops;
use crate::time::Duration;

/// One RPC of these lengths on a perfect network.
const fn rpc(name: &'static str, request_bytes: u32, response_bytes: u32) -> Scenario {
    Scenario {
        name,
        about: "",
        request_bytes,
        response_bytes,
        rpcs: 1,
        outstanding: 1,
        pause: Duration::ZERO,
        service: Duration::ZERO,
        has_server: true,
        is_away: false,
        drops: &[],
        fate: None,
        end: Ok(()),
        params: |_| (),
    }
}

const fn lost(from: usize, kind: &'static str, skip: u32, count: u32) -> Drops {
    Drops {
        from,
        kind,
        skip,
        count,
    }
}

/// Those of the module's captures 01 to 52 that two hosts of ours can live through. FREEZE (53) is
/// not among them, for we never send it.
pub const SCENARIOS: [Scenario; 36] = [
    Scenario {
        about: "first contact, three 100 B RPCs one after the other",
        rpcs: 3,
        ..rpc("01_rpc100_x3", 100, 100)
    },
    Scenario {
        about: "1 B request",
        ..rpc("02_rpc1", 1, 1)
    },
    Scenario {
        about: "request of exactly one packet",
        ..rpc("03_mtu_exact", 1424, 1424)
    },
    Scenario {
        about: "one byte more than a packet",
        ..rpc("04_mtu_plus1", 1425, 1425)
    },
    Scenario {
        about: "10,000 B both ways, none of it granted",
        ..rpc("05_10k", 10_000, 10_000)
    },
    Scenario {
        about: "40,000 B, all the bytes that need no grant",
        ..rpc("06_unsched_exact", 40_000, 100)
    },
    Scenario {
        about: "one byte more, which needs a grant",
        ..rpc("07_unsched_plus1", 40_001, 100)
    },
    Scenario {
        about: "100,000 B both ways",
        ..rpc("08_100k", 100_000, 100_000)
    },
    Scenario {
        about: "500,000 B request",
        ..rpc("09_500k_req", 500_000, 100)
    },
    Scenario {
        about: "500,000 B response",
        ..rpc("10_500k_resp", 100, 500_000)
    },
    Scenario {
        about: "1,000,000 B request, the longest there is",
        ..rpc("11_1m_req", 1_000_000, 100)
    },
    Scenario {
        about: "ten 100 B RPCs at once",
        rpcs: 10,
        outstanding: 10,
        ..rpc("12_10x100_o10", 100, 100)
    },
    Scenario {
        about: "five 100 B RPCs, 20 ms apart",
        rpcs: 5,
        pause: Duration::millis(20),
        ..rpc("13_20_sequential_gap", 100, 100)
    },
    Scenario {
        about: "three 300,000 B requests at once",
        rpcs: 3,
        outstanding: 3,
        ..rpc("14_3x300k", 300_000, 100)
    },
    Scenario {
        about: "the only packet of the request is lost",
        drops: &[lost(CLIENT, "DATA", 0, 1)],
        ..rpc("30_drop_only_request", 100, 100)
    },
    Scenario {
        about: "the only packet of the response is lost",
        drops: &[lost(SERVER, "DATA", 0, 1)],
        ..rpc("31_drop_only_response", 100, 100)
    },
    Scenario {
        about: "a packet amid the request is lost",
        drops: &[lost(CLIENT, "DATA", 3, 1)],
        ..rpc("32_drop_mid_request", 10_000, 100)
    },
    Scenario {
        about: "two packets amid the response are lost",
        drops: &[lost(SERVER, "DATA", 2, 1), lost(SERVER, "DATA", 4, 1)],
        ..rpc("33_drop_mid_response", 100, 10_000)
    },
    Scenario {
        about: "the last packet of the request is lost",
        drops: &[lost(CLIENT, "DATA", 7, 1)],
        ..rpc("34_drop_last_request", 10_000, 100)
    },
    Scenario {
        about: "the first packet of the request is lost",
        drops: &[lost(CLIENT, "DATA", 0, 1)],
        ..rpc("35_drop_first_of_multi", 10_000, 100)
    },
    Scenario {
        about: "the first GRANT is lost",
        drops: &[lost(SERVER, "GRANT", 0, 1)],
        ..rpc("36_drop_grant", 100_000, 100)
    },
    Scenario {
        about: "the first three GRANTs are lost",
        drops: &[lost(SERVER, "GRANT", 0, 3)],
        ..rpc("37_drop_all_grants3", 100_000, 100)
    },
    Scenario {
        about: "two ACKs are lost",
        drops: &[lost(CLIENT, "ACK", 0, 2)],
        ..rpc("38_drop_ack", 100, 100)
    },
    Scenario {
        about: "two NEED_ACKs are lost",
        drops: &[lost(SERVER, "NEED_ACK", 0, 2)],
        ..rpc("39_drop_need_ack", 100, 100)
    },
    Scenario {
        about: "the server thinks for 60 ms",
        service: Duration::millis(60),
        ..rpc("40_slow_server_busy", 100, 100)
    },
    Scenario {
        about: "nobody has the port",
        has_server: false,
        end: Err(Error::NotConnected),
        ..rpc("41_no_server_port", 100, 100)
    },
    Scenario {
        about: "the server closes with the request in service",
        service: Duration::millis(600),
        fate: Some((Duration::millis(120), Fate::ServerCloses)),
        end: Err(Error::NotConnected),
        ..rpc("42_server_killed_in_service", 100, 100)
    },
    Scenario {
        about: "the client closes with its RPC open",
        service: Duration::millis(50),
        fate: Some((Duration::millis(1), Fate::ClientCloses)),
        ..rpc("44_client_exits", 100, 100)
    },
    Scenario {
        about: "the client gives its RPC up",
        service: Duration::millis(100),
        fate: Some((Duration::millis(1), Fate::ClientAborts)),
        end: Err(Error::Canceled),
        ..rpc("45_client_aborts", 100, 100)
    },
    Scenario {
        about: "the client gives half sent 1,000,000 B up",
        fate: Some((Duration::micros(200), Fate::ClientAborts)),
        end: Err(Error::Canceled),
        ..rpc("46_client_aborts_midway", 1_000_000, 100)
    },
    Scenario {
        about: "all that the server says is lost",
        drops: &[
            lost(SERVER, "DATA", 0, u32::MAX),
            lost(SERVER, "NEED_ACK", 0, u32::MAX),
        ],
        end: Err(Error::PeerTimedOut),
        ..rpc("47_blackhole", 100, 100)
    },
    Scenario {
        about: "all that the client says is lost after ten packets",
        drops: &[lost(CLIENT, "", 10, u32::MAX)],
        end: Err(Error::PeerTimedOut),
        ..rpc("48_blackhole_midway", 1_000_000, 100)
    },
    Scenario {
        about: "the client looks for its 100,000 B response after 200 ms",
        is_away: true,
        fate: Some((Duration::millis(200), Fate::ClientComesBack)),
        ..rpc("49_client_sigstop_busy", 100, 100_000)
    },
    Scenario {
        about: "four priorities and cutoffs of another version",
        rpcs: 3,
        params: |params| {
            params.cutoff_version = 2;
            params.num_priorities = 4;
            params.unsched_cutoffs = [u32::MAX, 0, 0, 0, 0, 0, 0, 0];
        },
        ..rpc("51_dup_unknown_data", 100, 100)
    },
    Scenario {
        about: "the server's host starts anew with the request in service",
        service: Duration::millis(300),
        fate: Some((Duration::millis(200), Fate::ServerRestarts)),
        ..rpc("52_server_restarted_unknown", 100, 100)
    },
    Scenario {
        about: "twenty 10,000 B RPCs, four at once: acks ride on requests",
        rpcs: 20,
        outstanding: 4,
        ..rpc("54_20x10k_o4", 10_000, 10_000)
    },
];
