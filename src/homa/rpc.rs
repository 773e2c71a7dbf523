//! One RPC, as one of its two sides sees it.

use crate::homa::event::{RunKey, SocketKey};
use crate::homa::msg_in::{MsgIn, Place};
use crate::homa::msg_out::MsgOut;
use crate::homa::peer::Peer;
use crate::homa::share::Share;
use crate::slots::Key;
use crate::wire::homa::{Common, RpcId};

/// One RPC.
#[derive(Debug)]
pub struct Rpc {
    /// As this side knows it: even at the client, odd at the server.
    pub id: RpcId,
    pub peer: Key<Peer>,
    pub peer_port: u16,
    /// Of our socket when the RPC began.
    pub port: u16,
    pub socket: SocketKey,
    /// The user's, told when a client RPC is over.
    pub tag: u64,
    /// A server RPC's keyed hash, under which it is filed.
    pub hash: u64,
    /// The peer's incarnation when the RPC began.
    pub incarnation: u32,
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
    pub state: State,
}

/// How far it is. The first two are a client's, the rest a server's.
#[derive(Debug)]
pub enum State {
    Sending(MsgOut),
    /// The request is kept: the server may still ask for any part.
    Receiving(MsgOut, MsgIn),
    Incoming(MsgIn),
    /// The user was told, and has not taken the request.
    Requested(Whole),
    /// The user has the request and owes us a response.
    InService,
    /// Kept until the client acknowledges: it may still ask for any part.
    Replying(MsgOut),
    /// Only while one state gives way to the next.
    Moving,
}

/// A message that is all here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    pub run: RunKey,
    pub empty_reply: bool,
}

impl Rpc {
    /// The header of a packet we send for it.
    #[inline]
    pub fn common(&self) -> Common {
        Common {
            sport: self.port,
            dport: self.peer_port,
            id: self.id,
        }
    }

    /// On whose account its incoming message goes.
    #[inline]
    pub fn share(&self) -> Share {
        match self.id.is_client() {
            true => Share::Response,
            false => Share::Request(self.peer.index()),
        }
    }

    pub fn msg_out_mut(&mut self) -> Option<&mut MsgOut> {
        match &mut self.state {
            State::Sending(out) | State::Receiving(out, _) | State::Replying(out) => Some(out),
            State::Incoming(_) | State::Requested(_) | State::InService | State::Moving => None,
        }
    }

    pub fn msg_in_mut(&mut self) -> Option<&mut MsgIn> {
        match &mut self.state {
            State::Receiving(_, message) | State::Incoming(message) => Some(message),
            State::Sending(_)
            | State::Requested(_)
            | State::InService
            | State::Replying(_)
            | State::Moving => None,
        }
    }

    /// Whether its incoming message waits for pages.
    pub fn is_waiting(&self) -> bool {
        match &self.state {
            State::Receiving(_, message) | State::Incoming(message) => {
                message.place == Place::Waiting
            }
            State::Sending(_)
            | State::Requested(_)
            | State::InService
            | State::Replying(_)
            | State::Moving => false,
        }
    }

    /// Whether the handler may have run, so that it must not run again.
    pub fn was_handed_over(&self) -> bool {
        matches!(self.state, State::InService | State::Replying(_))
    }
}
