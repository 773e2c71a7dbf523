//! `demi/sga.h`: buffers.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for.

use std::ffi::c_int;

use super::boundary::{read, to_sgarray, try_with_libos, with_libos};
use super::types::demi_sgarray_t;
use crate::error::Error;

/// Gives a buffer of 1 to 1,000,000 bytes to write a message into: one segment of that size.
///
/// A null array (no segments, NULL pointers) if the size is another, no memory is left, or this
/// thread has not called demi_init().
///
/// Ownership: the array is the application's, which frees it by demi_sgafree(). Its bytes are
/// whatever they were.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn demi_sgaalloc(size: usize) -> demi_sgarray_t {
    try_with_libos(|libos| libos.sgaalloc(size))
        .map_or(demi_sgarray_t::NULL, |sga| to_sgarray(&sga))
}

/// Gives back a buffer of demi_sgaalloc() or of a pop; its bytes must not be touched afterwards.
/// Pushes that still need it keep it alive.
///
/// Ownership: the array, and all copies of it, name nothing any more.
///
/// Returns 0, EINVAL a NULL pointer, or an array that is null, foreign, or freed before, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_sgafree(sga: *mut demi_sgarray_t) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or readable, says the header.
        let sga = unsafe { read(sga) }?;
        if sga.sga_buf.is_null() {
            return Err(Error::Invalid);
        }
        libos.sgafree(sga.sga_buf.addr() as u64)
    })
}
