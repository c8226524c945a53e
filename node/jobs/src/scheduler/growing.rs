//! The tasks of a source that grows while the job trains it. Workers report what they find, and each thing becomes
//! tasks once: a report of files or messages that are known already changes nothing.
//!
//! What is trained is not kept for ever. Of a topic the next offset of each partition stays. Of a folder the last names
//! stay, so that files need not come in the order of their names; of the names before them only the last one stays, and
//! a file with an earlier name is never taken. In the order of times a name stays until the folder has no such file.

use crate::scheduler::job_state::{JobState, JobStateError};
use gannet_wire::limits::{
    FOUND_NAME_BYTES_MAX, FOUND_TASKS_MAX, GROWN_OFFSET_MAX, GROWN_PARTITIONS_MAX, SEEN_FILES_MAX,
};
use gannet_wire::messages::growing::{
    Found, FoundFile, FoundRange, GrownTask, PartitionStand, SeenFile, SourceStand,
};
use gannet_wire::messages::member::WorkerIncarnation;
use rkyv::{Archive, Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a partition is known.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
struct Partition {
    /// The first offset that is in no task.
    next: u64,
    end: Option<u64>,
}

/// See the module.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Growing {
    /// Tasks that are not done, by number.
    open: BTreeMap<u64, GrownTask>,
    /// Those of them that were never handed out, in the order in which they were found.
    waiting: Vec<u64>,
    /// Tasks that were found so far.
    found: u64,
    /// The number of the next task of a file.
    next_number: u64,
    /// The files with the last names, with lengths and times.
    seen: BTreeMap<String, (u64, u64)>,
    /// The last name of those before.
    forgotten: Option<String>,
    /// Files come in the order of their times.
    by_time: bool,
    /// The place of the last file that is trained, if the job ends.
    last: Option<String>,
    partitions: BTreeMap<u32, Partition>,
    /// No more tasks will come.
    complete: bool,
}

/// The number of the task of a partition that begins at this offset.
fn number_of(partition: u32, start: u64) -> u64 {
    u64::from(partition) * GROWN_OFFSET_MAX + start
}

impl Growing {
    /// Tasks that were found so far.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Whether nothing is left to hand out for the first time, now and later.
    pub fn is_handed_out(&self) -> bool {
        self.complete && self.waiting.is_empty()
    }

    /// Hands out the task that was found first.
    pub fn hand_out(&mut self) -> Option<u64> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    /// An open task.
    pub fn task(&self, number: u64) -> Option<&GrownTask> {
        self.open.get(&number)
    }

    /// Whether all tasks are trained, and no more will come.
    pub fn is_trained(&self) -> bool {
        self.complete && self.open.is_empty()
    }

    /// A task is trained.
    pub fn done(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Whether a task of this number was found and is trained.
    pub fn is_done(&self, number: u64) -> bool {
        let (partition, offset) = ((number / GROWN_OFFSET_MAX) as u32, number % GROWN_OFFSET_MAX);
        let found = number < self.next_number
            || self.partitions.get(&partition).is_some_and(|partition| offset < partition.next);
        found && !self.open.contains_key(&number)
    }

    /// Takes what a worker found.
    pub fn take_in(&mut self, found: Found) {
        match found {
            Found::Nothing => {}
            Found::Files { files, by_time, gone, last, complete } => {
                if !self.complete && self.partitions.is_empty() {
                    self.forget_gone(by_time, &gone);
                    self.take_files(files, (last, complete));
                    self.forget_names();
                }
            }
            Found::Messages { ranges, bounds } => self.take_messages(&ranges, bounds),
        }
    }

    fn has_room(&self) -> bool {
        (self.open.len() as u64) < FOUND_TASKS_MAX
    }

    /// The first report decides the order.
    fn forget_gone(&mut self, by_time: bool, gone: &[String]) {
        if self.next_number == 0 {
            self.by_time = by_time;
        }
        if self.by_time {
            let is_open = |name: &String| {
                self.open
                    .values()
                    .any(|task| matches!(task, GrownTask::Lines { file, .. } if file.name == *name))
            };
            let gone: Vec<&String> = gone.iter().filter(|name| !is_open(name)).collect();
            for name in gone {
                self.seen.remove(name);
            }
        }
    }

    fn take_files(&mut self, files: Vec<FoundFile>, (last, complete): (Option<String>, bool)) {
        if self.last.is_none() {
            self.last = last;
        }
        let mut all = true;
        for found in files {
            let name = &found.file.name;
            let known =
                self.seen.contains_key(name) || self.forgotten.as_ref().is_some_and(|last| name <= last);
            if known || self.last.as_ref().is_some_and(|last| found.place(self.by_time) > *last) {
                continue;
            }
            let has_place = !self.by_time || self.has_place(name);
            if !self.has_room() || !has_place {
                all = false;
                break;
            }
            for task in found.cut() {
                self.open.insert(self.next_number, task);
                self.waiting.push(self.next_number);
                (self.next_number, self.found) = (self.next_number + 1, self.found + 1);
            }
            self.seen.insert(found.file.name, (found.file.bytes, found.written));
        }
        self.complete = complete && all;
    }

    fn name_bytes(&self) -> usize {
        self.seen.keys().map(String::len).sum()
    }

    /// Whether another name can be listed.
    fn has_place(&self, name: &str) -> bool {
        self.seen.len() < SEEN_FILES_MAX && self.name_bytes() + name.len() <= FOUND_NAME_BYTES_MAX
    }

    /// Of the names the last ones stay. A file whose tasks are open is known by them, too.
    fn forget_names(&mut self) {
        let mut bytes = self.name_bytes();
        while self.seen.len() > SEEN_FILES_MAX || bytes > FOUND_NAME_BYTES_MAX {
            let Some((name, _)) = self.seen.pop_first() else { return };
            bytes -= name.len();
            self.forgotten = Some(name);
        }
    }

    fn take_messages(&mut self, ranges: &[FoundRange], bounds: Option<Vec<FoundRange>>) {
        if self.complete || self.next_number > 0 {
            return;
        }
        let has_end = self.partitions.values().any(|partition| partition.end.is_some());
        for FoundRange { partition, start, end } in bounds.into_iter().flatten().filter(|_| !has_end) {
            let partition = self.partitions.entry(partition).or_insert(Partition { next: start, end: None });
            partition.end = Some(end.max(partition.next));
        }
        let has_end = self.partitions.values().any(|partition| partition.end.is_some());
        for &FoundRange { partition, start, end } in ranges {
            if !self.has_room() {
                break;
            }
            if !self.partitions.contains_key(&partition)
                && (has_end || self.partitions.len() as u32 == GROWN_PARTITIONS_MAX)
            {
                // A partition that was made after the end was set.
                continue;
            }
            let known = self.partitions.entry(partition).or_insert(Partition { next: start, end: None });
            let end = end.min(known.end.unwrap_or(u64::MAX));
            // Another worker may have reported these messages before.
            if known.next != start || end <= start {
                continue;
            }
            known.next = end;
            let number = number_of(partition, start);
            self.open.insert(number, GrownTask::Messages { partition, start, end });
            self.waiting.push(number);
            self.found += 1;
        }
        self.complete = has_end
            && self
                .partitions
                .values()
                .all(|partition| partition.end.is_none_or(|end| partition.next >= end));
    }

    /// What is known of the source.
    pub fn stand(&self) -> SourceStand {
        let seen = |(name, &(bytes, written)): (&String, &(u64, u64))| SeenFile {
            name: name.clone(),
            bytes,
            written,
        };
        let partition = |(&partition, &Partition { next, end }): (&u32, &Partition)| {
            let of_it = number_of(partition, 0)..number_of(partition + 1, 0);
            let first = self.open.range(of_it).next().map(|(number, _)| number % GROWN_OFFSET_MAX);
            PartitionStand { partition, next, trained: first.unwrap_or(next), end }
        };
        SourceStand {
            room: FOUND_TASKS_MAX.saturating_sub(self.open.len() as u64) as u32,
            complete: self.complete,
            seen: self.seen.iter().map(seen).collect(),
            forgotten: self.forgotten.clone(),
            last: self.last.clone(),
            partitions: self.partitions.iter().map(partition).collect(),
        }
    }
}

impl JobState {
    /// A worker reports what it found in the source that grows. Returns what is known of the source.
    ///
    /// # Errors
    /// The worker is not in the job, was given up, the data of the job does not grow, or the report is not valid.
    pub fn take_found(
        &mut self,
        incarnation: WorkerIncarnation,
        found: Found,
    ) -> Result<SourceStand, JobStateError> {
        self.member(incarnation)?;
        found.check().map_err(JobStateError::Limit)?;
        let none = || JobStateError::Limit("the data of this job does not grow".into());
        let growing = self.growing.as_mut().ok_or_else(none)?;
        growing.take_in(found);
        let stand = growing.stand();
        self.settle_chief();
        Ok(stand)
    }
}
