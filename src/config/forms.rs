//! Values that a file writes as text: addresses and MACs.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use crate::addr::Ip;

/// An address of ours and how many of its leading bits name the network it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub ip: Ip,
    /// 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub prefix_bits: u8,
}

/// One or more addresses: a file may give one as a text, or several as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub Vec<Cidr>);

/// An address, or none: the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalIp(pub Option<Ip>);

/// A MAC, or none: the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mac(pub Option<[u8; 6]>);

impl Cidr {
    /// Whether `ip` is in the same network.
    pub fn contains(&self, ip: Ip) -> bool {
        // An IPv4 address has 96 fixed bits before its own.
        let fixed_bits = if self.ip.is_v4() { 96 } else { 0 };
        let host_bits = 128 - fixed_bits - u32::from(self.prefix_bits);
        (self.ip.0 ^ ip.0).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self(vec![Cidr {
            ip: Ip::v4(10, 0, 0, 1),
            prefix_bits: 24,
        }])
    }
}

impl FromStr for Cidr {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RIGHT: &str = "expected address/prefix, such as \"10.0.0.1/24\" or \"fd00::1/64\"";
        let (ip, prefix) = text.split_once('/').ok_or(RIGHT)?;
        let ip: IpAddr = ip.parse().map_err(|_| RIGHT)?;
        let prefix_bits: u8 = prefix.parse().map_err(|_| RIGHT)?;
        match ip {
            IpAddr::V4(_) if prefix_bits > 32 => Err("expected a prefix of 0 to 32 bits"),
            IpAddr::V6(_) if prefix_bits > 128 => Err("expected a prefix of 0 to 128 bits"),
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(Self {
                ip: ip.into(),
                prefix_bits,
            }),
        }
    }
}

impl FromStr for OptionalIp {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let ip: IpAddr = text
            .parse()
            .map_err(|_| "expected an address, such as \"10.0.0.254\", or \"\" for none")?;
        Ok(Self(Some(ip.into())))
    }
}

impl FromStr for Mac {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RIGHT: &str =
            "expected a MAC, such as \"02:00:00:00:00:01\", or \"\" for the device's";
        if text.is_empty() {
            return Ok(Self(None));
        }
        let mut bytes = [0; 6];
        let mut words = text.split(':');
        for byte in &mut bytes {
            let word = words.next().ok_or(RIGHT)?;
            // `from_str_radix` would take a sign.
            if word.len() != 2 || word.starts_with('+') {
                return Err(RIGHT);
            }
            *byte = u8::from_str_radix(word, 16).map_err(|_| RIGHT)?;
        }
        if words.next().is_some() {
            return Err(RIGHT);
        }
        Ok(Self(Some(bytes)))
    }
}

impl<'de> Deserialize<'de> for OptionalIp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Addresses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address with prefix, such as \"10.0.0.1/24\", or a list of them")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Addresses, E> {
                Ok(Addresses(vec![text.parse().map_err(E::custom)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Addresses, A::Error> {
                let mut addresses = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    addresses.push(text.parse().map_err(A::Error::custom)?);
                }
                Ok(Addresses(addresses))
            }
        }

        from.deserialize_any(OneOrMore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_the_addresses_that_share_its_prefix() {
        let ours: Cidr = "10.0.0.1/24".parse().unwrap();
        assert!(ours.contains(Ip::v4(10, 0, 0, 254)));
        assert!(!ours.contains(Ip::v4(10, 0, 1, 1)));
        let all: Cidr = "10.0.0.1/0".parse().unwrap();
        assert!(all.contains(Ip::v4(192, 168, 0, 1)));
        assert!(
            !all.contains(Ip(1)),
            "an IPv6 address is in no IPv4 network"
        );
        assert!("::1/0".parse::<Cidr>().unwrap().contains(Ip(u128::MAX)));
    }

    #[test]
    fn a_mac_has_six_pairs_of_hex_digits() {
        assert_eq!(
            "02:00:5e:00:0f:01".parse(),
            Ok(Mac(Some([2, 0, 0x5e, 0, 15, 1])))
        );
        assert_eq!("".parse(), Ok(Mac(None)));
        for bad in [
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "02:00:00:00:00:+1",
            "x",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
