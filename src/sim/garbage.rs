//! Frames that no honest host sends: noise, lies, and headers that are bent or cut short.

use arrayvec::ArrayVec;

use crate::addr::Ip;
use crate::rng::Rng;
use crate::wire::homa::{
    Ack, Acks, Common, Cutoffs, Data, Grant, Packet, Placement, Resend, RpcId, emit,
};

const ETHERNET_LEN: usize = 14;
const HEADERS_LEN: usize = ETHERNET_LEN + 20;
const FRAME_MAX: usize = 1514;

/// Protocols that a stack of ours looks into: ICMP, TCP, UDP and Homa.
const PROTOCOLS: [u8; 4] = [1, 6, 17, 146];

/// Makes one after another, each by chance.
#[derive(Debug)]
pub struct Garbage {
    rng: Rng,
    /// The host they are made for.
    to_mac: [u8; 6],
    to: Ip,
    /// Whoever is said to have sent them.
    from_mac: [u8; 6],
    from: Vec<Ip>,
    ports: Vec<u16>,
    frame: Vec<u8>,
}

impl Garbage {
    /// For the host `to`, as if from the hosts `from`, of which there is at least one. Some of it
    /// names one of `ports`.
    pub fn new(seed: u64, to: ([u8; 6], Ip), from: ([u8; 6], Vec<Ip>), ports: Vec<u16>) -> Self {
        Self {
            rng: Rng::new(seed),
            to_mac: to.0,
            to: to.1,
            from_mac: from.0,
            from: from.1,
            ports,
            frame: vec![0; FRAME_MAX],
        }
    }

    /// The next one.
    pub fn frame(&mut self) -> &[u8] {
        let len = match self.rng.below(8) {
            0 => self.noise(0),
            1 => self.noise(ETHERNET_LEN),
            2 => self.ip_with_noise(),
            3 => self.arp(),
            4 => self.bent(),
            5 => self.cut_short(),
            6 => self.wrong_length(),
            _ => self.homa(),
        };
        &self.frame[..len]
    }

    /// A frame with no more wrong about it than who sends it.
    pub fn carry(&self, from: Ip, common: &Common, packet: &Packet<'_>) -> Vec<u8> {
        let mut frame = vec![0; FRAME_MAX];
        let len = emit(common, packet, &mut frame[HEADERS_LEN..]);
        frame.truncate(HEADERS_LEN + len);
        self.write_ip(&mut frame, from, (146, HEADERS_LEN - ETHERNET_LEN + len));
        frame
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn fill(&mut self, range: std::ops::Range<usize>) {
        for byte in &mut self.frame[range] {
            *byte = self.rng.next_u64() as u8;
        }
    }

    /// Noise after `known` bytes of Ethernet header.
    fn noise(&mut self, known: usize) -> usize {
        let len = known + self.below(200);
        self.ethernet([8, 0]);
        self.fill(known..len);
        len
    }

    fn ip_with_noise(&mut self) -> usize {
        let len = HEADERS_LEN + self.below(200);
        self.fill(HEADERS_LEN..len);
        let protocol = PROTOCOLS[self.below(PROTOCOLS.len())];
        self.ip(protocol, len - ETHERNET_LEN);
        if protocol == 1 && len >= HEADERS_LEN + 8 {
            // Destination unreachable of some kind, with its checksum.
            self.frame[HEADERS_LEN] = 3;
            self.frame[HEADERS_LEN + 1] %= 4;
            self.frame[HEADERS_LEN + 2..HEADERS_LEN + 4].fill(0);
            let sum = checksum(&self.frame[HEADERS_LEN..len]);
            self.frame[HEADERS_LEN + 2..HEADERS_LEN + 4].copy_from_slice(&sum);
        }
        len
    }

    /// An ARP message with some fields as they should be.
    fn arp(&mut self) -> usize {
        const LEN: usize = ETHERNET_LEN + 28;
        self.ethernet([8, 6]);
        self.fill(ETHERNET_LEN..LEN);
        if self.below(4) > 0 {
            let operation = 1 + self.below(2) as u8;
            self.frame[ETHERNET_LEN..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
        }
        if self.below(2) > 0 {
            let (from, to) = (self.sender(), octets(self.to));
            self.frame[28..32].copy_from_slice(&from);
            self.frame[38..42].copy_from_slice(&to);
        }
        match self.below(4) {
            0 => self.below(LEN),
            _ => LEN,
        }
    }

    /// A Homa packet that makes sense by itself, though nobody asked for it.
    fn homa(&mut self) -> usize {
        let common = Common {
            sport: self.port(),
            dport: self.port(),
            id: RpcId(self.id()),
        };
        let payload_len = [1, 8, 100, 1424][self.below(4)];
        let payload = vec![self.rng.next_u64() as u8; payload_len];
        let packet = self.packet(&payload);
        let len = HEADERS_LEN + emit(&common, &packet, &mut self.frame[HEADERS_LEN..]);
        self.ip(146, len - ETHERNET_LEN);
        len
    }

    fn packet<'a>(&mut self, payload: &'a [u8]) -> Packet<'a> {
        let priority = self.rng.next_u64() as u8;
        match self.rng.below(12) {
            0 => Packet::Grant(Grant {
                offset: self.length(),
                priority,
            }),
            1 => Packet::Resend(Resend {
                offset: self.length(),
                length: Some(self.length()).filter(|len| len % 2 == 0),
                priority,
            }),
            2 => Packet::Unknown,
            3 => Packet::Busy,
            4 => Packet::Cutoffs(Cutoffs {
                unsched_cutoffs: std::array::from_fn(|_| self.length()),
                version: self.rng.below(3) as u16,
            }),
            5 => Packet::Freeze,
            6 => Packet::NeedAck,
            7 => {
                let count = self.below(6);
                Packet::Ack(Acks(
                    (0..count).map(|_| self.ack()).collect::<ArrayVec<_, 5>>(),
                ))
            }
            _ => Packet::Data(self.data(), payload),
        }
    }

    fn data(&mut self) -> Data {
        Data {
            message_length: self.length(),
            incoming: self.length(),
            ack: Some(self.ack()).filter(|ack| ack.client_id.0 != 0),
            cutoff_version: self.rng.below(3) as u16,
            retransmit: self.below(2) == 0,
            empty_reply: self.below(4) == 0,
            life: self.rng.below(3) as u16,
            offset: [0, self.length()][self.below(2)],
            placement: [Placement::InSequence, Placement::Explicit][self.below(2)],
        }
    }

    fn ack(&mut self) -> Ack {
        Ack {
            client_id: RpcId(self.id()),
            server_port: self.port(),
        }
    }

    /// Some bytes of its header are not what they were.
    fn bent(&mut self) -> usize {
        let len = self.homa();
        for _ in 0..=self.below(4) {
            let at = HEADERS_LEN + self.below(60);
            self.frame[at.min(len - 1)] = self.rng.next_u64() as u8;
        }
        if self.below(4) == 0 {
            self.fill(ETHERNET_LEN..HEADERS_LEN); // The IP header too.
        }
        len
    }

    /// It ends early, and its IP header knows or does not.
    fn cut_short(&mut self) -> usize {
        let whole = self.homa();
        let len = HEADERS_LEN + self.below(whole - HEADERS_LEN);
        if self.below(2) == 0 {
            self.ip(146, len - ETHERNET_LEN);
        }
        len
    }

    /// Its IP header says that it is shorter or longer than it is.
    fn wrong_length(&mut self) -> usize {
        let len = self.homa();
        let said = (len - ETHERNET_LEN + self.below(64)).saturating_sub(32);
        self.ip(146, said);
        len
    }

    fn ethernet(&mut self, ethertype: [u8; 2]) {
        self.frame[..6].copy_from_slice(&self.to_mac);
        self.frame[6..12].copy_from_slice(&self.from_mac);
        self.frame[12..14].copy_from_slice(&ethertype);
    }

    fn ip(&mut self, protocol: u8, len: usize) {
        let from = self.from[self.rng.below(self.from.len() as u64) as usize];
        let mut frame = std::mem::take(&mut self.frame);
        self.write_ip(&mut frame, from, (protocol, len));
        self.frame = frame;
    }

    /// Ethernet and IP headers of a packet that says it is so long.
    fn write_ip(&self, frame: &mut [u8], from: Ip, (protocol, len): (u8, usize)) {
        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = &mut frame[ETHERNET_LEN..HEADERS_LEN];
        header.fill(0);
        // Version 4, five words, "do not fragment", 64 hops.
        (header[0], header[6], header[8], header[9]) = (0x45, 0x40, 64, protocol);
        header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        header[12..16].copy_from_slice(&octets(from));
        header[16..20].copy_from_slice(&octets(self.to));
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum);
    }

    fn sender(&mut self) -> [u8; 4] {
        let place = self.below(self.from.len());
        octets(self.from[place])
    }

    fn port(&mut self) -> u16 {
        let place = self.below(self.ports.len() + 1);
        let any = self.rng.next_u64() as u16;
        self.ports.get(place).copied().unwrap_or(any)
    }

    /// Often a small one, so that packets of one RPC meet.
    fn id(&mut self) -> u64 {
        let id = self.rng.next_u64();
        [id, id % 1000, id % 16, u64::MAX - id % 2][self.below(4)]
    }

    fn length(&mut self) -> u32 {
        let any = self.rng.next_u64() as u32;
        let lengths = [
            0,
            1,
            100,
            1424,
            any % 10_000,
            any % 1_100_000,
            1_000_000,
            u32::MAX,
            any,
        ];
        lengths[self.below(lengths.len())]
    }
}

fn octets(ip: Ip) -> [u8; 4] {
    ip.as_v4().expect("an IPv4 address").octets()
}

/// The checksum of IP and ICMP, over bytes whose own place for it is zero.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
