//! What the application holds and is told.

use std::num::NonZeroU64;

use crate::addr::Addr;
use crate::error::Error;
use crate::runtime::QToken;

/// A queue descriptor. The first is 500, and the lowest free one is given out next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QDesc(pub u32);

/// Names a buffer the application holds; no address, and stale once it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SgaHandle(pub NonZeroU64);

/// A buffer that is the application's until it frees it: allocated, or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sga {
    pub handle: SgaHandle,
    pub ptr: *mut u8,
    pub len: u32,
    /// Who sent it, if it was popped.
    pub peer: Option<Addr>,
}

/// What the application passes back: a buffer and the part of it that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SgaView {
    pub handle: u64,
    pub ptr: *mut u8,
    pub len: u32,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// The pushed bytes are the application's again.
    Push,
    /// A message, or the response to a call.
    Pop(Sga),
    Connect,
    Accept {
        qd: QDesc,
        peer: Addr,
    },
    Close,
    Failed(Error),
}

/// The result under a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QResult {
    pub qd: QDesc,
    pub qt: QToken,
    pub result: OperationResult,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageKind {
    #[default]
    Request,
    Response,
}

/// What is known of a message that was popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    pub kind: MessageKind,
    /// The RPC's id as this side knows it: even for a response, odd for a request.
    pub id: u64,
    /// As given to `call`; 0 for requests.
    pub cookie: u64,
    pub len: u32,
    /// 0: failed RPCs have no message.
    pub error: i32,
    pub peer: Addr,
}

/// What became of things that no token tells about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams that failed after their push had completed.
    pub datagrams_failed: u64,
    /// Datagrams that got no reply from the application and so an empty one from us.
    pub empty_replies: u64,
    /// Those of them that got it because too many were open.
    pub open_evicted: u64,
    /// Pushes that had to wait for others to be confirmed, or for a free RPC.
    pub pushes_held: u64,
    /// Responses dropped because nobody waited for them any more or no handle was left.
    pub responses_dropped: u64,
}

impl From<u32> for QDesc {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl From<QDesc> for u32 {
    fn from(qd: QDesc) -> Self {
        qd.0
    }
}

/// C has them as `int`; a negative one is nobody's.
impl From<i32> for QDesc {
    fn from(number: i32) -> Self {
        Self(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

impl From<SgaHandle> for u64 {
    fn from(handle: SgaHandle) -> Self {
        handle.0.get()
    }
}

impl Sga {
    /// All of it.
    pub const fn view(&self) -> SgaView {
        SgaView {
            handle: self.handle.0.get(),
            ptr: self.ptr,
            len: self.len,
        }
    }
}
