//! `demi/wait.h`: waiting for operations, which is also what makes the library work.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::slice;

use libc::timespec;

use super::boundary::{Out, read_timeout, to_qresult, wake_all, with_libos};
use super::types::{demi_qresult_t, demi_qtoken_t};
use crate::error::Error;
use crate::libos::QToken;

/// Waits for one operation and uses up its token.
///
/// A timeout of NULL is infinite; of zero, a look. An operation that failed is a success here:
/// 0, with the opcode DEMI_OPC_FAILED and the errno in `qr_ret`.
///
/// Ownership: an array in the result is the application's, which frees it by demi_sgafree().
///
/// Returns 0, ETIMEDOUT the token stays valid, EINTR by demi_wake(), likewise, EINVAL a NULL
/// pointer, no such token, or a malformed timeout, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_wait(
    qr_out: *mut demi_qresult_t,
    qt: demi_qtoken_t,
    timeout: *const timespec,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qr_out = unsafe { Out::new(qr_out) }?;
        // SAFETY: NULL or readable, says the header.
        let timeout = unsafe { read_timeout(timeout) }?;
        qr_out.write(to_qresult(&libos.wait(QToken(qt), timeout)?));
        Ok(())
    })
}

/// Waits for any of several operations, uses up the token of the one that completed first, and
/// writes its place in the array. Without tokens it waits out the timeout.
///
/// Ownership: as demi_wait(). The tokens are read during the call only; the library remembers where
/// the array was, so it is quickest to pass the same one again with that one token replaced.
///
/// Returns 0, ETIMEDOUT and EINTR as demi_wait(), EINVAL a NULL pointer, a negative number, a
/// malformed timeout, or, if none is ready, an invalid token among them (4 are looked at in each
/// turn of the loop), or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_wait_any(
    qr_out: *mut demi_qresult_t,
    ready_offset: *mut c_int,
    qts: *const demi_qtoken_t,
    num_qts: c_int,
    timeout: *const timespec,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qr_out = unsafe { Out::new(qr_out) }?;
        // SAFETY: NULL or writable, says the header.
        let ready_offset = unsafe { Out::new(ready_offset) }?;
        // SAFETY: NULL or `num_qts` tokens that stay as they are during the call.
        let qts = unsafe { read_tokens(qts, num_qts) }?;
        // SAFETY: NULL or readable, says the header.
        let timeout = unsafe { read_timeout(timeout) }?;
        let (offset, result) = libos.wait_any(qts, timeout)?;
        ready_offset.write(c_int::try_from(offset).expect("less than `num_qts`"));
        qr_out.write(to_qresult(&result));
        Ok(())
    })
}

/// # Safety
/// `qts` is NULL or points to `count` tokens, which nobody writes to during `'a`.
unsafe fn read_tokens<'a>(qts: *const demi_qtoken_t, count: c_int) -> Result<&'a [QToken], Error> {
    let count = usize::try_from(count).map_err(|_| Error::Invalid)?;
    if count == 0 {
        return Ok(&[]);
    }
    let first = NonNull::new(qts.cast_mut())
        .ok_or(Error::Invalid)?
        .cast::<QToken>();
    if !first.is_aligned() {
        return Err(Error::Invalid);
    }
    // SAFETY: not NULL, aligned, `count` tokens, and `QToken` is nothing but the C token.
    Ok(unsafe { slice::from_raw_parts(first.as_ptr(), count) })
}

/// Waits until the array is full or the time is up, whatever the operations are; writes results,
/// oldest completion first, and how many.
///
/// Ownership: as demi_wait(), for each of the results.
///
/// Returns 0 the array is full, ETIMEDOUT or EINTR (demi_wake()) with as many results as
/// `num_qrs_out` says, whose tokens are used up, EINVAL a NULL pointer, a number below 1, or a
/// malformed timeout, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_wait_next_n(
    qr_out: *mut demi_qresult_t,
    num_qrs: c_int,
    num_qrs_out: *mut c_int,
    timeout: *const timespec,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let count_out = unsafe { Out::new(num_qrs_out) }?;
        if qr_out.is_null() || num_qrs < 1 {
            return Err(Error::Invalid);
        }
        // SAFETY: NULL or readable, says the header.
        let timeout = unsafe { read_timeout(timeout) }?;
        let mut count: c_int = 0;
        let waited = libos.wait_next_n(
            |result| {
                debug_assert!(count < num_qrs, "the runtime went on after `false`");
                // SAFETY: `num_qrs` results may be written, says the header; `count` is less.
                unsafe {
                    qr_out
                        .add(count as usize)
                        .write_unaligned(to_qresult(&result))
                };
                count += 1;
                count < num_qrs
            },
            timeout,
        );
        if let Ok(()) | Err(Error::WaitTimedOut | Error::Interrupted) = waited {
            count_out.write(count);
        }
        waited
    })
}

/// Ends the wait that each runtime of the process is in, or else its next one, with EINTR. The way
/// to end a server: call it from a signal handler or from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn demi_wake() {
    wake_all();
}
