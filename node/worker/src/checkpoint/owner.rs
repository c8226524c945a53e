//! Whose checkpoints a directory has, and whose rows a cut has: those of the job whose saver asks, by the word of the
//! servers.

use crate::checkpoint::options::CheckpointOptions;
use crate::error::WorkerError;
use gannet_core::{CheckpointDir, JobManifest, TableUid};
use gannet_jobs::runs::registry::Registry;
use gannet_wire::messages::cuts::{CutReplyV1, CutTableV1};
use gannet_wire::messages::runs::RUNS;

/// What the names of all savers of a run begin with that are the only one of their run. No run's name has a blank.
pub fn savers_of(run: &str) -> String {
    format!("{run} ")
}

/// Refuses a directory whose checkpoints are of another job. Only the ids of tables tell jobs without a run apart.
/// `own`: a checkpoint that does not count, because it was just published.
pub(crate) fn must_be_their_directory(
    directory: &CheckpointDir,
    newest: Option<&JobManifest>,
    tables: &[CutTableV1],
    own: Option<u64>,
) -> Result<(), WorkerError> {
    let Some(newest) = newest else { return Ok(()) };
    let tables: Vec<_> = tables.iter().map(|table| (table.name.as_str(), TableUid(table.uid))).collect();
    Ok(directory.must_have_rows_of(newest, &tables, own)?)
}

/// Refuses a directory whose checkpoints are of another job that has a run of the same name.
pub(crate) fn must_be_their_run(
    directory: &CheckpointDir,
    newest: Option<&JobManifest>,
    birth: u64,
    (tables, own): (&[CutTableV1], Option<u64>),
) -> Result<(), WorkerError> {
    match newest {
        Some(newest) if birth != 0 && newest.run_birth().is_some() => {
            Ok(newest.must_be_born(birth, &directory.folder(newest.number))?)
        }
        newest => must_be_their_directory(directory, newest, tables, own),
    }
}

/// The birth of the run by the word of the servers. 0: neither they nor the caller know it.
///
/// # Errors
/// The caller's run was undone: all rows were lost, and the run was begun anew on these servers. A checkpoint of theirs
/// is none of the caller's run.
pub(crate) fn birth_of_run(options: &CheckpointOptions, marked: &[CutReplyV1]) -> Result<u64, WorkerError> {
    let states = marked.iter().flat_map(|reply| match reply {
        CutReplyV1::Marked { states, .. } => &states[..],
        _ => &[],
    });
    let mut now = 0;
    for (_, bytes) in states.filter(|(name, _)| name == RUNS) {
        now = Registry::birth_in(bytes, &options.run).map_err(|why| {
            WorkerError::Call(format!("what a server knows of run {:?} cannot be read: {why}", options.run))
        })?;
    }
    match (options.birth, now) {
        (own, 0) => Ok(own),
        (own, now) if own == 0 || own == now => Ok(now),
        (own, now) => Err(WorkerError::Call(format!(
            "run {:?} was begun anew on these servers (birth {now:016x}): the run of this process (birth {own:016x}) was \
             undone, and nothing of it is saved any more; end this process, and start it again",
            options.run
        ))),
    }
}

/// Removes a checkpoint that was just published, if another job has published one meanwhile: neither had seen the
/// other.
pub(crate) fn must_be_alone(
    directory: &CheckpointDir,
    own: &JobManifest,
    birth: u64,
    tables: &[CutTableV1],
) -> Result<(), WorkerError> {
    // The checkpoint is there. Who cannot look for another one keeps it.
    let Ok(Some(other)) = directory.newest_beside(own.number) else { return Ok(()) };
    let path = directory.folder(other.number);
    let is_theirs = other.must_be_of(&own.run, &path).map_err(WorkerError::from);
    let is_theirs = is_theirs
        .and_then(|()| must_be_their_run(directory, Some(&other), birth, (tables, Some(own.number))));
    // One that cannot be used may be that of a run which was undone.
    match is_theirs {
        Err(WorkerError::CheckpointDir(error))
            if !error.is_system() && directory.chain(other.number).is_ok() =>
        {
            directory.withdraw(own.number)?;
            Err(error.into())
        }
        _ => Ok(()),
    }
}
