//! Which way to a peer.

use crate::addr::Ip;
use crate::error::Error;

/// An address of ours and the network it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub ip: Ip,
    /// Leading bits that all hosts of the network share.
    pub prefix: u8,
}

/// The next step toward a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// An address of ours.
    Own(u8),
    /// The peer itself, from `source`.
    Direct {
        source: Ip,
    },
    Gateway {
        gateway: Ip,
        source: Ip,
    },
}

#[derive(Debug)]
pub(super) struct Routes {
    /// The number of the first of our addresses.
    first_own: u8,
    interfaces: Vec<Interface>,
    gateway: Option<Ip>,
}

impl Routes {
    pub(super) fn new(first_own: u8, interfaces: Vec<Interface>, gateway: Option<Ip>) -> Self {
        Self {
            first_own,
            interfaces,
            gateway,
        }
    }

    /// Which of our addresses this is.
    fn own_number(&self, ip: Ip) -> Option<u8> {
        let own = self.interfaces.iter().position(|own| own.ip == ip)?;
        self.first_own.checked_add(u8::try_from(own).ok()?)
    }

    /// Our address of that number.
    pub(super) fn own(&self, number: u8) -> Option<Ip> {
        let index = number.checked_sub(self.first_own)?;
        self.interfaces.get(usize::from(index)).map(|own| own.ip)
    }

    #[inline]
    pub(super) fn is_own(&self, ip: Ip) -> bool {
        self.interfaces.iter().any(|own| own.ip == ip)
    }

    /// Whether one host may have this address, as far as we know: no broadcast, no multicast.
    pub(super) fn is_host(&self, ip: Ip) -> bool {
        let is_edge = |own: &Interface| own.covers(ip) && own.is_edge(ip);
        is_host(ip) && !self.interfaces.iter().any(is_edge)
    }

    /// The address from which a host of one of our networks is spoken to.
    pub(super) fn source_for(&self, neighbor: Ip) -> Option<Ip> {
        let own = self.interfaces.iter().find(|own| own.reaches(neighbor))?;
        Some(own.ip)
    }

    pub(super) fn hop(&self, peer: Ip) -> Result<Hop, Error> {
        if let Some(own) = self.own_number(peer) {
            return Ok(Hop::Own(own));
        }
        if !peer.is_v4() {
            return Err(Error::FamilyNotSupported);
        }
        if let Some(source) = self.source_for(peer) {
            return Ok(Hop::Direct { source });
        }
        if !self.is_host(peer) {
            return Err(Error::HostUnreachable);
        }
        let gateway = self.gateway.ok_or(Error::HostUnreachable)?;
        let source = self.source_for(gateway).ok_or(Error::HostUnreachable)?;
        Ok(Hop::Gateway { gateway, source })
    }
}

impl Interface {
    pub(super) fn is_valid(&self) -> bool {
        self.ip.is_v4() && self.prefix <= 32 && self.reaches(self.ip)
    }

    /// Whether a single host may have `ip` in this network.
    pub(super) fn reaches(&self, ip: Ip) -> bool {
        self.covers(ip) && is_host(ip) && !self.is_edge(ip)
    }

    fn covers(&self, ip: Ip) -> bool {
        let differing = (self.ip.0 ^ ip.0) as u32;
        // A prefix of 0 shifts by the whole width, which leaves nothing to differ.
        let differing = differing.checked_shr(32 - u32::from(self.prefix.min(32)));
        self.ip.is_v4() && ip.is_v4() && differing.unwrap_or(0) == 0
    }

    /// Whether `ip` names the network or all of its hosts. With 31 or 32 bits there is no such
    /// address. Source: RFC 3021.
    fn is_edge(&self, ip: Ip) -> bool {
        if self.prefix >= 31 {
            return false;
        }
        let host_bits = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
        let host = ip.0 as u32 & host_bits;
        host == 0 || host == host_bits
    }
}

/// Whether one host on a link may have this address: not "this network" (0/8), loopback (127/8),
/// multicast (224/4) or reserved (240/4, with the limited broadcast).
fn is_host(ip: Ip) -> bool {
    ip.as_v4()
        .is_some_and(|v4| !matches!(v4.octets()[0], 0 | 127 | 224..))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Ip = Ip::v4(10, 0, 0, 254);

    fn routes(gateway: Option<Ip>) -> Routes {
        let interface = |ip, prefix| Interface { ip, prefix };
        let interfaces = vec![
            interface(Ip::v4(10, 0, 0, 1), 24),
            interface(Ip::v4(10, 0, 1, 1), 31),
        ];
        Routes::new(0, interfaces, gateway)
    }

    #[test]
    fn a_neighbor_is_reached_directly_from_the_address_in_its_network() {
        let direct = |ip| routes(None).hop(ip);
        let source = Ip::v4(10, 0, 0, 1);
        assert_eq!(direct(Ip::v4(10, 0, 0, 2)), Ok(Hop::Direct { source }));
        let source = Ip::v4(10, 0, 1, 1);
        assert_eq!(direct(Ip::v4(10, 0, 1, 0)), Ok(Hop::Direct { source }));
        assert_eq!(direct(source), Ok(Hop::Own(1)));
    }

    #[test]
    fn others_are_reached_through_the_gateway_or_not_at_all() {
        let (far, source) = (Ip::v4(192, 168, 0, 1), Ip::v4(10, 0, 0, 1));
        let gateway = GATEWAY;
        let hop = routes(Some(gateway)).hop(far);
        assert_eq!(hop, Ok(Hop::Gateway { gateway, source }));
        assert_eq!(routes(None).hop(far), Err(Error::HostUnreachable));
    }

    #[test]
    fn an_address_that_is_no_hosts_is_unreachable() {
        let addresses = [
            Ip::v4(10, 0, 0, 0),
            Ip::v4(10, 0, 0, 255),
            Ip::v4(0, 0, 0, 0),
            Ip::v4(127, 0, 0, 1),
            Ip::v4(224, 0, 0, 1),
            Ip::v4(255, 255, 255, 255),
        ];
        for ip in addresses {
            assert_eq!(
                routes(Some(GATEWAY)).hop(ip),
                Err(Error::HostUnreachable),
                "{ip}"
            );
        }
    }

    #[test]
    fn ipv6_is_not_spoken_yet() {
        let ip = Ip(0xfd77 << 112 | 1);
        assert_eq!(
            routes(Some(GATEWAY)).hop(ip),
            Err(Error::FamilyNotSupported)
        );
    }

    #[test]
    fn a_prefix_of_zero_covers_everything() {
        let own = Interface {
            ip: Ip::v4(10, 0, 0, 1),
            prefix: 0,
        };
        assert!(own.is_valid() && own.reaches(Ip::v4(192, 168, 5, 5)));
        assert!(!own.reaches(Ip(5)));
    }
}
