//! One process per interface and address.
//!
//! With a packet socket each of two processes gets every frame, and each answers for RPCs that
//! the other one has. So a port holds an abstract Unix socket, named for both; the kernel frees
//! the name when the process ends, however it ends. Such names belong to a network namespace, as
//! interfaces do.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::StartError;
use crate::addr::Ip;
use crate::error::Error;

/// Held as long as the port is open.
#[derive(Debug)]
pub(super) struct InterfaceLock {
    _listener: UnixListener,
}

impl InterfaceLock {
    /// Fails with the holder's process id if it is taken.
    pub(super) fn take(interface: &str, address: Option<Ip>) -> Result<Self, StartError> {
        let name = match address {
            Some(address) => format!("demihoma/{interface}/{address:?}"),
            None => format!("demihoma/{interface}"),
        };
        let failed = |error: io::Error| {
            StartError::new(
                Error::Device,
                format!("{interface} could not be locked: {error}"),
            )
        };
        let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
        match UnixListener::bind_addr(&address) {
            // Nobody accepts: a connection waits in the backlog, and the one who made it reads
            // from it who listens.
            Ok(listener) => Ok(Self {
                _listener: listener,
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let holder = match holder(&name) {
                    Some(pid) if pid == std::process::id() => "this process".to_owned(),
                    Some(pid) => format!("process {pid}"),
                    None => "another process".to_owned(),
                };
                let text = format!("{interface} is in use by {holder}, with the same address");
                Err(StartError::new(Error::AddressInUse, text))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// The process that listens at an abstract name, as the kernel knows it. Never waits: if the
/// backlog is full of those who asked before, nothing is known.
fn holder(name: &str) -> Option<u32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor, which nobody else has.
    let socket = unsafe {
        match libc::socket(libc::AF_UNIX, kind, 0) {
            -1 => return None,
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    // SAFETY: an address is plain bytes, all zero is an empty one.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays zero: that makes the name an abstract one.
    let path = address.sun_path.get_mut(1..=name.len())?;
    for (to, from) in path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: `address` holds `len` bytes and more; the descriptor is open.
    let connected = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            len as libc::socklen_t,
        )
    };
    if connected != 0 {
        return None;
    }
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: writes at most `len` bytes, the size of `peer`; the descriptor is open.
    let told = unsafe {
        let fd = socket.as_raw_fd();
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(fd, level, option, (&raw mut peer).cast(), &raw mut len)
    };
    (told == 0 && peer.pid > 0).then_some(peer.pid as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_taken_is_refused_with_its_holder_and_free_once_dropped() {
        let name = format!("locktest{}", std::process::id());
        let held = InterfaceLock::take(&name, Some(Ip::v4(10, 0, 0, 1))).expect("free");
        let error = InterfaceLock::take(&name, Some(Ip::v4(10, 0, 0, 1))).expect_err("taken");
        assert_eq!(error.error(), Error::AddressInUse);
        assert!(error.to_string().contains("this process"), "{error}");
        InterfaceLock::take(&name, Some(Ip::v4(10, 0, 0, 2))).expect("another address is free");
        drop(held);
        InterfaceLock::take(&name, Some(Ip::v4(10, 0, 0, 1))).expect("free again");
    }
}
