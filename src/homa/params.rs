//! The transport's settings.

use crate::error::Error;
use crate::time::Duration;
use crate::wire::homa::MAX_MESSAGE_LEN;

/// Least length of the largest packet: an ACK, 80 B, must fit over IPv6 too, with 20 B less.
const PACKET_MIN: u16 = 100;

/// Limits and times of one [`Endpoint`](super::Endpoint).
///
/// Unless said otherwise, a default is that of HomaModule at 9edb958.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Seed of ids, automatic ports and hash keys. Must differ from run to run outside of tests.
    pub seed: u64,
    /// Client and server RPCs alive at once, all sockets together. Default 65,536; at most 2^20,
    /// since an RPC's slot is part of its id.
    pub rpcs_max: u32,
    /// Peers known at once. Default 10,000.
    pub peers_max: u32,
    /// Sockets open at once. Default 1,024.
    pub sockets_max: u32,
    /// Control packets that wait to be sent. Default 4,096. A full queue drops and counts.
    pub control_max: u32,

    /// Largest Homa packet, header included: MTU less the IP header. Default 1,480.
    pub packet_max: u16,
    /// Bytes of a new message that go out before any grant. Default 40,000.
    /// Deviation: must be 1 or more, so that a request always announces itself.
    pub unsched_bytes: u32,
    /// Bytes granted beyond what arrived, per message; 0: `max_incoming / (active + 1)`.
    pub window_bytes: u32,
    /// Bytes granted and not yet arrived, all messages together. Default 400,000.
    pub max_incoming_bytes: u32,
    /// Messages that get grants at once. Default 8, also the most.
    pub max_overcommit: u8,

    /// Thousandths of the link for grants to the oldest message, at most 500; 0: none. Default 50.
    pub grant_fifo_thousandths: u16,
    /// Bytes of one such grant; 0: none. Default 50,000.
    pub fifo_grant_bytes: u32,
    /// The link's speed, Mb/s; 0, the default: not known. Then nothing is paced, and such grants
    /// are timed as at 25,000.
    pub link_mbps: u32,
    /// What the NIC has still to send when a long message has to wait. Default 5 us.
    pub nic_backlog_max: Duration,
    /// Thousandths of the bytes of long messages that are the oldest's, at most 500. Default 50.
    pub pacer_fifo_thousandths: u16,

    /// Priorities on the wire. Default 8.
    pub num_priorities: u8,
    /// Highest priority for scheduled packets. Default 3.
    pub max_sched_priority: u8,
    /// For each priority the longest message whose unscheduled bytes may use it.
    pub unsched_cutoffs: [u32; 8],
    /// Whether the cutoffs follow the messages that come, so that each priority for unscheduled
    /// bytes carries as many. Default no.
    pub cutoffs_follow_traffic: bool,
    /// Version of the cutoffs; not zero, which means "none yet". Default 1.
    pub cutoff_version: u16,

    /// Length of a tick. Default 1 ms.
    pub tick: Duration,
    /// Silent ticks before the first RESEND. Default 5.
    pub resend_ticks: u32,
    /// Ticks between RESENDs. Default 5.
    pub resend_interval_ticks: u32,
    /// Longest pause between RESENDs to a peer that says BUSY. Default 40.
    pub busy_backoff_max_ticks: u32,
    /// RESENDs to one peer in one tick. Default 8.
    pub resends_per_peer_tick: u8,
    /// Silent ticks after which an RPC is given up. Default 100.
    pub timeout_ticks: u32,
    /// Ticks from the end of a response to the first NEED_ACK. Default 2.
    pub request_ack_ticks: u32,
    /// How many NEED_ACKs follow each other tick by tick. Default 9.
    pub need_acks_fast: u32,
    /// Ticks between NEED_ACKs after that. Default 50.
    pub need_ack_interval_ticks: u32,
    /// Ticks after which a response nobody acknowledges is forgotten, and a message for which
    /// there are no pages is given up. Default 5,000.
    pub need_ack_give_up_ticks: u32,

    /// Finished RPCs remembered, so that none runs twice. Default 1,048,576.
    pub finished_max: u32,
    /// How long they are remembered. Default 10 s.
    pub finished_for: Duration,
    /// After a peer has used our cutoffs for so long, its version 0 means that it restarted.
    pub restart_after: Duration,
    /// A peer with nothing going on may be forgotten after so long. Default 10 s.
    pub peer_idle: Duration,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seed: 1,
            rpcs_max: 65_536,
            peers_max: 10_000,
            sockets_max: 1_024,
            control_max: 4_096,
            packet_max: 1_480,
            unsched_bytes: 40_000,
            window_bytes: 0,
            max_incoming_bytes: 400_000,
            max_overcommit: 8,
            grant_fifo_thousandths: 50,
            fifo_grant_bytes: 50_000,
            link_mbps: 0,
            nic_backlog_max: Duration::micros(5),
            pacer_fifo_thousandths: 50,
            num_priorities: 8,
            max_sched_priority: 3,
            unsched_cutoffs: [0, 0, 0, 0, MAX_MESSAGE_LEN, 15_000, 2_800, 200],
            cutoffs_follow_traffic: false,
            cutoff_version: 1,
            tick: Duration::millis(1),
            resend_ticks: 5,
            resend_interval_ticks: 5,
            busy_backoff_max_ticks: 40,
            resends_per_peer_tick: 8,
            timeout_ticks: 100,
            request_ack_ticks: 2,
            need_acks_fast: 9,
            need_ack_interval_ticks: 50,
            need_ack_give_up_ticks: 5_000,
            finished_max: 1 << 20,
            finished_for: Duration::secs(10),
            restart_after: Duration::millis(100),
            peer_idle: Duration::secs(10),
        }
    }
}

impl Params {
    /// Refuses what cannot work; the config room gives the user the key and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let ok = (1..=1 << 20).contains(&self.rpcs_max)
            && self.peers_max > 0
            && self.sockets_max > 0
            && self.control_max > 0
            && self.packet_max >= PACKET_MIN
            && self.unsched_bytes > 0
            && self.max_incoming_bytes > 0
            && (1..=8).contains(&self.max_overcommit)
            && (1..=8).contains(&self.num_priorities)
            && self.max_sched_priority < self.num_priorities
            && self.cutoff_version != 0
            && self.tick > Duration::ZERO
            && self.resend_ticks > 0
            && self.resend_interval_ticks > 0
            && self.timeout_ticks > self.resend_ticks
            && self.resends_per_peer_tick > 0;
        if ok { Ok(()) } else { Err(Error::Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv6 leaves 80 B of 100 B: a whole ACK, and DATA with 24 B of payload.
    #[test]
    fn packets_too_small_for_the_headers_are_refused() {
        let with = |packet_max| Params {
            packet_max,
            ..Params::default()
        };
        assert_eq!(with(99).validate(), Err(Error::Invalid));
        assert_eq!(with(100).validate(), Ok(()));
    }
}
