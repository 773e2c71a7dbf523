//! The kinds of device a port can be opened on, and DPDK's words for them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::StartError;
use super::interface::{Interface, check_packet_sockets};
use crate::error::Error;

/// What carries the frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A kernel interface, by a packet socket. Needs `CAP_NET_RAW`.
    AfPacket { interface: String },
    /// A tap interface, made here if it is not there. Needs `CAP_NET_ADMIN`, unless it is ours.
    /// Without `mac` the port's address follows from the interface's name.
    Tap {
        interface: String,
        mac: Option<[u8; 6]>,
    },
    /// Any other virtual device, in DPDK's words: `net_memif0,role=server,...`.
    Vdev(String),
    /// A NIC on the PCI bus, by its address, which must be among those the EAL was given.
    Pci(String),
}

/// What DPDK is to be told for a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plug {
    /// The device's name: what to plug in, or what is there already.
    pub(super) name: String,
    pub(super) arguments: String,
    /// The kernel's side of it.
    pub(super) interface: Option<Interface>,
    /// Largest IP packet, bytes; what the device itself says may be less.
    pub(super) mtu: u16,
    /// Bytes each mbuf must hold, headroom not counted, for what the device may deliver.
    pub(super) frame_room: usize,
}

/// Ethernet's header and a VLAN tag.
pub(super) const L2_MAX: usize = 18;

/// net_tap carries 1,518 B frames, 1,522 with a tag, whatever the interface's MTU.
const TAP_MTU_MAX: u16 = 1500;

/// The rings of a packet socket, shared with the kernel.
///
/// Both rings of all ports of a process, 2 x frame x count each, must fit RLIMIT_MEMLOCK (8 MiB)
/// where the process lacks `CAP_IPC_LOCK`: 2 MiB for ordinary frames, 7.9 MiB for jumbo ones.
struct PacketRing {
    /// A multiple of the frame and of the page.
    block_len: u32,
    /// Also the room of an mbuf: the driver wants mbufs no smaller.
    frame_len: u32,
    frame_count: u32,
    mtu_max: u16,
}

const PACKET_RINGS: [PacketRing; 2] = [
    PacketRing {
        block_len: 4096,
        frame_len: 2048,
        frame_count: 512,
        mtu_max: 1500,
    },
    PacketRing {
        block_len: 36864,
        frame_len: 9216,
        frame_count: 448,
        mtu_max: 9000,
    },
];

impl Backend {
    /// What the interface lock is named for; none for devices that exclude a second user by
    /// themselves, or have names inside this process only.
    pub(super) fn lock_name(&self) -> Option<&str> {
        match self {
            Self::AfPacket { interface } | Self::Tap { interface, mac: _ } => Some(interface),
            Self::Pci(address) => Some(address),
            Self::Vdev(_) => None,
        }
    }

    /// Checks what the driver would not, or not clearly, and finds the words for it.
    pub(super) fn plug(&self, mtu: u16) -> Result<Plug, StartError> {
        match self {
            Self::AfPacket { interface } => af_packet(interface, mtu),
            Self::Tap { interface, mac } => tap(interface, *mac, mtu),
            Self::Vdev(words) => vdev(words, mtu),
            Self::Pci(address) => Ok(Plug {
                name: address.clone(),
                arguments: String::new(),
                interface: None,
                mtu,
                frame_room: L2_MAX + usize::from(mtu),
            }),
        }
    }

    /// Whether DPDK has the device already, from the start of its EAL.
    pub(super) fn is_on_a_bus(&self) -> bool {
        matches!(self, Self::Pci(_))
    }
}

fn af_packet(name: &str, mtu: u16) -> Result<Plug, StartError> {
    let interface = Interface::named(name)?;
    interface.check_ethernet()?;
    check_packet_sockets()?;
    // Larger frames would be counted as sent, and lost.
    let kernel_mtu = interface
        .mtu()
        .map_err(|error| StartError::new(Error::Device, format!("{name}: no MTU: {error}")))?;
    let mtu = mtu.min(kernel_mtu);
    let [small, jumbo] = &PACKET_RINGS;
    let ring = if mtu <= small.mtu_max { small } else { jumbo };
    let (block, frame, count) = (ring.block_len, ring.frame_len, ring.frame_count);
    Ok(Plug {
        name: unique("net_af_packet"),
        arguments: format!(
            "iface={name},blocksz={block},framesz={frame},framecnt={count},qdisc_bypass=1"
        ),
        interface: Some(interface),
        mtu: mtu.min(ring.mtu_max),
        frame_room: frame as usize,
    })
}

fn tap(name: &str, mac: Option<[u8; 6]>, mtu: u16) -> Result<Plug, StartError> {
    let interface = Interface::named(name)?;
    if let Err(error) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        let text = format!("/dev/net/tun: {error}: net_tap needs the kernel's tun driver");
        return Err(StartError::new(Error::NotPermitted, text));
    }
    let [a, b, c, d, e, f] = mac.unwrap_or_else(|| mac_for(name));
    Ok(Plug {
        name: unique("net_tap"),
        arguments: format!("iface={name},mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"),
        interface: Some(interface),
        mtu: mtu.min(TAP_MTU_MAX),
        frame_room: L2_MAX + usize::from(TAP_MTU_MAX),
    })
}

fn vdev(words: &str, mtu: u16) -> Result<Plug, StartError> {
    let (name, arguments) = words.split_once(',').unwrap_or((words, ""));
    if name.is_empty() || !words.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = format!("{words:?} names no virtual device, as `net_tap0,iface=t0` would");
        return Err(StartError::new(Error::Invalid, text));
    }
    Ok(Plug {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        interface: None,
        mtu,
        frame_room: L2_MAX + usize::from(mtu),
    })
}

/// DPDK knows a driver by how a device's name begins, and the device by the rest of it.
fn unique(driver: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{driver}{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A locally administered address that stays the same when the process starts again, so that
/// peers need not ask for it anew, and differs between interfaces and network namespaces.
fn mac_for(interface: &str) -> [u8; 6] {
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let bytes = namespace.as_os_str().as_encoded_bytes().iter().copied();
    // Source: FNV-1a, 64 bits.
    let hash = bytes
        .chain(interface.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    let [_, _, _, b, c, d, e, f] = hash.to_be_bytes();
    [0x02, b, c, d, e, f]
}

/// The kernel's side of a tap gets another address than the port: a bridge that sees one address
/// at its own port and behind it loses nearly all frames.
pub(super) fn kernel_side(mac: [u8; 6]) -> [u8; 6] {
    let [a, rest @ ..] = mac;
    let [b, c, d, e, f] = rest;
    // Locally administered, no group, and not the same.
    [(a ^ 0x08) & 0xfe | 0x02, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks hold whole frames and are whole pages; both rings fit 8 MiB.
    #[test]
    fn packet_rings_fit_the_kernels_rules() {
        for ring in PACKET_RINGS {
            assert_eq!(ring.block_len % ring.frame_len, 0);
            assert_eq!(ring.block_len % 4096, 0);
            assert_eq!(ring.frame_count % (ring.block_len / ring.frame_len), 0);
            assert!(2 * ring.frame_len * ring.frame_count <= 8 << 20);
            assert!(usize::from(ring.mtu_max) + L2_MAX + 100 < ring.frame_len as usize);
        }
    }

    #[test]
    fn the_kernels_side_of_a_tap_has_an_address_of_its_own() {
        let ours = mac_for("t0");
        assert_eq!(ours, mac_for("t0"), "must not change");
        assert_ne!(ours, mac_for("t1"));
        for mac in [ours, [0x0a, 0, 0, 0, 0, 1], [0; 6]] {
            let other = kernel_side(mac);
            assert_ne!(other, mac);
            assert_eq!(other[0] & 3, 2, "{other:02x?} is local and of one station");
        }
    }

    #[test]
    fn a_virtual_device_is_a_name_and_its_arguments() {
        let plug = vdev("net_null0,size=60,copy=1", 1500).expect("a fine device");
        assert_eq!(
            (plug.name.as_str(), plug.arguments.as_str()),
            ("net_null0", "size=60,copy=1")
        );
        for wrong in ["", ",x=1", "net_null0 --help", "a\nb"] {
            assert!(vdev(wrong, 1500).is_err(), "{wrong:?}");
        }
    }
}
