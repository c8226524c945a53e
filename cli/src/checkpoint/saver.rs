//! Checkpoints of a job while it trains: a thread of worker 0 saves one every `--checkpoint-secs`, over connections of
//! its own.

use crate::checkpoint_place::create_checkpoints;
use crate::failure::Failure;
use crate::flags::{DataArgs, JobArgs};
use crate::input;
use crate::job::connection::WorkerConnection;
use crate::model::notes::{NOT_SCALED, of_job};
use crate::report::words::counted;
use crate::train::fields;
use gannet::storage::{CheckpointDir, CheckpointOptions, JobManifest, save_checkpoint};
use gannet::train::Data;
use gannet::train::saved::{FIELDS, INTERCEPT, OF_MODEL, SCALE, note_of_fields};
use gannet::{Transports, WorkerConfig};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After a full checkpoint come so many that hold only what has changed.
const INCREMENTS: u32 = 9;

/// Saves checkpoints until it is dropped.
pub struct CheckpointSaver {
    requests: SyncSender<Request>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked to do.
enum Request {
    /// Save one more checkpoint at once.
    Save,
    End,
}

struct Job {
    net: Transports,
    config: WorkerConfig,
    directory: CheckpointDir,
    options: CheckpointOptions,
    keep: u32,
    /// Increments since the last full checkpoint.
    increments: u32,
    /// Bytes of the last full checkpoint.
    full_bytes: u64,
}

impl CheckpointSaver {
    /// Starts the thread in worker 0 of a job with `--checkpoint`. `tables`: those to which each batch
    /// pushes. `shape`: the notes about the structure of the model, for who scores with it.
    pub fn start(
        job: &JobArgs,
        (flags, data): (&DataArgs, &Data),
        line: &WorkerConnection,
        (tables, shape): (&[&str], &[(&'static str, String)]),
    ) -> Result<Option<CheckpointSaver>, Failure> {
        let Some(folder) = job.checkpoint.checkpoint.as_deref().filter(|_| job.task_index == 0) else {
            return Ok(None);
        };
        let config = line.of_all_servers();
        let (directory, run) = (create_checkpoints(folder)?, job.run.name());
        let birth = config.run.as_ref().map_or(0, |run| run.birth);
        directory.newest_of(run, birth)?;
        let on_servers = |table: &&str| config.run.as_ref().map_or((*table).into(), |run| run.table(table));
        let options = CheckpointOptions {
            run: run.into(),
            batch_tables: tables.iter().map(on_servers).collect(),
            notes: notes(flags, data, shape)?,
            birth,
            sole: true,
            ..CheckpointOptions::default()
        };
        let mut saves = Job {
            net: line.net.clone(),
            config,
            directory,
            options,
            keep: job.checkpoint.checkpoint_keep,
            increments: INCREMENTS,
            full_bytes: 0,
        };
        let every = Duration::from_secs(job.checkpoint.checkpoint_secs);
        let (requests, received) = sync_channel(1);
        let run = move || {
            loop {
                match received.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) | Ok(Request::Save) => saves.save(),
                    Ok(Request::End) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".into()).spawn(run);
        let thread = thread
            .map_err(|error| Failure::new(crate::failure::SYSTEM, format!("starting a thread: {error}")))?;
        Ok(Some(CheckpointSaver { requests, thread: Some(thread) }))
    }

    /// Saves a checkpoint of the trained model in the background, unless the training was `stopped`.
    pub fn save_trained(saver: Option<&CheckpointSaver>, stopped: bool) {
        if let Some(saver) = saver.filter(|_| !stopped) {
            let _ = saver.requests.send(Request::Save); // without the thread, there is nobody to save
        }
    }

    /// Ends the thread. Unless the training was `stopped`, saves a last checkpoint first: that the run is finished.
    pub fn end(saver: Option<CheckpointSaver>, stopped: bool) {
        CheckpointSaver::save_trained(saver.as_ref(), stopped);
    }
}

impl Drop for CheckpointSaver {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How the job reads its data, for who scores with the checkpoint or starts from it. Rows alone do not show it. Of data
/// that comes only once it says what flags say.
fn notes(
    flags: &DataArgs,
    data: &Data,
    shape: &[(&'static str, String)],
) -> Result<Vec<(String, String)>, Failure> {
    let scale = input::scale(&flags.input).map_or(NOT_SCALED, |kind| kind.name());
    let intercept = if flags.no_intercept { "no" } else { "yes" };
    let mut notes = vec![(SCALE.into(), scale.into()), (INTERCEPT.into(), intercept.into())];
    match fields::of_readers(data) {
        [] => {}
        ids => notes.push((FIELDS.into(), note_of_fields(ids))),
    }
    let of_model = of_job(flags, data, shape)?.into_iter();
    notes.extend(of_model.map(|(name, value)| (format!("{OF_MODEL}{name}"), value)));
    Ok(notes)
}

impl Job {
    /// Decides whether the next checkpoint may be an increment. A chain of increments that are nearly as large as full
    /// checkpoints only takes space.
    fn count(&mut self, saved: &JobManifest) {
        match saved.parent {
            None => (self.increments, self.full_bytes) = (0, saved.bytes()),
            Some(_) if saved.bytes() > self.full_bytes / 2 => self.increments = INCREMENTS,
            Some(_) => self.increments += 1,
        }
    }

    /// Saves a checkpoint. A failure is a warning: the training goes on, and the next checkpoint may succeed.
    fn save(&mut self) {
        let from = Instant::now();
        let increment = self.increments < INCREMENTS;
        let options = CheckpointOptions { increment, ..self.options.clone() };
        let newest = match save_checkpoint(self.net.clone(), &self.config, &self.directory, &options) {
            Ok(saved) => {
                self.count(&saved.manifest);
                tracing::info!(
                    number = saved.manifest.number,
                    rows = saved.manifest.rows(),
                    bytes = saved.manifest.bytes(),
                    seconds = from.elapsed().as_secs_f64(),
                    frozen_ms = saved.frozen.as_secs_f64() * 1e3,
                    "saved a checkpoint of {}",
                    counted(saved.manifest.tables.len() as u64, "table", "tables")
                );
                saved.manifest
            }
            Err(error) => {
                self.increments = INCREMENTS;
                notice!(
                    "warning: a checkpoint in {} was not saved: {error}",
                    self.directory.path().display()
                );
                return;
            }
        };
        if let Err(error) = self.directory.prune_run(&newest, self.keep) {
            notice!(
                "warning: old checkpoints in {} were not removed: {error}",
                self.directory.path().display()
            );
        }
    }
}
