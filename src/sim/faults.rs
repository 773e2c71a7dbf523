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
    /// Thousandths of the frames that a queue somewhere holds for long.
    pub held_per_mille: u32,
    /// For how long at most.
    pub held_max: Duration,
    /// Thousandths of the frames that arrive with a bit turned over, so that the NIC's check of
    /// the frame fails.
    pub corrupt_per_mille: u32,
}

/// One copy of a frame, as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How much later than on a perfect link.
    pub delay: Duration,
    pub is_corrupt: bool,
}

impl Faults {
    /// A perfect link.
    pub const NONE: Self = Self {
        loss_per_mille: 0,
        duplicate_per_mille: 0,
        late_per_mille: 0,
        late_max: Duration::ZERO,
        held_per_mille: 0,
        held_max: Duration::ZERO,
        corrupt_per_mille: 0,
    };

    /// The copies of a frame that arrive: none, one or two.
    pub fn copies(&self, rng: &mut Rng) -> impl Iterator<Item = Copied> + use<> {
        let count = match () {
            () if rng.one_in_thousand(self.loss_per_mille) => 0,
            () if rng.one_in_thousand(self.duplicate_per_mille) => 2,
            () => 1,
        };
        let copies = [self.copied(rng), self.copied(rng)];
        copies.into_iter().take(count)
    }

    fn copied(&self, rng: &mut Rng) -> Copied {
        let late_max = match () {
            () if rng.one_in_thousand(self.held_per_mille) => self.held_max,
            () if rng.one_in_thousand(self.late_per_mille) => self.late_max,
            () => Duration::ZERO,
        };
        Copied {
            delay: Duration(rng.below(late_max.0 + 1)),
            is_corrupt: rng.one_in_thousand(self.corrupt_per_mille),
        }
    }
}
