//! A host of the simulation: its name and its clock.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

const MILLION: i128 = 1_000_000;

/// The host of some handles of the simulation.
#[derive(Debug)]
pub(super) struct Host {
    name: Arc<str>,
    /// How far its clock is ahead of the world's, besides its rate.
    ahead: Cell<Duration>,
    /// How many nanoseconds its clock shows for a million of the world.
    rate: i128,
}

impl Default for Host {
    fn default() -> Host {
        Host::new("", Duration::ZERO, 0)
    }
}

impl Host {
    pub(super) fn new(name: &str, ahead: Duration, millionths: i32) -> Host {
        Host { name: name.into(), ahead: Cell::new(ahead), rate: MILLION + i128::from(millionths) }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn jump(&self, by: Duration) {
        self.ahead.set(self.ahead.get() + by);
    }

    /// What its clock shows.
    pub(super) fn time(&self, world: Duration) -> Duration {
        scaled(world, self.rate, MILLION) + self.ahead.get()
    }

    /// How long the world takes for a time of this host.
    pub(super) fn world_time(&self, own: Duration) -> Duration {
        scaled(own, MILLION, self.rate)
    }
}

fn scaled(time: Duration, by: i128, of: i128) -> Duration {
    Duration::from_nanos((time.as_nanos() as i128 * by / of) as u64)
}
