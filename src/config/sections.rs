//! The sections of the file as plain values, and what they hold when nobody says otherwise.
//!
//! `config/default.toml` explains each key, with its unit and the source of its default; the names
//! and values here are the same, which a test compares.

use serde::Deserialize;

use super::forms::{Addresses, Mac, OptionalIp};

/// Everything one can set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub network: Network,
    /// `[[port]]`: further devices, each with its own addresses.
    pub port: Vec<Network>,
    pub arp: Arp,
    pub homa: Homa,
    pub memory: Memory,
    pub datagram: Datagram,
    pub channel: Channel,
    pub runtime: Runtime,
    pub dpdk: Dpdk,
}

/// How frames reach the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// `interface` is a kernel interface, shared with the kernel.
    AfPacket,
    /// `interface` is a tap, made if it is not there.
    Tap,
    /// `interface` is the PCI address of a NIC bound to vfio-pci, or of an mlx5.
    Pci,
    /// `interface` is any other virtual device, in the words of DPDK's `--vdev`.
    Vdev,
}

/// `[network]` and `[[port]]`: a device and our addresses on it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    pub backend: Backend,
    /// Empty until somebody names one.
    pub interface: String,
    pub address: Addresses,
    pub gateway: OptionalIp,
    /// `None`: the device's own.
    pub mac: Mac,
    pub mtu_bytes: u16,
    pub ip_protocol: u8,
}

/// `[arp]`: finding neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arp {
    pub tries_max: u32,
    /// Doubles with each try.
    pub first_wait_ms: u32,
    pub neighbors_max: u32,
    /// Take an unknown neighbour's MAC from the packets it sends us.
    pub learn_from_traffic: bool,
}

/// `[homa]`: the protocol. A tick is 1 ms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Homa {
    pub unsched_bytes: u32,
    /// 0: `max_incoming_bytes` shared among the active messages.
    pub window_bytes: u32,
    pub max_incoming_bytes: u32,
    pub max_overcommit: u32,
    pub grant_fifo_thousandths: u32,
    pub fifo_grant_bytes: u32,
    /// 0: what the device says, if it can know.
    pub link_mbps: u32,
    pub nic_backlog_max_us: u32,
    pub pacer_fifo_thousandths: u32,
    pub resend_ticks: u32,
    pub resend_interval_ticks: u32,
    pub resends_per_peer_tick: u32,
    pub busy_backoff_max_ticks: u32,
    pub timeout_ticks: u32,
    pub request_ack_ticks: u32,
    pub need_ack_eager_ticks: u32,
    pub need_ack_interval_ticks: u32,
    pub need_ack_give_up_ticks: u32,
    pub num_priorities: u32,
    pub max_sched_prio: u32,
    pub cutoff_version: u16,
    pub unsched_cutoffs_bytes: [u32; 8],
    pub cutoffs_follow_traffic: bool,
    pub rpcs_max: u32,
    pub peers_max: u32,
    pub peer_idle_min_secs: u32,
    pub finished_max: u32,
    pub finished_secs: u32,
}

/// `[memory]`: bytes for messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    pub receive_bytes: u64,
    pub send_bytes: u64,
    pub push_copy_max_bytes: u32,
}

/// `[datagram]`: datagrams paired with RPCs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Datagram {
    pub reply_grace_ms: u32,
    pub outstanding_max: u32,
}

/// `[channel]`: the connections of stream sockets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Channel {
    pub channels_max: u32,
    pub timeout_ms: u32,
    pub connect_timeout_ms: u32,
    pub keepalive_idle_ms: u32,
    pub keepalive_misses_max: u32,
}

/// `[runtime]`: the polling loop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runtime {
    pub tokens_max: u32,
    pub linger_ms: u32,
    /// 0: never.
    pub idle_turns_before_yield: u32,
}

/// `[dpdk]`: the environment DPDK runs in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dpdk {
    /// In the words of EAL's `--lcores`; empty: not pinned.
    pub lcores: String,
    pub memory_mb: u32,
    pub hugepages: bool,
    pub rx_ring: u32,
    pub tx_ring: u32,
    /// The application has started the EAL before us.
    pub eal_started: bool,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            backend: Backend::AfPacket,
            interface: String::new(),
            address: Addresses::default(),
            gateway: OptionalIp::default(),
            mac: Mac::default(),
            mtu_bytes: 1_500,
            ip_protocol: 146,
        }
    }
}

impl Default for Arp {
    fn default() -> Self {
        Self {
            tries_max: 3,
            first_wait_ms: 20,
            neighbors_max: 10_000,
            learn_from_traffic: true,
        }
    }
}

impl Default for Homa {
    fn default() -> Self {
        Self {
            unsched_bytes: 40_000,
            window_bytes: 0,
            max_incoming_bytes: 400_000,
            max_overcommit: 8,
            grant_fifo_thousandths: 50,
            fifo_grant_bytes: 50_000,
            link_mbps: 0,
            nic_backlog_max_us: 5,
            pacer_fifo_thousandths: 50,
            resend_ticks: 5,
            resend_interval_ticks: 5,
            resends_per_peer_tick: 8,
            busy_backoff_max_ticks: 40,
            timeout_ticks: 100,
            request_ack_ticks: 2,
            need_ack_eager_ticks: 10,
            need_ack_interval_ticks: 50,
            need_ack_give_up_ticks: 5_000,
            num_priorities: 8,
            max_sched_prio: 3,
            cutoff_version: 1,
            unsched_cutoffs_bytes: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
            cutoffs_follow_traffic: false,
            rpcs_max: 65_536,
            peers_max: 10_000,
            peer_idle_min_secs: 10,
            finished_max: 1_048_576,
            finished_secs: 10,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            receive_bytes: 64 << 20,
            send_bytes: 64 << 20,
            push_copy_max_bytes: 4_096,
        }
    }
}

impl Default for Datagram {
    fn default() -> Self {
        Self {
            reply_grace_ms: 10,
            outstanding_max: 1_024,
        }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            channels_max: 16_384,
            timeout_ms: 30_000,
            connect_timeout_ms: 30_000,
            keepalive_idle_ms: 5_000,
            keepalive_misses_max: 3,
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            tokens_max: 65_536,
            linger_ms: 1_000,
            idle_turns_before_yield: 1_000,
        }
    }
}

impl Default for Dpdk {
    fn default() -> Self {
        Self {
            lcores: String::new(),
            memory_mb: 256,
            hugepages: false,
            rx_ring: 512,
            tx_ring: 512,
            eal_started: false,
        }
    }
}
