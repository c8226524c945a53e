//! A coordinator as one process of the simulation reaches it. It is slow now and then, gives no answer, or its answers
//! get lost.

use gannet_node::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, MemoryCoordinator};
use gannet_transport::sim::{Prng, Sim};
use gannet_transport::{Net, Poll};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

thread_local! {
    /// The simulation of the test that runs on this thread. A coordinator is `Send`, so it cannot have it.
    static SIM: RefCell<Option<Sim>> = const { RefCell::new(None) };
}

/// The simulation of the test that runs now.
pub(crate) fn set(sim: &Sim) {
    SIM.set(Some(sim.clone()));
}

/// The process that has called waits.
fn wait(time: Duration) {
    let sim = SIM.with_borrow(Clone::clone).expect("a cluster");
    sim.poll().unwrap().wait(time, &mut Vec::new()).unwrap();
}

/// The coordinator as one process reaches it.
pub(crate) struct Reached {
    of: Arc<MemoryCoordinator>,
    prng: Mutex<Prng>,
    /// Calls of a thousand that give no answer.
    lost_per_thousand: u64,
    /// It does not reach the coordinator.
    pub(crate) cut_off: AtomicBool,
}

impl Reached {
    pub(crate) fn new(of: Arc<MemoryCoordinator>, prng: Prng, lost_per_thousand: u64) -> Reached {
        Reached { of, prng: Mutex::new(prng), lost_per_thousand, cut_off: AtomicBool::new(false) }
    }

    fn call<T>(
        &self,
        call: impl FnOnce(&MemoryCoordinator) -> Result<T, CoordinatorError>,
    ) -> Result<T, CoordinatorError> {
        let lost = |what: &str| Err(CoordinatorError(what.to_owned()));
        // Where requests and answers are lost, some of them are slow.
        let slow = || {
            let mut prng = self.prng.lock().unwrap();
            let time = Duration::from_millis(prng.below(300));
            if prng.below(1000) < self.lost_per_thousand / 5 { time } else { Duration::ZERO }
        };
        let times = [slow(), slow()];
        if times[0] > Duration::ZERO {
            wait(times[0]);
        }
        if self.cut_off.load(Relaxed) || self.prng.lock().unwrap().below(1000) < self.lost_per_thousand {
            return lost("the request was lost");
        }
        let answer = call(&self.of);
        if times[1] > Duration::ZERO {
            wait(times[1]);
        }
        if self.prng.lock().unwrap().below(1000) < self.lost_per_thousand {
            return lost("the answer was lost");
        }
        answer
    }
}

impl Coordinator for Reached {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        self.call(|of| of.get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        self.call(|of| of.compare_and_set(key, version, value, lease))
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        self.call(|of| of.grant(ttl))
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        self.call(|of| of.keep_alive(lease))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        self.call(|of| of.list(prefix, after))
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        self.call(|of| of.watch(prefix, since, limit))
    }
}
