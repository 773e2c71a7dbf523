//! The Rust face: Demikernel's names and C's types, and beside them what Rust can keep safe.
//!
//! A program written for Demikernel's `LibOS` finds its calls here, with the same arguments.
//! Whoever begins anew takes [`Buf`]s, not arrays: they show their bytes, and free themselves.
//!
//! ```
//! use demihoma::config::Config;
//! use demihoma::libos::IPPROTO_HOMA;
//! use demihoma::{LibOS, runtime::fail::Fail};
//!
//! fn main() -> Result<(), Fail> {
//!     // Nobody is at the other end of this device, so this host calls itself.
//!     let settings = "[network]\nbackend = 'vdev'\ninterface = 'net_null0,no-rx=1'\n\
//!                     address = '10.0.0.1/24'";
//!     let config = Config::from_parts(None, settings, std::iter::empty())?;
//!     let mut os = LibOS::with(&config)?;
//!     let (client, server) = (native(&mut os)?, native(&mut os)?);
//!     os.bind(server, "10.0.0.1:7000".parse().unwrap())?;
//!
//!     let question = os.buf(b"how are you?")?;
//!     let call = os.call(client, question, "10.0.0.1:7000".parse().unwrap())?;
//!     let pop = os.pop(server, None)?;
//!     let request = os.take(pop, None)?;
//!     assert_eq!(&*request, b"how are you?");
//!     let answer = os.buf(b"fine")?;
//!     os.reply(server, &request, answer)?;
//!     assert_eq!(&*os.take(call, None)?, b"fine");
//!     Ok(())
//! }
//!
//! fn native(os: &mut LibOS) -> Result<demihoma::QDesc, Fail> {
//!     os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)
//! }
//! ```

mod buf;
mod demikernel;
mod name;

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::addr::Addr;
use crate::config::Config;
use crate::error::Error;
use crate::libos::{self, OperationResult, QDesc, QToken};
use crate::runtime::fail::Fail;

pub use buf::Buf;
pub use demikernel::SocketOption;
pub use name::LibOSName;

/// A library OS over a DPDK port. It belongs to the thread that made it, and nothing happens but
/// within its calls.
pub struct LibOS {
    shared: Rc<Shared>,
}

/// What a [`LibOS`] and its buffers have in common; it ends with the last of them.
struct Shared {
    os: RefCell<libos::LibOS>,
    /// Buffers dropped amid a call, in what the program passed to it: to be freed by the next one.
    dropped: RefCell<Vec<u64>>,
}

impl LibOS {
    /// Starts with settings of the caller's own making; [`LibOS::new`] takes the user's.
    ///
    /// # Errors
    /// One line that says what is wrong: no such interface, a privilege that is missing, and so on.
    pub fn with(config: &Config) -> Result<Self, Fail> {
        Ok(Self {
            shared: Rc::new(Shared {
                os: RefCell::new(libos::LibOS::new(config)?),
                dropped: RefCell::default(),
            }),
        })
    }

    /// A buffer that holds a copy of `bytes`: 1 to 1,000,000 of them.
    ///
    /// # Errors
    /// ENOMEM if none is left, EINVAL for no bytes, EMSGSIZE for too many.
    pub fn buf(&mut self, bytes: &[u8]) -> Result<Buf, Fail> {
        let sga = self.os().sga_of(bytes)?;
        Ok(Buf::new(&self.shared, sga))
    }

    /// Sends a datagram, as [`LibOS::pushto`] does.
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, qd: QDesc, message: Buf, to: SocketAddr) -> Result<QToken, Fail> {
        let sent = self.os().pushto(qd, &message.view(), to_addr(to))?;
        // The message goes on by a reference of its own.
        drop(message);
        Ok(sent)
    }

    /// Starts a call on a native queue, whose token completes with the response; see
    /// [`LibOS::take`].
    ///
    /// # Errors
    /// EBADF, ENOTSUP another kind of queue, EAGAIN too many RPCs are alive.
    pub fn call(&mut self, qd: QDesc, request: Buf, to: SocketAddr) -> Result<QToken, Fail> {
        let (token, _id) = self.os().call(qd, &request.view(), to_addr(to), 0)?;
        drop(request);
        Ok(token)
    }

    /// Answers a request that was popped from a native queue. If its client is gone this succeeds
    /// all the same.
    ///
    /// # Errors
    /// EBADF, ENOTSUP another kind of queue, EINVAL a buffer that is no request, or was answered.
    pub fn reply(&mut self, qd: QDesc, request: &Buf, response: Buf) -> Result<(), Fail> {
        let info = self.os().info(request.handle())?;
        let view = response.view();
        self.os().reply(qd, info.id, info.peer, &view, false)?;
        drop(response);
        Ok(())
    }

    /// Waits for the message that a pop or a call is to bring; without a timeout for ever.
    ///
    /// # Errors
    /// ETIMEDOUT the token stays valid; EINTR likewise; EINVAL no such token; what the operation
    /// failed by, or ENOMSG if it was one that brings no message: the token is used up.
    pub fn take(&mut self, token: QToken, timeout: Option<Duration>) -> Result<Buf, Fail> {
        let done = self.os().wait(token, timeout.map(to_duration))?;
        match done.result {
            OperationResult::Pop(sga) => Ok(Buf::new(&self.shared, sga)),
            OperationResult::Failed(error) => Err(error.into()),
            other => Err(Fail::new(libc::ENOMSG, &format!("{other:?} is no message"))),
        }
    }

    /// What ends a wait from another thread or a signal handler.
    pub fn waker(&self) -> libos::Waker {
        self.shared.os.borrow().waker()
    }

    /// The runtime, once what was dropped meanwhile is freed.
    fn os(&mut self) -> RefMut<'_, libos::LibOS> {
        // Buffers borrow it for no longer than a call of their own.
        let mut os = self.shared.os.borrow_mut();
        for handle in self.shared.dropped.borrow_mut().drain(..) {
            let freed = os.sgafree(handle);
            debug_assert_eq!(freed, Ok(()), "a buffer is freed once");
        }
        os
    }
}

impl Shared {
    /// At once, or by the next call if one is under way.
    fn free(&self, handle: u64) {
        match self.os.try_borrow_mut() {
            Ok(mut os) => {
                let freed = os.sgafree(handle);
                debug_assert_eq!(freed, Ok(()), "a buffer is freed once");
            }
            Err(_) => self.dropped.borrow_mut().push(handle),
        }
    }
}

impl fmt::Debug for LibOS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shared.os.try_borrow() {
            Ok(os) => os.fmt(f),
            Err(_) => f.write_str("LibOS(amid a call)"),
        }
    }
}

impl From<crate::config::ConfigError> for Fail {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::new(error.errno(), &error.to_string())
    }
}

fn to_addr(socket: SocketAddr) -> Addr {
    Addr::new(socket.ip().into(), socket.port())
}

fn to_socket(addr: Addr) -> SocketAddr {
    SocketAddr::new(addr.ip.into(), addr.port)
}

/// What is longer than 584 years counts as that.
fn to_duration(timeout: Duration) -> crate::time::Duration {
    crate::time::Duration::nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// `NotSupported` with the words of whoever asked for it.
fn unsupported(cause: &str) -> Fail {
    Fail::new(Error::NotSupported.errno(), cause)
}
