//! Whose checkpoints a directory has, when savers are late.

use super::directory::CheckpointDir;
use super::manifest::JobManifest;

fn manifest(birth: u64, number: u64) -> JobManifest {
    let notes = JobManifest::run_birth_note(birth).into_iter().collect();
    JobManifest { notes, ..JobManifest::new(number, "monday") }
}

/// A saver writes its rows, and sleeps while its run is undone.
#[test]
fn a_late_save_of_an_undone_run_locked_the_new_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let directory = CheckpointDir::create(folder.path()).unwrap();
    let begin = |saver: &str, birth| {
        let draft = directory.begin_as(saver).unwrap();
        let states = vec![draft.state("tasks", b"what the scheduler knows").unwrap()];
        let manifest = JobManifest { states, ..manifest(birth, draft.number()) };
        (draft, manifest)
    };
    let [late, later, other] =
        [("monday 05", 5), ("monday 05", 5), ("mondays 05", 5)].map(|(saver, birth)| begin(saver, birth));
    assert_eq!(directory.give_up_of_all("monday ").unwrap(), [1, 2]);
    late.0.publish(&late.1).unwrap_err();
    // It was past its last look at the files.
    directory.store().publish("0000000002", "MANIFEST", &later.1.encode()).unwrap();
    assert!(directory.newest_valid().is_err(), "it is never taken for valid");
    let newest = directory.newest_of("monday", 7).unwrap();
    assert_eq!((newest.last.map(|last| last.number), newest.valid), (Some(2), None));
    // A checkpoint that can be used says whose directory it is.
    other.0.publish(&other.1).unwrap();
    let error = directory.newest_of("monday", 7).unwrap_err().to_string();
    assert!(error.contains("of another job"), "{error}");
    assert_eq!(directory.newest_of("monday", 5).unwrap().valid.unwrap().number, 3);
    directory.newest_of("tuesday", 5).unwrap_err();
}
