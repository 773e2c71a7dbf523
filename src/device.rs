//! What a NIC queue must do for us. Implemented by a DPDK port and by the simulator's NIC.

use std::ops::Range;

/// Frames taken per receive burst.
pub const RX_BURST: usize = 32;

/// Frames handed over per transmit burst. Short bursts keep the frames in the L1 and L2 caches:
/// with 32 large messages ran a quarter slower.
pub const TX_BURST: usize = 16;

/// Where in a transmit slot the packet begins: room before it for Ethernet (14), a VLAN tag (4)
/// and the longer of the IP headers (40). Shorter headers simply start later.
pub const NET_ROOM: usize = 58;

/// What is fixed about a device once it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub mac: [u8; 6],
    /// Largest IP packet it carries, bytes.
    pub mtu: u16,
    /// Speed of the link, Mb/s; 0 if unknown.
    pub link_mbps: u32,
}

/// What the device found out about a received frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Not verified: virtual links deliver frames whose checksums were never computed.
    Unknown,
    Good,
    Bad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    pub checksums: Checksums,
}

/// What the device may do to a frame on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxMeta {
    /// Bytes of Ethernet header, VLAN tag included.
    pub l2_len: u8,
    /// Bytes of IP header.
    pub l3_len: u8,
    /// Homa's priority, 0 to 7, for devices with several queues.
    pub priority: u8,
}

/// One receive and one transmit queue. Used by static dispatch only.
pub trait Device {
    fn caps(&self) -> Caps;

    /// Shows each waiting frame, at most [`RX_BURST`], to `sink`; the frame is the device's again
    /// when `sink` returns. Tells how many there were.
    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, sink: S) -> usize;

    /// How many frames can still be committed before the next [`Self::flush`].
    fn tx_room(&self) -> usize;

    /// The next frame's bytes, in place, at least [`NET_ROOM`] + MTU of them, with any content.
    /// Only while [`Self::tx_room`] is not zero.
    fn tx_slot(&mut self) -> &mut [u8];

    /// Sends `frame`, a range of the bytes that [`Self::tx_slot`] showed.
    fn tx_commit(&mut self, frame: Range<usize>, meta: TxMeta);

    /// Hands all committed frames to the NIC; keeps, in order, what it did not take.
    fn flush(&mut self);
}
