//! `demi/homa.h`: native RPC by queue tokens.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::address::{read_addr, to_sockaddr_storage};
use super::boundary::{Out, queue, read, read_view, with_libos};
use super::types::{demi_qtoken_t, demi_sgarray_t};
use crate::error::Error;
use crate::libos::{MessageInfo, MessageKind};

/// Value of `kind` in demi_homa_msg_info: a request, which wants a reply.
pub const DEMI_HOMA_REQUEST: u32 = 1;
/// Value of `kind` in demi_homa_msg_info: a response.
pub const DEMI_HOMA_RESPONSE: u32 = 2;

/// What is known of a message that was popped.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct demi_homa_msg_info {
    /// In: sizeof(struct demi_homa_msg_info).
    pub size: u32,
    /// DEMI_HOMA_REQUEST or DEMI_HOMA_RESPONSE.
    pub kind: u32,
    /// The RPC's id: even at the client, odd at the server.
    pub id: u64,
    /// The cookie of the request that a response answers; 0 with a request.
    pub completion_cookie: u64,
    /// Bytes of the message.
    pub length: u32,
    /// 0, or the errno with which the RPC ended.
    pub error: i32,
    /// The other side's address, in network byte order.
    pub peer: sockaddr_storage,
}

/// Sends a request of 1 to 1,000,000 bytes to a server; an unbound socket gets a port of its own
/// first.
///
/// The token completes as DEMI_OPC_POP with the response, which the application frees, or as
/// DEMI_OPC_FAILED: ENOTCONN nobody listens on that port, EHOSTUNREACH no route to the host, or it
/// does not answer ARP, EMSGSIZE a router says that our packets are too long for its next link, so
/// that the MTU must be set to less, ETIMEDOUT the server fell silent, ECANCELED or the errno of
/// demi_homa_abort(). `flags` must be 0. The RPC's id is written to `id_out` unless that is NULL.
///
/// Ownership: the request's array stays the caller's, who frees it, at once if it likes; its bytes
/// must not change until the token completes. The response's array is the application's, which
/// frees it.
///
/// Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, flags, an address without a host or a
/// port, or an array as demi_push(), ENOTSUP another family or kind of socket, EMSGSIZE, EAGAIN too
/// many pending operations, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_homa_call(
    qt: *mut demi_qtoken_t,
    qd: c_int,
    req: *const demi_sgarray_t,
    dst: *const sockaddr,
    len: socklen_t,
    completion_cookie: u64,
    flags: u32,
    id_out: *mut u64,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt = unsafe { Out::new(qt) }?;
        // SAFETY: NULL or writable, says the header.
        let id_out = unsafe { Out::new(id_out) }.ok();
        // SAFETY: NULL or readable, says the header.
        let request = unsafe { read_view(req) }?;
        // SAFETY: NULL or `len` readable bytes, says the header.
        let to = unsafe { read_addr(dst, len) }?;
        if flags != 0 {
            return Err(Error::Invalid);
        }
        let (token, id) = libos.call(queue(qd)?, &request, to, completion_cookie)?;
        qt.write(token.0);
        if let Some(id_out) = id_out {
            id_out.write(id);
        }
        Ok(())
    })
}

/// Answers the request `id` of `peer`, both as demi_homa_info() tells them, by 1 to 1,000,000
/// bytes.
///
/// With a NULL `qt` there is no token; else it completes as DEMI_OPC_PUSH once the bytes are the
/// application's again. To answer an RPC that is gone succeeds and does nothing. After an error the
/// request is still in service: the client waits for another answer, such as a shorter one after
/// EMSGSIZE.
///
/// Ownership: the response's array stays the caller's, who frees it, at once if it likes, and it
/// may be the request's own. Without a token the bytes of a response of more than 4,096 bytes must
/// not change before.
///
/// Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, or array as demi_push(), ENOTSUP another
/// family or kind of socket, EMSGSIZE, EAGAIN too many pending operations, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_homa_reply(
    qt: *mut demi_qtoken_t,
    qd: c_int,
    id: u64,
    peer: *const sockaddr,
    len: socklen_t,
    rsp: *const demi_sgarray_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt = unsafe { Out::new(qt) }.ok();
        // SAFETY: NULL or `len` readable bytes, says the header.
        let peer = unsafe { read_addr(peer, len) }?;
        // SAFETY: NULL or readable, says the header.
        let response = unsafe { read_view(rsp) }?;
        let token = libos.reply(queue(qd)?, id, peer, &response, qt.is_some())?;
        if let (Some(qt), Some(token)) = (qt, token) {
            qt.write(token.0);
        }
        Ok(())
    })
}

/// Tells what is known of a popped message while its array lives. The caller sets `out->size`.
///
/// Returns 0, EINVAL a NULL pointer, too small a size, or an array that is null, freed, foreign, or
/// not popped, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_homa_info(
    sga: *const demi_sgarray_t,
    out: *mut demi_homa_msg_info,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or readable, says the header; the size is its first member.
        let size = unsafe { read(out.cast::<u32>()) }?;
        // SAFETY: NULL or writable, says the header, as many bytes as compared below.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: NULL or readable, says the header.
        let sga = unsafe { read(sga) }?;
        if (size as usize) < size_of::<demi_homa_msg_info>() || sga.sga_buf.is_null() {
            return Err(Error::Invalid);
        }
        out.write(to_msg_info(size, &libos.info(sga.sga_buf.addr() as u64)?));
        Ok(())
    })
}

fn to_msg_info(size: u32, info: &MessageInfo) -> demi_homa_msg_info {
    demi_homa_msg_info {
        size,
        kind: match info.kind {
            MessageKind::Request => DEMI_HOMA_REQUEST,
            MessageKind::Response => DEMI_HOMA_RESPONSE,
        },
        id: info.id,
        completion_cookie: info.cookie,
        length: info.len,
        error: info.error,
        peer: to_sockaddr_storage(info.peer),
    }
}

/// Gives up the RPC `id`, or with 0 all that this socket has called: their tokens complete as
/// DEMI_OPC_FAILED with `error`, or ECANCELED if that is 0.
///
/// Returns 0, EBADF, EINVAL a negative error or no such RPC, ENOTSUP another kind of socket, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn demi_homa_abort(qd: c_int, id: u64, error: c_int) -> c_int {
    with_libos(|libos| {
        if error < 0 {
            return Err(Error::Invalid);
        }
        libos.abort(queue(qd)?, id, error)
    })
}

const _: () = {
    assert!(size_of::<demi_homa_msg_info>() == 160 && align_of::<demi_homa_msg_info>() == 8);
    assert!(offset_of!(demi_homa_msg_info, kind) == 4);
    assert!(offset_of!(demi_homa_msg_info, id) == 8);
    assert!(offset_of!(demi_homa_msg_info, completion_cookie) == 16);
    assert!(offset_of!(demi_homa_msg_info, length) == 24);
    assert!(offset_of!(demi_homa_msg_info, error) == 28);
    assert!(offset_of!(demi_homa_msg_info, peer) == 32);
};
