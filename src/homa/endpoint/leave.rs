//! Leaving: what should be out before a socket goes, and what a peer that went leaves behind.

use crate::homa::control::{Body, Control};
use crate::homa::event::SocketKey;
use crate::homa::peer::{Peer, SAVED_ACKS_MAX};
use crate::homa::rpc::{Rpc, State};
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::Common;

use super::Endpoint;

impl Endpoint {
    /// Whether nothing of a socket is on its way: its requests are done, its responses
    /// acknowledged, and no control packet waits to be sent. Looks at all RPCs.
    pub fn is_settled(&self, socket: SocketKey) -> bool {
        let is_its = |rpc: &Rpc| rpc.socket == socket && !self.is_over(rpc);
        let mut rpcs = self.rpcs.iter().filter(|(_, rpc)| is_its(rpc));
        self.control.is_empty()
            && rpcs.all(|(_, rpc)| match rpc.state {
                State::Sending | State::Receiving | State::Replying => false,
                State::Incoming | State::Requested | State::InService => true,
            })
    }

    /// Sends the acks that wait for a packet to go along with, to all peers, in the name of
    /// `socket`: there may be no such packet any more.
    pub fn send_saved_acks(&mut self, socket: SocketKey) {
        let Some(sport) = self.port(socket) else {
            return;
        };
        for key in self.peers.keys() {
            // One packet for each: they are few, and this is the end.
            for _ in 0..SAVED_ACKS_MAX {
                let Some(ack) = self.peers.get_mut(key).take_ack() else {
                    break;
                };
                let (id, dport) = (ack.client_id, ack.server_port);
                self.queue(Control {
                    peer: key,
                    common: Common { sport, dport, id },
                    body: Body::Ack,
                });
            }
        }
    }

    /// The server RPCs of a peer that restarted are over: its new life may use their ids again, and
    /// would take their responses for its own.
    pub(super) fn end_servers_of(&mut self, now: Instant, peer: Key<Peer>) {
        if self.peers.get(peer).rpc_count > 0 {
            self.begin_reaping(now);
        }
    }
}
