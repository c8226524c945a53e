//! Splits from a job's scheduler.

use crate::read::splits::remote_data::RemoteTexts;
use crate::read::splits::split::{FileFingerprint, Split, Splits, TextSource};
use gannet_core::DATA_PUSHERS;
use gannet_transport::Net;
use gannet_wire::{ActivityKind, PlanFile, SplitGrant};
use gannet_worker::Heartbeat;
use std::time::Duration;

/// The splits that a scheduler grants to this worker.
pub struct Scheduled<N: Net> {
    heartbeat: Heartbeat<N>,
    /// The job's start, which names its pushes.
    started: u64,
    /// The remote data, if a data server sends it.
    remote: Option<RemoteTexts<N>>,
}

impl<N: Net> Scheduled<N> {
    /// Splits of a job that began at `started`.
    pub fn new(heartbeat: Heartbeat<N>, started: u64) -> Scheduled<N> {
        Scheduled { heartbeat, started, remote: None }
    }

    /// Splits for a worker without files, whose data a data server sends.
    pub fn remote(heartbeat: Heartbeat<N>, started: u64, texts: RemoteTexts<N>) -> Scheduled<N> {
        Scheduled { heartbeat, started, remote: Some(texts) }
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
        self.heartbeat.done(index, examples)
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

    fn texts(&self) -> Option<&dyn TextSource> {
        self.remote.as_ref().map(|texts| texts as &dyn TextSource)
    }
}
