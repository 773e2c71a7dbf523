//! The time, read from the processor's time stamp counter.

use std::time;

use crate::time::Instant;

/// How long the counter is compared with the system's clock. Reading both takes under 100 ns, so
/// the rate is right to about ten parts in a million.
const CALIBRATION: time::Duration = time::Duration::from_millis(10);

/// A monotonic clock that starts at zero; reading it costs about 10 ns and no system call.
///
/// Where the counter may stop or change its pace, the system's monotonic clock is read instead.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    last: Instant,
}

#[derive(Clone, Debug)]
enum Source {
    /// `nanos = (ticks - origin) * scale / 2^32`.
    Counter {
        origin: u64,
        scale: u64,
    },
    System {
        origin: time::Instant,
    },
}

impl Clock {
    /// Takes 10 ms where the counter's pace must be found out.
    pub fn start() -> Self {
        let source = match calibrate() {
            Some(scale) => Source::Counter {
                origin: ticks(),
                scale,
            },
            None => Source::System {
                origin: time::Instant::now(),
            },
        };
        Self {
            source,
            last: Instant(0),
        }
    }

    /// Never earlier than what it gave before, even if the thread moved to another processor.
    pub fn now(&mut self) -> Instant {
        let nanos = match self.source {
            Source::Counter { origin, scale } => scaled(ticks().saturating_sub(origin), scale),
            Source::System { origin } => origin.elapsed().as_nanos() as u64, // 584 years.
        };
        self.last = self.last.max(Instant(nanos));
        self.last
    }
}

fn scaled(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64 // Wraps after centuries only.
}

/// Nanoseconds per tick times 2^32; none if the counter is not fit to be a clock.
fn calibrate() -> Option<u64> {
    if !counts_evenly() {
        return None;
    }
    let (start, first) = (time::Instant::now(), ticks());
    while start.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (nanos, passed) = (start.elapsed().as_nanos(), ticks().checked_sub(first)?);
    u64::try_from((nanos << 32).checked_div(u128::from(passed))?).ok()
}

/// Processor ticks; of use only as a difference, and to compare runs on one machine.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds, where no counter is read.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    use std::sync::LazyLock;
    static ORIGIN: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);
    ORIGIN.elapsed().as_nanos() as u64
}

/// Whether the counter runs at one pace in all power states ("invariant TSC").
/// Source: Intel SDM vol. 3, 18.17.1: CPUID leaf 0x80000007, EDX bit 8.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // Safe in newer compilers than the oldest we build with.
fn counts_evenly() -> bool {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    let (extended_max, flags) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
    extended_max >= 0x8000_0007 && flags & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn counts_evenly() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2.5 GHz: a tick is 0.4 ns, so 10 ticks are 4 ns, and a year of ticks is not too many.
    #[test]
    fn ticks_become_nanoseconds() {
        let scale = (2u64 << 32) / 5;
        assert_eq!(scaled(11, scale), 4);
        let year = 365 * 86_400 * 2_500_000_000;
        assert!(scaled(year, scale).abs_diff(year / 5 * 2) < year / 1_000_000_000);
    }

    #[test]
    fn time_never_runs_backwards_and_keeps_the_systems_pace() {
        let mut clock = Clock::start();
        let (start, system) = (clock.now(), time::Instant::now());
        let mut last = start;
        while system.elapsed() < time::Duration::from_millis(20) {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let (ours, theirs) = (
            clock.now().since(start).0,
            system.elapsed().as_nanos() as u64,
        );
        assert!(
            ours.abs_diff(theirs) < theirs / 20,
            "{ours} ns, the system says {theirs}"
        );
    }
}
