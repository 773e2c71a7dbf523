//! How much of the receive memory the requests of one peer may hold.

/// On whose account the bytes of a message go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Share {
    /// A response, to a call of ours.
    #[default]
    Response,
    /// A request, of the peer in that slot.
    Request(u32),
}

/// What the requests of each peer hold of a pool: a quarter, at most. Decision 19.
///
/// Whoever holds nothing may have one message of any length, since in a small pool a quarter is
/// less than that.
#[derive(Debug, Default)]
pub struct Shares {
    peer_max: u32,
    /// By the peer's slot. A new tenant of a slot inherits what is held still; it is little, and
    /// given back in the end.
    peers: Vec<u32>,
}

impl Shares {
    /// For a pool of `pool_len` bytes.
    pub fn new(pool_len: u32) -> Self {
        Self {
            peer_max: pool_len / 4,
            peers: Vec::new(),
        }
    }

    /// Whether one peer's requests may hold so much more.
    pub fn admits_peer(&self, peer: u32, bytes: u32) -> bool {
        let held = self.peers.get(peer as usize).copied().unwrap_or(0);
        held == 0 || self.peer_max - held.min(self.peer_max) >= bytes
    }

    /// Takes `bytes` more, if they may be held.
    #[inline]
    pub fn take(&mut self, share: Share, bytes: u32) -> bool {
        let Share::Request(peer) = share else {
            return true;
        };
        if let Some(held) = self.peers.get_mut(peer as usize)
            && *held + bytes <= self.peer_max
        {
            *held += bytes;
            return true;
        }
        self.take_first(peer, bytes)
    }

    /// As [`Self::take`], for a peer that was not seen before or may hold nothing else.
    #[cold]
    fn take_first(&mut self, peer: u32, bytes: u32) -> bool {
        let is_admitted = self.admits_peer(peer, bytes);
        if is_admitted {
            let peer = peer as usize;
            if peer >= self.peers.len() {
                self.peers.resize(peer + 1, 0);
            }
            self.peers[peer] += bytes;
        }
        is_admitted
    }

    #[inline]
    pub fn give_back(&mut self, share: Share, bytes: u32) {
        if let Share::Request(peer) = share {
            self.peers[peer as usize] -= bytes;
        }
    }

    /// What all requests hold, bytes: for checks.
    pub fn held(&self) -> u32 {
        self.peers.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 1,000 B a peer may have 250; what responses hold does not count.
    #[test]
    fn a_peer_has_a_quarter() {
        let mut shares = Shares::new(1000);
        for peer in 0..3 {
            assert!(shares.take(Share::Request(peer), 100));
            assert!(!shares.take(Share::Request(peer), 151));
            assert!(shares.take(Share::Request(peer), 150));
        }
        assert!(shares.take(Share::Response, 1000));
        shares.give_back(Share::Request(1), 100);
        assert!(!shares.take(Share::Request(1), 101) && shares.take(Share::Request(1), 100));
        assert!(!shares.take(Share::Request(0), 1));
        assert_eq!(shares.held(), 750);
    }

    #[test]
    fn who_holds_nothing_may_have_one_message_of_any_length() {
        let mut shares = Shares::new(1000);
        assert!(shares.take(Share::Request(0), 900) && !shares.take(Share::Request(0), 1));
        assert!(shares.take(Share::Request(1), 300));
        shares.give_back(Share::Request(0), 900);
        assert!(shares.take(Share::Request(0), 300));
        assert_eq!(shares.held(), 600);
    }
}
