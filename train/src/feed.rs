//! The parse thread: reads, de-duplicates, cuts and links batches ahead of the learner, through a bounded queue, in
//! buffers that come back.

use crate::batch::{Batch, Batcher};
use crate::columns::Columns;
use crate::error::{BadLines, ReadError};
use crate::limits::{DEPTH_MAX, FEED_QUEUE_MAX};
use crate::reader::{Data, Reader, Share};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// What is read, and how it is cut.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub data: Data,
    pub batch: usize,
    pub share: Share,
    pub epochs: u32,
    pub shards: u32,
    pub depth: usize,
    pub in_place: bool,
}

/// What the reading found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub format: &'static str,
    pub columns: Option<Columns>,
    /// Of the first pass.
    pub bad_lines: BadLines,
}

/// The learner's end.
pub(crate) struct Feed<'scope> {
    ready: Receiver<Batch>,
    back: SyncSender<Batch>,
    thread: ScopedJoinHandle<'scope, Result<Found, ReadError>>,
}

/// Buffers under way: in the queue, at both ends, in flight.
const BUFFERS: usize = FEED_QUEUE_MAX + DEPTH_MAX + 4;

impl<'scope> Feed<'scope> {
    /// Starts the thread on a reader that has been opened (for the first epoch).
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        reader: Reader,
        plan: Plan,
    ) -> Result<Feed<'scope>, ReadError> {
        let (to_learner, ready) = sync_channel(FEED_QUEUE_MAX);
        let (back, returned) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            let _ = back.try_send(Batch::default());
        }
        let parse = move || run(reader, &plan, &to_learner, &returned);
        let thread = Builder::new().name("gannet-parse".into()).spawn_scoped(scope, parse);
        Ok(Feed { ready, back, thread: thread.map_err(ReadError::Thread)? })
    }

    /// The next batch; `None` when there is no more, or the reading failed ([`finish`](Self::finish) tells).
    pub fn next(&mut self) -> Option<Batch> {
        self.ready.recv().ok()
    }

    /// Gives a buffer back.
    pub fn recycle(&mut self, batch: Batch) {
        // Full or without a receiver: the buffer is freed.
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.back.try_send(batch) {}
    }

    /// Ends the thread, also in the middle of the file.
    ///
    /// # Errors
    /// The reading had failed.
    pub fn finish(self) -> Result<Found, ReadError> {
        drop((self.ready, self.back));
        match self.thread.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn run(
    mut reader: Reader,
    plan: &Plan,
    ready: &SyncSender<Batch>,
    returned: &Receiver<Batch>,
) -> Result<Found, ReadError> {
    let mut batcher = Batcher::new(plan.shards, plan.depth);
    let mut bad_lines = BadLines::default();
    // The buffer that met the end of a pass serves the next one.
    let mut buffer = None;
    'passes: for epoch in 0..plan.epochs {
        if epoch > 0 {
            reader = Reader::open(&plan.data, plan.batch, plan.share)?;
        }
        loop {
            let Some(mut batch) = buffer.take().or_else(|| returned.recv().ok()) else { break 'passes };
            let more = reader.next(&mut batch.block)?;
            if epoch == 0 && bad_lines.count != reader.bad_lines().count {
                bad_lines.clone_from(reader.bad_lines());
            }
            if !more {
                buffer = Some(batch);
                break;
            }
            if plan.in_place {
                batcher.complete_in_place(&mut batch);
            } else {
                batcher.complete(&mut batch);
            }
            batch.epoch = epoch;
            batch.bytes_read = reader.position().bytes_read();
            batch.bytes_total = reader.position().bytes_total();
            if ready.send(batch).is_err() {
                break 'passes;
            }
        }
    }
    Ok(Found { format: reader.format(), columns: reader.columns().cloned(), bad_lines })
}
