//! Where packet buffers come from, and how many there must be.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use dpdk_sys as sys;

use super::StartError;
use super::eal::{Eal, last_error};
use super::mbuf::{HEADROOM, Mbuf};
use crate::device::{RX_BURST, TX_BURST};
use crate::error::Error;

/// Free mbufs a port keeps at hand: a receive burst just shown, and a transmit burst to come.
pub(super) const STASH_MAX: usize = RX_BURST + TX_BURST;

/// Mbufs in a thread's cache of the pool. The cache keeps a few mbufs hot; without it a pool goes
/// round through all of its memory, and each packet is cold.
const CACHE: u32 = 128;

/// The cache gives back once it holds one and a half times its size.
/// Source: DPDK rte_mempool.c `CACHE_FLUSHTHRESH_MULTIPLIER`.
const CACHE_HELD_MAX: u32 = CACHE + CACHE / 2;

const SOCKET_ANY: c_int = -1;

/// How many mbufs may be away from a pool at once, so that no place can starve another:
///
/// - those the driver keeps ready for frames to come, `rx_ring`;
/// - those the driver holds until they are sent, `tx_ring`;
/// - a receive burst being shown;
/// - a transmit burst that the NIC did not take yet;
/// - the port's stash;
/// - the thread's cache.
pub(super) const fn count_for(ports: usize, rx_ring: usize, tx_ring: usize) -> u32 {
    let each = rx_ring + tx_ring + RX_BURST + TX_BURST + STASH_MAX;
    (ports * each) as u32 + CACHE_HELD_MAX
}

/// A pool of mbufs of one size.
#[derive(Debug)]
pub(super) struct Mempool {
    pool: NonNull<sys::rte_mempool>,
    count: u32,
}

impl Mempool {
    /// `room` is what each buffer holds after the headroom, bytes.
    pub(super) fn create(_eal: &Eal, count: u32, room: usize) -> Result<Self, StartError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("demihoma-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("holds no NUL");
        let Ok(data_room) = u16::try_from(HEADROOM + room) else {
            return Err(StartError::new(
                Error::Invalid,
                format!("frames of {room} B are too long"),
            ));
        };
        // SAFETY: the EAL runs, as the token says; `name` is a string, and is copied.
        let pool = unsafe {
            sys::rte_pktmbuf_pool_create(name.as_ptr(), count, CACHE, 0, data_room, SOCKET_ANY)
        };
        let Some(pool) = NonNull::new(pool) else {
            let mib = (count as usize * (usize::from(data_room) + 192)).div_ceil(1 << 20);
            return Err(StartError::new(
                Error::NoMemory,
                format!(
                    "no room for {count} packet buffers, about {mib} MiB ({}): give DPDK more \
                     memory, or the port shorter rings",
                    last_error()
                ),
            ));
        };
        Ok(Self { pool, count })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.pool.as_ptr()
    }

    /// All there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How many are in the pool, the threads' caches included. Slow: walks all caches.
    pub(super) fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as `self`.
        unsafe { sys::rte_mempool_avail_count(self.pool.as_ptr()) }
    }
}

impl Drop for Mempool {
    fn drop(&mut self) {
        // SAFETY: the last owner; ports give back their mbufs before they let go of their pool.
        unsafe { sys::rte_mempool_free(self.pool.as_ptr()) }
    }
}

/// A port's free mbufs, the last one back first out, so that few are in use and those stay hot.
#[derive(Debug)]
pub(super) struct Stash {
    // Each is plain and of this pool: see `Mbuf::is_plain_of`.
    free: ArrayVec<Mbuf, STASH_MAX>,
    pool: Rc<Mempool>,
}

impl Stash {
    /// Empty as yet.
    pub(super) fn new(pool: Rc<Mempool>) -> Self {
        Self {
            free: ArrayVec::new(),
            pool,
        }
    }

    pub(super) fn pool(&self) -> &Mempool {
        &self.pool
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.free.len()
    }

    /// The one that [`Self::take`] would give.
    #[inline]
    pub(super) fn last(&mut self) -> Option<&mut Mbuf> {
        self.free.last_mut()
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<Mbuf> {
        self.free.pop()
    }

    /// Whether an mbuf is like those of the pool, so that [`Self::keep`] may have it.
    #[inline]
    pub(super) fn can_keep(&self, mbuf: &Mbuf) -> bool {
        mbuf.is_plain_of(self.pool.as_ptr())
    }

    /// Keeps an mbuf for later use. Others than those it can keep are to be dropped, which frees
    /// them segment by segment.
    #[inline]
    pub(super) fn keep(&mut self, mbuf: Mbuf) {
        debug_assert!(self.can_keep(&mbuf));
        if self.free.is_full() {
            self.shrink(STASH_MAX / 2);
        }
        self.free.push(mbuf);
    }

    /// Sees to it that `wanted` are here, if the pool has them.
    #[inline]
    pub(super) fn fill(&mut self, wanted: usize) {
        let have = self.free.len();
        if have >= wanted {
            return;
        }
        assert!(
            wanted <= STASH_MAX,
            "a stash holds {STASH_MAX} mbufs, not {wanted}"
        );
        let count = (wanted - have) as u32; // At most STASH_MAX.
        // SAFETY: there is room for `count` more pointers behind the `have` ones, as asserted, and
        // the pool lives. An `Mbuf` is a pointer; those of the pool are live, plain, and now ours.
        unsafe {
            let room = self.free.as_mut_ptr().add(have).cast();
            if sys::shim_mempool_get_bulk(self.pool.as_ptr(), room, count) == 0 {
                self.free.set_len(wanted);
            }
        }
    }

    /// Gives back to the pool all but `kept`, the ones that lay here longest.
    #[cold]
    fn shrink(&mut self, kept: usize) {
        let Some(count) = self.free.len().checked_sub(kept) else {
            return;
        };
        // SAFETY: `count` mbufs begin at the stash's start, each plain and of this pool. The rest
        // moves down over them before anyone can see them again.
        unsafe {
            let first = self.free.as_mut_ptr();
            sys::shim_mempool_put_bulk(self.pool.as_ptr(), first.cast(), count as u32);
            std::ptr::copy(first.add(count), first, kept);
            self.free.set_len(kept);
        }
    }
}

impl Drop for Stash {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 512 + 512 in the rings, 32 shown, 16 refused, 48 in the stash, 192 in the cache.
    #[test]
    fn a_pool_covers_every_place_where_an_mbuf_can_be() {
        assert_eq!(count_for(1, 512, 512), 1312);
    }
}
