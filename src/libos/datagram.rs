//! Pairing: which pushed datagram is the reply to which popped one.
//!
//! Homa knows requests and responses, datagram programs do not. So that an unmodified echo server
//! is a true Homa server, a push to a peer whose request was popped and not answered becomes the
//! response. In this order: (1) the pushed buffer is the popped one; (2) exactly one request of
//! that peer is open; (3) otherwise it is a new request. A program that only consumes never
//! replies: some time after it freed the buffer, or when too many are open, we reply for it.
//!
//! Nothing here sends; the desk asks and acts.

use std::collections::{HashMap, VecDeque};

use crate::addr::Addr;
use crate::homa::RpcKey;
use crate::keyed::Keyed;
use crate::slots::{Key, Slots};
use crate::time::Duration;

/// A request that was popped and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    rpc: RpcKey,
    peer: Addr,
    is_freed: bool,
}

/// The open requests of one datagram socket.
#[derive(Debug)]
pub(super) struct Pairing {
    opens: Slots<Open>,
    by_peer: HashMap<Addr, OfPeer, Keyed>,
    /// As they were popped; those answered since are still in it.
    popped: VecDeque<Key<Open>>,
    /// Those whose buffer was freed, with the end of their grace; likewise.
    freed: VecDeque<(Duration, Key<Open>)>,
    grace: Duration,
}

/// How many requests of one peer are open, and which one if it is one: all their keys, combined
/// by exclusive or, which for one is the key itself.
#[derive(Clone, Copy, Debug, Default)]
struct OfPeer {
    count: u32,
    indexes: u32,
    generations: u32,
}

impl Pairing {
    pub(super) fn new(open_max: u32, grace: Duration, keyed: Keyed) -> Self {
        Self {
            opens: Slots::new(open_max as usize),
            by_peer: HashMap::with_hasher(keyed),
            popped: VecDeque::new(),
            freed: VecDeque::new(),
            grace,
        }
    }

    /// A request goes to the application. Also gives an older one that must make room for it and
    /// is to be replied to now.
    pub(super) fn on_popped(&mut self, rpc: RpcKey, peer: Addr) -> (Key<Open>, Option<RpcKey>) {
        let evicted = if self.opens.is_full() {
            self.oldest()
        } else {
            None
        };
        let evicted = evicted.and_then(|key| self.close(key));
        let open = Open {
            rpc,
            peer,
            is_freed: false,
        };
        let key = self
            .opens
            .insert(open)
            .expect("the oldest just made room if it was full");
        self.by_peer.entry(peer).or_default().toggle(key, 1);
        if self.popped.len() >= 2 * self.opens.capacity() {
            let opens = &self.opens;
            self.popped.retain(|&key| opens.contains(key));
        }
        self.popped.push_back(key);
        (key, evicted)
    }

    /// The application freed a popped buffer, `lived` after the start: the grace begins.
    pub(super) fn on_freed(&mut self, key: Key<Open>, lived: Duration) {
        if let Some(open) = self.opens.get_mut(key)
            && !open.is_freed
        {
            open.is_freed = true;
            self.freed.push_back((lived + self.grace, key));
        }
    }

    /// The request that a datagram to `to` answers, and which is thereby closed. `popped` is the
    /// request of the pushed buffer, if it was popped.
    pub(super) fn answer(&mut self, popped: Option<Key<Open>>, to: Addr) -> Option<RpcKey> {
        let own = popped.filter(|&key| self.opens.get(key).is_some_and(|open| open.peer == to));
        let key = match own {
            Some(key) => key,
            None => self.by_peer.get(&to)?.only()?,
        };
        self.close(key)
    }

    /// A request whose grace is over, which is thereby closed: it gets an empty reply.
    pub(super) fn poll_expired(&mut self, lived: Duration) -> Option<RpcKey> {
        while let Some(&(until, key)) = self.freed.front() {
            let is_open = self.opens.contains(key);
            if is_open && until > lived {
                return None;
            }
            self.freed.pop_front();
            if is_open {
                return self.close(key);
            }
        }
        None
    }

    /// Any request that is open, and is thereby closed.
    pub(super) fn poll_open(&mut self) -> Option<RpcKey> {
        let key = self.oldest()?;
        self.close(key)
    }

    /// The one popped first; `close` sees to it that none before it is closed.
    fn oldest(&self) -> Option<Key<Open>> {
        self.popped.front().copied()
    }

    fn close(&mut self, key: Key<Open>) -> Option<RpcKey> {
        let open = self.opens.remove(key)?;
        // Keeps the list as short as the number open while replies come in order.
        while self
            .popped
            .front()
            .is_some_and(|&key| !self.opens.contains(key))
        {
            self.popped.pop_front();
        }
        if let Some(of_peer) = self.by_peer.get_mut(&open.peer) {
            of_peer.toggle(key, -1);
            if of_peer.count == 0 {
                self.by_peer.remove(&open.peer);
            }
        }
        Some(open.rpc)
    }
}

impl OfPeer {
    fn toggle(&mut self, key: Key<Open>, change: i32) {
        self.count = self.count.wrapping_add_signed(change);
        self.indexes ^= key.index();
        self.generations ^= key.generation();
    }

    fn only(&self) -> Option<Key<Open>> {
        (self.count == 1).then(|| Key::from_parts(self.indexes, self.generations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Ip;

    const GRACE: Duration = Duration::millis(10);

    fn pairing(open_max: u32) -> Pairing {
        Pairing::new(open_max, GRACE, Keyed::new(5))
    }

    fn rpc(n: u32) -> RpcKey {
        RpcKey::from_parts(n, 1)
    }

    fn peer(n: u8) -> Addr {
        Addr::new(Ip::v4(10, 0, 0, n), 7)
    }

    #[test]
    fn the_popped_buffer_answers_its_own_request_also_among_many() {
        let mut pairing = pairing(8);
        let keys: Vec<_> = (0..3)
            .map(|n| pairing.on_popped(rpc(n), peer(1)).0)
            .collect();
        assert_eq!(pairing.answer(Some(keys[1]), peer(1)), Some(rpc(1)));
        assert_eq!(pairing.answer(Some(keys[1]), peer(1)), None);
    }

    #[test]
    fn another_buffer_answers_the_only_open_request_of_that_peer() {
        let mut pairing = pairing(8);
        pairing.on_popped(rpc(1), peer(1));
        let (two, _) = pairing.on_popped(rpc(2), peer(2));
        pairing.on_popped(rpc(3), peer(2));
        assert_eq!(pairing.answer(None, peer(3)), None);
        assert_eq!(pairing.answer(None, peer(2)), None);
        assert_eq!(pairing.answer(Some(two), peer(1)), Some(rpc(1)));
        assert_eq!(pairing.answer(Some(two), peer(2)), Some(rpc(2)));
        assert_eq!(pairing.answer(None, peer(2)), Some(rpc(3)));
        assert!(pairing.by_peer.is_empty());
    }

    #[test]
    fn the_grace_runs_from_the_free_and_not_while_the_buffer_is_held() {
        let mut pairing = pairing(8);
        let (held, _) = pairing.on_popped(rpc(1), peer(1));
        let (freed, _) = pairing.on_popped(rpc(2), peer(2));
        let (answered, _) = pairing.on_popped(rpc(3), peer(3));
        pairing.on_freed(answered, Duration::millis(5));
        pairing.on_freed(freed, Duration::millis(6));
        pairing.answer(None, peer(3));
        assert_eq!(pairing.poll_expired(Duration::millis(15)), None);
        assert_eq!(pairing.poll_expired(Duration::millis(16)), Some(rpc(2)));
        assert_eq!(pairing.poll_expired(Duration::secs(9)), None);
        pairing.on_freed(held, Duration::secs(9));
        assert_eq!(pairing.poll_expired(Duration::secs(10)), Some(rpc(1)));
    }

    #[test]
    fn beyond_the_cap_the_oldest_makes_room() {
        let mut pairing = pairing(2);
        for n in 0..100 {
            let (_, evicted) = pairing.on_popped(rpc(n), peer(1));
            assert_eq!(evicted, n.checked_sub(2).map(rpc));
        }
        assert_eq!(pairing.poll_open(), Some(rpc(98)));
        assert_eq!(pairing.poll_open(), Some(rpc(99)));
        assert_eq!(pairing.poll_open(), None);
    }
}
