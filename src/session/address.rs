//! Addresses of paths as text: `[source (','|'@')] destination`, each `ip:` and an address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addr::Ip;
use crate::error::Error;

/// Longest text, bytes.
const TEXT_MAX: usize = 128;

/// The two ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAddr {
    /// `None`: whatever the route says.
    pub source: Option<Ip>,
    pub destination: Ip,
}

impl PathAddr {
    /// Reads exactly these bytes, which need no end mark; one line feed at the end does not count.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] past 128 bytes, [`Error::ProtocolUnsupported`] for a prefix other
    /// than `ip:`, [`Error::Invalid`] for anything else that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > TEXT_MAX {
            return Err(Error::NameTooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut parts = text.split([',', '@']);
        let (first, second) = (parts.next().unwrap_or(""), parts.next());
        if parts.next().is_some() {
            return Err(Error::Invalid);
        }
        let (source, destination) = match second {
            Some(destination) => (Some(parse_end(first)?), parse_end(destination)?),
            None => (None, parse_end(first)?),
        };
        let is_mixed = source.is_some_and(|source| source.is_v4() != destination.is_v4());
        if is_mixed || is_nobodys(destination) || source.is_some_and(is_nobodys) {
            return Err(Error::Invalid);
        }
        Ok(Self {
            source,
            destination,
        })
    }
}

fn parse_end(text: &str) -> Result<Ip, Error> {
    let Some(address) = text.strip_prefix("ip:") else {
        let has_prefix = text.split_once(':').is_some_and(|(prefix, _)| {
            !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_alphabetic())
        });
        return Err(match has_prefix {
            true => Error::ProtocolUnsupported,
            false => Error::Invalid,
        });
    };
    if let Ok(v4) = address.parse::<Ipv4Addr>() {
        return Ok(v4.into());
    }
    let bare = address
        .strip_prefix('[')
        .map_or(Some(address), |rest| rest.strip_suffix(']'));
    let v6 = bare.and_then(|bare| bare.parse::<Ipv6Addr>().ok());
    v6.map(Ip::from).ok_or(Error::Invalid)
}

/// Whether no single host has that address.
fn is_nobodys(ip: Ip) -> bool {
    let address = IpAddr::from(ip);
    let is_broadcast = ip.as_v4().is_some_and(|v4| v4.is_broadcast());
    address.is_unspecified() || address.is_multicast() || is_broadcast
}

impl fmt::Display for PathAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = self.source {
            write!(f, "ip:{source},")?;
        }
        write!(f, "ip:{}", self.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const LONG: &str = "ip:[fd00:1111:2222:3333:4444:5555:6666:7777],\
         ip:[fd00:1111:2222:3333:4444:5555:6666:7777]";

    #[test]
    fn what_is_an_address_is_read_and_written_again() {
        #[rustfmt::skip]
        let good = [
            ("ip:1.1.1.1", "ip:1.1.1.1"),
            ("ip:1.1.1.1\n", "ip:1.1.1.1"),
            ("ip:1.1.1.1,ip:1.1.1.2", "ip:1.1.1.1,ip:1.1.1.2"),
            ("ip:1.1.1.1@ip:1.1.1.2", "ip:1.1.1.1,ip:1.1.1.2"),
            ("ip:10.0.0.255", "ip:10.0.0.255"),
            ("ip:127.0.0.1", "ip:127.0.0.1"),
            ("ip:fe80::1", "ip:fe80::1"),
            ("ip:[fe80::1]", "ip:fe80::1"),
            ("ip:[fe80::1],ip:fe80::2", "ip:fe80::1,ip:fe80::2"),
            ("ip:::1", "ip:::1"),
            ("ip:FD00::A", "ip:fd00::a"),
            ("ip:::ffff:1.2.3.4", "ip:1.2.3.4"),
            (LONG, "ip:fd00:1111:2222:3333:4444:5555:6666:7777,\
                    ip:fd00:1111:2222:3333:4444:5555:6666:7777"),
        ];
        for (text, written) in good {
            let addr = PathAddr::parse(text.as_bytes()).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(addr.to_string(), written);
            assert_eq!(PathAddr::parse(written.as_bytes()), Ok(addr));
        }
    }

    /// Story 33.
    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("ip:{}", "1".repeat(126));
        #[rustfmt::skip]
        let bad = [
            ("", Error::Invalid), ("\n", Error::Invalid), ("ip:", Error::Invalid),
            ("1.1.1.1", Error::Invalid), ("ip:1.1.1", Error::Invalid),
            ("ip:1.1.1.1.1", Error::Invalid), ("ip:256.1.1.1", Error::Invalid),
            ("ip:01.1.1.1", Error::Invalid), ("ip:1.1.1.1 ", Error::Invalid),
            (" ip:1.1.1.1", Error::Invalid), ("ip: 1.1.1.1", Error::Invalid),
            ("ip:1.1.1.1\n\n", Error::Invalid), ("ip:1.1.1.1\r\n", Error::Invalid),
            ("ip:1.1.1.1\0", Error::Invalid), ("ip:1.1.1.1,", Error::Invalid),
            (",ip:1.1.1.1", Error::Invalid), ("@", Error::Invalid), (",", Error::Invalid),
            ("ip:1.1.1.1,,ip:1.1.1.2", Error::Invalid),
            ("ip:1.1.1.1,@ip:1.1.1.2", Error::Invalid),
            ("ip:1.1.1.1,ip:1.1.1.2,ip:1.1.1.3", Error::Invalid),
            ("ip:1.1.1.1,ip:fe80::1", Error::Invalid), ("ip:fe80::1,ip:1.1.1.1", Error::Invalid),
            ("ip:0.0.0.0", Error::Invalid), ("ip:::", Error::Invalid),
            ("ip:0.0.0.0,ip:1.1.1.1", Error::Invalid), ("ip:224.0.0.1", Error::Invalid),
            ("ip:255.255.255.255", Error::Invalid), ("ip:ff02::1", Error::Invalid),
            ("ip:[fe80::1", Error::Invalid), ("ip:fe80::1]", Error::Invalid),
            ("ip:[[fe80::1]]", Error::Invalid), ("ip:[1.1.1.1]", Error::Invalid),
            ("ip:fe80::1%eth0", Error::Invalid), ("ip:1.1.1.1:80", Error::Invalid),
            ("ip:name", Error::Invalid), ("IP:1.1.1.1", Error::ProtocolUnsupported),
            ("gid:fe80::1", Error::ProtocolUnsupported),
            ("ip:1.1.1.1,gid:fe80::1", Error::ProtocolUnsupported),
            ("ib:1.1.1.1", Error::ProtocolUnsupported), ("fe80::1", Error::Invalid),
            ("::1", Error::Invalid), ("ipx:1.1.1.1", Error::ProtocolUnsupported),
            (&long, Error::NameTooLong),
        ];
        for (text, error) in bad {
            assert_eq!(PathAddr::parse(text.as_bytes()), Err(error), "{text:?}");
        }
        assert_eq!(PathAddr::parse(b"ip:1.1.1.\xff"), Err(Error::Invalid));
    }

    #[test]
    fn bytes_beyond_the_length_do_not_count() {
        let text = b"ip:1.1.1.12,ip:1.1.1.2";
        let addr = PathAddr::parse(&text[..10]).unwrap();
        assert_eq!(addr.to_string(), "ip:1.1.1.1");
    }

    #[test]
    fn noise_is_refused_or_comes_back_as_it_is_written() {
        let alphabet = b"ip:1.2,@[]f\nx ";
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let len = rng.below(24) as usize;
            let any = |_| alphabet[rng.below(alphabet.len() as u64) as usize];
            let bytes: Vec<u8> = (0..len).map(any).collect();
            if let Ok(addr) = PathAddr::parse(&bytes) {
                assert_eq!(PathAddr::parse(addr.to_string().as_bytes()), Ok(addr));
            }
        }
    }
}
