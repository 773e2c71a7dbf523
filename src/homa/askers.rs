//! RPCs whose RESENDs wait because their peer has been asked enough in this tick.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use crate::homa::event::RpcKey;
use crate::homa::peer::Peer;
use crate::slots::Key;

/// A line for each peer, so that each stuck RPC gets its turn. Decision 16.
///
/// Lines exist only while there is somebody in them.
#[derive(Debug, Default)]
pub struct Askers {
    lines: BTreeMap<Key<Peer>, VecDeque<RpcKey>>,
    /// The peer that was served last.
    last: Option<Key<Peer>>,
}

impl Askers {
    /// Puts an RPC at the end of its peer's line; the caller does so once until its turn comes.
    /// Those that are not `alive` any more leave it when it is about to grow.
    pub fn join(&mut self, peer: Key<Peer>, rpc: RpcKey, alive: impl Fn(RpcKey) -> bool) {
        let line = self.lines.entry(peer).or_default();
        if line.len() == line.capacity() {
            line.retain(|&rpc| alive(rpc));
        }
        line.push_back(rpc);
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn has_line(&self, peer: Key<Peer>) -> bool {
        self.lines.contains_key(&peer)
    }

    /// The peers whose lines are next, at most `count`; others follow the next time.
    pub fn next_peers(&mut self, count: usize) -> Vec<Key<Peer>> {
        let after = match self.last {
            Some(last) => self.lines.range((Excluded(last), Unbounded)),
            None => self.lines.range(..),
        };
        let before = self
            .lines
            .iter()
            .take_while(|(peer, _)| self.last.is_some_and(|last| **peer <= last));
        let peers: Vec<_> = after
            .chain(before)
            .map(|(peer, _)| *peer)
            .take(count)
            .collect();
        self.last = peers.last().copied();
        peers
    }

    /// The first in a peer's line; it is in it no longer.
    pub fn next(&mut self, peer: Key<Peer>) -> Option<RpcKey> {
        let line = self.lines.get_mut(&peer)?;
        let rpc = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&peer);
        }
        rpc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(index: u32) -> Key<Peer> {
        Key::from_parts(index, 1)
    }

    fn rpc(index: u32) -> RpcKey {
        Key::from_parts(index, 1)
    }

    #[test]
    fn a_line_is_first_come_first_served_and_goes_with_its_last() {
        let mut askers = Askers::default();
        (0..3).for_each(|index| askers.join(peer(1), rpc(index), |_| true));
        let served: Vec<_> = std::iter::from_fn(|| askers.next(peer(1))).collect();
        assert_eq!(served, [0, 1, 2].map(rpc));
        assert!(askers.is_empty() && !askers.has_line(peer(1)));
    }

    #[test]
    fn all_peers_get_their_turn_whatever_is_served_at_once() {
        for count in 1..6 {
            let mut askers = Askers::default();
            (0..5).for_each(|index| askers.join(peer(index), rpc(index), |_| true));
            let mut turns: Vec<_> = (0..5).flat_map(|_| askers.next_peers(count)).collect();
            turns.truncate(10.min(turns.len()));
            for (at, turn) in turns.iter().enumerate() {
                assert_eq!(*turn, peer(at as u32 % 5), "{count} at once");
            }
        }
    }

    #[test]
    fn those_that_ended_do_not_add_up() {
        let mut askers = Askers::default();
        (0..10_000).for_each(|index| askers.join(peer(0), rpc(index), |_| false));
        let left = std::iter::from_fn(|| askers.next(peer(0))).count();
        assert!(left < 10, "{left}");
    }
}
