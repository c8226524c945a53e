//! The job state on disk: one file, which is rewritten and renamed for each change. A scheduler that is killed finds
//! the last whole file. A machine that goes down may leave an older file, or a torn one, which is refused.

use crate::scheduler::job_state::JobState;
use gannet_wire::StateFileError;
use gannet_wire::messages::growing::PartitionStand;
use gannet_wire::messages::runs::RunId;
use gannet_wire::state_file::StateFile;
use std::path::{Path, PathBuf};
use std::{fs, io};

const NAME: &str = "scheduler.book";
/// What comes before and after the name of a run.
const BEFORE: &str = "scheduler.";
const BEHIND: &str = ".book";

/// The file. A checkpoint has the same bytes as its state `tasks`.
pub const JOB_STATE_FILE: StateFile<JobState> = StateFile::new(
    b"GNTBOOK6",
    "the scheduler's job state file",
    "move it away and begin the run anew with --fresh",
);

/// The name of a checkpoint's state that is the job state.
pub const TASKS: &str = "tasks";

/// The job state file of a run, in this folder.
pub(crate) fn job_state_path(folder: &Path, run: &str) -> PathBuf {
    folder.join(if run.is_empty() { NAME.to_owned() } else { format!("{BEFORE}{run}{BEHIND}") })
}

/// Whether a file with this name is a job state file, if it is Gannet's.
pub fn is_job_state_name(name: &str) -> bool {
    name.starts_with(BEFORE) && name.ends_with(BEHIND)
}

/// The runs whose job states are in a folder; the empty name is the run without a name.
pub(crate) fn runs_with_jobs(folder: &Path) -> Result<Vec<String>, StateFileError> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).map_err(JOB_STATE_FILE.io_error(folder))? {
        let name = entry.map_err(JOB_STATE_FILE.io_error(folder))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let of_run = name.strip_prefix(BEFORE).and_then(|name| name.strip_suffix(BEHIND));
        let of_run = of_run.filter(|run| RunId::check_name(run).is_ok());
        runs.extend(of_run.or((name == NAME).then_some("")).map(str::to_owned));
    }
    Ok(runs)
}

/// How far the partitions of a topic are in a job state, such as a checkpoint's state [`TASKS`].
///
/// # Errors
/// The state is torn, or of another version: in words.
pub fn partitions_in(state: &[u8]) -> Result<Vec<PartitionStand>, String> {
    let growing = JOB_STATE_FILE.decode(state)?.growing;
    Ok(growing.map_or_else(Vec::new, |growing| growing.stand().partitions))
}

/// Removes the job state of a run from a folder, if there is one, because the job has come to its end.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use gannet_jobs::forget_job;
///
/// forget_job(folder.path())?; // the folder has no job state, which is no error
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The system reports an error, or the file is not Gannet's.
pub fn forget_job(folder: &Path) -> io::Result<()> {
    forget_job_of(folder, "")
}

/// Removes the job state of this run from a folder, if there is one.
pub(crate) fn forget_job_of(folder: &Path, run: &str) -> io::Result<()> {
    JOB_STATE_FILE.remove(&job_state_path(folder, run)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_wire::messages::job_plan::JobPlan;
    use gannet_wire::messages::job_plan::PlanFile;
    use gannet_wire::messages::member::WorkerIncarnation;

    fn job() -> JobState {
        let files = vec![PlanFile { name: "f".into(), bytes: 1000, print: 3, whole: false }];
        let (settings, worker_timeout_ms) = (vec!["--alpha=0.1".into()], 1000);
        let plan =
            JobPlan { workers: 2, files, task_bytes: 10, batch: 4, epochs: 2, worker_timeout_ms, settings };
        let mut job = JobState::new(plan.clone(), 7).unwrap();
        let incarnation = WorkerIncarnation { rank: 1, incarnation: 9 };
        job.register(incarnation, &plan).unwrap();
        job.take(incarnation, &[]).unwrap();
        job
    }

    #[test]
    fn a_job_state_comes_back_as_it_was_and_a_torn_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = job_state_path(folder.path(), "");
        assert!(JOB_STATE_FILE.load(&path).unwrap().is_none());
        let job = job();
        JOB_STATE_FILE.save_unsynced(&path, &job).unwrap();
        JOB_STATE_FILE.save_unsynced(&path, &job).unwrap();
        assert_eq!(JOB_STATE_FILE.load(&path).unwrap(), Some(job));
        assert_eq!(path, folder.path().join(NAME));
        let whole = fs::read(&path).unwrap();
        for at in [0, 9, 16, 40, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let torn = JOB_STATE_FILE.load(&path).unwrap_err();
            assert!(matches!(torn, StateFileError::Torn { .. }), "byte {at}: {torn}");
            assert!(torn.to_string().contains("move it away"));
        }
        fs::write(&path, &whole[..12]).unwrap();
        assert!(JOB_STATE_FILE.load(&path).is_err());
    }
}
