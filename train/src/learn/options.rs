//! The options of a training.

use crate::learn::gradient::Reduce;
use crate::learn::push_content::PushContent;
use crate::learn::report::StartRows;
use crate::limits::THREADS_MAX;
use crate::read::bytes::stop_flag::StopFlag;
use crate::read::data::{Data, Share};
use crate::read::error::ReadError;
use crate::read::normalization::Normalize;
use crate::read::splits::split::{FileFingerprint, Splits};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The data, and how to train on it.
#[derive(Clone)]
pub struct Options {
    /// The examples.
    pub data: Data,
    /// Examples to score after the training.
    pub test: Option<Data>,
    /// Examples that whoever watches the training scores between its steps.
    pub validation: Option<Data>,
    /// Examples in a batch.
    pub batch: usize,
    /// Passes over the file.
    pub epochs: u32,
    /// The share of the batches that this worker trains.
    pub share: Share,
    /// What pushes carry. `None`: changes of state where the rule can replay, gradients otherwise.
    pub push: Option<PushContent>,
    /// How a key's gradients in a batch become one. `None`: [as suits](Reduce::suits) the rule.
    pub reduce: Option<Reduce>,
    /// 1: the calling thread reads and learns in turn. 2: another thread reads ahead. More, N: N - 1 threads parse the
    /// lines of files. The results are the same. At most 256.
    pub threads: usize,
    /// Time between calls of the progress callback.
    pub progress_every: Duration,
    /// The source of splits, which replaces `epochs` passes over this `share`. With it come the fingerprints of the
    /// files, taken before the source handed out the first split.
    pub splits: Option<(Arc<dyn Splits>, Vec<FileFingerprint>)>,
    /// The rows to start from. The table must be empty.
    pub begin: Option<Arc<dyn StartRows>>,
}

impl Options {
    /// Options for one pass over all of `data`, in batches of 256 that are read ahead.
    pub fn new(data: Data) -> Options {
        let progress_every = Duration::from_millis(200);
        Options {
            data,
            test: None,
            validation: None,
            batch: 256,
            epochs: 1,
            share: Share::ALL,
            push: None,
            reduce: None,
            threads: 2,
            progress_every,
            splits: None,
            begin: None,
        }
    }

    /// Checks the number of threads.
    pub(crate) fn check_threads(&self) -> Result<(), ReadError> {
        let (value, max) = (self.threads as u64, THREADS_MAX as u64);
        if (1..=max).contains(&value) {
            return Ok(());
        }
        Err(ReadError::Limit { what: "the number of threads", value, max })
    }

    /// Normalizes the values of the training data, and of data that is held out by the same numbers.
    pub fn normalize(&mut self, normalize: &Normalize) {
        self.data.normalize = normalize.clone();
        for held_out in self.test.iter_mut().chain(&mut self.validation) {
            held_out.normalize = normalize.follower();
        }
    }

    /// Makes this flag end waits for standard input or a FIFO. [`train`](crate::train()) checks its own flag between
    /// batches.
    pub fn stop_on(&mut self, flag: &Arc<AtomicBool>) {
        for data in std::iter::once(&mut self.data).chain(&mut self.test).chain(&mut self.validation) {
            data.stop = StopFlag::from(flag.clone());
        }
    }
}
