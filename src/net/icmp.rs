//! ICMP: pings answered, undeliverable packets told and understood.
//!
//! A host tells that it has no such port or protocol. Net and host unreachable are for routers to
//! tell, which we are none of: we only understand them. Source: RFC 1122, section 3.2.2.1.

use smoltcp::wire::{Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet};

use super::headers::{HEADERS_LEN, IPV4_LEN, Template};
use crate::addr::{Addr, Ip};
use crate::time::{Duration, Instant};

pub(super) const PROTOCOL: u8 = 1;

const HEADER_LEN: usize = 8;

/// Bytes of an undeliverable packet that are sent back: enough for any Homa header.
const QUOTE_MAX: usize = 56;

/// Where ports and RPC id lie in a quoted packet, and how much of it holds them.
const PORTS_LEN: usize = 4;
const ID_AT: usize = 20;

/// Why a packet of ours was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreachable {
    /// Nobody listens there.
    Port,
    /// The host does not speak Homa.
    Protocol,
    /// A router, or the host itself, cannot or will not pass it on.
    Host,
    /// It is longer than a link on its way allows, and may not be cut.
    ///
    /// Deviation: to HomaModule the host is unreachable then. But other packets do reach it, and
    /// what helps is a smaller MTU; UDP tells it apart too. Source: Linux ip(7), `EMSGSIZE`.
    TooLong,
}

/// An ICMP message that concerns us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Ping,
    Unreachable(Quote),
}

/// What is left of the packet that was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quote {
    pub(super) reason: Unreachable,
    pub(super) protocol: u8,
    pub(super) from: Addr,
    pub(super) to: Addr,
    pub(super) id: Option<u64>,
}

/// Lets a burst pass, and then so many a second.
#[derive(Debug)]
pub(super) struct Limiter {
    burst: u64,
    /// When the bucket will be full again; the further ahead, the emptier it is.
    full_at: Instant,
}

/// Finds out what an ICMP packet with a right checksum says, if it is of use.
pub(super) fn parse(bytes: &[u8]) -> Option<Message> {
    let packet = Icmpv4Packet::new_checked(bytes).ok()?;
    match packet.msg_type() {
        Icmpv4Message::EchoRequest if packet.msg_code() == 0 => Some(Message::Ping),
        Icmpv4Message::DstUnreachable => {
            let reason = Unreachable::new(Icmpv4DstUnreachable::from(packet.msg_code()))?;
            Quote::parse(reason, &bytes[HEADER_LEN..]).map(Message::Unreachable)
        }
        _ => None,
    }
}

pub(super) fn checksum_is_valid(bytes: &[u8]) -> bool {
    Icmpv4Packet::new_checked(bytes).is_ok_and(|packet| packet.verify_checksum())
}

/// Writes the answer to a ping, whole frame, into `out`. `ping` is its ICMP part.
pub(super) fn write_pong(headers: &Template, ping: &[u8], out: &mut Vec<u8>) {
    out.resize(HEADERS_LEN, 0);
    out.extend_from_slice(ping);
    finish(headers, Icmpv4Message::EchoReply, 0, out);
}

/// Writes "port unreachable", whole frame, into `out`. `quoted` are the headers of the packet that
/// found nobody, as its sender would have written them.
pub(super) fn write_port_unreachable(
    headers: &Template,
    quoted: &Template,
    packet: &[u8],
    out: &mut Vec<u8>,
) {
    let mut quoted_headers = [0; HEADERS_LEN];
    quoted.write(&mut quoted_headers, packet.len() as u16, 0);
    let (_, ip_header) = quoted_headers.split_at(HEADERS_LEN - IPV4_LEN);
    let code = Icmpv4DstUnreachable::PortUnreachable;
    write_unreachable(headers, code, (ip_header, packet), out);
}

/// Writes "protocol unreachable", whole frame, into `out`. `quoted` is the packet of which nobody
/// knows what it is, its IP header apart.
pub(super) fn write_protocol_unreachable(
    headers: &Template,
    quoted: (&[u8], &[u8]),
    out: &mut Vec<u8>,
) {
    let code = Icmpv4DstUnreachable::ProtoUnreachable;
    write_unreachable(headers, code, quoted, out);
}

fn write_unreachable(
    headers: &Template,
    code: Icmpv4DstUnreachable,
    (ip_header, packet): (&[u8], &[u8]),
    out: &mut Vec<u8>,
) {
    out.resize(HEADERS_LEN + HEADER_LEN, 0);
    out.extend_from_slice(ip_header);
    out.extend_from_slice(&packet[..packet.len().min(QUOTE_MAX)]);
    finish(headers, Icmpv4Message::DstUnreachable, code.into(), out);
}

/// Fills in all headers before an ICMP packet's body.
fn finish(headers: &Template, message: Icmpv4Message, code: u8, out: &mut [u8]) {
    let (front, icmp) = out
        .split_first_chunk_mut::<HEADERS_LEN>()
        .expect("both callers made room for the headers");
    headers.write(front, icmp.len() as u16, 0);
    let mut icmp = Icmpv4Packet::new_unchecked(icmp);
    icmp.set_msg_type(message);
    icmp.set_msg_code(code);
    icmp.fill_checksum();
}

impl Unreachable {
    /// `None` for codes that nobody has given a meaning.
    fn new(code: Icmpv4DstUnreachable) -> Option<Self> {
        use Icmpv4DstUnreachable as Code;
        match code {
            Code::PortUnreachable => Some(Self::Port),
            Code::ProtoUnreachable => Some(Self::Protocol),
            Code::FragRequired => Some(Self::TooLong),
            Code::NetUnreachable
            | Code::HostUnreachable
            | Code::SrcRouteFailed
            | Code::DstNetUnknown
            | Code::DstHostUnknown
            | Code::SrcHostIsolated
            | Code::NetProhibited
            | Code::HostProhibited
            | Code::NetUnreachToS
            | Code::HostUnreachToS
            | Code::CommProhibited
            | Code::HostPrecedViol
            | Code::PrecedCutoff => Some(Self::Host),
            Code::Unknown(_) => None,
        }
    }

    /// Whether only the destination itself can know it.
    pub(super) const fn is_its_own(self) -> bool {
        match self {
            Self::Port | Self::Protocol => true,
            Self::Host | Self::TooLong => false,
        }
    }
}

impl Quote {
    /// `bytes` begin with the IP header that we, it is hoped, wrote: so without options.
    fn parse(reason: Unreachable, bytes: &[u8]) -> Option<Self> {
        let (header, packet) = bytes.split_first_chunk::<IPV4_LEN>()?;
        let ports = packet.first_chunk::<PORTS_LEN>()?;
        if header[0] != 0x45 {
            return None;
        }
        let ip = |at: usize| Ip::v4(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let id = packet.get(ID_AT..).and_then(|rest| rest.first_chunk());
        Some(Self {
            reason,
            protocol: header[9],
            from: Addr::new(ip(12), port(0)),
            to: Addr::new(ip(16), port(2)),
            id: id.map(|id| u64::from_be_bytes(*id)),
        })
    }
}

impl Limiter {
    /// 1,000 a second. Source: Linux `icmp_msgs_per_sec`.
    const INTERVAL: Duration = Duration::millis(1);

    /// At once, for closed ports. Source: Linux `icmp_msgs_burst`.
    pub(super) const PORTS_BURST: u64 = 50;

    /// At once, for protocols that are not ours: whoever sends many of them must not take the
    /// outbox from those who found a port closed.
    pub(super) const PROTOCOLS_BURST: u64 = 4;

    pub(super) const fn new(burst: u64) -> Self {
        Self {
            burst,
            full_at: Instant(0),
        }
    }

    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + Self::INTERVAL;
        let allowed = full_at.since(now) <= Self::INTERVAL.times(self.burst);
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_each_millisecond() {
        let mut limiter = Limiter::new(Limiter::PORTS_BURST);
        let at = |millis| Instant(0) + Duration::millis(millis);
        let passed = |limiter: &mut Limiter, now| (0..100).filter(|_| limiter.allows(now)).count();
        assert_eq!(passed(&mut limiter, at(1000)), 50);
        assert_eq!(passed(&mut limiter, at(1001)), 1);
        assert_eq!(passed(&mut limiter, at(1004)), 3);
        assert_eq!(passed(&mut limiter, at(9000)), 50);
    }

    #[test]
    fn a_quote_too_short_for_ports_or_with_options_is_of_no_use() {
        let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
        let mut header = [0; 20];
        header[0] = 0x45;
        icmp.extend(header);
        icmp.extend([0, 7, 0, 9]);
        for end in 0..icmp.len() {
            assert_eq!(parse(&icmp[..end]), None);
        }
        let Some(Message::Unreachable(quote)) = parse(&icmp) else {
            panic!("just long enough");
        };
        assert_eq!((quote.from.port, quote.to.port, quote.id), (7, 9, None));
        icmp[8] = 0x46;
        assert_eq!(parse(&icmp), None);
    }
}
