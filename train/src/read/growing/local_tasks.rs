//! The tasks of a growing source that one process trains alone.

use crate::read::growing::looking::{GrowingSource, Looks};
use crate::read::splits::split::{GrownSplit, Split, Splits};
use gannet_core::DATA_PUSHERS;
use gannet_jobs::scheduler::growing::Growing;
use gannet_wire::{Found, SplitGrant};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
#[derive(Debug)]
pub struct LocalTasks {
    source: Arc<dyn GrowingSource>,
    looks: Mutex<Looks>,
    growing: Mutex<Growing>,
}

impl LocalTasks {
    /// All tasks of this source.
    pub fn new(source: Arc<dyn GrowingSource>) -> LocalTasks {
        LocalTasks { source, looks: Mutex::default(), growing: Mutex::default() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Growing) -> T) -> T {
        work(&mut self.growing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn grant(&self) -> SplitGrant {
        self.with(|growing| match growing.hand_out() {
            Some(index) => match growing.task(index) {
                Some(task) => SplitGrant::Grown { index, task: task.clone(), from: 0 },
                None => SplitGrant::Wait,
            },
            None if growing.is_handed_out() => SplitGrant::Over,
            None => SplitGrant::Wait,
        })
    }
}

impl Splits for LocalTasks {
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        let report = |found: &Found| {
            found.check()?;
            Ok(self.with(|growing| {
                growing.take_in(found.clone());
                growing.stand()
            }))
        };
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = looks.take(&*self.source, stop, &report, &|| Ok(self.grant()))?;
        Ok(taken.map(|(index, task, from)| Split::grown(index, &task, from, (DATA_PUSHERS | index, 1))))
    }

    fn done(&self, index: u64, _examples: u64) -> Result<(), String> {
        self.with(|growing| growing.done(index));
        Ok(())
    }

    fn acked(&self, _index: u64, _batches: u64) {}

    fn growing(&self) -> Option<&dyn GrowingSource> {
        Some(&*self.source)
    }

    fn grown(&self, index: u64) -> Option<GrownSplit> {
        let task = self.with(|growing| growing.task(index).cloned())?;
        Some(GrownSplit { task, source: self.source.clone() })
    }
}
