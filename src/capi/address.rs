//! Socket addresses, from C and to C.

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{sa_family_t, size_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use super::boundary::{Out, read};
use super::homa_types::sockaddr_in_union;
use crate::addr::{Addr, Ip};
use crate::error::Error;

const IN_LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;
const IN6_LEN: socklen_t = size_of::<sockaddr_in6>() as socklen_t;
const STORAGE_LEN: socklen_t = size_of::<sockaddr_storage>() as socklen_t;

/// All zero: no address.
pub(super) const NO_SOCKADDR_IN: sockaddr_in = sockaddr_in {
    sin_family: 0,
    sin_port: 0,
    sin_addr: libc::in_addr { s_addr: 0 },
    sin_zero: [0; 8],
};

/// Reads the `len` bytes at `ptr` as an address.
///
/// As in Linux, `len` may be more than the family needs, but no more than a `sockaddr_storage`.
///
/// # Safety
/// `ptr` is NULL or points to `len` readable bytes.
pub(super) unsafe fn read_addr(ptr: *const sockaddr, len: socklen_t) -> Result<Addr, Error> {
    if ptr.is_null() || !(IN_LEN..=STORAGE_LEN).contains(&len) {
        return Err(Error::Invalid);
    }
    // SAFETY: not NULL, and at least 16 bytes may be read, of which the family is the first two.
    let family = unsafe { read(ptr.cast::<sa_family_t>()) }?;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: not NULL, and a `sockaddr_in` has the 16 bytes that may be read.
            let sin = unsafe { read(ptr.cast::<sockaddr_in>()) }?;
            let ip = Ipv4Addr::from_bits(u32::from_be(sin.sin_addr.s_addr));
            Ok(Addr::new(ip.into(), u16::from_be(sin.sin_port)))
        }
        libc::AF_INET6 if len >= IN6_LEN => {
            // SAFETY: not NULL, and `len`, which may be read, has just been compared.
            let sin6 = unsafe { read(ptr.cast::<sockaddr_in6>()) }?;
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            Ok(Addr::new(ip.into(), u16::from_be(sin6.sin6_port)))
        }
        libc::AF_INET6 => Err(Error::Invalid),
        _ => Err(Error::NotSupported),
    }
}

/// The room for an address that a caller offers: it must be exactly what the family needs.
#[derive(Debug)]
pub(super) struct AddrRoom {
    place: *mut sockaddr,
    len: socklen_t,
}

impl AddrRoom {
    /// # Safety
    /// Each pointer is NULL or usable; at `place` as many bytes may be written as `len` says.
    pub(super) unsafe fn new(place: *mut sockaddr, len: *const socklen_t) -> Result<Self, Error> {
        // SAFETY: NULL or readable, says our caller.
        let len = unsafe { read(len) }?;
        if place.is_null() || (len != IN_LEN && len != IN6_LEN) {
            return Err(Error::Invalid);
        }
        Ok(Self { place, len })
    }

    pub(super) fn write(self, addr: Addr) -> Result<(), Error> {
        match to_sockaddr_in(addr) {
            // SAFETY: 16 bytes at `place` may be written, says the caller of `new`.
            Some(sin) if self.len == IN_LEN => unsafe { Out::new(self.place.cast()) }?.write(sin),
            None if self.len == IN6_LEN => {
                // SAFETY: 28 bytes at `place` may be written, says the caller of `new`.
                unsafe { Out::new(self.place.cast()) }?.write(to_sockaddr_in6(addr));
            }
            Some(_) | None => return Err(Error::Invalid),
        }
        Ok(())
    }
}

/// `None` if it is no IPv4 address.
pub(super) fn to_sockaddr_in(addr: Addr) -> Option<sockaddr_in> {
    Some(sockaddr_in {
        sin_family: libc::AF_INET as sa_family_t,
        sin_port: addr.port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: addr.ip.as_v4()?.to_bits().to_be(),
        },
        ..NO_SOCKADDR_IN
    })
}

fn to_sockaddr_in6(addr: Addr) -> sockaddr_in6 {
    let Ip(bits) = addr.ip;
    sockaddr_in6 {
        sin6_family: libc::AF_INET6 as sa_family_t,
        sin6_port: addr.port.to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: bits.to_be_bytes(),
        },
        sin6_scope_id: 0,
    }
}

/// A `sockaddr_in` or a `sockaddr_in6`, the rest zero.
pub(super) fn to_sockaddr_storage(addr: Addr) -> sockaddr_storage {
    // SAFETY: all zero is a valid `sockaddr_storage`: it is made of integers.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match to_sockaddr_in(addr) {
        // SAFETY: a `sockaddr_storage` has room and alignment for each kind of address.
        Some(sin) => unsafe { place.cast::<sockaddr_in>().write(sin) },
        // SAFETY: as above.
        None => unsafe { place.cast::<sockaddr_in6>().write(to_sockaddr_in6(addr)) },
    }
    storage
}

/// Reads an address, and tells its family.
///
/// # Safety
/// `ptr` is NULL or points to an address of the length that its family needs.
pub(super) unsafe fn read_union(ptr: *const sockaddr_in_union) -> Result<(Addr, i32), Error> {
    // SAFETY: NULL or readable; each address begins with its family.
    let family = i32::from(unsafe { read(ptr.cast::<sa_family_t>()) }?);
    let len = match family {
        libc::AF_INET => IN_LEN,
        libc::AF_INET6 => IN6_LEN,
        _ => return Err(Error::FamilyNotSupported),
    };
    // SAFETY: not NULL, and `len` bytes may be read, says our caller.
    Ok((unsafe { read_addr(ptr.cast(), len) }?, family))
}

/// An address in the form of a socket's family, and its length: for AF_INET6 one of IPv4 is
/// mapped. One of IPv6 has no other form.
pub(super) fn to_union(addr: Addr, family: i32) -> (sockaddr_in_union, usize) {
    match to_sockaddr_in(addr).filter(|_| family == libc::AF_INET) {
        Some(in4) => {
            // The bytes behind a short one are zero.
            let in6 = to_sockaddr_in6(Addr::default());
            let mut union = sockaddr_in_union { in6 };
            union.in4 = in4;
            (union, IN_LEN as usize)
        }
        None => {
            let in6 = to_sockaddr_in6(addr);
            (sockaddr_in_union { in6 }, IN6_LEN as usize)
        }
    }
}

/// Writes as much of an address as fits, and how long it is; nothing if `place` is NULL.
///
/// # Safety
/// Each pointer is NULL or usable. At `place` as many bytes may be written as `len` says, or a
/// whole `sockaddr_in_union` if `len` is NULL.
pub(super) unsafe fn write_union(
    place: *mut sockaddr_in_union,
    len: *mut size_t,
    addr: Addr,
    family: i32,
) {
    let (union, its_len) = to_union(addr, family);
    if place.is_null() {
        return;
    }
    // SAFETY: NULL or readable, says our caller.
    let room = unsafe { read(len.cast_const()) }.unwrap_or(size_of::<sockaddr_in_union>());
    // SAFETY: as many bytes may be written, and `union` has no fewer than its address.
    unsafe {
        let from = (&raw const union).cast::<u8>();
        std::ptr::copy_nonoverlapping(from, place.cast::<u8>(), room.min(its_len));
    }
    // SAFETY: NULL or writable, says our caller.
    if let Ok(len) = unsafe { Out::new(len) } {
        len.write(its_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> Addr {
        Addr::new(Ip::v4(10, 1, 2, 3), 0x1234)
    }

    fn v6() -> Addr {
        Addr::new("fd77::1".parse::<Ipv6Addr>().unwrap().into(), 0x1234)
    }

    /// What `read_addr` makes of the first `len` bytes of a storage that holds `addr`.
    fn reread(addr: Addr, len: socklen_t) -> Result<Addr, Error> {
        let storage = to_sockaddr_storage(addr);
        // SAFETY: the storage has 128 bytes; a longer `len` is refused before any byte is read.
        unsafe { read_addr((&raw const storage).cast(), len) }
    }

    #[test]
    fn an_address_is_read_with_exact_and_with_generous_length() {
        assert_eq!((reread(v4(), 16), reread(v4(), 128)), (Ok(v4()), Ok(v4())));
        assert_eq!((reread(v6(), 28), reread(v6(), 128)), (Ok(v6()), Ok(v6())));
    }

    #[test]
    fn a_length_that_does_not_fit_is_invalid() {
        for len in [0, 1, 15, 129, socklen_t::MAX] {
            assert_eq!(reread(v4(), len), Err(Error::Invalid), "{len}");
        }
        assert_eq!(reread(v6(), 16), Err(Error::Invalid));
        assert_eq!(reread(v6(), 27), Err(Error::Invalid));
    }

    #[test]
    fn an_address_is_read_from_an_odd_place() {
        let mut bytes = [0_u8; 17];
        bytes[1..9].copy_from_slice(&[2, 0, 0x12, 0x34, 10, 1, 2, 3]); // AF_INET is 2.
        // SAFETY: 16 bytes follow the first.
        let addr = unsafe { read_addr(bytes[1..].as_ptr().cast(), 16) };
        assert_eq!(addr, Ok(v4()));
    }

    #[test]
    fn another_family_is_not_supported_and_null_is_invalid() {
        let unix = [libc::AF_UNIX as u16, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: 16 bytes.
        let addr = unsafe { read_addr(unix.as_ptr().cast(), 16) };
        assert_eq!(addr, Err(Error::NotSupported));
        // SAFETY: NULL.
        let addr = unsafe { read_addr(std::ptr::null(), 16) };
        assert_eq!(addr, Err(Error::Invalid));
    }

    #[test]
    fn an_address_is_given_only_into_room_of_its_exact_size() {
        let mut storage = to_sockaddr_storage(v6());
        let place = (&raw mut storage).cast::<sockaddr>();
        let give = |addr: Addr, len: socklen_t| {
            // SAFETY: 128 bytes, and `AddrRoom` takes no length above 28.
            unsafe { AddrRoom::new(place, &raw const len) }?.write(addr)
        };
        assert_eq!(give(v4(), 28), Err(Error::Invalid));
        assert_eq!(give(v6(), 16), Err(Error::Invalid));
        assert_eq!(give(v4(), 15), Err(Error::Invalid));
        assert_eq!(give(v4(), 17), Err(Error::Invalid));
        assert_eq!(give(v4(), 16), Ok(()));
        assert_eq!(reread(v4(), 16), Ok(v4()));
        assert_eq!(give(v6(), 28), Ok(()));
    }
}
