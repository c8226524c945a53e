//! The lease of a job in the coordinator. What the coordinator knows of a job whose rows are in memory lasts as long as
//! one of its servers, and some time more: then nobody has these rows. All servers keep the same lease alive. A server
//! with a data folder takes the lease away, because its rows outlive it.

use crate::limits::RUN_BEATS;
use gannet_wire::coordinator::{Coordinator, CoordinatorError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

/// The leases with which this server may have written keys.
#[derive(Default)]
pub(crate) struct RunLeases {
    now: Cell<u64>,
    /// All of them, with the time at which each was last kept alive. A key may have an earlier one than the job has.
    seen: RefCell<BTreeMap<u64, Duration>>,
}

impl RunLeases {
    /// A lease as the coordinator takes it. 0 is none.
    pub(crate) fn of(lease: u64) -> Option<u64> {
        (lease != 0).then_some(lease)
    }

    /// That of the job, as this server knows it.
    pub(crate) fn now(&self) -> Option<u64> {
        RunLeases::of(self.now.get())
    }

    /// The job has this lease now, with the time `kept`. Keeps all leases alive, now and then.
    pub(crate) fn keep(
        &self,
        coordinator: &dyn Coordinator,
        now: Duration,
        kept: Duration,
        lease: u64,
    ) -> Result<(), CoordinatorError> {
        let mut seen = self.seen.borrow_mut();
        self.now.set(lease);
        if lease != 0 {
            seen.entry(lease).or_insert(Duration::ZERO);
        }
        let mut ended = Vec::new();
        for (lease, kept_at) in &mut *seen {
            if *kept_at == Duration::ZERO || now.saturating_sub(*kept_at) >= kept / RUN_BEATS {
                match coordinator.keep_alive(*lease)? {
                    true => *kept_at = now,
                    false => ended.push(*lease),
                }
            }
        }
        seen.retain(|lease, _| !ended.contains(lease));
        Ok(())
    }
}
