//! Batches for the learner: read, de-duplicated, cut and linked by a parse thread ahead of it, through a bounded queue, in
//! buffers that come back; or in turn with it, on its own thread.

use crate::batch::{Batch, Batcher, InPiece};
use crate::columns::Columns;
use crate::data::{Data, Share};
use crate::error::{BadLines, ReadError};
use crate::fed::{self, Heads};
use crate::format::Kind;
use crate::limits::{DEPTH_MAX, FEED_QUEUE_MAX};
use crate::piece::{Piece, Pieces, Seen};
use crate::reader::Reader;
use crate::stream::Position;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// What is read, and how it is cut.
#[derive(Clone)]
pub(crate) struct Plan {
    pub data: Data,
    pub batch: usize,
    pub share: Share,
    pub epochs: u32,
    pub shards: u32,
    /// Batches before each that it is linked to.
    pub links: usize,
    pub in_place: bool,
    /// Who hands out pieces of the data, and the files as they were.
    pub pieces: Option<Handing>,
}

/// Pieces of files, handed out one at a time.
#[derive(Clone)]
pub(crate) struct Handing {
    pub by: Arc<dyn Pieces>,
    pub files: Vec<Seen>,
}

impl Handing {
    /// Holds that a file of this machine is what it was; one that is elsewhere is looked after there.
    fn check(&self, path: &str, file: usize) -> Result<(), ReadError> {
        if self.by.texts().is_some() { Ok(()) } else { self.files[file].check(path) }
    }

    /// The lines of a piece, wherever they are; `None`: no line begins in it.
    fn open(
        &self,
        data: &Data,
        batch: usize,
        piece: &Piece,
        position: &Position,
        heads: &mut Heads,
    ) -> Result<Option<Reader>, ReadError> {
        if let Some(texts) = self.by.texts() {
            let reader = fed::reader(data, batch, piece, position, (texts, heads));
            return reader.map_err(|error| self.failed(error));
        }
        self.check(&data.files[piece.file], piece.file)?;
        Reader::of_piece(data, batch, piece, self.files[piece.file].packed, position)
    }

    /// Why a piece could not be read: what whoever feeds it says, if that is why.
    fn failed(&self, error: ReadError) -> ReadError {
        match self.by.texts().and_then(|texts| texts.trouble()) {
            Some(why) => ReadError::Pieces(why),
            None => error,
        }
    }
}

/// What batches are read from.
enum Supply {
    /// All the files, pass after pass.
    Passes(Box<Reader>),
    /// The piece that is read, if one is.
    Pieces(Handing, Position, Heads, Option<(Piece, Box<Reader>)>),
}

/// What the reading found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub format: &'static str,
    pub columns: Option<Columns>,
    /// Of the first pass.
    pub bad_lines: BadLines,
}

/// The data, opened to know its format.
pub(crate) enum Opened {
    /// Here.
    Reader(Box<Reader>),
    /// Elsewhere.
    Fed(Box<Kind>),
}

impl Opened {
    /// Opens the data.
    pub fn new(
        data: &Data,
        batch: usize,
        share: Share,
        by: Option<&dyn Pieces>,
    ) -> Result<Opened, ReadError> {
        match by.and_then(|by| by.texts()) {
            Some(texts) => Ok(Opened::Fed(Box::new(fed::first(data, texts)?))),
            None => Ok(Opened::Reader(Box::new(Reader::open(data, batch, share)?))),
        }
    }

    /// The format, and the columns of CSV.
    pub fn found(&self) -> (&'static str, Option<Columns>) {
        match self {
            Opened::Reader(reader) => (reader.format(), reader.columns().cloned()),
            Opened::Fed(kind) => (kind.name(), kind.columns().cloned()),
        }
    }
}

/// Where batches are made: on the parse thread, or between the learner's.
pub(crate) struct Maker {
    supply: Supply,
    plan: Plan,
    batcher: Batcher,
    epoch: u32,
    bad_lines: BadLines,
    format: &'static str,
    columns: Option<Columns>,
}

impl Maker {
    /// On a reader that has been opened (for the first epoch).
    fn new(opened: Opened, plan: Plan) -> Maker {
        let batcher = Batcher::new(plan.shards, plan.links);
        let (format, columns) = opened.found();
        let supply = match (opened, &plan.pieces) {
            (Opened::Reader(reader), None) => Supply::Passes(reader),
            (_, None) => unreachable!("what is fed comes in pieces"),
            (_, Some(handing)) => {
                Supply::Pieces(handing.clone(), Position::default(), Heads::default(), None)
            }
        };
        Maker { supply, plan, batcher, epoch: 0, bad_lines: BadLines::default(), format, columns }
    }

    /// Makes the next batch in the memory of `batch`; false at the end of the last pass.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.piece = None;
        let more = match &self.supply {
            Supply::Passes(_) => self.of_passes(batch)?,
            Supply::Pieces(..) => self.of_pieces(batch)?,
        };
        if !more {
            return Ok(false);
        }
        if batch.piece.is_some_and(|piece| piece.end.is_some()) {
            // Not a batch to learn: it has no number, and nothing is linked to it.
            batch.keys.clear();
            batch.local.clear();
        } else if self.plan.in_place {
            self.batcher.complete_in_place(batch);
        } else {
            self.batcher.complete(batch);
        }
        batch.bad_lines = self.bad_lines.count;
        Ok(true)
    }

    fn of_passes(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let Supply::Passes(reader) = &mut self.supply else { return Ok(false) };
        loop {
            let more = match reader.next(&mut batch.block) {
                Ok(more) => more,
                Err(ReadError::Stopped { .. }) => return Ok(false),
                Err(error) => return Err(error),
            };
            if self.epoch == 0 && self.bad_lines.count != reader.bad_lines().count {
                self.bad_lines.clone_from(reader.bad_lines());
            }
            if more {
                break;
            }
            if self.epoch + 1 >= self.plan.epochs {
                return Ok(false);
            }
            self.epoch += 1;
            **reader = Reader::open(&self.plan.data, self.plan.batch, self.plan.share)?;
        }
        batch.epoch = self.epoch;
        batch.bytes_read = reader.position().bytes_read();
        batch.bytes_total = reader.position().bytes_total();
        Ok(true)
    }

    /// The next batch of the piece that is read, or of the next one; the end of a piece is a batch too, an empty one.
    fn of_pieces(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let Supply::Pieces(handing, position, heads, current) = &mut self.supply else { return Ok(false) };
        let Plan { data, batch: examples, .. } = &self.plan;
        let stop = data.stop.clone();
        loop {
            let Some((piece, reader)) = current else {
                let taken = handing.by.take(&|| stop.is_set()).map_err(ReadError::Pieces)?;
                let Some(piece) = taken else { return Ok(false) };
                let left = data.skip_bad_lines - self.bad_lines.count.min(data.skip_bad_lines);
                let data = Data { skip_bad_lines: left, ..data.clone() };
                match handing.open(&data, *examples, &piece, position, heads)? {
                    Some(reader) => *current = Some((piece, Box::new(reader))),
                    None => handing.by.done(piece.index, 0).map_err(ReadError::Pieces)?,
                }
                continue;
            };
            let piece = *piece;
            let more = match reader.next(&mut batch.block) {
                Ok(more) => more,
                Err(ReadError::Stopped { .. }) => return Ok(false),
                Err(error) => return Err(handing.failed(error)),
            };
            let (seq, lines) = (reader.batch_number() + 1, reader.data_lines());
            if !more {
                // What was read of a file that changed meanwhile is not known to be what it was.
                handing.check(&data.files[piece.file], piece.file)?;
                if piece.epoch == 0 {
                    self.bad_lines.add_all(reader.bad_lines());
                }
                *current = None;
            }
            let end = (!more).then_some(lines);
            batch.piece = Some(InPiece { index: piece.index, name: piece.name, seq, end });
            batch.epoch = piece.epoch;
            (batch.bytes_read, batch.bytes_total) = (position.bytes_read(), None);
            return Ok(true);
        }
    }

    fn found(self) -> Found {
        Found { format: self.format, columns: self.columns, bad_lines: self.bad_lines }
    }
}

/// The learner's end.
pub(crate) enum Feed<'scope> {
    /// Batches are made ahead, on a thread.
    Ahead {
        ready: Receiver<Batch>,
        /// Batches in `ready`.
        queued: Arc<AtomicUsize>,
        back: SyncSender<Batch>,
        thread: ScopedJoinHandle<'scope, Result<Found, ReadError>>,
    },
    /// Batches are made when they are asked for.
    InTurn { maker: Box<Maker>, spare: Vec<Batch>, failed: Option<ReadError> },
}

/// Buffers under way: in the queue, at both ends, in flight.
const BUFFERS: usize = FEED_QUEUE_MAX + DEPTH_MAX + 4;

impl<'scope> Feed<'scope> {
    /// Makes batches of a reader that has been opened (for the first epoch): ahead of the learner, or in turn with it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        opened: Opened,
        plan: Plan,
        ahead: bool,
    ) -> Result<Feed<'scope>, ReadError> {
        let maker = Maker::new(opened, plan);
        // Whoever waits for a piece of the data must not keep the learner from saying so.
        if !ahead && maker.plan.pieces.is_none() {
            return Ok(Feed::InTurn { maker: Box::new(maker), spare: Vec::new(), failed: None });
        }
        let (to_learner, ready) = sync_channel(FEED_QUEUE_MAX);
        let (back, returned) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            let _ = back.try_send(Batch::default());
        }
        let queued = Arc::<AtomicUsize>::default();
        let counted = queued.clone();
        let parse = move || run(maker, &to_learner, &counted, &returned);
        let thread = Builder::new().name("gannet-parse".into()).spawn_scoped(scope, parse);
        Ok(Feed::Ahead { ready, queued, back, thread: thread.map_err(ReadError::Thread)? })
    }

    /// The next batch; `None` when there is no more, or the reading failed ([`finish`](Self::finish) tells).
    pub fn next(&mut self) -> Option<Batch> {
        match self {
            Feed::Ahead { ready, queued, .. } => {
                let batch = ready.recv().ok()?;
                queued.fetch_sub(1, Relaxed);
                Some(batch)
            }
            Feed::InTurn { maker, spare, failed } => {
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

    /// As [`next`](Self::next), for at most so long: `Err` when there is no batch yet.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<Batch>, RecvTimeoutError> {
        let Feed::Ahead { ready, queued, .. } = self else { return Ok(self.next()) };
        match ready.recv_timeout(patience) {
            Ok(batch) => {
                queued.fetch_sub(1, Relaxed);
                Ok(Some(batch))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Batches that are made and wait.
    pub fn queued(&self) -> usize {
        match self {
            Feed::Ahead { queued, .. } => queued.load(Relaxed),
            Feed::InTurn { .. } => 0,
        }
    }

    /// Gives a buffer back.
    pub fn recycle(&mut self, batch: Batch) {
        match self {
            // Full or without a receiver: the buffer is freed.
            Feed::Ahead { back, .. } => drop(back.try_send(batch)),
            Feed::InTurn { spare, .. } => spare.push(batch),
        }
    }

    /// Ends the making, also in the middle of the file.
    ///
    /// # Errors
    /// The reading had failed.
    pub fn finish(self) -> Result<Found, ReadError> {
        match self {
            Feed::Ahead { ready, back, thread, .. } => {
                drop((ready, back));
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Feed::InTurn { maker, failed, .. } => failed.map_or_else(|| Ok(maker.found()), Err),
        }
    }
}

fn run(
    mut maker: Maker,
    ready: &SyncSender<Batch>,
    queued: &AtomicUsize,
    returned: &Receiver<Batch>,
) -> Result<Found, ReadError> {
    // The last one back is the next one out: its memory is still in a cache.
    let mut spare: Vec<Batch> = Vec::with_capacity(BUFFERS);
    loop {
        spare.extend(returned.try_iter());
        let Some(mut batch) = spare.pop().or_else(|| returned.recv().ok()) else { break };
        if !maker.next(&mut batch)? {
            break;
        }
        // Before it can be taken: the count never falls below none.
        queued.fetch_add(1, Relaxed);
        if ready.send(batch).is_err() {
            break;
        }
    }
    Ok(maker.found())
}
