//! What the transport and its user hand each other.

use crate::addr::Addr;
use crate::error::Error;
use crate::mem::Buf;
use crate::slots::Key;
use crate::wire::homa::RpcId;

use super::pool::Run;
use super::rpc::Rpc;
use super::socket::Socket;

pub type RpcKey = Key<Rpc>;
pub type RunKey = Key<Run>;
pub type SocketKey = Key<Socket>;

/// The bytes of a message to send.
#[derive(Debug, Default)]
pub enum Payload {
    /// None, or none any more.
    #[default]
    Gone,
    /// A send buffer, or a part of one.
    Buffer(Buf),
    /// Bytes `start..start + len` of a received message, which is kept until they are delivered.
    Received { run: RunKey, start: u32, len: u32 },
    /// One zero byte, marked so that our own receivers know that nothing was said: the answer to
    /// a one-way datagram. To the Linux module it is a message of one byte.
    EmptyReply,
}

/// When the user wants to hear that an outgoing message's bytes are its own again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    #[default]
    Never,
    /// Once all of them have been handed to the device: for copies made by the user.
    Transmitted(u64),
    /// Once the peer is known to have them all, so that no retransmission will read them.
    Delivered(u64),
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole request arrived; `Endpoint::take` gives it.
    Request { socket: SocketKey, rpc: RpcKey },
    /// A client RPC is over: its response is here, and the server will be told. The message's
    /// bytes are the user's. `tag` as in `Endpoint::send_request`.
    Response {
        socket: SocketKey,
        tag: u64,
        message: Message,
    },
    /// A client RPC is over without a response.
    Failed {
        socket: SocketKey,
        tag: u64,
        id: RpcId,
        peer: Addr,
        error: Error,
    },
    /// As asked for by [`Notify`]: the bytes are the user's again, or will never be sent.
    Released { tag: u64, result: Result<(), Error> },
}

/// A message that arrived whole. Its run of bytes is the user's until `Endpoint::release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub run: RunKey,
    /// Where in the region it starts, bytes.
    pub offset: u32,
    pub len: u32,
    pub rpc: RpcKey,
    /// The RPC's id as this side knows it: even at the client, odd at the server.
    pub id: RpcId,
    pub peer: Addr,
    /// The one byte stands for nothing, see [`Payload::EmptyReply`].
    pub empty_reply: bool,
}
