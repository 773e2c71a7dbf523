//! One RPC, as one of its two sides sees it.

use crate::homa::event::{RunKey, SocketKey};
use crate::homa::msg_in::{MsgIn, Place};
use crate::homa::msg_out::MsgOut;
use crate::homa::peer::Peer;
use crate::homa::share::Share;
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::{Common, RpcId};

/// One RPC.
///
/// It lives in an [`Arena`](crate::arena::Arena), so all fields are there in every state, and the
/// state tells which of them count: a state that carried its own would be moved with each change.
#[derive(Debug, Default)]
pub struct Rpc {
    /// As this side knows it: even at the client, odd at the server.
    pub id: RpcId,
    pub peer: Key<Peer>,
    pub peer_port: u16,
    /// Of our socket when the RPC began.
    pub port: u16,
    pub state: State,
    /// Of the request, while it waits to be taken.
    pub empty_reply: bool,
    pub socket: SocketKey,
    /// The user's, told when a client RPC is over.
    pub tag: u64,
    /// A server RPC's keyed hash, under which it is filed.
    pub hash: u64,
    /// The peer's incarnation when the RPC began.
    pub incarnation: u16,
    /// When the peer was last heard, or last had nothing to tell.
    pub heard_tick: u32,
    /// When the last RESEND or NEED_ACK went out, or the wait for pages began.
    pub asked_tick: u32,
    /// Ticks to the next RESEND after that; grows while the peer says BUSY.
    pub ask_interval: u32,
    /// NEED_ACKs sent.
    pub need_acks: u32,
    /// When the last byte of the response went out.
    pub sent_tick: u32,
    /// It waits for its turn to ask its peer.
    pub stands_in_line: bool,
    /// The request's bytes, in [`State::Requested`].
    pub run: RunKey,
    /// Boxed, as most messages are one packet long and whole at once.
    pub message: Option<Box<MsgIn>>,
    pub out: MsgOut,
}

/// How far it is. The first two are a client's, the rest a server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// `out` is on its way.
    Sending,
    /// `message` comes in. `out` is kept: the server may still ask for any part.
    Receiving,
    /// `message` comes in, or its first packet is about to.
    #[default]
    Incoming,
    /// The user was told, and has not taken the request, which is in `run`.
    Requested,
    /// The user has the request and owes us a response.
    InService,
    /// `out` is kept until the client acknowledges: it may still ask for any part.
    Replying,
}

impl Rpc {
    /// Begins an RPC in place of one that is over, which left neither `message` nor bytes in
    /// `out`. The state and what belongs to it are the caller's to write.
    #[inline]
    pub fn begin(
        &mut self,
        id: RpcId,
        (peer, peer_port): (Key<Peer>, u16),
        (socket, port): (SocketKey, u16),
        tick: u32,
        ask_interval: u32,
    ) {
        self.id = id;
        self.peer = peer;
        self.peer_port = peer_port;
        self.socket = socket;
        self.port = port;
        self.heard_tick = tick;
        self.asked_tick = tick;
        self.sent_tick = tick;
        self.ask_interval = ask_interval;
        self.need_acks = 0;
        self.stands_in_line = false;
    }

    /// The header of a packet we send for it.
    #[inline]
    pub fn common(&self) -> Common {
        Common {
            sport: self.port,
            dport: self.peer_port,
            id: self.id,
        }
    }

    /// When the request was made, at a client.
    pub fn asked_at(&self) -> Option<Instant> {
        matches!(self.state, State::Sending | State::Receiving).then_some(self.out.birth)
    }

    /// On whose account its incoming message goes.
    #[inline]
    pub fn share(&self) -> Share {
        match self.id.is_client() {
            true => Share::Response,
            false => Share::Request(self.peer.index()),
        }
    }

    #[inline]
    pub fn has_out(&self) -> bool {
        matches!(
            self.state,
            State::Sending | State::Receiving | State::Replying
        )
    }

    #[inline]
    pub fn msg_out(&self) -> Option<&MsgOut> {
        self.has_out().then_some(&self.out)
    }

    #[inline]
    pub fn msg_out_mut(&mut self) -> Option<&mut MsgOut> {
        if self.has_out() {
            Some(&mut self.out)
        } else {
            None
        }
    }

    /// Whether nothing more of its incoming message may come before we give pages or grants.
    pub fn is_held(&self) -> bool {
        let message = self.message.as_ref();
        message.is_none_or(|message| message.place == Place::Waiting || message.has_all_granted())
    }

    /// Whether its incoming message waits for pages.
    pub fn is_waiting(&self) -> bool {
        let message = self.message.as_ref();
        message.is_some_and(|message| message.place == Place::Waiting)
    }

    /// Whether the handler may have run, so that it must not run again.
    #[inline]
    pub fn was_handed_over(&self) -> bool {
        matches!(self.state, State::InService | State::Replying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homa::event::{Notify, Payload};
    use crate::homa::msg_out::Cut;

    /// An RPC that begins in this place; what is the caller's to write is written.
    fn begun(mut rpc: Rpc) -> String {
        let (peer, socket) = (Key::from_parts(3, 4), Key::from_parts(5, 6));
        let cut = Cut {
            payload_max: 1400,
            unsched: 5000,
        };
        rpc.begin(RpcId(8), (peer, 40), (socket, 99), 70, 5);
        rpc.out
            .begin(Payload::EmptyReply, 1, cut, Instant(9), Notify::Never);
        rpc.state = State::Replying;
        (rpc.tag, rpc.hash, rpc.incarnation) = (1, 2, 3);
        (rpc.run, rpc.empty_reply) = (Key::default(), false);
        format!("{rpc:?}")
    }

    #[test]
    fn an_rpc_in_the_place_of_another_inherits_nothing() {
        let mut over = Rpc {
            heard_tick: 60,
            asked_tick: 61,
            ask_interval: 40,
            need_acks: 9,
            sent_tick: 62,
            stands_in_line: true,
            ..Rpc::default()
        };
        let out = &mut over.out;
        (out.len, out.sent, out.granted) = (9000, 8000, 8500);
        (out.retransmit_filed, out.is_parked) = (true, true);
        (out.sched_priority, out.notify) = (5, Notify::Delivered(7));
        out.end();
        assert_eq!(begun(over), begun(Rpc::default()));
    }
}
