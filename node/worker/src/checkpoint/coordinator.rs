//! The coordinator of a checkpoint: it makes all server threads cut their tables together, and publishes what they have
//! written.

use crate::calls::cut_client::{CutName, cut_step, cut_wait};
use crate::checkpoint::cut_manifest::manifest;
use crate::checkpoint::frozen::Frozen;
use crate::checkpoint::half_fenced::half_fenced;
use crate::checkpoint::options::{CheckpointOptions, unexpected};
use crate::checkpoint::owner::{
    birth_of_run, must_be_alone, must_be_their_directory, must_be_their_run, savers_of,
};
use crate::checkpoint::torn::{StandingPushes, give_up_gone};
use crate::config::worker_config::WorkerConfig;
use crate::error::WorkerError;
use crate::limits::CUT_STALL;
use crate::worker::Worker;
use gannet_core::{CheckpointDir, Draft, JobManifest, NewestCheckpoints, ShardCut};
use gannet_transport::{Net, Poll};
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::limits::CUT_FREEZE_MAX;
use gannet_wire::messages::cuts::*;
use gannet_wire::random::draw_number;
use gannet_wire::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the coordinator asks.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// How often it asks how far the writing is.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// After so many questions without progress it lets in the pushes that wait: a push that it needs may be behind them.
const QUESTIONS_MAX: u32 = 20;

/// It asks whether the pushers of incomplete pushes are gone when nothing more of these has come for this part of the
/// time for which pushes may be held back.
const STANDSTILL: u32 = 4;

/// Before it tries again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// What [`save_checkpoint`] has saved.
#[derive(Clone, Debug)]
pub struct SavedCheckpoint {
    /// What is in it.
    pub manifest: JobManifest,
    /// How long pushes were held back, from the first request to the last reply.
    pub frozen: Duration,
}

/// Saves a checkpoint of the tables that are open on these servers, while training goes on. The servers write the
/// rows; `directory` must be their checkpoint directory.
///
/// The checkpoint is one consistent cut: it has each push on all its shards, or on none. Pushes are held back while the
/// servers mark the cut, and go on while they write it.
///
/// ```
/// use gannet_core::{CheckpointDir, Schema, Write};
/// use gannet_worker::{CheckpointOptions, save_checkpoint};
/// # use gannet_server::{Server, ServerConfig};
/// # use gannet_worker::{Worker, WorkerConfig};
/// use gannet_optim::{Add, Rule};
/// # use gannet_transport::multi::Transports;
/// # let folder = tempfile::tempdir()?;
/// let directory = CheckpointDir::create(folder.path())?;
/// let checkpoints = Some(directory.clone());
/// let config = ServerConfig { checkpoints, ..ServerConfig::new("127.0.0.1:0") };
/// let server = Server::start(Transports::new(), config)?;
/// let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
/// let mut worker = Worker::connect(Transports::new(), config.clone())?;
/// let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
/// worker.push(table, &[7, 8], Write::Gradient, &[1.0, 2.0])?;
///
/// let saved = save_checkpoint(Transports::new(), &config, &directory, &CheckpointOptions::default())?;
/// assert_eq!((saved.manifest.number, saved.manifest.rows()), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The directory has checkpoints of another run; a server cannot be reached or has no checkpoint directory; pushes had
/// to wait for too long, several times; or a file cannot be written. The directory then has the checkpoints that it had
/// before.
pub fn save_checkpoint<N: Net>(
    net: N,
    config: &WorkerConfig,
    directory: &CheckpointDir,
    options: &CheckpointOptions,
) -> Result<SavedCheckpoint, WorkerError> {
    let mut given_up = Vec::new();
    let saved = save_in_tries(&net, config, directory, options, &mut given_up);
    // A folder that remains only takes space: it has no manifest.
    for GivenUp { number, marked } in given_up {
        let _ = if marked { directory.give_up(number) } else { directory.discard(number) };
    }
    saved
}

/// A try that was given up.
struct GivenUp {
    number: u64,
    /// A server may know the number, and may write into its folder even now. Nobody else may get it.
    marked: bool,
}

/// Tries several times. Adds the tries that were given up to `given_up`.
fn save_in_tries<N: Net>(
    net: &N,
    config: &WorkerConfig,
    directory: &CheckpointDir,
    options: &CheckpointOptions,
    given_up: &mut Vec<GivenUp>,
) -> Result<SavedCheckpoint, WorkerError> {
    let mut tries = 1;
    let saver = options.sole.then(|| format!("{}{:016x}", savers_of(&options.run), options.birth));
    if let Some(saver) = &saver {
        let given_up = directory.give_up_of(saver)?;
        if !given_up.is_empty() {
            tracing::info!(?given_up, "removed what a save had written that was cut short");
        }
    }
    loop {
        let draft = match &saver {
            Some(saver) => directory.begin_as(saver)?,
            None => directory.begin()?,
        };
        let (number, mut marked) = (draft.number(), false);
        let saved = save_once(net.clone(), config, directory, options, draft, &mut marked);
        let Err(error) = saved else { return saved };
        given_up.push(GivenUp { number, marked });
        let again = matches!(
            error,
            WorkerError::Cut(_) | WorkerError::Refused { refusal: Refusal::Cut | Refusal::Limit, .. }
        );
        if !again || tries >= options.tries {
            return Err(error);
        }
        tracing::warn!(%error, tries, "a checkpoint is tried again");
        tries += 1;
        // A simulation waits in its own time.
        net.poll()?.wait(RETRY_AFTER, &mut Vec::new())?;
    }
}

/// One try. Notes when servers may begin to write.
fn save_once<N: Net>(
    net: N,
    config: &WorkerConfig,
    directory: &CheckpointDir,
    options: &CheckpointOptions,
    draft: Draft,
    marking: &mut bool,
) -> Result<SavedCheckpoint, WorkerError> {
    let mut worker = Worker::connect(net.clone(), of_coordinator(config))?;
    let cut = CutName { number: draw_cut()?, run: &options.run };
    let NewestCheckpoints { last, valid } = directory.newest_of(&options.run, options.birth)?;
    let options = &with_notes(options, last.as_ref());
    let parent = valid.clone().filter(|_| options.increment);
    let from = net.now();
    let freeze = Freeze { limit: options.freeze, batch_tables: &options.batch_tables, for_follower: false };
    let frozen = freeze_servers(&mut worker, &net, cut, &freeze)?;
    let tables = tables_of_cut(&frozen, &options.run)?;
    if options.run.is_empty() {
        must_be_their_directory(directory, valid.as_ref(), &tables, None)?;
    }
    let mark = MarkV1 {
        number: draft.number(),
        level: options.level,
        tables: tables.iter().map(|table| table.name.clone()).collect(),
        bases: parent.as_ref().map(|parent| bases_of_parent(parent, &tables)).unwrap_or_default(),
    };
    *marking = true;
    let marked = cut_step(&mut worker, cut, &CutActionV1::Mark(mark))?;
    cut_step(&mut worker, cut, &CutActionV1::Release)?;
    let frozen = net.now().saturating_sub(from);
    let saved = birth_of_run(options, &marked).and_then(|birth| {
        if !options.run.is_empty() {
            must_be_their_run(directory, valid.as_ref(), birth, (&tables, None))?;
        }
        Ok((birth, wait_for_files(&mut worker, &net, cut)?))
    });
    let (birth, files) = match saved {
        Ok(saved) => saved,
        Err(error) => {
            // All threads that answer have stopped to write when the caller begins the next save.
            if let WorkerError::Call(_) | WorkerError::CheckpointDir(_) = error {
                let _ = cut_step(&mut worker, cut, &CutActionV1::End);
            }
            return Err(error);
        }
    };
    let options = &with_notes(&CheckpointOptions { birth, ..options.clone() }, last.as_ref());
    let manifest = manifest(&draft, options, parent, &tables, marked, files)?;
    // A restore takes the highest number, so that must be the newest cut.
    if let Some(later) = directory.newest_manifest()?.filter(|later| later.number > draft.number()) {
        let later = later.number;
        return Err(WorkerError::Cut(format!("somebody else has saved checkpoint {later} meanwhile")));
    }
    must_have_the_cut(&mut worker, cut)?;
    draft.publish(&manifest)?;
    let alone = must_be_alone(directory, &manifest, birth, &tables);
    // The checkpoint is there, whether or not the servers hear it: they forget the cut with its coordinator's session.
    if let Err(error) = cut_step(&mut worker, cut, &CutActionV1::End) {
        tracing::debug!(%error, "the checkpoint is saved, but a server does not answer any more");
    }
    alone?;
    Ok(SavedCheckpoint { manifest, frozen })
}

/// Asks all threads, at the moment of publishing, whether they have the cut. A server that was started again has not.
/// Its rows may be gone, and the job may be about to go back to an older checkpoint.
fn must_have_the_cut<N: Net>(worker: &mut Worker<N>, cut: CutName<'_>) -> Result<(), WorkerError> {
    let replies = cut_step(worker, cut, &CutActionV1::Poll)?;
    let other = replies.iter().find(|reply| !matches!(reply, CutReplyV1::Written { .. }));
    other.map_or(Ok(()), |reply| Err(unexpected(reply)))
}

/// The note of a manifest that names the tables to which each batch pushes.
const BATCH_TABLES: &str = "batch-tables";

/// The options with the batch tables that apply, and with the notes of these and of the run's birth. What this save
/// does not know is as in the newest checkpoint.
fn with_notes(options: &CheckpointOptions, last: Option<&JobManifest>) -> CheckpointOptions {
    let mut options = options.clone();
    let before = |name: &str| last.and_then(|last| last.note(name)).map(str::to_owned);
    if options.batch_tables.is_empty() {
        let names = before(BATCH_TABLES).unwrap_or_default();
        options.batch_tables = names.split_whitespace().map(str::to_owned).collect();
    }
    let tables =
        (!options.batch_tables.is_empty()).then(|| (BATCH_TABLES.into(), options.batch_tables.join(" ")));
    let birth = match options.birth {
        0 => {
            last.and_then(|last| last.notes.iter().find(|(name, _)| name == JobManifest::RUN_BIRTH)).cloned()
        }
        birth => JobManifest::run_birth_note(birth),
    };
    for note in [tables, birth].into_iter().flatten() {
        options.notes.retain(|(name, _)| *name != note.0);
        options.notes.push(note);
    }
    options
}

/// The settings of a worker that cuts.
pub(crate) fn of_coordinator(config: &WorkerConfig) -> WorkerConfig {
    let (pusher, incarnation) = (u64::from(u32::MAX), NO_INCARNATION);
    WorkerConfig { pusher, incarnation, run: None, ..config.clone() }
}

/// Draws the number of a cut.
pub(crate) fn draw_cut() -> Result<u64, WorkerError> {
    draw_number().ok_or_else(|| WorkerError::Cut("the system gave no random number".into()))
}

/// How pushes are held back for a cut.
pub(crate) struct Freeze<'a> {
    /// The longest time for which they wait.
    pub(crate) limit: Duration,
    /// The tables to which each batch pushes.
    pub(crate) batch_tables: &'a [String],
    /// A follower reads the cut.
    pub(crate) for_follower: bool,
}

/// Makes all threads hold new pushes back, and waits until all begun ones are whole.
pub(crate) fn freeze_servers<N: Net>(
    worker: &mut Worker<N>,
    net: &N,
    cut: CutName<'_>,
    freeze: &Freeze<'_>,
) -> Result<Vec<CutReplyV1>, WorkerError> {
    let limit = freeze.limit.min(CUT_FREEZE_MAX);
    let (until, ms) = (net.now() + limit, limit.as_millis() as u32);
    let mut replies = cut_step(
        worker,
        cut,
        &match freeze.for_follower {
            true => CutActionV1::FreezeForFollower { ms },
            false => CutActionV1::Freeze { ms },
        },
    )?;
    let (mut asked, mut before, mut fenced) = (0, None, BTreeSet::new());
    let mut torn = StandingPushes::default();
    loop {
        let state = Frozen::of(&replies, freeze.batch_tables)?;
        if state.is_whole() {
            let pushers: Vec<_> = half_fenced(&replies).into_iter().filter(|of| fenced.insert(*of)).collect();
            if pushers.is_empty() {
                return Ok(replies);
            }
            cut_step(worker, cut, &CutActionV1::GiveUp { pushers, ended: Vec::new() })?;
        }
        if net.now() >= until {
            return Err(WorkerError::Cut(format!(
                "pushes were held back for {:.1} s, and {} is still not complete on all its shards: the cut was given \
                 up. Try again; if the pusher is gone, the servers end its push after its --worker-timeout \
                 (default: 60 s)",
                limit.as_secs_f64(),
                state.missing()
            )));
        }
        asked = if before.as_ref() == Some(&state) { asked + 1 } else { 0 };
        let (mut pushes, steps) = state.limits();
        if asked >= QUESTIONS_MAX {
            pushes.extend(state.held.iter().cloned());
            asked = 0;
        }
        // Pushes of live workers may make progress meanwhile, so the state may change without end.
        let standing = torn.update(state.torn(), net.now(), limit / STANDSTILL);
        give_up_gone(worker, cut, standing)?;
        let (closes, over) = (state.closes(), state.over());
        before = Some(state);
        cut_wait(worker, ASK_EVERY)?;
        replies = cut_step(worker, cut, &CutActionV1::Admit { pushes, steps, closes, over })?;
    }
}

/// The tables of all threads, in the order of names.
pub(crate) fn tables_of_cut(replies: &[CutReplyV1], run: &str) -> Result<Vec<CutTableV1>, WorkerError> {
    let mut all = BTreeMap::<String, CutTableV1>::new();
    for reply in replies {
        let CutReplyV1::Frozen { tables, .. } = reply else { return Err(unexpected(reply)) };
        for table in tables {
            let known = all.entry(table.name.clone()).or_insert_with(|| table.clone());
            // A thread without a shard of the table does not know its id.
            if known.uid == [0; 16] {
                known.uid = table.uid;
            }
            if known.schema != table.schema || (table.uid != [0; 16] && known.uid != table.uid) {
                return Err(WorkerError::Identity(format!(
                    "the servers have different tables {:?}: name all servers of one job, and no others",
                    table.name
                )));
            }
        }
    }
    if all.is_empty() {
        let of = if run.is_empty() { String::new() } else { format!(" of run {run:?}") };
        let text = format!("no table{of} is open on these servers: start the workers, or try again later");
        return Err(WorkerError::Call(text));
    }
    Ok(all.into_values().collect())
}

/// Where the parent's cut ends, for the tables that it has.
fn bases_of_parent(parent: &JobManifest, tables: &[CutTableV1]) -> Vec<CutBaseV1> {
    let of = |(place, table): (u32, &CutTableV1)| {
        let (_, cut) = parent.table(&table.name)?;
        let same = cut.schema.encode() == table.schema && cut.uid.0 == table.uid;
        let base = move |shard: &ShardCut| {
            let ShardCut { shard, birth, epoch, to: command, .. } = *shard;
            CutBaseV1 { table: place, uid: table.uid, shard, birth, epoch, command }
        };
        same.then(|| cut.shards.iter().map(base).collect::<Vec<_>>())
    };
    (0..).zip(tables).filter_map(of).flatten().collect()
}

/// Waits until all threads have written their files.
fn wait_for_files<N: Net>(
    worker: &mut Worker<N>,
    net: &N,
    cut: CutName<'_>,
) -> Result<Vec<CutFileV1>, WorkerError> {
    let (mut before, mut moved_at) = (0, net.now());
    loop {
        let replies = cut_step(worker, cut, &CutActionV1::Poll)?;
        let (mut files, mut writing, mut all_bytes) = (Vec::new(), false, 0);
        for reply in replies {
            match reply {
                CutReplyV1::Written { files: own } => files.extend(own),
                CutReplyV1::Writing { bytes, .. } => (writing, all_bytes) = (true, all_bytes + bytes),
                CutReplyV1::Failed { why } => {
                    return Err(WorkerError::CutFiles(format!(
                        "a server could not write its part of the checkpoint: {why}"
                    )));
                }
                reply => return Err(unexpected(&reply)),
            }
        }
        if !writing {
            return Ok(files);
        }
        let progress = all_bytes + files.len() as u64;
        if progress != before {
            (before, moved_at) = (progress, net.now());
        } else if net.now().saturating_sub(moved_at) > CUT_STALL {
            return Err(WorkerError::CutFiles(format!(
                "the servers have written nothing of the checkpoint for {} s: look at the disk of the checkpoint folder",
                CUT_STALL.as_secs()
            )));
        }
        cut_wait(worker, POLL_EVERY)?;
    }
}
