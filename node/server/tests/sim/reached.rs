//! A coordinator as one process of the simulation reaches it. It is slow now and then, gives no answer, or its answers
//! get lost.

use gannet_jobs::MemoryCoordinator;
use gannet_sim::Sim;
use gannet_transport::{Net, Poll, Prng};
use gannet_wire::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::TestWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

thread_local! {
    /// The simulation of the test that runs on this thread. A coordinator is `Send`, so it cannot have it.
    static SIM: RefCell<Option<Sim>> = const { RefCell::new(None) };
}

/// The simulation of the test that runs now.
pub(crate) fn set(sim: &Sim) {
    SIM.set(Some(sim.clone()));
}

fn sim() -> Sim {
    SIM.with_borrow(Clone::clone).expect("a cluster")
}

/// The time of the simulation, which is that of no host.
fn now() -> Duration {
    sim().now()
}

/// What processes of this thread log is printed, with the time of the simulation, until the guard is dropped.
pub(crate) fn log_here() -> DefaultGuard {
    let print = tracing_subscriber::fmt().with_writer(TestWriter::new).with_timer(SimTime).with_ansi(false);
    tracing::subscriber::set_default(print.with_max_level(tracing::Level::DEBUG).finish())
}

struct SimTime;

impl FormatTime for SimTime {
    fn format_time(&self, into: &mut Writer<'_>) -> std::fmt::Result {
        let time = SIM.with_borrow(|sim| sim.as_ref().map(Net::now)).unwrap_or_default();
        write!(into, "{:10.4}", time.as_secs_f64())
    }
}

/// The process that has called waits.
fn wait(time: Duration) {
    sim().poll().unwrap().wait(time, &mut Vec::new()).unwrap();
}

/// A coordinator, and the writes that are on their way to it though their callers have given up.
pub(crate) struct Hub {
    pub(crate) of: MemoryCoordinator,
    late: Mutex<Vec<(Duration, Vec<CoordinatorWrite>)>>,
}

impl Hub {
    pub(crate) fn new(of: MemoryCoordinator) -> Arc<Hub> {
        Arc::new(Hub { of, late: Mutex::default() })
    }

    /// Whether a write of a place is on its way.
    pub(crate) fn has_late_writes(&self) -> bool {
        !self.late.lock().unwrap().is_empty()
    }

    /// Makes the late writes that have come until now.
    fn arrive(&self) {
        let mut late = self.late.lock().unwrap();
        let now = now();
        let (come, under_way) = std::mem::take(&mut *late).into_iter().partition(|(at, _)| *at <= now);
        *late = under_way;
        drop(late);
        for (_, writes) in come as Vec<(Duration, Vec<CoordinatorWrite>)> {
            self.write(&writes).unwrap();
        }
    }

    /// Writes, and checks what must hold for every write of a place: its epoch never goes back, and an epoch has one
    /// owner.
    fn write(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        let places: Vec<u32> = writes.iter().filter_map(place_of).collect();
        let known = || -> Vec<_> {
            let of = |place| gannet_server::place_status(&self.of, "job", place).unwrap();
            places.iter().map(|place| of(*place).map(|place| (place.epoch, place.owner))).collect()
        };
        let before = known();
        let written = self.of.compare_and_set_all(writes);
        if matches!(written, Ok(Some(_))) {
            for place in &places {
                tracing::debug!(place, now = ?gannet_server::place_status(&self.of, "job", *place).unwrap(), "a place was written");
            }
        }
        for (before, after) in before.into_iter().zip(known()) {
            let (Some((epoch, owner)), Some((next, now))) = (before, after) else { continue };
            let holds = next > epoch || next == epoch && now == owner;
            assert!(holds, "a place of {owner} in epoch {epoch} was written as one of {now} in epoch {next}");
        }
        written
    }
}

/// The place that a write is about.
fn place_of(write: &CoordinatorWrite) -> Option<u32> {
    write.key.strip_prefix("job/place/")?.parse().ok()
}

/// The coordinator as one process reaches it.
pub(crate) struct Reached {
    of: Arc<Hub>,
    prng: Mutex<Prng>,
    /// Calls of a thousand that give no answer.
    lost_per_thousand: u64,
    /// It does not reach the coordinator.
    pub(crate) cut_off: AtomicBool,
    /// How long the process stands still, in milliseconds, before its next write of a place. 0: it does not.
    pub(crate) stall: AtomicU64,
    /// How late its next write of a place comes, in milliseconds. The call gives no answer. 0: it is not late.
    pub(crate) late: AtomicU64,
    /// It does not reach the coordinator any more once it has written a place.
    pub(crate) cut_off_behind_write: AtomicBool,
    /// How many calls are left until it is cut off, and whether the last one is lost on the way there.
    last: Mutex<Option<(u64, bool)>>,
}

impl Reached {
    pub(crate) fn new(of: Arc<Hub>, prng: Prng, lost_per_thousand: u64) -> Reached {
        let (cut_off, stall, late, cut_off_behind_write, last) = Default::default();
        let prng = Mutex::new(prng);
        Reached { of, prng, lost_per_thousand, cut_off, stall, late, cut_off_behind_write, last }
    }

    /// The process is cut off from the coordinator with this call, counted from 0. Nobody hears the answer of that, and
    /// the coordinator does not get the call if it `is_lost`.
    pub(crate) fn cut_off_at(&self, call: u64, is_lost: bool) {
        *self.last.lock().unwrap() = Some((call, is_lost));
    }

    /// Counts a call. Returns whether the coordinator gets it, if it is the last one.
    fn is_last(&self) -> Option<bool> {
        let mut last = self.last.lock().unwrap();
        let (left, is_lost) = last.as_mut()?;
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => self.cut_off.store(true, Relaxed),
        }
        self.cut_off.load(Relaxed).then_some(!*is_lost)
    }

    /// Whether this call of those that may be lost is.
    fn is_lost(&self) -> bool {
        self.prng.lock().unwrap().below(1000) < self.lost_per_thousand
    }

    fn call<T>(&self, call: impl FnOnce(&Hub) -> Result<T, CoordinatorError>) -> Result<T, CoordinatorError> {
        let lost = |what: &str| Err(CoordinatorError(what.to_owned()));
        // Where requests and answers are lost, some of them are slow.
        let slow = || {
            let mut prng = self.prng.lock().unwrap();
            let time = Duration::from_millis(prng.below(300));
            if prng.below(1000) < self.lost_per_thousand / 5 { time } else { Duration::ZERO }
        };
        let times = [slow(), slow()];
        if !self.cut_off.load(Relaxed)
            && let Some(arrives) = self.is_last()
        {
            let _answer = arrives.then(|| call(&self.of));
            return lost("it was the last call");
        }
        if times[0] > Duration::ZERO {
            wait(times[0]);
        }
        if self.cut_off.load(Relaxed) || self.is_lost() {
            return lost("the request was lost");
        }
        self.of.arrive();
        let answer = call(&self.of);
        if times[1] > Duration::ZERO {
            wait(times[1]);
        }
        if self.is_lost() {
            return lost("the answer was lost");
        }
        answer
    }
}

impl Coordinator for Reached {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        self.call(|hub| hub.of.get(key))
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        let is_of_place = writes.iter().any(|write| place_of(write).is_some());
        let stall = if is_of_place { self.stall.swap(0, Relaxed) } else { 0 };
        if stall > 0 {
            wait(Duration::from_millis(stall));
        }
        let late = if is_of_place { self.late.swap(0, Relaxed) } else { 0 };
        // A lost request may be on its way for a long time.
        if late > 0 || !self.cut_off.load(Relaxed) && self.is_lost() {
            let drawn = || self.prng.lock().unwrap().below(6_000);
            let time = Duration::from_millis(if late > 0 { late } else { drawn() });
            self.of.late.lock().unwrap().push((now() + time, writes.to_vec()));
            return Err(CoordinatorError("the request is late".into()));
        }
        let written = self.call(|hub| hub.write(writes));
        if is_of_place && self.cut_off_behind_write.swap(false, Relaxed) {
            self.cut_off.store(true, Relaxed);
        }
        written
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        self.call(|hub| hub.of.remove_all(keys))
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        self.call(|hub| hub.of.grant(ttl))
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        self.call(|hub| hub.of.keep_alive(lease))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        self.call(|hub| hub.of.list(prefix, after))
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        self.call(|hub| hub.of.watch(prefix, since, limit))
    }
}
