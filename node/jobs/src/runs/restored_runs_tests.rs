//! Runs that a restore brings: which of their settings count, and tables that no registry knew.

use crate::runs::registry::Registry;
use gannet_wire::messages::member::WorkerIncarnation;
use gannet_wire::messages::runs::{
    JoinV1, RunActionV1, RunDecision, RunIntent, RunReplyV1, RunRequestV1, RunSetting,
};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);

/// A worker comes with this rate, to a job whose scheduler is here and whose tables have so many shards.
fn come(
    registry: &mut Registry,
    worker: (u32, u64),
    place: (&str, u32),
    rate: f64,
) -> Result<RunDecision, String> {
    let (rank, incarnation) = worker;
    let settings = vec![
        RunSetting::new("--scheduler (by default the first server)", place.0),
        RunSetting::new("--shards", place.1).of_rows(),
        RunSetting::new("--alpha", rate).of_rows(),
    ];
    let join = JoinV1 {
        want: RunIntent::Auto,
        settings,
        tables: vec!["lr".into()],
        at: 1,
        notes: format!("scale {rate}"),
        birth: 7,
        left: Vec::new(),
        timeout_ms: 0,
    };
    let incarnation = WorkerIncarnation { rank, incarnation };
    let request = RunRequestV1 { name: "r".into(), incarnation, what: RunActionV1::Join(join) };
    match registry.answer(request, rank, NOW, &["r.lr".into()]) {
        Ok(RunReplyV1::Joined { decided, .. }) => Ok(RunDecision::of_code(decided).unwrap()),
        Ok(other) => panic!("{other:?}"),
        Err((_, why)) => Err(why),
    }
}

/// A job could not go on at other addresses, or with another number of shards.
#[test]
fn a_restored_run_takes_its_place_from_the_first_worker() {
    let mut before = Registry::default();
    let request = |registry: &mut Registry| {
        // The first registry has no tables yet.
        let settings = vec![
            RunSetting::new("--scheduler (by default the first server)", "a:1"),
            RunSetting::new("--shards", 16).of_rows(),
            RunSetting::new("--alpha", 0.1).of_rows(),
        ];
        let (tables, notes) = (vec!["lr".to_owned()], "scale 0.1".to_owned());
        registry.join_alone("r", RunIntent::Auto, settings, tables, 1, notes).unwrap();
    };
    request(&mut before);
    let mut registry = Registry::default();
    registry.restore(&before.snapshot("r").unwrap(), NOW).unwrap();
    let other = come(&mut registry, (0, 5), ("b:1", 64), 0.2).unwrap_err();
    assert!(other.contains("--alpha"), "{other}");
    assert_eq!(come(&mut registry, (0, 6), ("b:1", 64), 0.1), Ok(RunDecision::Resumed));
    // A worker with a wrong number of shards may have come first. When it has left, the right one is taken. Another
    // scheduler would hand out the data a second time.
    registry.closed(0);
    assert_eq!(come(&mut registry, (0, 7), ("b:1", 32), 0.1), Ok(RunDecision::Resumed));
    registry.closed(0);
    assert_eq!(come(&mut registry, (0, 8), ("b:1", 64), 0.1), Ok(RunDecision::Resumed));
    registry.closed(0);
    assert!(come(&mut registry, (0, 9), ("c:1", 64), 0.1).unwrap_err().contains("--scheduler"));
    assert_eq!(come(&mut registry, (0, 13), ("b:1", 64), 0.1), Ok(RunDecision::Resumed));
    // From now on the other workers need the same place.
    let other = come(&mut registry, (1, 10), ("c:1", 64), 0.1).unwrap_err();
    assert!(other.contains("--scheduler") && other.contains("b:1") && other.contains("c:1"), "{other}");
    let other = come(&mut registry, (1, 11), ("b:1", 16), 0.1).unwrap_err();
    assert!(other.contains("--shards"), "{other}");
    assert_eq!(come(&mut registry, (1, 12), ("b:1", 64), 0.1), Ok(RunDecision::Joined));
}

/// Imported rows could not be trained: no registry knew them.
#[test]
fn the_first_worker_decides_what_a_run_of_imported_tables_is() {
    let mut registry = Registry::default();
    let unknown = come(&mut registry, (0, 1), ("a:1", 64), 0.1).unwrap_err();
    assert!(unknown.contains("no registry of runs knows it"), "{unknown}");
    // Tables of other runs, and names that are none, begin nothing.
    for (name, table) in [("r", "other.lr"), ("", "lr"), ("a b", "a b.lr")] {
        registry.adopt(name, &[table.into()], 3).unwrap();
        assert!(come(&mut registry, (0, 2), ("a:1", 64), 0.1).is_err(), "{name:?} {table}");
    }
    registry.adopt("r", &["r.lr".into()], 3).unwrap();
    assert_eq!(come(&mut registry, (0, 3), ("a:1", 64), 0.1), Ok(RunDecision::Joined));
    let other = come(&mut registry, (1, 4), ("a:1", 64), 0.2).unwrap_err();
    assert!(other.contains("--alpha"), "{other}");
    // A run that is known keeps its settings.
    registry.adopt("r", &["r.lr".into()], 3).unwrap();
    assert!(come(&mut registry, (1, 5), ("a:1", 64), 0.2).is_err());
    assert_eq!(come(&mut registry, (1, 6), ("a:1", 64), 0.1), Ok(RunDecision::Joined));
}
