//! What values make sense, alone and together.

use std::ops::RangeInclusive;

use super::sections::{Backend, Config, Dpdk, Homa, Memory, Network};

/// A value that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Impossible {
    /// `section.key`.
    pub(super) key: String,
    pub(super) value: String,
    /// What would be right.
    pub(super) right: String,
}

/// The longest message. Source: HomaModule homa.h `HOMA_MAX_MESSAGE_LENGTH`.
const MESSAGE_MAX_BYTES: u64 = 1_000_000;

/// Source: HomaModule homa.h `HOMA_BPAGE_SIZE`.
const BPAGE_BYTES: u64 = 65_536;

/// Two messages of the longest kind, so that one can come while one is held, and a page for the
/// small ones.
const RECEIVE_MIN_BYTES: u64 =
    2 * MESSAGE_MAX_BYTES.div_ceil(BPAGE_BYTES) * BPAGE_BYTES + BPAGE_BYTES;

/// A kernel interface's name. Source: linux/if.h `IFNAMSIZ`, less the final zero.
const INTERFACE_NAME_MAX_LEN: usize = 15;

type Range = (&'static str, u64, RangeInclusive<u64>, &'static str);

pub(super) fn check(config: &Config) -> Result<(), Impossible> {
    for ranges in [
        outer_ranges(config),
        homa_size_ranges(&config.homa),
        homa_time_ranges(&config.homa),
        memory_ranges(&config.memory, &config.dpdk),
    ] {
        ranges.into_iter().try_for_each(in_range)?;
    }
    check_networks(config)?;
    check_homa(&config.homa)?;
    check_memory(&config.memory)?;
    check_dpdk(&config.dpdk)
}

fn in_range((key, value, range, unit): Range) -> Result<(), Impossible> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = (range.start(), range.end());
    impossible(key, value, format!("must be {low} to {high} {unit}"))
}

fn impossible<T>(
    key: impl Into<String>,
    value: impl ToString,
    right: impl Into<String>,
) -> Result<T, Impossible> {
    Err(Impossible {
        key: key.into(),
        value: value.to_string(),
        right: right.into(),
    })
}

fn mtu_range(key: &'static str, network: &Network) -> Range {
    // 576: what every IPv4 host must take. 9,000: the largest that the virtual devices carry.
    (key, network.mtu_bytes.into(), 576..=9_000, "bytes")
}

fn protocol_range(key: &'static str, network: &Network) -> Range {
    (key, network.ip_protocol.into(), 1..=254, "")
}

#[rustfmt::skip]
fn outer_ranges(config: &Config) -> Vec<Range> {
    let Config { network, arp, datagram, channel, runtime, .. } = config;
    vec![
        mtu_range("network.mtu_bytes", network),
        protocol_range("network.ip_protocol", network),
        ("arp.tries_max", arp.tries_max.into(), 1..=20, "tries"),
        ("arp.first_wait_ms", arp.first_wait_ms.into(), 1..=10_000, "ms"),
        ("arp.neighbors_max", arp.neighbors_max.into(), 1..=16_368, "neighbours"),
        ("datagram.reply_grace_ms", datagram.reply_grace_ms.into(), 0..=10_000, "ms"),
        ("datagram.outstanding_max", datagram.outstanding_max.into(), 1..=65_536, "requests"),
        // Each has an RPC's slot at least.
        ("channel.channels_max", channel.channels_max.into(), 1..=1_048_576, "connections"),
        ("channel.timeout_ms", channel.timeout_ms.into(), 200..=86_400_000, "ms"),
        ("channel.connect_timeout_ms", channel.connect_timeout_ms.into(), 200..=86_400_000, "ms"),
        ("channel.keepalive_idle_ms", channel.keepalive_idle_ms.into(), 200..=86_400_000, "ms"),
        ("channel.keepalive_misses_max", channel.keepalive_misses_max.into(), 1..=1_000, "tries"),
        ("runtime.tokens_max", runtime.tokens_max.into(), 16..=1_048_576, "tokens"),
        ("runtime.linger_ms", runtime.linger_ms.into(), 0..=600_000, "ms"),
    ]
}

#[rustfmt::skip]
fn homa_size_ranges(homa: &Homa) -> Vec<Range> {
    vec![
        ("homa.unsched_bytes", homa.unsched_bytes.into(), 1..=1_000_000, "bytes"),
        ("homa.window_bytes", homa.window_bytes.into(), 0..=1_000_000_000, "bytes (0: dynamic)"),
        ("homa.max_incoming_bytes", homa.max_incoming_bytes.into(), 1_500..=1_000_000_000, "bytes"),
        ("homa.max_overcommit", homa.max_overcommit.into(), 1..=8, "messages"),
        ("homa.grant_fifo_thousandths", homa.grant_fifo_thousandths.into(), 0..=500, "thousandths"),
        ("homa.fifo_grant_bytes", homa.fifo_grant_bytes.into(), 0..=1_000_000, "bytes (0: none)"),
        ("homa.link_mbps", homa.link_mbps.into(), 0..=1_000_000, "Mb/s (0: the device's own)"),
        ("homa.nic_backlog_max_us", homa.nic_backlog_max_us.into(), 1..=1_000_000, "us"),
        ("homa.pacer_fifo_thousandths", homa.pacer_fifo_thousandths.into(), 0..=500, "thousandths"),
        ("homa.num_priorities", homa.num_priorities.into(), 1..=8, "priorities"),
        ("homa.cutoff_version", homa.cutoff_version.into(), 1..=65_535, "(0 means none yet)"),
        // An id has 20 bits for the slot.
        ("homa.rpcs_max", homa.rpcs_max.into(), 16..=1_048_576, "RPCs"),
        ("homa.peers_max", homa.peers_max.into(), 1..=1_000_000, "peers"),
        ("homa.finished_max", homa.finished_max.into(), 1_024..=16_777_216, "RPCs"),
    ]
}

#[rustfmt::skip]
fn homa_time_ranges(homa: &Homa) -> Vec<Range> {
    vec![
        ("homa.resend_ticks", homa.resend_ticks.into(), 1..=10_000, "ticks"),
        ("homa.resend_interval_ticks", homa.resend_interval_ticks.into(), 1..=10_000, "ticks"),
        ("homa.resends_per_peer_tick", homa.resends_per_peer_tick.into(), 1..=1_000, "packets"),
        ("homa.busy_backoff_max_ticks", homa.busy_backoff_max_ticks.into(), 1..=10_000, "ticks"),
        ("homa.timeout_ticks", homa.timeout_ticks.into(), 2..=1_000_000, "ticks"),
        ("homa.request_ack_ticks", homa.request_ack_ticks.into(), 1..=10_000, "ticks"),
        ("homa.need_ack_eager_ticks", homa.need_ack_eager_ticks.into(), 1..=10_000, "ticks"),
        ("homa.need_ack_interval_ticks", homa.need_ack_interval_ticks.into(), 1..=10_000, "ticks"),
        ("homa.need_ack_give_up_ticks", homa.need_ack_give_up_ticks.into(), 1..=1_000_000, "ticks"),
        ("homa.peer_idle_min_secs", homa.peer_idle_min_secs.into(), 1..=86_400, "s"),
        ("homa.finished_secs", homa.finished_secs.into(), 1..=3_600, "s"),
    ]
}

#[rustfmt::skip]
fn memory_ranges(memory: &Memory, dpdk: &Dpdk) -> Vec<Range> {
    vec![
        ("memory.receive_bytes", memory.receive_bytes, RECEIVE_MIN_BYTES..=1 << 38,
            "bytes (the least: two messages of 1,000,000 B and a page)"),
        ("memory.send_bytes", memory.send_bytes, RECEIVE_MIN_BYTES..=1 << 38, "bytes"),
        ("memory.push_copy_max_bytes", memory.push_copy_max_bytes.into(), 0..=65_536, "bytes"),
        ("dpdk.memory_mb", dpdk.memory_mb.into(), 32..=1_048_576, "MB"),
        ("dpdk.rx_ring", dpdk.rx_ring.into(), 64..=4_096, "frames"),
        ("dpdk.tx_ring", dpdk.tx_ring.into(), 64..=4_096, "frames"),
    ]
}

/// All devices, each alone and all together.
fn check_networks(config: &Config) -> Result<(), Impossible> {
    /// Devices of one runtime, `[network]` among them. Source: ours, see `addr::LinkId`.
    const DEVICES_MAX: usize = 4;
    if config.port.len() >= DEVICES_MAX {
        let right = "there can be three besides [network]";
        return impossible("port", format!("{} sections", config.port.len()), right);
    }
    check_network("network", &config.network)?;
    for (index, port) in config.port.iter().enumerate() {
        in_range(mtu_range("port.mtu_bytes", port))?;
        in_range(protocol_range("port.ip_protocol", port))?;
        if port.interface.is_empty() {
            return impossible("port.interface", "\"\"", "must name the device");
        }
        check_network("port", port)?;
        for other in config.port[..index].iter().chain([&config.network]) {
            check_side_by_side(port, other)?;
        }
    }
    Ok(())
}

/// A device, and one of those named before it.
fn check_side_by_side(port: &Network, other: &Network) -> Result<(), Impossible> {
    if port.interface == other.interface {
        let right = "is the device of another section already";
        return impossible("port.interface", &port.interface, right);
    }
    let addresses = port.address.0.iter();
    let is_taken = |ip| other.address.0.iter().any(|one| one.ip == ip);
    match addresses.map(|one| one.ip).find(|&ip| is_taken(ip)) {
        Some(ip) => impossible(
            "port.address",
            ip,
            "is the address of another device already",
        ),
        None => Ok(()),
    }
}

fn check_network(section: &str, network: &Network) -> Result<(), Impossible> {
    let key = |name: &str| format!("{section}.{name}");
    let name = network.interface.as_str();
    let kernel_name = matches!(network.backend, Backend::AfPacket | Backend::Tap);
    if kernel_name && name.len() > INTERFACE_NAME_MAX_LEN {
        return impossible(
            key("interface"),
            name,
            "a kernel interface has 1 to 15 characters",
        );
    }
    // The name becomes part of an EAL argument, whose own separators they are.
    let separator = |c: char| c.is_whitespace() || c == '/' || c == ',';
    if kernel_name && name.contains(separator) {
        return impossible(key("interface"), name, "must have no space, comma or slash");
    }
    let addresses = &network.address.0;
    if addresses.is_empty() {
        return impossible(key("address"), "[]", "must hold one address or more");
    }
    for one in addresses {
        // 224.0.0.0/4 and ff00::/8.
        let multicast = std::net::IpAddr::from(one.ip).is_multicast();
        if one.ip.is_unspecified() || multicast {
            return impossible(key("address"), one.ip, "must be an address of one host");
        }
    }
    let unreachable = |gateway| !addresses.iter().any(|one| one.contains(gateway));
    if let Some(gateway) = network.gateway.0.filter(|&gateway| unreachable(gateway)) {
        let right = "must lie in the network of one of our addresses there";
        return impossible(key("gateway"), gateway, right);
    }
    match network.mac.0 {
        Some(mac) if mac[0] & 1 == 1 || mac == [0; 6] => impossible(
            key("mac"),
            format!("{mac:02x?}"),
            "must be the MAC of one interface",
        ),
        Some(_) | None => Ok(()),
    }
}

fn check_homa(homa: &Homa) -> Result<(), Impossible> {
    if homa.max_sched_prio >= homa.num_priorities {
        return impossible(
            "homa.max_sched_prio",
            homa.max_sched_prio,
            "must be less than homa.num_priorities",
        );
    }
    if homa.timeout_ticks <= homa.resend_ticks {
        return impossible(
            "homa.timeout_ticks",
            homa.timeout_ticks,
            "must be more than homa.resend_ticks, or nothing is ever asked for again",
        );
    }
    check_cutoffs(&homa.unsched_cutoffs_bytes)
}

/// From the highest priority down each must reach to longer messages, and the last to all.
fn check_cutoffs(cutoffs_bytes: &[u32; 8]) -> Result<(), Impossible> {
    let used = || cutoffs_bytes.iter().rev().take_while(|&&bytes| bytes > 0);
    let rest = &cutoffs_bytes[..cutoffs_bytes.len() - used().count()];
    let longest = used().last().copied().unwrap_or(0);
    if used().is_sorted_by(|a, b| a < b)
        && rest.iter().all(|&bytes| bytes == 0)
        && u64::from(longest) >= MESSAGE_MAX_BYTES
    {
        return Ok(());
    }
    impossible(
        "homa.unsched_cutoffs_bytes",
        format!("{cutoffs_bytes:?}"),
        "must fall from 1000000 or more to the last; before that only zeroes",
    )
}

fn check_memory(memory: &Memory) -> Result<(), Impossible> {
    if !memory.receive_bytes.is_multiple_of(BPAGE_BYTES) {
        return impossible(
            "memory.receive_bytes",
            memory.receive_bytes,
            "must be a multiple of 65536, a page of the pool",
        );
    }
    Ok(())
}

fn check_dpdk(dpdk: &Dpdk) -> Result<(), Impossible> {
    for (key, frames) in [
        ("dpdk.rx_ring", dpdk.rx_ring),
        ("dpdk.tx_ring", dpdk.tx_ring),
    ] {
        if !frames.is_power_of_two() {
            return impossible(key, frames, "must be a power of two");
        }
    }
    Ok(())
}
