//! The ways to peers: what waits for one, and what becomes of it.

use std::vec;

use crate::addr::{Ip, LinkId};
use crate::error::Error;
use crate::homa::event::RpcKey;
use crate::homa::mutant::{self, Mutant};
use crate::homa::peer::{Link, Peer};
use crate::slots::Key;
use crate::time::Instant;
use crate::wire::homa::Grant;

use super::{Body, Endpoint};

/// RPCs that leave their wait for a link in one call, at most.
const PARKED_PER_CALL: usize = 64;

/// RPCs that waited for a link, and what became of it.
#[derive(Debug)]
pub(super) struct Unparked {
    rpcs: vec::IntoIter<RpcKey>,
    link: Result<(), Error>,
}

impl Endpoint {
    /// The way to a peer was found: what waited for it goes out.
    pub fn handle_peer_up(&mut self, ip: Ip, link: LinkId) {
        let Some(peer) = self.peers.find(ip) else {
            return;
        };
        self.peers.get_mut(peer).link = Link::Up(link);
        let mut rpcs = self.peers.take_parked(peer).into_iter();
        if mutant::is_on(Mutant::ParkedForgotten) {
            return;
        }
        for key in rpcs.by_ref().take(PARKED_PER_CALL) {
            self.unpark(key);
        }
        self.keep_unparked(rpcs, Ok(()));
    }

    /// There is no way to a peer: what waited for one fails. Later RPCs try anew.
    pub fn handle_peer_failed(&mut self, now: Instant, ip: Ip, error: Error) {
        let Some(peer) = self.peers.find(ip) else {
            return;
        };
        self.peers.get_mut(peer).link = Link::Unknown;
        let mut rpcs = self.peers.take_parked(peer).into_iter();
        for key in rpcs.by_ref().take(PARKED_PER_CALL) {
            self.fail_parked(now, key, error);
        }
        self.keep_unparked(rpcs, Err(error));
    }

    /// The link to a peer is void: a new one is asked for if something waits for it, or by the
    /// next packet.
    pub fn handle_peer_lost(&mut self, ip: Ip) {
        let Some(peer) = self.peers.find(ip) else {
            return;
        };
        let peer = self.peers.get_mut(peer);
        peer.link = Link::Unknown;
        if !peer.parked().is_empty() {
            peer.link = Link::Asked;
            self.unresolved.push_back(ip);
        }
    }

    /// Files an RPC until its peer's link is up, and asks for the link.
    #[cold]
    pub(super) fn park(&mut self, peer: Key<Peer>, key: RpcKey) {
        let rpcs = &self.rpcs;
        self.peers.park(peer, key, |parked| !rpcs.contains(parked));
        let peer = self.peers.get_mut(peer);
        if peer.link == Link::Unknown {
            peer.link = Link::Asked;
            self.unresolved.push_back(peer.ip);
        }
    }

    /// A message may be granted more, and there is no link yet: the grant waits for it. Else the
    /// sender would learn of it by a RESEND only, ticks later.
    #[cold]
    pub(super) fn park_grant(&mut self, key: RpcKey, priority: u8) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        let peer = rpc.peer;
        if let Some(message) = &mut rpc.message
            && message.parked_grant.replace(priority).is_none()
        {
            self.park(peer, key);
        }
    }

    /// The rest has its turn later.
    fn keep_unparked(&mut self, rpcs: vec::IntoIter<RpcKey>, link: Result<(), Error>) {
        if rpcs.len() > 0 {
            self.unparked.push_back(Unparked { rpcs, link });
        }
    }

    /// Lets some more RPCs go out that waited for a link, or fail.
    #[cold]
    pub(super) fn unpark_more(&mut self, now: Instant) {
        for _ in 0..PARKED_PER_CALL {
            let Some(first) = self.unparked.front_mut() else {
                return;
            };
            let (key, link) = (first.rpcs.next(), first.link);
            match (key, link) {
                (Some(key), Ok(())) => self.unpark(key),
                (Some(key), Err(error)) => self.fail_parked(now, key, error),
                (None, _) => drop(self.unparked.pop_front()),
            }
        }
    }

    fn unpark(&mut self, key: RpcKey) {
        if self.has_ended(key) {
            return;
        }
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        let grant = rpc.message.as_mut().and_then(|message| {
            let (priority, offset) = (message.parked_grant.take()?, message.granted);
            Some(Grant { offset, priority })
        });
        let is_parked = rpc
            .msg_out_mut()
            .is_some_and(|out| std::mem::take(&mut out.is_parked));
        if let Some(grant) = grant {
            self.queue_control(key, Body::Grant(grant));
        }
        if is_parked {
            self.file_out(key);
        }
    }

    fn fail_parked(&mut self, now: Instant, key: RpcKey, error: Error) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        if let Some(message) = &mut rpc.message {
            message.parked_grant = None;
        }
        // The response may have come whole meanwhile: then nothing waits to be sent.
        if rpc.msg_out().is_some_and(|out| out.is_parked) {
            self.abort(now, key, error);
        }
    }
}
