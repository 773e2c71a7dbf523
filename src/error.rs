//! The one error type, the one place that turns it into an errno, and the error of a start, which
//! has a text.

use std::fmt;

/// Why something could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// An argument makes no sense.
    Invalid,
    /// No such queue descriptor.
    BadDescriptor,
    /// A table or pool is full; it may work later.
    Exhausted,
    /// No memory left for what must be kept.
    NoMemory,
    /// The port, or the interface, belongs to somebody else.
    AddressInUse,
    /// Not an address of ours, or no port left.
    AddressNotAvailable,
    /// Not an address family we speak.
    FamilyNotSupported,
    /// Not offered by this kind of queue.
    NotSupported,
    /// Longer than a message may be; of an RPC that was under way, that a packet is longer than a
    /// link on its way allows: `net.mtu_bytes` should be less.
    MessageTooLong,
    /// Nothing says where to send.
    NoDestination,
    /// Nobody listens on the peer's port, or this socket has no peer.
    NotConnected,
    /// The socket has a peer already.
    AlreadyConnected,
    /// The socket is about to get a peer.
    Connecting,
    /// The socket waits for peers to connect.
    Listening,
    /// Nobody there takes connections.
    ConnectionRefused,
    /// The peer knows nothing of this connection any more.
    ConnectionReset,
    /// The peer's host speaks no Homa.
    ProtocolUnsupported,
    /// No route, or no answer to ARP.
    HostUnreachable,
    /// The peer was silent for too long.
    PeerTimedOut,
    /// The operation was given up: its queue was closed or its RPC aborted.
    Canceled,
    /// The socket is shut down.
    Shutdown,
    /// A wait ended before anything was ready.
    WaitTimedOut,
    /// It exists already.
    Exists,
    /// No path leads to the server now.
    NoPath,
    /// No path has led to the server for too long.
    PathsLost,
    /// A session has as many paths as it can have.
    TooManyPaths,
    /// No such path.
    NoSuchPath,
    /// It was answered before.
    AlreadyAnswered,
    /// The text is too long.
    NameTooLong,
    /// The library is not initialised in this thread.
    NotInitialised,
    /// A signal, or another thread, ended the wait.
    Interrupted,
    /// This call waits, and would wait for itself.
    WouldDeadlock,
    /// The library is at work below this call.
    Busy,
    /// No such option.
    NoSuchOption,
    /// No such device or interface.
    NoDevice,
    /// No such file.
    NoFile,
    /// The caller lacks a privilege.
    NotPermitted,
    /// The device failed.
    Device,
    /// The application aborted the RPC with this errno of its own.
    Aborted(i32),
}

impl Error {
    pub const fn errno(self) -> libc::c_int {
        match self {
            Self::Invalid => libc::EINVAL,
            Self::BadDescriptor => libc::EBADF,
            Self::Exhausted => libc::EAGAIN,
            Self::NoMemory => libc::ENOMEM,
            Self::AddressInUse => libc::EADDRINUSE,
            Self::AddressNotAvailable => libc::EADDRNOTAVAIL,
            Self::FamilyNotSupported => libc::EAFNOSUPPORT,
            Self::NotSupported => libc::ENOTSUP,
            Self::MessageTooLong => libc::EMSGSIZE,
            Self::NoDestination => libc::EDESTADDRREQ,
            Self::NotConnected => libc::ENOTCONN,
            Self::AlreadyConnected => libc::EISCONN,
            Self::Connecting => libc::EINPROGRESS,
            Self::Listening => libc::EOPNOTSUPP,
            Self::ConnectionRefused => libc::ECONNREFUSED,
            Self::ConnectionReset => libc::ECONNRESET,
            Self::ProtocolUnsupported => libc::EPROTONOSUPPORT,
            Self::HostUnreachable => libc::EHOSTUNREACH,
            Self::PeerTimedOut | Self::WaitTimedOut => libc::ETIMEDOUT,
            Self::Canceled => libc::ECANCELED,
            Self::Shutdown => libc::ESHUTDOWN,
            Self::Exists => libc::EEXIST,
            Self::NoPath => libc::ECOMM,
            Self::PathsLost => libc::ECONNABORTED,
            Self::TooManyPaths => libc::EMFILE,
            Self::NoSuchPath => libc::ENOENT,
            Self::AlreadyAnswered => libc::EALREADY,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::NotInitialised => libc::ENOSYS,
            Self::Interrupted => libc::EINTR,
            Self::WouldDeadlock => libc::EDEADLK,
            Self::Busy => libc::EBUSY,
            Self::NoSuchOption => libc::ENOPROTOOPT,
            Self::NoDevice => libc::ENODEV,
            Self::NoFile => libc::ENOENT,
            Self::NotPermitted => libc::EPERM,
            Self::Device => libc::EIO,
            Self::Aborted(errno) => errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid argument",
            Self::BadDescriptor => "no such queue descriptor",
            Self::Exhausted => "no room now, try again",
            Self::NoMemory => "out of memory",
            Self::AddressInUse => "address in use",
            Self::AddressNotAvailable => "address not available",
            Self::FamilyNotSupported => "address family not supported",
            Self::NotSupported => "not supported by this queue",
            Self::MessageTooLong => "message too long",
            Self::NoDestination => "destination address required",
            Self::NotConnected => "not connected, or nobody listens on the peer's port",
            Self::AlreadyConnected => "connected already",
            Self::Connecting => "connecting already",
            Self::Listening => "not while listening",
            Self::ConnectionRefused => "connection refused: nobody listens there",
            Self::ConnectionReset => "connection reset: the peer is gone, or was started anew",
            Self::ProtocolUnsupported => "the peer's host speaks no Homa",
            Self::HostUnreachable => "no route to the host, or it did not answer ARP",
            Self::PeerTimedOut => "the peer was silent for too long",
            Self::Canceled => "operation canceled",
            Self::Shutdown => "socket is shut down",
            Self::WaitTimedOut => "nothing became ready in time",
            Self::Exists => "exists already",
            Self::NoPath => "no path leads to the server now",
            Self::PathsLost => "no path has led to the server for too long",
            Self::TooManyPaths => "a session has as many paths as it can have",
            Self::NoSuchPath => "no such path",
            Self::AlreadyAnswered => "answered before",
            Self::NameTooLong => "text too long",
            Self::NotInitialised => "not initialised in this thread",
            Self::Interrupted => "interrupted",
            Self::WouldDeadlock => "the call would wait for itself",
            Self::Busy => "the library is busy below this call",
            Self::NoSuchOption => "no such option",
            Self::NoDevice => "no such device or interface",
            Self::NoFile => "no such file",
            Self::NotPermitted => "not permitted",
            Self::Device => "the device failed",
            Self::Aborted(errno) => return write!(f, "aborted with errno {errno}"),
        })
    }
}

impl std::error::Error for Error {}

/// Why something could not start: one line for people, saying what failed and what to do, and an
/// [`Error`] for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    error: Error,
    text: String,
}

impl StartError {
    pub fn new(error: Error, text: impl Into<String>) -> Self {
        Self {
            error,
            text: text.into(),
        }
    }

    /// The same for programs.
    pub fn error(&self) -> Error {
        self.error
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

impl From<StartError> for Error {
    fn from(start: StartError) -> Self {
        start.error
    }
}
