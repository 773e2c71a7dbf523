//! The memory that incoming messages are written to, and that applications read them from.

use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;

use crate::error::Error;

/// One stretch of receive memory.
///
/// The application holds raw pointers to its messages while the transport writes to other parts.
/// No reference to bytes outlives a call of ours, and all access is within bounds.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    owned: bool,
}

impl Region {
    /// Takes `len` bytes of zeroed, page-aligned memory from the system. Pages come into being
    /// when they are first written.
    pub fn owned(len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory that exists.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::NoMemory);
        }
        let base = NonNull::new(base.cast()).ok_or(Error::NoMemory)?;
        Ok(Self {
            base,
            len,
            owned: true,
        })
    }

    /// Uses `len` bytes at `base`, which stay the lender's.
    ///
    /// # Safety
    /// The bytes must be readable and writable for as long as the region lives, and nobody may
    /// hold a Rust reference to them while the region is used.
    pub unsafe fn lent(base: NonNull<u8>, len: usize) -> Self {
        Self {
            base,
            len,
            owned: false,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where byte `offset` lies.
    ///
    /// # Panics
    /// If `offset` is past the end: offsets come from our own pool, never from outside.
    #[inline]
    pub fn address(&self, offset: usize) -> NonNull<u8> {
        self.check(offset, 0);
        // SAFETY: within the region or one past its end, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If they do not fit, see [`Self::address`].
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the target lies within the region, as checked, and all references to its bytes
        // borrow it, so `bytes` is none.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len());
        }
    }

    /// The `len` bytes at `offset`. The application, to which we gave their address, does not write
    /// to them meanwhile: a program that breaks that contract races with itself only.
    ///
    /// # Panics
    /// If there are not that many, see [`Self::address`].
    #[inline]
    pub fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: they lie within the region, as checked, which was zeroed when mapped, or is its
        // lender's; we write to it only where it is borrowed mutably.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Copies the bytes at `offset` to `out`.
    ///
    /// # Panics
    /// If there are not that many, see [`Self::address`].
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        // SAFETY: as in `write`, the other way round.
        unsafe {
            ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), out.as_mut_ptr(), out.len());
        }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        if offset > self.len || len > self.len - offset {
            self.refuse(offset, len);
        }
    }

    #[cold]
    fn refuse(&self, offset: usize, len: usize) -> ! {
        panic!("{len} bytes at {offset} in a region of {} bytes", self.len);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the mapping is ours, of this length, and nobody else unmaps it.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes at {:p})", self.len, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut region = Region::owned(100).unwrap();
        region.write(97, b"abc");
        let mut out = [0; 4];
        region.read(96, &mut out);
        assert_eq!(&out, b"\0abc");
    }

    #[test]
    #[should_panic(expected = "2 bytes at 99")]
    fn nothing_is_written_past_the_end() {
        Region::owned(100).unwrap().write(99, b"ab");
    }

    #[test]
    fn lent_memory_is_left_to_its_owner() {
        let mut bytes = vec![0u8; 8];
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: `bytes` outlives the region and is not touched while it lives.
        let mut region = unsafe { Region::lent(base, 8) };
        region.write(6, b"zz");
        drop(region);
        assert_eq!(bytes, b"\0\0\0\0\0\0zz");
    }

    #[test]
    fn an_empty_region_is_refused() {
        assert_eq!(Region::owned(0).unwrap_err(), Error::Invalid);
    }
}
