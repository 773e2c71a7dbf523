//! From a wish to a running port.

use std::ffi::CString;
use std::rc::Rc;

use dpdk_sys as sys;

use super::StartError;
use super::backend::{Backend, Plug, kernel_side};
use super::eal::{Eal, describe};
use super::interface::Interface;
use super::lock::InterfaceLock;
use super::mempool::{Mempool, Stash, count_for};
use super::port::{Attached, Parts, Port};
use crate::addr::Ip;
use crate::device::{Caps, NET_ROOM};
use crate::error::Error;

/// IPv4's smallest, below which no host need accept packets.
const MTU_MIN: u16 = 576;

/// Longest that mbufs hold together with a jumbo frame's room.
const MTU_MAX: u16 = 9600;

/// How a port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortParams {
    pub backend: Backend,
    /// Largest IP packet wanted, bytes; the device may carry less.
    pub mtu: u16,
    /// Frames the NIC may hold for us.
    pub rx_ring: u16,
    /// Frames the NIC may hold until they are sent.
    pub tx_ring: u16,
    /// The IP address used there: a second process with the same one on the same interface is
    /// refused. Without it, any second process without one.
    pub address: Option<Ip>,
}

impl PortParams {
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            mtu: 1500,
            rx_ring: 512,
            tx_ring: 512,
            address: None,
        }
    }

    fn check(&self) -> Result<(), StartError> {
        let wrong = |text: String| Err(StartError::new(Error::Invalid, text));
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return wrong(format!(
                "an MTU of {} is not within {MTU_MIN}..={MTU_MAX}",
                self.mtu
            ));
        }
        for (name, len) in [("rx_ring", self.rx_ring), ("tx_ring", self.tx_ring)] {
            if !(32..=8192).contains(&len) || !len.is_power_of_two() {
                return wrong(format!(
                    "{name} of {len} is no power of two within 32..=8192"
                ));
            }
        }
        Ok(())
    }
}

impl Port {
    /// Plugs the device in and starts it. When this fails, nothing is left of it.
    pub fn open(eal: &Eal, params: &PortParams) -> Result<Self, StartError> {
        params.check()?;
        let plug = params.backend.plug(params.mtu)?;
        let lock = match params.backend.lock_name() {
            Some(name) => Some(InterfaceLock::take(name, params.address)?),
            None => None,
        };
        let room = room_for(plug.mtu, plug.frame_room);
        let on_a_bus = params.backend.is_on_a_bus();
        let rings = Rings {
            rx: params.rx_ring,
            tx: params.tx_ring,
        };
        let device = if on_a_bus {
            find(&plug.name)?
        } else {
            plug_in(&plug)?
        };
        let info = device.info()?;
        let rings = device.adjusted(rings);
        let count = count_for(1, usize::from(rings.rx), usize::from(rings.tx));
        let pool = Rc::new(Mempool::create(eal, count, room)?);
        let device = device.start(&info, &rings, &pool, on_a_bus.then_some(plug.mtu))?;
        let mac = device.mac()?;
        if let (Backend::Tap { .. }, Some(interface)) = (&params.backend, &plug.interface) {
            // Only now: starting the port sets the port's own address there.
            set_kernel_side(interface, mac)?;
        }
        let link_mbps = device.link().map_or(0, |(mbps, _)| mbps);
        Ok(Self::new(Parts {
            device,
            stash: Stash::new(pool),
            caps: Caps {
                mac,
                mtu: plug.mtu.min(info.max_mtu),
                link_mbps,
            },
            room,
            interface: plug.interface,
            lock,
            wires: None,
        }))
    }
}

/// Ring lengths.
pub(super) struct Rings {
    pub(super) rx: u16,
    pub(super) tx: u16,
}

/// Bytes an mbuf holds after the headroom: the slot of a frame to send, or a frame received,
/// whichever is longer, in whole cache lines.
pub(super) fn room_for(mtu: u16, frame_room: usize) -> usize {
    (NET_ROOM + usize::from(mtu))
        .max(frame_room)
        .next_multiple_of(64)
}

/// Makes the virtual device.
fn plug_in(plug: &Plug) -> Result<Attached, StartError> {
    let Plug {
        name,
        arguments,
        interface,
        ..
    } = plug;
    let what = match interface {
        Some(interface) => interface.name(),
        None => name.as_str(),
    };
    let text = |text: &str| CString::new(text).expect("checked to be printable");
    let (vdev, arguments) = (text(name), text(arguments));
    // SAFETY: the EAL runs, as `Port::open` holds its token; three strings, which are copied.
    let error =
        unsafe { sys::rte_eal_hotplug_add(c"vdev".as_ptr(), vdev.as_ptr(), arguments.as_ptr()) };
    if error < 0 {
        return Err(StartError::new(
            Error::Device,
            format!(
                "{what}: DPDK's {} did not start ({}): is the interface free, the name a \
                 driver's, and `ulimit -l` at least 8192?",
                name.trim_end_matches(|c: char| c.is_ascii_digit()),
                describe(error)
            ),
        ));
    }
    // A driver may fail and yet the device be plugged in, without a port.
    match port_of(name) {
        Some(id) => Ok(Attached {
            id,
            vdev: Some(vdev),
        }),
        None => {
            // SAFETY: the name of a device just plugged in.
            unsafe { sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), vdev.as_ptr()) };
            Err(StartError::new(
                Error::Device,
                format!("{what}: {name} carries no port"),
            ))
        }
    }
}

/// A device that DPDK found when it started.
fn find(name: &str) -> Result<Attached, StartError> {
    match port_of(name) {
        Some(id) => Ok(Attached { id, vdev: None }),
        None => Err(StartError::new(
            Error::NoDevice,
            format!(
                "DPDK has no NIC {name}: it must be named when DPDK starts, and be bound to \
                 vfio-pci (dpdk-devbind.py) unless its driver is mlx"
            ),
        )),
    }
}

fn port_of(name: &str) -> Option<u16> {
    let name = CString::new(name).ok()?;
    let mut id = 0;
    // SAFETY: a string, and a number to write.
    let error = unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
    (error == 0).then_some(id)
}

fn set_kernel_side(interface: &Interface, mac: [u8; 6]) -> Result<(), StartError> {
    interface.set_mac(kernel_side(mac)).map_err(|error| {
        let name = interface.name();
        StartError::new(
            Error::NotPermitted,
            format!("{name}: its address stays: {error}"),
        )
    })
}

impl Attached {
    pub(super) fn info(&self) -> Result<sys::rte_eth_dev_info, StartError> {
        // SAFETY: numbers and pointers, for which zero is valid.
        let mut info: sys::rte_eth_dev_info = unsafe { std::mem::zeroed() };
        // SAFETY: writes the description of a port that exists.
        let error = unsafe { sys::rte_eth_dev_info_get(self.id, &raw mut info) };
        check(error, "the device does not describe itself")?;
        Ok(info)
    }

    pub(super) fn mac(&self) -> Result<[u8; 6], StartError> {
        // SAFETY: six bytes.
        let mut mac: sys::rte_ether_addr = unsafe { std::mem::zeroed() };
        // SAFETY: writes the address of a port that exists.
        let error = unsafe { sys::rte_eth_macaddr_get(self.id, &raw mut mac) };
        check(error, "the device has no MAC address")?;
        Ok(mac.addr_bytes)
    }

    /// The lengths wanted, brought within what the device can.
    fn adjusted(&self, mut rings: Rings) -> Rings {
        // SAFETY: changes the two numbers. Before it is configured a device may refuse to tell,
        // and then leaves them, and the queues' setup says what is wrong.
        unsafe {
            let (rx, tx) = (&raw mut rings.rx, &raw mut rings.tx);
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.id, rx, tx);
        }
        rings
    }

    /// Sets up a queue pair and lets the device run. `mtu` is for real NICs: virtual ones either
    /// cannot change it, or would change the kernel's interface.
    pub(super) fn start(
        self,
        info: &sys::rte_eth_dev_info,
        rings: &Rings,
        pool: &Mempool,
        mtu: Option<u16>,
    ) -> Result<Self, StartError> {
        // SAFETY: numbers and pointers, for which zero means "as the driver likes".
        let mut config: sys::rte_eth_conf = unsafe { std::mem::zeroed() };
        if let Some(mtu) = mtu {
            // Only a real NIC verifies checksums: where frames never left the host they may
            // not have been computed, and a software driver would call them bad.
            config.rxmode.offloads = info.rx_offload_capa
                & (sys::SHIM_RX_OFFLOAD_IPV4_CKSUM
                    | sys::SHIM_RX_OFFLOAD_UDP_CKSUM
                    | sys::SHIM_RX_OFFLOAD_TCP_CKSUM);
            config.rxmode.mtu = u32::from(mtu.min(info.max_mtu));
        }
        let id = self.id;
        // SAFETY: a port that exists and is stopped; `config` is copied.
        let error = unsafe { sys::rte_eth_dev_configure(id, 1, 1, &raw const config) };
        check(error, "the device takes no such settings")?;
        // SAFETY: the port is configured. The pool outlives the device: whoever gets the device
        // keeps the pool longer, and should this fail, `self` is dropped before the caller's pool.
        let error = unsafe {
            sys::rte_eth_rx_queue_setup(id, 0, rings.rx, 0, std::ptr::null(), pool.as_ptr())
        };
        check(error, "no receive queue of this length")?;
        // SAFETY: the port is configured.
        let error = unsafe { sys::rte_eth_tx_queue_setup(id, 0, rings.tx, 0, std::ptr::null()) };
        check(error, "no transmit queue of this length")?;
        // SAFETY: both queues are set up.
        check(
            unsafe { sys::rte_eth_dev_start(id) },
            "the device does not start",
        )?;
        // SAFETY: the port runs. IPv6 finds neighbours by multicast; where this is not supported,
        // the device delivers multicast anyway, or IPv6 is of no use.
        unsafe { sys::rte_eth_allmulticast_enable(id) };
        Ok(self)
    }
}

fn check(error: i32, text: &str) -> Result<(), StartError> {
    if error == 0 {
        return Ok(());
    }
    Err(StartError::new(
        Error::Device,
        format!("{text}: {}", describe(error)),
    ))
}
