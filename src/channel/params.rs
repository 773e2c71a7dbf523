//! What can be set about channels.

use crate::error::Error;
use crate::time::Duration;

/// Limits and times of all [`Channels`](super::Channels) of one runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Seed of the channels' numbers and of the hash keys. Must differ from run to run outside of
    /// tests, since a stranger who guesses a number may end the channel.
    pub seed: u64,
    /// Channels at once, those not yet accepted included. Default 16,384.
    pub channels_max: u32,
    /// A message that the peer does not confirm for so long ends the channel. Default 30 s.
    pub timeout: Duration,
    /// How long connect tries, unless somebody says no. Default 30 s.
    pub connect_timeout: Duration,
    /// After so long without a word the peer is asked for a sign of life. Default 5 s.
    pub keepalive_idle: Duration,
    /// So many of these in vain end the channel. Default 3.
    pub keepalive_misses_max: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seed: 1,
            channels_max: 16_384,
            timeout: Duration::secs(30),
            connect_timeout: Duration::secs(30),
            keepalive_idle: Duration::secs(5),
            keepalive_misses_max: 3,
        }
    }
}

impl Params {
    /// Refuses what cannot work; the config room gives the user the key and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let ok = (1..=1 << 20).contains(&self.channels_max)
            && self.timeout > Duration::ZERO
            && self.connect_timeout > Duration::ZERO
            && self.keepalive_idle > Duration::ZERO
            && self.keepalive_misses_max > 0;
        if ok { Ok(()) } else { Err(Error::Invalid) }
    }

    /// The silence that ends a channel with nothing under way.
    pub(super) fn silence_max(&self) -> Duration {
        self.keepalive_idle.times(self.keepalive_misses_max.into())
    }
}
