//! What a link does to frames, by chance.

use crate::rng::Rng;
use crate::time::Duration;

/// How bad a link is. Each frame draws its own lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Thousandths of the frames that are lost.
    pub loss_per_mille: u32,
    /// Thousandths of the frames that arrive twice.
    pub duplicate_per_mille: u32,
    /// Thousandths of the frames that are late, and so are overtaken.
    pub late_per_mille: u32,
    /// How late at most.
    pub late_max: Duration,
}

impl Faults {
    /// A perfect link.
    pub const NONE: Self = Self {
        loss_per_mille: 0,
        duplicate_per_mille: 0,
        late_per_mille: 0,
        late_max: Duration::ZERO,
    };

    /// The extra delay of each copy of a frame that arrives: none, one or two.
    pub fn copies(&self, rng: &mut Rng) -> impl Iterator<Item = Duration> + use<> {
        let count = match () {
            () if rng.one_in_thousand(self.loss_per_mille) => 0,
            () if rng.one_in_thousand(self.duplicate_per_mille) => 2,
            () => 1,
        };
        let delays = [self.delay(rng), self.delay(rng)];
        delays.into_iter().take(count)
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        match rng.one_in_thousand(self.late_per_mille) {
            true => Duration(rng.below(self.late_max.0 + 1)),
            false => Duration::ZERO,
        }
    }
}
