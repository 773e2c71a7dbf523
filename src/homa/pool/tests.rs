use std::collections::VecDeque;

use super::*;
use crate::rng::Rng;

const PAGE: usize = BPAGE_LEN as usize;

fn offset(pool: &Pool, run: Key<Run>) -> u32 {
    pool.place(run).unwrap().0
}

#[test]
fn a_tail_below_a_full_page_is_left_out() {
    assert_eq!(Pool::new(3 * PAGE + 5000, 10).pages(), 3);
}

/// The page that small requests were cut from is free, and small responses take it.
#[test]
fn a_free_page_is_cut_up_for_one_kind_of_small_message_only() {
    let mut pool = Pool::new(2 * PAGE, 10);
    let high = pool.alloc(BPAGE_LEN, Share::Response).unwrap();
    let small = [100, 100].map(|len| pool.alloc(len, Share::Request(0)).unwrap());
    small.into_iter().for_each(|run| assert!(pool.release(run)));
    let mut held = vec![high];
    for share in [Share::Response, Share::Request(0), Share::Response] {
        held.extend(pool.alloc(200, share));
    }
    assert!(held.len() > 1);
    pool.check(&mut held);
}

/// Rule PL-07, adapted: 150,000 B take three adjacent pages, the rest of the last is shared.
#[test]
fn a_long_message_is_adjacent_and_its_rest_serves_small_ones() {
    let mut pool = Pool::new(4 * PAGE, 10);
    let long = pool.alloc(150_000, Share::Response).unwrap();
    assert_eq!((offset(&pool, long), pool.free_pages()), (0, 1));
    let small = pool.alloc(1000, Share::Response).unwrap();
    // 150,000 is 2,343.75 lines of 64 B, so the next one starts at 150,016.
    assert_eq!((offset(&pool, small), pool.free_pages()), (150_016, 1));
    pool.release(long);
    assert_eq!(pool.free_pages(), 3);
    pool.release(small);
    assert_eq!(pool.free_pages(), 4);
}

/// Rules PL-08, PL-09: small messages share a page, and an empty one starts over.
#[test]
fn small_messages_share_a_page_that_starts_over_when_empty() {
    let mut pool = Pool::new(2 * PAGE, 10);
    let first = pool.alloc(2000, Share::Response).unwrap();
    let second = pool.alloc(2000, Share::Response).unwrap();
    assert_eq!(offset(&pool, second) - offset(&pool, first), 2048);
    pool.release(first);
    pool.release(second);
    let again = pool.alloc(100, Share::Response).unwrap();
    assert_eq!(offset(&pool, again), BPAGE_LEN);
}

#[test]
fn whole_pages_share_nothing() {
    let mut pool = Pool::new(3 * PAGE, 10);
    let two = pool.alloc(2 * BPAGE_LEN, Share::Response).unwrap();
    assert_eq!((offset(&pool, two), pool.free_pages()), (0, 1));
    let small = pool.alloc(1, Share::Response).unwrap();
    assert_eq!(offset(&pool, small), 2 * BPAGE_LEN);
}

/// Rule PL-11: all or nothing.
#[test]
fn too_long_a_message_takes_nothing() {
    let mut pool = Pool::new(5 * PAGE, 10);
    assert!(pool.alloc(5 * BPAGE_LEN + 100, Share::Response).is_none());
    assert_eq!((pool.free_pages(), pool.runs.len()), (5, 0));
}

/// Rule PL-15: what is not held cannot be given back.
#[test]
fn bytes_are_free_with_their_last_holder_and_only_once() {
    let mut pool = Pool::new(PAGE, 10);
    let run = pool.alloc(10, Share::Response).unwrap();
    assert!(pool.retain(run) && pool.release(run));
    assert_eq!(pool.free_pages(), 0);
    assert!(pool.release(run) && !pool.release(run) && !pool.retain(run));
    assert_eq!(pool.free_pages(), 1);
}

/// Rule PL-16: the smallest waits least.
#[test]
fn waiters_are_served_smallest_first_as_pages_come_free() {
    let mut pool = Pool::new(2 * PAGE, 10);
    let all = pool.alloc(2 * BPAGE_LEN, Share::Response).unwrap();
    let waiter = |len, index| Waiter {
        len,
        birth: Instant(0),
        rpc: Key::from_parts(index, 1),
        share: Share::Response,
    };
    let (large, small) = (waiter(BPAGE_LEN + 1, 0), waiter(2000, 1));
    pool.wait(large);
    pool.wait(small);
    assert!(pool.poll_waiter(Instant(0)).is_none());
    pool.release(all);
    let (first, run) = pool.poll_waiter(Instant(0)).unwrap();
    assert_eq!(first, small);
    assert!(pool.poll_waiter(Instant(0)).is_none() && pool.has_waiters());
    pool.release(run);
    assert_eq!(pool.poll_waiter(Instant(0)).unwrap().0, large);
}

#[test]
fn a_full_table_of_runs_refuses() {
    let mut pool = Pool::new(PAGE, 1);
    assert!(pool.alloc(1, Share::Response).is_some() && pool.alloc(1, Share::Response).is_none());
}

fn request(len: u32, birth: u64, peer: u32) -> Waiter {
    Waiter {
        len,
        birth: Instant(birth),
        rpc: Key::from_parts(peer, 1),
        share: Share::Request(peer),
    }
}

/// Decision 19. 64 peers want 16 pages each of 64: three of them get a quarter each, and the
/// last quarter is for responses.
#[test]
fn requests_leave_a_quarter_of_the_pages_to_responses() {
    let mut pool = Pool::new(64 * PAGE, 1000);
    let mut runs = Vec::new();
    for peer in 0..64 {
        runs.extend(pool.alloc(1_000_000, Share::Request(peer)));
    }
    assert_eq!((runs.len(), pool.free_pages()), (3, 16));
    assert_eq!(pool.held_by_requests(), 48 * BPAGE_LEN);
    // The last pages have 48,576 B left each.
    assert!(pool.alloc(60_000, Share::Request(70)).is_none());
    let response = pool.alloc(1_000_000, Share::Response).unwrap();
    assert!(pool.release(response) && pool.release(runs[1]));
    // A peer that has its quarter gets no more, another does.
    assert!(pool.alloc(1, Share::Request(0)).is_none());
    assert!(pool.alloc(1_000_000, Share::Request(9)).is_some());
}

/// A waiter whose peer has its share does not hold up the others, and is served once some of
/// what its peer holds comes back.
#[test]
fn a_peers_own_share_holds_up_nobody_else() {
    let mut pool = Pool::new(64 * PAGE, 1000);
    let held = pool.alloc(1_000_000, Share::Request(1)).unwrap();
    pool.wait(request(70_000, 0, 1));
    pool.wait(request(80_000, 0, 2));
    assert_eq!(pool.poll_waiter(Instant(5)).unwrap().0.rpc.index(), 2);
    assert!(pool.poll_waiter(Instant(5)).is_none() && pool.has_waiters());
    assert!(pool.release(held));
    assert_eq!(pool.poll_waiter(Instant(6)).unwrap().0.rpc.index(), 1);
    assert!(!pool.has_waiters());
}

/// Decision 26. Each of four pages is held by a small request that goes as another's comes, so
/// that there are never two free ones, unless they are kept.
#[test]
fn a_long_message_that_waited_a_millisecond_gets_pages_reserved() {
    let mut pool = Pool::new(8 * PAGE, 1000);
    let small = BPAGE_LEN - 64;
    for _ in 0..4 {
        pool.alloc(small, Share::Response).unwrap();
    }
    let mut held: VecDeque<_> = (10..14)
        .map(|peer| pool.alloc(small, Share::Request(peer)).unwrap())
        .collect();
    let long = request(2 * BPAGE_LEN, 0, 1);
    pool.wait(long);
    for micros in 0..1000_u64 {
        assert!(pool.release(held.pop_front().unwrap()));
        assert!(pool.poll_waiter(Instant(micros * 1000)).is_none());
        let peer = 20 + micros as u32 % 20;
        held.push_back(pool.alloc(small, Share::Request(peer)).unwrap());
    }
    for micros in 1000..1004 {
        assert!(pool.release(held.pop_front().unwrap()));
        if let Some((waiter, _)) = pool.poll_waiter(Instant(micros * 1000)) {
            return assert_eq!(waiter, long);
        }
        // Of another peer each time, as each may have two pages only.
        held.extend(pool.alloc(small, Share::Request(50 + micros as u32)));
    }
    panic!("it starved");
}

/// All but the reserved window is in use: a response may have a page of it if a request
/// waits, since the request's handler may be what waits for the response.
#[test]
fn a_response_does_not_wait_behind_the_reservation_of_a_request() {
    for (share, expected) in [(Share::Request(3), true), (Share::Response, false)] {
        let mut pool = Pool::new(4 * PAGE, 1000);
        let low = pool.alloc(2 * BPAGE_LEN, Share::Response).unwrap();
        let _high = pool.alloc(2 * BPAGE_LEN, Share::Response).unwrap();
        let waiter = Waiter {
            share,
            ..request(3 * BPAGE_LEN, 0, 3)
        };
        pool.wait(waiter);
        pool.release(low);
        assert!(pool.poll_waiter(Instant(PATIENCE.0)).is_none());
        assert!(pool.alloc(100, Share::Request(8)).is_none());
        let response = pool.alloc(100, Share::Response);
        assert_eq!(response.is_some(), expected, "{share:?}");
        pool.stop_waiting(waiter);
        assert!(pool.alloc(100, Share::Response).is_some());
    }
}

/// Any order of taking and giving back: runs never overlap, and all is free at the end.
#[test]
fn no_two_messages_share_a_byte() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut pool = Pool::new(40 * PAGE, 1000);
        let mut held: Vec<Key<Run>> = Vec::new();
        for _ in 0..500 {
            if rng.one_in_thousand(450) && !held.is_empty() {
                let at = rng.below(held.len() as u64) as usize;
                assert!(pool.release(held.swap_remove(at)));
                continue;
            }
            let longest = [100, 5000, 70_000, 1_000_000][rng.below(4) as usize];
            held.extend(pool.alloc(1 + rng.below(longest) as u32, Share::Response));
            let mut spans: Vec<_> = held.iter().map(|&run| pool.place(run).unwrap()).collect();
            spans.sort_unstable();
            let apart = spans
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
            assert!(apart, "seed {seed}: {spans:?}");
        }
        held.into_iter().for_each(|run| assert!(pool.release(run)));
        assert_eq!(pool.free_pages(), 40, "seed {seed}");
    }
}
