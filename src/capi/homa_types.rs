//! The constants and structures of Linux Homa's user interface, for `demi/homa.h`.
//!
//! Source: the Linux module's homa.h of 2022, whose names and layout these are.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::{offset_of, size_of};

use libc::{sockaddr, sockaddr_in, sockaddr_in6};

/// The protocol that selects a Homa socket. The header guards it, since Linux may define it, too.
pub const IPPROTO_HOMA: c_int = 0xFD;

/// The number IANA gave Homa, which today's Linux module uses: selects the same.
pub const IPPROTO_HOMA_IANA: c_int = 146;

/// Most bytes of a message.
pub const HOMA_MAX_MESSAGE_LENGTH: usize = 1_000_000;

/// Binary logarithm of the size of a page of receive buffers.
pub const HOMA_BPAGE_SHIFT: u32 = 16;

/// Bytes in a page of receive buffers.
pub const HOMA_BPAGE_SIZE: usize = 1 << HOMA_BPAGE_SHIFT;

/// Most pages that a message needs.
pub const HOMA_MAX_BPAGES: usize = 16;

/// Ports below are for servers, from here on for clients, which get them automatically.
pub const HOMA_MIN_DEFAULT_PORT: c_int = 0x8000;

/// An IPv4 or an IPv6 address.
#[repr(C)]
#[derive(Clone, Copy)]
pub union sockaddr_in_union {
    /// To look at the family.
    pub sa: sockaddr,
    /// If it is AF_INET.
    pub in4: sockaddr_in,
    /// If it is AF_INET6.
    pub in6: sockaddr_in6,
}

/// What sending takes and gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_sendmsg_args {
    /// In: 0 for a request, or the id of the request that this message answers. Out, for a
    /// request: its id.
    pub id: u64,
    /// In, for a request: comes back with the response.
    pub completion_cookie: u64,
}

/// Flag of homa_recvmsg_args: a request will do.
pub const HOMA_RECVMSG_REQUEST: c_int = 0x01;
/// Flag of homa_recvmsg_args: a response will do.
pub const HOMA_RECVMSG_RESPONSE: c_int = 0x02;
/// Flag of homa_recvmsg_args: do not wait.
pub const HOMA_RECVMSG_NONBLOCKING: c_int = 0x04;
/// All flags of homa_recvmsg_args.
pub const HOMA_RECVMSG_VALID_FLAGS: c_int = 0x07;

/// What receiving takes and gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_recvmsg_args {
    /// In: the RPC whose message is wanted, or 0. Out: the RPC whose message came.
    pub id: u64,
    /// Out: the cookie of the request that a response answers; 0 with a request.
    pub completion_cookie: u64,
    /// In: HOMA_RECVMSG_ flags.
    pub flags: c_int,
    /// How many bpage_offsets count. In: pages given back. Out: pages of the message.
    pub num_bpages: u32,
    /// Must be 0.
    pub _pad: [u32; 2],
    /// Where in the buffer region the parts of the message are. All but the last are full pages;
    /// they belong to the application until it passes them in again.
    pub bpage_offsets: [u32; HOMA_MAX_BPAGES],
}

/// What aborting takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_abort_args {
    /// The RPC to abort, or 0 for all client RPCs of the socket.
    pub id: u64,
    /// 0: the RPCs are forgotten. An errno: they complete with it.
    pub error: c_int,
    /// Must be 0.
    pub _pad1: c_int,
    /// Must be 0.
    pub _pad2: [u64; 2],
}

/// Socket option: the buffer region, a homa_set_buf_args.
pub const SO_HOMA_SET_BUF: c_int = 10;
/// Socket option, an int: whether a socket that is not bound takes requests.
pub const SO_HOMA_SERVER: c_int = 11;

/// The buffer region of a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct homa_set_buf_args {
    /// First byte, at a page boundary.
    pub start: *mut c_void,
    /// Bytes.
    pub length: usize,
}

/// Do not pace output: hand every packet to the device at once.
pub const HOMA_FLAG_DONT_THROTTLE: c_int = 2;

impl fmt::Debug for sockaddr_in_union {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sockaddr_in_union").finish_non_exhaustive()
    }
}

// Source: the Linux module's own static assertions, and gcc. `tests/c/abi.c` agrees.
const _: () = {
    assert!(HOMA_MAX_BPAGES == HOMA_MAX_MESSAGE_LENGTH.div_ceil(HOMA_BPAGE_SIZE));
    assert!(size_of::<sockaddr_in_union>() == 28 && align_of::<sockaddr_in_union>() == 4);
    assert!(size_of::<homa_sendmsg_args>() == 16 && align_of::<homa_sendmsg_args>() == 8);
    assert!(offset_of!(homa_sendmsg_args, completion_cookie) == 8);
    assert!(size_of::<homa_recvmsg_args>() == 96 && align_of::<homa_recvmsg_args>() == 8);
    assert!(offset_of!(homa_recvmsg_args, completion_cookie) == 8);
    assert!(offset_of!(homa_recvmsg_args, flags) == 16);
    assert!(offset_of!(homa_recvmsg_args, num_bpages) == 20);
    assert!(offset_of!(homa_recvmsg_args, _pad) == 24);
    assert!(offset_of!(homa_recvmsg_args, bpage_offsets) == 32);
    assert!(size_of::<homa_abort_args>() == 32 && align_of::<homa_abort_args>() == 8);
    assert!(offset_of!(homa_abort_args, error) == 8 && offset_of!(homa_abort_args, _pad2) == 16);
    assert!(size_of::<homa_set_buf_args>() == 16 && offset_of!(homa_set_buf_args, length) == 8);
};
