//! The depths of a session's queues: as wanted, or as the device's limits allow. This file only computes
//! numbers from the limits that the device reports. A device below the minimum is refused with an error that
//! says so.

use crate::limits::{
    VERBS_CREDIT_SENDS, VERBS_INLINE_BYTES, VERBS_MESSAGES_MAX, VERBS_READS_AT_ONCE, VERBS_READS_MAX,
    VERBS_SENDS_MAX, VERBS_SIGNAL_EVERY,
};
use crate::verbs::{DeviceError, Limits};

/// The depths of a session's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queues {
    /// Messages with bytes that the peer may send before they are acknowledged. The peer gets the number while
    /// it connects.
    pub(crate) messages: usize,
    /// Sends reserved for returning credit, and receives for such messages of the peer.
    pub(crate) credits: usize,
    /// Work requests of the send queue.
    pub(crate) sends: usize,
    /// At least one in this many messages reports its completion.
    pub(crate) signal_every: usize,
    /// The requested inline bytes. (The granted number is read when the pair is made.)
    pub(crate) inline: usize,
    /// READs that the queue pair for READs holds.
    pub(crate) reads: usize,
    /// READs in flight.
    pub(crate) reads_at_once: u8,
}

/// From the wanted depths down to the minimum.
const DEPTHS: [Queues; 4] = [
    depth(VERBS_MESSAGES_MAX, VERBS_CREDIT_SENDS, VERBS_SENDS_MAX, VERBS_SIGNAL_EVERY),
    depth(64, 32, 128, 8),
    depth(32, 16, 64, 4),
    depth(16, 16, 48, 4),
];

const fn depth(messages: usize, credits: usize, sends: usize, signal_every: usize) -> Queues {
    // Completions of messages are seen before they fill the send queue, even when credit is returned.
    assert!(messages + 2 * credits <= sends && signal_every * 2 <= credits);
    // A side returns credit for each quarter of the messages and of the ring, and at the end.
    assert!(credits > 4 + 4 && messages.is_multiple_of(4));
    let (inline, reads, reads_at_once) = (VERBS_INLINE_BYTES, VERBS_READS_MAX, VERBS_READS_AT_ONCE as u8);
    Queues { messages, credits, sends, signal_every, inline, reads, reads_at_once }
}

impl Queues {
    /// The wanted depths.
    pub(crate) const WANTED: Queues = DEPTHS[0];

    pub(crate) const fn receives(&self) -> usize {
        self.messages + self.credits
    }

    pub(crate) const fn completions(&self) -> usize {
        self.sends + self.receives()
    }

    /// The deepest queues that a device supports. Fewer than wanted are slower but otherwise equivalent.
    ///
    /// # Errors
    /// A device below the minimum: what it has, and what is needed.
    pub(crate) fn of(device: &str, limits: &Limits) -> Result<Queues, DeviceError> {
        let (requests, completions) = (limits.work_requests as usize, limits.completions as usize);
        let fits = |depth: &&Queues| {
            depth.sends.max(depth.receives()) <= requests && depth.completions() <= completions
        };
        let Some(&found) = DEPTHS.iter().find(fits).filter(|_| limits.sge >= 1) else {
            let least = DEPTHS[DEPTHS.len() - 1];
            return Err(DeviceError::Queues {
                device: device.to_owned(),
                has: [limits.work_requests, limits.completions, limits.sge],
                needs: [least.sends as u32, least.completions() as u32, 1],
            });
        };
        let at_once = limits.reads_answered.min(limits.reads_asked).min(found.reads_at_once.into());
        Ok(Queues {
            // The completion queue needs one entry more than there are READs, for a failure.
            reads: found.reads.min(requests).min(completions - 1),
            reads_at_once: at_once as u8,
            ..found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(work_requests: u32, completions: u32) -> Limits {
        Limits {
            vendor: 0,
            sge: 32,
            work_requests,
            completions,
            queue_pairs: 1000,
            regions: 1000,
            region_bytes: u64::MAX,
            reads_answered: 128,
            reads_asked: 128,
            inline_bytes: 0,
            ports: Vec::new(),
        }
    }

    #[test]
    fn queues_fit_the_device_and_a_device_below_the_minimum_is_refused() {
        let of = |limits: &Limits| Queues::of("made0", limits);
        let depths = |limits: &Limits| of(limits).map(|queues| (queues.sends, queues.messages, queues.reads));
        assert_eq!(of(&device(16384, 32768)).unwrap(), Queues::WANTED);
        assert_eq!(of(&device(1024, 1025)).unwrap(), Queues::WANTED);
        assert_eq!(depths(&device(255, 32768)).unwrap(), (128, 64, 255));
        // Enough work requests, but too few completions for both queues of the deepest.
        assert_eq!(depths(&device(16384, 415)).unwrap(), (128, 64, 414));
        assert_eq!(depths(&device(64, 112)).unwrap(), (64, 32, 64));
        assert_eq!(depths(&device(48, 80)).unwrap(), (48, 16, 48));
        let refused = of(&device(47, 32768)).unwrap_err().to_string();
        for part in ["made0: ", "47 work requests", "32768 completions", "at least 48, 80 and 1"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(of(&device(16384, 79)).is_err());
        assert!(of(&Limits { sge: 0, ..device(16384, 32768) }).is_err());
        // READs in flight: what both ends of a queue pair of the device support.
        let reads = |reads_answered, reads_asked| {
            of(&Limits { reads_answered, reads_asked, ..device(16384, 32768) }).unwrap().reads_at_once
        };
        assert_eq!((reads(128, 128), reads(4, 128), reads(128, 1), reads(0, 9)), (16, 4, 1, 0));
    }

    proptest! {
        #[test]
        fn queues_never_exceed_the_limits_of_the_device(requests in 0u32..2000, completions in 0u32..4000, at_once in 0u32..300) {
            let limits = Limits { reads_asked: at_once, ..device(requests, completions) };
            match Queues::of("made0", &limits) {
                Ok(queues) => {
                    prop_assert!(queues.sends.max(queues.receives()).max(queues.reads) <= requests as usize);
                    prop_assert!(queues.completions().max(queues.reads + 1) <= completions as usize);
                    prop_assert!(u32::from(queues.reads_at_once) <= at_once);
                }
                Err(_) => prop_assert!(requests < 48 || completions < 80),
            }
        }
    }
}
