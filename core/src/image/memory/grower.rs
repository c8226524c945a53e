//! The grower: a thread of the store that makes the next bytes of a region ready before the owner needs them,
//! and turns full chunks into huge pages. If the grower is late, the owner takes small steps in small pages
//! itself instead of waiting.
//!
//! A region publishes one step at a time, and keeps one further step ready. A step is 1/128 of the region. Regions
//! below `GROWTH_AHEAD_BYTES_MIN` are grown by their owner, 4 KiB at a time, which costs less than waking a thread.

use crate::image::layout::{REGIONS, Region};
use crate::image::memory::budget::Budget;
use crate::image::memory::extents::Extents;
use crate::limits::{CHUNK_BYTES, GROWTH_STEP_BYTES_MIN};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Returns the time since some fixed moment. It is a parameter, because this crate reads no clock.
pub type Now = fn() -> Duration;

/// What all images of a store share: the thread, the budget, the locks on the data folder.
pub(crate) struct Grower {
    pub(crate) budget: Arc<Budget>,
    clock: Option<Now>,
    state: Mutex<GrowerState>,
    /// Released after the thread has ended, because the thread may take extents in the folder's files.
    _locks: Vec<File>,
}

enum GrowerState {
    Idle,
    Running(Sender<Arc<Extents>>, JoinHandle<()>),
    /// The system gave no thread. Owners grow their images themselves.
    None,
}

impl Grower {
    pub(crate) fn new(limit: u64, clock: Option<Now>, locks: Vec<File>) -> Grower {
        Grower {
            budget: Arc::new(Budget::new(limit)),
            clock,
            state: Mutex::new(GrowerState::Idle),
            _locks: locks,
        }
    }

    /// The time, if the store has a clock.
    pub(crate) fn now(&self) -> Option<Duration> {
        self.clock.map(|clock| clock())
    }

    /// Requests that the grower prepares these extents. At most one request of each image waits.
    pub(crate) fn request(&self, extents: &Arc<Extents>) {
        // If the flag is set, the grower has not yet handled the earlier request and will see this state too.
        if extents.queued.swap(true, AcqRel) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, GrowerState::Idle) {
            let (sender, receiver) = channel();
            let thread =
                std::thread::Builder::new().name("gannet-grower".into()).spawn(|| run_grower(receiver));
            *state = match thread {
                Ok(thread) => GrowerState::Running(sender, thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread for growing tables: they grow in small steps and pages");
                    GrowerState::None
                }
            };
        }
        if let GrowerState::Running(sender, _) = &*state {
            let _ = sender.send(extents.clone());
        }
    }
}

impl Drop for Grower {
    fn drop(&mut self) {
        let state = std::mem::replace(
            &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner),
            GrowerState::None,
        );
        if let GrowerState::Running(sender, thread) = state {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// The thread's loop. It prepares steps first, because owners wait for them, and collapses chunks when no
/// request waits.
fn run_grower(requests: Receiver<Arc<Extents>>) {
    // Full chunks that still have small pages. They do not keep a dropped image alive.
    let mut full: VecDeque<(Weak<Extents>, Region, usize)> = VecDeque::new();
    loop {
        let next = match full.is_empty() {
            true => requests.recv().map_err(|_| TryRecvError::Disconnected),
            false => requests.try_recv(),
        };
        match next {
            Ok(extents) => grow_one(&extents, &mut full),
            Err(TryRecvError::Empty) => {
                if let Some((extents, region, chunk)) = full.pop_front()
                    && let Some(extents) = extents.upgrade()
                    && !extents.collapse(region, chunk)
                {
                    tracing::debug!(region = region.name(), chunk, "a chunk stays in 4 KiB pages");
                }
            }
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

fn grow_one(extents: &Arc<Extents>, full: &mut VecDeque<(Weak<Extents>, Region, usize)>) {
    extents.queued.swap(false, AcqRel);
    for region in REGIONS {
        // The owner reports the cause itself, when it needs the bytes.
        if let Err(error) = extents.prepare(region, extents.wanted(region)) {
            tracing::debug!(region = region.name(), %error, "not prepared ahead");
        }
        for chunk in extents.newly_full(region) {
            full.push_back((Arc::downgrade(extents), region, chunk));
        }
    }
}

/// The step by which a region of `have` bytes grows.
pub(crate) fn growth_step(have: usize) -> usize {
    (have / 128).clamp(GROWTH_STEP_BYTES_MIN, CHUNK_BYTES).next_multiple_of(GROWTH_STEP_BYTES_MIN)
}

/// Number of buckets of [`Growth::stalls`].
pub const STALL_BUCKETS: usize = 36;

/// What growth has cost the thread that owns the shards.
///
/// ```
/// # use gannet_core::{GrowthConfig, Schema, Shards, Store};
/// # use gannet_optim::{Add, Rule};
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
///
/// let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
/// let store = Store::memory_with(GrowthConfig { clock: Some(clock), ..GrowthConfig::default() });
/// let shards = Shards::open(&store, &Schema::scalar("clicks", Rule::Add(Add)), 0..64)?;
/// // ... pushes ...
/// let growth = shards.growth();
/// println!("{} steps, the longest took {:?}", growth.by_owner + growth.by_grower, growth.longest);
/// assert!(growth.longest <= growth.total);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// A histogram of the owner's time on growth. Bucket `i` counts the times of at most `2^i` nanoseconds that
    /// are above the bound of bucket `i - 1`; the last bucket has no bound. All zero where the store has no
    /// clock.
    pub stalls: [u64; STALL_BUCKETS],
    /// Sum of these times.
    pub total: Duration,
    /// The longest of these times.
    pub longest: Duration,
    /// Steps that the owner made itself, because the grower was late or had no request.
    pub by_owner: u64,
    /// Steps that were ready when the owner needed them.
    pub by_grower: u64,
}

impl Default for Growth {
    fn default() -> Growth {
        let (total, longest) = (Duration::ZERO, Duration::ZERO);
        Growth { stalls: [0; STALL_BUCKETS], total, longest, by_owner: 0, by_grower: 0 }
    }
}

impl Growth {
    pub(crate) fn record(&mut self, took: Duration) {
        let bucket = took.as_nanos().saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.stalls[bucket.min(STALL_BUCKETS - 1)] += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &Growth) {
        self.stalls.iter_mut().zip(other.stalls).for_each(|(a, b)| *a += b);
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.by_owner += other.by_owner;
        self.by_grower += other.by_grower;
    }
}

const _: () = assert!(GROWTH_STEP_BYTES_MIN.is_multiple_of(4096));
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Grower>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_a_power_of_two() {
        for (nanoseconds, bucket) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 40, STALL_BUCKETS - 1)]
        {
            let mut growth = Growth::default();
            growth.record(Duration::from_nanos(nanoseconds));
            assert_eq!(growth.stalls[bucket], 1, "{nanoseconds} ns");
        }
    }
}
