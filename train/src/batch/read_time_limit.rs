//! The time limit of a learner for the bytes of its split.

use crate::read::bytes::data_file::shown_name;
use crate::read::data::Data;
use crate::read::error::ReadError;
use crate::read::splits::split::Splits;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The progress of the thread that reads splits, for the learner that waits for it.
#[derive(Clone, Default)]
pub(crate) struct ReadProgress {
    /// The index of the file that the thread reads, plus 1. 0 means none: it waits for a split from the scheduler.
    file: Arc<AtomicUsize>,
    /// Bytes read, and starts of files and waits.
    pub(crate) read: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    /// What is read, if the source grows.
    grown: Arc<Mutex<Option<String>>>,
}

impl ReadProgress {
    pub(crate) fn begin(&self, file: Option<usize>) {
        self.file.store(file.map_or(0, |file| file + 1), Relaxed);
        self.done.fetch_add(1, Relaxed);
    }

    /// A task of a source that grows begins; its name is for messages.
    pub(crate) fn begin_grown(&self, name: String) {
        *self.grown.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        self.begin(Some(0));
    }

    fn now(&self) -> (usize, u64, u64) {
        (self.file.load(Relaxed), self.read.load(Relaxed), self.done.load(Relaxed))
    }
}

/// The learner's time limit for reading a split. The bytes of a file may never come (a dead network mount), and no
/// other worker could train this worker's split.
pub(crate) struct ReadTimeLimit {
    reading: ReadProgress,
    source: Arc<dyn Splits>,
    files: Vec<String>,
    /// The progress at the last check, and the time without progress. The time is a sum of waits, so that it does not
    /// grow while the whole process is stopped.
    seen: (usize, u64, u64),
    waited: Duration,
    /// The split source knows that this worker waits for bytes.
    reported: bool,
}

impl ReadTimeLimit {
    /// A limit for splits of `data` from this source.
    pub(crate) fn of(
        source: Option<&Arc<dyn Splits>>,
        data: &Data,
        reading: ReadProgress,
    ) -> Option<ReadTimeLimit> {
        // The link to a client has its own time limit, whose error names the client.
        let source = source.filter(|source| source.texts().is_none())?.clone();
        let files = data.files.clone();
        Some(ReadTimeLimit {
            reading,
            source,
            files,
            seen: (0, 0, 0),
            waited: Duration::ZERO,
            reported: false,
        })
    }

    /// Records a wait of this length for a batch. Returns an error when the reading made no progress within the
    /// limit.
    pub(crate) fn wait(&mut self, waited: Duration) -> Option<ReadError> {
        let now = self.reading.now();
        if now.0 == 0 || now != self.seen {
            (self.seen, self.waited) = (now, Duration::ZERO);
            self.report(now.0 > 0);
            return None;
        }
        if self.source.growing().is_some_and(|source| source.is_away()) {
            // No worker could read this. The source has its own limit.
            return None;
        }
        self.waited += waited;
        let limit = self.source.patience();
        if self.waited < limit {
            return None;
        }
        let grown = self.reading.grown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let named = || self.files.get(now.0 - 1).map_or("", |file| shown_name(file)).to_owned();
        let file = grown.unwrap_or_else(named);
        Some(ReadError::Stalled { file, seconds: limit.as_secs_f64() })
    }

    /// Tells the split source whether this worker waits for bytes.
    pub(crate) fn report(&mut self, waits: bool) {
        if waits || self.reported {
            self.source.waits(waits);
        }
        (self.reported, self.waited) = (waits, Duration::ZERO);
    }
}
