//! Facts in, grants out.

use super::*;
use crate::rng::Rng;

fn rpc(index: u32) -> RpcKey {
    Key::from_parts(index, 1)
}

fn grants(change: impl FnOnce(&mut Params)) -> Grants {
    let mut params = Params {
        max_incoming_bytes: 10_000,
        grant_fifo_thousandths: 0,
        ..Params::default()
    };
    change(&mut params);
    Grants::new(&params)
}

fn poll_all(grants: &mut Grants) -> Vec<(u32, u32, u8)> {
    std::iter::from_fn(|| grants.poll(Instant(0)))
        .map(|grant| (grant.rpc.index(), grant.offset, grant.priority))
        .collect()
}

/// Rules GR-17, GR-18: received 100, window 1200, granted 300: 1300, and then nothing.
#[test]
fn a_grant_reaches_a_window_beyond_what_came() {
    let mut grants = grants(|params| params.window_bytes = 1200);
    grants.on_start((rpc(1), 1), Instant(0), 20_000, 100, 300);
    assert_eq!(poll_all(&mut grants), [(1, 1300, 0)]);
    assert_eq!((grants.incoming(), poll_all(&mut grants)), (1200, vec![]));
}

/// Rule GR-19: 700 B left: not beyond the end.
#[test]
fn a_grant_ends_with_the_message() {
    let mut grants = grants(|params| params.window_bytes = 1200);
    grants.on_start((rpc(1), 1), Instant(0), 20_000, 19_300, 19_300);
    assert_eq!(poll_all(&mut grants), [(1, 20_000, 0)]);
}

/// Rules GR-20, GR-22, GR-23: 7,000 of 10,000 in use, three want 1,200: 1200, 1200, 600.
#[test]
fn the_sum_of_all_grants_is_limited_best_rank_first() {
    let mut grants = grants(|params| params.window_bytes = 1200);
    grants.on_start((rpc(9), 9), Instant(0), 7001, 0, 7000);
    for index in 1..=3 {
        grants.on_start((rpc(index), index), Instant(0), 3000 + index, 0, 0);
    }
    let granted: Vec<_> = poll_all(&mut grants).iter().map(|g| (g.0, g.1)).collect();
    assert_eq!(granted, [(1, 1200), (2, 1200), (3, 600)]);
    assert_eq!(grants.incoming(), 10_000);
}

/// Rules GR-02, GR-09, GR-11: one slot: the shorter displaces, the longer waits its turn.
#[test]
fn a_shorter_message_displaces_and_a_longer_waits() {
    let mut grants = grants(|params| params.max_overcommit = 1);
    let long = grants
        .on_start((rpc(1), 1), Instant(0), 50_000, 0, 50_000)
        .unwrap();
    grants.on_gone(long);
    grants
        .on_start((rpc(2), 2), Instant(1), 9_000, 0, 100)
        .unwrap();
    let short = grants
        .on_start((rpc(3), 3), Instant(2), 2_000, 0, 100)
        .unwrap();
    grants
        .on_start((rpc(4), 4), Instant(3), 9_500, 0, 100)
        .unwrap();
    assert_eq!(poll_all(&mut grants), [(3, 2000, 0)]);
    grants.on_gone(short);
    assert_eq!(poll_all(&mut grants)[0].0, 2);
}

/// Rule GR-12: what came may lift a waiting message into the active ones.
#[test]
fn progress_of_a_waiting_message_can_activate_it() {
    let mut grants = grants(|params| params.max_overcommit = 1);
    grants.on_start((rpc(1), 1), Instant(0), 5_000, 0, 100);
    let other = grants
        .on_start((rpc(2), 2), Instant(0), 9_000, 0, 8_000)
        .unwrap();
    assert_eq!(poll_all(&mut grants)[0].0, 1);
    grants.on_data(other, 7_000);
    assert_eq!(poll_all(&mut grants), [(2, 9000, 0)]);
}

/// Rule GR-03: 6 levels: 4 active use 3 to 0; 7 active use 6 to 0.
#[test]
fn low_priorities_are_used_while_levels_are_to_spare() {
    for (count, top) in [(4, 3), (7, 6)] {
        let mut grants = grants(|params| {
            params.max_sched_priority = 6;
            params.max_incoming_bytes = 1_000_000;
        });
        for index in 0..count {
            grants.on_start((rpc(index), index), Instant(0), 50_000 + index, 0, 0);
        }
        let priorities: Vec<_> = poll_all(&mut grants).iter().map(|g| g.2).collect();
        let expected: Vec<_> = (0..count as u8).map(|rank| top - rank).collect();
        assert_eq!(priorities, expected);
    }
}

/// One active message each, all of 5,000 B or so; the sum allows all windows.
fn spread(active_max: u8) -> Grants {
    grants(|params| {
        params.max_overcommit = active_max;
        params.max_incoming_bytes = 10_000_000;
    })
}

fn start(grants: &mut Grants, index: u32, peer: u32, len: u32) -> Key<Grantee> {
    let birth = Instant(index.into());
    grants
        .on_start((rpc(index), peer), birth, len, 0, 100)
        .unwrap()
}

fn active(grants: &Grants) -> Vec<u32> {
    let mut active: Vec<_> = grants
        .active
        .iter()
        .map(|&key| grants.live(key).rpc.index())
        .collect();
    active.sort_unstable();
    active
}

/// Rules GR-02, GR-05: the longest gives way, and of two equals the younger.
#[test]
fn the_longest_gives_way_and_of_two_equals_the_younger() {
    let mut grants = spread(3);
    for (index, len) in [(1, 5000), (2, 7000), (3, 7000)] {
        start(&mut grants, index, index, len);
    }
    start(&mut grants, 4, 4, 6000);
    assert_eq!(active(&grants), [1, 2, 4]);
    // As long as the longest, and younger: it waits.
    start(&mut grants, 5, 5, 7000);
    assert_eq!(active(&grants), [1, 2, 4]);
}

/// Rule GR-02: the older by its birth, though it needs grants later.
#[test]
fn of_two_with_as_much_to_come_the_older_goes_first() {
    let mut grants = spread(1);
    let birth = |index, at| ((rpc(index), index), Instant(at));
    let (one, born_later) = birth(1, 9);
    grants.on_start(one, born_later, 5000, 0, 0).unwrap();
    let (other, born_before) = birth(2, 3);
    grants.on_start(other, born_before, 5000, 0, 0).unwrap();
    assert_eq!(active(&grants), [2]);
}

/// Rule GR-06: peer 1 has two, which are shorter than that of peer 2: all the same one of
/// them gives way, the longer.
#[test]
fn a_peer_with_more_active_messages_gives_way_first() {
    let mut grants = spread(3);
    for (index, peer, len) in [(1, 1, 1000), (2, 1, 2000), (3, 2, 9000)] {
        start(&mut grants, index, peer, len);
    }
    start(&mut grants, 4, 3, 500);
    assert_eq!(active(&grants), [1, 3, 4]);
}

/// Rule GR-07: peer 1 has an active message; its next competes with that one only.
#[test]
fn a_message_competes_with_those_of_its_own_peer() {
    let mut grants = spread(2);
    start(&mut grants, 1, 1, 3000);
    start(&mut grants, 2, 2, 9000);
    start(&mut grants, 3, 1, 5000);
    assert_eq!(active(&grants), [1, 2]);
    start(&mut grants, 4, 1, 2000);
    assert_eq!(active(&grants), [2, 4]);
}

/// Rule GR-08: longer than all, but of a peer that has none.
#[test]
fn an_idle_peer_displaces_one_of_a_peer_with_two() {
    let mut grants = spread(2);
    start(&mut grants, 1, 1, 1000);
    start(&mut grants, 2, 1, 2000);
    start(&mut grants, 3, 2, 50_000);
    assert_eq!(active(&grants), [1, 3]);
}

/// Rules GR-10, GR-11: a free slot goes to a peer without one, then to the best of all; and
/// what waits goes with its RPC.
#[test]
fn a_free_slot_goes_to_a_peer_with_the_fewest() {
    let mut grants = spread(2);
    let one = start(&mut grants, 1, 1, 1000);
    let two = start(&mut grants, 2, 2, 1000);
    start(&mut grants, 3, 1, 2000);
    let four = start(&mut grants, 4, 3, 9000);
    start(&mut grants, 5, 3, 9500);
    grants.on_gone(two);
    assert_eq!(active(&grants), [1, 4]);
    grants.on_gone(four);
    assert_eq!(active(&grants), [1, 5]);
    grants.on_gone(one);
    assert_eq!(active(&grants), [3, 5]);
    assert!(grants.waiting.by_peer.is_empty() && grants.waiting.heads.is_empty());
}

/// Rule GR-12: up within its peer, to the top of it, and into the active ones.
#[test]
fn progress_moves_a_waiting_message_up_within_its_peer() {
    let mut grants = spread(1);
    start(&mut grants, 1, 1, 1000);
    let [a, b, c] =
        [(2, 5000), (3, 6000), (4, 7000)].map(|(index, len)| start(&mut grants, index, 2, len));
    let head = |grants: &Grants| grants.waiting.head(2).map(|(_, _, key)| key);
    assert_eq!(head(&grants), Some(a));
    grants.on_data(c, 1500);
    assert_eq!(head(&grants), Some(a));
    grants.on_data(b, 1500);
    assert_eq!(head(&grants), Some(b));
    grants.on_data(c, 6500);
    assert_eq!(active(&grants), [4]);
}

/// All ways in which up to four messages of up to three peers can be active: whoever comes
/// then never makes the spread over peers worse, and outranks whom it displaces unless that
/// makes it better.
#[test]
fn a_newcomer_never_spoils_the_spread_over_peers() {
    for code in 0..3_u32.pow(5) {
        let peer = |at: u32| code / 3_u32.pow(at) % 3;
        for newcomer_len in [500, 2500, 9500] {
            let mut grants = spread(4);
            for at in 0..4 {
                start(&mut grants, at, peer(at), 1000 * (at + 1));
            }
            let spread = |grants: &Grants| (0..3).filter(|&of| grants.active_of(of) > 0).count();
            let before = (spread(&grants), active(&grants));
            start(&mut grants, 9, peer(4), newcomer_len);
            let gone = before
                .1
                .iter()
                .find(|&&one| !active(&grants).contains(&one));
            assert!(spread(&grants) >= before.0, "code {code}");
            if let Some(gone) = gone
                && spread(&grants) == before.0
                && grants.active_of(peer(*gone)) < grants.active_of(peer(4))
            {
                assert!(newcomer_len < 1000 * (gone + 1), "code {code}");
            }
        }
    }
}

/// 8,000 Mb/s, half of it, 20,000 B: 40 us.
fn fifo(change: impl FnOnce(&mut Params)) -> Grants {
    grants(|params| {
        params.link_mbps = 8_000;
        params.grant_fifo_thousandths = 500;
        params.fifo_grant_bytes = 20_000;
        params.max_overcommit = 1;
        params.max_incoming_bytes = 1000;
        change(params);
    })
}

/// Rules GR-29, GR-30: the oldest, at the next to highest priority, every 40 us, although it
/// is not active and more than may be granted is.
#[test]
fn the_oldest_gets_a_chunk_at_each_interval() {
    let mut grants = fifo(|_| ());
    let old = start(&mut grants, 1, 1, 100_000);
    start(&mut grants, 2, 2, 50_000);
    let first = grants.poll(Instant(0)).unwrap();
    assert_eq!(
        (first.rpc, first.offset, first.priority),
        (rpc(1), 20_100, 6)
    );
    while grants.poll(Instant(0)).is_some() {}
    grants.on_data(old, 5000);
    assert!(
        grants
            .poll(Instant(39_999))
            .is_none_or(|grant| grant.priority < 6)
    );
    grants.on_data(old, 6000);
    let next = grants.poll(Instant(40_000)).unwrap();
    assert_eq!((next.rpc, next.offset, next.priority), (rpc(1), 40_100, 6));
    grants.check();
}

/// Rule GR-31: who made nothing of its last chunk, or has all, is skipped.
#[test]
fn the_next_oldest_gets_the_chunk_if_the_oldest_does_not_respond() {
    let mut grants = fifo(|_| ());
    let lens = [(1, 100_000), (2, 15_000), (3, 300_000)];
    let [silent, short, last] = lens.map(|(index, len)| start(&mut grants, index, index, len));
    let mut at = 0;
    let mut chunk = |grants: &mut Grants| {
        at += 40_000;
        grants.changed = true;
        let grants = std::iter::from_fn(|| grants.poll(Instant(at)));
        grants
            .filter(|grant| grant.priority == 6)
            .map(|grant| grant.rpc.index())
            .next()
    };
    assert_eq!(chunk(&mut grants), Some(1));
    assert_eq!(chunk(&mut grants), Some(2));
    assert_eq!(chunk(&mut grants), Some(3));
    // All 15,000 B of the second are granted; nothing beyond the first 100 B of any came.
    assert_eq!(chunk(&mut grants), None);
    grants.on_data(last, 5000);
    assert_eq!(chunk(&mut grants), Some(3));
    grants.on_data(silent, 101);
    assert_eq!(chunk(&mut grants), Some(1));
    [silent, short, last]
        .into_iter()
        .for_each(|key| grants.on_gone(key));
    assert_eq!((chunk(&mut grants), grants.by_age.len()), (None, 0));
}

/// Rules GR-29, GR-30.
#[test]
fn chunks_can_be_off_and_their_share_is_at_most_half() {
    for change in [
        |params: &mut Params| params.grant_fifo_thousandths = 0,
        |params: &mut Params| params.fifo_grant_bytes = 0,
    ] {
        assert!(fifo(change).fifo.is_none());
    }
    let interval = |change: fn(&mut Params)| fifo(change).fifo.unwrap().interval.as_micros();
    assert_eq!(interval(|params| params.grant_fifo_thousandths = 999), 40);
    // The defaults at 25 Gb/s: 50,000 B at 1,250 Mb/s.
    assert_eq!(interval(|params| *params = Params::default()), 320);
    let one_level = fifo(|params| params.num_priorities = 1);
    assert_eq!(one_level.fifo.unwrap().priority, 0);
}

/// Rule GR-33: 100,000 B among n messages and one more; a fixed window overrides.
#[test]
fn the_window_shrinks_as_more_messages_are_active() {
    for (count, expected) in [(1, 50_000), (2, 33_333), (3, 25_000), (8, 11_111)] {
        for (window, expected) in [(0, expected), (7_000, 7_000)] {
            let mut grants = grants(|params| {
                params.max_incoming_bytes = 100_000;
                params.window_bytes = window;
            });
            for index in 0..count {
                grants.on_start((rpc(index), index), Instant(0), 500_000, 0, 0);
            }
            assert_eq!(poll_all(&mut grants)[0].1, expected);
        }
    }
}

/// Field case C031: whatever happens, the sum is that of the parts, and within the limit.
#[test]
fn incoming_is_always_the_sum_of_its_parts() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut grants = grants(|params| {
            params.max_incoming_bytes = 100_000;
        });
        let mut live: Vec<(Key<Grantee>, u32, u32)> = Vec::new();
        for step in 0..600 {
            match rng.below(4) {
                0 => {
                    let len = 2 + rng.below(300_000) as u32;
                    let granted = rng.below(u64::from(len.min(5000))) as u32;
                    let key =
                        grants.on_start((rpc(step), step), Instant(rng.below(9)), len, 0, granted);
                    live.push((key.unwrap(), len, 0));
                }
                1 if !live.is_empty() => {
                    let at = rng.below(live.len() as u64) as usize;
                    grants.on_gone(live.swap_remove(at).0);
                }
                _ if !live.is_empty() => {
                    let at = rng.below(live.len() as u64) as usize;
                    let (key, len, received) = &mut live[at];
                    *received += rng.below(u64::from(*len - *received) + 1) as u32;
                    grants.on_data(*key, *received);
                }
                _ => {}
            }
            let before = grants.incoming();
            let granted = std::iter::from_fn(|| grants.poll(Instant(0))).count();
            grants.check();
            assert!(
                granted == 0 || grants.incoming() <= before.max(100_000),
                "seed {seed}"
            );
        }
        live.into_iter().for_each(|(key, _, _)| grants.on_gone(key));
        assert_eq!(
            (grants.grantees.len(), grants.incoming()),
            (0, 0),
            "seed {seed}"
        );
    }
}

/// Rules GR-04, GR-32: as many as there are slots for, and never more than eight.
#[test]
fn no_more_messages_are_active_than_may_be() {
    for (overcommit, expected) in [(1, 1), (3, 3), (8, 8), (20, 8)] {
        let mut grants = spread(overcommit);
        for index in 0..12 {
            start(&mut grants, index, index, 50_000 + index);
        }
        let expected: Vec<_> = (0..expected).collect();
        assert_eq!(active(&grants), expected);
    }
}

/// Rule GR-16: a sender that sends more than it was granted makes no room for others.
#[test]
fn bytes_beyond_the_grant_count_as_none_to_come() {
    let mut grants = grants(|params| params.window_bytes = 1200);
    let key = start(&mut grants, 1, 1, 20_000);
    grants.on_data(key, 5_000);
    assert_eq!(grants.incoming(), 0);
    assert_eq!(poll_all(&mut grants), [(1, 6200, 0)]);
    assert_eq!(grants.incoming(), 1200);
}

/// Rules GR-21, GR-25: all that may be granted is, and one wants more; what then comes for
/// another makes room, which is its, and not that of one that began meanwhile.
#[test]
fn whoever_lacks_a_grant_gets_it_before_newcomers_of_lower_rank() {
    let mut grants = grants(|params| params.window_bytes = 6000);
    let first = start(&mut grants, 1, 1, 20_000);
    start(&mut grants, 2, 2, 30_000);
    let granted: Vec<_> = poll_all(&mut grants).iter().map(|g| (g.0, g.1)).collect();
    // 10,000 in all: 6,000 for the first, and what is left.
    assert_eq!(granted, [(1, 6000), (2, 4000)]);
    start(&mut grants, 3, 3, 40_000);
    assert_eq!(poll_all(&mut grants), []);
    grants.on_data(first, 6_000);
    let granted: Vec<_> = poll_all(&mut grants).iter().map(|g| (g.0, g.1)).collect();
    // 6,000 more, less the 100 that the third announced.
    assert_eq!(granted[0], (1, 11_900));
    assert!(granted.iter().all(|&(rpc, _)| rpc != 3), "{granted:?}");
}
