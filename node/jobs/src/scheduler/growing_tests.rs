//! The tasks of a growing source beside a list of what was trained: each file and each message once, whoever reports
//! it, whoever dies, and also after a restore.

use crate::scheduler::job_state::{JobState, JobStateError};
use crate::scheduler::job_state_file::{JOB_STATE_FILE, partitions_in};
use gannet_core::DATA_PUSHERS;
use gannet_transport::limits::FRAME_BYTES_MAX;
use gannet_wire::limits::{FOUND_TASKS_MAX, GROWN_OFFSET_MAX, GROWN_PARTITIONS_MAX, SEEN_FILES_MAX};
use gannet_wire::messages::control;
use gannet_wire::messages::growing::{Found, FoundFile, FoundRange, GrownTask, PartitionStand, SourceStand};
use gannet_wire::messages::job_plan::{JobPlan, PlanFile};
use gannet_wire::messages::jobs::{SchedulerReplyV1, SplitGrant};
use gannet_wire::messages::member::WorkerIncarnation;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn plan(workers: u32) -> JobPlan {
    let (worker_timeout_ms, settings) = (1000, vec!["--follow a folder".into()]);
    JobPlan { workers, files: Vec::new(), task_bytes: 10, batch: 4, epochs: 1, worker_timeout_ms, settings }
}

fn job() -> (JobState, WorkerIncarnation) {
    let (mut job, me) = (JobState::new(plan(3), 5).unwrap(), WorkerIncarnation { rank: 0, incarnation: 1 });
    job.register(me, &plan(3)).unwrap();
    (job, me)
}

fn file(name: &str, tasks: u32) -> FoundFile {
    let file = PlanFile { name: name.into(), bytes: u64::from(tasks) * 10, print: 3, whole: false };
    FoundFile { file, written: 7, tasks }
}

fn files(files: Vec<FoundFile>) -> Found {
    Found::Files { files, by_time: false, gone: Vec::new(), last: None, complete: false }
}

fn ranges(ranges: &[(u32, u64, u64)]) -> Vec<FoundRange> {
    ranges.iter().map(|&(partition, start, end)| FoundRange { partition, start, end }).collect()
}

fn messages(found: &[(u32, u64, u64)]) -> Found {
    Found::Messages { ranges: ranges(found), bounds: None }
}

/// Takes tasks until none is free, and trains them.
fn train_all(job: &mut JobState, me: WorkerIncarnation) -> Vec<GrownTask> {
    let mut trained = Vec::new();
    while let SplitGrant::Grown { index, task, from: 0 } = job.take(me, &[]).unwrap() {
        job.done(me, index, 1).unwrap();
        // The reply was lost.
        job.done(me, index, 1).unwrap();
        trained.push(task);
    }
    trained
}

/// What happens in a job whose source grows. Numbers choose a worker, or a place in the source.
#[derive(Debug, Clone)]
enum Event {
    Grow(u32, u8),
    Look(u32),
    Take(u32),
    Done(u32),
    Die(u32),
    Save,
    Restore,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let worker = 0u32..3;
    let event = prop_oneof![
        3 => (0u32..4, 1u8..30).prop_map(|(at, more)| Event::Grow(at, more)),
        3 => worker.clone().prop_map(Event::Look),
        6 => worker.clone().prop_map(Event::Take),
        6 => worker.clone().prop_map(Event::Done),
        1 => worker.prop_map(Event::Die),
        1 => Just(Event::Save),
        1 => Just(Event::Restore),
    ];
    prop::collection::vec(event, 1..300)
}

/// How often each message of a partition was trained.
type TimesTrained = BTreeMap<(u32, u64), u32>;

/// A job on a topic, beside what was trained of each message. Each worker knows a stand of the scheduler, maybe an old
/// one.
struct Model {
    job: JobState,
    ends: Vec<u64>,
    incarnations: [u64; 3],
    held: [Vec<(u64, GrownTask)>; 3],
    stands: [SourceStand; 3],
    trained: TimesTrained,
    saved: Option<(Vec<u8>, TimesTrained)>,
}

impl Model {
    fn new() -> Model {
        let mut model = Model {
            job: JobState::new(plan(3), 5).unwrap(),
            ends: vec![0; 4],
            incarnations: [0; 3],
            held: Default::default(),
            stands: Default::default(),
            trained: BTreeMap::new(),
            saved: None,
        };
        (0..3).for_each(|rank| model.start(rank));
        model
    }

    fn start(&mut self, rank: u32) {
        self.incarnations[rank as usize] += 1;
        self.job.register(self.me(rank), &plan(3)).unwrap();
        self.held[rank as usize].clear();
        self.stands[rank as usize] = SourceStand::default();
    }

    fn me(&self, rank: u32) -> WorkerIncarnation {
        WorkerIncarnation { rank, incarnation: self.incarnations[rank as usize] }
    }

    fn look(&mut self, rank: u32, step: u64) {
        let (me, stand) = (self.me(rank), &self.stands[rank as usize]);
        let mut found = Vec::new();
        for (partition, &end) in (0..).zip(&self.ends) {
            let known = stand.partitions.iter().find(|of| of.partition == partition);
            let mut at = known.map_or(0, |of| of.next);
            while at < end {
                let to = end.min(at + step);
                found.push((partition, at, to));
                at = to;
            }
        }
        self.stands[rank as usize] = self.job.take_found(me, messages(&found)).unwrap();
    }

    fn done(&mut self, rank: u32) {
        let Some((index, task)) = self.held[rank as usize].pop() else { return };
        self.job.done(self.me(rank), index, 1).unwrap();
        let GrownTask::Messages { partition, start, end } = task else { panic!("{task:?}") };
        assert!(self.job.is_done(DATA_PUSHERS | index, 5));
        (start..end).for_each(|offset| *self.trained.entry((partition, offset)).or_default() += 1);
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Grow(at, more) => self.ends[at as usize] += u64::from(more),
            Event::Look(rank) => self.look(rank, 7 + u64::from(rank)),
            Event::Take(rank) => {
                let holding: Vec<u64> = self.held[rank as usize].iter().map(|(index, _)| *index).collect();
                if let SplitGrant::Grown { index, task, .. } = self.job.take(self.me(rank), &holding).unwrap()
                {
                    assert!(!self.job.is_done(DATA_PUSHERS | index, 5));
                    self.held[rank as usize].push((index, task));
                }
            }
            Event::Done(rank) => self.done(rank),
            Event::Die(rank) => {
                self.job.fenced(self.me(rank), &[]);
                self.start(rank);
            }
            Event::Save => self.saved = Some((JOB_STATE_FILE.encode(&self.job), self.trained.clone())),
            Event::Restore => {
                if let Some((bytes, trained)) = &self.saved {
                    (self.job, self.trained) = (JOB_STATE_FILE.decode(bytes).unwrap(), trained.clone());
                    self.job.end_workers();
                    (0..3).for_each(|rank| self.start(rank));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn each_message_is_trained_once_through_deaths_late_reports_and_restores(events in events()) {
        let mut model = Model::new();
        events.into_iter().for_each(|event| model.run(event));
        // Everything is found in the end: a stand of before a restore is not.
        for _ in 0..4 {
            model.stands[0] = model.job.take_found(model.me(0), Found::Nothing).unwrap();
            model.look(0, 9);
            for rank in 0..3 {
                model.run(Event::Take(rank));
                while !model.held[rank as usize].is_empty() {
                    model.run(Event::Done(rank));
                    model.run(Event::Take(rank));
                }
            }
        }
        for (partition, &end) in (0..).zip(&model.ends) {
            for offset in 0..end {
                prop_assert_eq!(model.trained.get(&(partition, offset)), Some(&1), "{} of {}", offset, partition);
            }
        }
        prop_assert!(model.trained.len() as u64 == model.ends.iter().sum::<u64>());
        let stand = model.job.take_found(model.me(0), Found::Nothing).unwrap();
        prop_assert!(stand.partitions.iter().all(|of| of.trained == of.next && of.next == model.ends[of.partition as usize]));
        prop_assert_eq!(stand.room, FOUND_TASKS_MAX as u32);
    }

    #[test]
    fn each_file_is_trained_once_whoever_reports_it(
        reports in prop::collection::vec(prop::collection::vec((0u32..40, 1u32..4), 0..10), 1..20),
    ) {
        let ((mut job, me), mut expected, mut trained) = (job(), BTreeMap::new(), BTreeMap::new());
        for report in reports {
            let found: Vec<FoundFile> = report.iter().map(|(at, tasks)| file(&format!("{at:03}"), *tasks)).collect();
            for file in &found {
                expected.entry(file.file.name.clone()).or_insert(file.file.bytes);
            }
            job.take_found(me, files(found)).unwrap();
            for task in train_all(&mut job, me) {
                let GrownTask::Lines { file, start, end } = task else { panic!("{task:?}") };
                let at = trained.entry(file.name).or_insert(0);
                prop_assert_eq!(*at, start);
                *at = end;
            }
        }
        prop_assert_eq!(trained, expected);
    }
}

#[test]
fn the_first_report_of_an_end_decides_and_the_job_ends_there() {
    let (mut job, me) = job();
    let bounds = Some(ranges(&[(0, 10, 25), (1, 4, 4)]));
    let stand = job.take_found(me, Found::Messages { ranges: ranges(&[(0, 10, 20)]), bounds }).unwrap();
    assert!(!stand.complete && stand.partitions[1].trained == 4, "{stand:?}");
    // Another worker came later, and saw more messages and a partition that is new.
    let later = Some(ranges(&[(0, 10, 90), (1, 4, 90), (2, 0, 9)]));
    let found = Found::Messages { ranges: ranges(&[(0, 20, 90), (1, 4, 90), (2, 0, 9)]), bounds: later };
    assert!(job.take_found(me, found).unwrap().complete);
    assert!(!job.is_trained());
    let trained = train_all(&mut job, me);
    let expected = [(10, 20), (20, 25)].map(|(start, end)| GrownTask::Messages { partition: 0, start, end });
    assert_eq!(trained, expected);
    assert!(job.is_trained() && job.chief() == Some(me));
    assert_eq!(job.take(me, &[]), Ok(SplitGrant::Over));
}

#[test]
fn a_job_whose_source_has_nothing_until_its_end_has_a_chief() {
    let (mut job, me) = job();
    let found = Found::Messages { ranges: Vec::new(), bounds: Some(ranges(&[(0, 3, 3)])) };
    assert!(job.take_found(me, found).unwrap().complete && job.is_trained());
    assert_eq!((job.chief(), job.take(me, &[])), (Some(me), Ok(SplitGrant::Over)));
}

#[test]
fn a_folder_ends_with_the_last_file_of_the_first_report() {
    let (mut job, me) = job();
    let end = |names: &[&str], last: &str, complete| Found::Files {
        files: names.iter().map(|name| file(name, 1)).collect(),
        by_time: false,
        gone: Vec::new(),
        last: Some(last.into()),
        complete,
    };
    assert_eq!(job.take_found(me, end(&["a"], "c", false)).unwrap().last.as_deref(), Some("c"));
    let stand = job.take_found(me, end(&["a", "b", "c", "d"], "d", true)).unwrap();
    let names: Vec<&str> = stand.seen.iter().map(|seen| seen.name.as_str()).collect();
    assert!(stand.complete && names == ["a", "b", "c"], "{stand:?}");
    assert_eq!(train_all(&mut job, me).len(), 3);
    assert!(job.is_trained());
}

/// The names of all files that were ever trained would fill the scheduler's state.
#[test]
fn of_many_files_the_last_names_stay_and_an_earlier_one_is_never_taken_again() {
    let (mut job, me) = job();
    let many = SEEN_FILES_MAX as u32 + 500;
    for at in 0..many {
        job.take_found(me, files(vec![file(&format!("{:06}", 2 * at), 1)])).unwrap();
        assert_eq!(train_all(&mut job, me).len(), 1);
    }
    let stand = job.take_found(me, Found::Nothing).unwrap();
    assert_eq!((stand.seen.len(), stand.forgotten.as_deref()), (SEEN_FILES_MAX, Some("000998")));
    // Forgotten names, a late one among them; known ones; and one that comes late, but not too late.
    let names = ["000000", "000998", "000997", "001000", "003000", "003001"];
    job.take_found(me, files(names.map(|name| file(name, 1)).to_vec())).unwrap();
    let trained = train_all(&mut job, me);
    assert!(matches!(&trained[..], [GrownTask::Lines { file, .. }] if file.name == "003001"), "{trained:?}");
    assert!(JOB_STATE_FILE.encode(&job).len() < 200_000);
}

/// A file whose name is forgotten could be trained again when its time changes.
#[test]
fn in_the_order_of_times_a_name_stays_until_the_file_has_gone() {
    let (mut job, me) = job();
    let by_time = |files: Vec<FoundFile>, gone: &[&str]| Found::Files {
        files,
        by_time: true,
        gone: gone.iter().map(|&name| name.to_owned()).collect(),
        last: None,
        complete: false,
    };
    let many = SEEN_FILES_MAX as u32;
    for at in 0..many {
        job.take_found(me, by_time(vec![file(&format!("{at}"), 1)], &[])).unwrap();
        assert_eq!(train_all(&mut job, me).len(), 1);
    }
    let touched = FoundFile { written: 99, ..file("0", 1) };
    let stand = job.take_found(me, by_time(vec![touched.clone(), file("new", 1)], &[])).unwrap();
    assert_eq!((stand.seen.len(), stand.forgotten), (SEEN_FILES_MAX, None));
    assert_eq!(train_all(&mut job, me), []);
    // The folder has no such file any more. One that is not trained is not forgotten.
    job.take_found(me, by_time(vec![file("new", 1)], &["1"])).unwrap();
    job.take_found(me, by_time(vec![file("new", 1)], &["new"])).unwrap();
    assert_eq!(train_all(&mut job, me).len(), 1);
}

#[test]
fn open_tasks_have_a_limit_and_no_message_between_them_is_passed_over() {
    let (mut job, me) = job();
    let mut found: Vec<(u32, u64, u64)> = (0..FOUND_TASKS_MAX).map(|at| (0, at, at + 1)).collect();
    assert_eq!(job.take_found(me, messages(&found)).unwrap().room, 0);
    found = vec![(0, FOUND_TASKS_MAX, FOUND_TASKS_MAX + 1)];
    assert_eq!(job.take_found(me, messages(&found)).unwrap().partitions[0].next, FOUND_TASKS_MAX);
    assert_eq!(train_all(&mut job, me).len() as u64, FOUND_TASKS_MAX);
    // What begins elsewhere than the last task ended is not taken.
    job.take_found(me, messages(&[(0, FOUND_TASKS_MAX + 1, FOUND_TASKS_MAX + 9)])).unwrap();
    assert_eq!(train_all(&mut job, me), []);
    job.take_found(me, messages(&found)).unwrap();
    assert_eq!(train_all(&mut job, me).len(), 1);
}

#[test]
fn reports_out_of_range_are_refused() {
    let (mut job, me) = job();
    let too_many: Vec<(u32, u64, u64)> = (0..=FOUND_TASKS_MAX).map(|at| (0, at, at + 1)).collect();
    let whole = PlanFile { whole: true, ..file("a", 2).file };
    let wrong = [
        messages(&[(0, 5, 4)]),
        messages(&[(GROWN_PARTITIONS_MAX, 0, 1)]),
        messages(&[(0, 0, GROWN_OFFSET_MAX)]),
        messages(&too_many),
        files(vec![file("", 1)]),
        files(vec![file("../a", 1)]),
        files(vec![file(&"a".repeat(300), 1)]),
        files(vec![FoundFile { tasks: 0, ..file("a", 2) }]),
        files(vec![FoundFile { tasks: 99, ..file("a", 2) }]),
        files(vec![FoundFile { file: whole, ..file("a", 2) }]),
    ];
    for found in wrong {
        assert!(matches!(job.take_found(me, found.clone()), Err(JobStateError::Limit(_))), "{found:?}");
    }
    let stranger = WorkerIncarnation { rank: 1, incarnation: 9 };
    assert!(matches!(job.take_found(stranger, Found::Nothing), Err(JobStateError::Unknown(_))));
    assert_eq!(job.take_found(me, Found::Nothing).unwrap().room, FOUND_TASKS_MAX as u32);
    assert!(JobPlan { epochs: 2, ..plan(3) }.check().unwrap_err().contains("--epochs 1"));
}

#[test]
fn what_is_known_of_a_source_fits_one_frame() {
    let (mut job, me) = job();
    for at in 0..2 * SEEN_FILES_MAX {
        job.take_found(me, files(vec![file(&format!("{at:0200}"), 1)])).unwrap();
        train_all(&mut job, me);
    }
    let stand = job.take_found(me, Found::Nothing).unwrap();
    assert!(control::seal_as(3, &SchedulerReplyV1::Stand(stand)).len() < FRAME_BYTES_MAX);
    let (mut job, me) = self::job();
    let partitions: Vec<(u32, u64, u64)> = (0..GROWN_PARTITIONS_MAX).map(|at| (at, 0, 1)).collect();
    let found = Found::Messages { ranges: ranges(&partitions), bounds: Some(ranges(&partitions)) };
    assert!(control::seal_as(3, &found).len() < FRAME_BYTES_MAX);
    let stand = job.take_found(me, found).unwrap();
    assert_eq!(stand.partitions.len(), GROWN_PARTITIONS_MAX as usize);
    assert!(control::seal_as(3, &SchedulerReplyV1::Stand(stand)).len() < FRAME_BYTES_MAX);
}

#[test]
fn the_job_state_of_a_checkpoint_tells_how_far_each_partition_is() {
    let (mut job, me) = job();
    assert_eq!(partitions_in(&JOB_STATE_FILE.encode(&job)).unwrap(), []);
    job.take_found(me, messages(&[(0, 5, 9), (2, 0, 3), (0, 9, 12)])).unwrap();
    let SplitGrant::Grown { index, .. } = job.take(me, &[]).unwrap() else { panic!("no task") };
    job.done(me, index, 1).unwrap();
    let of = |partition, next, trained| PartitionStand { partition, next, trained, end: None };
    let state = JOB_STATE_FILE.encode(&job);
    assert_eq!(partitions_in(&state).unwrap(), [of(0, 12, 9), of(2, 3, 0)]);
    assert!(partitions_in(&state[..state.len() - 1]).is_err());
}
