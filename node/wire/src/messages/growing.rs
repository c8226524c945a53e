//! A source that grows while a job trains it: the tasks of it, what workers find in it, and what its scheduler knows.

use crate::limits::{
    FOUND_TASKS_MAX, GROWN_FILE_NAME_MAX, GROWN_OFFSET_MAX, GROWN_PARTITIONS_MAX, SEEN_FILES_MAX,
};
use crate::messages::job_plan::PlanFile;
use rkyv::{Archive, Deserialize, Serialize};

/// A task of a source that grows. Unlike a [`Split`](crate::Split) it says all that a worker needs to read it.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub enum GrownTask {
    /// The lines that begin in a range of a file. A line that began before belongs to the task before.
    Lines {
        /// The file; its name has no folder.
        file: PlanFile,
        /// The first byte.
        start: u64,
        /// The byte behind the range.
        end: u64,
    },
    /// The messages of a partition of a topic in a range of offsets.
    Messages {
        /// The partition.
        partition: u32,
        /// The first offset.
        start: u64,
        /// The offset behind the range.
        end: u64,
    },
}

/// A file that a worker found in a growing folder.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// What it is; its name has no folder.
    pub file: PlanFile,
    /// When it was last written: nanoseconds since 1970.
    pub written: u64,
    /// Into how many tasks it is cut.
    pub tasks: u32,
}

/// Messages that a worker found in a partition.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRange {
    /// The partition.
    pub partition: u32,
    /// The first offset.
    pub start: u64,
    /// The offset behind the range.
    pub end: u64,
}

/// What a worker found in a source that grows, or nothing: then it asks only what the scheduler knows.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The worker has not looked yet.
    Nothing,
    /// Files of a folder, in the order in which they are trained.
    Files {
        /// The files.
        files: Vec<FoundFile>,
        /// The order is that of their times, and not that of their names.
        by_time: bool,
        /// Names in [`SourceStand::seen`] that the folder no longer has. In the order of times they are forgotten.
        gone: Vec<String>,
        /// The [place](FoundFile::place) of the last file that the job trains, if it ends with the files of today. The
        /// first report decides.
        last: Option<String>,
        /// No other file of the job will come.
        complete: bool,
    },
    /// Messages of a topic.
    Messages {
        /// Ranges, each of which becomes a task.
        ranges: Vec<FoundRange>,
        /// The first and the last offset of every partition, if the job ends with the messages of today. The first
        /// report decides.
        bounds: Option<Vec<FoundRange>>,
    },
}

/// A file whose tasks the scheduler knows or has known.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct SeenFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// When it was last written: nanoseconds since 1970.
    pub written: u64,
}

/// How far a partition is.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionStand {
    /// The partition.
    pub partition: u32,
    /// The first offset that is in no task yet.
    pub next: u64,
    /// All messages before this offset are trained.
    pub trained: u64,
    /// Where the job ends, if it does.
    pub end: Option<u64>,
}

/// What a scheduler knows of a source that grows.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceStand {
    /// So many more tasks may be reported now.
    pub room: u32,
    /// No more tasks will come.
    pub complete: bool,
    /// The files with the last names, in order.
    pub seen: Vec<SeenFile>,
    /// Files up to this name are known, too, and are no longer listed one by one.
    pub forgotten: Option<String>,
    /// The [place](FoundFile::place) of the last file that the job trains, if it ends.
    pub last: Option<String>,
    /// The partitions of a topic.
    pub partitions: Vec<PartitionStand>,
}

impl Found {
    /// Checks the limits of a report, which is saved and sent to others.
    ///
    /// # Errors
    /// Which limit, in words.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Found::Nothing => Ok(()),
            Found::Files { files, last, gone, .. } => {
                let tasks = files.iter().try_fold(0, |all: u32, file| all.checked_add(file.tasks.max(1)));
                if files.len() as u64 > FOUND_TASKS_MAX || tasks.is_none() {
                    return Err(format!(
                        "{} files were found at once; {FOUND_TASKS_MAX} are possible",
                        files.len()
                    ));
                }
                if let Some(bytes) = last.as_ref().map(String::len).filter(|&n| n > 2 * GROWN_FILE_NAME_MAX) {
                    return Err(format!(
                        "{bytes} bytes as the place of the last file; {} are possible",
                        2 * GROWN_FILE_NAME_MAX
                    ));
                }
                if gone.len() > SEEN_FILES_MAX {
                    return Err(format!(
                        "{} files have gone at once; {SEEN_FILES_MAX} are possible",
                        gone.len()
                    ));
                }
                let names = files.iter().map(|file| &file.file.name).chain(gone);
                names.into_iter().try_for_each(|name| check_name(name))?;
                files.iter().try_for_each(FoundFile::check)
            }
            Found::Messages { ranges, bounds } => {
                let partitions = bounds.as_ref().map_or(0, Vec::len) as u64;
                if ranges.len() as u64 > FOUND_TASKS_MAX || partitions > u64::from(GROWN_PARTITIONS_MAX) {
                    return Err(format!(
                        "{} ranges of messages and {partitions} partitions were found at once; {FOUND_TASKS_MAX} and \
                         {GROWN_PARTITIONS_MAX} are possible",
                        ranges.len()
                    ));
                }
                ranges.iter().chain(bounds.iter().flatten()).try_for_each(FoundRange::check)
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > GROWN_FILE_NAME_MAX || name.contains('/') {
        let n = name.len();
        return Err(format!(
            "{n} bytes as the name of a file; 1 to {GROWN_FILE_NAME_MAX} without / are possible"
        ));
    }
    Ok(())
}

impl FoundFile {
    fn check(&self) -> Result<(), String> {
        let FoundFile { file, tasks, .. } = self;
        match (*tasks, file.bytes, file.whole) {
            (0, 0, _) => Ok(()),
            (tasks, bytes, _)
                if tasks == 0 || u64::from(tasks) > FOUND_TASKS_MAX || u64::from(tasks) > bytes =>
            {
                Err(format!("file {} of {bytes} bytes in {tasks} tasks", file.name))
            }
            (2.., _, true) => Err(format!("file {} can only be one task", file.name)),
            _ => Ok(()),
        }
    }

    /// Its place in the order of files.
    pub fn place(&self, by_time: bool) -> String {
        let name = &self.file.name;
        if by_time { format!("{:020} {name}", self.written) } else { name.clone() }
    }

    /// Its tasks: ranges of about equal length.
    pub fn cut(&self) -> impl Iterator<Item = GrownTask> {
        let (bytes, tasks) = (u128::from(self.file.bytes), u128::from(self.tasks));
        let at = move |k: u32| (bytes * u128::from(k) / tasks) as u64;
        (0..self.tasks).map(move |k| GrownTask::Lines {
            file: self.file.clone(),
            start: at(k),
            end: at(k + 1),
        })
    }
}

impl FoundRange {
    fn check(&self) -> Result<(), String> {
        let FoundRange { partition, start, end } = *self;
        match partition < GROWN_PARTITIONS_MAX && start <= end && end < GROWN_OFFSET_MAX {
            true => Ok(()),
            false => Err(format!("messages {start} to {end} of partition {partition} are out of range")),
        }
    }
}
