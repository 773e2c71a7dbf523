//! Addresses: one form for IPv6 and for IPv4, which is kept mapped into it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;

/// An IPv6 address, or an IPv4 one as `::ffff:a.b.c.d`, as one big-endian number.
///
/// Aligned to 4 bytes, so that an [`Addr`] takes 20 bytes and not 32: addresses are part
/// of nearly everything that is copied for a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(Rust, packed(4))]
pub struct Ip(pub u128);

/// Where a Homa socket lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Addr {
    pub ip: Ip,
    pub port: u16,
}

/// What the network layer knows of a packet it delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub from: Ip,
    /// One of our own addresses.
    pub to: Ip,
}

/// Names the header template by which the network layer reaches one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

impl LinkId {
    /// Own addresses that packets can go to.
    pub const LOOPBACKS: u8 = 16;

    /// Devices that packets can leave by.
    pub const LEGS: usize = 4;

    const LEG_SHIFT: u32 = 14;

    /// Names entry `index` of the network layer on the device number `leg`, and which of the
    /// entry's tenants is meant. The last [`Self::LOOPBACKS`] of [`Self::INDEXES`] are no entry's.
    pub const fn new(leg: u8, index: u16, generation: u16) -> Self {
        debug_assert!((leg as usize) < Self::LEGS && (index as usize) < Self::INDEXES);
        Self((generation as u32) << 16 | (leg as u32) << Self::LEG_SHIFT | index as u32)
    }

    /// Entries that can be told apart.
    pub const INDEXES: usize = 1 << Self::LEG_SHIFT;

    /// The device by which packets leave.
    #[inline]
    pub const fn leg(self) -> usize {
        (self.0 >> Self::LEG_SHIFT) as usize % Self::LEGS
    }

    #[inline]
    pub const fn index(self) -> u16 {
        (self.0 % Self::INDEXES as u32) as u16
    }

    #[inline]
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The way to our own address number `own`: such a packet never touches the NIC.
    pub const fn loopback(own: u8) -> Self {
        Self(u32::MAX - own as u32)
    }

    /// The number of our own address, if this leads to one.
    pub const fn as_loopback(self) -> Option<u8> {
        let own = u32::MAX - self.0;
        if own < Self::LOOPBACKS as u32 {
            Some(own as u8)
        } else {
            None
        }
    }
}

/// What a room that made a packet tells those who put it on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the packet, its Homa header included. (Not zero, so that an option of all this is
    /// one word.)
    pub len: NonZero<u16>,
    pub link: LinkId,
    /// 0 (lowest) to 7.
    pub priority: u8,
}

impl Sent {
    /// `None` for a packet of no bytes, which is none.
    #[inline]
    pub const fn new(len: u16, link: LinkId, priority: u8) -> Option<Self> {
        match NonZero::new(len) {
            Some(len) => Some(Self {
                len,
                link,
                priority,
            }),
            None => None,
        }
    }
}

impl Ip {
    const V4_PREFIX: u128 = 0xffff_0000_0000;

    pub const UNSPECIFIED_V4: Self = Self(Self::V4_PREFIX);

    pub const fn v4(a: u8, b: u8, c: u8, d: u8) -> Self {
        Self(Self::V4_PREFIX | u32::from_be_bytes([a, b, c, d]) as u128)
    }

    pub const fn as_v4(self) -> Option<Ipv4Addr> {
        if self.0 >> 32 == Self::V4_PREFIX >> 32 {
            Some(Ipv4Addr::from_bits(self.0 as u32))
        } else {
            None
        }
    }

    pub const fn is_v4(self) -> bool {
        self.0 >> 32 == Self::V4_PREFIX >> 32
    }

    /// `0.0.0.0` or `::`.
    pub const fn is_unspecified(self) -> bool {
        self.0 == Self::V4_PREFIX || self.0 == 0
    }
}

impl Addr {
    pub const fn new(ip: Ip, port: u16) -> Self {
        Self { ip, port }
    }
}

impl From<Ipv4Addr> for Ip {
    fn from(v4: Ipv4Addr) -> Self {
        Self(Self::V4_PREFIX | u128::from(v4.to_bits()))
    }
}

impl From<Ipv6Addr> for Ip {
    fn from(v6: Ipv6Addr) -> Self {
        Self(v6.to_bits())
    }
}

impl From<Ip> for IpAddr {
    fn from(ip: Ip) -> Self {
        match ip.as_v4() {
            Some(v4) => Self::V4(v4),
            None => Self::V6(Ipv6Addr::from_bits(ip.0)),
        }
    }
}

impl From<IpAddr> for Ip {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.ip.into(), self.port).fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_the_same_mapped_and_plain() {
        let ip = Ip::v4(10, 1, 2, 3);
        assert_eq!(ip.as_v4(), Some(Ipv4Addr::new(10, 1, 2, 3)));
        assert_eq!(ip, Ip::from("::ffff:10.1.2.3".parse::<Ipv6Addr>().unwrap()));
        assert_eq!(Addr::new(ip, 80).to_string(), "10.1.2.3:80");
    }

    #[test]
    fn an_ipv6_address_is_no_ipv4_one() {
        let ip = Ip::from("fd77::1".parse::<Ipv6Addr>().unwrap());
        assert_eq!((ip.as_v4(), ip.is_v4()), (None, false));
        assert_eq!(Addr::new(ip, 80).to_string(), "[fd77::1]:80");
    }
}
