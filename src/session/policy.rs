//! Which path a request takes.

use std::fmt;

/// Most paths of a session.
pub const PATHS_MAX: usize = 128;

/// How paths are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest requests under way; those with equally many in turn.
    #[default]
    MinInflight,
    /// The one that answered fastest of late; those that never did are tried first.
    MinLatency,
    /// The one with the fewest bytes under way.
    MinBytes,
    /// Always the same one for a slot: to find faults with.
    Sticky,
}

/// What a policy sees of a path that is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its place among all paths of the session.
    pub path: u8,
    pub inflight: u32,
    pub inflight_bytes: u64,
    /// Of small requests, smoothed; `None` before the first.
    pub latency_ns: Option<u64>,
}

/// Paths, by their places.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PathSet(u128);

/// Chooses.
#[derive(Debug, Default)]
pub struct Picker {
    pub policy: Policy,
    /// Where the next search begins, so that equals come in turn.
    turn: usize,
}

impl View {
    /// A small request, or a heartbeat, took that long. Each moves the average by an eighth.
    pub fn on_latency(&mut self, latency_ns: u64) {
        self.latency_ns = Some(match self.latency_ns {
            None => latency_ns,
            Some(average) => average - average / 8 + latency_ns / 8,
        });
    }
}

impl PathSet {
    pub fn insert(&mut self, path: u8) {
        self.0 |= 1 << path;
    }

    pub const fn contains(self, path: u8) -> bool {
        self.0 >> path & 1 != 0
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathSet({:#b})", self.0)
    }
}

impl Picker {
    /// The place in `views` of the path for a request of that slot: one that was not tried yet.
    pub fn pick(&mut self, views: &[View], tried: PathSet, slot: u16) -> Option<usize> {
        let count = views.len();
        if count == 0 {
            return None;
        }
        let start = match self.policy {
            Policy::Sticky => usize::from(slot) % count,
            Policy::RoundRobin | Policy::MinInflight | Policy::MinLatency | Policy::MinBytes => {
                self.turn % count
            }
        };
        let mut best: Option<(u64, usize)> = None;
        for place in (start..count).chain(0..start) {
            let view = &views[place];
            if tried.contains(view.path) {
                continue;
            }
            let cost = match self.policy {
                Policy::RoundRobin | Policy::Sticky => 0,
                Policy::MinInflight => u64::from(view.inflight),
                Policy::MinBytes => view.inflight_bytes,
                Policy::MinLatency => view.latency_ns.unwrap_or(0),
            };
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, place));
            }
            if cost == 0 {
                break;
            }
        }
        let (_, place) = best?;
        self.turn = place + 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views<const N: usize>(inflight: [u32; N]) -> Vec<View> {
        let paths = inflight.into_iter().enumerate();
        let view = |(path, inflight)| View {
            path: path as u8,
            inflight,
            ..View::default()
        };
        paths.map(view).collect()
    }

    fn picker(policy: Policy) -> Picker {
        Picker { policy, turn: 0 }
    }

    #[test]
    fn round_robin_takes_each_in_turn_and_steps_over_those_that_were_tried() {
        let (views, mut picker) = (views([9, 0, 5]), picker(Policy::RoundRobin));
        let mut tried = PathSet::default();
        let mut pick = |tried| picker.pick(&views, tried, 0);
        assert_eq!(
            [pick(tried), pick(tried), pick(tried)],
            [Some(0), Some(1), Some(2)]
        );
        tried.insert(0);
        assert_eq!(
            [pick(tried), pick(tried), pick(tried)],
            [Some(1), Some(2), Some(1)]
        );
        tried.insert(1);
        tried.insert(2);
        assert_eq!(pick(tried), None);
    }

    #[test]
    fn the_least_loaded_path_is_taken() {
        let mut loaded = views([3, 2, 4]);
        loaded[2].inflight_bytes = 1;
        loaded[0].inflight_bytes = 9;
        loaded[1].inflight_bytes = 10;
        let none = PathSet::default();
        assert_eq!(picker(Policy::MinInflight).pick(&loaded, none, 0), Some(1));
        assert_eq!(picker(Policy::MinBytes).pick(&loaded, none, 0), Some(2));
    }

    /// Story 31: with one request at a time both paths are always equally idle.
    #[test]
    fn equally_loaded_paths_are_taken_in_turn() {
        for policy in [Policy::MinInflight, Policy::MinBytes, Policy::MinLatency] {
            let (views, mut picker) = (views([0, 0]), picker(policy));
            let none = PathSet::default();
            let first = (0..1000).filter(|_| picker.pick(&views, none, 0) == Some(0));
            assert_eq!(first.count(), 500, "{policy:?}");
        }
    }

    /// Story 9: three seconds are more nanoseconds than 31 bits hold.
    #[test]
    fn paths_of_any_slowness_can_be_taken_and_unknown_ones_first() {
        let mut slow = views([0, 0, 0]);
        slow[0].on_latency(3_000_000_000);
        slow[1].on_latency(u64::MAX);
        let (none, mut picker) = (PathSet::default(), picker(Policy::MinLatency));
        assert_eq!(picker.pick(&slow, none, 0), Some(2));
        slow[2].on_latency(4_000_000_000);
        assert_eq!(picker.pick(&slow, none, 0), Some(0));
        let mut tried = none;
        tried.insert(0);
        tried.insert(2);
        assert_eq!(picker.pick(&slow, tried, 0), Some(1));
    }

    /// 800 - 100 + 1,600 / 8 = 900.
    #[test]
    fn each_latency_moves_the_average_by_an_eighth() {
        let mut view = View::default();
        view.on_latency(800);
        view.on_latency(1600);
        assert_eq!(view.latency_ns, Some(900));
        view.on_latency(u64::MAX);
        assert!(view.latency_ns > Some(u64::MAX / 8));
    }

    #[test]
    fn a_slot_keeps_its_path_while_that_is_there() {
        let (views, mut picker) = (views([5, 0]), picker(Policy::Sticky));
        let mut tried = PathSet::default();
        assert_eq!(picker.pick(&views, tried, 4), Some(0));
        assert_eq!(picker.pick(&views, tried, 5), Some(1));
        assert_eq!(picker.pick(&views, tried, 4), Some(0));
        tried.insert(0);
        assert_eq!(picker.pick(&views, tried, 4), Some(1));
    }

    #[test]
    fn without_a_path_there_is_no_choice() {
        for policy in [Policy::RoundRobin, Policy::MinInflight, Policy::Sticky] {
            assert_eq!(picker(policy).pick(&[], PathSet::default(), 3), None);
        }
    }

    #[test]
    fn all_128_paths_can_be_told_apart() {
        let mut tried = PathSet::default();
        tried.insert(127);
        assert!(tried.contains(127) && !(0..127).any(|path| tried.contains(path)));
    }
}
