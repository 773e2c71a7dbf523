//! Two ports joined by two rings in memory: what one sends, the other receives. For tests and
//! benchmarks of everything but a network.

use std::ffi::CString;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use dpdk_sys as sys;

use super::StartError;
use super::backend::L2_MAX;
use super::eal::{Eal, last_error};
use super::mempool::{Mempool, Stash, count_for};
use super::open::{Rings, room_for};
use super::port::{Attached, Parts, Port};
use crate::device::Caps;
use crate::error::Error;

/// Both ports are on this NUMA node; memory without hugepages has no other.
const NODE: u32 = 0;

/// How a pair of ports is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingParams {
    pub mtu: u16,
    /// Frames that fit on the way, in each direction, plus one; a power of two.
    pub ring_len: u16,
}

impl Default for RingParams {
    fn default() -> Self {
        Self {
            mtu: 1500,
            ring_len: 512,
        }
    }
}

/// The rings and the pool of a pair, which the last of the two ports frees.
///
/// One pool for both: an mbuf changes hands with its frame, so with two pools the port that
/// receives more would drain the other's.
#[derive(Debug)]
pub(super) struct Wires {
    rings: [Ring; 2],
    pool: Rc<Mempool>,
}

#[derive(Debug)]
struct Ring(NonNull<sys::rte_ring>);

/// Two ports, used by one thread, on the two ends of a wire without delay or loss. A full ring
/// refuses frames.
pub fn ring_pair(eal: &Eal, params: &RingParams) -> Result<(Port, Port), StartError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(2, Ordering::Relaxed);
    if !params.ring_len.is_power_of_two() || params.ring_len < 2 {
        let text = format!("a ring of {} is no power of two", params.ring_len);
        return Err(StartError::new(Error::Invalid, text));
    }
    // One port's receive ring is the other's transmit ring, so each counts once.
    let count = count_for(2, usize::from(params.ring_len), 0);
    let room = room_for(params.mtu, L2_MAX + usize::from(params.mtu));
    let wires = Rc::new(Wires {
        rings: [
            Ring::create(eal, number, params.ring_len)?,
            Ring::create(eal, number + 1, params.ring_len)?,
        ],
        pool: Rc::new(Mempool::create(eal, count, room)?),
    });
    let a = join(params, number, &wires, [0, 1])?;
    let b = join(params, number + 1, &wires, [1, 0])?;
    Ok((a, b))
}

/// A port that receives from the first of two rings and sends into the second.
fn join(
    params: &RingParams,
    number: u32,
    wires: &Rc<Wires>,
    order: [usize; 2],
) -> Result<Port, StartError> {
    let name = CString::new(format!("x{number}")).expect("holds no NUL");
    let [rx, tx] = order.map(|index| wires.rings[index].0.as_ptr());
    // SAFETY: the name is copied, the two lists have one ring each; the rings live as long as the
    // port, which holds `wires`.
    let id =
        unsafe { sys::rte_eth_from_rings(name.as_ptr(), &raw const rx, 1, &raw const tx, 1, NODE) };
    let Ok(id) = u16::try_from(id) else {
        return Err(StartError::new(
            Error::Device,
            format!("no ring port: {}", last_error()),
        ));
    };
    let vdev = CString::new(format!("net_ring_x{number}")).expect("holds no NUL");
    let device = Attached {
        id,
        vdev: Some(vdev),
    };
    let info = device.info()?;
    let rings = Rings {
        rx: params.ring_len,
        tx: params.ring_len,
    };
    let device = device.start(&info, &rings, &wires.pool, None)?;
    // The driver's own address is all zero.
    let [_, _, c, d] = number.to_be_bytes();
    let mac = [0x02, 0, 0, 0, c, d];
    let link_mbps = device.link().map_or(0, |(mbps, _)| mbps);
    Ok(Port::new(Parts {
        device,
        stash: Stash::new(Rc::clone(&wires.pool)),
        caps: Caps {
            mac,
            mtu: params.mtu,
            link_mbps,
        },
        room: room_for(params.mtu, 0),
        interface: None,
        lock: None,
        wires: Some(Rc::clone(wires)),
    }))
}

impl Ring {
    fn create(_eal: &Eal, number: u32, len: u16) -> Result<Self, StartError> {
        let name = CString::new(format!("demihoma-x{number}")).expect("holds no NUL");
        let flags = sys::SHIM_RING_ONE_THREAD;
        // SAFETY: the EAL runs, as the token says; the name is copied.
        let ring =
            unsafe { sys::rte_ring_create(name.as_ptr(), u32::from(len), NODE as i32, flags) };
        NonNull::new(ring).map(Self).ok_or_else(|| {
            let text = format!("no memory for a ring of {len}: {}", last_error());
            StartError::new(Error::NoMemory, text)
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: both ports are gone, so nobody else uses the ring; what waits in it are packets
        // that belong to it.
        unsafe {
            sys::shim_ring_drain(self.0.as_ptr());
            sys::rte_ring_free(self.0.as_ptr());
        }
    }
}
