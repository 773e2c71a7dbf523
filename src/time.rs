//! Time as the core sees it: nanoseconds that somebody else read from a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment, in nanoseconds since an origin that only the clock's owner knows.
///
/// 64 bits last 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub u64);

/// A link's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    kbps: u64,
}

impl Instant {
    /// The span since `earlier`, or zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    pub const ZERO: Self = Self(0);

    pub const fn nanos(n: u64) -> Self {
        Self(n)
    }

    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    pub const fn times(self, n: u64) -> Self {
        Self(self.0 * n)
    }
}

impl Rate {
    /// A rate of at least 1 kb/s; zero is taken as that.
    pub const fn kbps(kbps: u64) -> Self {
        Self {
            kbps: if kbps == 0 { 1 } else { kbps },
        }
    }

    /// A rate of at least 1 Mb/s; zero is taken as that.
    pub const fn mbps(mbps: u64) -> Self {
        Self::kbps(if mbps == 0 { 1_000 } else { mbps * 1_000 })
    }

    pub const fn gbps(gbps: u64) -> Self {
        Self::mbps(gbps * 1_000)
    }

    /// How long `bytes` occupy the link.
    pub const fn time_for(self, bytes: u32) -> Duration {
        Duration(bytes as u64 * 8_000_000 / self.kbps)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0 + span.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        self.0 += span.0;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&std::time::Duration::from_nanos(self.0), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,500 B are 12,000 bits: 1.2 us at 10 Gb/s.
    #[test]
    fn a_rate_tells_how_long_bytes_take() {
        assert_eq!(Rate::gbps(10).time_for(1500), Duration::nanos(1200));
        assert_eq!(Rate::mbps(0).time_for(1), Duration::micros(8));
    }

    #[test]
    fn a_moment_ahead_is_no_time_ago() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
    }
}
