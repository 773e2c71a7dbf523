//! One packet buffer of DPDK's.

use std::ptr::NonNull;

use dpdk_sys as sys;

use crate::device::Checksums;

/// Bytes DPDK keeps free at the start of each buffer, which some drivers use for headers of theirs.
pub(super) const HEADROOM: usize = sys::SHIM_HEADROOM as usize;

/// A packet buffer, ours alone until handed to a driver; goes back to its pool when dropped.
///
/// It is just the pointer: drivers and pools read and write arrays of them.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Mbuf(NonNull<sys::rte_mbuf>);

impl Mbuf {
    /// The packet's bytes, those of its first segment.
    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        segment_data(self.0.as_ptr(), self)
    }

    /// Whether the packet lies in one piece.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.read::<u16>(sys::SHIM_MBUF_NB_SEGS) == 1
    }

    /// Copies all segments to `scratch` and tells how many bytes they have; none if more than fit.
    pub(super) fn gather(&self, scratch: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        let mut segment = self.0.as_ptr();
        while !segment.is_null() {
            let data = segment_data(segment, self);
            scratch
                .get_mut(len..len + data.len())?
                .copy_from_slice(data);
            len += data.len();
            // SAFETY: a live segment, and the offset of a pointer in it.
            segment = unsafe { read(segment, sys::SHIM_MBUF_NEXT) };
        }
        Some(len)
    }

    /// What the driver found out about the checksums.
    #[inline]
    pub(super) fn checksums(&self) -> Checksums {
        checksums(self.read(sys::SHIM_MBUF_OL_FLAGS))
    }

    /// Whether it can be used again as it is: from this pool, one segment, nobody else's, with
    /// its own buffer.
    #[inline]
    pub(super) fn is_plain_of(&self, pool: *mut sys::rte_mempool) -> bool {
        let flags: u64 = self.read(sys::SHIM_MBUF_OL_FLAGS);
        // Two counts of which each must be one, looked at together.
        let counts = self.read::<[u16; 2]>(sys::SHIM_MBUF_REFCNT);
        const { assert!(sys::SHIM_MBUF_NB_SEGS == sys::SHIM_MBUF_REFCNT + 2) };
        self.read::<*mut sys::rte_mempool>(sys::SHIM_MBUF_POOL) == pool
            && counts == [1, 1]
            && flags & (sys::SHIM_MBUF_INDIRECT | sys::SHIM_MBUF_EXTERNAL) == 0
    }

    /// The first `len` bytes after the headroom. `len` must not pass the pool's data room.
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        debug_assert!(HEADROOM + len <= usize::from(self.read::<u16>(sys::SHIM_MBUF_BUF_LEN)));
        let buffer: *mut u8 = self.read(sys::SHIM_MBUF_BUF_ADDR);
        // SAFETY: the buffer is the pool's data room, which holds this much after the headroom,
        // was zeroed when mapped, and is ours alone as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(buffer.add(HEADROOM), len) }
    }

    /// Makes `len` bytes, from `start` in [`Self::room`], the packet.
    #[inline]
    pub(super) fn place(&mut self, start: usize, len: usize) {
        // Both lie within a buffer, whose length DPDK keeps in 16 bits.
        let (offset, len) = ((HEADROOM + start) as u16, len as u16);
        self.write(sys::SHIM_MBUF_DATA_OFF, offset);
        self.write(sys::SHIM_MBUF_DATA_LEN, len);
        self.write(sys::SHIM_MBUF_PKT_LEN, u32::from(len));
        self.write(sys::SHIM_MBUF_OL_FLAGS, 0u64);
    }

    #[inline]
    fn read<T: Copy>(&self, offset: u32) -> T {
        // SAFETY: a live mbuf; `offset` and `T` are those of one of its fields.
        unsafe { read(self.0.as_ptr(), offset) }
    }

    #[inline]
    fn write<T: Copy>(&mut self, offset: u32, value: T) {
        // SAFETY: as for `read`, and the mbuf is ours alone.
        unsafe {
            self.0
                .as_ptr()
                .cast::<u8>()
                .add(offset as usize)
                .cast::<T>()
                .write(value)
        }
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // SAFETY: live and ours; nobody uses it afterwards.
        unsafe { sys::shim_pktmbuf_free(self.0.as_ptr()) }
    }
}

/// # Safety
/// `mbuf` is live, and has a field of type `T` at `offset`.
#[inline]
unsafe fn read<T: Copy>(mbuf: *mut sys::rte_mbuf, offset: u32) -> T {
    // SAFETY: within the mbuf, aligned and set, as the caller vouches.
    unsafe { mbuf.cast::<u8>().add(offset as usize).cast::<T>().read() }
}

/// The bytes of one segment of `packet`.
#[inline]
fn segment_data(segment: *mut sys::rte_mbuf, _packet: &Mbuf) -> &[u8] {
    // SAFETY: a segment of a live packet, whose driver set these fields to lie in its buffer;
    // nobody writes to it while the packet is borrowed.
    unsafe {
        let buffer: *const u8 = read(segment, sys::SHIM_MBUF_BUF_ADDR);
        let offset: u16 = read(segment, sys::SHIM_MBUF_DATA_OFF);
        let len: u16 = read(segment, sys::SHIM_MBUF_DATA_LEN);
        std::slice::from_raw_parts(buffer.add(usize::from(offset)), usize::from(len))
    }
}

/// Both checksums, of IP and of what it carries, as one finding.
///
/// "None" means that the bytes were verified though the checksum field is not filled in, as
/// virtual devices say between guests of one host: good, and nobody must compute it again.
/// One unverified half leaves the whole unknown, one bad half makes it bad.
#[inline]
fn checksums(flags: u64) -> Checksums {
    let (ip, l4) = (flags & sys::SHIM_RX_IP_MASK, flags & sys::SHIM_RX_L4_MASK);
    let good = |half, good, none| half == good || half == none;
    if ip == sys::SHIM_RX_IP_BAD || l4 == sys::SHIM_RX_L4_BAD {
        Checksums::Bad
    } else if good(ip, sys::SHIM_RX_IP_GOOD, sys::SHIM_RX_IP_NONE)
        && good(l4, sys::SHIM_RX_L4_GOOD, sys::SHIM_RX_L4_NONE)
    {
        Checksums::Good
    } else {
        Checksums::Unknown
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{mem, ptr};

    use super::*;

    /// Makes `rest` further segments of a packet, as drivers do that deliver merged frames.
    pub(in crate::dpdk) fn chain(first: &mut Mbuf, rest: Vec<Mbuf>) {
        let segments = 1 + rest.len() as u16;
        let mut link = ptr::null_mut();
        for mut mbuf in rest.into_iter().rev() {
            mbuf.write::<*mut sys::rte_mbuf>(sys::SHIM_MBUF_NEXT, link);
            link = mbuf.0.as_ptr();
            mem::forget(mbuf); // The packet's from now on.
        }
        first.write(sys::SHIM_MBUF_NEXT, link);
        first.write(sys::SHIM_MBUF_NB_SEGS, segments);
    }

    /// Four states of each half: unknown, bad, good, none.
    #[test]
    fn two_halves_are_good_only_if_both_were_verified() {
        let ip = [
            0,
            sys::SHIM_RX_IP_BAD,
            sys::SHIM_RX_IP_GOOD,
            sys::SHIM_RX_IP_NONE,
        ];
        let l4 = [
            0,
            sys::SHIM_RX_L4_BAD,
            sys::SHIM_RX_L4_GOOD,
            sys::SHIM_RX_L4_NONE,
        ];
        for (i, ip) in ip.into_iter().enumerate() {
            for (j, l4) in l4.into_iter().enumerate() {
                let expected = match (i, j) {
                    (1, _) | (_, 1) => Checksums::Bad,
                    (0, _) | (_, 0) => Checksums::Unknown,
                    (_, _) => Checksums::Good,
                };
                assert_eq!(checksums(ip | l4), expected, "ip state {i}, l4 state {j}");
            }
        }
    }
}
