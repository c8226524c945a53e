//! How fast the clocks of a cluster's processes are.

use gannet_server::limits::CLOCK_DRIFT;
use gannet_transport::Prng;

/// The largest drift, in millionths.
const MOST: i32 = (1_000_000 / CLOCK_DRIFT) as i32;

/// The clocks of a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clocks {
    /// Each process has one that the seed draws.
    Drawn,
    /// The coordinator, which ends leases, has the fastest. All others, which believe in leases, have the slowest.
    Apart,
}

impl Clocks {
    pub(super) fn of_coordinator(self, prng: &mut Prng) -> i32 {
        match self {
            Clocks::Drawn => drift(prng),
            Clocks::Apart => MOST,
        }
    }

    pub(super) fn of_process(self, prng: &mut Prng) -> i32 {
        match self {
            Clocks::Drawn => drift(prng),
            Clocks::Apart => -MOST,
        }
    }
}

/// By how many millionths a clock is too fast, or too slow. Every second one is as wrong as it may be.
fn drift(prng: &mut Prng) -> i32 {
    let drawn = prng.below(4 * MOST as u64 + 2) as i32;
    if drawn <= 2 * MOST {
        drawn - MOST
    } else if drawn % 2 == 0 {
        -MOST
    } else {
        MOST
    }
}
