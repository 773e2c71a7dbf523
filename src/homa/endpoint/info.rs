//! What is told of a socket's RPCs to those who ask.

use crate::addr::Addr;
use crate::homa::event::{RpcKey, SocketKey};
use crate::homa::rpc::{Rpc, State};
use crate::wire::homa::RpcId;

use super::Endpoint;

/// How far an RPC is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcInfo {
    /// Bytes of our message, 0 while there is none.
    pub tx_len: u32,
    /// Those that were handed to the device.
    pub tx_sent: u32,
    /// Those that may be.
    pub tx_granted: u32,
    /// Bytes of the peer's message, 0 while nothing of it came.
    pub rx_len: u32,
    /// Those that are here.
    pub rx_received: u32,
    /// Those that may come without a further grant.
    pub rx_granted: u32,
    /// Stretches that are missing before bytes that came, and their bytes.
    pub rx_holes: u32,
    pub rx_hole_bytes: u32,
    /// Its message waits for receive pages.
    pub is_waiting: bool,
    /// A request that is whole, and not taken.
    pub is_requested: bool,
    /// A request that was taken, and not answered.
    pub is_in_service: bool,
}

impl Endpoint {
    /// Whose RPC it is; `None` if it is gone.
    pub fn socket_of(&self, rpc: RpcKey) -> Option<SocketKey> {
        self.rpcs.get(rpc).map(|rpc| rpc.socket)
    }

    /// All RPCs of a socket that is still open. Rule RP-51.
    pub fn rpc_infos(&self, socket: SocketKey) -> impl Iterator<Item = (RpcId, Addr, RpcInfo)> {
        let rpcs = self.rpcs.iter().map(|(_, rpc)| rpc);
        rpcs.filter(move |rpc| rpc.socket == socket).map(|rpc| {
            let peer = Addr::new(self.peers.get(rpc.peer).ip, rpc.peer_port);
            (rpc.id, peer, self.info_of(rpc))
        })
    }

    fn info_of(&self, rpc: &Rpc) -> RpcInfo {
        let mut info = RpcInfo {
            is_waiting: rpc.is_waiting(),
            is_requested: rpc.state == State::Requested,
            is_in_service: rpc.state == State::InService,
            ..RpcInfo::default()
        };
        if let Some(out) = rpc.msg_out() {
            (info.tx_len, info.tx_sent, info.tx_granted) = (out.len, out.sent, out.granted);
        }
        if let Some(message) = &rpc.message {
            let holes = message.holes();
            (info.rx_len, info.rx_received) = (message.len, message.received);
            info.rx_granted = message.granted;
            info.rx_holes = holes.len() as u32; // Few are kept apart.
            info.rx_hole_bytes = holes.iter().map(|hole| hole.range.len() as u32).sum();
        } else if rpc.state == State::Requested {
            let len = self.run_len(rpc.socket, rpc.run).unwrap_or(0);
            (info.rx_len, info.rx_received, info.rx_granted) = (len, len, len);
        }
        info
    }
}
