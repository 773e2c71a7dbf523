//! What the calls of `demi/*.h` take and give; the header is `demi/types.h`.
//!
//! The layout is that of Demikernel 1.5.13 on 64-bit Linux, asserted below.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::{offset_of, size_of};

use libc::sockaddr_in;

/// Most segments in a scatter-gather array.
pub const DEMI_SGARRAY_MAXSIZE: usize = 1;

/// Names a pending operation until a wait has returned its result. Never 0 and never UINT64_MAX.
pub type demi_qtoken_t = u64;

/// A segment of a scatter-gather array.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct demi_sgaseg {
    /// First byte. May be moved forward, within the buffer, before a push.
    pub sgaseg_buf: *mut c_void,
    /// Size in bytes. May be reduced before a push.
    pub sgaseg_len: u32,
}
pub type demi_sgaseg_t = demi_sgaseg;

/// A scatter-gather array: one buffer, from demi_sgaalloc() or a pop, that the application owns.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct demi_sgarray {
    /// Reserved: names the buffer. Not an address; leave it as it is. NULL in a null array.
    pub sga_buf: *mut c_void,
    /// Segments in use: 1, or 0 in a null array.
    pub sga_numsegs: u32,
    /// The segments.
    pub sga_segs: [demi_sgaseg_t; DEMI_SGARRAY_MAXSIZE],
    /// Who sent it, in network byte order, if it was popped and the sender has an IPv4 address.
    pub sga_addr: sockaddr_in,
}
pub type demi_sgarray_t = demi_sgarray;

/// What kind of operation completed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum demi_opcode {
    /// None.
    DEMI_OPC_INVALID = 0,
    /// A push: the bytes are the application's again.
    DEMI_OPC_PUSH,
    /// A pop, or a call to a remote procedure: qr_value.sga holds the message.
    DEMI_OPC_POP,
    /// An accept: qr_value.ares holds the new connection.
    DEMI_OPC_ACCEPT,
    /// A connect.
    DEMI_OPC_CONNECT,
    /// A close.
    DEMI_OPC_CLOSE,
    /// Any of these, which failed: qr_ret holds the errno.
    DEMI_OPC_FAILED,
}
pub type demi_opcode_t = demi_opcode;

/// What an accept gives.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct demi_accept_result {
    /// The new connection's queue descriptor.
    pub qd: i32,
    /// The peer's address.
    pub addr: sockaddr_in,
}
pub type demi_accept_result_t = demi_accept_result;

/// What an operation gives beside its return code.
#[repr(C)]
#[derive(Clone, Copy)]
pub union demi_qr_value {
    /// The popped message, if the opcode is DEMI_OPC_POP.
    pub sga: demi_sgarray_t,
    /// The accepted connection, if the opcode is DEMI_OPC_ACCEPT.
    pub ares: demi_accept_result_t,
}

/// The result of an operation.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct demi_qresult {
    /// What completed.
    pub qr_opcode: demi_opcode_t,
    /// The queue it ran on.
    pub qr_qd: i32,
    /// The token it had.
    pub qr_qt: demi_qtoken_t,
    /// 0, or a positive errno if the opcode is DEMI_OPC_FAILED.
    pub qr_ret: i64,
    /// What it gave: all zero unless the opcode says otherwise.
    pub qr_value: demi_qr_value,
}
pub type demi_qresult_t = demi_qresult;

/// A profiler's callback: name, its length, nanoseconds. Accepted, not called.
pub type demi_callback_t = Option<unsafe extern "C" fn(*const c_char, u32, u64)>;

/// What demi_init() takes.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct demi_args {
    /// How many arguments.
    pub argc: c_int,
    /// The program's arguments. `--config FILE` is used, all others are left to the program.
    pub argv: *const *mut c_char,
    /// May be NULL.
    pub callback: demi_callback_t,
}

impl demi_sgarray {
    /// What `demi_sgaalloc` gives when there is no buffer.
    pub(super) const NULL: Self = Self {
        sga_buf: std::ptr::null_mut(),
        sga_numsegs: 0,
        sga_segs: [demi_sgaseg {
            sgaseg_buf: std::ptr::null_mut(),
            sgaseg_len: 0,
        }],
        sga_addr: super::address::NO_SOCKADDR_IN,
    };
}

impl fmt::Debug for demi_qr_value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("demi_qr_value").finish_non_exhaustive()
    }
}

impl fmt::Debug for demi_qresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qr_opcode,
            qr_qd,
            qr_qt,
            qr_ret,
            qr_value,
        } = *self;
        f.debug_struct("demi_qresult")
            .field("qr_opcode", &qr_opcode)
            .field("qr_qd", &qr_qd)
            .field("qr_qt", &qr_qt)
            .field("qr_ret", &qr_ret)
            .field("qr_value", &qr_value)
            .finish()
    }
}

// Source: Demikernel 1.5.13 include/demi/types.h, as gcc lays it out. `tests/c/abi.c` agrees.
const _: () = {
    assert!(size_of::<demi_sgaseg>() == 12 && align_of::<demi_sgaseg>() == 1);
    assert!(offset_of!(demi_sgaseg, sgaseg_len) == 8);
    assert!(size_of::<demi_sgarray>() == 40 && align_of::<demi_sgarray>() == 1);
    assert!(offset_of!(demi_sgarray, sga_numsegs) == 8);
    assert!(offset_of!(demi_sgarray, sga_segs) == 12);
    assert!(offset_of!(demi_sgarray, sga_addr) == 24);
    assert!(size_of::<demi_opcode>() == 4 && demi_opcode::DEMI_OPC_FAILED as u32 == 6);
    assert!(size_of::<demi_accept_result>() == 20 && align_of::<demi_accept_result>() == 1);
    assert!(offset_of!(demi_accept_result, addr) == 4);
    assert!(size_of::<demi_qr_value>() == 40 && align_of::<demi_qr_value>() == 1);
    assert!(size_of::<demi_qresult>() == 64 && align_of::<demi_qresult>() == 1);
    assert!(offset_of!(demi_qresult, qr_qd) == 4);
    assert!(offset_of!(demi_qresult, qr_qt) == 8);
    assert!(offset_of!(demi_qresult, qr_ret) == 16);
    assert!(offset_of!(demi_qresult, qr_value) == 24);
    assert!(size_of::<demi_args>() == 20 && align_of::<demi_args>() == 1);
    assert!(offset_of!(demi_args, argv) == 4 && offset_of!(demi_args, callback) == 12);
};
