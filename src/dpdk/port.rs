//! One receive and one transmit queue of a DPDK device.

use std::ffi::{CString, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::rc::Rc;

use arrayvec::ArrayVec;
use dpdk_sys as sys;

use super::backend::L2_MAX;
use super::interface::Interface;
use super::lock::InterfaceLock;
use super::mbuf::Mbuf;
use super::mempool::Stash;
use super::ring::Wires;
use crate::device::{Caps, Device, NET_ROOM, RX_BURST, RxMeta, TX_BURST, TxMeta};

/// The longest packet that is put together from several mbufs.
pub(super) const GATHER_MAX: usize = 65_536;

/// Ethernet's header: no device takes less.
const FRAME_MIN: usize = 14;

/// A driver's burst function. Both directions have the same shape.
type Burst = unsafe extern "C" fn(*mut c_void, *mut *mut sys::rte_mbuf, u16) -> u16;

/// One queue pair of a device, and the mbufs that go through it.
///
/// What the NIC does not take stays here, in order, and leads the next flush: at most
/// [`TX_BURST`] frames, and nothing ever waits or tries again by itself. A frame longer than the
/// MTU allows is dropped before the driver sees it: one driver answers such a frame with "not now"
/// for ever, others lose it and count it as sent.
///
/// `net_af_packet` may wait inside a burst while its own ring of 448 or 512 frames is full, until
/// the kernel has sent one.
pub struct Port {
    // Declared first, so dropped first: stopping gives the driver's mbufs back to the pool.
    pub(super) device: Attached,
    queues: Queues,
    batch: ArrayVec<Mbuf, TX_BURST>,
    pub(super) stash: Stash,
    /// Where packets in several pieces are put together.
    scratch: Box<[u8]>,
    slot_len: usize,
    caps: Caps,
    counters: Counters,
    interface: Option<Interface>,
    _lock: Option<InterfaceLock>,
    _wires: Option<Rc<Wires>>,
}

/// The driver's functions and queues, as they are while the device runs. Called directly, without
/// a C function in between: that saves some 60 cycles per RPC.
#[derive(Clone, Copy)]
struct Queues {
    rx: Burst,
    rx_queue: *mut c_void,
    tx: Burst,
    tx_queue: *mut c_void,
}

/// What a port did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_frames: u64,
    pub rx_bytes: u64,
    /// Received in several pieces, and put together.
    pub rx_gathered: u64,
    /// Longer than 64 KiB, and dropped.
    pub rx_too_long: u64,
    /// Frames committed, save those dropped; at most a burst of them still waits here.
    pub tx_frames: u64,
    pub tx_bytes: u64,
    /// Longer than the MTU allows, and dropped.
    pub tx_oversize: u64,
    /// Frames the NIC did not take at a flush; each counts again whenever that happens.
    pub tx_refused: u64,
}

/// What the device itself counts, as far as its driver does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Received, and dropped as nobody took them in time.
    pub rx_missed: u64,
    pub rx_errors: u64,
    /// Received, and dropped for want of an mbuf.
    pub rx_no_mbuf: u64,
    pub tx_errors: u64,
}

/// A device plugged in for us; stopped and unplugged when dropped.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) id: u16,
    /// The virtual device to unplug; none on a real bus.
    pub(super) vdev: Option<CString>,
}

/// All a port is made of, once its device runs.
pub(super) struct Parts {
    pub(super) device: Attached,
    pub(super) stash: Stash,
    pub(super) caps: Caps,
    /// Bytes in each mbuf after the headroom.
    pub(super) room: usize,
    pub(super) interface: Option<Interface>,
    pub(super) lock: Option<InterfaceLock>,
    pub(super) wires: Option<Rc<Wires>>,
}

impl Port {
    /// `parts.device` runs.
    pub(super) fn new(parts: Parts) -> Self {
        let queues = parts.device.queues();
        let mut stash = parts.stash;
        stash.fill(TX_BURST);
        Self {
            device: parts.device,
            queues,
            batch: ArrayVec::new(),
            stash,
            scratch: vec![0; GATHER_MAX].into_boxed_slice(),
            slot_len: parts.room,
            caps: parts.caps,
            counters: Counters::default(),
            interface: parts.interface,
            _lock: parts.lock,
            _wires: parts.wires,
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Asks the device; not for the data path.
    pub fn device_counters(&self) -> DeviceCounters {
        // SAFETY: statistics are plain numbers, all zero are valid ones.
        let mut stats: sys::rte_eth_stats = unsafe { std::mem::zeroed() };
        // SAFETY: writes the statistics; an error leaves them as they are.
        unsafe { sys::rte_eth_stats_get(self.device.id, &raw mut stats) };
        DeviceCounters {
            rx_missed: stats.imissed,
            rx_errors: stats.ierrors,
            rx_no_mbuf: stats.rx_nombuf,
            tx_errors: stats.oerrors,
        }
    }

    /// Whether frames can pass now, as far as it is known. Asks the kernel where it has an
    /// interface of its own, as such drivers always say yes; not for the data path.
    pub fn link_is_up(&self) -> bool {
        match &self.interface {
            Some(interface) => interface.is_running(),
            None => self.device.link().is_some_and(|(_, up)| up),
        }
    }

    /// Frames committed and not taken by the NIC yet.
    pub fn waiting(&self) -> usize {
        self.batch.len()
    }

    /// How many mbufs the port's pool has, and how many of them are free: in the pool, or in this
    /// port's stash. Not for the data path.
    pub fn mbufs(&self) -> (u32, u32) {
        let pool = self.stash.pool();
        (pool.count(), pool.available() + self.stash.len() as u32)
    }
}

impl Device for Port {
    fn caps(&self) -> Caps {
        self.caps
    }

    #[inline]
    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, mut sink: S) -> usize {
        let mut burst = [const { MaybeUninit::uninit() }; RX_BURST];
        let count = self.queues.receive(&mut burst);
        let (mut shown, mut bytes) = (0, 0);
        for slot in &burst[..count] {
            // SAFETY: one of the first `count`, and each is taken once.
            let mbuf = unsafe { slot.assume_init_read() };
            let meta = RxMeta {
                checksums: mbuf.checksums(),
            };
            let is_plain = self.stash.can_keep(&mbuf);
            let frame = if is_plain {
                mbuf.data()
            } else {
                match whole(&mbuf, &mut self.scratch, &mut self.counters) {
                    Some(frame) => frame,
                    None => continue,
                }
            };
            bytes += frame.len();
            shown += 1;
            sink(frame, meta);
            if is_plain {
                self.stash.keep(mbuf);
            }
        }
        self.counters.rx_frames += shown as u64;
        self.counters.rx_bytes += bytes as u64;
        shown
    }

    #[inline]
    fn tx_room(&self) -> usize {
        self.batch.remaining_capacity().min(self.stash.len())
    }

    #[inline]
    fn tx_slot(&mut self) -> &mut [u8] {
        let len = self.slot_len;
        self.stash
            .last()
            .expect("a slot is asked for only while there is room")
            .room(len)
    }

    #[inline(always)]
    fn tx_commit(&mut self, frame: Range<usize>, meta: TxMeta) {
        let len = frame.len();
        assert!(
            len >= FRAME_MIN && frame.end <= self.slot_len,
            "{frame:?} is no frame of the slot"
        );
        if len > usize::from(self.caps.mtu) + L2_MAX.min(usize::from(meta.l2_len)) {
            self.counters.tx_oversize += 1;
            return; // The mbuf stays in the stash.
        }
        let mut mbuf = self
            .stash
            .take()
            .expect("a frame is committed only while there is room");
        mbuf.place(frame.start, len);
        self.batch.push(mbuf);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    #[inline]
    fn flush(&mut self) {
        if !self.batch.is_empty() {
            let sent = self.queues.transmit(&mut self.batch);
            self.counters.tx_refused += self.batch.len() as u64;
            debug_assert!(sent <= TX_BURST);
        }
        self.stash.fill(TX_BURST);
    }
}

/// The bytes of a packet that may lie in several pieces; none if they are too many.
#[cold]
fn whole<'a>(mbuf: &'a Mbuf, scratch: &'a mut [u8], counters: &mut Counters) -> Option<&'a [u8]> {
    if mbuf.is_whole() {
        return Some(mbuf.data());
    }
    let Some(len) = mbuf.gather(scratch) else {
        counters.rx_too_long += 1;
        return None;
    };
    counters.rx_gathered += 1;
    Some(&scratch[..len])
}

impl Queues {
    /// What waits: the first so many of `burst` are mbufs of ours then. (An `ArrayVec` of them
    /// would be copied on its way here, at 40 cycles an RPC.)
    #[inline]
    fn receive(&self, burst: &mut [MaybeUninit<Mbuf>; RX_BURST]) -> usize {
        // SAFETY: function and queue are of one running device, whose only user this thread is.
        // It writes at most as many pointers as there is room for, to mbufs that are ours alone
        // from then on, and an `Mbuf` is such a pointer.
        let count = unsafe { (self.rx)(self.rx_queue, burst.as_mut_ptr().cast(), RX_BURST as u16) };
        usize::from(count)
    }

    /// Hands over a batch and keeps of it, in order, what was not taken. Tells how many were.
    #[inline]
    fn transmit<const N: usize>(&self, batch: &mut ArrayVec<Mbuf, N>) -> usize {
        let count = batch.len();
        // SAFETY: function and queue are of one running device, whose only user this thread is.
        // An `Mbuf` is a pointer to an mbuf of ours, so these are `count` of them; `count` is a
        // burst and fits 16 bits. The driver owns the first `sent` ones afterwards, so they leave
        // the batch without being dropped, and the rest moves to its front.
        unsafe {
            let first = batch.as_mut_ptr();
            let sent = usize::from((self.tx)(self.tx_queue, first.cast(), count as u16)).min(count);
            if sent < count {
                std::ptr::copy(first.add(sent), first, count - sent);
            }
            batch.set_len(count - sent);
            sent
        }
    }
}

impl Attached {
    /// Of a device that runs; queue 0.
    fn queues(&self) -> Queues {
        let port = usize::from(self.id);
        // SAFETY: DPDK's own table, which has an entry per port; the entry of a running port does
        // not change, and its queue lists hold the one queue that was set up.
        unsafe {
            let entry = (&raw const sys::rte_eth_fp_ops)
                .cast::<sys::rte_eth_fp_ops>()
                .add(port);
            Queues {
                rx: (*entry)
                    .rx_pkt_burst
                    .expect("a running port has a receive function"),
                rx_queue: *(*entry).rxq.data,
                tx: (*entry)
                    .tx_pkt_burst
                    .expect("a running port has a transmit function"),
                tx_queue: *(*entry).txq.data,
            }
        }
    }

    /// Speed in Mb/s, 0 if unknown, and whether it is up; none if the device is gone.
    pub(super) fn link(&self) -> Option<(u32, bool)> {
        let (mut mbps, mut up) = (0, 0);
        // SAFETY: writes the two numbers, if it succeeds.
        let error = unsafe { sys::shim_link(self.id, &raw mut mbps, &raw mut up) };
        let mbps = if mbps == sys::SHIM_SPEED_UNKNOWN {
            0
        } else {
            mbps
        };
        (error == 0).then_some((mbps, up != 0))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the device is ours. Errors mean that it is gone already.
        unsafe {
            sys::rte_eth_dev_stop(self.id);
            match &self.vdev {
                Some(name) => sys::rte_eal_hotplug_remove(c"vdev".as_ptr(), name.as_ptr()),
                None => sys::rte_eth_dev_close(self.id),
            };
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("device", &self.device)
            .field("caps", &self.caps)
            .field("counters", &self.counters)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

// The longest IP header ends where a packet begins in its slot.
const _: () = assert!(NET_ROOM >= L2_MAX + 40);

#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use super::common::in_child;
    use super::*;
    use crate::dpdk::mbuf::tests::chain;
    use crate::dpdk::{Eal, EalParams, RingParams, ring_pair};

    /// Sends a packet of so many segments of 9,000 B, each filled with its number.
    fn send_chained(port: &mut Port, segments: usize) {
        port.stash.fill(TX_BURST);
        let mut mbufs: Vec<Mbuf> = (0..segments)
            .map(|number| {
                let mut mbuf = port.stash.take().expect("a burst is there");
                mbuf.room(9000).fill(number as u8);
                mbuf.place(0, 9000);
                mbuf
            })
            .collect();
        let mut first = mbufs.remove(0);
        chain(&mut first, mbufs);
        port.batch.push(first);
        port.flush();
    }

    /// 7 x 9,000 B fit 64 KiB, 8 x 9,000 B do not.
    #[test]
    fn a_packet_in_pieces_is_shown_whole_up_to_64_kib() {
        in_child(|| {
            let eal = Eal::start(&EalParams::default()).expect("the EAL starts");
            let params = RingParams {
                mtu: 9000,
                ring_len: 64,
            };
            let (mut a, mut b) = ring_pair(&eal, &params).expect("a pair opens");
            for segments in [2, 7, 8, 3] {
                send_chained(&mut a, segments);
            }
            let mut lengths = Vec::new();
            let shown = b.rx_burst(|frame, _| {
                assert!(
                    frame
                        .iter()
                        .enumerate()
                        .all(|(at, &byte)| byte == (at / 9000) as u8)
                );
                lengths.push(frame.len());
            });
            assert_eq!((shown, lengths), (3, vec![18_000, 63_000, 27_000]));
            assert_eq!((b.counters().rx_gathered, b.counters().rx_too_long), (3, 1));
            drop(a);
            let (count, free) = b.mbufs();
            assert_eq!(free, count, "every segment went back");
        });
    }
}
