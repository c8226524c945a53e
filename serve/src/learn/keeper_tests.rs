//! The state of a folder that learns against a model of it: what clients were told, and what a job trains.

use super::keeper::{IdOutcome, JobStand, Keeper, KeeperLimits, Offered, Refused};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

const LIMITS: KeeperLimits = KeeperLimits { ids: 1 << 20, waiting_bytes: 1 << 20 };

fn open(folder: &Path, limits: KeeperLimits) -> Keeper {
    Keeper::open(folder, ("libsvm", ".svm"), limits).unwrap()
}

fn stand(found: u64, trained: u64) -> JobStand {
    JobStand { found, trained, is_over: false }
}

fn example(id: impl ToString) -> Offered {
    Offered { id: id.to_string(), line: Some(format!("1 {}:1", id.to_string())) }
}

/// The lines that a training of the folder reads, in order.
fn lines(folder: &Path) -> Vec<String> {
    let listed = fs::read_dir(folder.join("examples")).unwrap();
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.'));
    files.sort();
    files
        .iter()
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The last part of the journal.
fn last_part(folder: &Path) -> PathBuf {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(folder.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    parts.pop().unwrap()
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    /// Requests that come together, with these ids.
    Take(Vec<Vec<u8>>),
    /// The job looks at the folder.
    Find,
    /// The job trains what it has found.
    Train,
    /// The process hears of the job.
    Hear,
    /// The process is killed, and begins again. These bytes were being written.
    Kill(Vec<u8>),
    /// The last file was written, and its name not changed, when the process was killed.
    KillBeforeRename,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ids = prop::collection::vec(0u8..60, 1..5);
    let step = prop_oneof![
        4 => prop::collection::vec(ids, 1..4).prop_map(Step::Take),
        3 => Just(Step::Find),
        3 => Just(Step::Train),
        4 => Just(Step::Hear),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Kill),
        1 => Just(Step::KillBeforeRename),
    ];
    prop::collection::vec(step, 1..60)
}

/// A job of the folder: one task a file. `found` are the lines of all its files.
#[derive(Default)]
struct Job {
    files: u64,
    found: usize,
    trained_files: u64,
    trained: usize,
}

impl Job {
    fn stand(&self) -> JobStand {
        stand(self.files, self.trained_files)
    }

    fn find(&mut self, folder: &Path) {
        let listed = fs::read_dir(folder.join("examples")).unwrap();
        let is_whole = |name: &str| !name.starts_with('.');
        self.files = listed
            .filter(|entry| is_whole(entry.as_ref().unwrap().file_name().to_str().unwrap()))
            .count() as u64;
        self.found = lines(folder).len();
    }
}

/// Bytes that are no whole record, as a kill leaves them.
fn tear(folder: &Path, bytes: &[u8]) {
    let path = last_part(folder);
    let mut all = fs::read(&path).unwrap();
    // A record of 200 bytes, of which fewer were written.
    all.extend_from_slice(&200u32.to_le_bytes()[..bytes.len().min(4)]);
    all.extend_from_slice(bytes.get(4..).unwrap_or_default());
    fs::write(&path, all).unwrap();
}

/// Takes the name of the last file away if the journal says that it is the last one.
fn hide_last(folder: &Path, job: &Job) {
    let listed = fs::read_dir(folder.join("examples")).unwrap();
    let mut names: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    // A job that has found the file shows that it had its name.
    if let Some(last) = names.last().filter(|_| names.len() as u64 > job.files) {
        fs::remove_file(folder.join("examples").join(last)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]
    /// Whatever comes, is killed and begins again: each id is in the files once, in the order in which ids were taken;
    /// what is said to be learned was trained; and what was taken is still known.
    #[test]
    fn each_example_is_trained_once(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (mut keeper, mut job) = (open(folder, LIMITS), Job::default());
        let (mut all, mut numbers): (Vec<u8>, HashMap<u8, u64>) = (Vec::new(), HashMap::new());
        for step in steps {
            match step {
                Step::Take(requests) => {
                    let offers: Vec<Vec<Offered>> =
                        requests.iter().map(|ids| ids.iter().map(example).collect()).collect();
                    for (ids, places) in requests.iter().zip(keeper.take(&offers)) {
                        for (id, place) in ids.iter().zip(places.unwrap()) {
                            let expected = match numbers.get(id) {
                                Some(&number) => IdOutcome::Known(number),
                                None => {
                                    numbers.insert(*id, all.len() as u64);
                                    all.push(*id);
                                    IdOutcome::New(all.len() as u64 - 1)
                                }
                            };
                            prop_assert_eq!(place, expected);
                        }
                    }
                }
                Step::Find => job.find(folder),
                Step::Train => (job.trained_files, job.trained) = (job.files, job.found),
                Step::Hear => keeper.goes_on(job.stand()).unwrap(),
                Step::Kill(bytes) => {
                    drop(keeper);
                    tear(folder, &bytes);
                    keeper = open(folder, LIMITS);
                }
                Step::KillBeforeRename => {
                    drop(keeper);
                    hide_last(folder, &job);
                    keeper = open(folder, LIMITS);
                }
            }
            prop_assert!(keeper.learned() <= job.trained as u64);
            prop_assert_eq!(keeper.learned() + keeper.waiting(), all.len() as u64);
        }
        for _ in 0..4 {
            keeper.goes_on(job.stand()).unwrap();
            job.find(folder);
            (job.trained_files, job.trained) = (job.files, job.found);
        }
        keeper.goes_on(job.stand()).unwrap();
        let expected: Vec<String> = all.iter().map(|id| format!("1 {id}:1")).collect();
        prop_assert_eq!(lines(folder), expected);
        prop_assert_eq!(keeper.waiting(), 0);
    }
}

/// Beyond the window an id is forgotten, also by the next process. One that is not learned stays.
#[test]
fn the_last_ids_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let limits = KeeperLimits { ids: 3, ..LIMITS };
    let mut keeper = open(folder.path(), limits);
    let take = |keeper: &mut Keeper, id: u32| keeper.take(&[vec![example(id)]]).remove(0).unwrap()[0];
    for id in 0..6 {
        assert_eq!(take(&mut keeper, id), IdOutcome::New(u64::from(id)));
    }
    assert_eq!(take(&mut keeper, 0), IdOutcome::Known(0), "it is not learned");
    keeper.goes_on(JobStand::default()).unwrap();
    keeper.goes_on(stand(1, 1)).unwrap();
    assert_eq!(
        (keeper.learned(), take(&mut keeper, 3), take(&mut keeper, 2)),
        (6, IdOutcome::Known(3), IdOutcome::New(6))
    );
}

#[test]
fn what_waits_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = open(folder.path(), KeeperLimits { waiting_bytes: 24, ..LIMITS });
    let offers = [vec![example(1), example(2), example(3)], vec![example(4), example(5)], vec![example(1)]];
    let answers = keeper.take(&offers);
    assert!(answers[0].is_ok() && answers[2] == Ok(vec![IdOutcome::Known(0)]), "{answers:?}");
    assert_eq!(answers[1], Err(Refused::Full));
    keeper.goes_on(JobStand::default()).unwrap();
    assert_eq!(keeper.take(&offers[1..2]), [Err(Refused::Full)], "they are with the job");
    keeper.goes_on(stand(1, 1)).unwrap();
    assert_eq!(keeper.take(&offers[1..2]), [Ok(vec![IdOutcome::New(3), IdOutcome::New(4)])]);
}

/// A job that has ended gets no more files. What it has trained is learned.
#[test]
fn a_job_that_has_ended_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = open(folder.path(), LIMITS);
    keeper.take(&[vec![example(1)]])[0].as_ref().unwrap();
    keeper.goes_on(JobStand::default()).unwrap();
    keeper.take(&[vec![example(2)]])[0].as_ref().unwrap();
    keeper.goes_on(JobStand { is_over: true, ..stand(1, 1) }).unwrap();
    assert_eq!((keeper.learned(), lines(folder.path())), (1, vec!["1 1:1".to_owned()]));
}

/// A label without a prediction is told so, unless its id was learned before.
#[test]
fn a_label_alone_is_no_example() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = open(folder.path(), LIMITS);
    let label = |id: &str| Offered { id: id.into(), line: None };
    assert_eq!(
        keeper.take(&[vec![label("1"), example("1"), label("1")]])[0],
        Ok(vec![IdOutcome::Unknown, IdOutcome::New(0), IdOutcome::Known(0)])
    );
}

/// A journal whose last record is cut anywhere has all examples before it, and takes others in its place.
#[test]
fn a_torn_record_is_cut_away_wherever_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let ids_of = |keeper: &mut Keeper, ids: [u32; 3]| {
        let offers: Vec<Offered> = ids.iter().map(example).collect();
        keeper.take(&[offers]).remove(0).unwrap()
    };
    let mut keeper = open(folder.path(), LIMITS);
    ids_of(&mut keeper, [1, 2, 3]);
    let path = last_part(folder.path());
    let whole = fs::metadata(&path).unwrap().len() as usize;
    ids_of(&mut keeper, [4, 5, 6]);
    drop(keeper);
    let bytes = fs::read(&path).unwrap();
    for end in whole..bytes.len() {
        fs::write(&path, &bytes[..end]).unwrap();
        let mut keeper = open(folder.path(), LIMITS);
        let expected = [IdOutcome::Known(2), IdOutcome::New(3), IdOutcome::New(4)];
        assert_eq!(ids_of(&mut keeper, [3, 5, 6]), expected, "cut at {end}");
        drop(keeper);
        assert_eq!(
            ids_of(&mut open(folder.path(), LIMITS), [5, 6, 4]),
            [3, 4, 5].map(|n| match n {
                5 => IdOutcome::New(n),
                n => IdOutcome::Known(n),
            })
        );
    }
    for end in 0..whole {
        fs::write(&path, &bytes[..end]).unwrap();
        let mut keeper = open(folder.path(), LIMITS);
        assert_eq!(ids_of(&mut keeper, [1, 2, 3]), [0, 1, 2].map(IdOutcome::New), "cut at {end}");
    }
}

/// A journal that is damaged in the middle, or of another format, is refused by name, and nothing is cut away.
#[test]
fn damage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut keeper = open(folder.path(), LIMITS);
    for id in 0..3 {
        keeper.take(&[vec![example(id)]]).remove(0).unwrap();
    }
    drop(keeper);
    let why = |format| Keeper::open(folder.path(), (format, ".svm"), LIMITS).unwrap_err().to_string();
    assert!(why("vw").contains("has lines of libsvm, and the model reads vw"), "{}", why("vw"));
    let path = last_part(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|bytes| bytes == b"1 1:1").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let why = why("libsvm");
    assert!(why.contains("is damaged at its byte") && why.contains(path.to_str().unwrap()), "{why}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn files_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), LIMITS));
    fs::write(folder.path().join("examples/own.svm"), "1 1:1\n").unwrap();
    let why = Keeper::open(folder.path(), ("libsvm", ".svm"), LIMITS).unwrap_err().to_string();
    assert!(why.contains("own.svm: is no file of this command"), "{why}");
}
