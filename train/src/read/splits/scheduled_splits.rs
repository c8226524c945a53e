//! Splits from a job's scheduler.

use crate::read::growing::looking::{GrowingSource, Looks};
use crate::read::splits::remote_data::RemoteTexts;
use crate::read::splits::split::{FileFingerprint, GrownSplit, Split, Splits, TextSource};
use gannet_core::DATA_PUSHERS;
use gannet_transport::Net;
use gannet_wire::{ActivityKind, Found, GrownTask, PlanFile, SplitGrant};
use gannet_worker::Heartbeat;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The splits that a scheduler grants to this worker.
pub struct Scheduled<N: Net> {
    heartbeat: Heartbeat<N>,
    /// The job's start, which names its pushes.
    started: u64,
    /// The remote data, if a data server sends it.
    remote: Option<RemoteTexts<N>>,
    /// The source, if it grows.
    growing: Option<GrowingTasks>,
}

/// A source that grows, and the tasks of it that this worker holds.
struct GrowingTasks {
    source: Arc<dyn GrowingSource>,
    looks: Mutex<Looks>,
    held: Mutex<BTreeMap<u64, GrownTask>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<N: Net> Scheduled<N> {
    /// Splits of a job that began at `started`.
    pub fn new(heartbeat: Heartbeat<N>, started: u64) -> Scheduled<N> {
        Scheduled { heartbeat, started, remote: None, growing: None }
    }

    /// Splits for a worker without files, whose data a data server sends.
    pub fn remote(heartbeat: Heartbeat<N>, started: u64, texts: RemoteTexts<N>) -> Scheduled<N> {
        Scheduled { heartbeat, started, remote: Some(texts), growing: None }
    }

    /// Tasks of a job whose data grows. This worker looks for what is new in it.
    pub fn growing(heartbeat: Heartbeat<N>, started: u64, source: Arc<dyn GrowingSource>) -> Scheduled<N> {
        let growing = GrowingTasks { source, looks: Mutex::default(), held: Mutex::default() };
        Scheduled { heartbeat, started, remote: None, growing: Some(growing) }
    }

    fn take_grown(&self, growing: &GrowingTasks, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        let report = |found: &Found| self.heartbeat.found(found);
        let taken =
            lock(&growing.looks).take(&*growing.source, stop, &report, &|| self.heartbeat.take_now())?;
        let Some((index, task, from)) = taken else { return Ok(None) };
        // The number of a task of messages is its partition and its first offset.
        let split = Split::grown(index, &task, from, (DATA_PUSHERS | index, self.started));
        lock(&growing.held).insert(index, task);
        Ok(Some(split))
    }

    /// The heartbeat through which the worker requests splits.
    pub fn heartbeat(&self) -> &Heartbeat<N> {
        &self.heartbeat
    }

    /// The heartbeat, to leave the job with.
    pub fn into_heartbeat(self) -> Heartbeat<N> {
        self.heartbeat
    }
}

/// The files in the form of a job's plan.
pub fn plan_files(files: &[String], fingerprints: &[FileFingerprint]) -> Vec<PlanFile> {
    let file = |(name, fingerprint): (&String, &FileFingerprint)| PlanFile {
        name: name.clone(),
        bytes: fingerprint.bytes,
        print: fingerprint.print,
        whole: fingerprint.packed,
    };
    files.iter().zip(fingerprints).map(file).collect()
}

impl<N> Splits for Scheduled<N>
where
    N: Net + Send + Sync + 'static,
    N::Stream: Send,
    N::Poll: Send,
{
    fn take(&self, stop: &dyn Fn() -> bool) -> Result<Option<Split>, String> {
        if let Some(growing) = &self.growing {
            return self.take_grown(growing, stop);
        }
        let Some(SplitGrant::Task { index, task, from, .. }) = self.heartbeat.take(stop)? else {
            return Ok(None);
        };
        // Every worker that trains a task names its pushes in the same way, so that the shards drop those that they
        // have applied. Another job has other names.
        let name = (DATA_PUSHERS | u64::from(task.epoch) << 32 | u64::from(task.number), self.started);
        let (file, start, end, epoch) = (task.file as usize, task.start, task.end, task.epoch);
        Ok(Some(Split { index, epoch, file, start, end, from, name }))
    }

    fn done(&self, index: u64, examples: u64) -> Result<(), String> {
        self.heartbeat.done(index, examples)?;
        if let Some(growing) = &self.growing {
            lock(&growing.held).remove(&index);
        }
        Ok(())
    }

    fn acked(&self, index: u64, batches: u64) {
        self.heartbeat.acked(index, batches);
    }

    fn patience(&self) -> Duration {
        self.heartbeat.read_timeout()
    }

    fn waits(&self, for_bytes: bool) {
        self.heartbeat.is_at(for_bytes.then_some(ActivityKind::Reading));
        self.heartbeat.moved();
    }

    fn growing(&self) -> Option<&dyn GrowingSource> {
        self.growing.as_ref().map(|growing| &*growing.source)
    }

    fn grown(&self, index: u64) -> Option<GrownSplit> {
        let growing = self.growing.as_ref()?;
        let task = lock(&growing.held).get(&index)?.clone();
        Some(GrownSplit { task, source: growing.source.clone() })
    }

    fn texts(&self) -> Option<&dyn TextSource> {
        self.remote.as_ref().map(|texts| texts as &dyn TextSource)
    }
}
