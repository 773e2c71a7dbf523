//! A NIC without hardware: what it receives is put in, what it sends is taken out.

use std::collections::VecDeque;
use std::ops::Range;

use crate::device::{Caps, Checksums, Device, NET_ROOM, RX_BURST, RxMeta, TX_BURST, TxMeta};

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// Frames a NIC holds in either direction. Source: DPDK's usual ring of 1,024.
const RING: usize = 1024;

/// One host's NIC.
#[derive(Debug)]
pub struct Nic {
    caps: Caps,
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    /// Committed since the last flush.
    committed: usize,
    slot: Vec<u8>,
    /// Frames that came while the receive ring was full.
    pub missed: u64,
    /// Frames whose check failed.
    pub corrupt: u64,
}

impl Nic {
    /// The NIC of host number `number`, for IP packets up to `mtu` bytes.
    pub fn new(number: u8, mtu: u16, link_mbps: u32) -> Self {
        let caps = Caps {
            mac: [2, 0, 0, 0, 0, number],
            mtu,
            link_mbps,
        };
        let slot = vec![0; NET_ROOM + usize::from(mtu)];
        let (received, sent) = (VecDeque::new(), VecDeque::new());
        Self {
            caps,
            received,
            sent,
            committed: 0,
            slot,
            missed: 0,
            corrupt: 0,
        }
    }

    /// A frame arrives from the wire.
    pub fn deliver(&mut self, frame: Vec<u8>) {
        if self.received.len() < RING {
            self.received.push_back(frame);
        } else {
            self.missed += 1;
        }
    }

    /// A frame arrives that is not as it was sent: hardware drops it.
    pub fn deliver_corrupt(&mut self) {
        self.corrupt += 1;
    }

    /// The next frame that goes out to the wire.
    pub fn take_sent(&mut self) -> Option<Vec<u8>> {
        self.sent.pop_front()
    }

    /// How many frames wait to be received.
    pub fn waiting(&self) -> usize {
        self.received.len()
    }

    /// Frames wait to be received.
    pub fn has_received(&self) -> bool {
        !self.received.is_empty()
    }
}

impl Device for Nic {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn rx_burst<S: FnMut(&[u8], RxMeta)>(&mut self, mut sink: S) -> usize {
        let count = self.received.len().min(RX_BURST);
        for frame in self.received.drain(..count) {
            sink(
                &frame,
                RxMeta {
                    checksums: Checksums::Unknown,
                },
            );
        }
        count
    }

    fn tx_room(&self) -> usize {
        TX_BURST - self.committed
    }

    fn tx_slot(&mut self) -> &mut [u8] {
        &mut self.slot
    }

    fn tx_commit(&mut self, frame: Range<usize>, _meta: TxMeta) {
        let frame = &self.slot[frame];
        assert!(
            frame.len() <= ETHERNET_LEN + usize::from(self.caps.mtu),
            "longer than the MTU"
        );
        self.sent.push_back(frame.to_vec());
        self.committed += 1;
    }

    fn flush(&mut self) {
        self.committed = 0;
    }
}
