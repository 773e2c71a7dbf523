//! `demi/homa.h`: options of Homa sockets, and what they tell of themselves.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};

use libc::{socklen_t, timeval};

use super::address::to_union;
use super::boundary::{Out, queue, read, system_call};
use super::homa_types::{
    HOMA_FLAG_DONT_THROTTLE, IPPROTO_HOMA, IPPROTO_HOMA_IANA, SO_HOMA_SERVER, SO_HOMA_SET_BUF,
    homa_set_buf_args, sockaddr_in_union,
};
use crate::error::Error;
use crate::libos::{HomaRpc, LibOS, QDesc, Region, Side};
use crate::time::Duration;

/// Socket option, an int of HOMA_FLAG_ bits, which hold for all sockets of the thread.
pub const SO_HOMA_FLAGS: c_int = 12;

/// Flag of homa_rpc_info: the incoming message waits for pages.
pub const HOMA_RPC_BUF_STALL: u32 = 1;
/// Flag of homa_rpc_info: homa_recvmsg() would bring it.
pub const HOMA_RPC_RX_READY: u32 = 4;
/// Flag of homa_rpc_info: a request that was received and not answered.
pub const HOMA_RPC_IN_SERVICE: u32 = 16;

/// Bytes of the text in a homa_info, its end included.
pub const HOMA_ERROR_MSG_SIZE: usize = 128;

/// How an RPC is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_rpc_info {
    /// Even for a call, odd for a request of another.
    pub id: u64,
    /// Of a call; else 0.
    pub completion_cookie: u64,
    /// The other side, in the form of the socket's family.
    pub peer: sockaddr_in_union,
    /// 0, or the errno with which it failed.
    pub error: i32,
    /// Bytes of our message; 0 if there is none.
    pub tx_length: u32,
    /// Those that went out.
    pub tx_sent: u32,
    /// Those that may.
    pub tx_granted: u32,
    /// Bytes of the other side's message; 0 if nothing of it came.
    pub rx_length: u32,
    /// Those that did not come.
    pub rx_remaining: u32,
    /// Those that may come without a further grant.
    pub rx_granted: u32,
    /// Gaps before bytes that came.
    pub rx_gaps: u32,
    /// Bytes of all gaps.
    pub rx_gap_bytes: u32,
    /// HOMA_RPC_ bits.
    pub flags: u32,
    /// 0.
    pub _pad: u32,
}

/// How a socket is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_info {
    /// In: sizeof(struct homa_info).
    pub size: u32,
    /// Its port; 0 once it is shut down.
    pub port: u32,
    /// Bytes of the region that messages could have now.
    pub bpool_avail_bytes: u64,
    /// Bytes of the region that are used, whole pages; 0 without one.
    pub bpool_bytes: u64,
    /// In: room for that many as the next says, or NULL. Out: what fits, by id.
    pub rpc_info: *mut homa_rpc_info,
    /// In: how many fit.
    pub rpc_info_length: u32,
    /// Out: how many RPCs there are, which may be more.
    pub num_rpcs: u32,
    /// Out: why the last call that failed did, which errno tells too roughly; empty if none did.
    pub error_msg: [c_char; HOMA_ERROR_MSG_SIZE],
}

/// Sets an option of a Homa socket. Level IPPROTO_HOMA:
///
/// SO_HOMA_SET_BUF, a homa_set_buf_args: the region to receive into, once. It starts at a page
/// boundary and has at least 2,065,536 bytes (two messages and a bpage), 4 GiB at most. Until the
/// socket is closed or shut down only homa_recvmsg() says which of it may be read.
/// SO_HOMA_SERVER, an int: whether it takes requests, as a bound socket does.
/// SO_HOMA_FLAGS, an int: HOMA_FLAG_DONT_THROTTLE, for all sockets of the thread.
///
/// Level SOL_SOCKET: SO_RCVTIMEO and SO_SNDTIMEO, a struct timeval: how long homa_recvmsg() and
/// sending wait; zero is for ever.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, or another level, EINVAL a NULL pointer, a
/// wrong size or value (homa_info() says why), ENOPROTOOPT another option, ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_setsockopt(
    sockfd: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    system_call(|libos| {
        let qd = queue(sockfd)?;
        libos.homa_family(qd)?; // A bad descriptor is told before a bad option.
        let option = Choice::of(level, optname)?;
        if optval.is_null() || optlen as usize != option.len() {
            return Err(Error::Invalid);
        }
        // SAFETY: not NULL, and `optlen` bytes may be read, which is the size of each kind.
        let int = || unsafe { read(optval.cast::<c_int>()) };
        match option {
            Choice::Buffer => {
                // SAFETY: as above.
                let args = unsafe { read(optval.cast::<homa_set_buf_args>()) }?;
                let start = NonNull::new(args.start.cast()).ok_or(Error::Invalid)?;
                if start.addr().get().checked_add(args.length).is_none() {
                    return Err(Error::Invalid);
                }
                // SAFETY: the caller lends these bytes until the socket is closed, says the
                // header, and the library drops the region with it.
                let region = unsafe { Region::lent(start, args.length) };
                libos.homa_lend(qd, region)?;
            }
            Choice::Server => libos.homa_set_server(qd, int()? != 0)?,
            Choice::Flags => {
                let flags = int()?;
                if flags & !HOMA_FLAG_DONT_THROTTLE != 0 {
                    return Err(Error::Invalid);
                }
                libos.homa_set_throttling(qd, flags & HOMA_FLAG_DONT_THROTTLE == 0)?;
            }
            Choice::Timeout(side) => {
                // SAFETY: as above.
                let time = unsafe { read(optval.cast::<timeval>()) }?;
                libos.homa_set_timeout(qd, side, to_timeout(time)?)?;
            }
        }
        Ok(0)
    })
}

/// Gets an option, see homa_setsockopt(), and writes its size into `optlen`. SO_HOMA_SET_BUF tells
/// the region as far as it is used, whole pages; NULL and 0 if there is none.
///
/// Returns 0, or -1: EBADF, ENOTSUP, EINVAL a NULL pointer or too small a size, ENOPROTOOPT,
/// ESHUTDOWN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_getsockopt(
    sockfd: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    system_call(|libos| {
        let qd = queue(sockfd)?;
        libos.homa_family(qd)?;
        let option = Choice::of(level, optname)?;
        // SAFETY: NULL or readable, says the header.
        let room = unsafe { read(optlen) }?;
        // SAFETY: NULL or writable, says the header.
        let len_out = unsafe { Out::new(optlen) }?;
        if optval.is_null() || (room as usize) < option.len() {
            return Err(Error::Invalid);
        }
        // SAFETY: not NULL, and `*optlen` bytes may be written, which each kind fits.
        let put_int = |value: bool, bit: c_int| unsafe {
            Out::new(optval.cast::<c_int>()).map(|out| out.write(if value { bit } else { 0 }))
        };
        match option {
            Choice::Buffer => {
                let region = libos.homa_region(qd)?;
                let (start, length) = region.map_or((ptr::null_mut(), 0), |(start, len)| {
                    (start.as_ptr().cast(), len)
                });
                // SAFETY: as above.
                unsafe { Out::new(optval.cast()) }?.write(homa_set_buf_args { start, length });
            }
            Choice::Server => put_int(libos.homa_is_server(qd)?, 1)?,
            Choice::Flags => put_int(!libos.homa_is_throttling(qd)?, HOMA_FLAG_DONT_THROTTLE)?,
            Choice::Timeout(side) => {
                let time = to_timeval(libos.homa_timeout(qd, side)?);
                // SAFETY: as above.
                unsafe { Out::new(optval.cast()) }?.write(time);
            }
        }
        len_out.write(option.len() as socklen_t); // Each is a few bytes long.
        Ok(0)
    })
}

/// An option that there is.
#[derive(Clone, Copy)]
enum Choice {
    Buffer,
    Server,
    Flags,
    Timeout(Side),
}

impl Choice {
    fn of(level: c_int, optname: c_int) -> Result<Self, Error> {
        match (level, optname) {
            (IPPROTO_HOMA | IPPROTO_HOMA_IANA, SO_HOMA_SET_BUF) => Ok(Self::Buffer),
            (IPPROTO_HOMA | IPPROTO_HOMA_IANA, SO_HOMA_SERVER) => Ok(Self::Server),
            (IPPROTO_HOMA | IPPROTO_HOMA_IANA, SO_HOMA_FLAGS) => Ok(Self::Flags),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => Ok(Self::Timeout(Side::Receive)),
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => Ok(Self::Timeout(Side::Send)),
            (IPPROTO_HOMA | IPPROTO_HOMA_IANA | libc::SOL_SOCKET, _) => Err(Error::NoSuchOption),
            _ => Err(Error::NotSupported),
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Buffer => size_of::<homa_set_buf_args>(),
            Self::Server | Self::Flags => size_of::<c_int>(),
            Self::Timeout(_) => size_of::<timeval>(),
        }
    }
}

/// Zero is for ever.
fn to_timeout(time: timeval) -> Result<Option<Duration>, Error> {
    let secs = u64::try_from(time.tv_sec).map_err(|_| Error::Invalid)?;
    let micros = u64::try_from(time.tv_usec).map_err(|_| Error::Invalid)?;
    if micros >= 1_000_000 {
        return Err(Error::Invalid);
    }
    let micros = secs.saturating_mul(1_000_000).saturating_add(micros);
    Ok((micros > 0).then(|| Duration::nanos(micros.saturating_mul(1000))))
}

/// A wait of less than 1 us counts as none.
fn to_timeval(timeout: Option<Duration>) -> timeval {
    let micros = timeout.map_or(0, |timeout| timeout.as_nanos() / 1000) as i64;
    timeval {
        tv_sec: micros / 1_000_000,
        tv_usec: micros % 1_000_000,
    }
}

/// Tells how a socket and its RPCs are. The caller sets `size`, and `rpc_info` with its length.
///
/// Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, or too small a size, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_info(sockfd: c_int, info: *mut homa_info) -> c_int {
    system_call(|libos| {
        // SAFETY: NULL or readable, says the header; the size is its first member.
        let size = unsafe { read(info.cast::<u32>()) }?;
        if (size as usize) < size_of::<homa_info>() {
            return Err(Error::Invalid);
        }
        // SAFETY: not NULL, and that many bytes may be read, says the header.
        let given = unsafe { read(info) }?;
        // SAFETY: and written.
        let out = unsafe { Out::new(info) }?;
        if given.rpc_info.is_null() && given.rpc_info_length > 0 {
            return Err(Error::Invalid);
        }
        // SAFETY: as many as `rpc_info_length` says may be written, says the header.
        out.write(unsafe { tell(libos, queue(sockfd)?, given) }?);
        Ok(0)
    })
}

/// # Safety
/// As many `rpc_info` may be written as `rpc_info_length` says.
unsafe fn tell(libos: &mut LibOS, qd: QDesc, given: homa_info) -> Result<homa_info, Error> {
    let known = libos.homa_info(qd)?;
    let fitting = known.rpcs.iter().take(given.rpc_info_length as usize);
    for (at, rpc) in fitting.enumerate() {
        // SAFETY: there are that many, says our caller.
        unsafe {
            given
                .rpc_info
                .add(at)
                .write_unaligned(to_rpc_info(rpc, known.family));
        }
    }
    let mut error_msg = [0; HOMA_ERROR_MSG_SIZE];
    let text = known.last_error.bytes().take(HOMA_ERROR_MSG_SIZE - 1);
    for (to, from) in error_msg.iter_mut().zip(text) {
        *to = from as c_char;
    }
    Ok(homa_info {
        port: known.port.into(),
        bpool_avail_bytes: known.free_bytes as u64,
        bpool_bytes: known.region_bytes as u64,
        num_rpcs: known.rpcs.len() as u32, // Bounded by the tables of RPCs and tokens.
        error_msg,
        ..given
    })
}

fn to_rpc_info(rpc: &HomaRpc, family: c_int) -> homa_rpc_info {
    let state = &rpc.state;
    let bit = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    homa_rpc_info {
        id: rpc.id,
        completion_cookie: rpc.cookie,
        peer: to_union(rpc.peer, family).0,
        error: rpc.error,
        tx_length: state.tx_len,
        tx_sent: state.tx_sent,
        tx_granted: state.tx_granted,
        rx_length: state.rx_len,
        rx_remaining: state.rx_len - state.rx_received,
        rx_granted: state.rx_granted,
        rx_gaps: state.rx_holes,
        rx_gap_bytes: state.rx_hole_bytes,
        flags: bit(state.is_waiting, HOMA_RPC_BUF_STALL)
            | bit(rpc.is_ready, HOMA_RPC_RX_READY)
            | bit(state.is_in_service, HOMA_RPC_IN_SERVICE),
        _pad: 0,
    }
}

const _: () = {
    assert!(size_of::<homa_rpc_info>() == 88 && align_of::<homa_rpc_info>() == 8);
    assert!(offset_of!(homa_rpc_info, peer) == 16 && offset_of!(homa_rpc_info, error) == 44);
    assert!(offset_of!(homa_rpc_info, flags) == 80);
    assert!(size_of::<homa_info>() == 168 && align_of::<homa_info>() == 8);
    assert!(offset_of!(homa_info, rpc_info) == 24 && offset_of!(homa_info, error_msg) == 40);
};
