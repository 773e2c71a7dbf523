//! Frames bent so that they fit: a capture knows our side's RPCs by other names.

/// Where the fields of a Homa packet lie, from its beginning.
const SPORT_AT: usize = 0;
const DPORT_AT: usize = 2;
const ID_AT: usize = 20;

/// Bytes of an Ethernet and an IPv4 header, and of one of ICMP.
const HEADERS_LEN: usize = 34;
const ICMP_LEN: usize = 8;
const IPV4_LEN: usize = 20;

/// Puts our link address where the other's view of us stands, unless it spoke to all.
pub fn address_to(frame: &mut [u8], mac: [u8; 6]) {
    const ARP_TARGET_AT: usize = 32;
    if frame[0] & 1 == 0 {
        frame[..6].copy_from_slice(&mac);
        if frame[12..14] == [8, 6] {
            frame[ARP_TARGET_AT..ARP_TARGET_AT + 6].copy_from_slice(&mac);
        }
    }
}

/// Names our client RPC in a packet of its server's.
pub fn rename(frame: &mut [u8], port: u16, server_id: u64) {
    let packet = &mut frame[HEADERS_LEN..];
    packet[DPORT_AT..DPORT_AT + 2].copy_from_slice(&port.to_be_bytes());
    packet[ID_AT..ID_AT + 8].copy_from_slice(&server_id.to_be_bytes());
}

/// Names our client RPC in a packet of ours that an ICMP message quotes.
pub fn rename_quoted(frame: &mut [u8], port: u16, client_id: u64) {
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let icmp = &mut frame[HEADERS_LEN..end];
    let quoted = &mut icmp[ICMP_LEN + IPV4_LEN..];
    quoted[SPORT_AT..SPORT_AT + 2].copy_from_slice(&port.to_be_bytes());
    quoted[ID_AT..ID_AT + 8].copy_from_slice(&client_id.to_be_bytes());
    icmp[2..4].fill(0);
    let sum = checksum(icmp);
    icmp[2..4].copy_from_slice(&sum);
}

/// The answer to an ARP request: the one asked for is at `mac`.
pub fn arp_answer(request: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    const REQUEST: [u8; 2] = [0, 1];
    let arp = (request.get(12..14)? == [8, 6]).then(|| &request[14..])?;
    if arp.get(6..8)? != REQUEST {
        return None;
    }
    let (sender, target) = (&arp[8..18], &arp[24..28]);
    let parts: [&[u8]; 7] = [
        &request[6..12],
        &mac,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &mac,
        target,
        sender,
        &[],
    ];
    Some(parts.concat())
}

/// Source: RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}
