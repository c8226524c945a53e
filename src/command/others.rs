//! What the chief of a run without a scheduler knows of the other workers: which of their lives are of this run, and
//! when they are done.
//!
//! Incarnations order the lives of all workers. Whoever sums up a run marks its end: it takes one more incarnation
//! and leaves it at the servers under a name that no worker has. So lives up to the last mark are of earlier runs,
//! and those above it of this one. The limit of that: a run whose chief died before its end has left no mark, and its
//! lives count as lives of the next run. Runs have no names yet by which to tell these apart.

use super::Failure;
use super::args::JobArgs;
use super::job::{LOOK_EVERY, Line, pusher};
use gannet::{PusherStatus, Schema, TableId, Wires, Worker, WorkerConfig, WorkerError};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Who the end of a run is to the shards. Workers have small numbers.
const ENDED: u64 = u32::MAX as u64 - 2;

/// The other workers of a run.
pub struct Others {
    /// Lives up to this one are of earlier runs.
    earlier: u64,
}

impl Others {
    /// Looks at where the run before ended. `schema` is that of the run's first table.
    pub fn look(worker: &mut Worker<Wires>, schema: &Schema) -> Result<Others, Failure> {
        let table = worker.open_table(schema)?;
        let pushers = worker.status(table)?.pushers;
        let ended = pushers.iter().find(|known| known.pusher == ENDED);
        Ok(Others { earlier: ended.map_or(0, |known| known.incarnation) })
    }

    /// Waits until every other worker has said that it is done. One that makes no progress for `--peer-timeout` is
    /// named and not waited for any longer.
    pub fn wait(
        &self,
        worker: &mut Worker<Wires>,
        table: TableId,
        job: &JobArgs,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let limit = Duration::from_secs_f64(job.peer_timeout);
        // For each worker what was last seen of it, since when, and whether it has been given up.
        let mut seen: Vec<(Option<PusherStatus>, Instant, bool)> =
            vec![(None, Instant::now(), false); job.worker_hosts.len()];
        loop {
            let pushers = worker.status(table)?.pushers;
            let mut waiting = false;
            for index in 1..job.worker_hosts.len() as u32 {
                let now = pushers.iter().find(|known| known.pusher == pusher(index)).copied();
                if now.is_some_and(|known| known.incarnation > self.earlier && known.closed) {
                    continue;
                }
                let (before, since, given_up) = &mut seen[index as usize];
                if *before != now {
                    (*before, *since, *given_up) = (now, Instant::now(), false);
                }
                if since.elapsed() < limit {
                    waiting = true;
                } else if !std::mem::replace(given_up, true) {
                    let host = &job.worker_hosts[index as usize];
                    complain!(
                        "gannet: worker {index} ({host}) has pushed nothing for {:.0} s and has not said that it \
                         is done; the model is evaluated without waiting for it",
                        job.peer_timeout
                    );
                }
            }
            if !waiting || stop.load(Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Marks the end of a run over these tables: lives above are of the next one. What was learned is saved by then, so a
/// failure is only told.
pub fn mark_end(line: &Line, schemas: &[Schema]) {
    let mark = || -> Result<(), WorkerError> {
        let incarnation = line.allocate()?;
        let config = WorkerConfig { pusher: ENDED, incarnation, ..line.config.clone() };
        let mut worker = Worker::connect(line.net.clone(), config)?;
        schemas.iter().try_for_each(|schema| {
            let table = worker.open_table(schema)?;
            worker.close_pusher(table)
        })
    };
    if let Err(error) = mark() {
        complain!(
            "gannet: the end of this run is not marked at the servers: {error}; the chief of a run that follows on the \
             same servers may not wait for all of its workers"
        );
    }
}
