//! Rules PL-01 to PL-21, as far as they speak of a socket's own pages.

use super::*;
use crate::homa::event::RpcKey;
use crate::rng::Rng;

const PAGE: u32 = BPAGE_LEN;
const REQUEST: Share = Share::Request(3);

/// The smallest region has 31 whole pages, of which requests have the lower 16.
const SMALLEST: usize = 2 * 1_000_000 + 65_536;

fn pool(len: usize) -> LentPool {
    let mut pool = LentPool::default();
    pool.lend(Region::owned(len).unwrap()).unwrap();
    pool.check(&[]);
    pool
}

fn parts(pool: &mut LentPool, len: u32, share: Share) -> Vec<u32> {
    let run = pool.alloc(len, share).unwrap();
    pool.check(&[run]);
    let parts = pool.hand_over(run).unwrap();
    pool.check(&[]);
    parts.to_vec()
}

fn waiter(len: u32, birth: u64, index: u32, share: Share) -> Waiter {
    Waiter {
        len,
        birth: Instant(birth),
        rpc: RpcKey::from_parts(index, 1),
        share,
    }
}

/// Rule PL-02.
#[test]
fn a_region_is_lent_once_and_holds_two_messages_and_a_page() {
    let mut pool = LentPool::default();
    let small = Region::owned(SMALLEST - 1).unwrap();
    assert_eq!(pool.lend(small), Err(Error::NoMemory));
    assert_eq!(pool.lend(Region::owned(SMALLEST).unwrap()), Ok(()));
    // The tail below a page is not used: 2,065,536 = 31 * 65,536 + 33,920.
    assert_eq!(pool.used_bytes(), 31 << 16);
    let other = Region::owned(SMALLEST).unwrap();
    assert_eq!(pool.lend(other), Err(Error::Exists));
    assert_eq!(LentPool::check_len(1 << 32), Ok(()));
    assert_eq!(LentPool::check_len((1 << 32) + 1), Err(Error::Invalid));
}

/// Rules PL-07 to PL-09: 150,000 = 2 * 65,536 + 18,928, which ends at 18,944 in steps of 64.
#[test]
fn whole_pages_are_a_message_s_own_and_its_rest_shares_one() {
    let mut pool = pool(64 << 16);
    let first = parts(&mut pool, 150_000, REQUEST);
    assert_eq!(first, [0, PAGE, 2 * PAGE]);
    assert_eq!(parts(&mut pool, 2000, REQUEST), [2 * PAGE + 18_944]);
    assert_eq!(parts(&mut pool, 2000, REQUEST), [2 * PAGE + 20_992]);
    assert_eq!(parts(&mut pool, 2 * PAGE, REQUEST), [3 * PAGE, 4 * PAGE]);
    // Nothing of the shared page is given twice, and all of it is free in the end.
    pool.take_back(&[2 * PAGE, 2 * PAGE + 18_944]).unwrap();
    assert_eq!(parts(&mut pool, 100, REQUEST), [2 * PAGE + 23_040]);
    pool.take_back(&[2 * PAGE + 20_992, 2 * PAGE + 23_040])
        .unwrap();
    assert_eq!(parts(&mut pool, 100, REQUEST), [2 * PAGE]);
}

/// A message takes any pages, however far apart.
#[test]
fn a_fragmented_region_serves_long_messages() {
    let mut pool = pool(64 << 16);
    let singles: Vec<u32> = (0..64)
        .map(|_| parts(&mut pool, PAGE, Share::Response)[0])
        .collect();
    assert!(pool.alloc(1, Share::Response).is_none());
    let odd: Vec<u32> = singles
        .into_iter()
        .filter(|part| part / PAGE % 2 == 1)
        .collect();
    for some in odd.chunks(16) {
        pool.take_back(some).unwrap();
    }
    let run = pool.alloc(1_000_000, REQUEST).unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32)
        .map(|at| (at * 7 + at / 251) as u8)
        .collect();
    // In pieces that pass the borders of pages.
    for (at, piece) in bytes.chunks(30_000).enumerate() {
        pool.write(run, at as u32 * 30_000, piece);
    }
    let mut out = vec![0; 1_000_000];
    pool.read(run, 0, &mut out);
    assert!(out == bytes);
    let region_bytes = pool.hand_over(run).unwrap();
    assert!(region_bytes.iter().all(|part| part / PAGE % 2 == 1));
    let mut third = vec![0; PAGE as usize];
    pool.region()
        .unwrap()
        .read(region_bytes[3] as usize, &mut third);
    assert!(third == bytes[3 * PAGE as usize..4 * PAGE as usize]);
}

/// Rule PL-11.
#[test]
fn a_message_that_does_not_fit_takes_nothing() {
    let mut pool = pool(SMALLEST);
    parts(&mut pool, 983_040, Share::Response);
    parts(&mut pool, 10 * PAGE, Share::Response);
    // 6 pages are left; 6 and a bit are wanted.
    assert!(pool.alloc(6 * PAGE + 100, Share::Response).is_none());
    assert_eq!(pool.free_bytes(), 6 << 16);
    pool.check(&[]);
    assert!(pool.alloc(6 * PAGE, Share::Response).is_some());
}

/// Rule PL-15: foreign, doubled or stale offsets change nothing.
#[test]
fn only_what_was_handed_over_is_taken_back_and_only_once() {
    let mut pool = pool(64 << 16);
    let run = pool.alloc(PAGE, REQUEST).unwrap();
    // It is still on its way in.
    assert_eq!(pool.take_back(&[0]), Err(Error::Invalid));
    pool.hand_over(run).unwrap();
    let ours = parts(&mut pool, 2 * PAGE, REQUEST);
    let before = pool.free_bytes();
    for wrong in [
        &[ours[0], ours[0]][..],
        &[ours[0], 1],
        &[ours[0], 40 * PAGE],
        &[u32::MAX],
        &[ours[0] + 64],
    ] {
        assert_eq!(pool.take_back(wrong), Err(Error::Invalid), "{wrong:?}");
        assert_eq!(pool.free_bytes(), before);
    }
    assert_eq!(pool.take_back(&ours), Ok(()));
    assert_eq!(pool.take_back(&ours), Err(Error::Invalid));
    pool.check(&[]);
    // Before there is a region nothing can be given back, and nothing is handed out.
    let mut none = LentPool::default();
    assert_eq!(none.take_back(&[0]), Err(Error::Invalid));
    assert!(none.take_back(&[]).is_ok() && none.alloc(1, REQUEST).is_none());
}

/// Rule PL-20.
#[test]
fn free_bytes_count_the_rest_of_shared_pages() {
    let mut pool = pool(64 << 16);
    assert_eq!(pool.free_bytes(), 64 << 16);
    let run = pool.alloc(1000, REQUEST).unwrap();
    assert_eq!(pool.free_bytes(), (64 << 16) - 1024);
    assert!(pool.release(run) && !pool.release(run));
    assert_eq!(pool.free_bytes(), 64 << 16);
}

/// Decision 19: whatever requests hold, a response finds pages; and one peer has a quarter.
#[test]
fn requests_leave_pages_for_responses() {
    let mut pool = pool(64 << 16);
    for peer in 0..3 {
        for _ in 0..16 {
            parts(&mut pool, PAGE, Share::Request(peer));
        }
        assert!(pool.alloc(PAGE, Share::Request(peer)).is_none());
    }
    assert!(pool.alloc(1, Share::Request(9)).is_none());
    assert_eq!(parts(&mut pool, 1_000_000, Share::Response).len(), 16);
}

/// Rules PL-01, PL-12, PL-16.
#[test]
fn waiters_are_served_smallest_first_as_pages_come_back() {
    let mut pool = pool(64 << 16);
    let held: Vec<_> = (0..48)
        .map(|n| parts(&mut pool, PAGE, Share::Request(100 + n))[0])
        .collect();
    let long = waiter(3 * PAGE, 0, 1, Share::Request(1));
    let short = waiter(2 * PAGE, 1, 2, Share::Request(2));
    pool.wait(long);
    pool.wait(short);
    let now = Instant(10);
    pool.take_back(&held[..1]).unwrap();
    assert_eq!(pool.poll_waiter(now), None);
    pool.take_back(&held[1..2]).unwrap();
    assert_eq!(pool.poll_waiter(now).map(|(who, _)| who), Some(short));
    pool.take_back(&held[2..5]).unwrap();
    assert_eq!(pool.poll_waiter(now).map(|(who, _)| who), Some(long));
    assert_eq!((pool.poll_waiter(now), pool.waiter_count()), (None, 0));
}

/// Decision 26. For who waited 1 ms pages are kept; responses need not respect that.
#[test]
fn a_long_message_is_not_starved_by_short_ones() {
    let mut pool = pool(64 << 16);
    let held: Vec<_> = (0..48)
        .map(|n| parts(&mut pool, PAGE, Share::Request(100 + n))[0])
        .collect();
    let long = waiter(10 * PAGE, 0, 1, Share::Request(1));
    let short = waiter(PAGE, 1, 2, Share::Request(2));
    pool.wait(long);
    pool.wait(short);
    let late = Instant(2_000_000);
    assert_eq!(pool.poll_waiter(late), None);
    for page in &held[..9] {
        pool.take_back(&[*page]).unwrap();
        assert_eq!(pool.poll_waiter(late), None, "the short one takes none");
        assert!(pool.alloc(PAGE, Share::Request(5)).is_none());
    }
    assert!(pool.alloc(10 * PAGE, Share::Response).is_some());
    pool.take_back(&held[9..10]).unwrap();
    assert_eq!(pool.poll_waiter(late).map(|(who, _)| who), Some(long));
    pool.take_back(&held[10..11]).unwrap();
    assert_eq!(pool.poll_waiter(late).map(|(who, _)| who), Some(short));
    pool.wait(long);
    pool.stop_waiting(long);
    assert_eq!(pool.poll_waiter(late), None);
}

/// Rule PL-21, by chance: accounts stay exact whatever is taken, given up, kept and given back.
#[test]
fn accounts_stay_exact_whatever_happens() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut pool = pool(SMALLEST + (20 << 16));
        let (mut runs, mut ours) = (Vec::new(), Vec::<u32>::new());
        for _ in 0..2000 {
            let share = match rng.next_u64() % 3 {
                0 => Share::Response,
                _ => Share::Request((rng.next_u64() % 5) as u32),
            };
            let chance = rng.next_u64() as usize;
            match rng.next_u64() % 5 {
                0 => runs.extend(pool.alloc(chance as u32 % 1_000_000 + 1, share)),
                1 => runs.extend(pool.alloc(chance as u32 % 3000 + 1, share)),
                2 if !runs.is_empty() => {
                    let run = runs.swap_remove(chance % runs.len());
                    ours.extend(pool.hand_over(run).unwrap());
                }
                3 if !runs.is_empty() => {
                    assert!(pool.release(runs.swap_remove(chance % runs.len())));
                }
                _ if !ours.is_empty() => {
                    let part = ours.swap_remove(chance % ours.len());
                    assert_eq!(pool.take_back(&[part]), Ok(()), "seed {seed}");
                }
                _ => {}
            }
            pool.check(&runs);
        }
        for part in ours {
            pool.take_back(&[part]).unwrap();
        }
        runs.into_iter().for_each(|run| assert!(pool.release(run)));
        assert_eq!(pool.free_bytes(), pool.used_bytes(), "seed {seed}");
    }
}
