//! What must hold between any two calls, for the simulator's checks.
//!
//! Each check looks at the RPCs that live, and at no table as a whole unless that is small, so that
//! it can follow every turn of a run.

use crate::homa::event::{Payload, RpcKey, RunKey};
use crate::homa::msg_in::{MsgIn, Place};
use crate::homa::msg_out::MsgOut;
use crate::homa::rpc::{Rpc, State};

use super::Endpoint;

impl Endpoint {
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        self.check_tables();
        let mut waiting = 0;
        let (mut runs, mut lent_runs) = (Vec::new(), Vec::new());
        for (key, rpc) in self.rpcs.iter() {
            if self.is_over(rpc) {
                waiting += usize::from(rpc.is_waiting());
                self.collect_runs(rpc, &mut runs);
                continue;
            }
            self.check_filed(key, rpc);
            let held = match rpc.state {
                State::Requested => Some(rpc.run),
                _ => rpc.message.as_ref().and_then(|message| message.run()),
            };
            match self.sockets.lent(rpc.socket) {
                None => runs.extend(held),
                Some(_) => lent_runs.extend(held.map(|run| (rpc.socket, run))),
            }
            if matches!(rpc.state, State::Requested | State::InService) {
                assert!(rpc.message.is_none(), "a message in service: {rpc:?}");
                continue;
            }
            assert!(self.wheel.is_filed(key.index()), "no timer: {rpc:?}");
            if let Some(out) = rpc.msg_out() {
                self.check_out(key, out, &mut runs);
            }
            if let Some(message) = &rpc.message {
                self.check_in(key, message);
                waiting += usize::from(rpc.is_waiting());
            }
        }
        let lent = self.sockets.iter_lent();
        let lent_waiters: usize = lent.map(|(_, lent)| lent.waiter_count()).sum();
        let filed = self.pool.waiter_count() + lent_waiters;
        assert_eq!(waiting, filed, "RPCs that wait for pages");
        self.pool.check(&mut runs);
        for (socket, lent) in self.sockets.iter_lent() {
            let held = lent_runs.iter().filter(|(of, _)| *of == socket);
            lent.check(&held.map(|&(_, run)| run).collect::<Vec<_>>());
        }
    }

    fn check_tables(&self) {
        let slots = self.params.rpcs_max as usize;
        assert!(self.rpcs.len() <= slots && self.unacked.len() <= slots);
        let is_served =
            |rpc: &Rpc| rpc.state == State::InService && self.sockets.get(rpc.socket).is_some();
        let served = self.rpcs.iter().filter(|(_, rpc)| is_served(rpc)).count();
        let counted: u32 = self.sockets.iter().map(|socket| socket.in_service).sum();
        assert_eq!(served, counted as usize, "requests in service");
        let servers = self.rpcs.iter().filter(|(_, rpc)| !rpc.id.is_client());
        assert_eq!(servers.count(), self.server_count as usize, "server RPCs");
        let rpcs: u32 = self.peers.iter().map(|peer| peer.rpc_count).sum();
        assert_eq!(
            rpcs as usize,
            self.rpcs.len(),
            "RPCs counted at their peers"
        );
        assert!(self.peers.iter().count() <= self.params.peers_max as usize);
        assert_eq!(
            self.pool.held_by_requests(),
            self.pool.count_held_by_requests(),
            "bytes that requests hold"
        );
        self.grants.check();
        self.outgoing.check();
        self.wheel.check();
    }

    /// Each RPC is found by the name that packets call it by.
    fn check_filed(&self, key: RpcKey, rpc: &Rpc) {
        let found = match rpc.id.is_client() {
            true => self.find_client(rpc.id),
            false => self.find_server(rpc.id, rpc.peer, rpc.peer_port),
        };
        assert_eq!(found, Some(key), "not found by its name: {rpc:?}");
    }

    /// What an RPC holds that is over and not reaped yet.
    fn collect_runs(&self, rpc: &Rpc, runs: &mut Vec<RunKey>) {
        if rpc.state == State::Requested {
            runs.push(rpc.run);
        }
        if let Some(Payload::Received { run, .. }) = rpc.msg_out().map(|out| &out.payload) {
            runs.push(*run);
        }
        if let Some(Place::Run(run) | Place::First(run)) = rpc.message.as_ref().map(|m| m.place)
            && self.pool.place(run).is_some()
        {
            runs.push(run);
        }
    }

    fn check_out(&self, key: RpcKey, out: &MsgOut, runs: &mut Vec<RunKey>) {
        assert!(out.granted <= out.len && out.sent <= out.len, "{out:?}");
        let is_filed = out.is_parked || self.outgoing.contains(key);
        assert!(is_filed || !out.is_sendable(), "not to be sent: {out:?}");
        let is_owed = out.is_parked || out.retransmit_filed;
        assert!(is_owed || !out.owes(), "not to be sent again: {out:?}");
        if let Payload::Received { run, .. } = out.payload {
            runs.push(run);
        }
    }

    fn check_in(&self, key: RpcKey, message: &MsgIn) {
        message.check();
        if message.place == Place::Waiting {
            assert!(message.grantee.is_none(), "granted without pages");
        }
        if let Some(grantee) = message.grantee {
            assert_eq!(self.grants.rpc_of(grantee), Some(key), "another's grants");
        }
    }
}
