//! Runs that fill the registry, and how they go: when they are deleted, and when they are long dead and have no rows.

use crate::limits::{RUN_FORGOTTEN_AFTER, RUNS_MAX};
use crate::runs::registry::Registry;
use crate::runs::registry_model_tests::{NOW, beat_of, incarnation, open};
use gannet_wire::messages::runs::{
    JoinV1, RunActionV1, RunDecision, RunIntent, RunReplyV1, RunRequestV1, RunSetting,
};
use gannet_wire::refusal::Refusal;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn ask(
    registry: &mut Registry,
    (name, start): (&str, u64),
    what: RunActionV1,
    now: Duration,
    tables: &[&str],
) -> Result<RunReplyV1, (Refusal, String)> {
    let tables: Vec<String> = tables.iter().map(|&table| table.to_owned()).collect();
    let request = RunRequestV1 { name: name.into(), incarnation: incarnation(0, start), what };
    registry.answer(request, start as u32, now, &tables)
}

/// A worker comes to a run, over session `start`. Returns the decision, the generation, and the tables to drop.
fn come(
    registry: &mut Registry,
    of: (&str, u64),
    now: Duration,
    tables: &[&str],
) -> Result<(RunDecision, u32, Vec<String>), String> {
    let join = JoinV1 {
        want: RunIntent::Auto,
        settings: vec![RunSetting::new("--alpha", of.1)],
        tables: vec!["lr".into()],
        at: 1,
        notes: String::new(),
        birth: of.1,
        left: Vec::new(),
        timeout_ms: 1_000,
    };
    match ask(registry, of, RunActionV1::Join(join), now, tables) {
        Ok(RunReplyV1::Joined { generation, decided, to_drop, .. }) => {
            Ok((RunDecision::of_code(decided).unwrap(), generation, to_drop))
        }
        Ok(other) => panic!("{other:?}"),
        Err((_, text)) => Err(text),
    }
}

/// The tables that are to be dropped before the run is forgotten.
fn forget(registry: &mut Registry, name: &str, now: Duration) -> Result<Vec<String>, (Refusal, String)> {
    match ask(registry, (name, 0), RunActionV1::Forget, now, &[])? {
        RunReplyV1::Forgets { to_drop } => Ok(to_drop),
        other => panic!("{other:?}"),
    }
}

/// A registry that one peer has filled: it joined many runs, and opened a table for none of them.
fn full(folder: Option<&std::path::Path>) -> Registry {
    let mut registry = open(folder);
    for n in 0..RUNS_MAX as u64 {
        come(&mut registry, (&format!("n{n}"), 1 + n), NOW + SECOND * n as u32, &[]).unwrap();
        registry.closed(1 + n as u32);
    }
    registry
}

/// The thread runs, second by second.
fn pass(registry: &Registry, from: Duration, to: Duration) {
    let seconds = (to - from).as_secs() as u32;
    (1..=seconds).for_each(|second| registry.detector.wake(from + SECOND * second));
}

#[test]
fn join_frames_of_one_peer_locked_every_new_run_out_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = full(Some(folder.path()));
    let last = NOW + SECOND * RUNS_MAX as u32;
    let refused = come(&mut registry, ("new", 9_000), last, &[]).unwrap_err();
    assert!(refused.contains("the limit") && refused.contains("gannet forget --run NAME"), "{refused}");
    // The one that has been dead for longest goes first, and only as many as are needed.
    let later = NOW + RUN_FORGOTTEN_AFTER;
    pass(&registry, last, later);
    assert_eq!(come(&mut registry, ("new", 9_000), later, &[]), Ok((RunDecision::Begun, 1, Vec::new())));
    assert_eq!((registry.runs.len(), registry.take_forgotten()), (RUNS_MAX, vec!["n0".to_owned()]));
    assert!(
        come(&mut registry, ("other", 9_001), later, &[]).is_err(),
        "n1 has been heard of a second later"
    );
    // Its worker is told so, and takes part in no run of this name that another process begins.
    let beat = beat_of(1, 1_000);
    assert_eq!(ask(&mut registry, ("n0", 1), beat, later, &[]).unwrap_err().0, Refusal::Unknown);
    // A restart remembers it, and gives the others their time again.
    let mut registry = open(Some(folder.path()));
    assert!(registry.runs.contains_key("new") && !registry.runs.contains_key("n0"));
    registry.detector.wake(NOW);
    pass(&registry, NOW, NOW + RUN_FORGOTTEN_AFTER);
    assert!(come(&mut registry, ("other", 9_001), NOW + RUN_FORGOTTEN_AFTER - SECOND, &[]).is_err());
    assert!(come(&mut registry, ("other", 9_001), NOW + RUN_FORGOTTEN_AFTER, &[]).is_ok());
}

#[test]
fn a_run_with_rows_or_with_a_live_worker_never_goes_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = full(Some(folder.path()));
    let later = NOW + RUN_FORGOTTEN_AFTER * 2;
    pass(&registry, NOW + SECOND * RUNS_MAX as u32, later);
    // Tables that are open, or lie in the folder; and a scheduler that hands out the data of a run.
    let opened: Vec<String> = (1..RUNS_MAX).map(|n| format!("n{n}.lr")).collect();
    let opened: Vec<&str> = opened.iter().map(String::as_str).collect();
    std::fs::create_dir(folder.path().join("n0.lr")).unwrap();
    assert!(come(&mut registry, ("new", 9_000), later, &opened).is_err());
    std::fs::remove_dir(folder.path().join("n0.lr")).unwrap();
    registry.runs.get_mut("n0").unwrap().job = 7;
    assert!(come(&mut registry, ("new", 9_000), later, &opened).is_err());
    registry.runs.get_mut("n0").unwrap().job = 0;
    // Its worker comes back.
    assert_eq!(come(&mut registry, ("n0", 1), later, &[]).unwrap().0, RunDecision::Begun);
    assert!(come(&mut registry, ("new", 9_000), later, &opened).is_err());
    registry.closed(1);
    pass(&registry, later, later + RUN_FORGOTTEN_AFTER);
    assert!(come(&mut registry, ("new", 9_000), later + RUN_FORGOTTEN_AFTER, &opened).is_ok());
}

#[test]
fn no_command_forgot_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = open(Some(folder.path()));
    assert_eq!(forget(&mut registry, "r", NOW).unwrap_err().0, Refusal::Unknown);
    come(&mut registry, ("r", 1), NOW, &[]).unwrap();
    let (refusal, text) = forget(&mut registry, "r", NOW).unwrap_err();
    assert!(refusal == Refusal::Mismatch && text.contains("worker 0 is in it and lives"), "{text}");
    registry.closed(1);
    assert_eq!(forget(&mut registry, "r", NOW).unwrap(), ["r.lr"]);
    // Asked again, also after a restart, it goes on where it stood.
    let mut registry = open(Some(folder.path()));
    assert_eq!(forget(&mut registry, "r", NOW).unwrap(), ["r.lr"]);
    let dropped = RunActionV1::Dropped { tables: vec!["r.lr".into()] };
    ask(&mut registry, ("r", 0), dropped, NOW, &[]).unwrap();
    assert!(forget(&mut registry, "r", NOW).unwrap().is_empty());
    assert_eq!(registry.take_forgotten(), ["r"]);
    assert!(open(Some(folder.path())).runs.is_empty());
    assert_eq!(come(&mut registry, ("r", 2), NOW, &[]), Ok((RunDecision::Begun, 1, Vec::new())));
}

/// A worker that comes while a run is being forgotten begins it with new rows, with whatever flags. The old rows go.
#[test]
fn a_worker_that_comes_in_between_finds_no_old_rows() {
    let mut registry = open(None);
    come(&mut registry, ("r", 1), NOW, &[]).unwrap();
    registry.closed(1);
    assert_eq!(forget(&mut registry, "r", NOW).unwrap(), ["r.lr"]);
    let joined = come(&mut registry, ("r", 2), NOW, &["r.lr"]);
    assert_eq!(joined, Ok((RunDecision::Joined, 2, vec!["r.lr".to_owned()])));
    assert_eq!(forget(&mut registry, "r", NOW).unwrap_err().0, Refusal::Mismatch);
    // The worker of before is not in it any more.
    let beat = beat_of(1, 1_000);
    assert_eq!(ask(&mut registry, ("r", 1), beat, NOW, &[]).unwrap_err().0, Refusal::Fenced);
    registry.closed(2);
    assert_eq!(forget(&mut registry, "r", NOW).unwrap(), ["r.lr", "r.2.lr"]);
}
