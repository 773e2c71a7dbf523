//! What DPDK costs before any protocol: figures for ours to stand beside, taken in the same run.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use dpdk_sys as sys;

use super::clock::ticks;
use super::port::Port;
use crate::device::{Device, RX_BURST, TxMeta};

/// Bytes of a frame with a small request: Ethernet 14, IPv4 20, Homa's DATA header 56, 64 B.
pub const SMALL_FRAME_LEN: usize = sys::SHIM_TWO_PACKETS_LEN as usize;

// 14 + 20 + 56 + 64.
const _: () = assert!(SMALL_FRAME_LEN == 154);

/// Bytes of a ping's frame.
pub const PING_LEN: usize = 64;

/// How long a ping waits for its answer before it counts as lost.
const PING_TIMEOUT: Duration = Duration::from_millis(100);

/// The two-packet floor: processor ticks for a request and its reply between the two ports of a
/// [`ring_pair`](super::ring_pair), each in a fresh mbuf of [`SMALL_FRAME_LEN`] bytes that is
/// written whole and read whole, `batch` (1 to [`RX_BURST`]) at a time. The mean over `rounds`.
///
/// Plain DPDK, in C: its own mempool, and its burst functions as the headers have them.
///
/// # Panics
/// If the ports are not such a pair, with nothing on the way between them.
pub fn two_packets(client: &mut Port, server: &mut Port, batch: usize, rounds: u32) -> f64 {
    assert!(
        (1..=RX_BURST).contains(&batch),
        "a batch of {batch} is not within 1..={RX_BURST}"
    );
    let (a, b, pool) = (
        client.device.id,
        server.device.id,
        client.stash.pool().as_ptr(),
    );
    let start = ticks();
    // SAFETY: two running ports, whose only user this thread is, and the pool of their queues.
    let error = unsafe { sys::shim_two_packets(a, b, pool, batch as u16, rounds) };
    let passed = ticks() - start;
    assert_eq!(error, 0, "the ports are no empty pair");
    passed as f64 / (f64::from(rounds) * batch as f64)
}

/// What a bare ping-pong between two ports showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pings {
    /// Round trips, in the order they were made.
    pub nanos: Vec<u64>,
    pub lost: u64,
}

/// Sends `rounds` pings of [`PING_LEN`] bytes, one at a time, to whoever answers first. `between`
/// runs while it waits; where the other port is this thread's too, it lets that one answer.
/// Ends early once ten pings in a row were lost.
pub fn ping(port: &mut Port, rounds: u32, mut between: impl FnMut()) -> Pings {
    let mut pings = Pings {
        nanos: Vec::with_capacity(rounds as usize),
        lost: 0,
    };
    let own = port.caps().mac;
    let (mut peer, mut lost_in_a_row) = ([0xff; 6], 0);
    for number in 0..rounds {
        let start = Instant::now();
        send(
            port,
            &Ping {
                to: peer,
                from: own,
                kind: Kind::Ping,
                number,
            },
        );
        let answer = loop {
            let mut answer = None;
            port.rx_burst(|frame, _| {
                let heard = Ping::parse(frame);
                let ours = |heard: &Ping| heard.kind == Kind::Pong && heard.number == number;
                answer = answer.take().or(heard.filter(ours));
            });
            if answer.is_some() || start.elapsed() > PING_TIMEOUT {
                break answer;
            }
            between();
        };
        if let Some(answer) = answer {
            peer = answer.from;
            lost_in_a_row = 0;
            pings.nanos.push(start.elapsed().as_nanos() as u64); // 100 ms at most.
        } else {
            pings.lost += 1;
            lost_in_a_row += 1;
            if lost_in_a_row == 10 {
                break;
            }
        }
    }
    pings
}

/// Answers pings until none came for `idle`; tells how many it answered.
pub fn pong(port: &mut Port, idle: Duration) -> u64 {
    let (mut answered, mut heard_at) = (0, Instant::now());
    while heard_at.elapsed() < idle {
        let now = pong_once(port);
        if now > 0 {
            answered += now;
            heard_at = Instant::now();
        }
    }
    answered
}

/// Answers the pings that wait now; tells how many.
pub fn pong_once(port: &mut Port) -> u64 {
    let mut waiting = ArrayVec::<Ping, RX_BURST>::new();
    port.rx_burst(|frame, _| {
        waiting.extend(Ping::parse(frame).filter(|ping| ping.kind == Kind::Ping));
    });
    let own = port.caps().mac;
    for ping in &waiting {
        send(
            port,
            &Ping {
                to: ping.from,
                from: own,
                kind: Kind::Pong,
                number: ping.number,
            },
        );
    }
    waiting.len() as u64
}

/// Sent if there is room; else lost, as on a network.
fn send(port: &mut Port, ping: &Ping) {
    if port.tx_room() > 0 {
        ping.emit(&mut port.tx_slot()[..PING_LEN]);
        port.tx_commit(
            0..PING_LEN,
            TxMeta {
                l2_len: 14,
                l3_len: 0,
                priority: 0,
            },
        );
    }
    port.flush();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ping = 1,
    Pong = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ping {
    to: [u8; 6],
    from: [u8; 6],
    kind: Kind,
    number: u32,
}

impl Ping {
    /// Source: IEEE 802, "Local Experimental Ethertype 1".
    const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

    fn parse(frame: &[u8]) -> Option<Self> {
        let (head, _) = frame.split_first_chunk::<19>()?;
        if head[12..14] != Self::ETHERTYPE {
            return None;
        }
        let kind = match head[14] {
            1 => Kind::Ping,
            2 => Kind::Pong,
            _ => return None,
        };
        let number = u32::from_be_bytes([head[15], head[16], head[17], head[18]]);
        let (to, from) = (head.first_chunk()?, head[6..].first_chunk()?);
        Some(Self {
            to: *to,
            from: *from,
            kind,
            number,
        })
    }

    fn emit(&self, frame: &mut [u8]) {
        frame.fill(0);
        frame[..6].copy_from_slice(&self.to);
        frame[6..12].copy_from_slice(&self.from);
        frame[12..14].copy_from_slice(&Self::ETHERTYPE);
        frame[14] = self.kind as u8;
        frame[15..19].copy_from_slice(&self.number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_read_as_written_and_nothing_else_is_one() {
        let ping = Ping {
            to: [1; 6],
            from: [2; 6],
            kind: Kind::Pong,
            number: 0x0102_0304,
        };
        let mut frame = [0xee; PING_LEN];
        ping.emit(&mut frame);
        assert_eq!(Ping::parse(&frame), Some(ping));
        for len in 0..19 {
            assert_eq!(Ping::parse(&frame[..len]), None, "{len} bytes");
        }
        for place in 12..15 {
            let mut bent = frame;
            bent[place] ^= 0x40;
            assert_eq!(Ping::parse(&bent), None, "byte {place}");
        }
    }
}
