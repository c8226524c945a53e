//! Writes the row files of a cut on a thread of its own, so that neither compression nor a slow disk stops the server
//! thread. The queue between them is bounded: when it is full, the server thread reads no further rows of the cut.

use crate::cuts::CutFileV1;
use crate::limits::CUT_QUEUE_BLOCKS;
use gannet_core::{CheckpointDir, FileEntry, RowFileHead, RowFileWriter};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};

/// A shard's file in a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CutFileId {
    /// The table's number on the server thread.
    pub(super) table: u32,
    /// The table's place in the manifest.
    pub(super) place: u32,
    pub(super) shard: u32,
}

/// Rows of a shard. `end`: they are the last ones.
pub(super) struct CutBlock {
    pub(super) file: CutFileId,
    pub(super) keys: Vec<u64>,
    pub(super) rows: Vec<f32>,
    pub(super) end: bool,
}

/// What has become of a writer.
#[derive(Clone, Debug)]
pub(super) enum WriterState {
    Writing { rows: u64, bytes: u64 },
    Written(Vec<CutFileV1>),
    Failed(String),
}

/// What a shard's file begins with.
struct FileStart {
    head: RowFileHead,
    deletions: Vec<u64>,
    sketch: Vec<u8>,
}

type Outcome = Result<Vec<CutFileV1>, String>;

/// The server thread's side of a writer.
pub(super) struct CutWriter {
    starts: HashMap<(u32, u32), FileStart>,
    files: Option<CutFiles>,
    queue: Option<SyncSender<CutBlock>>,
    outcome: Receiver<Outcome>,
    send_outcome: Option<std::sync::mpsc::Sender<Outcome>>,
    counts: Arc<Counts>,
    state: WriterState,
}

/// What both sides of a writer know.
#[derive(Default)]
struct Counts {
    rows: AtomicU64,
    bytes: AtomicU64,
    /// The cut was given up: blocks that wait are not written.
    given_up: AtomicBool,
}

impl Drop for CutWriter {
    fn drop(&mut self) {
        self.counts.given_up.store(true, Relaxed);
    }
}

impl CutWriter {
    /// A writer of the files of checkpoint `number`, which must be begun.
    pub(super) fn start(directory: CheckpointDir, number: u64, level: i32) -> CutWriter {
        let counts = Arc::<Counts>::default();
        let files = CutFiles {
            directory,
            number,
            level,
            left: 0,
            open: HashMap::new(),
            written: Vec::new(),
            counts: counts.clone(),
        };
        let (send_outcome, outcome) = channel();
        CutWriter {
            starts: HashMap::new(),
            files: Some(files),
            queue: None,
            outcome,
            send_outcome: Some(send_outcome),
            counts,
            state: WriterState::Writing { rows: 0, bytes: 0 },
        }
    }

    /// Adds a file. All files are added before the first block.
    pub(super) fn begin(&mut self, head: RowFileHead, deletions: Vec<u64>, sketch: Vec<u8>) {
        self.starts.insert((head.table, head.shard), FileStart { head, deletions, sketch });
    }

    /// All files are added.
    pub(super) fn begun(&mut self) {
        if self.starts.is_empty() {
            self.state = WriterState::Written(Vec::new());
        }
    }

    /// Gives rows to the writer. It returns them when its queue is full. After a failure it drops them.
    pub(super) fn put(&mut self, block: CutBlock) -> Result<(), CutBlock> {
        if let Some(mut files) = self.files.take() {
            files.left = self.starts.len();
            let (starts, send) = (std::mem::take(&mut self.starts), self.send_outcome.take());
            let (queue, blocks) = sync_channel(CUT_QUEUE_BLOCKS);
            let run = move || {
                let outcome = files.run(starts, &blocks);
                send.map(|send| send.send(outcome))
            };
            match std::thread::Builder::new().name("checkpoint".into()).spawn(run) {
                Ok(_) => self.queue = Some(queue),
                Err(error) => self.fail(format!("starting the thread that writes: {error}")),
            }
        }
        match self.queue.as_ref().map(|queue| queue.try_send(block)) {
            Some(Err(TrySendError::Full(block))) => Err(block),
            _ => Ok(()),
        }
    }

    /// Looks whether the writer has ended.
    pub(super) fn look(&mut self) {
        if !matches!(self.state, WriterState::Writing { .. }) {
            return;
        }
        self.state = match self.outcome.try_recv() {
            Ok(Ok(files)) => WriterState::Written(files),
            Ok(Err(why)) => WriterState::Failed(why),
            Err(TryRecvError::Disconnected) => WriterState::Failed("the thread that writes has died".into()),
            Err(TryRecvError::Empty) => WriterState::Writing {
                rows: self.counts.rows.load(Relaxed),
                bytes: self.counts.bytes.load(Relaxed),
            },
        };
        if !matches!(self.state, WriterState::Writing { .. }) {
            self.queue = None;
        }
    }

    pub(super) fn state(&self) -> &WriterState {
        &self.state
    }

    pub(super) fn fail(&mut self, why: String) {
        self.queue = None;
        self.counts.given_up.store(true, Relaxed);
        self.state = WriterState::Failed(why);
    }
}

/// The files of a cut, on the writer's thread.
struct CutFiles {
    directory: CheckpointDir,
    number: u64,
    level: i32,
    /// Files that are not finished.
    left: usize,
    open: HashMap<(u32, u32), RowFileWriter>,
    written: Vec<CutFileV1>,
    counts: Arc<Counts>,
}

impl CutFiles {
    /// Writes blocks until all files are finished.
    fn run(mut self, mut starts: HashMap<(u32, u32), FileStart>, blocks: &Receiver<CutBlock>) -> Outcome {
        // Here, and not on the server's thread: a bucket may answer late.
        self.directory.must_be_begun(self.number).map_err(|error| error.to_string())?;
        while self.left > 0 {
            let block = blocks.recv().ok().filter(|_| !self.counts.given_up.load(Relaxed));
            let Some(block) = block else {
                return Err("the server gave the checkpoint up".into());
            };
            self.write(&mut starts, &block).map_err(|error| error.to_string())?;
        }
        self.directory.sync(self.number).map_err(|error| error.to_string())?;
        Ok(self.written)
    }

    fn write(
        &mut self,
        starts: &mut HashMap<(u32, u32), FileStart>,
        block: &CutBlock,
    ) -> Result<(), gannet_core::CheckpointDirError> {
        let id = (block.file.place, block.file.shard);
        let start = starts.remove(&id);
        // A shard without anything needs no file.
        let nothing = |start: &FileStart| start.deletions.is_empty() && start.sketch.is_empty();
        if block.end && block.keys.is_empty() && start.as_ref().is_some_and(nothing) {
            self.left -= 1;
            return Ok(());
        }
        if let Some(FileStart { head, deletions, sketch }) = start {
            let mut file = RowFileWriter::create(&self.directory, head, self.level)?;
            file.sketch(&sketch)?;
            if !deletions.is_empty() {
                file.deletions(&deletions)?;
            }
            self.open.insert(id, file);
        }
        if let Some(file) = self.open.get_mut(&id) {
            file.rows(&block.keys, &block.rows)?;
            self.counts.rows.fetch_add(block.keys.len() as u64, Relaxed);
            self.counts.bytes.fetch_add((block.keys.len() * 8 + block.rows.len() * 4) as u64, Relaxed);
        }
        if block.end
            && let Some(file) = self.open.remove(&id)
        {
            let FileEntry { name, bytes, crc, rows, deletions } = file.finish()?;
            self.written.push(CutFileV1 { table: id.0, shard: id.1, name, bytes, crc, rows, deletions });
            self.left -= 1;
        }
        Ok(())
    }
}
