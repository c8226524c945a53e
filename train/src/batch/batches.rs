//! Makes batches for the learner: reads, removes duplicate keys, sorts keys by shard, links batches and finds rows. A
//! thread does this ahead of the learner, through a bounded queue whose buffers are reused. It also parses, or takes
//! what other threads have parsed. With one thread, the learner's thread reads and learns in turn.

use crate::backend::tables::RowPreparer;
use crate::batch::open_files::OpenFiles;
use crate::batch::read_time_limit::{ReadProgress, ReadTimeLimit};
use crate::batch::{Batch, Batcher, InSplit};
use crate::learn::options::Options;
use crate::learn::report::TrainError;
use crate::limits::{BATCH_QUEUE_MAX, DEPTH_MAX, READ_LOOK};
use crate::read::bytes::stream::ReadPosition;
use crate::read::data::{Data, Share};
use crate::read::error::{BadLines, ReadError};
use crate::read::formats::columns::Columns;
use crate::read::formats::format::LineReader;
use crate::read::growing::looking::Sample;
use crate::read::reader::Reader;
use crate::read::splits::remote_data;
use crate::read::splits::split::{FileFingerprint, Split, Splits, UnchangedFiles};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What to read, and how to make batches of it.
#[derive(Clone)]
pub(crate) struct ReadPlan {
    pub data: Data,
    pub batch: usize,
    pub share: Share,
    pub epochs: u32,
    pub shards: u32,
    /// Threads that parse lines, besides the one that makes batches. With fewer than two, that one parses.
    pub parsers: usize,
    /// To how many earlier batches each batch is linked.
    pub links: usize,
    pub in_place: bool,
    /// Batches of the share that are read and not made, over all passes.
    pub skip: u64,
    /// The source of splits, and the files as they were at the start.
    pub splits: Option<SplitQueue>,
}

impl ReadPlan {
    /// A plan for `options` and a table of so many shards. Batches are not linked, and not for updates in place.
    pub fn of(options: &Options, shards: u32) -> ReadPlan {
        let splits = options.splits.as_ref();
        ReadPlan {
            data: options.data.clone(),
            batch: options.batch,
            share: options.share,
            epochs: options.epochs,
            shards,
            parsers: options.threads.saturating_sub(1),
            links: 0,
            in_place: false,
            skip: 0,
            splits: splits.map(|(source, files)| SplitQueue { source: source.clone(), files: files.clone() }),
        }
    }
}

/// Splits of files, handed out one at a time.
#[derive(Clone)]
pub(crate) struct SplitQueue {
    pub source: Arc<dyn Splits>,
    pub files: Vec<FileFingerprint>,
}

impl SplitQueue {
    /// Checks that the file of a split on this machine has not changed. A client checks its own files.
    fn check(&self, data: &Data, split: &Split, open: &OpenFiles) -> Result<(), ReadError> {
        match &open.grown {
            Some((path, file)) => file.check(path),
            None if self.source.texts().is_some() || self.source.grown(split.index).is_some() => Ok(()),
            None => self.files[split.file].check(&data.files[split.file]),
        }
    }

    /// Opens the lines of a split, on this machine or at the client. `None`: no line begins in the split.
    fn open(
        &self,
        data: &Data,
        batch: usize,
        split: &Split,
        position: &ReadPosition,
        open: &mut OpenFiles,
    ) -> Result<Option<Reader>, ReadError> {
        if let Some(grown) = self.source.grown(split.index) {
            return open.grown(data, batch, split, position, &grown);
        }
        if let Some(texts) = self.source.texts() {
            let reader = remote_data::reader(data, batch, split, position, (texts, &mut open.remote));
            return reader.map_err(|error| self.failed(error));
        }
        self.check(data, split, open)?;
        let packed = self.files[split.file].packed;
        Reader::of_split(data, batch, split, packed, position, &mut open.here)
    }

    /// The error of a split that cannot be read. An error of the data server takes precedence.
    fn failed(&self, error: ReadError) -> ReadError {
        match self.source.texts().and_then(|texts| texts.trouble()) {
            Some(why) => ReadError::Splits(why),
            None => error,
        }
    }
}

/// Where batches are read from.
enum BatchSource {
    /// All the files, pass after pass.
    Passes(Box<Reader>),
    /// Splits from a source, and the split that is being read.
    Splits(SplitQueue, ReadPosition, Box<OpenFiles>, Option<(Split, Box<Reader>)>),
}

/// What the reader learned about the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadSummary {
    pub format: &'static str,
    pub columns: Option<Columns>,
    /// Bad lines of the first pass.
    pub bad_lines: BadLines,
    /// Batches of one pass, over all shares. 0 where a source hands out splits.
    pub batches: u64,
}

/// The data, opened to find its format.
pub(crate) enum OpenData {
    /// Files on this machine.
    Reader(Box<Reader>),
    /// Data that a client sends.
    Remote(Box<LineReader>),
}

impl OpenData {
    /// Opens the data.
    pub fn new(
        data: &Data,
        batch: usize,
        share: Share,
        source: Option<&dyn Splits>,
    ) -> Result<OpenData, ReadError> {
        if let Some(growing) = source.and_then(|source| source.growing())
            && let Some(sample) = Sample::known(growing, &data.stop).map_err(ReadError::Splits)?
        {
            return Ok(OpenData::Remote(Box::new(remote_data::of_sample(data, sample)?)));
        }
        match source.and_then(|source| source.texts()) {
            Some(texts) => Ok(OpenData::Remote(Box::new(remote_data::first(data, texts)?))),
            None => Ok(OpenData::Reader(Box::new(Reader::open(data, batch, share)?))),
        }
    }

    /// The format, and the columns of a CSV file.
    pub fn format(&self) -> (&'static str, Option<Columns>) {
        match self {
            OpenData::Reader(reader) => (reader.format(), reader.columns().cloned()),
            OpenData::Remote(kind) => (kind.name(), kind.columns().cloned()),
        }
    }
}

/// Makes batches, on the parse thread or on the learner's thread.
pub(crate) struct BatchMaker {
    source: BatchSource,
    plan: ReadPlan,
    batcher: Batcher,
    preparer: Option<RowPreparer>,
    epoch: u32,
    bad_lines: BadLines,
    format: &'static str,
    columns: Option<Columns>,
    reading: ReadProgress,
    unchanged: UnchangedFiles,
    /// The learner takes no more batches.
    over: Arc<AtomicBool>,
}

impl BatchMaker {
    /// A maker on data that has been opened (for the first epoch).
    ///
    /// # Errors
    /// The system cannot start a thread.
    fn new(opened: OpenData, plan: ReadPlan, preparer: Option<RowPreparer>) -> Result<BatchMaker, ReadError> {
        let reading = ReadProgress::default();
        let batcher = Batcher::new(plan.shards, plan.links);
        let (format, columns) = opened.format();
        let mut unchanged = UnchangedFiles::default();
        let source = match (opened, &plan.splits) {
            (OpenData::Reader(reader), None) => {
                unchanged = UnchangedFiles::of(&plan.data, plan.epochs)?;
                BatchSource::Passes(Box::new(reader.with_parsers(plan.parsers)?))
            }
            (_, None) => unreachable!("remote data comes in splits"),
            (_, Some(queue)) => {
                let position = ReadPosition { read: reading.read.clone(), total: None };
                BatchSource::Splits(queue.clone(), position, Box::default(), None)
            }
        };
        let (bad_lines, over) = (BadLines::default(), Arc::default());
        Ok(BatchMaker {
            source,
            plan,
            batcher,
            preparer,
            epoch: 0,
            bad_lines,
            format,
            columns,
            reading,
            unchanged,
            over,
        })
    }

    /// Makes the next batch in the memory of `batch`. Returns false at the end of the last pass.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.split = None;
        let more = match &self.source {
            BatchSource::Passes(_) => self.of_passes(batch)?,
            BatchSource::Splits(..) => self.of_splits(batch)?,
        };
        if !more {
            return Ok(false);
        }
        if batch.split.is_some_and(|split| split.end.is_some()) {
            // Nothing to learn: this batch has no number and no links.
            batch.keys.clear();
            batch.local.clear();
        } else if self.plan.in_place {
            self.batcher.complete_in_place(batch);
        } else {
            self.batcher.complete(batch);
            if let Some(preparer) = &mut self.preparer {
                preparer.prepare(batch);
            }
        }
        batch.bad_lines = self.bad_lines.count;
        Ok(true)
    }

    fn of_passes(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let BatchSource::Passes(reader) = &mut self.source else { return Ok(false) };
        loop {
            let more = match reader.next(&mut batch.block) {
                Ok(more) => more,
                Err(ReadError::Stopped { .. }) => return Ok(false),
                Err(error) => return Err(error),
            };
            if self.epoch == 0 && self.bad_lines.count != reader.bad_lines().count {
                self.bad_lines.clone_from(reader.bad_lines());
            }
            if more && self.plan.skip > 0 {
                self.plan.skip -= 1;
                continue;
            }
            if more {
                break;
            }
            self.unchanged.check()?;
            if self.epoch + 1 >= self.plan.epochs {
                return Ok(false);
            }
            self.epoch += 1;
            let next = Reader::open(&self.plan.data, self.plan.batch, self.plan.share)?;
            **reader = next.with_parsers(self.plan.parsers)?;
        }
        batch.epoch = self.epoch;
        batch.bytes_read = reader.position().bytes_read();
        batch.bytes_total = reader.position().bytes_total();
        Ok(true)
    }

    /// Reads the next batch of the current split or of the next one. The end of a split is an empty batch.
    fn of_splits(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let BatchSource::Splits(queue, position, open, current) = &mut self.source else {
            return Ok(false);
        };
        let ReadPlan { data, batch: examples, parsers, .. } = &self.plan;
        let (stop, over) = (data.stop.clone(), self.over.clone());
        let is_to_end = || stop.is_set() || over.load(Relaxed);
        loop {
            let Some((split, reader)) = current else {
                self.reading.begin(None);
                let taken = queue.source.take(&is_to_end).map_err(ReadError::Splits)?;
                let Some(split) = taken else { return Ok(false) };
                match queue.source.grown(split.index) {
                    Some(grown) => self.reading.begin_grown(grown.name()),
                    None => self.reading.begin(Some(split.file)),
                }
                let left = data.skip_bad_lines - self.bad_lines.count.min(data.skip_bad_lines);
                let data = Data { skip_bad_lines: left, ..data.clone() };
                match queue.open(&data, *examples, &split, position, open)? {
                    Some(reader) => *current = Some((split, Box::new(reader.with_parsers(*parsers)?))),
                    None => queue.source.done(split.index, 0).map_err(ReadError::Splits)?,
                }
                continue;
            };
            let split = *split;
            let more = match reader.next(&mut batch.block) {
                Ok(more) => more,
                Err(ReadError::Stopped { .. }) => return Ok(false),
                Err(error) => return Err(queue.failed(error)),
            };
            let (seq, lines) = (reader.batch_number() + 1, reader.data_lines());
            if !more {
                // If the file has changed meanwhile, the lines that were read may differ from the planned ones.
                queue.check(data, &split, open)?;
                if split.epoch == 0 {
                    self.bad_lines.add_all(reader.bad_lines());
                }
                *current = None;
            }
            let end = (!more).then_some(lines);
            batch.split = Some(InSplit { index: split.index, name: split.name, seq, end });
            batch.epoch = split.epoch;
            (batch.bytes_read, batch.bytes_total) = (position.bytes_read(), None);
            return Ok(true);
        }
    }

    fn summary(self) -> ReadSummary {
        let batches = match &self.source {
            BatchSource::Passes(reader) => reader.batches(),
            BatchSource::Splits(..) => 0,
        };
        ReadSummary { format: self.format, columns: self.columns, bad_lines: self.bad_lines, batches }
    }
}

/// The learner's end of the reading.
pub(crate) enum Batches {
    /// A thread makes batches ahead.
    Ahead {
        ready: Receiver<Batch>,
        /// Batches in `ready`.
        queued: Arc<AtomicUsize>,
        back: SyncSender<Batch>,
        thread: JoinHandle<Result<ReadSummary, ReadError>>,
        over: Arc<AtomicBool>,
        patience: Option<ReadTimeLimit>,
        /// The error when the reading hangs. The thread is then not joined; it ends with the process.
        stalled: Option<ReadError>,
    },
    /// The learner's thread makes each batch when it takes it.
    InTurn { maker: Box<BatchMaker>, spare: Vec<Batch>, failed: Option<ReadError> },
}

/// All buffers: in the queue, at both ends, and in flight.
const BUFFERS: usize = BATCH_QUEUE_MAX + DEPTH_MAX + 4;

impl Batches {
    /// Starts to make batches from opened data (for the first epoch): ahead of the learner, or in turn with it. The
    /// `preparer` finds their rows.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        opened: OpenData,
        plan: ReadPlan,
        ahead: bool,
        preparer: Option<RowPreparer>,
    ) -> Result<Batches, ReadError> {
        let maker = BatchMaker::new(opened, plan, preparer)?;
        // While it waits for a split or reads past batches, the learner must be able to show that it is alive.
        if !ahead && maker.plan.splits.is_none() && maker.plan.skip == 0 {
            return Ok(Batches::InTurn { maker: Box::new(maker), spare: Vec::new(), failed: None });
        }
        let (to_learner, ready) = sync_channel(BATCH_QUEUE_MAX);
        let (back, returned) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            let _ = back.try_send(Batch::default());
        }
        let queued = Arc::<AtomicUsize>::default();
        let over = maker.over.clone();
        let source = maker.plan.splits.as_ref().map(|splits| &splits.source);
        let patience = ReadTimeLimit::of(source, &maker.plan.data, maker.reading.clone());
        let counted = queued.clone();
        let parse = move || run(maker, &to_learner, &counted, &returned);
        let thread = Builder::new().name("gannet-parse".into()).spawn(parse).map_err(ReadError::Thread)?;
        Ok(Batches::Ahead { ready, queued, back, thread, over, patience, stalled: None })
    }

    /// The next batch. `None` at the end, or when the reading failed; [`finish`](Self::finish) then returns the
    /// error.
    pub fn next(&mut self) -> Option<Batch> {
        match self {
            Batches::Ahead { ready, queued, patience: None, .. } => {
                let batch = ready.recv().ok()?;
                queued.fetch_sub(1, Relaxed);
                Some(batch)
            }
            Batches::Ahead { .. } => loop {
                if let Ok(batch) = self.next_within(READ_LOOK) {
                    return batch;
                }
            },
            Batches::InTurn { maker, spare, failed } => {
                let mut batch = spare.pop().unwrap_or_default();
                match maker.next(&mut batch) {
                    Ok(more) => more.then_some(batch),
                    Err(error) => {
                        *failed = Some(error);
                        None
                    }
                }
            }
        }
    }

    /// [`next`](Self::next) with a time limit. `Err` when no batch is ready in time.
    pub fn next_within(&mut self, most: Duration) -> Result<Option<Batch>, RecvTimeoutError> {
        let Batches::Ahead { ready, queued, patience, stalled, .. } = self else { return Ok(self.next()) };
        let received = match ready.recv_timeout(most) {
            Ok(batch) => {
                queued.fetch_sub(1, Relaxed);
                Ok(Some(batch))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(error) => {
                *stalled = patience.as_mut().and_then(|patience| patience.wait(most));
                if stalled.is_some() { Ok(None) } else { Err(error) }
            }
        };
        if let (Ok(Some(_)), Some(patience)) = (&received, patience) {
            patience.report(false);
        }
        received
    }

    /// Batches that are ready.
    pub fn queued(&self) -> usize {
        match self {
            Batches::Ahead { queued, .. } => queued.load(Relaxed),
            Batches::InTurn { .. } => 0,
        }
    }

    /// Returns a buffer for reuse.
    pub fn recycle(&mut self, batch: Batch) {
        match self {
            // If the channel is full or closed, the buffer is freed.
            Batches::Ahead { back, .. } => drop(back.try_send(batch)),
            Batches::InTurn { spare, .. } => spare.push(batch),
        }
    }

    /// Stops making batches, also in the middle of the file. `learned` is what the learner came to: whether it was
    /// stopped.
    ///
    /// If the learner failed, the thread may wait for a pipe or for a split that this worker holds itself, so it is not
    /// joined. It ends at its next check of the flag.
    ///
    /// # Errors
    /// The learner or the reading failed.
    pub fn close(self, learned: Result<bool, TrainError>) -> Result<(bool, ReadSummary), TrainError> {
        match (learned, &self) {
            (Ok(stopped), _) => Ok((stopped, self.finish()?)),
            (Err(error), Batches::Ahead { over, .. }) => {
                over.store(true, Relaxed);
                Err(error)
            }
            (Err(error), Batches::InTurn { .. }) => Err(error),
        }
    }

    fn finish(self) -> Result<ReadSummary, ReadError> {
        match self {
            Batches::Ahead { stalled: Some(error), .. } => Err(error),
            Batches::Ahead { ready, back, thread, .. } => {
                drop((ready, back));
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Batches::InTurn { maker, failed, .. } => failed.map_or_else(|| Ok(maker.summary()), Err),
        }
    }
}

fn run(
    mut maker: BatchMaker,
    ready: &SyncSender<Batch>,
    queued: &AtomicUsize,
    returned: &Receiver<Batch>,
) -> Result<ReadSummary, ReadError> {
    // The buffer that came back last is used first, because its memory is still in a cache.
    let mut spare: Vec<Batch> = Vec::with_capacity(BUFFERS);
    loop {
        spare.extend(returned.try_iter());
        let Some(mut batch) = spare.pop().or_else(|| returned.recv().ok()) else { break };
        if !maker.next(&mut batch)? {
            break;
        }
        // Counted before the learner can take the batch, so that the count never falls below 0.
        queued.fetch_add(1, Relaxed);
        if ready.send(batch).is_err() {
            break;
        }
    }
    Ok(maker.summary())
}
