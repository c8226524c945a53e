//! The job state on disk: one file, which is rewritten and renamed for each change. A scheduler that is killed finds
//! the last whole file. A machine that goes down may leave an older file, or a torn one, which is refused.

use crate::scheduler::job_state::JobState;
use gannet_core::own_files;
use gannet_wire::messages::control;
use gannet_wire::messages::runs::RunId;
use gannet_wire::whole_files;
use std::path::{Path, PathBuf};
use std::{fs, io};

const NAME: &str = "scheduler.book";
/// What comes before and after the name of a run.
const BEFORE: &str = "scheduler.";
const BEHIND: &str = ".book";
const MAGIC: [u8; 8] = *b"GNTBOOK4";

/// Why the job state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobStateFileError {
    /// The system reports an error.
    #[error("the scheduler's job state file {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no job state, or a torn one.
    #[error(
        "the scheduler's job state file {}: {why}; put it back as it was, or move it away and begin the run anew with --fresh",
        path.display()
    )]
    Torn {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file is of another job than that of this data server.
    #[error("{why}")]
    Other {
        /// What differs, and what to do.
        why: String,
    },
}

/// The path of the job state file.
#[derive(Debug)]
pub(crate) struct JobStateFile {
    path: PathBuf,
}

impl JobStateFile {
    /// The file of a run, in this folder.
    pub(crate) fn new(folder: &Path, run: &str) -> JobStateFile {
        let name = if run.is_empty() { NAME.to_owned() } else { format!("{BEFORE}{run}{BEHIND}") };
        JobStateFile { path: folder.join(name) }
    }

    /// Reads the job state, if there is one.
    pub(crate) fn load(&self) -> Result<Option<JobState>, JobStateFileError> {
        let io = |source| JobStateFileError::Io { path: self.path.clone(), source };
        let Some(bytes) = whole_files::read(&self.path).map_err(io)? else { return Ok(None) };
        let torn = |why| JobStateFileError::Torn { path: self.path.clone(), why };
        decode(&bytes).map(Some).map_err(torn)
    }

    /// Writes the job state.
    pub(crate) fn save(&self, job: &JobState) -> Result<(), JobStateFileError> {
        let bytes = encode(job);
        let written = own_files::replace_unsynced(&self.path, whole_files::beginning(&MAGIC), &bytes);
        written.map_err(|source| JobStateFileError::Io { path: self.path.clone(), source })
    }
}

/// The bytes of a job state file. A checkpoint has the same bytes as its state `tasks`.
pub(crate) fn encode(job: &JobState) -> Vec<u8> {
    whole_files::encode(MAGIC, &control::seal(job))
}

/// The job state in these bytes.
///
/// # Errors
/// They are no job state, or a torn one: in words.
pub(crate) fn decode(bytes: &[u8]) -> Result<JobState, String> {
    let payload = whole_files::decode(MAGIC, bytes, "a job state file")?;
    control::open(payload).map_err(|error| error.to_string())
}

/// The runs whose job states are in a folder; the empty name is the run without a name.
pub(crate) fn runs(folder: &Path) -> Result<Vec<String>, JobStateFileError> {
    let io = |source| JobStateFileError::Io { path: folder.to_path_buf(), source };
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let of_run = name.strip_prefix(BEFORE).and_then(|name| name.strip_suffix(BEHIND));
        let of_run = of_run.filter(|run| RunId::check_name(run).is_ok());
        runs.extend(of_run.or((name == NAME).then_some("")).map(str::to_owned));
    }
    Ok(runs)
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
    remove(folder, "")
}

/// Removes the job state of this run from a folder, if there is one.
pub(crate) fn remove(folder: &Path, run: &str) -> io::Result<()> {
    own_files::remove(&JobStateFile::new(folder, run).path, &[whole_files::beginning(&MAGIC)]).map(drop)
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
        let file = JobStateFile::new(folder.path(), "");
        assert!(file.load().unwrap().is_none());
        let job = job();
        file.save(&job).unwrap();
        file.save(&job).unwrap();
        assert_eq!(file.load().unwrap(), Some(job));
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        for at in [0, 9, 16, 40, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let torn = file.load().unwrap_err();
            assert!(matches!(torn, JobStateFileError::Torn { .. }), "byte {at}: {torn}");
            assert!(torn.to_string().contains("move it away"));
        }
        fs::write(&path, &whole[..12]).unwrap();
        assert!(file.load().is_err());
    }
}
