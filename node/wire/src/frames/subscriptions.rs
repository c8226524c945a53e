//! Subscriptions to rows, and the deltas that they bring.

use crate::frames::word::Half;

/// How rows are subscribed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFlags {
    /// These rows replace all that were subscribed before.
    pub anew: bool,
    /// The rows' state is sent, not their weights.
    pub state: bool,
}

const ANEW: u32 = 1;
const STATE: u32 = 2;

impl Half for SubscribeFlags {
    fn to_half(self) -> u32 {
        (u32::from(self.anew) * ANEW) | (u32::from(self.state) * STATE)
    }

    fn of_half(half: u32) -> Option<SubscribeFlags> {
        let flags = SubscribeFlags { anew: half & ANEW != 0, state: half & STATE != 0 };
        (half & !(ANEW | STATE) == 0).then_some(flags)
    }
}

frames! {
    /// Subscribes to rows: the server sends those that change, once a period.
    /// The server sends changes of these rows from now on. Refused with 1, 2, 4, 9.
    45 SubscribeFrame "subscribe" ToServer "keys u64" {
        W0 "table; keys": table: u32, keys: u32;
        W1 "period ms; flags": period_ms: u32, /** 1: replace the set; 2: state, not weights. */ flags: SubscribeFlags;
        W2 "set": /** The worker's number for these rows; a later set has a higher one. */ set: u32;
    }

    /// The answer to a subscribe request.
    46 SubscribedFrame "subscribed" ToWorker "-" {
        W0 "table; rows": table: u32, /** All rows that are subscribed now. */ rows: u32;
        W1 "period ms; flags": period_ms: u32, /** 1: replace the set; 2: state, not weights. */ flags: SubscribeFlags;
        W2 "set": set: u32;
    }

    /// Sent without a request: subscribed rows that have changed.
    47 DeltaFrame "delta" ToWorker "delta" {
        W0 "table; rows": table: u32, rows: u32;
        W1 "snapshot version": version: u64;
        W2 "set; last": set: u32, /** The last frame of a sweep. */ last: bool;
        W3 "lowest clock + 1": /** Of all workers, when the sweep began. */ lowest: Option<u64>;
    }
}

frame_rows!(SubscribeFrame, SubscribedFrame, DeltaFrame);
