//! What the kernel knows about one of its network interfaces.

use std::ffi::{c_char, c_int, c_ulong};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::StartError;
use crate::error::Error;

/// A kernel interface, by name, in the network namespace of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    name: String,
}

impl Interface {
    /// Fails on what cannot be a name; the interface need not exist yet. A name that DPDK's
    /// comma-separated arguments could not carry is refused too.
    pub(super) fn named(name: &str) -> Result<Self, StartError> {
        let right = (1..libc::IFNAMSIZ).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"/,=:[]".contains(&byte));
        if right {
            return Ok(Self {
                name: name.to_owned(),
            });
        }
        Err(StartError::new(
            Error::Invalid,
            format!("{name:?} cannot be an interface's name"),
        ))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Fails unless it exists and is an Ethernet one.
    pub(super) fn check_ethernet(&self) -> Result<(), StartError> {
        let name = &self.name;
        let request = match self.ask(libc::SIOCGIFHWADDR, self.request()) {
            Ok(request) => request,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                let text = format!("there is no interface {name} in this network namespace");
                return Err(StartError::new(Error::NoDevice, text));
            }
            Err(error) => {
                return Err(StartError::new(Error::Device, format!("{name}: {error}")));
            }
        };
        // SAFETY: this request fills in the hardware address.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        if kind != libc::ARPHRD_ETHER {
            let text = format!("{name} is no Ethernet interface (its hardware type is {kind})");
            return Err(StartError::new(Error::NotSupported, text));
        }
        Ok(())
    }

    /// Largest IP packet it carries, bytes.
    pub(super) fn mtu(&self) -> io::Result<u16> {
        let request = self.ask(libc::SIOCGIFMTU, self.request())?;
        // SAFETY: this request fills in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(mtu.clamp(0, c_int::from(u16::MAX)) as u16)
    }

    /// Whether it is up and has a carrier.
    pub(super) fn is_running(&self) -> bool {
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        self.ask(libc::SIOCGIFFLAGS, self.request())
            .is_ok_and(|request| {
                // SAFETY: this request fills in the flags.
                unsafe { request.ifr_ifru.ifru_flags & wanted == wanted }
            })
    }

    /// Changes the kernel's idea of its address.
    pub(super) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut request = self.request();
        let mut data = [0 as c_char; 14];
        for (to, from) in data.iter_mut().zip(mac) {
            *to = from as c_char;
        }
        request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: data,
        };
        self.ask(libc::SIOCSIFHWADDR, request).map(|_| ())
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: a request is plain bytes, all zero is an empty one.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        // Shorter than the array, as `named` checked, so a NUL follows.
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as c_char;
        }
        request
    }

    fn ask(&self, what: c_ulong, mut request: libc::ifreq) -> io::Result<libc::ifreq> {
        let socket = open_socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        // SAFETY: `what` is one of the interface requests, which read and write one `ifreq`.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(request)
        }
    }
}

/// Fails, saying what helps, if this process may not open packet sockets.
pub(super) fn check_packet_sockets() -> Result<(), StartError> {
    match open_socket(libc::AF_PACKET, libc::SOCK_RAW) {
        Ok(_) => Ok(()),
        Err(error) => Err(StartError::new(
            Error::NotPermitted,
            format!("no packet socket ({error}): CAP_NET_RAW is needed, or `unshare -Urnm`"),
        )),
    }
}

fn open_socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor, which nobody else has.
    match unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: open, and only ours.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for right in ["eth0", "enp3s0f0np0", "veth-a.1"] {
            assert!(Interface::named(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "a name",
            "x,mac=fixed",
            "longer-than-15-b",
            "a/b",
            "ethé",
        ] {
            assert!(Interface::named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_interface_is_named_and_the_loopback_is_no_ethernet() {
        let missing = Interface::named("nosuchif0").expect("a fine name");
        let error = missing.check_ethernet().expect_err("it does not exist");
        assert_eq!(error.error(), Error::NoDevice);
        assert!(error.to_string().contains("nosuchif0"), "{error}");
        let loopback = Interface::named("lo").expect("a fine name");
        let error = loopback
            .check_ethernet()
            .expect_err("it has no MAC addresses");
        assert_eq!(error.error(), Error::NotSupported);
    }
}
