//! `demi/homa.h`: the calls of the Linux module.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for, but
//! for that of `struct pollfd`.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use libc::{iovec, nfds_t, pollfd, size_t, ssize_t};

use super::address::{read_union, write_union};
use super::boundary::{Out, queue, read, shut_down, system_call, to_c_queue, until_uninterrupted};
use super::homa_types::{
    HOMA_MAX_BPAGES, HOMA_RECVMSG_NONBLOCKING, HOMA_RECVMSG_REQUEST, HOMA_RECVMSG_RESPONSE,
    HOMA_RECVMSG_VALID_FLAGS, homa_abort_args, homa_recvmsg_args, homa_sendmsg_args,
    sockaddr_in_union,
};
use crate::error::Error;
use crate::libos::{LibOS, Received, Wanted};
use crate::time::Duration;

/// Most parts that a message to send may be put together from. Source: Linux's `UIO_MAXIOV`.
const IOV_MAX: c_int = 1024;

/// Makes a socket: AF_INET or AF_INET6, SOCK_DGRAM, IPPROTO_HOMA. With SOCK_NONBLOCK none of its
/// calls waits. It has an automatic port, which demi_getsockname() tells, and needs a region to
/// receive into, see homa_setsockopt().
///
/// The descriptor is 500 or more and no descriptor of the kernel: close it by homa_close() only.
///
/// Returns it, or -1: EAFNOSUPPORT, ENOTSUP another type, EPROTONOSUPPORT, EAGAIN too many sockets,
/// EADDRNOTAVAIL no automatic port is left, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn homa_socket(domain: c_int, r#type: c_int, protocol: c_int) -> c_int {
    system_call(|libos| Ok(to_c_queue(libos.homa_socket(domain, r#type, protocol)?)))
}

/// Gives a socket a port of 1 to 32,767 on one of our addresses, or on all of them, and lets it
/// take requests. Port 0 changes nothing. It may be bound again, and keeps what it has on errors.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, or a port that is
/// automatic, EADDRINUSE, EADDRNOTAVAIL not an address of ours, EAFNOSUPPORT, ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_bind(sockfd: c_int, addr: *const sockaddr_in_union) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or readable, says the header.
        let (addr, family) = unsafe { read_union(addr) }?;
        libos.homa_bind(queue(sockfd)?, addr, family)?;
        Ok(0)
    })
}

/// Sends a request of 1 to 1,000,000 bytes, which are the application's again when this returns.
/// Its id is written to `id` unless that is NULL; the cookie comes back with the response.
///
/// While memory to send from is short (`memory.send_bytes`) it waits, unless the socket does not.
///
/// Returns 0, or -1 and nothing was sent: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, a
/// wrong length, or no host or port to send to, EAFNOSUPPORT not the socket's family, EAGAIN no
/// memory in time, or too many calls not received, EINTR by demi_wake(), ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_send(
    sockfd: c_int,
    message_buf: *const c_void,
    length: size_t,
    dest_addr: *const sockaddr_in_union,
    id: *mut u64,
    completion_cookie: u64,
) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or `length` readable bytes, says the header.
        let message = unsafe { Message::of_bytes(message_buf, length) }?;
        // SAFETY: NULL, or usable, says the header.
        unsafe { send(libos, sockfd, &message, dest_addr, id, completion_cookie) }
    })
}

/// As homa_send(), a message put together from `iovcnt` parts, 1,024 at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_sendv(
    sockfd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    dest_addr: *const sockaddr_in_union,
    id: *mut u64,
    completion_cookie: u64,
) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or `iovcnt` parts that may be read, says the header.
        let message = unsafe { Message::of_parts(iov, iovcnt) }?;
        // SAFETY: NULL, or usable, says the header.
        unsafe { send(libos, sockfd, &message, dest_addr, id, completion_cookie) }
    })
}

/// Sends what `args` says: with id 0 a request, as homa_sendv(), whose id is written there; else
/// the reply to the request with that id, as homa_replyv(), whose cookie must be 0.
///
/// Returns 0, or -1 with errno as those do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_sendmsg(
    sockfd: c_int,
    args: *mut homa_sendmsg_args,
    iov: *const iovec,
    iovcnt: c_int,
    dest_addr: *const sockaddr_in_union,
) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or readable, says the header.
        let given = unsafe { read(args) }?;
        // SAFETY: NULL or `iovcnt` parts that may be read, says the header.
        let message = unsafe { Message::of_parts(iov, iovcnt) }?;
        if given.id == 0 {
            // SAFETY: not NULL, as just read, and only an address is taken.
            let id = unsafe { &raw mut (*args).id };
            let cookie = given.completion_cookie;
            // SAFETY: NULL, or usable, says the header.
            return unsafe { send(libos, sockfd, &message, dest_addr, id, cookie) };
        }
        if given.completion_cookie != 0 {
            return Err(Error::Invalid);
        }
        // SAFETY: NULL or readable, says the header.
        unsafe { answer(libos, sockfd, &message, dest_addr, given.id) }?;
        Ok(0)
    })
}

/// # Safety
/// Each pointer is NULL or usable; the message's bytes may be read.
unsafe fn send(
    libos: &mut LibOS,
    sockfd: c_int,
    message: &Message<'_>,
    dest_addr: *const sockaddr_in_union,
    id_out: *mut u64,
    cookie: u64,
) -> Result<c_int, Error> {
    // SAFETY: passed on.
    let to = unsafe { read_union(dest_addr) }?;
    // SAFETY: passed on.
    let id_out = unsafe { Out::new(id_out) }.ok();
    let fill = |bytes: &mut [u8]| message.copy_to(bytes);
    let id = libos.homa_send(queue(sockfd)?, to, message.len, fill, cookie)?;
    if let Some(id_out) = id_out {
        id_out.write(id);
    }
    Ok(0)
}

/// Answers the request that came with `id` from `dest_addr` by 1 to 1,000,000 bytes, which are
/// the application's again when this returns. To answer one that is gone succeeds and does nothing.
///
/// Returns `length`, or -1 and the request stays: EBADF, ENOTSUP no Homa socket, EINVAL a NULL
/// pointer, a wrong length, an even id, or a request that was not received or was answered before,
/// EAFNOSUPPORT, EAGAIN no memory in time, EINTR by demi_wake(), ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    sockfd: c_int,
    message_buf: *const c_void,
    length: size_t,
    dest_addr: *const sockaddr_in_union,
    id: u64,
) -> ssize_t {
    system_call(|libos| {
        // SAFETY: NULL or `length` readable bytes, says the header.
        let message = unsafe { Message::of_bytes(message_buf, length) }?;
        // SAFETY: NULL or readable, says the header.
        unsafe { answer(libos, sockfd, &message, dest_addr, id) }
    })
}

/// As homa_reply(), a message put together from `iovcnt` parts, 1,024 at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_replyv(
    sockfd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    dest_addr: *const sockaddr_in_union,
    id: u64,
) -> ssize_t {
    system_call(|libos| {
        // SAFETY: NULL or `iovcnt` parts that may be read, says the header.
        let message = unsafe { Message::of_parts(iov, iovcnt) }?;
        // SAFETY: NULL or readable, says the header.
        unsafe { answer(libos, sockfd, &message, dest_addr, id) }
    })
}

/// # Safety
/// `dest_addr` is NULL or readable, and so are the message's bytes.
unsafe fn answer(
    libos: &mut LibOS,
    sockfd: c_int,
    message: &Message<'_>,
    dest_addr: *const sockaddr_in_union,
    id: u64,
) -> Result<ssize_t, Error> {
    // SAFETY: passed on.
    let (client, _) = unsafe { read_union(dest_addr) }?;
    let fill = |bytes: &mut [u8]| message.copy_to(bytes);
    libos.homa_reply(queue(sockfd)?, client, id, message.len, fill)?;
    Ok(message.len as ssize_t) // A message's length, as just checked.
}

/// What an application wants to send: bytes that are its own, in one part or several.
struct Message<'a> {
    parts: Parts<'a>,
    len: usize,
}

enum Parts<'a> {
    One(*const u8),
    Several(&'a [iovec]),
}

impl Message<'_> {
    /// # Safety
    /// `bytes` is NULL or points to `len` bytes that may be read while the value made here lives.
    unsafe fn of_bytes(bytes: *const c_void, len: usize) -> Result<Self, Error> {
        match bytes.is_null() {
            true => Err(Error::Invalid),
            false => Ok(Self {
                parts: Parts::One(bytes.cast()),
                len,
            }),
        }
    }

    /// # Safety
    /// `iov` is NULL or points to `count` parts, each with bytes that may be read, while the value
    /// made here lives.
    unsafe fn of_parts(iov: *const iovec, count: c_int) -> Result<Self, Error> {
        if iov.is_null() || !iov.is_aligned() || !(1..=IOV_MAX).contains(&count) {
            return Err(Error::Invalid);
        }
        // SAFETY: not NULL, aligned, and `count` parts may be read, says our caller.
        let parts = unsafe { slice::from_raw_parts(iov, count as usize) };
        let mut len: usize = 0;
        for part in parts {
            if part.iov_base.is_null() && part.iov_len > 0 {
                return Err(Error::Invalid);
            }
            len = len.checked_add(part.iov_len).ok_or(Error::Invalid)?;
        }
        Ok(Self {
            parts: Parts::Several(parts),
            len,
        })
    }

    /// Copies the message to `out`, which has its length.
    fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "a buffer of another length");
        match self.parts {
            // SAFETY: that many bytes may be read, says the caller of `of_bytes`, and `out` is a
            // buffer of ours, which an application does not know.
            Parts::One(bytes) => unsafe {
                ptr::copy_nonoverlapping(bytes, out.as_mut_ptr(), self.len);
            },
            Parts::Several(parts) => {
                let mut rest = out;
                for part in parts.iter().filter(|part| part.iov_len > 0) {
                    let (here, behind) = rest.split_at_mut(part.iov_len);
                    // SAFETY: not NULL, and as many bytes may be read, says the caller of
                    // `of_parts`; `out` as above.
                    unsafe {
                        let bytes = part.iov_base.cast::<u8>();
                        ptr::copy_nonoverlapping(bytes, here.as_mut_ptr(), part.iov_len);
                    }
                    rest = behind;
                }
            }
        }
    }
}

/// Receives a message: of the call with `args->id`, or, by the flags, any request or any response.
///
/// First the pages that `args` names are taken back, also if the rest fails; then it waits, unless
/// HOMA_RECVMSG_NONBLOCKING or the socket says otherwise. The message's id, cookie and pages are
/// written to `args`, its sender to `src_addr` unless that is NULL; `*addrlen` says how many bytes
/// fit there, and then how many the address has; if it is NULL, a whole sockaddr_in_union fits.
///
/// The pages belong to the application until it names each of their offsets in a later call. They
/// need not be adjacent. Pages that are not given back stop the senders once no others are left.
///
/// Returns the message's length, or -1. If a call of ours failed, its errno, with its id, cookie
/// and peer: ENOTCONN, EHOSTUNREACH, EPROTONOSUPPORT, ETIMEDOUT, ENOMEM it waited too long for
/// pages, or that of homa_abort(). Else no message came, and id and cookie are 0: EINVAL no such
/// call, ENOMEM there is no region, EAGAIN nothing came in time, EINTR by demi_wake(). Or else
/// nothing was taken back, and `args` is as it was: EBADF, ENOTSUP no Homa socket, EINVAL a NULL
/// pointer, unknown flags, `_pad`, neither id nor flags, or an offset that the application does
/// not have; ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_recvmsg(
    sockfd: c_int,
    args: *mut homa_recvmsg_args,
    src_addr: *mut sockaddr_in_union,
    addrlen: *mut size_t,
) -> ssize_t {
    system_call(|libos| {
        // SAFETY: NULL or readable, says the header.
        let mut given = unsafe { read(args) }?;
        // SAFETY: NULL or writable, says the header.
        let out = unsafe { Out::new(args) }?;
        let count = given.num_bpages as usize;
        let kinds = HOMA_RECVMSG_REQUEST | HOMA_RECVMSG_RESPONSE;
        if given.flags & !HOMA_RECVMSG_VALID_FLAGS != 0
            || given._pad != [0; 2]
            || count > HOMA_MAX_BPAGES
            || (given.id == 0 && given.flags & kinds == 0)
        {
            return Err(Error::Invalid);
        }
        let qd = queue(sockfd)?;
        libos.homa_give_back(qd, &given.bpage_offsets[..count])?;
        let wanted = Wanted {
            id: given.id,
            requests: given.flags & HOMA_RECVMSG_REQUEST != 0,
            responses: given.flags & HOMA_RECVMSG_RESPONSE != 0,
            waits: given.flags & HOMA_RECVMSG_NONBLOCKING == 0,
        };
        // Should the rest fail: no RPC came, and the pages were taken all the same.
        (given.id, given.num_bpages, given.completion_cookie) = (0, 0, 0);
        out.write(given);
        let Received {
            id,
            cookie,
            peer,
            result,
        } = until_uninterrupted(libos, |libos| libos.homa_receive(qd, &wanted))?;
        (given.id, given.completion_cookie) = (id, cookie);
        let mut len = 0;
        if let Ok((its_len, parts)) = &result {
            len = *its_len;
            given.num_bpages = parts.len() as u32; // HOMA_MAX_BPAGES at most.
            given.bpage_offsets[..parts.len()].copy_from_slice(parts);
        }
        out.write(given);
        let family = libos.homa_family(qd)?;
        // SAFETY: NULL, or as many bytes writable as `*addrlen` says, says the header.
        unsafe { write_union(src_addr, addrlen, peer, family) };
        result?;
        Ok(len as ssize_t) // 1,000,000 at most.
    })
}

/// Ends the call `id` of this socket, or with 0 all of them. With error 0 they are forgotten, else
/// homa_recvmsg() brings them with that errno. Requests of others are left alone.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a negative error or no such call,
/// ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn homa_abort(sockfd: c_int, id: u64, error: c_int) -> c_int {
    system_call(|libos| {
        libos.homa_abort(queue(sockfd)?, id, error)?;
        Ok(0)
    })
}

/// As homa_abort(), by a structure whose `_pad1` and `_pad2` must be 0, or else EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_abortp(fd: c_int, args: *mut homa_abort_args) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or readable, says the header.
        let args = unsafe { read(args) }?;
        if args._pad1 != 0 || args._pad2 != [0; 2] {
            return Err(Error::Invalid);
        }
        libos.homa_abort(queue(fd)?, args.id, args.error)?;
        Ok(0)
    })
}

/// Ends all RPCs of a socket at once. All its calls but homa_close() and homa_info() then fail with
/// ESHUTDOWN, also the one that waits just now, if this is called from a signal handler. Its region
/// is not touched any more. A second time it does nothing.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EBUSY too many at once from signal handlers, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn homa_shutdown(sockfd: c_int) -> c_int {
    shut_down(sockfd)
}

/// Closes a socket. Calls that are not over are forgotten; responses that nobody confirmed yet are
/// waited for, at most as long as SO_LINGER says, see demi_setsockopt(). When this returns, the
/// region is all the application's.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn homa_close(sockfd: c_int) -> c_int {
    system_call(|libos| {
        libos.homa_close(queue(sockfd)?)?;
        Ok(0)
    })
}

/// Waits until a descriptor is ready, `timeout_ms` at most, or for ever if that is negative; 0 is
/// a look. As poll(2), for descriptors of this library only: others get POLLNVAL.
///
/// A Homa socket has POLLIN when a message or a failed call waits to be received, POLLIN and
/// POLLHUP once it is shut down, and POLLOUT while there is memory to send the longest message.
/// Descriptors of demi_socket() have POLLIN when one of their operations is done or a message waits
/// to be popped, and always POLLOUT: so one loop serves both.
///
/// Returns how many are ready, 0 after the time, or -1: EINVAL a NULL pointer or too many, EINTR by
/// demi_wake(), or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_poll(fds: *mut pollfd, nfds: nfds_t, timeout_ms: c_int) -> c_int {
    system_call(|libos| {
        let count = c_int::try_from(nfds).map_err(|_| Error::Invalid)?;
        let polled = match count {
            0 => &mut [],
            _ if fds.is_null() || !fds.is_aligned() => return Err(Error::Invalid),
            // SAFETY: not NULL, aligned, and `nfds` of them may be used, says the header.
            count => unsafe { slice::from_raw_parts_mut(fds, count as usize) },
        };
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::millis);
        let ready = until_uninterrupted(libos, |libos| libos.homa_poll(polled, timeout))?;
        Ok(ready as c_int) // `count` at most.
    })
}

/// Asks the hosts that this one talks with to freeze their traces, as HOMAIOCFREEZE does. Here
/// nothing is frozen, since there is no such trace.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn homa_freeze(sockfd: c_int) -> c_int {
    system_call(|libos| {
        libos.homa_freeze(queue(sockfd)?)?;
        Ok(0)
    })
}
