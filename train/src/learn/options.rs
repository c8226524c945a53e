//! The options of a training.

use crate::learn::gradient::Reduce;
use crate::learn::push_content::PushContent;
use crate::learn::report::StartRows;
use crate::read::data::{Data, Share};
use crate::read::split::{FileFingerprint, Splits};
use crate::read::stop_flag::StopFlag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What is trained on, and how.
#[derive(Clone)]
pub struct Options {
    /// The examples.
    pub data: Data,
    /// Examples that are scored after the training.
    pub test: Option<Data>,
    /// Examples of a batch.
    pub batch: usize,
    /// Passes over the file.
    pub epochs: u32,
    /// Which of the batches.
    pub share: Share,
    /// What pushes carry; `None`: replay where the rule can, gradients otherwise.
    pub push: Option<PushContent>,
    /// What becomes of a key's gradients in a batch; `None`: what [suits](Reduce::suits) the rule.
    pub reduce: Option<Reduce>,
    /// 1: reading and learning in turn, on the calling thread; 2 and more: a parse thread reads ahead. The results are
    /// the same.
    pub threads: usize,
    /// Time between calls of the progress callback.
    pub progress_every: Duration,
    /// The source of splits, instead of `epochs` passes over this `share` of it. The files were looked at
    /// before the first was given out.
    pub pieces: Option<(Arc<dyn Splits>, Vec<FileFingerprint>)>,
    /// What the table begins with, which has no rows then.
    pub begin: Option<Arc<dyn StartRows>>,
}

impl Options {
    /// One pass in batches of 256, read ahead, over all of `data`.
    pub fn new(data: Data) -> Options {
        let progress_every = Duration::from_millis(200);
        Options {
            data,
            test: None,
            batch: 256,
            epochs: 1,
            share: Share::ALL,
            push: None,
            reduce: None,
            threads: 2,
            progress_every,
            pieces: None,
            begin: None,
        }
    }

    /// Lets this flag end waits for standard input or a FIFO; [`train`](crate::train()) looks at its own between
    /// batches.
    pub fn stop_on(&mut self, flag: &Arc<AtomicBool>) {
        for data in std::iter::once(&mut self.data).chain(&mut self.test) {
            data.stop = StopFlag::from(flag.clone());
        }
    }
}
