//! Messages that wait for receive pages.

use std::collections::BTreeSet;

use crate::homa::event::RpcKey;
use crate::homa::share::{Share, Shares};
use crate::time::Instant;

/// An RPC whose message found no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    pub len: u32,
    pub birth: Instant,
    pub rpc: RpcKey,
    pub share: Share,
}

/// All of them.
///
/// Responses and requests stand in lines of their own, since the one must not wait for the pages
/// of the other. Requests of a peer that has its share stand aside, so that nobody looks at them
/// in vain.
#[derive(Debug, Default)]
pub struct Waiting {
    responses: Line,
    requests: Line,
    /// By the peer's slot.
    aside: BTreeSet<(u32, Waiter)>,
    count: usize,
}

#[derive(Debug, Default)]
struct Line {
    /// The smallest first, then the oldest.
    by_size: BTreeSet<Waiter>,
    by_age: BTreeSet<(Instant, Waiter)>,
}

impl Line {
    fn insert(&mut self, waiter: Waiter) {
        self.by_size.insert(waiter);
        self.by_age.insert((waiter.birth, waiter));
    }

    fn remove(&mut self, waiter: &Waiter) -> bool {
        self.by_age.remove(&(waiter.birth, *waiter));
        self.by_size.remove(waiter)
    }
}

impl Waiting {
    pub fn insert(&mut self, waiter: Waiter) {
        self.line(waiter.share).insert(waiter);
        self.count += 1;
    }

    pub fn remove(&mut self, waiter: &Waiter) {
        let was_there = match waiter.share {
            Share::Response => self.responses.remove(waiter),
            Share::Request(peer) => {
                self.requests.remove(waiter) || self.aside.remove(&(peer, *waiter))
            }
        };
        self.count -= usize::from(was_there);
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The smallest request and the smallest response that their shares admit, the smaller first.
    /// `charge` tells what a length takes.
    pub fn smallest(&mut self, shares: &Shares, charge: fn(u32) -> u32) -> [Option<Waiter>; 2] {
        let request = self.admitted(shares, charge, |line| line.by_size.first().copied());
        let response = self.responses.by_size.first().copied();
        match (request, response) {
            (Some(request), Some(response)) if request < response => {
                [Some(request), Some(response)]
            }
            (request, None) => [request, None],
            (request, response) => [response, request],
        }
    }

    /// The oldest that its share admits.
    pub fn oldest(&mut self, shares: &Shares, charge: fn(u32) -> u32) -> Option<Waiter> {
        let first = |line: &Line| line.by_age.first().map(|&(_, waiter)| waiter);
        let request = self.admitted(shares, charge, first);
        let response = first(&self.responses);
        match (request, response) {
            (Some(request), Some(response)) if response.birth <= request.birth => Some(response),
            (request, response) => request.or(response),
        }
    }

    /// A peer holds less than it did: its smallest waiter stands in line again.
    pub fn call_back(&mut self, peer: u32) {
        let first = Waiter {
            len: 0,
            birth: Instant(0),
            rpc: RpcKey::from_parts(0, 0),
            share: Share::Response,
        };
        let next = self.aside.range((peer, first)..).next().copied();
        if let Some(entry) = next.filter(|&(of, _)| of == peer) {
            self.aside.remove(&entry);
            self.requests.insert(entry.1);
        }
    }

    /// The first request, by `first`, whose peer has not its share yet; the others go aside.
    fn admitted(
        &mut self,
        shares: &Shares,
        charge: fn(u32) -> u32,
        first: impl Fn(&Line) -> Option<Waiter>,
    ) -> Option<Waiter> {
        while let Some(waiter) = first(&self.requests) {
            let Share::Request(peer) = waiter.share else {
                debug_assert!(false, "a response in the line of requests");
                return None;
            };
            if shares.admits_peer(peer, charge(waiter.len)) {
                return Some(waiter);
            }
            self.requests.remove(&waiter);
            self.aside.insert((peer, waiter));
        }
        None
    }

    fn line(&mut self, share: Share) -> &mut Line {
        match share {
            Share::Response => &mut self.responses,
            Share::Request(_) => &mut self.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(len: u32, birth: u64, index: u32, share: Share) -> Waiter {
        Waiter {
            len,
            birth: Instant(birth),
            rpc: RpcKey::from_parts(index, 1),
            share,
        }
    }

    fn same(len: u32) -> u32 {
        len
    }

    /// Rule PL-12: by size, and among equals by age; and the oldest of all is known too.
    #[test]
    fn the_smallest_and_the_oldest_are_known() {
        let mut waiting = Waiting::default();
        let shares = Shares::new(1_000_000);
        let long = waiter(128 << 10, 1, 0, Share::Request(1));
        let short = waiter(2000, 5, 1, Share::Request(2));
        let response = waiter(2000, 4, 2, Share::Response);
        for one in [long, short, response] {
            waiting.insert(one);
        }
        assert_eq!(
            waiting.smallest(&shares, same),
            [Some(response), Some(short)]
        );
        assert_eq!(waiting.oldest(&shares, same), Some(long));
        waiting.remove(&long);
        waiting.remove(&response);
        assert_eq!(waiting.smallest(&shares, same), [Some(short), None]);
        assert_eq!(
            (waiting.oldest(&shares, same), waiting.len()),
            (Some(short), 1)
        );
        waiting.remove(&short);
        assert!(waiting.is_empty() && waiting.oldest(&shares, same).is_none());
    }

    #[test]
    fn a_peer_with_its_share_stands_aside_until_it_is_called() {
        let mut waiting = Waiting::default();
        let mut shares = Shares::new(1000);
        assert!(shares.take(Share::Request(1), 200));
        let greedy = [60, 70].map(|len| waiter(len, 1, len, Share::Request(1)));
        let modest = waiter(100, 2, 9, Share::Request(2));
        for one in greedy {
            waiting.insert(one);
        }
        waiting.insert(modest);
        assert_eq!(waiting.smallest(&shares, same), [Some(modest), None]);
        assert_eq!(
            (waiting.oldest(&shares, same), waiting.len()),
            (Some(modest), 3)
        );
        shares.give_back(Share::Request(1), 100);
        waiting.call_back(3);
        assert_eq!(waiting.oldest(&shares, same), Some(modest));
        waiting.call_back(1);
        assert_eq!(waiting.oldest(&shares, same), Some(greedy[0]));
        // The other one is still aside, and can be taken out there.
        waiting.remove(&greedy[1]);
        assert_eq!(waiting.len(), 2);
    }
}
