//! Writes the row files of a cut on a thread of its own, so that neither compression nor a slow disk stops the server
//! thread. The queue between them is bounded: when it is full, the server thread reads no further rows of the cut.
//!
//! A server without threads ([`LocalServer`](crate::LocalServer)) writes a block at each of its turns.

use crate::limits::{CUT_ENDED_BYTES, CUT_ENDED_FILES, CUT_QUEUE_BLOCKS, CUT_SLICE_BYTES};
use gannet_core::{CheckpointDir, CheckpointDirError, EndedRowFile, FileEntry, RowFileHead, RowFileWriter};
use gannet_wire::messages::cuts::CutFileV1;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::sync::{Arc, OnceLock};

const GIVEN_UP: &str = "the server gave the checkpoint up";

/// A shard's file in a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CutFileId {
    /// The table's number on the server thread.
    pub(crate) table: u32,
    /// The table's place in the manifest.
    pub(crate) place: u32,
    pub(crate) shard: u32,
}

/// Rows of a shard. `end`: they are the last ones.
pub(crate) struct CutBlock {
    pub(crate) file: CutFileId,
    pub(crate) keys: Vec<u64>,
    pub(crate) rows: Vec<f32>,
    pub(crate) end: bool,
}

/// What has become of a writer.
#[derive(Clone, Debug)]
pub(crate) enum WriterState {
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

/// Where a server writes the files of its cuts.
#[derive(Clone, Debug, Default)]
pub(crate) enum CutExecutor {
    /// On a thread of their own.
    #[default]
    Thread,
    /// In the turns of the server's threads.
    Turns(Arc<CutPace>),
}

/// How a server without a writing thread writes the files of its cuts.
#[derive(Debug)]
pub(crate) struct CutPace {
    /// Nothing is written.
    pub(crate) held: AtomicBool,
    /// About how many bytes are read in a turn.
    pub(crate) slice_bytes: AtomicUsize,
}

impl Default for CutPace {
    fn default() -> CutPace {
        CutPace { held: AtomicBool::new(false), slice_bytes: AtomicUsize::new(CUT_SLICE_BYTES) }
    }
}

impl CutExecutor {
    fn is_held(&self) -> bool {
        matches!(self, CutExecutor::Turns(pace) if pace.held.load(Relaxed))
    }

    /// About how many bytes of rows a thread reads in a turn.
    fn slice_bytes(&self) -> usize {
        match self {
            CutExecutor::Thread => CUT_SLICE_BYTES,
            CutExecutor::Turns(pace) => pace.slice_bytes.load(Relaxed),
        }
    }
}

/// The server thread's side of a writer.
pub(crate) struct CutWriter {
    /// The files, until the first block comes.
    files: Option<CutFiles>,
    executor: CutExecutor,
    running: Running,
    counts: Arc<Counts>,
    state: WriterState,
}

/// A writer at work.
enum Running {
    /// It has not begun, or is over.
    No,
    Thread {
        queue: SyncSender<CutBlock>,
        outcome: Receiver<Outcome>,
    },
    Turns {
        queue: VecDeque<CutBlock>,
        files: Box<CutFiles>,
    },
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
    pub(crate) fn start(
        executor: CutExecutor,
        directory: CheckpointDir,
        number: u64,
        level: i32,
    ) -> CutWriter {
        let counts = Arc::<Counts>::default();
        let files = CutFiles {
            directory,
            number,
            level,
            checked: false,
            starts: HashMap::new(),
            left: 0,
            open: HashMap::new(),
            ended: EndedFiles::default(),
            written: Vec::new(),
            counts: counts.clone(),
        };
        let state = WriterState::Writing { rows: 0, bytes: 0 };
        CutWriter { files: Some(files), executor, running: Running::No, counts, state }
    }

    /// Adds a file. All files are added before the first block.
    pub(crate) fn begin(&mut self, head: RowFileHead, deletions: Vec<u64>, sketch: Vec<u8>) {
        if let Some(files) = &mut self.files {
            files.starts.insert((head.table, head.shard), FileStart { head, deletions, sketch });
            files.left = files.starts.len();
        }
    }

    /// All files are added.
    pub(crate) fn begun(&mut self) {
        if self.files.as_ref().is_some_and(CutFiles::is_done) {
            self.state = WriterState::Written(Vec::new());
        }
    }

    /// Gives rows to the writer. It returns them when its queue is full. After a failure it drops them.
    pub(crate) fn put(&mut self, block: CutBlock) -> Result<(), CutBlock> {
        if let Some(files) = self.files.take() {
            self.run(files);
        }
        match &mut self.running {
            Running::No => Ok(()),
            Running::Thread { queue, .. } => match queue.try_send(block) {
                Err(TrySendError::Full(block)) => Err(block),
                _ => Ok(()),
            },
            Running::Turns { queue, .. } if queue.len() < CUT_QUEUE_BLOCKS && !self.executor.is_held() => {
                queue.push_back(block);
                Ok(())
            }
            Running::Turns { .. } => Err(block),
        }
    }

    fn run(&mut self, files: CutFiles) {
        if let CutExecutor::Turns(_) = self.executor {
            self.running = Running::Turns { queue: VecDeque::new(), files: Box::new(files) };
            return;
        }
        let (send_outcome, outcome) = channel();
        let (queue, blocks) = sync_channel(CUT_QUEUE_BLOCKS);
        let run = move || send_outcome.send(files.run(&blocks));
        match std::thread::Builder::new().name("checkpoint".into()).spawn(run) {
            Ok(_) => self.running = Running::Thread { queue, outcome },
            Err(error) => self.fail(format!("starting the thread that writes: {error}")),
        }
    }

    /// Looks whether the writer has ended. A writer without a thread first writes a block.
    pub(crate) fn look(&mut self) {
        if !matches!(self.state, WriterState::Writing { .. }) {
            return;
        }
        let outcome = match &mut self.running {
            Running::No => return,
            Running::Thread { outcome, .. } => match outcome.try_recv() {
                Err(TryRecvError::Disconnected) => Some(Err("the thread that writes has died".into())),
                Err(TryRecvError::Empty) => None,
                Ok(outcome) => Some(outcome),
            },
            Running::Turns { .. } if self.executor.is_held() => None,
            Running::Turns { queue, files } => {
                queue.pop_front().and_then(|block| files.take(&block).transpose())
            }
        };
        self.state = match outcome {
            Some(Ok(files)) => WriterState::Written(files),
            Some(Err(why)) => WriterState::Failed(why),
            None => WriterState::Writing {
                rows: self.counts.rows.load(Relaxed),
                bytes: self.counts.bytes.load(Relaxed),
            },
        };
        if !matches!(self.state, WriterState::Writing { .. }) {
            self.running = Running::No;
        }
    }

    /// About how many bytes of rows the next slice has.
    pub(crate) fn slice_bytes(&self) -> usize {
        self.executor.slice_bytes()
    }

    /// Whether there are blocks that the next look writes.
    pub(crate) fn has_turns(&self) -> bool {
        matches!(&self.running, Running::Turns { queue, .. } if !queue.is_empty())
    }

    pub(crate) fn state(&self) -> &WriterState {
        &self.state
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.running = Running::No;
        self.counts.given_up.store(true, Relaxed);
        self.state = WriterState::Failed(why);
    }
}

/// Files that have ended, and are open until they are durable.
#[derive(Default)]
struct EndedFiles {
    files: Vec<((u32, u32), EndedRowFile)>,
}

/// Such files of all threads of the process: each of them has a descriptor.
static ENDED_FILES: AtomicUsize = AtomicUsize::new(0);

impl EndedFiles {
    /// Whether the process has as many as it may have.
    fn are_enough() -> bool {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| EndedRowFile::at_once_max(CUT_ENDED_FILES));
        ENDED_FILES.load(Relaxed) >= most
    }

    fn push(&mut self, id: (u32, u32), file: EndedRowFile) {
        ENDED_FILES.fetch_add(1, Relaxed);
        self.files.push((id, file));
    }

    fn take(&mut self) -> Vec<((u32, u32), EndedRowFile)> {
        ENDED_FILES.fetch_sub(self.files.len(), Relaxed);
        std::mem::take(&mut self.files)
    }
}

impl Drop for EndedFiles {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The files of a cut, where they are written.
struct CutFiles {
    directory: CheckpointDir,
    number: u64,
    level: i32,
    /// Whether it is known that the checkpoint is begun.
    checked: bool,
    /// What the files begin with that have had no block.
    starts: HashMap<(u32, u32), FileStart>,
    /// Files that are not finished.
    left: usize,
    open: HashMap<(u32, u32), RowFileWriter>,
    /// Files that are written, and may not be durable yet.
    ended: EndedFiles,
    written: Vec<CutFileV1>,
    counts: Arc<Counts>,
}

impl CutFiles {
    fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Writes blocks until all files are finished.
    fn run(mut self, blocks: &Receiver<CutBlock>) -> Outcome {
        loop {
            let block = blocks.recv().ok().filter(|_| !self.counts.given_up.load(Relaxed));
            let Some(block) = block else {
                return Err(GIVEN_UP.into());
            };
            if let Some(written) = self.take(&block)? {
                return Ok(written);
            }
        }
    }

    /// Writes a block. After the last one of all files, it syncs their folder and returns what it has written.
    fn take(&mut self, block: &CutBlock) -> Result<Option<Vec<CutFileV1>>, String> {
        if !self.checked {
            // Here, where the files are written, and not where requests are answered: a bucket may answer late.
            self.directory.must_be_begun(self.number).map_err(|error| error.to_string())?;
            // The folder may be that of a later save: this one may have its number in another directory. Who began the
            // later one knew that this cut had been given up.
            if self.counts.given_up.load(Relaxed) {
                return Err(GIVEN_UP.into());
            }
            self.checked = true;
        }
        self.write(block)?;
        let bytes: u64 = self.ended.files.iter().map(|(_, file)| file.bytes()).sum();
        if self.is_done() || EndedFiles::are_enough() || bytes >= CUT_ENDED_BYTES {
            self.finish()?;
        }
        if !self.is_done() {
            return Ok(None);
        }
        self.directory.sync(self.number).map_err(|error| error.to_string())?;
        Ok(Some(std::mem::take(&mut self.written)))
    }

    /// Begins a file. If the process has no more descriptors, the files that have ended are closed first.
    fn create(&mut self, head: RowFileHead) -> Result<RowFileWriter, String> {
        let create = |files: &CutFiles| RowFileWriter::create(&files.directory, head, files.level);
        let created = match create(self) {
            Err(error) if error.is_out_of_descriptors() && !self.ended.files.is_empty() => {
                self.finish()?;
                create(self)
            }
            created => created,
        };
        created.map_err(|error| error.to_string())
    }

    fn write(&mut self, block: &CutBlock) -> Result<(), String> {
        let text = |error: CheckpointDirError| error.to_string();
        let id = (block.file.place, block.file.shard);
        let start = self.starts.remove(&id);
        // A shard without anything needs no file.
        let nothing = |start: &FileStart| start.deletions.is_empty() && start.sketch.is_empty();
        if block.end && block.keys.is_empty() && start.as_ref().is_some_and(nothing) {
            self.left -= 1;
            return Ok(());
        }
        if let Some(FileStart { head, deletions, sketch }) = start {
            let mut file = self.create(head)?;
            file.sketch(&sketch).map_err(text)?;
            if !deletions.is_empty() {
                file.deletions(&deletions).map_err(text)?;
            }
            self.open.insert(id, file);
        }
        if let Some(file) = self.open.get_mut(&id) {
            file.rows(&block.keys, &block.rows).map_err(text)?;
            self.counts.rows.fetch_add(block.keys.len() as u64, Relaxed);
            self.counts.bytes.fetch_add((block.keys.len() * 8 + block.rows.len() * 4) as u64, Relaxed);
        }
        if block.end
            && let Some(file) = self.open.remove(&id)
        {
            self.ended.push(id, file.end().map_err(text)?);
            self.left -= 1;
        }
        Ok(())
    }

    /// Makes the files that have ended durable, unless the cut was given up.
    fn finish(&mut self) -> Result<(), String> {
        for ((table, shard), file) in self.ended.take() {
            if self.counts.given_up.load(Relaxed) {
                return Err(GIVEN_UP.into());
            }
            let FileEntry { name, bytes, crc, rows, deletions } =
                file.finish().map_err(|error| error.to_string())?;
            // Who waits for the files sees that this goes on, too.
            self.counts.bytes.fetch_add(bytes, Relaxed);
            self.written.push(CutFileV1 { table, shard, name, bytes, crc, rows, deletions });
        }
        Ok(())
    }
}
