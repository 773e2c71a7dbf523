//! The library OS over a DPDK port, from its settings.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::channel;
use crate::config::{self, Config};
use crate::device::Device;
use crate::dpdk::{self, Eal, EalParams, Port, PortParams};
use crate::error::{Error, StartError};
use crate::homa;
use crate::mem::Region;
use crate::net;
use crate::runtime;
use crate::time::{Duration, Instant};

use super::{LibOSOver, Params};

/// The library OS of one thread, over a DPDK port of its own.
pub type LibOS = LibOSOver<Port, dpdk::Clock>;

impl LibOS {
    /// Starts DPDK, unless this process has done so, and opens the port that `config` names.
    pub fn new(config: &Config) -> Result<Self, StartError> {
        config.interface()?;
        let backends = networks(config).map(backend);
        let backends = backends.collect::<Result<Vec<_>, _>>()?;
        let eal = eal(config)?;
        // Each runtime has its own ids, ports and hash keys, of the operating system's entropy.
        let seed = RandomState::new().build_hasher().finish();
        let mut homa = homa_params(config, seed);
        let (mut devices, mut nic_mbps) = (Vec::new(), 0);
        for (network, backend) in networks(config).zip(backends) {
            let port = Port::open(
                &eal,
                &PortParams {
                    backend,
                    mtu: network.mtu_bytes,
                    rx_ring: to_u16(config.dpdk.rx_ring),
                    tx_ring: to_u16(config.dpdk.tx_ring),
                    address: network.address.0.first().map(|address| address.ip),
                },
            )?;
            if network.backend == config::Backend::Pci {
                // Virtual devices name a speed too, but it is not that of any link.
                nic_mbps += port.caps().link_mbps;
            }
            devices.push((port, net_params(network, &config.arp, seed)));
        }
        if homa.link_mbps == 0 {
            homa.link_mbps = nic_mbps;
        }
        let region = Region::owned(config.memory.receive_bytes as usize)
            .map_err(|error| StartError::new(error, "memory.receive_bytes: no such memory"))?;
        let (clock, params) = (dpdk::Clock::start(), params(config, seed));
        Self::over_devices(devices, clock, homa, params, region)
            .map_err(|error| StartError::new(error, format!("the settings do not fit: {error}")))
    }
}

impl runtime::Clock for dpdk::Clock {
    #[inline]
    fn now(&mut self) -> Instant {
        Self::now(self)
    }
}

impl From<config::ConfigError> for StartError {
    fn from(error: config::ConfigError) -> Self {
        Self::new(error.error, error.to_string())
    }
}

fn unsupported(key: &str, text: &str) -> StartError {
    StartError::new(Error::NotSupported, format!("{key}: {text}"))
}

/// All devices that the settings name.
fn networks(config: &Config) -> impl Iterator<Item = &config::Network> {
    std::iter::once(&config.network).chain(&config.port)
}

fn backend(network: &config::Network) -> Result<dpdk::Backend, StartError> {
    let (interface, mac) = (network.interface.clone(), network.mac.0);
    if mac.is_some() && network.backend != config::Backend::Tap {
        return Err(unsupported("network.mac", "only a tap can be given one"));
    }
    Ok(match network.backend {
        config::Backend::AfPacket => dpdk::Backend::AfPacket { interface },
        config::Backend::Tap => dpdk::Backend::Tap { interface, mac },
        config::Backend::Pci => dpdk::Backend::Pci(interface),
        config::Backend::Vdev => dpdk::Backend::Vdev(interface),
    })
}

fn eal(config: &Config) -> Result<Eal, StartError> {
    let dpdk = &config.dpdk;
    if dpdk.eal_started {
        return Eal::attach();
    }
    let core = match dpdk.lcores.as_str() {
        "" => None,
        lcores => match lcores.strip_prefix("0@").map(str::parse) {
            Some(Ok(core)) => Some(core),
            Some(Err(_)) | None => {
                return Err(unsupported(
                    "dpdk.lcores",
                    "only one core, as \"0@3\", or \"\"",
                ));
            }
        },
    };
    let pci = networks(config).filter(|network| network.backend == config::Backend::Pci);
    let params = EalParams {
        memory_mib: dpdk.memory_mb,
        hugepages: dpdk.hugepages,
        core,
        pci: pci.map(|network| network.interface.clone()).collect(),
    };
    match Eal::start(&params) {
        // Another runtime of this process has started it.
        Err(error) if error.error() == Error::Exists => Eal::attach(),
        started => started,
    }
}

fn net_params(network: &config::Network, arp: &config::Arp, seed: u64) -> net::Params {
    let addresses = network.address.0.iter().map(|address| net::Interface {
        ip: address.ip,
        prefix: address.prefix_bits,
    });
    net::Params {
        addresses: addresses.collect(),
        gateway: network.gateway.0,
        mtu: network.mtu_bytes,
        ip_protocol: network.ip_protocol,
        neighbors_max: arp.neighbors_max as usize,
        arp_tries: arp.tries_max,
        arp_delay: millis(arp.first_wait_ms),
        learn: arp.learn_from_traffic,
        seed,
        // The MAC is the device's, see `Poller::new`.
        ..net::Params::default()
    }
}

fn homa_params(config: &Config, seed: u64) -> homa::Params {
    let homa = &config.homa;
    homa::Params {
        seed,
        rpcs_max: homa.rpcs_max,
        peers_max: homa.peers_max,
        unsched_bytes: homa.unsched_bytes,
        window_bytes: homa.window_bytes,
        max_incoming_bytes: homa.max_incoming_bytes,
        max_overcommit: to_u8(homa.max_overcommit),
        grant_fifo_thousandths: to_u16(homa.grant_fifo_thousandths),
        fifo_grant_bytes: homa.fifo_grant_bytes,
        link_mbps: homa.link_mbps,
        nic_backlog_max: Duration::micros(homa.nic_backlog_max_us.into()),
        pacer_fifo_thousandths: to_u16(homa.pacer_fifo_thousandths),
        num_priorities: to_u8(homa.num_priorities),
        max_sched_priority: to_u8(homa.max_sched_prio),
        unsched_cutoffs: homa.unsched_cutoffs_bytes,
        cutoffs_follow_traffic: homa.cutoffs_follow_traffic,
        cutoff_version: homa.cutoff_version,
        resend_ticks: homa.resend_ticks,
        resend_interval_ticks: homa.resend_interval_ticks,
        busy_backoff_max_ticks: homa.busy_backoff_max_ticks,
        resends_per_peer_tick: to_u8(homa.resends_per_peer_tick),
        timeout_ticks: homa.timeout_ticks,
        request_ack_ticks: homa.request_ack_ticks,
        // One a tick from the first on.
        need_acks_fast: (homa.need_ack_eager_ticks + 1).saturating_sub(homa.request_ack_ticks),
        need_ack_interval_ticks: homa.need_ack_interval_ticks,
        need_ack_give_up_ticks: homa.need_ack_give_up_ticks,
        finished_max: homa.finished_max,
        finished_for: Duration::secs(homa.finished_secs.into()),
        peer_idle: Duration::secs(homa.peer_idle_min_secs.into()),
        ..homa::Params::default()
    }
}

fn params(config: &Config, seed: u64) -> Params {
    Params {
        seed,
        tokens_max: config.runtime.tokens_max,
        push_copy_max_bytes: config.memory.push_copy_max_bytes,
        send_bytes: config.memory.send_bytes as usize,
        datagram_outstanding_max: config.datagram.outstanding_max,
        datagram_reply_grace: millis(config.datagram.reply_grace_ms),
        channel: channel_params(&config.channel),
        linger: millis(config.runtime.linger_ms),
        yield_after_turns: config.runtime.idle_turns_before_yield,
        ..Params::default()
    }
}

fn channel_params(config: &config::Channel) -> channel::Params {
    channel::Params {
        channels_max: config.channels_max,
        timeout: millis(config.timeout_ms),
        connect_timeout: millis(config.connect_timeout_ms),
        keepalive_idle: millis(config.keepalive_idle_ms),
        keepalive_misses_max: config.keepalive_misses_max,
        ..channel::Params::default()
    }
}

fn millis(ms: u32) -> Duration {
    Duration::millis(ms.into())
}

/// The config room has checked the range; were that wider, the largest value would do.
fn to_u16(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// As [`to_u16`].
fn to_u8(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_settings_are_the_rooms_own_defaults() {
        let config = Config::default();
        let homa = homa::Params::default();
        assert_eq!(homa_params(&config, homa.seed), homa);
        assert_eq!(params(&config, 1), Params::default());
    }

    #[test]
    fn no_interface_is_told_before_dpdk_starts() {
        let error = LibOS::new(&Config::default()).unwrap_err();
        assert_eq!(error.error(), Error::NoDevice);
        assert!(error.to_string().contains("network.interface"), "{error}");
    }
}
